"""Stages that join two ports, a stage with a hot key, a salted sum, and a diamond of stages.

A port is an input of a stage's function. A hot key has very many rows. A salted sum adds up groups of rows first, then
the sums of the groups. A root is an input of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metastore_assets.produce import Settings
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import A, V, X
from tests.produce.graph_model import Graph, RootNode, StageNode, columns
from tests.produce.harness import SMALL, D, Pair, U


def inner(key: int, left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    others = list(right)
    return ((key, (one, other)) for one in left for other in others)


def left_outer(key: int, left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    others = list(right) or [None]
    return ((key, (one, other)) for one in left for other in others)


def full_outer(key: int, left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    ones, others = list(left) or [None], list(right) or [None]
    return ((key, (one, other)) for one in ones for other in others)


def anti(key: int, left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    return iter(()) if any(True for _ in right) else ((key, (one, None)) for one in left)


class Join(Pair):
    """A join of the roots L and R, whose texts are of the types string and large_string.

    In version 1, both roots have the key 1, R has the key 2, and L has the key 3.
    """

    def __init__(self, store: ObjectStore, function: Any, settings: Settings | None = None) -> None:
        key = columns(k="int64")
        graph = Graph(
            (
                RootNode("L", key, columns(a="string")),
                RootNode("R", key, columns(b="large_string")),
                StageNode("join", (("L",), ("R",)), key, columns(a="string", b="string"), function),
            )
        )
        super().__init__(store, graph, settings=settings)
        self.advance({"L": [U(1, "A1", "A1b"), U(3, "A3")], "R": [U(1, "B1"), U(2, "B2")]})

    def then(self, **edits: Any) -> list[Any]:
        """Publish a version with edits of the roots.

        Return the update of the join.
        """
        self.advance(edits)
        return self.plain_version().update("join")

    def calls(self) -> list[Any]:
        return [call.key for call in self.graph.calls]


def test_inner_join_left_changed(store: ObjectStore) -> None:
    join = Join(store, inner)
    assert join.then(L=[U(1, "A2")]) == [V(1, ("A2", "B1"))]
    assert join.calls() == [1]


def test_inner_join_right_changed(store: ObjectStore) -> None:
    join = Join(store, inner)
    assert join.then(R=[U(1, "B2")]) == [V(1, ("A1", "B2")), V(1, ("A1b", "B2"))]
    assert join.calls() == [1]


def test_inner_join_right_deleted(store: ObjectStore) -> None:
    join = Join(store, inner)
    assert join.then(R=[D(1)]) == [X(1)]
    assert join.calls() == [1], "the left port still has values"


def test_inner_join_right_arrives_for_a_left_only_key(store: ObjectStore) -> None:
    assert Join(store, inner).then(R=[U(3, "B3")]) == [A(3, ("A3", "B3"))]


def test_inner_join_left_arrives_for_a_right_only_key(store: ObjectStore) -> None:
    assert Join(store, inner).then(L=[U(2, "A2")]) == [A(2, ("A2", "B2"))]


def test_left_join_right_deleted(store: ObjectStore) -> None:
    assert Join(store, left_outer).then(R=[D(1)]) == [V(1, ("A1", None)), V(1, ("A1b", None))]


def test_left_join_right_arrives(store: ObjectStore) -> None:
    join = Join(store, left_outer)
    assert (3, 3, ("A3", None)) in join.plain_version().content("join")
    assert join.then(R=[U(3, "B3")]) == [V(3, ("A3", "B3"))]


@pytest.mark.parametrize("function", [inner, left_outer, full_outer])
def test_both_sides_deleted(store: ObjectStore, function: Any) -> None:
    join = Join(store, function)
    assert join.then(L=[D(1)], R=[D(1)]) == [X(1)]
    assert join.calls() == []


@pytest.mark.parametrize(("function", "update"), [(inner, []), (left_outer, [A(9, ("A9", None))])])
def test_unmatched_new_key(store: ObjectStore, function: Any, update: list[Any]) -> None:
    assert Join(store, function).then(L=[U(9, "A9")]) == update


def test_full_and_anti_joins(store: ObjectStore) -> None:
    join = Join(store, full_outer)
    assert join.plain_version().groups("join")[2] == [(None, "B2")]
    assert join.then(L=[U(2, "A2"), D(3)]) == [V(2, ("A2", "B2")), X(3)]
    other = Join(ObjectStore(store.uri("anti")), anti)
    assert other.plain_version().groups("join") == {3: [("A3", None)]}
    assert other.then(R=[D(1), U(3, "B3")]) == [A(1, ("A1", None)), V(1, ("A1b", None)), X(3)]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [None, Settings(batch_rows=1000, row_group_rows=500, buffer_rows=300)])
def test_hot_key(store: ObjectStore, settings: Settings | None) -> None:
    graph = Graph(
        (
            RootNode("source", columns(k="int64"), columns(x="int64")),
            StageNode(
                "hot", (("source",),), columns(t="int64"), columns(x="int64"), lambda k, rows: ((0, x) for x in rows)
            ),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"source": [U(key, key) for key in range(10_000)]})
    pair.advance({"source": [U(5_000, -1)]})
    assert pair.plain_version().update("hot") == [V(0, -1 if key == 5_000 else key) for key in range(10_000)]


def test_salted_sum(store: ObjectStore) -> None:
    def salted(key: int, rows: Iterator[int]) -> Iterator[Any]:
        return ((key % 100, value) for value in rows)

    def partial(salt: int, rows: Iterator[int]) -> Iterator[Any]:
        yield 0, sum(rows)

    def total(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield key, sum(rows)

    number, x = columns(t="int64"), columns(x="int64")
    graph = Graph(
        (
            RootNode("source", columns(k="int64"), x),
            StageNode("salted", (("source",),), number, x, salted),
            StageNode("partial", (("salted",),), number, x, partial),
            StageNode("total", (("partial",),), number, x, total),
        )
    )
    pair = Pair(store, graph)
    pair.advance({"source": [U(key, key) for key in range(10_000)]})
    pair.advance({"source": [U(5_000, 6_000)]})
    plain_version = pair.plain_version()
    assert [len(plain_version.update(name)) for name in ("salted", "partial", "total")] == [100, 100, 1]
    assert plain_version.update("total") == [V(0, sum(range(10_000)) + 1_000)]


@pytest.mark.parametrize("settings", [None, SMALL])
def test_diamond(store: ObjectStore, settings: Settings | None) -> None:
    def evens(key: int, rows: Iterator[int]) -> Iterator[Any]:
        return ((key, value) for value in rows if value % 2 == 0)

    def tenfold(key: int, rows: Iterator[int]) -> Iterator[Any]:
        return ((key, value * 10) for value in rows)

    def joined(key: int, left: Iterator[int], right: Iterator[int]) -> Iterator[Any]:
        yield key, (sum(left), sum(right))

    key, x = columns(k="int64"), columns(x="int64")
    graph = Graph(
        (
            RootNode("source", key, x),
            StageNode("evens", (("source",),), key, x, evens),
            StageNode("tenfold", (("source",),), key, x, tenfold),
            StageNode("join", (("evens",), ("tenfold",)), key, columns(a="int64", b="int64"), joined),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"source": [U(number, number, 2 * number) for number in range(8)]})
    pair.advance({"source": [U(3, 4, 5)]})
    branches = [("evens", 3, ([4, 5],)), ("tenfold", 3, ([4, 5],))]
    assert sorted(pair.graph.calls[:-1]) == branches
    assert pair.graph.calls[-1] == ("join", 3, ([4], [40, 50])), "called once, with no intermediate rows"
    assert pair.plain_version().update("join") == [V(3, (4, 90))]
