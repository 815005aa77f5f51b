"""A Produce function reads the values of each of its inputs, the ports, as from a list.

The joins of docs/explanation/produce.md are compared with DuckDB.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.produce import Dataflow, Port, Root, Rows, Settings, Stage, SumStage
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import columns
from tests.produce.harness import SMALL

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "produce.md"
SIDES = {
    "inner": "l JOIN r USING (k)",
    "left": "l LEFT JOIN r USING (k)",
    "full": "l FULL JOIN r USING (k)",
    "semi": "(FROM l SELECT *, NULL AS b, NULL AS rn WHERE k IN (FROM r SELECT k))",
    "anti": "(FROM l SELECT *, NULL AS b, NULL AS rn WHERE k NOT IN (FROM r SELECT k))",
}
"""Each kind of join on the page, in SQL."""


def names_of_the_page() -> dict[str, Any]:
    """Return what the examples in docs/explanation/produce.md define: functions, and the mapping `joins`."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    statements: list[ast.stmt] = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef):
            for argument in node.args.args:
                argument.annotation = None
            node.returns = None
            statements.append(node)
        elif isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["joins"]:
            statements.append(node)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(statements, []), str(PAGE), "exec"), names)
    return names


NAMES = names_of_the_page()


class Side:
    """The random rows of one of two tables to join, and updates that change them.

    The attribute `letter`, `a` or `b`, is also the name of the column with the values. A key has up to three rows.
    """

    def __init__(self, letter: str, random: Random) -> None:
        self.letter, self.random = letter, random
        self.rows: dict[int, list[str]] = {}

    def change(self, version: int) -> pa.Table:
        """Change `rows` at random, and return the update with these changes.

        New values contain the `version`.
        """
        update = []
        for key in sorted(self.random.sample(range(6), 4)):
            values = [f"{self.letter}{version}{n}" for n in range(self.random.choice((0, 1, 2, 2, 3)))]
            self.rows.pop(key, None)
            if values:
                self.rows[key] = values
            update += [("update", key, value) for value in values] or [("delete", key, None)]
        return pa.table({name: [row[n] for row in update] for n, name in enumerate(("_change", "k", self.letter))})

    def table(self) -> pa.Table:
        """Return all rows, each with its position among the rows of its key."""
        rows = [(key, value, n) for key, values in self.rows.items() for n, value in enumerate(values)]
        types = {"k": pa.int64(), self.letter: pa.string(), f"{self.letter}n": pa.int64()}
        arrays = [pa.array([row[n] for row in rows], type_) for n, type_ in enumerate(types.values())]
        return pa.table(arrays, list(types))


def test_every_join_of_the_page_is_tested() -> None:
    assert NAMES["joins"].keys() == SIDES.keys()


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_joins_of_the_page_equal_duckdbs(store: ObjectStore, settings: Settings) -> None:
    """After every version, each kind of join has DuckDB's rows, in the order of left and right rows.

    The joins are examples in docs/explanation/produce.md.
    """
    key, both = columns(k="int64"), columns(a="string", b="string")
    roots = [Root("a", Rows(key, columns(a="string"))), Root("b", Rows(key, columns(b="string")))]
    stages = [Stage(name, (("a",), ("b",)), Rows(key, both), produce=NAMES["joins"][name]) for name in SIDES]
    flow = Dataflow(store, [*roots, *stages], settings=replace(settings, check=True))
    left, right = Side("a", Random(1)), Side("b", Random(2))
    most = 0
    for version in range(3):
        flow.advance({"a": left.change(version), "b": right.change(version)})
        with duckdb.connect() as database:
            database.register("l", left.table().rename_columns(["k", "a", "ln"]))
            database.register("r", right.table().rename_columns(["k", "b", "rn"]))
            for name, sides in SIDES.items():
                order = "ORDER BY k, ln NULLS FIRST, rn NULLS FIRST"
                expected = database.execute(f"SELECT k, a, b FROM {sides} {order}").fetchall()
                actual = flow.version().groups(name).to_pylist()
                assert [tuple(row.values()) for row in actual] == expected, name
        most = max([most, *(len(left.rows[k]) * len(right.rows[k]) for k in left.rows.keys() & right.rows.keys())])
    assert most >= 4, "some key has two values on each side"


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_the_sum_after_a_join_of_the_page_equals_duckdbs(store: ObjectStore, settings: Settings) -> None:
    """After every version, the balance of each account equals DuckDB's.

    The example in docs/explanation/produce.md sums after a join. Accounts have trades at changing prices. There are
    positive and negative balances, and balances of zero.
    """
    share, worth = columns(share="string"), Rows(columns(account="string"), columns(amount="int64"))
    trade = columns(account="string", share="string", pieces="int64")
    schema = columns(account="string", pieces="int64")
    nodes = [
        Root("trades", Rows(columns(number="int64"), trade)),
        Root("prices", Rows(share, columns(price="int64"))),
        Stage("by_share", (("trades",),), Rows(share, schema), produce=NAMES["by_share"]),
        Stage("worth", (("by_share",), ("prices",)), worth, produce=NAMES["worth"]),
        SumStage("balances", ("worth",), ("account",), ("amount",), count="trades", signed=True),
    ]
    flow, random = Dataflow(store, nodes, settings=settings), Random(4)
    trades: dict[int, tuple[str, str, int]] = {}
    prices: dict[str, list[int]] = {}
    signs = set()
    for _ in range(5):
        trade_numbers = random.sample(range(9), 4)
        mine = {n: (random.choice("AB"), random.choice("xyz"), random.randint(-2, 2)) for n in trade_numbers}
        changed_prices = {name: random.choices(range(3), k=2) for name in random.sample("xyz", 2)}
        trades |= mine
        prices |= changed_prices
        flow.advance({"trades": _trades(mine), "prices": _prices(changed_prices)})
        with duckdb.connect() as database:
            database.register("trades", _trades(trades))
            database.register("prices", _prices(prices))
            query = """
                SELECT account, sum(pieces * price)::BIGINT, count(*) FROM trades JOIN prices USING (share)
                GROUP BY account ORDER BY account
            """
            expected = database.execute(query).fetchall()
        actual = [tuple(row.values()) for row in flow.version().groups("balances").to_pylist()]
        assert actual == expected
        signs |= {(total > 0) - (total < 0) for _, total, _ in actual}
    assert signs == {-1, 0, 1}


def _trades(rows: dict[int, tuple[str, str, int]]) -> pa.Table:
    account, share, pieces = zip(*(rows[number] for number in sorted(rows)), strict=True)
    names = ["_change", "number", "account", "share", "pieces"]
    return pa.table([["update"] * len(rows), sorted(rows), account, share, pieces], names)


def _prices(rows: dict[str, list[int]]) -> pa.Table:
    pairs = [(share, price) for share in sorted(rows) for price in rows[share]]
    return pa.table([["update"] * len(pairs), *map(list, zip(*pairs, strict=True))], ["_change", "share", "price"])


def test_a_port_is_read_again_in_the_inner_loop(store: ObjectStore) -> None:
    """A function may join a port of 1,500 values with itself, get its length, and test it for emptiness."""

    def pairs(key: int, rows: Any) -> Iterator[Any]:
        assert len(rows) == len(rows) == len(list(rows))
        if rows:
            yield key, (len(rows), sum(one * other for one in rows for other in rows))

    key = columns(k="int64")
    rows = Rows(key, columns(n="int64", x="int64"))
    flow = Dataflow(store, [Root("r", Rows(key, columns(x="int64"))), Stage("s", (("r",),), rows, produce=pairs)])
    numbers = range(1_500)
    flow.advance({"r": pa.table({"_change": ["add"] * 1_500, "k": [7] * 1_500, "x": numbers})})
    assert flow.version().groups("s").to_pylist() == [{"k": 7, "n": 1_500, "x": sum(numbers) ** 2}]


@given(st.integers(0, 2_500), st.integers(0, 40), st.lists(st.integers(-3_000, 3_000), max_size=12), st.data())
def test_a_port_equals_the_list_of_its_values(count: int, before: int, indexes: list[int], data: st.DataObject) -> None:
    """A port over any part of a table equals the list of its values, also after `next` took some of them."""
    values = list(range(count))
    port = Port(pa.table({"x": pa.array([*range(-before, 0), *values, 99_999], pa.int64())}), before, before + count)
    for index in indexes:
        read_count = data.draw(st.integers(0, 1_200))
        assert [next(port, None) for _ in range(read_count)] == [
            values.pop(0) if values else None for _ in range(read_count)
        ]
        assert list(port) == values
        assert len(port) == len(values)
        assert bool(port) == bool(values)
        assert port[index : index + 3] == values[index : index + 3]
        if -len(values) <= index < len(values):
            assert port[index] == values[index]
        else:
            with pytest.raises(IndexError):
                port[index]
