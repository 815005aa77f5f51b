"""Predicates parsed from Arrow expressions on float columns select the rows that Arrow selects.

This holds also for 32-bit floats and 64-bit literals.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given

from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.row_filter import matching_rows
from metastore_assets.values.columns import schema_columns

VALUES = [0.0, 1.0, -1.5, 0.1, 88.001144, 9.007199e15, 2.0**53 + 2, 1e-45, 3.4e38, math.inf, -math.inf, math.nan]
OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
TYPES = {"single": (pa.float32(), np.float32), "double": (pa.float64(), np.float64)}


def array(values: list[float | None], name: str) -> pa.Array:
    type_, kind = TYPES[name]
    return pa.array([None if value is None else kind(value) for value in values], type_)


@st.composite
def leaves(draw: st.DrawFn) -> pc.Expression:
    field = pc.field(draw(st.sampled_from(list(TYPES))))
    width = draw(st.sampled_from(list(TYPES)))
    kind = draw(st.sampled_from(["compare", "in", "null", "nan"]))
    if kind == "compare":
        literal = array([draw(st.sampled_from(VALUES))], width)[0]
        return draw(st.sampled_from(OPERATORS))(field, pc.scalar(literal))
    if kind == "in":
        values = draw(st.lists(st.sampled_from([*VALUES, None]), max_size=4))
        return pc.is_in(field, options=pc.SetLookupOptions(array(values, width), skip_nulls=draw(st.booleans())))
    return pc.is_nan(field) if kind == "nan" else field.is_null(nan_is_null=draw(st.booleans()))


EXPRESSIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(operator.invert),
        st.tuples(st.sampled_from([operator.and_, operator.or_]), inner, inner).map(
            lambda node: node[0](node[1], node[2])
        ),
    ),
    max_leaves=5,
)


def matching_numbers(table: pa.Table, expression: pc.Expression) -> list[int]:
    columns = schema_columns(table.schema)
    mask = matching_rows(parse_predicate(expression, "t", columns), table)
    return [number for number, is_match in enumerate(mask) if is_match]


@given(EXPRESSIONS, st.lists(st.tuples(*[st.sampled_from([*VALUES, None])] * 2), min_size=1, max_size=12))
def test_an_expression_selects_the_same_rows_as_arrow(
    expression: pc.Expression, rows: list[tuple[float | None, float | None]]
) -> None:
    columns = {name: array([row[at] for row in rows], name) for at, name in enumerate(TYPES)}
    table = pa.table({"at": pa.array(range(len(rows))), **columns})
    expected_numbers = ds.InMemoryDataset(table).scanner(filter=expression).to_table()["at"].to_pylist()
    assert matching_numbers(table, expression) == expected_numbers


@pytest.mark.parametrize("name", TYPES)
def test_positive_and_negative_zeros_are_equal(name: str) -> None:
    """Both `==` and `isin` select both zeros.

    Arrow's own `is_in` distinguishes them (apache/arrow#46183).
    """
    table = pa.table({name: array([0.0, -0.0, 1.0], name)})
    for zero in (0.0, -0.0):
        assert matching_numbers(table, pc.field(name) == zero) == [0, 1]
        assert matching_numbers(table, pc.field(name).isin(array([zero, 5.0], name))) == [0, 1]
        assert matching_numbers(table, ~pc.field(name).isin(array([zero, 5.0], name))) == [2]


def test_values_of_is_in_are_rounded_to_the_column_type_and_literals_are_not() -> None:
    """Comparisons of a 32-bit float column with 64-bit numbers select the rows that Arrow selects.

    Arrow casts values of `is_in` to the column's type, and a compared column to the literal's type.
    """
    table = pa.table({"at": [0, 1], "single": array([88.001144, 0.1], "single")})
    for expression in (
        pc.field("single").isin([88.001144]),
        ~pc.field("single").isin([88.001144]),
        pc.field("single") == 88.001144,
        pc.field("single") <= 88.001144,
        pc.field("single") == pc.scalar(array([88.001144], "single")[0]),
    ):
        expected_numbers = ds.InMemoryDataset(table).scanner(filter=expression).to_table()["at"].to_pylist()
        assert matching_numbers(table, expression) == expected_numbers, expression
    assert matching_numbers(table, pc.field("single").isin([88.001144])) == [0]
    assert matching_numbers(table, pc.field("single") == 88.001144) == []
