"""A graph of one stage, its first load and the expected content, for tests of single updates.

A root is an input of a graph. A stage maps the rows of source keys to rows of target keys. The oracle computes the
expected results in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metastore_assets.produce import Settings
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import Function, Graph, RootNode, StageNode, columns
from tests.produce.harness import Edit, Pair, U

BASE_LOAD = [U(4, (108, "mango")), U(6, (105, "apple")), U(9, (105, "banana"))]
BASE_CONTENT = [(105, 6, "apple"), (105, 9, "banana"), (108, 4, "mango")]
BASE_MAPPINGS = [(4, 108), (6, 105), (9, 105)]


def split(key: int, rows: Iterator[Any]) -> Iterator[Any]:
    """Emit each row, which is a pair of a target key and a value."""
    yield from rows


def skipping(key: int, rows: Iterator[Any]) -> Iterator[Any]:
    """Emit each row except those with the value `skip`."""
    return (row for row in rows if row[1] != "skip")


def base_graph(function: Function = split, **options: Any) -> Graph:
    """Return a graph of a root `source` and a stage `stage`.

    The root has the key k and values (t, x). The stage has the key t and the value x.

    Args:
        function: The Produce function of the stage. The default makes each value (t, x) of the root a row.
        **options: More fields of the `StageNode`.
    """
    return Graph(
        (
            RootNode("source", columns(k="int64"), columns(t="int64", x="string")),
            StageNode("stage", (("source",),), columns(t="int64"), columns(x="string"), function, **options),
        )
    )


class Base(Pair):
    """A dataflow of one stage, with the first load `BASE_LOAD` as version 1.

    If `load` is false, the dataflow has no version.
    """

    def __init__(
        self,
        store: ObjectStore,
        function: Function = split,
        *,
        settings: Settings | None = None,
        load: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(store, base_graph(function, **options), settings=settings)
        if load:
            self.advance({"source": BASE_LOAD})
            self.expect(content=BASE_CONTENT, mappings=BASE_MAPPINGS)

    def edit(self, *edits: Edit, **options: Any) -> None:
        """Publish the next version with these edits of the root `source`, and compare it to the oracle."""
        self.advance({"source": edits}, **options)

    def expect(self, update: list[Any] | None = None, content: list[Any] | None = None, mappings: Any = None) -> None:
        """Assert the stage's update, content and mappings in the newest version; None skips a check.

        Mappings are the pairs of a source key and a target key for which the stage has rows.
        """
        plain_version = self.plain_version()
        if update is not None:
            assert plain_version.update("stage") == update
        if content is not None:
            assert plain_version.content("stage") == content
        if mappings is not None:
            assert plain_version.mappings("stage") == mappings

    def files(self) -> set[str]:
        """Return the paths of the stage's files, which are sorted runs of rows."""
        return {path for *_, path in self.plain_version().view.runs("stage")}


def A(key: Any, value: Any) -> tuple[str, Any, Any]:
    """Return a row of an update: the first row of a new key."""
    return "add", key, value


def V(key: Any, value: Any) -> tuple[str, Any, Any]:
    """Return a row of an update: a row of an existing key, or a further row of a new key."""
    return "update", key, value


def X(key: Any) -> tuple[str, Any, Any]:
    """Return a row of an update that deletes a key."""
    return "delete", key, None
