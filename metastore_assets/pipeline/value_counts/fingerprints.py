"""The value counts of fingerprinted columns, updated from the published version to the next.

`fingerprint_changes` computes the update of a column for a commit. The first time, and when at least half of the table
changed, all fingerprints are summed, values are read for those that occur at least twice, and both are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Target
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts.fingerprint_changes import (
    Change,
    NoCounts,
    PublishedCounts,
    StoredCounts,
    check_values,
    compute_change,
)
from metastore_assets.pipeline.value_counts.fingerprint_shuffle import shuffle_fingerprints
from metastore_assets.pipeline.value_counts.fingerprinted_values import (
    FingerprintedColumn,
    Source,
    find_values,
    sum_stored_fingerprints,
)
from metastore_assets.pipeline.value_counts.runs import stage_tables
from metastore_assets.produce import Delta, FlowState
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.fingerprints import EMPTY as NO_PRINTS
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, FingerprintCounts, Numbers
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import TableValueCounts, ValueCountReader
from metastore_assets.value_counts.fingerprinted import (
    FINGERPRINT_DELTAS,
    FINGERPRINT_ROWS,
    FINGERPRINTS,
    FingerprintedValueCounts,
    fingerprint_dataflow,
    fingerprinted_table,
)
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, delta_name, stage_name
from metastore_assets.values.leaf_columns import schema_leaves
from metastore_assets.values.types import type_class

TABLE_BITS = FINGERPRINT_BITS
"""Width of the fingerprints of a table in bits. Fewer bits cause more reads and give the same value counts."""
_MANY = 20_000_000
"""The number of values of a column above which Spark tasks sum its fingerprints."""
_LEAST_ROWS = 1_000_000
"""The minimum number of values per Spark task: the more values, the smaller the differences of sorted fingerprints."""
_ROWS = 1 << 20
"""The number of fingerprints in one loaded table."""


@dataclass(frozen=True)
class _Range:
    """The sums of one range of a column's fingerprints."""

    number: int
    runs: Sequence[Run]
    rows: int
    fingerprints: Numbers
    """The fingerprints that occur at least twice. `counts` has their sums."""
    counts: Numbers


@dataclass(frozen=True)
class _Load:
    """The full counts of one column."""

    runs: Sequence[Run]
    values: Frequencies
    rows: int


class FingerprintUpdate:
    """The value counts of fingerprinted columns that a plan results in."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        target: Target,
        fragments: Mapping[str, FragmentEntry],
        added: Sequence[FragmentEntry],
        removed: Sequence[FragmentEntry],
    ) -> None:
        self._engine = engine
        self._store = store
        self._columns = fingerprinted_columns(target.spec, target.snapshot.schema)
        rows = {fragment.id: fragment for fragment in target.snapshot.fragments}
        self._live = [Source(fragments[own], rows[own]) for part in target.partitions for own in part.fragments]
        names = {entry.files.name for entry in added}
        self._added = [own for own in self._live if own.entry.files.name in names]
        self._unchanged = [own for own in self._live if own.entry.files.name not in names]
        self._removed = list(removed)

    def next_state(self, base: FingerprintedValueCounts) -> FingerprintedValueCounts:
        """Return the value counts that follow the published ones.

        Raises:
            CorruptionError: Profiles or published counts are damaged.
            FragmentError: A file cannot be read.
        """
        if not self._columns:
            return FingerprintedValueCounts()
        wanted = {own.field_id: own.type_class for own in self._columns}
        changed = sum(own.entry.row_count for own in self._added) + sum(own.row_count for own in self._removed)
        rows = sum(own.entry.row_count for own in self._live)
        if not base.columns or base.bits != TABLE_BITS or 2 * changed >= rows:
            counts, flow = self._from_scratch(wanted)
        else:
            counts, flow = self._step(base, wanted)
        return FingerprintedValueCounts(wanted, counts, flow, TABLE_BITS)

    def _from_scratch(self, wanted: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        columns = sorted(self._columns, key=lambda own: own.field_id.encode())
        flow = fingerprint_dataflow(self._store, wanted.values())
        loader = flow.loader(FINGERPRINTS)
        runs: list[Run] = []
        try:
            loads = {}
            for column in columns:
                loads[column.field_id] = load = self._load(column, loader)
                runs += load.runs
            content: dict[str, list[Run] | Iterator[pa.RecordBatch]] = {FINGERPRINTS: runs}
            for name in set(wanted.values()):
                whole = [(own.field_id, loads[own.field_id].values) for own in columns if own.type_class == name]
                tables = stage_tables(name, [(field_id, values) for field_id, values in whole if len(values)])
                for kind in (FREQUENCIES, FREQUENCY_COUNTS):
                    content[stage_name(kind, name)] = _batches([tables[kind]] if kind in tables else [])
                own = [fingerprinted_table(field_id, values, TABLE_BITS, name) for field_id, values in whole]
                content[stage_name(VALUES, name)] = _batches(own)
            return {field_id: own.rows for field_id, own in loads.items()}, flow.load(FlowState(), content)
        except BaseException:
            self._store.delete([run.path for run in runs])
            raise

    def _load(self, column: FingerprintedColumn, loader: Loader) -> _Load:
        """Return all fingerprints of a column as runs, and the values of those that occur at least twice."""
        rows = sum(own.entry.row_count for own in self._live)
        if rows <= _MANY:
            total = sum_stored_fingerprints(self._store, column, [own.entry for own in self._live])
            ranges = [_write_range(loader, column.field_id, 0, total)]
        else:
            entries = sorted((own.entry for own in self._live), key=lambda entry: entry.files.states)
            lots = list(_lots(entries, max(_LEAST_ROWS, rows // (4 * self._engine.slots()))))
            read, write = (
                partial(sum_stored_fingerprints, self._store, column),
                partial(_write_range, loader, column.field_id),
            )
            ranges = shuffle_fingerprints(self._engine.session, read, lots, rows, column.bits, write)
        ranges.sort(key=lambda own: own.number)
        # If all values are null, there is no range.
        several = FingerprintCounts(
            np.concatenate([NO_PRINTS.fingerprints, *(own.fingerprints for own in ranges)]),
            np.concatenate([NO_PRINTS.counts, *(own.counts for own in ranges)]),
        )
        values = find_values(self._engine, self._store, column, self._live, several.fingerprints)
        check_values(column, several.fingerprints, several.counts, values)
        return _Load([run for own in ranges for run in own.runs], values, sum(own.rows for own in ranges))

    def _step(self, base: FingerprintedValueCounts, wanted: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        stay = {field_id for field_id, name in wanted.items() if base.columns.get(field_id) == name}
        classes = {*wanted.values(), *base.columns.values()}
        flow = fingerprint_dataflow(self._store, classes)
        view = flow.view(base.flow)
        reader = ValueCountReader(self._store, TableValueCounts(fingerprinted=base))
        counts = {field_id: base.value_counts[field_id] for field_id in stay}
        deltas: dict[str, list[Delta]] = {}
        for own in self._columns:
            if own.field_id in stay:
                known = StoredCounts(view, reader, own)
                change = self._change(own, self._added, self._removed, self._unchanged, known)
            else:
                change = self._change(own, self._live, (), (), NoCounts())
            counts[own.field_id] = counts.get(own.field_id, 0) + change.rows
            for table in _print_tables(own.field_id, change.fingerprints):
                _add(deltas, FINGERPRINT_DELTAS, table)
            if len(change.values):
                rows = fingerprinted_table(own.field_id, change.values, TABLE_BITS, own.type_class)
                _add(deltas, delta_name(own.type_class), rows)
        for field_id, name in base.columns.items():
            if field_id not in stay:
                start = pa.table({"column": [field_id], "fingerprint": pa.nulls(1, pa.int64())})
                for batch in view.batches_from(FINGERPRINTS, start):
                    table = pa.Table.from_batches([batch]).filter(pc.equal(batch["column"], field_id))
                    if not table.num_rows:
                        break
                    deltas.setdefault(FINGERPRINT_DELTAS, []).append(Delta(table, removed=True))
                listed = [Delta(table, removed=True) for table in reader.rows(field_id, name)]
                deltas.setdefault(delta_name(name), []).extend(listed)
        if not deltas:
            return counts, base.flow
        if sum(delta.row_count for own in deltas.values() for delta in own) > _MANY:
            flow = fingerprint_dataflow(self._store, classes, runner=self._engine.spark_runner)
        return counts, flow.step(base.flow, deltas)

    def _change(
        self,
        column: FingerprintedColumn,
        added: Sequence[Source],
        removed: Sequence[FragmentEntry],
        unchanged: Sequence[Source],
        known: PublishedCounts,
    ) -> Change:
        more = sum_stored_fingerprints(self._store, column, [own.entry for own in added])
        less = sum_stored_fingerprints(self._store, column, removed)
        find_new, find_old = (
            partial(find_values, self._engine, self._store, column, own) for own in (added, unchanged)
        )
        return compute_change(column, more, less, known, find_new, find_old)


def _write_range(loader: Loader, field_id: str, number: int, total: FingerprintCounts) -> _Range:
    """Write the sums of a range of fingerprints. May run in a worker process."""
    several = total.part(total.counts >= 2)
    runs = loader.write(_batches(_print_tables(field_id, total)))
    return _Range(number, runs, total.rows, several.fingerprints, several.counts)


def _lots(entries: Sequence[FragmentEntry], rows: int) -> Iterator[list[FragmentEntry]]:
    """Yield groups of fragments with about `rows` rows each."""
    lot: list[FragmentEntry] = []
    held = 0
    for entry in entries:
        lot.append(entry)
        held += entry.row_count
        if held >= rows:
            yield lot
            lot, held = [], 0
    if lot:
        yield lot


def fingerprinted_columns(spec: ProfileSpec, schema: pa.Schema) -> list[FingerprintedColumn]:
    """Return the fingerprinted columns of a profile spec."""
    valued = spec.typed_leaves
    policies = {leaf.field_id: policy for leaf, policy in spec.leaves}
    paths = {leaf.field_id: leaf.path for leaf, _ in spec.leaves}
    is_quiet = any(policy.values == "hidden" for policy in policies.values())
    return [
        FingerprintedColumn(
            leaf.field_id, paths[leaf.field_id], type_class(leaf.type).name, field, at, TABLE_BITS, is_quiet
        )
        for field, leaves in zip(schema, schema_leaves(schema), strict=True)
        for at, leaf in enumerate(leaves)
        if leaf.field_id in valued and policies[leaf.field_id].is_fingerprinted
    ]


def _print_tables(field_id: str, fingerprints: FingerprintCounts) -> Iterator[pa.Table]:
    for at in range(0, len(fingerprints), _ROWS):
        own, counts = fingerprints.fingerprints[at : at + _ROWS], fingerprints.counts[at : at + _ROWS]
        columns = [pa.repeat(pa.scalar(field_id), len(own)), pa.array(own), pa.array(counts)]
        yield pa.Table.from_arrays(columns, schema=FINGERPRINT_ROWS.schema)


def _add(deltas: dict[str, list[Delta]], root: str, rows: pa.Table) -> None:
    """Split signed rows into added and removed deltas."""
    counts = rows["frequency"].to_numpy()
    for gone, chosen in ((False, counts > 0), (True, counts < 0)):
        if chosen.any():
            own = rows.filter(pa.array(chosen))
            own = own.set_column(own.num_columns - 1, own.schema.field("frequency"), pa.array(np.abs(counts[chosen])))
            deltas.setdefault(root, []).append(Delta(own, removed=gone))


def _batches(tables: Iterator[pa.Table] | Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
