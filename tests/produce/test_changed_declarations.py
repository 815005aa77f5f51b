"""A changed declaration on which stored rows depend is refused until the node is rebuilt.

Changed code of functions is not noticed, and changes on which no stored row depends are accepted. A node is a root (an
input) or a stage, which maps source keys to target keys by a function. A hook of a stage changes its new rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError, ProduceError, StageChangedError
from metastore_assets.produce import Dataflow, Root, Rows, Stage, SumStage, SurrogateKey
from metastore_assets.produce.stages import Node
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import Founder, columns

KEY = columns(k="int64")
ROOT = Root("r", Rows(KEY, columns(word="string", n="int64")))
OTHER = replace(ROOT, name="o")
WORDS = Rows(columns(word="string"), columns(id="int64", also="int64", n="int64"))


def by_word(key: int, *ports: Any) -> Any:
    return ((word, (None, n, n)) for port in ports for word, n in port)


def preserve_all(rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
    return rows


def preserve_all_differently(rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
    return rows


def preserve_all_by(rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array, so: str) -> pa.Table:
    return rows


class Noting:
    """A hook that is not a dataclass: it records the rows that it gets, and has a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[pa.Table] = []

    def __call__(self, rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
        self.batches.append(rows)
        return rows


@dataclass(frozen=True)
class Numbering(SurrogateKey):
    """A subclass of `SurrogateKey`, which numbers target keys in the same way."""


STAGE = Stage("s", (("r", "o"),), WORDS, produce=by_word)
SUM = SumStage("s", ("r", "o"), key=("word",), amounts=("n",))
NUMBERED = replace(STAGE, preserve=SurrogateKey("id"))
_DESCENDING = replace(WORDS, descending=("word",))
_WIDER = replace(WORDS, value=columns(id="int64", also="int64", n="float64"))

CHANGED: dict[str, tuple[Node, Node]] = {
    "another column for ids": (NUMBERED, replace(NUMBERED, preserve=SurrogateKey("also"))),
    "no ids any more": (NUMBERED, STAGE),
    "ids": (STAGE, NUMBERED),
    "another kind of hook": (NUMBERED, replace(STAGE, preserve=Founder("id", "n"))),
    "another name of a hook": (NUMBERED, replace(STAGE, preserve=Numbering("id"))),
    "another origin": (replace(STAGE, preserve=Founder("id", "n")), replace(STAGE, preserve=Founder("id", "also"))),
    "another function": (replace(STAGE, preserve=preserve_all), replace(STAGE, preserve=preserve_all_differently)),
    "a function in place of an object": (replace(STAGE, preserve=Noting("a")), replace(STAGE, preserve=preserve_all)),
    "another value of an object": (replace(STAGE, preserve=Noting("a")), replace(STAGE, preserve=Noting("b"))),
    "another argument": (
        replace(STAGE, preserve=partial(preserve_all_by, so="a")),
        replace(STAGE, preserve=partial(preserve_all_by, so="b")),
    ),
    "revision": (STAGE, replace(STAGE, revision="2")),
    "ports": (STAGE, replace(STAGE, ports=(("r",), ("o",)))),
    "order of feeders": (STAGE, replace(STAGE, ports=(("o", "r"),))),
    "order of keys": (STAGE, replace(STAGE, rows=_DESCENDING)),
    "types": (STAGE, replace(STAGE, rows=_WIDER)),
    "a sum in place of a stage": (STAGE, SUM),
    "signed": (SUM, replace(SUM, signed=True)),
    "not signed": (replace(SUM, signed=True), SUM),
    "count": (SUM, replace(SUM, count="rows")),
    "amounts": (replace(SUM, count="rows"), replace(SUM, amounts=(), count="rows")),
    "key of a sum": (SUM, replace(SUM, key=("k",))),
    "feeders of a sum": (SUM, replace(SUM, feeders=("r",))),
    "order of a sum": (SUM, replace(SUM, descending=("word",))),
    "revision of a sum": (SUM, replace(SUM, revision="2")),
}


def update(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("_change", "k", "word", "n"), row, strict=True)) for row in rows])


def advance(flow: Dataflow, version: int) -> None:
    rows = update(("update", 1, "a", version), ("update", version, "b", 1))
    flow.advance({"r": rows, "o": update(("add", 1, "a", 2))})


def flow_of(store: ObjectStore, node: Node) -> Dataflow:
    return Dataflow(store, [ROOT, OTHER, node])


def content(flow: Dataflow) -> pa.Table:
    """Return the content of the stage `s` without `id` and `also`, which may hold surrogate keys."""
    table = flow.version().content("s")
    return table.drop_columns([name for name in ("id", "also") if name in table.column_names])


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_declaration_is_refused_until_it_is_rebuilt(store: ObjectStore, name: str) -> None:
    before, after = CHANGED[name]
    advance(flow_of(store, before), 2)
    flow = flow_of(store, after)
    for attempt in (lambda: advance(flow, 3), flow.compact):
        with pytest.raises(StageChangedError, match="'s'"):
            attempt()
    assert flow.version().number == 1
    flow.rebuild("s")
    assert flow.version().is_reset("s")
    advance(flow, 3)
    scratch = flow_of(ObjectStore(store.uri("scratch")), after)
    advance(scratch, 2)
    advance(scratch, 3)
    assert content(flow).equals(content(scratch))


def test_no_target_key_has_two_ids(store: ObjectStore) -> None:
    """If the column of the surrogate key changes, updates are refused until a rebuild.

    After the rebuild, all rows have surrogate keys in the new column only.
    """
    flow = flow_of(store, NUMBERED)
    advance(flow, 2)
    changed_flow = flow_of(store, replace(NUMBERED, preserve=SurrogateKey("also")))
    with pytest.raises(StageChangedError, match="'s'"):
        advance(changed_flow, 3)
    changed_flow.rebuild("s")
    advance(changed_flow, 3)
    rows = changed_flow.version().groups("s").to_pylist()
    assert [(row["word"], row["id"], row["also"]) for row in rows] == [
        ("a", None, 3),
        ("a", None, 3),
        *[("b", None, 4)] * 2,
    ]


def _marked(rows: Rows) -> Rows:
    """Return the declaration of rows with metadata in its schemas, which some libraries add to schemas."""
    value = pa.schema([field.with_metadata({"from": "somewhere"}) for field in rows.value], {"pandas": "{}"})
    return replace(rows, key=rows.key.with_metadata({"rows": "7"}), value=value)


USED = Noting("a")
SAME: dict[str, tuple[Node, Node]] = {
    "an equal hook": (NUMBERED, replace(STAGE, preserve=SurrogateKey("id"))),
    "the same hook, which has noted something": (replace(STAGE, preserve=USED), replace(STAGE, preserve=USED)),
    "the code of a hook": (
        replace(STAGE, preserve=lambda rows, previous, has_previous, novel: rows),
        replace(STAGE, preserve=lambda rows, previous, has_previous, novel: rows.slice(0)),
    ),
    "the code of a function": (STAGE, replace(STAGE, produce=lambda key, *ports: by_word(key, *ports))),
    "unchanged groups are left out": (STAGE, replace(STAGE, suppress_unchanged=True)),
    "metadata of columns": (STAGE, replace(STAGE, rows=_marked(WORDS))),
    "the same sum": (replace(SUM, signed=True), replace(SUM, signed=True, revision="1")),
}


@pytest.mark.parametrize("name", SAME)
def test_an_equal_declaration_is_accepted(store: ObjectStore, name: str) -> None:
    before, after = SAME[name]
    flow = flow_of(store, before)
    advance(flow, 2)
    advance(flow_of(store, after), 3)
    advance(flow, 2)
    flow_of(store, after).compact(full=True)
    assert flow.version().content("s").num_rows == (2 if after.name == "s" and isinstance(after, SumStage) else 4)


def test_a_root_with_other_columns_is_refused(store: ObjectStore) -> None:
    advance(flow_of(store, STAGE), 2)
    rows = Rows(KEY, columns(word="string", n="int32"))
    roots = [replace(ROOT, rows=rows), replace(OTHER, rows=rows)]
    flow = Dataflow(store, [*roots, STAGE])
    with pytest.raises(StageChangedError, match=r"'(r|o)'"):
        flow.advance({})
    flow.rebuild("r", "o")
    assert flow.version().content("s").num_rows == 0


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (Rows(columns(word="string"), columns(n="int64")), r"'s'.*no value column 'id'.*n$"),
        (Rows(columns(id="int64"), columns(n="int64")), r"'s'.*'id'.*target key"),
        (Rows(columns(word="string"), columns(id="string")), r"'s'.*'id'.*string.*int64"),
        (Rows(columns(word="string"), columns(id="float64")), r"'s'.*'id'.*double.*int64"),
        (Rows(columns(word="string"), columns(id=pa.decimal128(20, 0))), r"'s'.*'id'.*decimal"),
        (Rows(columns(word="string"), columns(id=pa.timestamp("ns"))), r"'s'.*'id'.*timestamp"),
    ],
    ids=["no column", "a key", "text", "float", "decimal", "time"],
)
def test_columns_that_cannot_have_a_surrogate_key_are_refused(store: ObjectStore, rows: Rows, match: str) -> None:
    stage = Stage("s", (("r",),), rows, produce=by_word, preserve=SurrogateKey("id"))
    with pytest.raises(GraphError, match=match):
        Dataflow(store, [ROOT, stage])


@pytest.mark.parametrize("hook", ["id", SurrogateKey, 5], ids=str)
def test_invalid_hooks_are_refused(hook: Any) -> None:
    with pytest.raises(GraphError, match=r"'s': preserve\b"):
        replace(STAGE, preserve=hook)


def test_a_surrogate_key_may_be_narrow_until_it_is_full(store: ObjectStore) -> None:
    stage = Stage(
        "s", (("r",),), Rows(KEY, columns(id="int8")), produce=lambda key, rows: ((n, None) for _, n in rows),
        preserve=SurrogateKey("id"),
    )  # fmt: skip
    flow = Dataflow(store, [ROOT, stage])
    flow.advance({"r": update(*(("add", 1, "a", n) for n in range(127)))})
    with pytest.raises(ProduceError, match=r"'s'.*128"):
        flow.advance({"r": update(("add", 2, "a", 127))})
    assert flow.version().number == 1
