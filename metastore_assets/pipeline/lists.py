"""The lists of a table's values, from the published version to the next: what came is added, what went taken away.

The first time, and when most of the table is other, they are summed from all profiles, and loaded as they come out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial

import pyarrow as pa

from metastore_assets.lists import Cut, ListReader, Lists, list_flow, read_lists, write_lists
from metastore_assets.lists.graph import FACTS, FREQUENCIES, VALUES, delta_name, rows_of, stage_name
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.frequencies import FrequencySum, map_sums
from metastore_assets.pipeline.layouts import Layout
from metastore_assets.pipeline.list_deltas import deltas
from metastore_assets.pipeline.list_runs import write_runs
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.prints import TablePrints
from metastore_assets.produce import Dataflow, Delta, FlowState
from metastore_assets.spark.tasks import SparkExecutor
from metastore_assets.statistics.frequencies import EMPTY, FrequencyFacts, frequency_facts
from metastore_assets.statistics.types import class_named, type_class
from metastore_assets.statistics.user_defined.telling import facts_with_results, follows_from_list
from metastore_assets.store.manifest import FragmentEntry, ListFiles, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.traffic import step

_MANY = 20_000_000
"""Values in changed fragments from which on Spark's tasks read and add their lists."""


class TableLists:
    """The lists that one plan leads to. What is made is found once; nobody but a version that names it makes it be."""

    def __init__(self, engine: Engine, store: ObjectStore, plan: Plan, fragments: Mapping[str, FragmentEntry]) -> None:
        self._engine = engine
        self._store = store
        self._layout = plan.layout
        self._wanted = listed_classes(plan.layout)
        self._published = None if plan.base is None else plan.base.lists
        self._rows = sum(fragments[own].row_count for part in plan.partitions for own in part.fragments)
        self._came, self._went = _changes(plan, fragments)
        self._prints = TablePrints(engine, store, plan, fragments, self._came, self._went)
        self._made: ListFiles | None = None
        self._now: Lists | None = None

    def facts(self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]) -> Mapping[int, FrequencyFacts]:
        """What the lists tell of columns, by position; `whole` are profiles whose lists add up to them, and `listed`
        is about how many values they have.
        """
        with step("lists"):
            return self._facts(whole, listed)

    def _facts(self, whole: Sequence[ProfileFiles], listed: Mapping[int, int]) -> Mapping[int, FrequencyFacts]:
        now = self._stepped(whole, sum(listed.values()))
        reader = ListReader(self._store, now)
        by_class: dict[str, dict[str, int]] = {}
        told: dict[int, FrequencyFacts] = {}
        for position in listed:
            leaf, _ = self._layout.leaves[position]
            if leaf.field_id in now.columns or leaf.field_id in now.printed.columns:
                name = now.columns.get(leaf.field_id) or now.printed.columns[leaf.field_id]
                by_class.setdefault(name, {})[leaf.field_id] = position
            else:
                told[position] = frequency_facts(EMPTY)
        for name, columns in by_class.items():
            for field_id, own in reader.facts(name, list(columns)).items():
                _, policy = self._layout.leaves[columns[field_id]]
                cls = class_named(name)
                if policy.lists and follows_from_list(policy, cls):
                    own = facts_with_results(own, policy, cls, reader.frequencies(field_id, name))
                told[columns[field_id]] = own
        return told

    def files(self, whole: Sequence[ProfileFiles]) -> ListFiles | None:
        """The files for the version to name."""
        with step("lists"):
            now = self._stepped(whole, self._rows)
            if self._published is not None and now.is_same(self._base):
                return self._published
            if self._made is None:
                self._made = write_lists(self._store, now)
            return self._made

    def discard(self) -> None:
        """Remove what was made, and will not be published."""
        if self._now is not None:
            named = self._now.paths() - self._base.paths()
            self._store.delete(sorted(named | ({self._made.state} if self._made else set())))

    @cached_property
    def _base(self) -> Lists:
        return read_lists(self._store, self._published)

    def _stepped(self, whole: Sequence[ProfileFiles], values: int) -> Lists:
        if self._now is None:
            changed = sum(entry.row_count for entry in (*self._came, *self._went))
            if self._published is None or 2 * changed >= self._rows:
                flow = self._from_scratch(whole, values)
            else:
                flow = self._step(whole, changed)
            try:
                printed = self._prints.stepped(self._base.printed)
            except BaseException:
                self._store.delete(sorted(flow.paths() - self._base.flow.paths()))
                raise
            kept = {*self._wanted, *printed.columns}
            self._now = Lists(self._wanted, flow, _cuts(self._layout, kept), printed)
        return self._now

    def _from_scratch(self, whole: Sequence[ProfileFiles], values: int) -> FlowState:
        classes = set(self._wanted.values())
        if not classes:
            return FlowState()
        flow = self._flow(classes)
        # Columns in the order of their keys, so that neighbouring ones make a run.
        leaves = sorted(
            ((leaf, policy) for leaf, policy in self._layout.leaves if leaf.field_id in self._wanted),
            key=lambda own: (self._wanted[own[0].field_id], own[0].field_id.encode()),
        )
        layout = Layout("", {}, tuple(leaves), {})
        terms = tuple((files, 1) for files in sorted(whole, key=lambda files: files.states))
        loaders = {
            stage_name(kind, name): flow.loader(stage_name(kind, name))
            for name in classes
            for kind in (VALUES, FREQUENCIES, FACTS)
        }
        write = partial(write_runs, layout, self._wanted, loaders)
        sums = [FrequencySum(0, tuple(range(len(leaves))), terms, values)]
        parts = sorted(map_sums(self._engine, self._store, layout, sums, write), key=lambda part: part.first)
        content = {name: [run for part in parts for run in part.runs.get(name, ())] for name in loaders}
        return flow.load(FlowState(), content)

    def _step(self, whole: Sequence[ProfileFiles], changed: int) -> FlowState:
        base = self._base
        stay = {field_id: name for field_id, name in self._wanted.items() if base.columns.get(field_id) == name}
        new = {field_id: name for field_id, name in self._wanted.items() if field_id not in stay}
        gone = {field_id: name for field_id, name in base.columns.items() if field_id not in stay}
        reader = ListReader(self._store, base)
        changes: dict[str, list[Delta]] = {}
        came, went = ([entry.files for entry in side] for side in (self._came, self._went))
        for found in (
            deltas(self._store, came, stay, changed, gone=False),
            deltas(self._store, went, stay, changed, gone=True),
            deltas(self._store, whole, new, self._rows, gone=False),
        ):
            for name, own in found.items():
                changes.setdefault(name, []).extend(own)
        for field_id, name in gone.items():
            listed = pa.Table.from_batches(reader.batches(field_id, name), rows_of(name).schema)
            changes.setdefault(name, []).append(Delta(listed, gone=True))
        if not changes:
            return base.flow
        values = sum(delta.row_count for own in changes.values() for delta in own)
        flow = self._flow({*self._wanted.values(), *changes}, many=values > _MANY)
        return flow.step(base.flow, {delta_name(name): own for name, own in changes.items()})

    def _flow(self, classes: Iterable[str], *, many: bool = False) -> Dataflow:
        return list_flow(self._store, classes, executor=SparkExecutor(self._engine.session) if many else None)


def discard_lists(store: ObjectStore, made: ListFiles | None, base: ListFiles | None) -> None:
    """Remove the files of lists that lost the race to be published, but for those that they took over from `base`."""
    if made is not None and made != base:
        store.delete(sorted(set(made.paths()) - set(base.paths() if base else ())))


def listed_classes(layout: Layout) -> dict[str, str]:
    """The columns that a layout lists, by field id, and the class of their values."""
    valued = layout.valued
    found = {
        leaf.field_id: type_class(leaf.type).name
        for leaf, policy in layout.leaves
        if leaf.field_id in valued and policy.lists
    }
    return {field_id: name for field_id, name in found.items() if name != "null"}


def _cuts(layout: Layout, wanted: Collection[str]) -> dict[str, Cut]:
    return {
        leaf.field_id: Cut(policy.most_listed, policy.least_frequency)
        for leaf, policy in layout.leaves
        if leaf.field_id in wanted and policy.is_cut
    }


def _changes(plan: Plan, fragments: Mapping[str, FragmentEntry]) -> tuple[list[FragmentEntry], list[FragmentEntry]]:
    """The profiles that came, and those that went, where that may change a sum."""
    same = {partition.key for partition in plan.partitions if partition.reused is not None}
    before = {
        entry.files.name: entry
        for entry in (plan.base.fragments if plan.base else ())
        if entry.retired is None and entry.partition_key not in same
    }
    now = {
        fragments[own].files.name: fragments[own]
        for partition in plan.partitions
        if partition.reused is None
        for own in partition.fragments
    }
    came = [now[name] for name in sorted(now.keys() - before.keys())]
    return came, [before[name] for name in sorted(before.keys() - now.keys())]
