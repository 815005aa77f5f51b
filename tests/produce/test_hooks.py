"""Hooks of a stage give surrogate keys, and values that last as long as their target key.

Surrogate keys are never reused. A stage maps the rows of source keys to rows of target keys. A hook changes its new
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.produce import Dataflow, Settings
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import A, V, X
from tests.produce.graph_model import Graph, RootNode, StageNode, changes_table, columns
from tests.produce.harness import SMALL, D, Edit, Pair, PlainVersion, U, changes


def names(key: int, rows: Iterator[str]) -> Iterator[Any]:
    """Emit each animal in `rows` as a key, with the owner as its value.

    The hook adds the id.
    """
    return ((name, (None, key)) for name in rows)


GRAPH = Graph(
    (
        RootNode("source", columns(k="int64"), columns(name="string")),
        StageNode(
            "animals",
            (("source",),),
            columns(name="string"),
            columns(id="int64", owner="int64"),
            names,
            numbered="id",
        ),
    )
)
FIRST = [U(1, "dog", "budgie"), U(2, "dog", "cat"), U(3, "eagle", "dog", "cat")]


class Animals:
    """A dataflow with a stage that gives ids to animals."""

    def __init__(self, store: ObjectStore, settings: Settings) -> None:
        self.store, self.settings = store, settings

    def advance(self, *edits: Edit) -> list[Any]:
        """Publish a version, as a new process would.

        Return the update of the stage.
        """
        flow = Dataflow(self.store, GRAPH.declaration(), settings=self.settings)
        key, value, _ = GRAPH.rows("source")
        flow.advance({"source": changes_table(key, value, changes(edits))})
        return self.plain_version().update("animals")

    def plain_version(self) -> PlainVersion:
        return PlainVersion(GRAPH, Dataflow(self.store, GRAPH.declaration(), settings=self.settings))

    def ids(self) -> dict[str, int]:
        """Return the id of each animal that has rows, asserting that all rows of an animal have the same id."""
        ids_by_key: dict[str, set[int]] = {}
        for name, _, (number, _) in self.plain_version().content("animals"):
            ids_by_key.setdefault(name, set()).add(number)
        assert all(len(numbers) == 1 for numbers in ids_by_key.values())
        return {name: numbers.pop() for name, numbers in ids_by_key.items()}


@pytest.fixture(params=[Settings(), SMALL], ids=["default", "small"])
def animals(request: pytest.FixtureRequest, store: ObjectStore) -> Animals:
    return Animals(store, request.param)


def test_ids_of_the_first_version(animals: Animals) -> None:
    update = animals.advance(*FIRST)
    assert update == [
        A("budgie", (1, 1)),
        *(A("cat", (2, 2)), V("cat", (2, 3))),
        *(A("dog", (3, 1)), V("dog", (3, 2)), V("dog", (3, 3))),
        A("eagle", (4, 3)),
    ]


def test_ids_of_later_versions(animals: Animals) -> None:
    animals.advance(*FIRST)
    assert animals.advance(U(2, "frog", "eagle", "ant")) == [
        A("ant", (5, 2)),
        V("cat", (2, 3)),
        *(V("dog", (3, 1)), V("dog", (3, 3))),
        *(V("eagle", (4, 2)), V("eagle", (4, 3))),
        A("frog", (6, 2)),
    ]
    assert animals.advance(U(1, "dog", "frog")) == [
        X("budgie"),
        *(V("dog", (3, 1)), V("dog", (3, 3))),
        *(V("frog", (6, 1)), V("frog", (6, 2))),
    ]
    assert animals.advance(U(1, "dog", "budgie")) == [
        A("budgie", (7, 1)),
        *(V("dog", (3, 1)), V("dog", (3, 3))),
        V("frog", (6, 2)),
    ]


def test_an_id_survives_a_move_within_one_version(animals: Animals) -> None:
    animals.advance(*FIRST)
    assert animals.advance(D(1), U(4, "budgie")) == [V("budgie", (1, 4)), V("dog", (3, 2)), V("dog", (3, 3))]


def test_ids_are_never_used_again(animals: Animals) -> None:
    animals.advance(*FIRST)
    animals.advance(D(1), D(2), D(3))
    assert animals.ids() == {}
    animals.advance(U(9, "eagle", "ant"))
    assert animals.ids() == {"ant": 5, "eagle": 6}


def test_a_compaction_keeps_ids(animals: Animals) -> None:
    animals.advance(*FIRST)
    animals.advance(U(2, "frog"), D(3))
    before = animals.ids()
    Dataflow(animals.store, GRAPH.declaration(), settings=animals.settings).compact(full=True)
    assert animals.ids() == before
    animals.advance(U(4, "new", "frog"))
    assert animals.ids() == {**before, "new": 1 + max(4, *before.values())}


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 10))])
def test_ids_are_constant_while_a_key_lives_and_distinct(animals: Animals, seed: int) -> None:
    from random import Random

    random = Random(seed)
    ever: set[int] = set()
    before: dict[str, int] = {}
    for _ in range(6):
        keys = sorted(random.sample(range(6), random.randint(1, 4)))
        edits = [D(key) if random.random() < 0.35 else U(key, *random.choices("abcdefgh", k=3)) for key in keys]
        animals.advance(*edits)
        after = animals.ids()
        assert len(set(after.values())) == len(after)
        assert all(after[name] == number for name, number in before.items() if name in after)
        novel = {number for name, number in after.items() if name not in before}
        assert not novel & ever, "an id that was used before"
        assert [after[name] for name in sorted(after) if name not in before] == sorted(novel), (
            "new ids are in key order"
        )
        ever |= novel
        before = after


FOUNDERS = Graph(
    (
        RootNode("source", columns(k="int64"), columns(name="string")),
        StageNode(
            "animals",
            (("source",),),
            columns(name="string"),
            columns(owner="int64", founder="int64"),
            lambda key, rows: ((name, (key, None)) for name in rows),
            founded=("founder", "owner"),
        ),
    )
)
"""A stage with the owners of each animal, and its founder: its first owner since the animal last had none."""


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_a_founder_is_retained_while_its_key_has_rows(store: ObjectStore, settings: Settings) -> None:
    """The founder of a new animal is the owner in its first row.

    An animal keeps its founder as long as it has rows.
    """
    pair = Pair(store, FOUNDERS, settings=settings)
    pair.advance({"source": FIRST})
    assert pair.plain_version().update("animals") == [
        A("budgie", (1, 1)),
        *(A("cat", (2, 2)), V("cat", (3, 2))),
        *(A("dog", (1, 1)), V("dog", (2, 1)), V("dog", (3, 1))),
        A("eagle", (3, 3)),
    ]
    pair.advance({"source": [U(2, "frog", "eagle", "ant")]})
    assert pair.plain_version().update("animals") == [
        A("ant", (2, 2)),
        V("cat", (3, 2)),
        *(V("dog", (1, 1)), V("dog", (3, 1))),
        *(V("eagle", (2, 3)), V("eagle", (3, 3))),
        A("frog", (2, 2)),
    ]
    pair.advance({"source": [U(1, "dog", "frog")]})
    assert pair.plain_version().update("animals") == [
        X("budgie"),
        *(V("dog", (1, 1)), V("dog", (3, 1))),
        *(V("frog", (1, 2)), V("frog", (2, 2))),
    ]
    pair.advance({"source": [U(1, "dog", "budgie")]})
    assert pair.plain_version().update("animals") == [
        A("budgie", (1, 1)),
        *(V("dog", (1, 1)), V("dog", (3, 1))),
        V("frog", (2, 2)),
    ]


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_a_removed_row_can_be_the_example(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, FOUNDERS, settings=settings)
    pair.advance({"source": FIRST})
    pair.advance({"source": [D(1), D(2), D(3), U(4, "dog", "dog"), U(5, "dog", "yak"), U(6, "yak", "yak")]})
    assert pair.plain_version().groups("animals") == {"dog": [(4, 1), (4, 1), (5, 1)], "yak": [(5, 5), (6, 5), (6, 5)]}


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_a_hook_gets_each_written_row_once(store: ObjectStore, settings: Settings) -> None:
    """A hook gets each written row once, either with a number or with an earlier row of the same key.

    The first row of a new key comes with the number of the key. Any other row comes with an earlier row of the key. If
    the key is new, the earlier row is from the same update, otherwise from the last version.
    """
    calls: list[tuple[str, int, int | None, int | None]] = []

    def hook(rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
        columns_ = (rows["name"], rows["owner"], previous["owner"], has_previous, novel)
        for name, owner, example, has, number in zip(*(column.to_pylist() for column in columns_), strict=True):
            assert has == (number is None)
            calls.append((name, owner, example if has else None, number))
        return rows

    root, animals = FOUNDERS.declaration()
    flow = Dataflow(store, [root, replace(animals, preserve=hook)], settings=settings)
    key, value, _ = FOUNDERS.rows("source")
    flow.advance({"source": changes_table(key, value, changes(FIRST))})
    assert sorted(calls) == [
        ("budgie", 1, None, 1),
        *(("cat", 2, None, 2), ("cat", 3, 2, None)),
        *(("dog", 1, None, 3), ("dog", 2, 1, None), ("dog", 3, 1, None)),
        ("eagle", 3, None, 4),
    ]
    calls.clear()
    flow.advance({"source": changes_table(key, value, changes([U(2, "cat", "ant"), U(4, "ant", "budgie")]))})
    assert sorted(calls) == [
        *(("ant", 2, None, 5), ("ant", 4, 2, None)),
        *(("budgie", 4, 1, None), ("cat", 2, 2, None)),
    ]
