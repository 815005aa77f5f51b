"""The value counts of all fingerprinted columns of a table for its next version.

A fragment is a data file with its deletes, and its profile is its statistics. A fingerprint is a short hash of a value.
For a fingerprinted column, the number of rows with each fingerprint is stored. Values are stored only for fingerprints
that occur at least twice. A profile spec says which statistics a profile has.

A refresh usually adds the counts of added fragments to the published ones, and subtracts those of removed fragments
(see `fingerprint_changes`). It rebuilds the counts from all fragments the first time, and when at least half of the
table changed.

The counts are stored as the state of a dataflow (see `produce.dataflow`). The state names the files with the counts. A
delta is a batch of rows to add to the counts, or to subtract from them. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Target
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts.deltas import FragmentChanges
from metastore_assets.pipeline.value_counts.fingerprint_changes import (
    NO_LOCATION,
    ChangedFingerprints,
    FingerprintedChange,
    NoCounts,
    PublishedCounts,
    StoredCounts,
    check_values,
    compute_change,
)
from metastore_assets.pipeline.value_counts.fingerprint_shuffle import FingerprintRanges, shuffle_fingerprints
from metastore_assets.pipeline.value_counts.fingerprinted_values import (
    FingerprintedColumn,
    find_values,
    read_values,
    sum_stored_fingerprints,
)
from metastore_assets.pipeline.value_counts.runs import stage_tables
from metastore_assets.produce import Delta, FlowState
from metastore_assets.produce.complete_load import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.fingerprints import EMPTY as NO_FINGERPRINTS
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, FingerprintCounts, Numbers
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, sum_frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry
from metastore_assets.value_counts import TableValueCounts, ValueCountReader
from metastore_assets.value_counts.fingerprinted import (
    FINGERPRINT_DELTAS,
    FINGERPRINT_ROWS,
    FINGERPRINTS,
    FingerprintedValueCounts,
    fingerprint_dataflow,
    fingerprinted_table,
    partition_location,
)
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, delta_name, stage_name
from metastore_assets.values.columns import columns_by_field
from metastore_assets.values.types import type_class

TABLE_BITS = FINGERPRINT_BITS
"""Width of stored fingerprints in bits. With fewer bits, more values share a fingerprint, which causes more reads."""
_MAX_LOCAL_ROWS = 20_000_000
"""Maximum number of rows that this process counts or updates. More are left to Spark."""
_MIN_ROWS_PER_TASK = 1_000_000
"""Minimum number of rows per Spark task. With more rows, differences of sorted fingerprints take fewer bits."""
_FINGERPRINTS_PER_TABLE = 1 << 20
"""The maximum number of fingerprints in one table of rows."""


@dataclass(frozen=True)
class _RangeSums:
    """The counts of one range of a column's fingerprints, written as runs (sorted Parquet files)."""

    number: int
    runs: Sequence[Run]
    rows: int
    """The number of rows that are not null."""
    fingerprints: Numbers
    """The fingerprints that occur at least twice."""
    counts: Numbers


@dataclass(frozen=True)
class _ColumnLoad:
    """The rebuilt counts of one column."""

    runs: Sequence[Run]
    """All fingerprints with their counts, as runs (sorted Parquet files)."""
    values: Frequencies
    """The values whose fingerprint occurs at least twice, with their frequencies."""
    rows: int
    """The number of rows that are not null."""


class FingerprintUpdate:
    """A writer of the next value counts of all fingerprinted columns.

    It updates or rebuilds the published ones.
    """

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        target: Target,
        fragments: Mapping[str, FragmentEntry],
        changes: FragmentChanges,
    ) -> None:
        """Prepare the update without reading anything.

        Args:
            engine: Runs the tasks.
            store: The folder of the table.
            target: The partitions and the profile spec of the next version.
            fragments: The entries of all fragments of the target's partitions, by fragment id.
            changes: The fragments that were added to partitions or removed from them.
        """
        self._engine = engine
        self._store = store
        self._target = target
        self._fragments = fragments
        self._changes = changes.without_moves()
        self._moves = changes.moves()
        self._row_count = target.row_count(fragments)
        self._columns = fingerprinted_columns(target.spec, target.snapshot.schema)

    def next_state(self, base: FingerprintedValueCounts) -> FingerprintedValueCounts:
        """Update or rebuild the value counts, and write their files.

        Return the next value counts; empty ones if no column is fingerprinted.

        Args:
            base: The published value counts.

        Raises:
            CorruptionError: Profiles or published counts are damaged.
            FragmentError: A file of the table cannot be read.
        """
        if not self._columns:
            return FingerprintedValueCounts()
        classes = {column.field_id: column.type_class for column in self._columns}
        if not base.columns or base.bits != TABLE_BITS or 2 * self._changes.row_count >= self._row_count:
            counts, flow = self._build(classes)
        else:
            counts, flow = self._update(base, classes)
        return FingerprintedValueCounts(classes, counts, flow, TABLE_BITS)

    def _next_fragments(self) -> Iterator[FragmentEntry]:
        """Yield all fragments of the next version."""
        return self._target.next_fragments(self._fragments)

    def _find_unchanged(self, column: FingerprintedColumn, fingerprints: Numbers, locations: Numbers) -> Frequencies:
        """Return the values with the given fingerprints that a column has in fragments that were not added.

        Args:
            column: The column.
            fingerprints: The fingerprints, ascending.
            locations: The location (a short hash of the partition key) of the rows of each fingerprint. NO_LOCATION if
                the rows may be in any partition.
        """
        added_names = {entry.files.name for entry in self._changes.added_fragments}
        target, has_location = self._target, locations != NO_LOCATION
        parts: list[tuple[Frequencies, int]] = []
        if has_location.any():
            wanted_locations = set(locations[has_location].tolist())
            keys = {
                key for key in target.changes.partition_keys(target.base) if partition_location(key) in wanted_locations
            }
            located_entries = target.next_fragments(self._fragments, keys)
            # The published location of a fragment that has moved is that of its previous partition.
            moved_entries = (entry for entry in self._moves.added_fragments if entry.partition_key not in keys)
            entries = (entry for entry in chain(located_entries, moved_entries) if entry.files.name not in added_names)
            parts.append((self._find_values(column, entries, fingerprints[has_location]), 1))
        if not has_location.all():
            entries = (entry for entry in self._next_fragments() if entry.files.name not in added_names)
            parts.append((self._find_values(column, entries, fingerprints[~has_location]), 1))
        return sum_frequencies(parts)

    def _find_values(
        self, column: FingerprintedColumn, entries: Iterable[FragmentEntry], fingerprints: Numbers
    ) -> Frequencies:
        """Return the values with the given fingerprints that a column has in some fragments.

        The values are read from the stored value counts of a fragment or, if it has none, from its data file.
        `fingerprints` must be ascending.
        """
        if not len(fingerprints):
            return EMPTY
        values, unread = find_values(self._engine, self._store, column, entries, fingerprints)
        if unread:
            by_id = self._target.changes.find_fragments(unread)
            values += read_values(self._engine, column, [by_id[entry.id] for entry in unread], fingerprints)
        return sum_frequencies((part, 1) for part in values)

    def _build(self, classes: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        """Rebuild the counts of all columns from the profiles and files of the snapshot.

        Args:
            classes: {field id: type class} of the fingerprinted columns. A type class is the physical type of values.

        Returns:
            ({field id: number of non-null rows}, state of the dataflow).
        """
        columns = sorted(self._columns, key=lambda column: column.field_id.encode())
        flow = fingerprint_dataflow(self._store, classes.values())
        loader = flow.loader(FINGERPRINTS)
        runs: list[Run] = []
        try:
            loads = {}
            for column in columns:
                loads[column.field_id] = load = self._load(column, loader)
                runs += load.runs
            content: dict[str, list[Run] | Iterator[pa.RecordBatch]] = {FINGERPRINTS: runs}
            # The stages by value and by frequency, for each type class.
            for name in set(classes.values()):
                values = [
                    (column.field_id, loads[column.field_id].values) for column in columns if column.type_class == name
                ]
                stages = stage_tables(name, [(field_id, part) for field_id, part in values if len(part)])
                for kind in (FREQUENCIES, FREQUENCY_COUNTS):
                    content[stage_name(kind, name)] = _batches([stages[kind]] if kind in stages else [])
                tables = [fingerprinted_table(field_id, part, TABLE_BITS, name) for field_id, part in values]
                content[stage_name(VALUES, name)] = _batches(tables)
            return {field_id: load.rows for field_id, load in loads.items()}, flow.load(FlowState(), content)
        except BaseException:
            self._store.delete([run.path for run in runs])
            raise

    def _load(self, column: FingerprintedColumn, loader: Loader) -> _ColumnLoad:
        """Count all fingerprints of a column, and write the counts as runs (sorted Parquet files).

        For fingerprints that occur at least twice, the values are read from value counts or from files of the table.
        """
        rows = self._row_count
        if rows <= _MAX_LOCAL_ROWS:
            totals = sum_stored_fingerprints(self._store, column, self._next_fragments())
            ranges = [_write_range(loader, column.field_id, 0, totals)]
        else:
            entries = sorted(self._next_fragments(), key=lambda entry: entry.files.states)
            rows_per_task = max(_MIN_ROWS_PER_TASK, rows // (4 * self._engine.slots()))
            batches = list(_fragment_batches(entries, rows_per_task))
            read = partial(sum_stored_fingerprints, self._store, column)
            write = partial(_write_range, loader, column.field_id)
            spark = self._engine.session
            fingerprint_ranges = FingerprintRanges.of_values(spark, rows, column.bits)
            ranges = shuffle_fingerprints(spark, read, batches, fingerprint_ranges, write)
        ranges.sort(key=lambda part: part.number)
        # If all values are null, there is no range.
        repeated_fingerprints = FingerprintCounts(
            np.concatenate([NO_FINGERPRINTS.fingerprints, *(part.fingerprints for part in ranges)]),
            np.concatenate([NO_FINGERPRINTS.counts, *(part.counts for part in ranges)]),
        )
        values = self._find_values(column, self._next_fragments(), repeated_fingerprints.fingerprints)
        check_values(column, repeated_fingerprints.fingerprints, repeated_fingerprints.counts, values)
        return _ColumnLoad([run for part in ranges for run in part.runs], values, sum(part.rows for part in ranges))

    def _update(self, base: FingerprintedValueCounts, classes: Mapping[str, str]) -> tuple[dict[str, int], FlowState]:
        """Update the published counts by the added and removed fragments.

        A column that is new or has another type class is counted in all fragments. The published counts of a column
        that is no longer fingerprinted, or has another type class, are subtracted.

        Args:
            base: The published counts.
            classes: {field id: type class} of the fingerprinted columns. A type class is the physical type of values.

        Returns:
            ({field id: number of non-null rows}, state of the dataflow).
        """
        retained_ids = {field_id for field_id, name in classes.items() if base.columns.get(field_id) == name}
        class_names = {*classes.values(), *base.columns.values()}
        flow = fingerprint_dataflow(self._store, class_names)
        view = flow.view(base.flow)
        reader = ValueCountReader(self._store, TableValueCounts(fingerprinted=base))
        counts = {field_id: base.value_counts[field_id] for field_id in retained_ids}
        deltas: dict[str, list[Delta]] = {}
        moves = self._moves
        for column in self._columns:
            field_id = column.field_id
            # A retained column changes by the changed fragments. For a new column, all fragments are added.
            if field_id in retained_ids:
                change = self._change(column, self._changes, StoredCounts(view, reader, column))
            else:
                initial_changes = FragmentChanges(list(self._next_fragments()), ())
                change = self._change(column, initial_changes, NoCounts())
            counts[field_id] = counts.get(field_id, 0) + change.rows
            for table in _fingerprint_tables(field_id, change.fingerprints):
                _add_deltas(deltas, FINGERPRINT_DELTAS, table, FINGERPRINT_ROWS.value.names)
            if field_id in retained_ids:  # Moved fragments change the locations of their rows.
                fingerprint_deltas = deltas.setdefault(FINGERPRINT_DELTAS, [])
                fingerprint_deltas += self._moved_deltas(column, moves.added_fragments, is_removed=False)
                fingerprint_deltas += self._moved_deltas(column, moves.removed_fragments, is_removed=True)
            if len(change.values):
                rows = fingerprinted_table(field_id, change.values, TABLE_BITS, column.type_class)
                _add_deltas(deltas, delta_name(column.type_class), rows)
        # Columns that are no longer fingerprinted, or have another class: subtract everything that is stored.
        for field_id, name in base.columns.items():
            if field_id not in retained_ids:
                start = pa.table({"column": [field_id], "fingerprint": pa.nulls(1, pa.int64())})
                for batch in view.batches_from(FINGERPRINTS, start):
                    table = pa.Table.from_batches([batch]).filter(pc.equal(batch["column"], field_id))
                    if not table.num_rows:
                        break
                    deltas.setdefault(FINGERPRINT_DELTAS, []).append(Delta(table, removed=True))
                removed_deltas = [Delta(table, removed=True) for table in reader.rows(field_id, name)]
                deltas.setdefault(delta_name(name), []).extend(removed_deltas)
        if not any(deltas.values()):
            return counts, base.flow
        if sum(delta.row_count for parts in deltas.values() for delta in parts) > _MAX_LOCAL_ROWS:
            flow = fingerprint_dataflow(self._store, class_names, runner=self._engine.spark_runner)
        return counts, flow.step(base.flow, deltas)

    def _moved_deltas(
        self, column: FingerprintedColumn, entries: Sequence[FragmentEntry], *, is_removed: bool
    ) -> list[Delta]:
        """Return deltas with the fingerprints of fragments that moved to another partition.

        `is_removed` says whether the deltas are subtracted from the counts, or added to them.

        The fingerprints are read in batches when the deltas are applied, because a change of the partition columns
        moves all fragments of the table.
        """
        batches = _fragment_batches(sorted(entries, key=lambda entry: entry.files.states), _MIN_ROWS_PER_TASK)
        return [
            Delta(
                partial(_read_fingerprint_rows, self._store, column, batch),
                removed=is_removed,
                count=sum(entry.row_count for entry in batch),
            )
            for batch in batches
        ]

    def _change(
        self,
        column: FingerprintedColumn,
        changes: FragmentChanges,
        published_counts: PublishedCounts,
    ) -> FingerprintedChange:
        """Return the changes of the stored counts of a column.

        Args:
            column: The column.
            changes: The fragments that are added to the counts, and those that are removed from them.
            published_counts: The counts before the changes.
        """
        changed_fingerprints = ChangedFingerprints(
            sum_stored_fingerprints(self._store, column, changes.added_fragments),
            sum_stored_fingerprints(self._store, column, changes.removed_fragments),
        )
        return compute_change(
            column,
            changed_fingerprints,
            published_counts,
            lambda fingerprints: self._find_values(column, changes.added_fragments, fingerprints),
            partial(self._find_unchanged, column),
        )


def _read_fingerprint_rows(
    store: ObjectStore, column: FingerprintedColumn, entries: Sequence[FragmentEntry]
) -> Iterator[pa.RecordBatch]:
    """Return the fingerprints of a column in some fragments, in the columns of `FINGERPRINT_ROWS`.

    May be called in a worker process.
    """
    return _batches(_fingerprint_tables(column.field_id, sum_stored_fingerprints(store, column, entries)))


def _write_range(loader: Loader, field_id: str, number: int, total: FingerprintCounts) -> _RangeSums:
    """Write the counts of one range of a column's fingerprints as runs (sorted Parquet files).

    May be called in a worker process.

    Args:
        loader: Writes the runs.
        field_id: The field id of the column.
        number: Number of the range.
        total: All fingerprints of the range, with their counts.
    """
    repeated_fingerprints = total.part(total.counts >= 2)
    runs = loader.write(_batches(_fingerprint_tables(field_id, total)))
    return _RangeSums(number, runs, total.rows, repeated_fingerprints.fingerprints, repeated_fingerprints.counts)


def _fragment_batches(entries: Sequence[FragmentEntry], rows: int) -> Iterator[list[FragmentEntry]]:
    """Split fragments into batches of at least `rows` rows; the last one may have fewer."""
    batch: list[FragmentEntry] = []
    batch_rows = 0
    for entry in entries:
        batch.append(entry)
        batch_rows += entry.row_count
        if batch_rows >= rows:
            yield batch
            batch, batch_rows = [], 0
    if batch:
        yield batch


def fingerprinted_columns(spec: ProfileSpec, schema: pa.Schema) -> list[FingerprintedColumn]:
    """Return the columns of a schema that a profile spec stores as fingerprints."""
    typed_ids = spec.typed_ids
    policies = {column.field_id: policy for column, policy in spec.columns}
    paths = {column.field_id: column.path for column, _ in spec.columns}
    is_quiet = any(policy.values == "hidden" for policy in policies.values())
    return [
        FingerprintedColumn(
            column.field_id, paths[column.field_id], type_class(column.type).name, field, at, TABLE_BITS, is_quiet
        )
        for field, columns in zip(schema, columns_by_field(schema), strict=True)
        for at, column in enumerate(columns)
        if column.field_id in typed_ids and policies[column.field_id].is_fingerprinted
    ]


def _fingerprint_tables(field_id: str, fingerprints: FingerprintCounts) -> Iterator[pa.Table]:
    """Yield tables of a column's fingerprints with their counts and locations.

    The tables have the columns of `FINGERPRINT_ROWS`. The location of a row is a short hash of its partition key. A
    fingerprint has the sum of its rows' locations.
    """
    for at in range(0, len(fingerprints), _FINGERPRINTS_PER_TABLE):
        part = fingerprints.part(np.s_[at : at + _FINGERPRINTS_PER_TABLE])
        numbers = (part.fingerprints, part.counts, part.locations)
        columns = [pa.repeat(pa.scalar(field_id), len(part)), *map(pa.array, numbers)]
        yield pa.Table.from_arrays(columns, schema=FINGERPRINT_ROWS.schema)


def _add_deltas(
    deltas: dict[str, list[Delta]], root: str, rows: pa.Table, amounts: Sequence[str] = ("frequency",)
) -> None:
    """Append rows to the deltas of `root`, an input of the dataflow.

    Negative amounts become a delta of removed rows, with the amounts made positive. `amounts` are the names of the
    columns with amounts. Rows whose amounts are all 0 are omitted.
    """
    for sign in (1, -1):
        part, mask = rows, np.zeros(len(rows), np.bool_)
        for name in amounts:
            numbers = np.maximum(sign * rows[name].to_numpy(), 0)
            mask |= numbers != 0
            part = part.set_column(part.schema.get_field_index(name), part.schema.field(name), pa.array(numbers))
        if mask.any():
            deltas.setdefault(root, []).append(Delta(part.filter(pa.array(mask)), removed=sign < 0))


def _batches(tables: Iterator[pa.Table] | Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
