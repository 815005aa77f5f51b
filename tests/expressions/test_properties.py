"""Predicates select the rows of SQL's three-valued logic, and bounds never contradict them.

A fragment is a data file together with the deletes that apply to it.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.elimination import eliminating_statistics
from metastore_assets.expressions.predicates import referenced_columns
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds
from metastore_assets.expressions.row_filter import matching_rows
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.types import TypeClass, class_named
from tests.expressions.random_predicates import holds, plain, predicates, rows_of, schema, sql, table_of

COLUMNS = schema_columns(schema())
RELAXED = settings(suppress_health_check=list(HealthCheck), deadline=None)


def check_rows(node: tuple[Any, ...], rows: list[dict[str, Any]]) -> None:
    predicate = parse_predicate(sql(node), "t", COLUMNS)
    result = matching_rows(predicate, table_of(rows)).tolist()
    assert result == [holds(node, row) is True for row in plain(rows)], sql(node)
    # The negation is true where the predicate is false, and null where it is null.
    negated_predicate = parse_predicate(f"not ({sql(node)})", "t", COLUMNS)
    assert matching_rows(negated_predicate, table_of(rows)).tolist() == [
        holds(node, row) is False for row in plain(rows)
    ]


def check_bounds(node: tuple[Any, ...], sets: list[list[dict[str, Any]]], blur: st.DataObject) -> None:
    predicate = parse_predicate(sql(node), "t", COLUMNS)
    counts = np.array([len(rows) for rows in sets], np.int64)
    columns = {
        column.field_id: bounds_of(column.path, column.cls, sets, counts, blur)
        for column in referenced_columns(predicate)
    }
    result = predicate.bound_rows(counts, columns)
    true = [sum(holds(node, row) is True for row in plain(rows)) for rows in sets]
    assert (result.least <= true).all(), (sql(node), result, true)
    assert (result.most >= true).all(), (sql(node), result, true)
    assert (result.most <= counts).all()
    assert len(eliminating_statistics(predicate, columns, counts, {})) == len(sets)


def bounds_of(
    path: str, cls: TypeClass | None, sets: list[list[dict[str, Any]]], counts: Any, blur: st.DataObject
) -> ColumnBounds:
    """Return the bounds of a column in each fragment, some weakened at random.

    A weakened count is a range from 0 to all rows. A weakened minimum or maximum is unknown.

    Args:
        path: The column; `outer.inner` for a field of a struct.
        cls: The type class of the values; None for a column without minimum and maximum.
        sets: The rows of each fragment.
        counts: The number of rows of each fragment.
        blur: Decides what is weakened.
    """
    outer, _, inner = path.partition(".")
    nulls, nans, lows, highs = [], [], [], []
    for rows in sets:
        column_values = [row[outer] for row in plain(rows)]
        column_values = [None if value is None else value[inner] for value in column_values] if inner else column_values
        values = [
            value
            for value in column_values
            if value is not None and not (isinstance(value, float) and math.isnan(value))
        ]
        nulls.append(sum(value is None for value in column_values))
        nans.append(len(column_values) - len(values) - nulls[-1])
        is_exact = blur.draw(st.booleans()) or blur.draw(st.booleans())
        sorted_values = sorted(values, key=_key) if cls is not None else []
        lows.append(sorted_values[0] if sorted_values and is_exact else None)
        highs.append(sorted_values[-1] if sorted_values and (is_exact or blur.draw(st.booleans())) else None)
    arrow = pa.null() if cls is None else class_named(cls.name).arrow
    return ColumnBounds(
        counts,
        _counts(nulls, counts, blur),
        _counts(nans, np.where([False] * len(sets), 0, counts - np.array(nulls, np.int64)), blur)
        if cls is not None and cls.kind == "float"
        else RowBounds(np.zeros(len(sets), np.int64), np.zeros(len(sets), np.int64)),
        _array(lows, arrow),
        _array(highs, arrow),
    )


def _counts(exact: list[int], most: Any, blur: st.DataObject) -> RowBounds:
    is_exact = np.array([blur.draw(st.booleans()) or blur.draw(st.booleans()) for _ in exact], np.bool_)
    numbers = np.array(exact, np.int64)
    return RowBounds(np.where(is_exact, numbers, 0), np.where(is_exact, numbers, most))


def _key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else getattr(value, "bytes", value)


def _array(values: list[Any], arrow: pa.DataType) -> pa.Array:
    if arrow == pa.uuid():
        storage = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
        return pa.ExtensionArray.from_storage(arrow, storage)
    return pa.array(values, arrow)


@RELAXED
@given(predicates(), rows_of())
def test_rows_are_those_of_three_valued_logic(node: tuple[Any, ...], rows: list[dict[str, Any]]) -> None:
    check_rows(node, rows)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(RELAXED, max_examples=6000)
@given(predicates(), rows_of())
def test_rows_are_those_of_three_valued_logic_at_length(node: tuple[Any, ...], rows: list[dict[str, Any]]) -> None:
    check_rows(node, rows)


@RELAXED
@given(predicates(), st.lists(rows_of(most=4), min_size=1, max_size=3), st.data())
def test_bounds_never_contradict_the_rows(
    node: tuple[Any, ...], sets: list[list[dict[str, Any]]], blur: st.DataObject
) -> None:
    check_bounds(node, sets, blur)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(RELAXED, max_examples=6000)
@given(predicates(), st.lists(rows_of(most=4), min_size=1, max_size=3), st.data())
def test_bounds_never_contradict_the_rows_at_length(
    node: tuple[Any, ...], sets: list[list[dict[str, Any]]], blur: st.DataObject
) -> None:
    check_bounds(node, sets, blur)


@RELAXED
@given(predicates())
def test_predicates_survive_pickling(node: tuple[Any, ...]) -> None:
    predicate = parse_predicate(sql(node), "t", COLUMNS)
    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_values_beyond_the_range_of_python_survive_pickling() -> None:
    fields = pa.schema([("fine", pa.timestamp("ns")), ("far", pa.timestamp("us", "UTC")), ("late", pa.date32())])
    columns = schema_columns(fields)
    where = "fine = '2024-01-01T00:00:00.123456789' and far < '+200000-01-01T00:00:00Z' and late > '+12024-01-01'"
    predicate = parse_predicate(where, "t", columns)
    again = pickle.loads(pickle.dumps(predicate))
    assert again == predicate
    assert again.to_sql() == predicate.to_sql()
    assert ".123456789" in again.to_sql()
    assert "200000-01-01" in again.to_sql()


@RELAXED
@given(predicates())
def test_the_text_of_a_predicate_parses_to_the_same_predicate(node: tuple[Any, ...]) -> None:
    predicate = parse_predicate(sql(node), "t", COLUMNS)
    assert parse_predicate(predicate.to_sql(), "t", COLUMNS) == predicate
