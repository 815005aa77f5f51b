"""Stages that sum: exact totals, keys that disappear at zero, and errors for invalid totals.

A node is a root (an input) or a stage. The oracle computes the expected results in plain Python.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError, UpdateError
from metastore_assets.produce import Settings
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import A, V, X
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, columns
from tests.produce.harness import SMALL, D, Pair, U

FILE, ROW = columns(file="int64"), columns(v="string", n="int64")


def counts(amounts: tuple[str, ...] = ("n",), count: str | None = None, **options: Any) -> Graph:
    """Return a graph of the root `files` and the sum `totals`.

    A row of the root has a file, a value and a count. The sum adds up the counts of each value. The arguments are those
    of `SumNode`.
    """
    return Graph((RootNode("files", FILE, ROW), SumNode("totals", ("files",), ("v",), amounts, count, **options)))


@pytest.fixture(params=[Settings(), SMALL], ids=["default", "small"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.param


def test_add_update_and_delete_with_previous_rows(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(), settings=settings)
    pair.advance({"files": [U(1, ("a", 2), ("b", 1)), U(2, ("a", 3))]})
    assert pair.plain_version().update("totals") == [A("a", 5), A("b", 1)]
    assert pair.plain_version().before("totals") == [None, None]
    pair.advance({"files": [U(1, ("a", 1), ("c", 4))]})
    assert pair.plain_version().update("totals") == [V("a", 4), X("b"), A("c", 4)]
    assert pair.plain_version().before("totals") == [5, 1, None]
    pair.advance({"files": [D(1), D(2)]})
    assert pair.plain_version().update("totals") == [X("a"), X("c")]
    assert pair.plain_version().content("totals") == []


def test_equal_sums_are_no_update(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(), settings=settings)
    pair.advance({"files": [U(1, ("a", 2)), U(2, ("a", 3), ("b", 1))]})
    pair.advance({"files": [U(1, ("a", 3)), U(2, ("a", 1), ("a", 1), ("b", 1))]})
    assert pair.plain_version().update("totals") == []
    pair.advance({"files": [D(1), U(3, ("a", 3))]})
    assert pair.plain_version().update("totals") == [], "one file in place of another"


RUNS = Settings(single_run_rows=0, bulk_share=1e9)
"""Settings with which updates add runs, and go to the next stage in memory with the former rows of their keys."""


@pytest.mark.parametrize("settings", [RUNS, replace(RUNS, batch_rows=1, small_rows=1000), SMALL])
def test_a_sum_of_a_stage_that_omits_unchanged_groups(store: ObjectStore, settings: Settings) -> None:
    """A sum subtracts the old amounts of changed keys only.

    The stage that feeds the sum omits unchanged keys from its update.
    """
    key, value = columns(k="int64"), columns(v="string", n="int64")
    stage = StageNode("kept", (("files",),), key, value, lambda k, rows: ((k, row) for row in rows), suppress=True)
    graph = Graph((RootNode("files", key, value), stage, SumNode("totals", ("kept",), ("v",), ("n",), "rows")))
    pair = Pair(store, graph, settings=settings)
    pair.advance({"files": [U(k, ("a", 1), ("b", k)) for k in range(6)]})
    pair.advance({"files": [U(1, ("a", 1), ("b", 1)), U(2, ("a", 7)), D(3), U(4, ("a", 1), ("b", 4))]})
    assert pair.plain_version().content("totals") == [("a", None, (11, 5)), ("b", None, (10, 4))]
    pair.advance({"files": [U(k, ("a", 1), ("b", k)) for k in (4, 5)]})
    assert pair.plain_version().update("totals") == []


def test_a_key_exists_while_a_count_or_total_is_not_zero(store: ObjectStore, settings: Settings) -> None:
    """A key exists while its count or one of its totals is not zero."""
    pair = Pair(store, counts(count="rows"), settings=settings)
    pair.advance({"files": [U(1, ("a", 0), ("a", 0)), U(2, (None, 7))]})
    assert pair.plain_version().content("totals") == [(None, None, (7, 1)), ("a", None, (0, 2))]
    pair.advance({"files": [D(1)]})
    assert pair.plain_version().update("totals") == [X("a")]
    alone = Pair(ObjectStore(store.uri("alone")), counts(), settings=settings)
    alone.advance({"files": [U(1, ("a", 0)), U(2, ("b", 1))]})
    assert alone.plain_version().update("totals") == [A("b", 1)], "a key with only zero totals does not exist"


def test_a_sum_may_only_count(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(amounts=(), count="rows", descending=("v",)), settings=settings)
    pair.advance({"files": [U(1, ("a", 9), ("b", 9)), U(2, ("b", 9), (None, 9))]})
    assert pair.plain_version().update("totals") == [A("b", 2), A("a", 1), A(None, 1)]


def test_totals_below_zero_are_corruption(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(), settings=settings)
    pair.advance({"files": [U(1, ("a", 2), ("b", 5)), U(2, ("b", 1))]})
    bad = pair.table("files", [("update", 2, ("b", -6))])
    with pytest.raises(CorruptionError, match=r"'totals'.*'b'.*-1"):
        pair.flow.advance({"files": bad})
    assert pair.plain_version().number == 1
    pair.verify_state()
    pair.advance({"files": [U(2, ("b", -5))]})
    assert pair.plain_version().update("totals") == [X("b")], "a total may become zero"


def test_null_amounts_are_refused(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(), settings=settings)
    pair.advance({"files": [U(1, ("a", 2))]})
    with pytest.raises(UpdateError, match=r"'totals'.*'n'.*'b'"):
        pair.flow.advance({"files": pair.table("files", [("update", 2, ("b", None))])})
    assert pair.plain_version().number == 1
    pair.advance({"files": [U(2, ("b", 1))]})


def test_a_total_that_is_too_large_is_refused(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, counts(), settings=settings)
    pair.advance({"files": [U(1, ("a", 2**63 - 1))]})
    with pytest.raises(UpdateError, match=r"'totals'.*n: int64"):
        pair.flow.advance({"files": pair.table("files", [("update", 2, ("a", 1))])})
    assert pair.plain_version().number == 1
    pair.verify_state()


def test_decimals_add_up_exactly(store: ObjectStore, settings: Settings) -> None:
    graph = Graph(
        (
            RootNode("files", FILE, columns(v="string", price=pa.decimal128(12, 3))),
            SumNode("totals", ("files",), ("v",), ("price",)),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"files": [U(key, ("a", Decimal("0.001")), ("b", Decimal("999999999.999"))) for key in range(20)]})
    assert pair.plain_version().update("totals") == [A("a", Decimal("0.020")), A("b", Decimal("19999999999.980"))]
    assert pair.flow.version().content("totals").schema.field("price").type == pa.decimal128(38, 3)
    pair.advance({"files": [D(key) for key in range(19)]})
    assert pair.plain_version().update("totals") == [V("a", Decimal("0.001")), V("b", Decimal("999999999.999"))]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint32", "int64"])
def test_totals_of_narrow_integers_are_wide(store: ObjectStore, kind: str) -> None:
    graph = Graph((RootNode("files", FILE, columns(v="string", n=kind)), SumNode("totals", ("files",), ("v",), ("n",))))
    pair = Pair(store, graph)
    pair.advance({"files": [U(key, ("a", 127)) for key in range(100)]})
    pair.advance({"files": [D(key) for key in range(50)]})
    assert pair.plain_version().update("totals") == [V("a", 50 * 127)]


def test_sums_of_sums_and_stages_behind_sums(store: ObjectStore, settings: Settings) -> None:
    """If totals of a sum change, another sum and a stage that read these totals are updated.

    Counts per file are summed by value. A second sum counts the values of each total, and a stage orders values by
    total.
    """
    graph = Graph(
        (
            RootNode("files", FILE, ROW),
            RootNode("more", FILE, ROW),
            SumNode("totals", ("files", "more"), ("v",), ("n",)),
            SumNode("histogram", ("totals",), ("n",), (), "values"),
            StageNode(
                "top",
                (("totals",),),
                columns(n="int64", v="string"),
                columns(x="int64"),
                lambda value, totals: (((total, value), 1) for total in totals),
                descending=("n",),
            ),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"files": [U(1, ("a", 2), ("b", 1))], "more": [U(1, ("b", 1), ("c", 9))]})
    assert pair.plain_version().groups("histogram") == {2: [2], 9: [1]}
    assert list(pair.plain_version().groups("top")) == [(9, "c"), (2, "a"), (2, "b")]
    pair.advance({"more": [D(1)]})
    assert pair.plain_version().update("histogram") == [A(1, 1), V(2, 1), X(9)]
    assert pair.plain_version().update("top") == [X((9, "c")), X((2, "b")), A((1, "b"), 1)]
    assert {call.key for call in pair.graph.calls} == {"b"}


def test_small_sums_without_updates_are_recomputed(store: ObjectStore, settings: Settings) -> None:
    """Sums without updates, which other nodes cannot read, equal the oracle's after every version.

    They are declared with `is_followed=False`. They have one or two feeders, and the same key as their feeders or
    another key.
    """
    two = ("v",), ("n", "m")
    row = columns(v="string", n="int64", m="int64")
    graph = Graph(
        (
            RootNode("files", FILE, row),
            RootNode("more", FILE, row),
            SumNode("totals", ("files",), *two),
            SumNode("others", ("more",), *two),
            SumNode("histogram", ("totals",), ("n",), (), "values", is_followed=False),
            SumNode("ordered", ("totals",), ("n", "v"), ("m",), descending=("n",), is_followed=False),
            SumNode("both", ("totals", "others"), ("v",), ("m",), "parts", is_followed=False),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"files": [U(1, ("a", 2, 1), ("b", 1, 0)), U(2, ("c", 1, 7))], "more": [U(1, ("a", 3, 3))]})
    assert pair.plain_version().groups("histogram") == {1: [2], 2: [1]}
    assert list(pair.plain_version().groups("ordered").items()) == [((2, "a"), [1]), ((1, "c"), [7])], (
        "a total of 0 does not exist"
    )
    assert pair.plain_version().groups("both") == {"a": [(4, 2)], "b": [(0, 1)], "c": [(7, 1)]}
    pair.advance({"files": [U(2, ("c", 2, 0), ("b", -1, 5))]})
    assert list(pair.plain_version().groups("ordered").items()) == [((2, "a"), [1]), ((0, "b"), [5])]
    assert pair.plain_version().groups("both") == {"a": [(4, 2)], "b": [(5, 1)], "c": [(0, 1)]}
    pair.advance({"files": [D(1), D(2)]})
    assert pair.plain_version().groups("ordered") == {}
    assert pair.plain_version().groups("both") == {"a": [(3, 1)]}


def test_runs_of_sums_are_merged(store: ObjectStore) -> None:
    pair = Pair(store, counts(count="rows"), settings=SMALL)
    for version in range(12):
        edits = [
            D(key) if (key + version) % 4 == 0 else U(key, *((f"{(key * version) % 11:02}", key) for _ in range(2)))
            for key in range(version % 3, 12, 3)
        ]
        pair.advance({"files": edits})
        if version % 4 == 3:
            pair.compact(full=version % 8 == 7)
