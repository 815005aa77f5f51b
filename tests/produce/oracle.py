"""An oracle that evaluates graphs of stages over dictionaries.

It shares no code with the package. The sources are the rows of the roots, which are the inputs of a graph. A state is
computed from the sources alone, except surrogate keys and founders (values of a key's first row): a target key keeps
these from the previous state. Updates are computed from two successive states. Keys and values are plain Python values,
or tuples for several columns. The feeders of a node are the nodes whose rows it reads. A port is an input of a stage's
function, and has one or more feeders. A stage maps the rows of source keys, the keys of its feeders, to rows of target
keys. The mappings of a stage are pairs of a source key and a target key that has rows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cmp_to_key
from math import isnan
from typing import Any

NAN = float("nan")
"""The only NaN object of this module. Tuples and dictionaries compare it by identity, so it is equal to itself."""

Key = Any
Value = Any
Groups = dict[Key, list[Value]]
Change = tuple[str, Key, Value]


@dataclass(frozen=True)
class Source:
    """A root: its rows are passed on unchanged."""

    name: str
    descending: tuple[bool, ...] = (False,)


@dataclass(frozen=True)
class Produced:
    """A stage, described by its ports and its function.

    `ports` has the names of each port's feeders. `function` maps a key, and a list of values for each port, to new
    rows.
    """

    name: str
    ports: tuple[tuple[str, ...], ...]
    function: Callable[..., Iterable[tuple[Key, Value]]]
    descending: tuple[bool, ...] = (False,)
    suppress: bool = False
    numbered: int | None = None
    """The position of the surrogate key in values."""
    founded: tuple[int, int] | None = None
    """Two positions in values: the first gets the value that the second had in the first row of the target key."""

    @property
    def feeders(self) -> tuple[str, ...]:
        return tuple(feeder for port in self.ports for feeder in port)


@dataclass(frozen=True)
class Summed:
    """A node with totals by key.

    It is no stage. `select` maps a key and a value to the total's key and the amounts to add.
    """

    name: str
    feeders: tuple[str, ...]
    select: Callable[[Key, Value], tuple[Key, tuple[int | Decimal, ...]]]
    descending: tuple[bool, ...] = (False,)


Node = Source | Produced | Summed


@dataclass
class State:
    """The content of all nodes of a graph at one version."""

    groups: dict[str, Groups] = field(default_factory=dict)
    content: dict[str, list[tuple[Key, Key, Value]]] = field(default_factory=dict)
    """Rows (target key, source key, value) of stages, and (key, None, value) of other nodes."""
    mappings: dict[str, list[tuple[Key, Key]]] = field(default_factory=dict)
    """Sorted distinct pairs (source key, target key) of stages."""
    ids: dict[str, dict[Key, int]] = field(default_factory=dict)
    """By stage, the surrogate key of each live target key."""
    counters: dict[str, int] = field(default_factory=dict)
    """By stage, the greatest surrogate key that was ever assigned."""
    founders: dict[str, dict[Key, Any]] = field(default_factory=dict)
    """By stage, the founder of each live target key: a value of the key's first row."""


@dataclass
class Step:
    """A state, the updates that lead to it, and the keys for which functions must be called."""

    state: State
    updates: dict[str, list[Change]] = field(default_factory=dict)
    affected: dict[str, set[Key]] = field(default_factory=dict)
    calls: dict[str, list[Key]] = field(default_factory=dict)
    """By stage, the keys for which its function must be called, in order. It must not be called for other keys."""


def one(value: Any) -> Any:
    """Return the canonical form of a value: there is one NaN, and −0.0 is 0.0."""
    if isinstance(value, tuple):
        return tuple(one(part) for part in value)
    if isinstance(value, float):
        return NAN if isnan(value) else value + 0.0
    return value


def parts(key: Key) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _compare_parts(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 for the order of two parts of a key.

    Null is first, and NaN last.
    """
    if left is None or right is None:
        return (left is not None) - (right is not None)
    if isinstance(left, float) and (isnan(left) or isnan(right)):
        return int(isnan(left)) - int(isnan(right))
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return int(left > right) - int(left < right)


def compare(left: Key, right: Key, descending: Sequence[bool] = ()) -> int:
    """Return the sign of the comparison of two keys: negative, zero or positive.

    It is negative if `left` is less than `right`. Parts of a key ascend, except those with True in `descending`.
    """
    for number, (one_part, other) in enumerate(zip(parts(left), parts(right), strict=True)):
        order = _compare_parts(one_part, other)
        if order:
            return -order if number < len(descending) and descending[number] else order
    return 0


def ordered(keys: Iterable[Key], descending: Sequence[bool] = ()) -> list[Key]:
    return sorted(keys, key=cmp_to_key(lambda left, right: compare(left, right, descending)))


def applied(
    sources: Mapping[str, Groups], updates: Mapping[str, Mapping[Key, list[Value] | None]]
) -> dict[str, Groups]:
    """Return the sources after an update, which has the new rows of each key, or None to delete it."""
    after = {name: dict(groups) for name, groups in sources.items()}
    for name, changes in updates.items():
        for key, values in changes.items():
            after[name].pop(one(key), None)
            if values is not None:
                after[name][one(key)] = [one(value) for value in values]
    return after


def evaluate(nodes: Sequence[Node], sources: Mapping[str, Groups], previous: State | None = None) -> State:
    """Return the state of the nodes for these sources.

    Surrogate keys and founders are retained from `previous`.

    Nodes must come after their feeders.
    """
    state = State()
    for node in nodes:
        if isinstance(node, Source):
            groups = {key: list(sources[node.name][key]) for key in ordered(sources[node.name], node.descending)}
            state.groups[node.name] = groups
            state.content[node.name] = [(key, None, value) for key, values in groups.items() for value in values]
        elif isinstance(node, Produced):
            _evaluate_stage(node, state, previous or State())
        else:
            _evaluate_sum(node, state)
    return state


def inputs(node: Produced, groups: Mapping[str, Groups], key: Key) -> list[list[Value]]:
    """Return, for each port, the values of a key in the port's feeders, one feeder after another."""
    return [[value for feeder in port for value in groups[feeder].get(key, [])] for port in node.ports]


def _evaluate_stage(node: Produced, state: State, previous: State) -> None:
    """Compute the rows and key mappings of a stage by its function, and store them in `state`.

    Surrogate keys and founders are retained from `previous`.
    """
    keys = ordered({key for feeder in node.feeders for key in state.groups[feeder]})
    rows: list[tuple[Key, Key, Value]] = []
    for key in keys:
        outputs = node.function(key, *(iter(values) for values in inputs(node, state.groups, key)))
        rows += [(one(target), key, one(value)) for target, value in outputs]
    if node.numbered is not None:
        ids = _ids(node, {row[0] for row in rows}, state, previous)
        rows = [(target, key, _with(value, node.numbered, ids[target])) for target, key, value in rows]
    if node.founded is not None:
        founders = _founders(node, rows, state, previous)
        rows = [(target, key, _with(value, node.founded[0], founders[target])) for target, key, value in rows]
    groups: Groups = {target: [] for target in ordered({row[0] for row in rows}, node.descending)}
    by_target: dict[Key, list[tuple[Key, Key, Value]]] = {target: [] for target in groups}
    for row in rows:
        by_target[row[0]].append(row)
        groups[row[0]].append(row[2])
    state.groups[node.name] = groups
    state.content[node.name] = [row for target_rows in by_target.values() for row in target_rows]
    pairs: dict[Key, set[Key]] = {}
    for target, key, _ in rows:
        pairs.setdefault(key, set()).add(target)
    state.mappings[node.name] = [
        (key, target) for key in keys for target in ordered(pairs.get(key, ()), node.descending)
    ]


def _ids(node: Produced, live: set[Key], state: State, previous: State) -> dict[Key, int]:
    """Return the id of each live target key.

    A key keeps its previous id; new keys get the next unused numbers in key order.
    """
    ids, last = {}, previous.counters.get(node.name, 0)
    earlier = previous.ids.get(node.name, {})
    for target in ordered(live, node.descending):
        if target not in earlier:
            last += 1
        ids[target] = earlier.get(target, last)
    state.ids[node.name], state.counters[node.name] = ids, last
    return ids


def _founders(node: Produced, rows: Sequence[tuple[Key, Key, Value]], state: State, previous: State) -> dict[Key, Any]:
    """Return the founder of each target key.

    A key keeps its previous founder. The founder of a new key is from the key's first row.
    """
    assert node.founded is not None
    earlier, founders = previous.founders.get(node.name, {}), {}
    for target, _, value in rows:
        if target not in founders:
            founders[target] = earlier[target] if target in earlier else parts(value)[node.founded[1]]
    state.founders[node.name] = founders
    return founders


def _with(value: Value, position: int, number: Any) -> Value:
    columns = list(parts(value))
    columns[position] = number
    return plain(tuple(columns))


def _evaluate_sum(node: Summed, state: State) -> None:
    """Compute the totals of each key of a sum, and store them in `state`.

    A key whose totals are all 0 is left out.
    """
    totals: dict[Key, list[Any]] = {}
    for feeder in node.feeders:
        for key, values in state.groups[feeder].items():
            for value in values:
                group, amounts = node.select(key, value)
                group_totals = totals.setdefault(one(group), [0] * len(amounts))
                for number, amount in enumerate(amounts):
                    group_totals[number] += amount
    live = ordered((key for key, group_totals in totals.items() if any(group_totals)), node.descending)
    state.groups[node.name] = {key: [plain(tuple(totals[key]))] for key in live}
    state.content[node.name] = [(key, None, plain(tuple(totals[key]))) for key in live]


def plain(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def advance(
    nodes: Sequence[Node], old: State, new: State, changes: Mapping[str, Mapping[Key, list[Value] | None]]
) -> Step:
    """Return the step between two states.

    The step has the update of each node, and the keys for which functions must be called. `changes` has, by source, the
    new rows of each changed key, or None to delete it.
    """
    step = Step(new)
    for node in nodes:
        before, after = old.groups[node.name], new.groups[node.name]
        if isinstance(node, Summed):
            both = set(before) | set(after)
            affected_keys = {key for key in both if before.get(key) != after.get(key)}
        elif isinstance(node, Source):
            affected_keys = {one(key) for key in changes.get(node.name, ()) if one(key) in before or one(key) in after}
        else:
            keys = {key for feeder in node.feeders for _, key, _ in step.updates[feeder]}
            pairs = old.mappings[node.name] + new.mappings[node.name]
            affected_keys = {target for key, target in pairs if key in keys}
            live = (key for key in keys if any(inputs(node, new.groups, key)))
            step.calls[node.name] = ordered(live)
        step.affected[node.name] = affected_keys
        suppress = isinstance(node, Produced) and node.suppress
        step.updates[node.name] = typed(before, after, ordered(affected_keys, node.descending), suppress=suppress)
    return step


def typed(before: Groups, after: Groups, affected_keys: Sequence[Key], *, suppress: bool = False) -> list[Change]:
    """Return the rows of an update for affected keys, in the order of the keys.

    With `suppress`, keys whose rows are unchanged are left out.
    """
    rows: list[Change] = []
    for key in affected_keys:
        old, new = before.get(key, []), after.get(key, [])
        if not new:
            assert old, f"{key!r} is affected, but has no rows before or after"
            rows.append(("delete", key, None))
        elif not old:
            rows += [("add" if number == 0 else "update", key, value) for number, value in enumerate(new)]
        elif not (suppress and old == new):
            rows += [("update", key, value) for value in new]
    return rows
