"""What a condition may come to while not all values are known, and once they are."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import product
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given

from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.expressions import sql
from metastore_assets.expressions.sql import parse_sql
from metastore_assets.expressions.texts import columns_named, may_hold

VALUES: dict[str, list[Any]] = {"n": [None, 9, 10], "d": [None, "2024-01-31", "2024-02-01"], "t": [None, "a", "B%"]}
Node = tuple[Any, ...]


def leaves() -> st.SearchStrategy[Node]:
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    return st.sampled_from(list(VALUES)).flatmap(
        lambda name: st.one_of(
            st.tuples(operators, st.just(name), st.sampled_from(VALUES[name])),
            st.tuples(st.just("null"), st.just(name)),
        )
    )


NODES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=5,
)


def text_of(node: Node) -> str:
    if node[0] == "not":
        return f"not ({text_of(node[1])})"
    if node[0] in ("and", "or"):
        return f" {node[0]} ".join(f"({text_of(own)})" for own in node[1])
    if node[0] == "null":
        return f"{node[1]} is null"
    return f"{node[1]} {node[0]} " + ("null" if node[2] is None else str(node[2]) if node[1] == "n" else f"'{node[2]}'")


def holds(node: Node, row: dict[str, Any]) -> bool | None:
    """SQL's logic in plain Python."""
    if node[0] == "not":
        inner = holds(node[1], row)
        return None if inner is None else not inner
    if node[0] in ("and", "or"):
        found = [holds(own, row) for own in node[1]]
        decisive = node[0] == "or"
        return decisive if decisive in found else None if None in found else not decisive
    value = row[node[1]]
    if node[0] == "null":
        return value is None
    if value is None or node[2] is None:
        return None
    own, other = value, node[2]
    return {
        "=": own == other,
        "!=": own != other,
        "<": own < other,
        "<=": own <= other,
        ">": own > other,
        ">=": own >= other,
    }[node[0]]


@given(NODES, st.sets(st.sampled_from(list(VALUES))), st.data())
def test_what_is_not_known_decides_nothing(node: Node, hidden: set[str], data: st.DataObject) -> None:
    """With all values known it is as SQL has it; else nothing is ruled out that may yet be."""
    condition = parse_sql(text_of(node))
    row = {name: data.draw(st.sampled_from(values)) for name, values in VALUES.items()}
    texts = {name: None if own is None else str(own) for name, own in row.items()}
    assert may_hold(condition, texts) == (holds(node, row) is True)
    known = {name: own for name, own in texts.items() if name not in hidden}
    unknown = sorted(hidden)
    rows = [{**row, **dict(zip(unknown, own, strict=True))} for own in product(*(VALUES[name] for name in unknown))]
    if any(holds(node, own) is True for own in rows):
        assert may_hold(condition, known)
    assert set(columns_named(condition)) <= set(VALUES)


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("hour >= 9", {"hour": "10"}, True),
        ("hour >= '9'", {"hour": "10"}, False),
        ("at > '2024-01-01'", {"at": "2024-01-01 00:00:00"}, False),
        ("at >= timestamp '2024-01-01 00:00:00'", {"at": "2024-01-01"}, True),
        ("name like 'a%\\_'", {"name": "abc_"}, True),
        ("name not like 'a%'", {"name": "abc"}, False),
        ("flag and not other", {"flag": "true", "other": "false"}, True),
        ("x is nan", {"x": "NaN"}, True),
        ("x in ('a', null)", {"x": "b"}, False),
        ("not (x in ('a', null))", {"x": "b"}, False),
        ("a = 1 and " + " and ".join(f"c{own} = 1" for own in range(60)), {"a": "1"}, True),
    ],
)
def test_cases(text: str, values: dict[str, str], wanted: bool) -> None:
    assert may_hold(parse_sql(text), values) is wanted


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="'day' has the value 'x', which is no number to be compared with 3"):
        may_hold(parse_sql("day > 3"), {"day": "x"})
    with pytest.raises(PredicateError, match="cannot be compared with bytes"):
        may_hold(parse_sql("day = x'00'"), {"day": "x"})


def test_today_is_a_literal() -> None:
    with patch.object(sql, "today", lambda: date(2024, 3, 1)):
        for text in ("day = current_date - 1", "day = current_date - interval '1' day", "day = current_date() - 1"):
            assert may_hold(parse_sql(text), {"day": "2024-02-29"}), text
        assert may_hold(parse_sql("current_date + 1 > day"), {"day": str(date(2024, 3, 1) + timedelta(0))})
        for sum_ in ("- 1.5", "- interval '1' month", "* 2", "- '²'", "- interval '²' day"):
            with pytest.raises(PredicateError, match="cannot be asked"):
                parse_sql(f"day = current_date {sum_}")
        for days in ("99999999", "9" * 5000):
            with pytest.raises(PredicateError, match="beyond the years"):
                parse_sql(f"day > current_date - {days}")
