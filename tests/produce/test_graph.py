"""Invalid declarations are refused before anything is written.

Most errors name the node or the column. A node is a root (an input), a stage that computes rows by a function, or a
sum, which has totals by key.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError
from metastore_assets.produce import Dataflow, Root, Rows, Stage, SumStage
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import columns

KEY, VALUE = columns(k="int64"), columns(x="int64")
ROWS = Rows(KEY, VALUE)


def same(key: Any, *ports: Any) -> Any:
    return ((key, value) for port in ports for value in port)


def stage(name: str, *ports: tuple[str, ...], rows: Rows = ROWS) -> Stage:
    return Stage(name, ports=ports, rows=rows, produce=same)


def refused(store: ObjectStore, match: str, *nodes: Any) -> None:
    with pytest.raises(GraphError, match=match):
        Dataflow(store, nodes)
    assert not store.list()


def test_an_unknown_feeder_is_refused(store: ObjectStore) -> None:
    refused(store, "'first'.*'missing'", Root("root", ROWS), stage("first", ("root", "missing")))


def test_a_cycle_is_refused(store: ObjectStore) -> None:
    nodes = [Root("root", ROWS), stage("one", ("root", "two")), stage("two", ("one",))]
    refused(store, r"\b(one\b.*\btwo\b.*\bone|two\b.*\bone\b.*\btwo)$", *nodes)


def test_a_stage_that_feeds_itself_is_refused(store: ObjectStore) -> None:
    refused(store, r"\bone\b.*\bone$", Root("root", ROWS), stage("one", ("root",), ("one",)))


@pytest.mark.parametrize(
    "other",
    [
        Rows(columns(k="int32"), VALUE),
        Rows(columns(id="int64"), VALUE),
        Rows(KEY, columns(x="string")),
        Rows(KEY, columns(x="int64", y="int64")),
        Rows(columns(k="int64", l="int64"), VALUE),
    ],
)
def test_feeders_of_one_port_with_other_types(store: ObjectStore, other: Rows) -> None:
    match = r"'merged'.*'a'.*'b'.*\btypes\b"
    refused(store, match, Root("a", ROWS), Root("b", other), stage("merged", ("a", "b")))
    sums = SumStage("merged", feeders=("a", "b"), key=("k",), amounts=("x",))
    refused(store, match, Root("a", ROWS), Root("b", other), sums)


def test_ports_with_other_keys(store: ObjectStore) -> None:
    other = Root("b", Rows(columns(k="string"), VALUE))
    refused(store, r"'join'.*\bports\b.*\bkeys\b", Root("a", ROWS), other, stage("join", ("a",), ("b",)))


def test_feeders_that_differ_in_order_alone(store: ObjectStore) -> None:
    nodes = [Root("a", ROWS), Root("b", Rows(KEY, VALUE, descending=("k",))), stage("merged", ("a", "b"))]
    assert Dataflow(store, nodes).version().number == 0


def test_the_same_feeder_twice_on_one_port(store: ObjectStore) -> None:
    refused(store, "'twice'.* a, a$", Root("a", ROWS), stage("twice", ("a", "a")))
    refused(
        store, "'total'.* a, a$", Root("a", ROWS), SumStage("total", feeders=("a", "a"), key=("k",), amounts=("x",))
    )


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (Rows(columns(_k="int64"), VALUE), "'_k'.*`_`"),
        (Rows(KEY, columns(_change="string")), "'_change'.*`_`"),
        (Rows(KEY, columns(_source_k="int64")), "'_source_k'.*`_`"),
        (Rows(KEY, columns(k="int64")), "'k' twice"),
        (Rows(pa.schema([KEY[0], KEY[0]]), VALUE), "'k' twice"),
        (Rows(pa.schema([]), VALUE), r"\bkey column\b"),
        (Rows(KEY, VALUE, descending=("x",)), "descending.*'x'"),
        (Rows(KEY, VALUE, descending=("unknown",)), "descending.*'unknown'"),
        (Rows(columns(k=pa.list_(pa.int64())), VALUE), "'k'.*list<"),
        (Rows(columns(k=pa.struct([pa.field("a", pa.int64())])), VALUE), "'k'.*struct<"),
    ],
    ids=[
        "underscore in a key",
        "underscore in a value",
        "source column",
        "name in key and value",
        "name twice in the key",
        "no key",
        "descending value",
        "descending nothing",
        "key of a list",
        "key of a struct",
    ],
)
def test_invalid_columns_are_refused(store: ObjectStore, rows: Rows, match: str) -> None:
    refused(store, f"'root'.*{match}", Root("root", rows))
    refused(store, f"'first'.*{match}", Root("root", ROWS), stage("first", ("root",), rows=rows))


def test_duplicate_names_are_refused(store: ObjectStore) -> None:
    refused(store, "name 'root'$", Root("root", ROWS), Root("root", ROWS))
    refused(store, "name 'root'$", Root("root", ROWS), stage("root", ("root",)))
    refused(store, "name 'one'$", Root("root", ROWS), stage("one", ("root",)), stage("one", ("root",)))


def test_exactly_one_produce_function() -> None:
    with pytest.raises(GraphError, match=r"'none'.*`produce`.*`produce_batch`"):
        Stage("none", ports=(("root",),), rows=ROWS)
    with pytest.raises(GraphError, match=r"'both'.*`produce`.*`produce_batch`"):
        Stage("both", ports=(("root",),), rows=ROWS, produce=same, produce_batch=lambda batch: batch.keys)


@pytest.mark.parametrize("ports", [(), ((),), (("root",), ())])
def test_every_stage_has_ports_and_every_port_a_feeder(ports: Any) -> None:
    with pytest.raises(GraphError, match=r"'empty'.*\bport\b"):
        Stage("empty", ports=ports, rows=ROWS, produce=same)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key": ("k",), "amounts": ("missing",)}, "'missing'.*'k', 'x', 'f', 's'"),
        ({"key": ("missing",), "amounts": ("x",)}, "'missing'.*'k', 'x', 'f', 's'"),
        ({"key": ("k",), "amounts": ("f",)}, "'f'.*double"),
        ({"key": ("k",), "amounts": ("s",)}, "'s'.*string"),
        ({"key": ("k",), "amounts": ("x",), "count": "x"}, "'x' twice"),
        ({"key": ("k",), "amounts": ("x",), "count": "_n"}, "'_n'.*`_`"),
        ({"key": ("k", "k"), "amounts": ("x",)}, "'k' twice"),
        ({"key": ("k",), "amounts": ()}, r"\badd up\b"),
        ({"key": (), "amounts": ("x",)}, r"\bkey column\b"),
        ({"key": ("k",), "amounts": ("x",), "descending": ("x",)}, "descending.*'x'"),
        ({"key": ("k",), "amounts": ("x",), "least": ("z", 2)}, "'z'.*'k', 'x', 'f', 's'"),
        ({"key": ("k",), "amounts": ("x",), "least": ("f", 2)}, "least.*'f'.*double"),
    ],
)
def test_invalid_sums_are_refused(store: ObjectStore, options: dict[str, Any], match: str) -> None:
    """A sum with invalid keys, amounts or options is refused.

    Columns must not be missing, reserved or repeated, and amounts must not be floats or text. A sum needs a key or a
    total. `descending` must be a column of the key, and `least` an integer column.
    """
    root = Root("root", Rows(KEY, columns(x="int64", f="float64", s="string")))
    with pytest.raises(GraphError, match=f"'total'.*{match}"):
        Dataflow(store, [root, SumStage("total", feeders=("root",), **options)])


def test_stages_may_be_declared_in_any_order(store: ObjectStore) -> None:
    nodes = [stage("last", ("middle",)), stage("middle", ("root",)), Root("root", ROWS)]
    flow = Dataflow(store, nodes)
    flow.advance({"root": pa.table({"_change": ["add"], "k": [1], "x": [2]})})
    assert flow.version().content("last").to_pylist() == [{"k": 1, "_source_k": 1, "x": 2}]


def test_queries_about_undeclared_stages(store: ObjectStore) -> None:
    view = Dataflow(store, [Root("root", ROWS), SumStage("total", feeders=("root",), key=("k",), count="n")]).version()
    for ask in (view.content, view.mappings, view.update, view.groups, view.runs):
        with pytest.raises(GraphError, match="'unknown'"):
            ask("unknown")
    for name in ("root", "total"):
        with pytest.raises(GraphError, match=name):
            view.mappings(name)


@pytest.mark.parametrize("name", ["with space", "ä/ö", "..", "a.b", "'quoted'", "x" * 300])
def test_stages_may_have_any_name(store: ObjectStore, name: str) -> None:
    flow = Dataflow(store, [Root("root", ROWS), stage(name, ("root",))])
    flow.advance({"root": pa.table({"_change": ["add"], "k": [1], "x": [2]})})
    assert flow.version().groups(name, None).to_pylist() == [{"k": 1, "x": 2}]
