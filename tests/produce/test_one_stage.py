"""Updates of a single stage are correct if source keys are added, moved and deleted.

Several source keys share a target key, and a source key may have several target keys. A stage maps the rows of source
keys to rows of target keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metastore_assets.errors import UpdateError
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import BASE_CONTENT, BASE_LOAD, BASE_MAPPINGS, A, Base, V, X, skipping
from tests.produce.graph_model import Graph, RootNode, StageNode, columns
from tests.produce.harness import D, Pair, U, changes


def test_first_load(store: ObjectStore) -> None:
    base = Base(store, load=False)
    base.edit(*BASE_LOAD)
    base.expect(
        update=[A(105, "apple"), V(105, "banana"), A(108, "mango")], content=BASE_CONTENT, mappings=BASE_MAPPINGS
    )


def test_replace_one_source_of_a_shared_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(6, (105, "apricot")))
    base.expect(
        update=[V(105, "apricot"), V(105, "banana")],
        content=[(105, 6, "apricot"), (105, 9, "banana"), (108, 4, "mango")],
        mappings=BASE_MAPPINGS,
    )


def test_delete_missing_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(7))
    base.expect(update=[], content=BASE_CONTENT, mappings=BASE_MAPPINGS)
    assert base.flow.version().number == 2


def test_delete_smallest_source_of_shared_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(6))
    base.expect(
        update=[V(105, "banana")], content=[(105, 9, "banana"), (108, 4, "mango")], mappings=[(4, 108), (9, 105)]
    )


def test_delete_greatest_source_of_shared_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(9))
    base.expect(update=[V(105, "apple")], content=[(105, 6, "apple"), (108, 4, "mango")], mappings=[(4, 108), (6, 105)])


def test_delete_all_sources_of_a_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(6), D(9))
    base.expect(update=[X(105)], content=[(108, 4, "mango")], mappings=[(4, 108)])


def test_source_moves_to_another_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(4, (105, "mango")))
    base.expect(
        update=[V(105, "mango"), V(105, "apple"), V(105, "banana"), X(108)],
        content=[(105, 4, "mango"), (105, 6, "apple"), (105, 9, "banana")],
        mappings=[(4, 105), (6, 105), (9, 105)],
    )


def test_update_emits_nothing(store: ObjectStore) -> None:
    base = Base(store, skipping)
    base.edit(U(4, (108, "skip")))
    base.expect(update=[X(108)], content=[(105, 6, "apple"), (105, 9, "banana")], mappings=[(6, 105), (9, 105)])


def test_several_outputs_with_the_same_key_then_shrink(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(6, (105, "a"), (105, "b"), (107, "c")))
    base.expect(
        update=[V(105, "a"), V(105, "b"), V(105, "banana"), A(107, "c")],
        content=[(105, 6, "a"), (105, 6, "b"), (105, 9, "banana"), (107, 6, "c"), (108, 4, "mango")],
        mappings=[(4, 108), (6, 105), (6, 107), (9, 105)],
    )
    base.edit(U(6, (105, "b")))
    base.expect(
        update=[V(105, "b"), V(105, "banana"), X(107)],
        content=[(105, 6, "b"), (105, 9, "banana"), (108, 4, "mango")],
        mappings=BASE_MAPPINGS,
    )


def test_outputs_stay_in_the_order_of_emission(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(6, (105, "z"), (105, "a"), (104, "q"), (105, "z"), (105, "m")))
    base.expect(
        update=[A(104, "q"), V(105, "z"), V(105, "a"), V(105, "z"), V(105, "m"), V(105, "banana")],
        mappings=[(4, 108), (6, 104), (6, 105), (9, 105)],
    )


def test_new_key_from_two_sources_at_once(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(1, (200, "x")), U(2, (200, "y")))
    base.expect(update=[A(200, "x"), V(200, "y")], content=[*BASE_CONTENT, (200, 1, "x"), (200, 2, "y")])


def test_leaves_and_returns_in_the_same_version(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(4), U(5, (108, "kiwi")))
    base.expect(update=[V(108, "kiwi")], content=[*BASE_CONTENT[:2], (108, 5, "kiwi")])


def test_moves_to_a_smaller_source_key(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(5, (105, "fig")), D(6), D(9))
    base.expect(update=[V(105, "fig")], content=[(105, 5, "fig"), (108, 4, "mango")], mappings=[(4, 108), (5, 105)])


@pytest.mark.parametrize("suppress", [False, True])
def test_replay_of_an_upsert(store: ObjectStore, suppress: bool) -> None:
    base = Base(store, suppress=suppress)
    base.edit(U(6, (105, "apricot")))
    content, mappings = base.plain_version().content("stage"), base.plain_version().mappings("stage")
    base.edit(U(6, (105, "apricot")))
    base.expect(update=[] if suppress else [V(105, "apricot"), V(105, "banana")], content=content, mappings=mappings)


def test_replay_of_a_delete(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(4))
    base.expect(update=[X(108)])
    base.edit(D(4))
    base.expect(update=[], content=BASE_CONTENT[:2], mappings=BASE_MAPPINGS[1:])


@pytest.mark.parametrize("suppress", [False, True])
def test_no_op_upsert(store: ObjectStore, suppress: bool) -> None:
    base = Base(store, suppress=suppress)
    base.edit(U(6, (105, "apple")))
    base.expect(
        update=[] if suppress else [V(105, "apple"), V(105, "banana")], content=BASE_CONTENT, mappings=BASE_MAPPINGS
    )


def test_returns_in_a_later_version(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(D(4))
    base.edit(U(4, (108, "mango")))
    base.expect(update=[A(108, "mango")], content=BASE_CONTENT, mappings=BASE_MAPPINGS)


def test_upsert_then_delete_of_the_next_key_in_one_batch(store: ObjectStore) -> None:
    base = Base(store)
    base.edit(U(4, (108, "m2")), D(6))
    base.expect(update=[V(105, "banana"), V(108, "m2")], content=[(105, 9, "banana"), (108, 4, "m2")])
    assert base.graph.calls == [("stage", 4, ([(108, "m2")],))]


@pytest.mark.parametrize(
    ("keys", "cause", "message"),
    [
        ([("update", 6), ("delete", 6)], "an upsert and a delete", r"\bkey 6\b.*\bdelete\b"),
        ([("delete", 6), ("delete", 6)], "two deletes", r"\bkey 6\b.*\bdelete\b"),
        ([("update", 9), ("update", 6)], "keys decrease", r"\bkey 6\b.* 9\b"),
        ([("update", 6), ("update", 9), ("update", 6)], "a key in two places", r"\bkey 6\b.* 9\b"),
    ],
)
def test_malformed_updates_are_rejected(
    store: ObjectStore, keys: list[tuple[str, int]], cause: str, message: str
) -> None:
    base = Base(store)
    files = {info.path for info in store.list()}
    update = base.table("source", [(change, key, (105, "x")) for change, key in keys])
    with pytest.raises(UpdateError, match=f"'source'.*{message}"):
        base.flow.advance({"source": update})
    assert {info.path for info in store.list()} == files, f"{cause}: no files remain"
    assert base.flow.version().number == 1
    base.expect(content=BASE_CONTENT, mappings=BASE_MAPPINGS)
    base.edit(D(9))


def test_empty_update(store: ObjectStore) -> None:
    base = Base(store)
    files = base.files()
    base.edit()
    base.expect(update=[], content=BASE_CONTENT, mappings=BASE_MAPPINGS)
    assert base.files() == files, "files are referenced, not rewritten"


def test_null_values(store: ObjectStore) -> None:
    graph = Graph(
        (
            RootNode("source", columns(k="int64"), columns(x="string")),
            StageNode(
                "stage",
                (("source",),),
                columns(k="int64"),
                columns(x="string"),
                lambda key, rows: ((key, row) for row in rows),
            ),
        )
    )
    pair = Pair(store, graph)
    pair.advance({"source": [U(4, None), U(5, "x")]})
    assert pair.plain_version().update("stage") == [A(4, None), A(5, "x")]
    assert pair.plain_version().content("stage") == [(4, 4, None), (5, 5, "x")]
    pair.advance({"source": [U(4, "y")]})
    assert pair.plain_version().update("stage") == [V(4, "y")]
    pair.advance({"source": [U(4, None, "z", None)]})
    assert pair.plain_version().update("stage") == [V(4, None), V(4, "z"), V(4, None)]
    pair.advance({"source": [D(4)]})
    assert pair.plain_version().update("stage") == [X(4)]


def test_the_type_of_the_input_is_ignored(store: ObjectStore) -> None:
    base = Base(store)
    update = base.table("source", [("add", 4, (108, "m2")), ("update", 5, (300, "new")), ("add", 5, (300, "too"))])
    base.publish({"source": update}, {"source": {4: [(108, "m2")], 5: [(300, "new"), (300, "too")]}})
    base.expect(update=[V(108, "m2"), A(300, "new"), V(300, "too")])


@pytest.mark.parametrize("many", [1, 50])
def test_partial_consumption(store: ObjectStore, many: int) -> None:
    def first(key: int, rows: Iterator[Any]) -> Iterator[Any]:
        yield next(rows)

    base = Base(store, first, load=False)
    base.edit(*(U(key, (100 + key, "first"), *((999, "never read"),) * many) for key in range(4)))
    base.expect(content=[(100 + key, key, "first") for key in range(4)])


def test_nothing_consumed(store: ObjectStore) -> None:
    base = Base(store, lambda key, rows: [(key, "constant")], load=False)
    base.edit(U(1, (0, "a"), (0, "b")), U(2, (0, "c")))
    base.expect(update=[A(1, "constant"), A(2, "constant")])


def test_shrink_move_and_delete_over_four_versions(store: ObjectStore) -> None:
    def by_count(key: str, rows: Iterator[Any]) -> Iterator[Any]:
        group_rows = list(rows)
        for copies, name in group_rows:
            yield from ((len(group_rows), name) for _ in range(copies))

    graph = Graph(
        (
            RootNode("source", columns(k="string"), columns(copies="int64", name="string")),
            StageNode("stage", (("source",),), columns(n="int64"), columns(name="string"), by_count),
        )
    )
    pair = Pair(store, graph)
    pair.advance({"source": [U("a", (1, "ant")), U("b", (2, "bee")), U("c", (1, "cat"))]})
    assert pair.plain_version().update("stage") == [A(1, "ant"), V(1, "bee"), V(1, "bee"), V(1, "cat")]
    pair.advance({"source": [U("a", (3, "ant"))]})
    assert pair.plain_version().update("stage") == [V(1, name) for name in ("ant", "ant", "ant", "bee", "bee", "cat")]
    assert pair.plain_version().mappings("stage") == [("a", 1), ("b", 1), ("c", 1)]
    pair.advance({"source": [U("b", (2, "bee"), (1, "bug"))]})
    assert pair.plain_version().update("stage") == [
        *(V(1, name) for name in ("ant", "ant", "ant", "cat")),
        *(A(2, "bee"), V(2, "bee"), V(2, "bug")),
    ]
    assert pair.plain_version().mappings("stage") == [("a", 1), ("b", 2), ("c", 1)]
    pair.advance({"source": [D("b")]})
    assert pair.plain_version().update("stage") == [X(2)]
    assert pair.plain_version().mappings("stage") == [("a", 1), ("c", 1)]


def test_changes_of_edits() -> None:
    assert changes([U(1, "a", "b"), D(2)]) == [V(1, "a"), V(1, "b"), X(2)]
