"""Columns kept by fingerprints, from the published version to the next one: which occur twice, and what they stand for.

What came and what went says which fingerprints changed; the published sums, how often each occurs now. Values are read
only for those that occur at least twice now, and only where they are not known:

- of a fingerprint that came, in the fragments that came;
- of one that occurred once before, and stays, in the fragments that hold it: nobody knew its value;
- of one that several values share, and that went somewhere, in all fragments that hold it: nobody knows which went.

A fingerprint with one known value that only went needs no reading. One that occurs less than twice has no values any
more. From scratch is the same where all came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import CorruptionError
from metastore_assets.lists import ListReader, Lists
from metastore_assets.lists.graph import FACTS, FREQUENCIES, VALUES, delta_name, rows_of, stage_name
from metastore_assets.lists.printed import PRINT_DELTAS, PRINT_ROWS, PRINTS, PrintedLists, printed_flow
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.layouts import Layout
from metastore_assets.pipeline.list_deltas import list_rows
from metastore_assets.pipeline.list_runs import list_tables
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.print_exchange import exchanged_prints
from metastore_assets.pipeline.print_values import PrintedColumn, Source, find_values, sum_of_prints
from metastore_assets.produce import Delta, FlowState, View
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, frequencies_of_run, sum_frequencies
from metastore_assets.statistics.leaves import schema_leaves
from metastore_assets.statistics.physical import physical_series
from metastore_assets.statistics.prints import BITS, Numbers, Prints, prints_of
from metastore_assets.statistics.runs import sum_counts
from metastore_assets.statistics.types import class_named, type_class
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectStore

TABLE_BITS = BITS
"""Width of the fingerprints that a table's values are told apart by. Fewer make more work, and the same lists."""
_MANY = 20_000_000
"""Values of a column whose fingerprints Spark's tasks add up, where all are new."""
_LEAST_ROWS = 1_000_000
"""Values that a task sends fingerprints of, where there are so many: the more, the closer they lie."""
_ROWS = 1 << 20
"""Fingerprints in a piece of what is loaded."""


@dataclass(frozen=True)
class Change:
    """What becomes of one column."""

    prints: Prints
    """Ascending, with what is to be added to the sum of each; not zero."""
    values: Frequencies
    """What is to be added to the frequency of each value; not zero."""
    rows: int
    """What is to be added to the number of values."""
    read: int
    """How many fragments the values were read in."""


@dataclass
class _Known:
    """What the published lists say of the fingerprints that changed."""

    totals: Numbers
    values: Frequencies = field(default_factory=lambda: EMPTY)
    """The listed values that have one of them."""


@dataclass(frozen=True)
class _Range:
    """The sums of a range of a column's fingerprints."""

    number: int
    runs: Sequence[Run]
    rows: int
    prints: Numbers
    """Those that occur at least twice, with their sums."""
    counts: Numbers


@dataclass(frozen=True)
class _Load:
    """All of one column."""

    runs: Sequence[Run]
    values: Frequencies
    rows: int
    read: int
    """How many fragments the values were read in."""


class TablePrints:
    """The lists of the columns with fingerprints that a plan leads to."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        plan: Plan,
        fragments: Mapping[str, FragmentEntry],
        came: Sequence[FragmentEntry],
        went: Sequence[FragmentEntry],
    ) -> None:
        self._engine = engine
        self._store = store
        self._columns = printed_columns(plan.layout, plan.snapshot.schema)
        rows = {fragment.id: fragment for fragment in plan.snapshot.fragments}
        self._live = [Source(fragments[own], rows[own]) for part in plan.partitions for own in part.fragments]
        names = {entry.files.name for entry in came}
        self._came = [own for own in self._live if own.entry.files.name in names]
        self._stayed = [own for own in self._live if own.entry.files.name not in names]
        self._went = list(went)

    def stepped(self, base: PrintedLists) -> PrintedLists:
        """The lists after the published ones. Raises CorruptionError, FragmentError where a file cannot be read."""
        if not self._columns:
            return PrintedLists()
        wanted = {own.field_id: own.type_class for own in self._columns}
        changed = sum(own.entry.row_count for own in self._came) + sum(own.row_count for own in self._went)
        rows = sum(own.entry.row_count for own in self._live)
        if not base.columns or base.bits != TABLE_BITS or 2 * changed >= rows:
            counts, flow = self._from_scratch(wanted)
        else:
            counts, flow = self._step(base, wanted)
        return PrintedLists(wanted, counts, flow, TABLE_BITS)

    def _from_scratch(self, wanted: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        columns = sorted(self._columns, key=lambda own: own.field_id.encode())
        flow = printed_flow(self._store, wanted.values())
        loader = flow.loader(PRINTS)
        runs: list[Run] = []
        try:
            loads = {}
            for column in columns:
                loads[column.field_id] = load = self._load(column, loader)
                runs += load.runs
            content: dict[str, list[Run] | Iterator[pa.RecordBatch]] = {PRINTS: runs}
            for name in set(wanted.values()):
                whole = [(own.field_id, loads[own.field_id].values) for own in columns if own.type_class == name]
                tables = list_tables(name, [(field_id, values) for field_id, values in whole if len(values)])
                for kind in (VALUES, FREQUENCIES, FACTS):
                    content[stage_name(kind, name)] = _batches([tables[kind]] if kind in tables else [])
            return {field_id: own.rows for field_id, own in loads.items()}, flow.load(FlowState(), content)
        except BaseException:
            self._store.delete([run.path for run in runs])
            raise

    def _load(self, column: PrintedColumn, loader: Loader) -> _Load:
        """All fingerprints of a column as runs, and the values of those that occur at least twice."""
        rows = sum(own.entry.row_count for own in self._live)
        if rows <= _MANY:
            total = sum_of_prints(self._store, column, [own.entry for own in self._live])
            ranges = [_write_range(loader, column.field_id, 0, total)]
        else:
            entries = sorted((own.entry for own in self._live), key=lambda entry: entry.files.states)
            lots = list(_lots(entries, max(_LEAST_ROWS, rows // (4 * self._engine.slots()))))
            read, write = partial(sum_of_prints, self._store, column), partial(_write_range, loader, column.field_id)
            ranges = exchanged_prints(self._engine.session, read, lots, rows, column.bits, write)
        ranges.sort(key=lambda own: own.number)
        several = Prints(*(np.concatenate(own) for own in zip(*((r.prints, r.counts) for r in ranges), strict=True)))
        values, read_ = find_values(self._engine, self._store, column, self._live, several.prints)
        _check(column, several.prints, several.counts, values)
        return _Load([run for own in ranges for run in own.runs], values, sum(own.rows for own in ranges), read_)

    def _step(self, base: PrintedLists, wanted: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        stay = {field_id for field_id, name in wanted.items() if base.columns.get(field_id) == name}
        flow = printed_flow(self._store, {*wanted.values(), *base.columns.values()})
        view = flow.view(base.flow)
        reader = ListReader(self._store, Lists(printed=base))
        counts = {field_id: base.value_counts[field_id] for field_id in stay}
        deltas: dict[str, list[Delta]] = {}
        for own in self._columns:
            if own.field_id in stay:
                known = _KnownOf(view, reader, own)
                change = self._change(own, self._came, self._went, self._stayed, known)
            else:
                change = self._change(own, self._live, (), (), _nothing_known)
            counts[own.field_id] = counts.get(own.field_id, 0) + change.rows
            for table in _print_tables(own.field_id, change.prints):
                _add(deltas, PRINT_DELTAS, table)
            if len(change.values):
                schema = rows_of(own.type_class).schema
                _add(deltas, delta_name(own.type_class), list_rows(own.field_id, change.values, schema))
        for field_id, name in base.columns.items():
            if field_id not in stay:
                start = pa.table({"column": [field_id], "print": pa.nulls(1, pa.int64())})
                for batch in view.batches_from(PRINTS, start):
                    table = pa.Table.from_batches([batch]).filter(pc.equal(batch["column"], field_id))
                    if not table.num_rows:
                        break
                    deltas.setdefault(PRINT_DELTAS, []).append(Delta(table, gone=True))
                listed = pa.Table.from_batches(reader.batches(field_id, name), rows_of(name).schema)
                deltas.setdefault(delta_name(name), []).append(Delta(listed, gone=True))
        return counts, flow.step(base.flow, deltas) if deltas else base.flow

    def _change(
        self,
        column: PrintedColumn,
        came: Sequence[Source],
        went: Sequence[FragmentEntry],
        stayed: Sequence[Source],
        known_of: Callable[[Numbers], _Known],
    ) -> Change:
        more = sum_of_prints(self._store, column, [own.entry for own in came])
        less = sum_of_prints(self._store, column, went)
        changed = np.union1d(more.prints, less.prints)
        gained, lost = more.counts_of(changed), less.counts_of(changed)
        known = known_of(changed)
        totals = known.totals + gained - lost
        if (totals < 0).any():
            raise CorruptionError(
                f"column {column.path!r}: more values of a fingerprint went than there were: stored profiles "
                "contradict each other; rebuild with `metastore refresh --full`"
            )
        # How many listed values each of the changed fingerprints has.
        own = prints_of(known.values, column.bits)
        shared = np.bincount(np.searchsorted(changed, own), minlength=len(changed))
        several = totals >= 2
        unknown = several & (((known.totals == 1) & (lost == 0)) | ((shared > 1) & (lost > 0)))
        kept = _kept(known.values, np.searchsorted(changed, own), several & ~unknown, shared == 1, lost)
        new, read_new = find_values(self._engine, self._store, column, came, changed[several & (gained > 0)])
        old, read_old = find_values(self._engine, self._store, column, stayed, changed[unknown])
        values = sum_frequencies(((kept, 1), (new, 1), (old, 1)))
        _check(column, changed[several], totals[several], values)
        return Change(
            _signed(changed, gained - lost),
            _difference(values, known.values, column.type_class),
            int((gained - lost).sum()),
            read_new + read_old,
        )


@dataclass(frozen=True)
class _KnownOf:
    """Asks the published lists for what they say of fingerprints of a column."""

    view: View
    reader: ListReader
    column: PrintedColumn

    def __call__(self, prints: Numbers) -> _Known:
        keys = pa.table({"column": pa.repeat(pa.scalar(self.column.field_id), len(prints)), "print": pa.array(prints)})
        found = self.view.groups(PRINTS, keys)
        before = Prints(found["print"].to_numpy(), found["frequency"].to_numpy())
        totals = before.counts_of(prints)
        listed = prints[totals >= 2]
        if not len(listed):
            return _Known(totals)
        parts = []
        for batch in self.reader.batches(self.column.field_id, self.column.type_class):
            parts.append((self.column.within(Frequencies(batch["value"], batch["frequency"]), listed), 1))
        return _Known(totals, sum_frequencies(parts))


def _nothing_known(prints: Numbers) -> _Known:
    return _Known(np.zeros(len(prints), np.int64))


def _check(column: PrintedColumn, prints: Numbers, totals: Numbers, values: Frequencies) -> None:
    """Whether the values are those that the fingerprints were taken of."""
    found = np.zeros(len(prints), np.int64)
    np.add.at(found, np.searchsorted(prints, prints_of(values, column.bits)), values.counts.to_numpy())
    if (found != totals).any():
        raise CorruptionError(
            f"column {column.path!r}: the table's files have other values than the fingerprints that were taken of "
            f"them ({int((found != totals).sum()):,} of {len(prints):,} differ): a file was changed in place, or a "
            "profile is damaged; rebuild with `metastore refresh --full`"
        )


def _write_range(loader: Loader, field_id: str, number: int, total: Prints) -> _Range:
    """Write the sums of a range of fingerprints. May run in a worker process."""
    several = total.part(total.counts >= 2)
    runs = loader.write(_batches(_print_tables(field_id, total)))
    return _Range(number, runs, total.rows, several.prints, several.counts)


def _lots(entries: Sequence[FragmentEntry], rows: int) -> Iterator[list[FragmentEntry]]:
    """Fragments of about so many rows together."""
    lot: list[FragmentEntry] = []
    for entry in entries:
        lot.append(entry)
        if sum(own.row_count for own in lot) >= rows:
            yield lot
            lot = []
    if lot:
        yield lot


def printed_columns(layout: Layout, schema: pa.Schema) -> list[PrintedColumn]:
    """The columns of a layout that are kept by fingerprints."""
    valued = layout.valued
    policies = {leaf.field_id: policy for leaf, policy in layout.leaves}
    paths = {leaf.field_id: leaf.path for leaf, _ in layout.leaves}
    is_quiet = any(policy.values == "hidden" for policy in policies.values())
    return [
        PrintedColumn(leaf.field_id, paths[leaf.field_id], type_class(leaf.type).name, field, at, TABLE_BITS, is_quiet)
        for field, leaves in zip(schema, schema_leaves(schema), strict=True)
        for at, leaf in enumerate(leaves)
        if leaf.field_id in valued and policies[leaf.field_id].is_printed
    ]


def _kept(values: Frequencies, at: Numbers, wanted: np.ndarray, single: np.ndarray, lost: Numbers) -> Frequencies:
    """Of the listed values those of wanted fingerprints, without what went of them, which is known where one is alone.

    `at`: for each value the number of its fingerprint."""
    if not len(values):
        return EMPTY
    counts = values.counts.to_numpy() - np.where(single[at], lost[at], 0)
    chosen = wanted[at] & (counts > 0)
    return Frequencies(values.values.filter(pa.array(chosen)), pa.array(counts[chosen]))


def _difference(now: Frequencies, before: Frequencies, type_class: str) -> Frequencies:
    parts = [own for own in (now, before) if len(own)]
    if not parts:
        return EMPTY
    cls = class_named(type_class)
    signs = [1 if own is now else -1 for own in parts]
    counts = np.concatenate([own.counts.to_numpy() * sign for own, sign in zip(parts, signs, strict=True)])
    total = frequencies_of_run(
        sum_counts(physical_series(pa.concat_arrays([own.values for own in parts]), cls), counts), cls
    )
    changed = pa.array(total.counts.to_numpy() != 0)
    return Frequencies(total.values.filter(changed), total.counts.filter(changed))


def _signed(prints: Numbers, counts: Numbers) -> Prints:
    return Prints(prints, counts).part(counts != 0)


def _print_tables(field_id: str, prints: Prints) -> Iterator[pa.Table]:
    for at in range(0, len(prints), _ROWS):
        own, counts = prints.prints[at : at + _ROWS], prints.counts[at : at + _ROWS]
        columns = [pa.repeat(pa.scalar(field_id), len(own)), pa.array(own), pa.array(counts)]
        yield pa.Table.from_arrays(columns, schema=PRINT_ROWS.schema)


def _add(deltas: dict[str, list[Delta]], root: str, rows: pa.Table) -> None:
    """What came of signed rows, and what went."""
    counts = rows["frequency"].to_numpy()
    for gone, chosen in ((False, counts > 0), (True, counts < 0)):
        if chosen.any():
            own = rows.filter(pa.array(chosen))
            own = own.set_column(own.num_columns - 1, own.schema.field("frequency"), pa.array(np.abs(counts[chosen])))
            deltas.setdefault(root, []).append(Delta(own, gone=gone))


def _batches(tables: Iterator[pa.Table] | Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
