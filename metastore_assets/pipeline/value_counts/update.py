"""The next value counts of a table, as a refresh computes them.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. A
profile spec says which statistics a profile has.

A refresh usually updates the published value counts: it adds the counts of added fragments and subtracts those of
removed ones. It builds them from all profiles the first time, and when at least half of the table changed.

Enumerated columns have value counts of all values. Fingerprinted columns store short hashes of their values instead,
and value counts only for hashes that occur at least twice. The type class of a column names the physical type of its
values.

Value counts are stored as the state of a dataflow (see `produce.dataflow`). Each stage has the same counts in another
order or grouping. The state is updated by deltas: rows to add and rows to subtract. A version is the published
statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Target
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.pipeline.value_counts.building import build_value_counts
from metastore_assets.pipeline.value_counts.by_partition import write_runs_by_partition
from metastore_assets.pipeline.value_counts.deltas import CountedProfile, CountSource, FragmentChanges, read_deltas
from metastore_assets.pipeline.value_counts.fingerprints import FingerprintUpdate
from metastore_assets.produce import Dataflow, Delta, FlowState
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.frequencies import EMPTY, FrequencySummary, summarize_frequencies
from metastore_assets.statistics.user_defined.finalize import add_frequency_results, needs_frequencies
from metastore_assets.storage.io_counters import io_step
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles, ValueCountFiles
from metastore_assets.value_counts import (
    Built,
    TableValueCounts,
    TopLimits,
    ValueCountReader,
    read_value_counts,
    value_count_dataflow,
    write_value_counts,
)
from metastore_assets.value_counts.graph import delta_name, rows_of
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.types import class_named, type_class

AllProfiles: TypeAlias = Callable[[], Sequence[tuple[str, ProfileFiles]]]
"""Returns (key, profile) of profiles whose value counts sum to those of the table. These are the profiles of all
partitions with partition keys. If there is only one partition, they are those of its fragments with fragment keys."""
_MAX_LOCAL_VALUES = 20_000_000
"""Maximum number of changed values that this process applies. More are left to Spark."""


class ValueCountUpdate:
    """The next value counts of a table.

    The first call of `summaries` or `files` computes and writes them.

    Both methods take a function that returns profiles of the whole table. This function is called only to build value
    counts or counts by partition from scratch, or to count a column that is new or has another type class.
    """

    def __init__(
        self, engine: Engine, store: ObjectStore, target: Target, fragments: Mapping[str, FragmentEntry]
    ) -> None:
        """Prepare the update without reading anything.

        Args:
            engine: Runs the tasks.
            store: The folder of the table.
            target: The partitions and the profile spec of the next version.
            fragments: The entries of all fragments of the target's partitions, by fragment id.
        """
        self._engine = engine
        self._store = store
        self._spec = target.spec
        self._columns = enumerated_classes(target.spec)
        self._enumerated_ids = frozenset(self._columns)
        """Field ids of all columns that partitions may enumerate, also of those that the table does not."""
        self._published_counts = None if target.base is None else target.base.value_counts
        self._schemas = (None if target.base is None else target.base.schema, target.snapshot.schema)
        # With a single partition, counts by partition would repeat the table's counts.
        self._by_partition = _columns_by_partition(target.spec, self._columns) if target.partition_count > 1 else {}
        self._row_count = target.row_count(fragments)
        self._changes_by_partition = _partition_changes(target, fragments)
        self._changes = self._changes_by_partition.without_moves()
        self._fingerprints = FingerprintUpdate(engine, store, target, fragments, self._changes_by_partition)
        self._files: ValueCountFiles | None = None
        self._state: TableValueCounts | None = None

    def summaries(self, profiles: AllProfiles, distinct_counts: Mapping[int, int]) -> Mapping[int, FrequencySummary]:
        """Return {position in the profile spec: summary of the frequencies} of the requested columns.

        The first call also writes the next value counts to files. `discard` deletes these files.

        Args:
            profiles: Returns profiles that cover the whole table, see `AllProfiles`.
            distinct_counts: The requested columns: {position in the spec: approximate number of distinct values}. In
                the first call, these must be all columns with value counts. An enumerated column that is missing gets
                no value counts.
        """
        with io_step("value_counts"):
            counted_ids = {self._spec.columns[position][0].field_id for position in distinct_counts}
            state = self._next_state(profiles, distinct_counts, lambda: self._columns.keys() - counted_ids)
            return self._summarize(state, distinct_counts)

    def _summarize(self, state: TableValueCounts, positions: Iterable[int]) -> Mapping[int, FrequencySummary]:
        """Return {position in the profile spec: summary}.

        A column without value counts is summarized as empty. A summary also has the results of user-defined statistics
        that use all frequencies of an enumerated column.
        """
        reader = ValueCountReader(self._store, state)
        columns_by_class: dict[str, dict[str, int]] = {}
        summaries: dict[int, FrequencySummary] = {}
        for position in positions:
            field_id = self._spec.columns[position][0].field_id
            if field_id in state.columns or field_id in state.fingerprinted.columns:
                class_name = state.columns.get(field_id) or state.fingerprinted.columns[field_id]
                columns_by_class.setdefault(class_name, {})[field_id] = position
            else:
                summaries[position] = summarize_frequencies(EMPTY)
        for class_name, columns in columns_by_class.items():
            for field_id, summary in reader.summaries(class_name, list(columns)).items():
                position = columns[field_id]
                _, policy = self._spec.columns[position]
                cls = class_named(class_name)
                if policy.is_enumerated and needs_frequencies(policy, cls):
                    frequencies = reader.frequencies(field_id, class_name)
                    summary = add_frequency_results(summary, policy, cls, frequencies)
                summaries[position] = summary
        return summaries

    def files(self, profiles: AllProfiles, table: ProfileFiles) -> ValueCountFiles | None:
        """Write the value count files of the next version, and return them.

        Returns None if no column has value counts. The value counts themselves are not written again if `summaries` was
        called before. If no count changed, the published files are returned, except those that contain outdated names
        of columns. `discard` deletes the written files.

        Args:
            profiles: Returns profiles that cover the whole table, see `AllProfiles`.
            table: The profile of the table in the next version.
        """
        with io_step("value_counts"):
            state = self._next_state(profiles, {}, partial(self._read_absent, table))
            if self._published_counts is not None and state.is_same(self._base):
                return self._without_outdated_names(self._published_counts)
            if self._files is None:
                self._files = write_value_counts(self._store, state)
            return self._files

    def discard(self) -> None:
        """Delete the files of value counts that this refresh wrote.

        It is called if the version will not be published.
        """
        if self._state is not None:
            written_paths = self._state.paths() - self._base.paths()
            self._store.delete(sorted(written_paths | ({self._files.state} if self._files else set())))

    def _without_outdated_names(self, files: ValueCountFiles) -> ValueCountFiles:
        """Return the published files, without those that contain outdated names of columns.

        If columns were renamed, the plain copies `frequencies` and `ranks`, which `compact` writes, are left out.
        """
        before, after = self._schemas
        if not files.frequencies or before is None or _names(before) == _names(after):
            return files
        return replace(files, frequencies="", ranks="")

    @cached_property
    def _base(self) -> TableValueCounts:
        return read_value_counts(self._store, self._published_counts)

    def _read_absent(self, table: ProfileFiles) -> Set[str]:
        """Return the field ids of the columns that are not enumerated in the table's profile.

        A column that the profile spec enumerates is among them if its values cannot be profiled. If the spec enumerates
        no column, the profile is not read, and the result is empty.
        """
        if not self._columns:
            return set()
        with corruption_guard(self._store, table.statistics):
            rows = self._store.read_parquet(table.statistics, ("field_id", "frequencies")).to_pylist()
        return {row["field_id"] for row in rows if row["frequencies"] != "enumerated"}

    def _next_state(
        self, profiles: AllProfiles, distinct_counts: Mapping[int, int], find_absent: Callable[[], Set[str]]
    ) -> TableValueCounts:
        """Compute the next value counts and write their rows.

        A later call returns the same result.

        Args:
            profiles: Returns profiles that cover the whole table, see `AllProfiles`.
            distinct_counts: {position in the spec: approximate number of distinct values}. A missing column counts as
                0. Only used to build the value counts from scratch.
            find_absent: Returns the field ids of columns that get no value counts. The reason is that a fragment has
                values that cannot be profiled, such as a text that is not UTF-8.
        """
        if self._state is None:
            if absent := find_absent():
                self._columns = {id_: name for id_, name in self._columns.items() if id_ not in absent}
                self._by_partition = {id_: name for id_, name in self._by_partition.items() if id_ not in absent}
            if self._published_counts is None or 2 * self._changes.row_count >= self._row_count:
                flow, builds = self._build(profiles, distinct_counts)
            else:
                flow, builds = self._update(profiles), self._retained_builds()
            try:
                fingerprinted_counts = self._fingerprints.next_state(self._base.fingerprinted)
            except BaseException:
                self._store.delete(sorted(flow.paths() - self._base.flow.paths()))
                raise
            top_limits = _top_limits(self._spec, {*self._enumerated_ids, *fingerprinted_counts.columns})
            self._state = TableValueCounts(
                self._columns, flow, top_limits, self._by_partition, fingerprinted_counts, builds
            )
        return self._state

    def _retained_builds(self) -> dict[str, Built]:
        """Return {field id: how its published value counts were built} of some columns.

        The result has the columns that remain enumerated and have the same type class as before.
        """
        return {
            field_id: build
            for field_id, build in self._base.built.items()
            if self._columns.get(field_id) == self._base.columns.get(field_id)
        }

    def _build(
        self, profiles: AllProfiles, distinct_counts: Mapping[int, int]
    ) -> tuple[FlowState, Mapping[str, Built]]:
        """Build the value counts of all enumerated columns from profiles, and write their files.

        Counts by partition are built, too, if any column has them.

        Args:
            profiles: Returns profiles that cover the whole table, see `AllProfiles`.
            distinct_counts: As for `summaries`.

        Returns:
            (state of the dataflow, {field id: how the column was counted}).
        """
        classes = set(self._columns.values())
        if not classes:
            return FlowState(), {}
        flow = self._dataflow(classes)
        counts = {self._spec.columns[position][0].field_id: count for position, count in distinct_counts.items()}
        source = CountSource(self._columns, partial(_counted_profiles, profiles), self._row_count, counts)
        result = build_value_counts(self._engine, self._store, flow, self._spec, source)
        return flow.load(FlowState(), {**result.runs, **self._build_by_partition(flow, profiles)}), result.built

    def _update(self, profiles: AllProfiles) -> FlowState:
        """Write the changes of the added and removed fragments.

        Return the next state, which is not published yet. If the value counts do not change, it is the published state
        itself.

        Counts by partition are built from all profiles if no column had them before, or if at least half of the table's
        rows changed or moved to another partition.
        """
        base = self._base
        reader = ValueCountReader(self._store, base)
        changes, partition_changes = self._changes, self._changes_by_partition
        by_class = self._deltas(
            base.columns,
            CountSource(self._columns, partial(_counted_profiles, profiles), self._row_count),
            changes,
            lambda field_id, name: pa.Table.from_batches(reader.batches(field_id, name), rows_of(name).schema),
        )
        classes = {*self._columns.values(), *by_class}
        updates = {delta_name(name): class_deltas for name, class_deltas in by_class.items()}
        # Counts by partition are rebuilt if no column retains them, or if at least half of the table changed.
        has_retained = any(base.by_partition.get(field_id) == name for field_id, name in self._by_partition.items())
        is_rebuilt = bool(self._by_partition) and (
            not has_retained or 2 * partition_changes.row_count >= self._row_count
        )
        if self._by_partition and not is_rebuilt:
            before = {id_: name for id_, name in base.by_partition.items() if name in self._by_partition.values()}
            by_class = self._deltas(
                before,
                CountSource(self._by_partition, partial(_partition_profiles, profiles), self._row_count),
                partition_changes,
                lambda field_id, _: reader.table_by_partition(field_id),
                by_partition=True,
            )
            updates |= {delta_name(name, by_partition=True): class_deltas for name, class_deltas in by_class.items()}
        removed_classes = set(base.by_partition.values()) - set(self._by_partition.values())
        if not (updates or is_rebuilt or removed_classes):
            return base.flow
        values = sum(delta.row_count for class_deltas in updates.values() for delta in class_deltas)
        # Small profiles have few values, but each takes a millisecond to read.
        columns = (len(changes.added_fragments) + len(changes.removed_fragments)) * len(self._columns)
        on_spark = values > _MAX_LOCAL_VALUES or not self._engine.merges_here(columns)
        flow = self._dataflow(classes, on_spark=on_spark)
        start = flow.load(base.flow, self._build_by_partition(flow, profiles)) if is_rebuilt else base.flow
        try:
            return flow.step(start, updates)
        except BaseException:
            flow.discard(start, base.flow)
            raise

    def _deltas(
        self,
        before: Mapping[str, str],
        after: CountSource,
        changes: FragmentChanges,
        read_stored: Callable[[str, str], pa.Table],
        *,
        by_partition: bool = False,
    ) -> dict[str, list[Delta]]:
        """Return {type class: deltas} from the published value counts to the next ones.

        Args:
            before: The type classes of the published columns, by field id.
            after: The columns of the next version, and all of its profiles. These profiles are read only for columns
                that are new, or have another type class than before.
            changes: The added and removed fragments, which are read for all other columns.
            read_stored: Returns the published value counts of a column, given its field id and type class.
            by_partition: Whether rows have partition keys.
        """
        added_profiles, removed_profiles = changes.counted_profiles(by_partition=by_partition)
        retained_columns = {field_id: name for field_id, name in after.columns.items() if before.get(field_id) == name}
        new_columns = {field_id: name for field_id, name in after.columns.items() if field_id not in retained_columns}
        by_class: dict[str, list[Delta]] = {}
        for part in (
            read_deltas(self._store, added_profiles, retained_columns, changes.row_count, is_removed=False),
            read_deltas(self._store, removed_profiles, retained_columns, changes.row_count, is_removed=True),
            read_deltas(
                self._store, after.profiles() if new_columns else (), new_columns, after.row_count, is_removed=False
            ),
        ):
            for name, class_deltas in part.items():
                by_class.setdefault(name, []).extend(class_deltas)
        for field_id, name in before.items():
            if field_id not in retained_columns:
                by_class.setdefault(name, []).append(Delta(read_stored(field_id, name), removed=True))
        return by_class

    def _build_by_partition(self, flow: Dataflow, profiles: AllProfiles) -> Mapping[str, Sequence[Run]]:
        """Write the value counts by partition, if any column has them.

        Return {name of the stage: written runs}.
        """
        if not self._by_partition:
            return {}
        source = CountSource(self._by_partition, partial(_partition_profiles, profiles), self._row_count)
        return write_runs_by_partition(self._engine, self._store, flow, source)

    def _dataflow(self, classes: Iterable[str], *, on_spark: bool = False) -> Dataflow:
        runner = self._engine.spark_runner if on_spark else None
        return value_count_dataflow(self._store, classes, set(self._by_partition.values()), runner=runner)


def enumerated_classes(spec: ProfileSpec) -> dict[str, str]:
    """Return {field id: type class} of the enumerated columns, except columns of type null."""
    typed_ids = spec.typed_ids
    classes = {
        column.field_id: type_class(column.type).name
        for column, policy in spec.columns
        if column.field_id in typed_ids and policy.is_enumerated
    }
    return {field_id: name for field_id, name in classes.items() if name != "null"}


def _names(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(column.field_id, column.path) for column in schema_columns(schema)]


def _columns_by_partition(spec: ProfileSpec, enumerated_columns: Mapping[str, str]) -> dict[str, str]:
    """Return {field id: type class} of the enumerated columns that are also counted by partition."""
    wanted_ids = {column.field_id for column, policy in spec.columns if policy.by_partition == "on"}
    return {field_id: name for field_id, name in enumerated_columns.items() if field_id in wanted_ids}


def _top_limits(spec: ProfileSpec, columns: Collection[str]) -> dict[str, TopLimits]:
    """Return {field id: limits} for columns whose policy, such as `top(10)`, reports only some values.

    Args:
        spec: The profile spec, with the policies.
        columns: Field ids of the columns to consider. Other columns of the spec are omitted.
    """
    return {
        column.field_id: TopLimits(policy.max_values, policy.min_frequency)
        for column, policy in spec.columns
        if column.field_id in columns and policy.is_truncated
    }


def _counted_profiles(profiles: AllProfiles) -> list[CountedProfile]:
    return [CountedProfile(files) for _, files in profiles()]


def _partition_profiles(profiles: AllProfiles) -> list[CountedProfile]:
    return [CountedProfile(files, key) for key, files in profiles()]


def _partition_changes(target: Target, fragments: Mapping[str, FragmentEntry]) -> FragmentChanges:
    """Return the added and removed fragments of partitions whose published profile is not reused.

    All fragments of a removed partition count as removed. A fragment counts as both added and removed if it moved to
    another partition, or if it has a new profile.
    """
    changed_partitions = [partition for partition in target.partitions if partition.reused_entry is None]
    removed_entries = [
        *target.removed_fragments,
        *(entry for partition in changed_partitions for entry in partition.fragments_before),
    ]
    before = {(entry.files.name, entry.partition_key): entry for entry in removed_entries}
    after = {
        (fragments[id_].files.name, fragments[id_].partition_key): fragments[id_]
        for partition in changed_partitions
        for id_ in partition.fragments
    }
    return FragmentChanges(
        [after[key] for key in sorted(after.keys() - before.keys())],
        [before[key] for key in sorted(before.keys() - after.keys())],
    )
