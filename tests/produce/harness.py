"""Runs a graph beside its oracle and compares content, mappings and updates after every version.

The nodes of a graph are roots (its inputs), stages and sums. A stage maps the rows of source keys to rows of target
keys. The mappings of a stage are pairs of a source key and a target key that has rows from it. A sum has totals by key.
The oracle computes the expected results in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError
from metastore_assets.produce import Dataflow, Settings
from metastore_assets.store.objects import ObjectStore
from tests.produce import oracle
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, changes_table, tuples
from tests.produce.oracle import Change, Groups, Key, State, Step, Value

Edit = tuple[Key, list[Value] | None]
"""A key and its new rows, or None to delete the key."""

SMALL = Settings(
    single_run_rows=0,
    target_rows=6,
    row_group_rows=3,
    buffer_rows=3,
    batch_rows=4,
    fan_in=2,
    max_runs=6,
    inline_budget=4,
    small_rows=0,
)
"""Settings so small that a handful of rows causes runs, spills, splits and compactions."""


def U(key: Key, *values: Value) -> Edit:
    """Return an edit that replaces the rows of a key."""
    return key, list(values)


def D(key: Key) -> Edit:
    """Return an edit that deletes a key."""
    return key, None


def changes(edits: Iterable[Edit]) -> list[Change]:
    """Return the rows of an update with these edits."""
    return [
        ("delete", key, None) if values is None else ("update", key, value)
        for key, values in edits
        for value in (values or [None])
    ]


class PlainVersion:
    """A version of the dataflow as plain Python rows."""

    def __init__(self, graph: Graph, flow: Dataflow, number: int | None = None) -> None:
        self.graph = graph
        self.view = flow.version(number)
        self.number = self.view.number

    def content(self, name: str) -> list[tuple[Key, Key, Value]]:
        table = self.view.content(name)
        key, value, _ = self.graph.rows(name)
        names = [*key.names, *self._sources(name), *value.names]
        assert table.column_names == names
        assert table.schema.field(value.names[0]).type == value[0].type
        sources = tuples(table, self._sources(name)) or [None] * table.num_rows
        return list(zip(tuples(table, key.names), sources, tuples(table, value.names), strict=True))

    def mappings(self, name: str) -> list[tuple[Key, Key]]:
        table = self.view.mappings(name)
        key = self.graph.rows(name)[0].names
        assert table.column_names == [*self._sources(name), *key]
        return list(zip(tuples(table, self._sources(name)), tuples(table, key), strict=True))

    def update(self, name: str) -> list[Change]:
        """Return the changes of a node in this version.

        Asserts that deletes have no values, and that the version's numbers of changes are right.
        """
        table = self.view.update(name)
        key, value, _ = self.graph.rows(name)
        rows = list(
            zip(table["_change"].to_pylist(), tuples(table, key.names), tuples(table, value.names), strict=True)
        )
        nothing = oracle.plain((None,) * len(value))
        assert all(row[2] == nothing for row in rows if row[0] == "delete"), "values of deletes are null"
        kinds = [row[0] for row in rows]
        assert self.view.change_counts(name) == {kind: kinds.count(kind) for kind in ("add", "update", "delete")}
        return [(change, one_key, None if change == "delete" else row) for change, one_key, row in rows]

    def before(self, name: str) -> list[Value]:
        """Return, for each row in the update of a sum, the totals before that update."""
        table = self.view.update(name)
        return tuples(table, [f"_before_{column}" for column in self.graph.rows(name)[1].names])

    def groups(self, name: str, keys: Sequence[Key] | None = None) -> Groups:
        """Return the rows of each key, for all keys or for those given."""
        key, value, _ = self.graph.rows(name)
        key_table = None
        if keys is not None:
            key_table = pa.table(
                [pa.array([oracle.parts(one_key)[n] for one_key in keys], field.type) for n, field in enumerate(key)],
                schema=key,
            )
        table = self.view.groups(name, key_table)
        groups_: Groups = {}
        for one_key, row in zip(tuples(table, key.names), tuples(table, value.names), strict=True):
            groups_.setdefault(one_key, []).append(row)
        return groups_

    def state(self) -> State:
        """Return the state of the graph in the form of the oracle.

        For each node, it has all rows (the content), and the values of these rows by key (the groups). For each stage,
        it also has the mappings.
        """
        state = State()
        for node in self.graph.nodes:
            state.content[node.name] = self.content(node.name)
            state.groups[node.name] = {}
            for key, _, value in state.content[node.name]:
                state.groups[node.name].setdefault(key, []).append(value)
            if isinstance(node, StageNode):
                state.mappings[node.name] = self.mappings(node.name)
        return state

    def _sources(self, name: str) -> list[str]:
        if not isinstance(self.graph[name], StageNode):
            return []
        return [f"_source_{column}" for column in self.graph.source(name).names]


class Pair:
    """A graph in a storage, and its oracle.

    Each version that the methods publish is compared with the oracle. With `check`, the package calls the function of
    each stage twice and compares the results.
    """

    def __init__(
        self, store: ObjectStore, graph: Graph, *, settings: Settings | None = None, check: bool = False
    ) -> None:
        self.store, self.graph, self.settings, self.check = store, graph, settings, check
        self.nodes = graph.oracle()
        self.roots = [node for node in graph.nodes if isinstance(node, RootNode)]
        self.sources: dict[str, Groups] = {node.name: {} for node in self.roots}
        self.state = oracle.evaluate(self.nodes, self.sources)
        self.number = 0
        self.given: dict[tuple[str, int], int] = {}
        """The number of the version that assigned each surrogate key, by stage and key."""
        self.reopen()

    def reopen(self) -> None:
        """Open the storage again, as a new process would."""
        settings = replace(self.settings or Settings(), check=self.check)
        self.flow = Dataflow(self.store, self.graph.declaration(), settings=settings)

    def table(self, root: str, rows: Iterable[Change]) -> pa.Table:
        """Return an update of a root with these rows, as an Arrow table."""
        key, value, _ = self.graph.rows(root)
        return changes_table(key, value, rows)

    def advance(self, updates: Mapping[str, Sequence[Edit]], *, exact_work: bool = True, **options: Any) -> Step:
        """Publish a version with edits, and compare it with the oracle's step, which is returned.

        Args:
            updates: By root, the edits in the order of their keys.
            exact_work: Whether to assert that functions are called for changed keys only.
            **options: Further arguments of `Dataflow.advance`.
        """
        tables = {root: self.table(root, changes(edits)) for root, edits in updates.items()}
        return self.publish(tables, {root: dict(edits) for root, edits in updates.items()}, exact_work, **options)

    def publish(
        self,
        tables: Mapping[str, Any],
        edits: Mapping[str, Mapping[Key, list[Value] | None]],
        exact_work: bool = True,
        **options: Any,
    ) -> Step:
        """Publish a version whose updates are tables, compare it with the oracle's step, and return the step.

        Args:
            tables: By root, the update for the package.
            edits: The same updates for the oracle.
            exact_work: Whether to assert that functions are called for changed keys only.
            **options: Further arguments of `Dataflow.advance`.
        """
        step = self.expected(edits)
        self.graph.calls.clear()
        number = self.flow.advance(dict(tables), **options)
        assert number == self.number + 1
        self.accept(step, edits)
        if exact_work:
            self.check_calls(step)
        self.verify(step)
        return step

    def expected(self, edits: Mapping[str, Mapping[Key, list[Value] | None]]) -> Step:
        """Return the oracle's step from the current version to one with these edits.

        Nothing is published, and the current state of the oracle stays.
        """
        state = oracle.evaluate(self.nodes, oracle.applied(self.sources, edits), self.state)
        return oracle.advance(self.nodes, self.state, state, edits)

    def accept(self, step: Step, edits: Mapping[str, Mapping[Key, list[Value] | None]]) -> None:
        """Make `step`, whose version was published, the oracle's state, and apply `edits` to the roots."""
        self.sources = oracle.applied(self.sources, edits)
        self.previous, self.state = self.state, step.state
        self.number += 1

    def check_calls(self, step: Step) -> None:
        """Assert that functions were called once for each changed key with values, and for no other key.

        With `check`, a function may be called several times for a key.
        """
        for name, keys in step.calls.items():
            called_keys = [oracle.one(call.key) for call in self.graph.calls if call.stage == name]
            assert oracle.ordered(set(called_keys) if self.check else called_keys) == keys, f"calls of {name}"

    def plain_version(self, number: int | None = None) -> PlainVersion:
        return PlainVersion(self.graph, self.flow, number)

    def verify(self, step: Step) -> None:
        """Assert that the newest version has the oracle's content, mappings and updates.

        Updates and surrogate keys are also checked without the oracle.
        """
        plain_version = self.plain_version()
        assert plain_version.number == self.number
        state = self.verify_state(plain_version)
        for node in self.graph.nodes:
            if not self.graph.is_followed(node.name):
                with pytest.raises(GraphError, match="is_followed"):
                    plain_version.update(node.name)
                continue
            update = plain_version.update(node.name)
            assert update == step.updates[node.name], f"update of {node.name}"
            check_update(self.graph, node.name, self.previous.groups[node.name], state.groups[node.name], update)
            if isinstance(node, StageNode) and node.numbered:
                self.check_ids(node, self.previous.groups[node.name], state.groups[node.name])
            if isinstance(node, SumNode):
                previous = self.previous.groups[node.name]
                none = oracle.plain((None,) * len(self.graph.rows(node.name)[1]))
                assert plain_version.before(node.name) == [previous.get(key, [none])[0] for _, key, _ in update]

    def check_ids(self, node: StageNode, before: Groups, after: Groups) -> None:
        """Assert that ids are distinct, constant as long as their keys have rows, and never used again.

        The ids of new keys ascend in the order of the keys. The oracle is not used.
        """
        assert node.numbered is not None
        position = node.value.names.index(node.numbered)

        def of(values: list[Value]) -> int:
            (number,) = {oracle.parts(value)[position] for value in values}  # equal in all rows of a key
            return number

        assert len({of(values) for values in after.values()}) == len(after), "ids are distinct"
        assert all(of(after[key]) == of(before[key]) for key in after if key in before), "ids live as long as the key"
        novel = [of(values) for key, values in after.items() if key not in before]
        assert novel == sorted(novel), "new ids are in the order of the keys"
        for number in novel:
            assert self.given.setdefault((node.name, number), self.number) == self.number, "ids are never used again"

    def verify_state(self, plain_version: PlainVersion | None = None) -> State:
        """Assert that content, keys and mappings of the newest version equal the oracle's.

        `plain_version` is the newest version if the caller has already read it. Return the version's state.
        """
        state = (plain_version or self.plain_version()).state()
        for node in self.graph.nodes:
            assert state.content[node.name] == self.state.content[node.name], f"content of {node.name}"
            assert list(state.groups[node.name]) == list(self.state.groups[node.name]), f"keys of {node.name}"
            if isinstance(node, StageNode):
                assert state.mappings[node.name] == self.state.mappings[node.name], f"mappings of {node.name}"
                pairs = {(key, target) for target, key, _ in state.content[node.name]}
                assert len(pairs) == len(state.mappings[node.name])
                assert pairs == set(state.mappings[node.name])
        return state

    def compact(self, *, full: bool = False) -> bool:
        """Compact, and assert that content, mappings and updates are unchanged.

        `full` has the meaning that it has in `Dataflow.compact`. Return whether any run (a sorted file) was merged.
        """
        number = self.plain_version().number
        followed_names = [node.name for node in self.graph.nodes if self.graph.is_followed(node.name)]
        updates = {name: self.plain_version().update(name) for name in followed_names}
        has_compacted = self.flow.compact(full=full)
        assert self.plain_version().number == number
        self.verify_state()
        assert updates == {name: self.plain_version().update(name) for name in followed_names}
        return has_compacted

    def expire(self, keep: int) -> None:
        self.flow.expire(keep=keep, grace=timedelta(0))
        self.verify_state()


def check_update(graph: Graph, name: str, before: Groups, after: Groups, update: Sequence[Change]) -> None:
    """Assert that an update of the node `name` turns its rows by key, `before`, into `after`.

    The rows of the update must be sorted by key, and be of the right types: `add`, `update` or `delete`. Sums and
    stages with `suppress` must omit keys whose rows did not change.
    """
    key_schema, _, descending = graph.rows(name)
    flags = [column in descending for column in key_schema.names]
    keys = [key for _, key, _ in update]
    for key, following in pairwise(keys):
        assert oracle.compare(key, following, flags) <= 0, "the rows of the update are not sorted"
    by_key: dict[Key, list[Change]] = {}
    for row in update:
        by_key.setdefault(row[1], []).append(row)
    view = {key: list(values) for key, values in before.items()}
    for key, rows in by_key.items():
        kinds = [change for change, _, _ in rows]
        assert kinds == ["delete"] or ("delete" not in kinds and "add" not in kinds[1:]), (
            "the types of the rows of a key are inconsistent"
        )
        assert (kinds == ["delete"]) == (key in before and key not in after), "a wrong or missing delete"
        assert (kinds[0] == "add") == (key not in before and key in after), "a wrong or missing add"
        values = [value for change, _, value in rows if change != "delete"]
        assert values == after.get(key, []), "the update lacks rows of the key"
        view.pop(key, None)
        if values:
            view[key] = values
        node = graph[name]
        if isinstance(node, SumNode) or (isinstance(node, StageNode) and node.suppress):
            assert before.get(key, []) != after.get(key, []), "the update has an unchanged key"
    assert view == after, "the update applied to the old version is not the new version"
