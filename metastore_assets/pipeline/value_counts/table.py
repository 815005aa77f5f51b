"""The value counts of a table, updated from the published version to the next.

Added fragments are added to the counts, and removed ones are subtracted. The first time, and when at least half of the
table changed, value counts are built from all profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Target
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts.building import build_value_counts
from metastore_assets.pipeline.value_counts.by_partition import runs_by_partition
from metastore_assets.pipeline.value_counts.deltas import CountedProfile, deltas
from metastore_assets.pipeline.value_counts.fingerprints import FingerprintUpdate
from metastore_assets.produce import Dataflow, Delta, FlowState
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.frequencies import EMPTY, FrequencySummary, summarize_frequencies
from metastore_assets.statistics.user_defined.finalize import add_frequency_results, needs_frequencies
from metastore_assets.storage.io_counters import io_step
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles, ValueCountFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import (
    Built,
    Cut,
    TableValueCounts,
    ValueCountReader,
    read_value_counts,
    value_count_dataflow,
    write_value_counts,
)
from metastore_assets.value_counts.graph import delta_name, rows_of
from metastore_assets.values.leaf_columns import schema_leaves
from metastore_assets.values.types import class_named, type_class

_MANY = 20_000_000
"""The number of changed values above which Spark tasks apply the deltas."""


@dataclass(frozen=True)
class _Changes:
    """The fragments that were added to and removed from partitions whose value counts may change."""

    added: Sequence[FragmentEntry]
    removed: Sequence[FragmentEntry]

    @property
    def rows(self) -> int:
        return sum(entry.row_count for entry in (*self.added, *self.removed))

    def of_the_table(self) -> _Changes:
        """Return the changes without fragments that moved between partitions."""
        added, removed = ({entry.files.name for entry in side} for side in (self.added, self.removed))
        return _Changes(
            [entry for entry in self.added if entry.files.name not in removed],
            [entry for entry in self.removed if entry.files.name not in added],
        )


class ValueCountUpdate:
    """The value counts that one plan results in. They are computed once; files are only used once a version references
    them.
    """

    def __init__(
        self, engine: Engine, store: ObjectStore, target: Target, fragments: Mapping[str, FragmentEntry]
    ) -> None:
        self._engine = engine
        self._store = store
        self._spec = target.spec
        self._wanted = enumerated_classes(target.spec)
        self._published = None if target.base is None else target.base.value_counts
        self._schemas = (None if target.base is None else target.base.schema, target.snapshot.schema)
        # With a single partition, counts by partition would repeat the table's counts.
        self._by_partition = _kept_by_partition(target.spec, self._wanted) if len(target.partitions) > 1 else {}
        self._keys = [partition.key for partition in target.partitions]
        self._rows = sum(fragments[own].row_count for part in target.partitions for own in part.fragments)
        self._changes_by_partition = _changes(target, fragments)
        self._changes = self._changes_by_partition.of_the_table()
        self._fingerprints = FingerprintUpdate(
            engine, store, target, fragments, self._changes.added, self._changes.removed
        )
        self._made: ValueCountFiles | None = None
        self._now: TableValueCounts | None = None

    def facts(self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]) -> Mapping[int, FrequencySummary]:
        """Return the frequency summaries of columns, by position in the profile spec.

        Args:
            whole: Profiles whose value counts sum to those of the table.
            listed: The approximate number of values of each requested column, by position.
        """
        with io_step("value_counts"):
            return self._facts(whole, listed)

    def _facts(self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]) -> Mapping[int, FrequencySummary]:
        now = self._next_state(whole, listed)
        reader = ValueCountReader(self._store, now)
        by_class: dict[str, dict[str, int]] = {}
        told: dict[int, FrequencySummary] = {}
        for position in listed:
            leaf, _ = self._spec.leaves[position]
            if leaf.field_id in now.columns or leaf.field_id in now.fingerprinted.columns:
                name = now.columns.get(leaf.field_id) or now.fingerprinted.columns[leaf.field_id]
                by_class.setdefault(name, {})[leaf.field_id] = position
            else:
                told[position] = summarize_frequencies(EMPTY)
        for name, columns in by_class.items():
            for field_id, own in reader.facts(name, list(columns)).items():
                _, policy = self._spec.leaves[columns[field_id]]
                cls = class_named(name)
                if policy.is_enumerated and needs_frequencies(policy, cls):
                    own = add_frequency_results(own, policy, cls, reader.frequencies(field_id, name))
                told[columns[field_id]] = own
        return told

    def files(self, whole: Sequence[ProfileFiles]) -> ValueCountFiles | None:
        """Return the files for the version to reference."""
        with io_step("value_counts"):
            now = self._next_state(whole, {})
            if self._published is not None and now.is_same(self._base):
                return self._as_named(self._published)
            if self._made is None:
                self._made = write_value_counts(self._store, now)
            return self._made

    def discard(self) -> None:
        """Delete the written files; they will not be published."""
        if self._now is not None:
            named = self._now.paths() - self._base.paths()
            self._store.delete(sorted(named | ({self._made.state} if self._made else set())))

    def _as_named(self, files: ValueCountFiles) -> ValueCountFiles:
        """Return the published files, without plain files if columns were renamed."""
        before, now = self._schemas
        if not files.frequencies or before is None or _names(before) == _names(now):
            return files
        return replace(files, frequencies="", ranks="")

    @cached_property
    def _base(self) -> TableValueCounts:
        return read_value_counts(self._store, self._published)

    def _next_state(self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]) -> TableValueCounts:
        if self._now is None:
            if self._published is None or 2 * self._changes.rows >= self._rows:
                flow, built = self._from_scratch(whole, listed)
            else:
                flow, built = self._step(whole), self._still_built()
            try:
                fingerprinted = self._fingerprints.next_state(self._base.fingerprinted)
            except BaseException:
                self._store.delete(sorted(flow.paths() - self._base.flow.paths()))
                raise
            kept = {*self._wanted, *fingerprinted.columns}
            self._now = TableValueCounts(
                self._wanted, flow, _cuts(self._spec, kept), self._by_partition, fingerprinted, built
            )
        return self._now

    def _still_built(self) -> dict[str, Built]:
        """Return how the columns that are still enumerated were built."""
        return {
            own: how for own, how in self._base.built.items() if self._wanted.get(own) == self._base.columns.get(own)
        }

    def _from_scratch(
        self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]
    ) -> tuple[FlowState, Mapping[str, Built]]:
        classes = set(self._wanted.values())
        if not classes:
            return FlowState(), {}
        flow = self._flow(classes)
        distinct = {self._spec.leaves[position][0].field_id: count for position, count in listed.items()}
        made = build_value_counts(
            self._engine, self._store, flow, self._spec, self._wanted, whole, distinct, self._rows
        )
        return flow.load(FlowState(), {**made.runs, **self._all_by_partition(flow, whole)}), made.built

    def _step(self, whole: Sequence[ProfileFiles]) -> FlowState:
        base = self._base
        reader = ValueCountReader(self._store, base)
        changes, by_partition = self._changes, self._changes_by_partition
        found = self._deltas(
            (base.columns, self._wanted),
            (
                [CountedProfile(own.files) for own in changes.added],
                [CountedProfile(own.files) for own in changes.removed],
            ),
            [CountedProfile(files) for files in whole],
            changes.rows,
            lambda field_id, name: pa.Table.from_batches(reader.batches(field_id, name), rows_of(name).schema),
        )
        classes = {*self._wanted.values(), *found}
        updates = {delta_name(name): own for name, own in found.items()}
        stays = any(base.by_partition.get(field_id) == name for field_id, name in self._by_partition.items())
        anew = bool(self._by_partition) and (not stays or 2 * by_partition.rows >= self._rows)
        if self._by_partition and not anew:
            held = {own: name for own, name in base.by_partition.items() if name in self._by_partition.values()}
            found = self._deltas(
                (held, self._by_partition),
                (
                    [CountedProfile(own.files, own.partition_key) for own in by_partition.added],
                    [CountedProfile(own.files, own.partition_key) for own in by_partition.removed],
                ),
                self._partitions(whole),
                by_partition.rows,
                lambda field_id, _: reader.table_by_partition(field_id),
            )
            updates |= {delta_name(name, by_partition=True): own for name, own in found.items()}
        forgotten = set(base.by_partition.values()) - set(self._by_partition.values())
        if not (updates or anew or forgotten):
            return base.flow
        values = sum(delta.row_count for own in updates.values() for delta in own)
        flow = self._flow(classes, many=values > _MANY)
        start = flow.load(base.flow, self._all_by_partition(flow, whole)) if anew else base.flow
        try:
            return flow.step(start, updates)
        except BaseException:
            flow.discard(start, base.flow)
            raise

    def _deltas(
        self,
        columns: tuple[Mapping[str, str], Mapping[str, str]],
        changes: tuple[Sequence[CountedProfile], Sequence[CountedProfile]],
        whole: Sequence[CountedProfile],
        changed: int,
        held: Callable[[str, str], pa.Table],
    ) -> dict[str, list[Delta]]:
        """Return the added and removed deltas by type class.

        Args:
            columns: The columns that are enumerated before and after, by field id, with their classes.
            changes: The added and the removed profiles.
            whole: All profiles of the table, which columns that become enumerated are read from.
            changed: The number of rows in `changes`.
            held: Reads the stored value counts of a column, given its field id and class.
        """
        before, wanted = columns
        added, removed = changes
        stay = {field_id: name for field_id, name in wanted.items() if before.get(field_id) == name}
        new = {field_id: name for field_id, name in wanted.items() if field_id not in stay}
        gone = {field_id: name for field_id, name in before.items() if field_id not in stay}
        made: dict[str, list[Delta]] = {}
        for found in (
            deltas(self._store, added, stay, changed, removed=False),
            deltas(self._store, removed, stay, changed, removed=True),
            deltas(self._store, whole, new, self._rows, removed=False),
        ):
            for name, own in found.items():
                made.setdefault(name, []).extend(own)
        for field_id, name in gone.items():
            made.setdefault(name, []).append(Delta(held(field_id, name), removed=True))
        return made

    def _all_by_partition(self, flow: Dataflow, whole: Sequence[ProfileFiles]) -> Mapping[str, Sequence[Run]]:
        if not self._by_partition:
            return {}
        partitions = self._partitions(whole)
        return runs_by_partition(self._engine, self._store, flow, self._by_partition, partitions, self._rows)

    def _partitions(self, whole: Sequence[ProfileFiles]) -> list[CountedProfile]:
        """Return the profiles of all partitions, with their keys."""
        return [CountedProfile(files, key) for files, key in zip(whole, self._keys, strict=True)]

    def _flow(self, classes: Iterable[str], *, many: bool = False) -> Dataflow:
        runner = self._engine.spark_runner if many else None
        return value_count_dataflow(self._store, classes, set(self._by_partition.values()), runner=runner)


def enumerated_classes(spec: ProfileSpec) -> dict[str, str]:
    """Return the classes of the enumerated columns of a profile spec, by field id."""
    valued = spec.typed_leaves
    found = {
        leaf.field_id: type_class(leaf.type).name
        for leaf, policy in spec.leaves
        if leaf.field_id in valued and policy.is_enumerated
    }
    return {field_id: name for field_id, name in found.items() if name != "null"}


def _names(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(leaf.field_id, leaf.path) for leaves in schema_leaves(schema) for leaf in leaves]


def _kept_by_partition(spec: ProfileSpec, listed: Mapping[str, str]) -> dict[str, str]:
    """Return the enumerated columns that are also counted by partition."""
    kept = {leaf.field_id for leaf, policy in spec.leaves if policy.by_partition == "on"}
    return {field_id: name for field_id, name in listed.items() if field_id in kept}


def _cuts(spec: ProfileSpec, wanted: Collection[str]) -> dict[str, Cut]:
    return {
        leaf.field_id: Cut(policy.max_values, policy.min_frequency)
        for leaf, policy in spec.leaves
        if leaf.field_id in wanted and policy.is_truncated
    }


def _changes(target: Target, fragments: Mapping[str, FragmentEntry]) -> _Changes:
    """Return the fragments added to and removed from each partition, except partitions that are reused."""
    same = {partition.key for partition in target.partitions if partition.reused is not None}
    before = {
        (entry.files.name, entry.partition_key): entry
        for entry in (target.base.fragments if target.base else ())
        if entry.retired is None and entry.partition_key not in same
    }
    now = {
        (fragments[own].files.name, fragments[own].partition_key): fragments[own]
        for partition in target.partitions
        if partition.reused is None
        for own in partition.fragments
    }
    return _Changes(
        [now[own] for own in sorted(now.keys() - before.keys())],
        [before[own] for own in sorted(before.keys() - now.keys())],
    )
