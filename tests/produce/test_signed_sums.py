"""Signed sums are balances that may cross zero, and disappear at zero.

They use the full range of their type, except the integer -2^63. A sum is a stage that adds up amounts by key.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError, UpdateError
from metastore_assets.produce import Dataflow, Root, Rows, Settings, SumStage
from metastore_assets.produce.run_schema import sum_schema
from metastore_assets.produce.sums import add_amounts
from metastore_assets.produce.typed_rows import frame_of
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import A, V, X
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, columns
from tests.produce.harness import SMALL, D, Pair, U

BOOKING, ENTRY = columns(booking="int64"), columns(account="string", amount="int64")
MOST = 2**63 - 1
RUNS = Settings(
    single_run_rows=0, fan_in=2, bulk_share=1e9, base_share=1e9, inline_budget=10**6, max_runs=6, small_rows=0
)
"""Settings with which every version adds a run, and runs of changes are merged without the base that they change."""


def balances(type_: Any = "int64", count: str | None = None) -> Graph:
    root = RootNode("bookings", BOOKING, columns(account="string", amount=type_))
    return Graph((root, SumNode("balances", ("bookings",), ("account",), ("amount",), count, signed=True)))


@pytest.fixture(params=[Settings(), SMALL, RUNS], ids=["default", "small", "runs"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.param


def test_balances_cross_zero(store: ObjectStore, settings: Settings) -> None:
    """A balance that crosses zero is an update of its key.

    A balance of zero removes the key.
    """
    pair = Pair(store, balances(), settings=settings)
    pair.advance({"bookings": [U(1, ("a", -5), ("b", 3)), U(2, ("c", -1), ("d", -2), ("d", 2))]})
    assert pair.plain_version().update("balances") == [A("a", -5), A("b", 3), A("c", -1)]
    pair.advance({"bookings": [U(3, ("a", 10), ("b", -4), ("c", 1), ("d", -7))]})
    assert pair.plain_version().update("balances") == [V("a", 5), V("b", -1), X("c"), A("d", -7)]
    assert pair.plain_version().before("balances") == [-5, 3, -1, None]
    pair.compact(full=True)
    pair.advance({"bookings": [D(2)]})
    assert pair.plain_version().update("balances") == [A("c", 1)], "what is left of it when the rest is taken away"
    pair.advance({"bookings": [D(1), D(3)]})
    assert pair.plain_version().content("balances") == []


def test_with_a_count_a_balance_of_zero_differs_from_none(store: ObjectStore, settings: Settings) -> None:
    pair = Pair(store, balances(count="bookings"), settings=settings)
    pair.advance({"bookings": [U(1, ("a", -5)), U(2, ("a", 5))]})
    assert pair.plain_version().update("balances") == [A("a", (0, 2))]
    pair.advance({"bookings": [U(2, ("a", 4))]})
    pair.advance({"bookings": [U(2, ("a", 5))]})
    assert pair.plain_version().update("balances") == [V("a", (0, 2))]
    pair.advance({"bookings": [D(1), D(2)]})
    assert pair.plain_version().update("balances") == [X("a")]


def test_a_key_stays_while_one_of_its_totals_is_not_zero(store: ObjectStore, settings: Settings) -> None:
    """A key with two totals stays while one of them is not zero, even if they add up to zero."""
    root = RootNode("bookings", BOOKING, columns(account="string", amount="int64", fee=pa.decimal128(9, 2)))
    total = SumNode("balances", ("bookings",), ("account",), ("amount", "fee"), signed=True)
    pair = Pair(store, Graph((root, total)), settings=settings)
    pair.advance({"bookings": [U(1, ("a", -5, Decimal(5))), U(2, ("b", 0, Decimal("-0.01")))]})
    assert pair.plain_version().update("balances") == [A("a", (-5, Decimal(5))), A("b", (0, Decimal("-0.01")))]
    pair.advance({"bookings": [U(3, ("a", 5, Decimal(-5)), ("b", 7, Decimal(0)))]})
    assert pair.plain_version().update("balances") == [X("a"), V("b", (7, Decimal("-0.01")))]


@pytest.mark.parametrize("type_", ["int64", pa.decimal128(38, 0), pa.decimal128(38, 4)], ids=str)
def test_totals_use_the_full_range_of_their_type(store: ObjectStore, type_: Any) -> None:
    """A total changes between the extremes of its type, and is exact after every change.

    Each change fits the type, but the sum of several changes, which are merged, does not.
    """
    with localcontext(prec=60):
        most = MOST if type_ == "int64" else Decimal(10**38 - 1).scaleb(-type_.scale)
        pair = Pair(store, balances(type_), settings=RUNS)
        zero = most - most
        for total in (-most, zero, most, zero, -most, 1 - most, zero, most):
            # The same runs are merged for the key beside it.
            pair.advance({"bookings": [U(1, ("a", total)), U(2, ("b", zero + 1))]})
            assert pair.plain_version().groups("balances", ["a"]) == ({"a": [total]} if total else {})
        pair.compact()
        pair.compact(full=True)
        pair.advance({"bookings": [D(1), D(2)]})
        assert pair.plain_version().update("balances") == [X("a"), X("b")]


def test_amounts_that_cannot_be_subtracted_again_are_refused(store: ObjectStore, settings: Settings) -> None:
    """A total or an amount of -2^63 is refused, and so is a change of a total from 1 - 2^63 to 2^63 - 1."""
    pair = Pair(store, balances(), settings=settings)
    pair.advance({"bookings": [U(1, ("a", -MOST))]})
    for edits in ([("update", 2, ("a", -1))], [("update", 2, ("b", -MOST - 1))], [("update", 1, ("a", MOST))]):
        with pytest.raises(UpdateError, match=r"'balances'.*amount: int64"):
            pair.flow.advance({"bookings": pair.table("bookings", edits)})
    assert pair.plain_version().number == 1
    pair.verify_state()
    pair.advance({"bookings": [D(1)]})
    pair.advance({"bookings": [U(1, ("a", MOST))]})


def test_unsigned_sum_below_zero_is_corruption(store: ObjectStore) -> None:
    root = Root("bookings", Rows(BOOKING, ENTRY))
    update = pa.table({"_change": ["add"], "booking": [1], "account": ["a"], "amount": [-1]})
    with pytest.raises(CorruptionError, match=r"'balances'.*'a'.*amount = -1.*signed=True"):
        Dataflow(store, [root, SumStage("balances", ("bookings",), ("account",), ("amount",))]).advance(
            {"bookings": update}
        )


def test_a_negative_count_is_corruption() -> None:
    rows = Rows(columns(account="string"), columns(amount="int64", bookings="int64"))
    run_schema = sum_schema(rows, unsigned=("bookings",))
    previous = pa.table({"account": ["a"], "amount": [5], "bookings": [1]})
    changes = pa.table({"account": ["a"], "amount": [-9], "bookings": [-2]})
    with pytest.raises(CorruptionError, match=r"'s'.*'a'.*amount = -4, bookings = -1"):
        add_amounts("s", run_schema, frame_of(changes), frame_of(previous))


def test_stages_after_balances_get_old_and_new_rows(store: ObjectStore, settings: Settings) -> None:
    """Stages and sums that balances feed are correct for any sign.

    An unsigned sum refuses a negative balance.
    """
    by_sign = StageNode(
        "by_sign",
        (("balances",),),
        columns(sign="int64"),
        columns(account="string", amount="int64"),
        lambda account, totals: (((total > 0) - (total < 0), (account, total)) for total in totals),
    )
    graph = Graph(
        (
            *balances().nodes,
            by_sign,
            SumNode("whole", ("by_sign",), ("sign",), ("amount",), "accounts", signed=True),
            SumNode("equal", ("balances",), ("amount",), (), "accounts"),
        )
    )
    pair = Pair(store, graph, settings=settings)
    pair.advance({"bookings": [U(1, ("a", -5), ("b", -5), ("c", 3))]})
    assert pair.plain_version().groups("whole") == {-1: [(-10, 2)], 1: [(3, 1)]}
    assert pair.plain_version().groups("equal") == {-5: [2], 3: [1]}
    pair.advance({"bookings": [U(2, ("a", 8), ("b", 5))]})
    assert pair.plain_version().groups("whole") == {1: [(6, 2)]}
    assert pair.plain_version().update("equal") == [X(-5), V(3, 2)]
    pair.flow.rebuild("balances")
    pair.number += 1
    pair.verify_state()
    unsigned = SumStage("unsigned", ("balances",), ("account",), ("amount",))
    flow = Dataflow(store, [*graph.declaration(), unsigned], settings=settings)
    flow.advance({})
    with pytest.raises(CorruptionError, match=r"'unsigned'.*'a'.*signed=True"):
        flow.advance({"bookings": pair.table("bookings", [("delete", 2, None)])})


def test_a_nonnegative_balance_may_be_redeclared_as_unsigned(store: ObjectStore) -> None:
    signed = SumStage("balances", ("bookings",), ("account",), ("amount",), signed=True)
    root = Root("bookings", Rows(BOOKING, ENTRY))
    below, above = (
        pa.table({"_change": ["update"], "booking": [1], "account": ["a"], "amount": [amount]}) for amount in (-1, 1)
    )
    Dataflow(store, [root, signed]).advance({"bookings": below})
    flow = Dataflow(store, [root, replace(signed, signed=False)])
    with pytest.raises(CorruptionError, match="'balances'"):
        flow.rebuild("balances")
    Dataflow(store, [root, signed]).advance({"bookings": above})
    flow.rebuild("balances")
    assert flow.version().groups("balances").to_pylist() == [{"account": "a", "amount": 1}]
