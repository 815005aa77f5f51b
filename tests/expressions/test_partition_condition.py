"""Partition conditions are evaluated correctly when all or only some partition values are known."""

from __future__ import annotations

from datetime import date
from itertools import product
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from metastore_assets.errors import ColumnNotFoundError, LiteralError, PredicateError
from metastore_assets.expressions import sql_parser
from metastore_assets.expressions.partition_condition import PartitionCondition
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.sql_parser import parse_sql

VALUES: dict[str, list[Any]] = {"n": [None, 9, 10], "d": [None, "2024-01-31", "2024-02-01"], "t": [None, "a", "B%"]}
TYPES = {"n": pa.int64(), "d": pa.date32(), "t": pa.string()}
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
    """Return a condition as SQL."""
    if node[0] == "not":
        return f"not ({text_of(node[1])})"
    if node[0] in ("and", "or"):
        return f" {node[0]} ".join(f"({text_of(child)})" for child in node[1])
    if node[0] == "null":
        return f"{node[1]} is null"
    return f"{node[1]} {node[0]} " + ("null" if node[2] is None else str(node[2]) if node[1] == "n" else f"'{node[2]}'")


def holds(node: Node, row: dict[str, Any]) -> bool | None:
    """Evaluate a condition by SQL's three-valued logic in plain Python."""
    if node[0] == "not":
        inner = holds(node[1], row)
        return None if inner is None else not inner
    if node[0] in ("and", "or"):
        result = [holds(child, row) for child in node[1]]
        decisive = node[0] == "or"
        return decisive if decisive in result else None if None in result else not decisive
    value = row[node[1]]
    if node[0] == "null":
        return value is None
    if value is None or node[2] is None:
        return None
    operand, other = value, node[2]
    return {
        "=": operand == other,
        "!=": operand != other,
        "<": operand < other,
        "<=": operand <= other,
        ">": operand > other,
        ">=": operand >= other,
    }[node[0]]


@given(NODES, st.sets(st.sampled_from(list(VALUES))), st.data())
def test_conditions_may_match_while_values_are_unknown(node: Node, hidden_names: set[str], data: st.DataObject) -> None:
    """If all values are known, the result is that of SQL.

    Otherwise, a condition may match if it is true for some values in place of the unknown ones.
    """
    condition = parse_sql(text_of(node))
    partition_condition = PartitionCondition(condition, "t", TYPES)
    row = {name: data.draw(st.sampled_from(values)) for name, values in VALUES.items()}
    texts = {name: None if value is None else str(value) for name, value in row.items()}
    assert partition_condition.may_match(texts) == (holds(node, row) is True)
    known_values = {name: text for name, text in texts.items() if name not in hidden_names}
    unknown = sorted(hidden_names)
    rows = [
        {**row, **dict(zip(unknown, values, strict=True))} for values in product(*(VALUES[name] for name in unknown))
    ]
    if any(holds(node, candidate) is True for candidate in rows):
        assert partition_condition.may_match(known_values)
    assert set(condition.column_names()) <= set(VALUES)


@pytest.mark.parametrize(
    ("text", "type_", "value", "is_match"),
    [
        ("c <= '6'", pa.int32(), "50", False),
        ("c < '10'", pa.int64(), "5", True),
        ("c = '05'", pa.int16(), "5", True),
        ("C = 5", pa.uint64(), "5", True),
        ("c > 1.5", pa.int8(), "2", True),
        ("c = '0.1'", pa.float32(), "0.1", False),
        ("c > 0.1 and c < 0.10000001", pa.float32(), "0.1", True),
        ("c = 0.1", pa.float64(), "0.1", True),
        ("c is nan and c > 1e300", pa.float64(), "nan", True),
        ("c = 0", pa.float64(), "0.0", True),
        ("c = 1.5", pa.decimal128(5, 2), "1.50", True),
        ("c > '9'", pa.string(), "10", False),
        ("c = date '2024-01-31'", pa.string(), "2024-01-31", True),
        ("c < date '2024-02-01'", pa.date32(), "2024-01-31", True),
        ("c >= timestamp '2024-01-01 00:00:00'", pa.timestamp("us"), "2024-01-01 00:00:00", True),
        ("c < '2024-01-01T01:00:00+01:00'", pa.timestamp("us", "UTC"), "2024-01-01 00:00:00Z", False),
        ("c = '2024-01-01T00:00:00.000000001'", pa.timestamp("us"), "2024-01-01 00:00:00", False),
        ("c = time '01:00'", pa.time64("us"), "01:00:00", True),
        ("c", pa.bool_(), "true", True),
        ("not c", pa.bool_(), None, False),
        ("c = x'00ff'", pa.binary(), "00ff", True),
        ("c = '5f3a1c1e-0000-0000-0000-000000000001'", pa.uuid(), "5f3a1c1e-0000-0000-0000-000000000001", True),
        ("c like 'a%\\_'", pa.string(), "abc_", True),
        ("c not like 'a%'", pa.string(), "abc", False),
        ("c not like 'a%'", pa.string(), None, False),
        ("c in ('a', null)", pa.string(), "b", False),
        ("not (c in ('a', null))", pa.string(), "b", False),
        ("c is not distinct from null", pa.string(), None, True),
        ("c != 'a'", pa.string(), None, False),
        ("c = '__HIVE_DEFAULT_PARTITION__'", pa.string(), "__HIVE_DEFAULT_PARTITION__", True),
        ("c = ''", pa.string(), "", True),
        ("c = 5 and " + " and ".join(f"c{number} = 1" for number in range(60)), pa.int32(), "5", True),
    ],
)
def test_a_value_compares_by_the_rules_of_its_type(
    text: str, type_: pa.DataType, value: str | None, is_match: bool
) -> None:
    types = {"c": type_} | {f"c{number}": pa.int32() for number in range(60)}
    assert PartitionCondition(parse_sql(text), "t", types).may_match({"c": value}) is is_match


@pytest.mark.parametrize(
    ("text", "type_", "error", "message"),
    [
        ("c < 10", pa.string(), LiteralError, r"\b10\b.*'c'.*'t'"),
        ("c < 'ten'", pa.int64(), LiteralError, r"'ten'.*'c'.*'t'"),
        ("c = 'tomorrow'", pa.date32(), LiteralError, r"^'tomorrow'.*'c'.*'t'"),
        ("c = date 'tomorrow'", pa.string(), LiteralError, r"^date 'tomorrow'.*'c'.*'t'"),
        ("c = x'00'", pa.string(), LiteralError, r"^b'\\x00'.*'c'.*'t'"),
        ("d = 1", pa.int64(), ColumnNotFoundError, r"'t'.*'d'"),
    ],
)
def test_literals_of_another_type_are_refused(
    text: str, type_: pa.DataType, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PartitionCondition(parse_sql(text), "t", {"c": type_, "other": pa.string()})


def test_names_match_without_case_if_the_match_is_unique() -> None:
    """A name in a condition may differ in case from a column if it fits only one column.

    A column with exactly this name takes precedence.
    """
    partition_filter = PartitionFilter.of("Day = 'a'")
    assert partition_filter.unknown_columns(["day"]) == []
    assert partition_filter.unknown_columns(["day", "DAY"]) == ["Day"]
    assert PartitionFilter.of("DAY = 'a'").unknown_columns(["day", "DAY"]) == []
    types = {"day": pa.string(), "DAY": pa.string()}
    bound_filter = PartitionFilter.of("DAY = 'a'").bind("t", types)
    assert bound_filter.may_match([("day", "b"), ("DAY", "a")])
    assert not bound_filter.may_match([("day", "a"), ("DAY", "b")])
    patterns = PartitionFilter.of({"Day": ("a*",)}).bind("t", {"day": pa.string()})
    assert [patterns.may_match([("day", value)]) for value in ("ab", "b", None)] == [True, False, False]


def _day(text: str, day: str) -> bool:
    """Return whether a condition is true of a day.

    Asserts that the result is the same for a date and for its text.
    """
    result = {
        PartitionCondition(parse_sql(text), "t", {"day": type_}).may_match({"day": day})
        for type_ in (pa.date32(), pa.string())
    }
    assert len(result) == 1
    return result.pop()


def test_today_is_a_literal() -> None:
    with patch.object(sql_parser, "today", lambda: date(2024, 3, 1)):
        for text in ("day = current_date - 1", "day = current_date - interval '1' day", "day = current_date() - 1"):
            assert _day(text, "2024-02-29"), text
        assert _day("current_date + 1 > day", "2024-03-01")
        assert not _day("current_date > day", "2024-03-01")
        for sum_ in ("- 1.5", "- interval '1' month", "* 2", "- '²'", "- interval '²' day"):
            with pytest.raises(PredicateError, match=r"CURRENT_DATE [-*] "):
                parse_sql(f"day = current_date {sum_}")
        for days in ("99999999", "9" * 5000):
            with pytest.raises(PredicateError, match="CURRENT_DATE - 99999999"):
                parse_sql(f"day > current_date - {days}")
