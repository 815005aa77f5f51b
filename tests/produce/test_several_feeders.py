"""A stage may have several feeders on one port.

A feeder is a node whose rows a stage reads. A port is an input of the stage's function. A root is an input of the
graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import A, V, X
from tests.produce.graph_model import Graph, RootNode, StageNode, columns
from tests.produce.harness import D, Pair, U


def test_word_count_over_merged_roots(store: ObjectStore) -> None:
    def words(key: int, phrases: Iterator[str]) -> Iterator[Any]:
        for phrase in phrases:
            yield from ((word, key) for word in phrase.split())

    def counts(word: str, ids: Iterator[int]) -> Iterator[Any]:
        yield len(list(ids)), word

    phrase = columns(phrase="string")
    graph = Graph(
        (
            RootNode("one", columns(id="int64"), phrase),
            RootNode("other", columns(id="int64"), phrase),
            StageNode("words", (("one", "other"),), columns(word="string"), columns(id="int64"), words),
            StageNode("counts", (("words",),), columns(n="int64"), columns(word="string"), counts, descending=("n",)),
        )
    )
    pair = Pair(store, graph)
    pair.advance({"one": [U(1, "the cat"), U(2, "the dog")], "other": [U(2, "a dog"), U(3, "the end")]})
    assert pair.plain_version().content("counts") == [
        *((3, "the", "the"), (2, "dog", "dog")),
        *((1, word, word) for word in ("a", "cat", "end")),
    ]
    pair.advance({"one": [D(2)]})
    assert pair.graph.calls[0] == ("words", 2, (["a dog"],)), "one Update for that id: the other root's phrase"
    assert pair.plain_version().update("words") == [V("a", 2), V("dog", 2), V("the", 1), V("the", 3)]
    assert [row[0] for row in pair.plain_version().content("counts")] == [2, 1, 1, 1, 1]
    assert pair.plain_version().update("counts") == [
        X(3),
        V(2, "the"),
        *(V(1, word) for word in ("a", "cat", "dog", "end")),
    ]
    pair.advance({"one": [D(1)]})
    assert pair.plain_version().update("words") == [X("cat"), V("the", 3)], (
        "words of the deleted phrase only are deleted"
    )


class Merged(Pair):
    """A stage that passes on the rows of two roots, and records its arguments."""

    def __init__(self, store: ObjectStore) -> None:
        def passing(key: int, rows: Iterator[str]) -> Iterator[Any]:
            return ((key, row) for row in rows)

        key, value = columns(k="int64"), columns(x="string")
        super().__init__(
            store,
            Graph(
                (
                    RootNode("A", key, value),
                    RootNode("B", key, value),
                    StageNode("merged", (("A", "B"),), key, value, passing),
                )
            ),
        )
        self.advance({"A": [U(1, "a1"), U(3, "a3")], "B": [U(1, "b1"), U(2, "b2")]})

    def then(self, **edits: Any) -> list[Any]:
        """Publish a version.

        Return the update of the stage.
        """
        self.advance(edits)
        return self.plain_version().update("merged")

    def calls(self) -> list[Any]:
        return [(call.key, *call.ports) for call in self.graph.calls]


@pytest.fixture
def merged(store: ObjectStore) -> Merged:
    return Merged(store)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same_process", "new_process"])
def test_feeder_without_an_update_is_unchanged(merged: Merged, is_restarted: bool) -> None:
    if is_restarted:
        merged.reopen()
    assert merged.then(A=[U(1, "a2")]) == [V(1, "a2"), V(1, "b1")]
    assert merged.calls() == [(1, ["a2", "b1"])]
    assert merged.plain_version().update("B") == []


def test_one_feeder_deletes_the_other_still_has(merged: Merged) -> None:
    assert merged.then(A=[D(1)]) == [V(1, "b1")]
    assert merged.plain_version().update("A") == [X(1)]


def test_all_feeders_delete(merged: Merged) -> None:
    assert merged.then(A=[D(1)], B=[D(1)]) == [X(1)]
    assert merged.calls() == []


def test_feeder_adds_a_key_the_other_had(merged: Merged) -> None:
    assert merged.then(A=[U(2, "a9")]) == [V(2, "a9"), V(2, "b2")]
    assert merged.plain_version().update("A") == [A(2, "a9")], "the feeder's own type is Add"


def test_only_owner_deletes(merged: Merged) -> None:
    assert merged.then(A=[D(3)]) == [X(3)]


def test_feeder_deletes_a_key_it_never_had(merged: Merged) -> None:
    assert merged.then(A=[D(2)]) == []
    assert merged.plain_version().update("A") == []
    assert merged.calls() == []


def test_delete_in_one_upsert_in_the_other(merged: Merged) -> None:
    assert merged.then(A=[D(1)], B=[U(1, "bb")]) == [V(1, "bb")]
    assert merged.calls() == [(1, ["bb"])]


def test_a_feeder_may_be_on_two_ports(store: ObjectStore) -> None:
    def both(key: int, left: Iterator[str], right: Iterator[str]) -> Iterator[Any]:
        return ((key, one + other) for one, other in zip(left, right, strict=True))

    key, value = columns(k="int64"), columns(x="string")
    graph = Graph(
        (RootNode("A", key, value), StageNode("twice", (("A",), ("A",)), key, value, both)),
    )
    pair = Pair(store, graph)
    pair.advance({"A": [U(1, "a", "b")]})
    assert pair.plain_version().update("twice") == [A(1, "aa"), V(1, "bb")]
