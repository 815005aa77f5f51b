"""Assertions that compare published statistics with DuckDB's results over the live rows.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa

from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Table


def assert_statistics(lookup: Table, live: pa.Table, step: str, partition_column: str | None = "p") -> None:
    """Compare the statistics of the table and of each partition with those of the live rows.

    These are the counts of rows, nulls, NaN and distinct values, bounds, sums of integers, and the top values. Messages
    of failed assertions contain `step`. With a `partition_column` of None, only the statistics of the table are
    compared.
    """
    with duckdb.connect() as connection:
        connection.register("live", live)
        conditions: dict[str | None, str] = {None: "true"}
        if partition_column is not None:
            for entry in lookup.partitions():
                ((name, value),) = decode_partition_key(entry.key)
                assert name == partition_column
                text = "null" if value is None else "'" + value.replace("'", "''") + "'"
                conditions[entry.key] = f'"{name}" is not distinct from {text}'
            rest = " and ".join(f"not ({text})" for key, text in conditions.items() if key is not None) or "true"
            assert _one(connection, "count(*)", rest) == (0,), (step, "rows of partitions that are not told of")
        for key, text in conditions.items():
            rows = _one(connection, "count(*)", text)[0]
            assert lookup.count(partition=key).value == rows, (step, key)
            statistics = {row.column: row for row in lookup.statistics(partition=key)}
            assert sorted(statistics) == sorted(live.column_names), (step, key)
            for field in live.schema:
                _compare(connection, lookup, statistics[field.name], field, key, text, (step, key, field.name))


def _compare(
    connection: duckdb.DuckDBPyConnection,
    lookup: Table,
    row: Any,
    field: pa.Field,
    key: str | None,
    where: str,
    location: tuple[Any, ...],
) -> None:
    """Compare the statistics and the top values of a column with the answers of DuckDB."""
    column = '"' + field.name.replace('"', '""') + '"'
    is_float = pa.types.is_floating(field.type)
    number = f"case when isnan({column}) then null else {column} end" if is_float else column
    count, values, distinct, least, greatest, nans = _one(
        connection,
        f"count(*), count({column}), count(distinct {column}), min({number}), max({number}), "
        + (f"count(*) filter (isnan({column}))" if is_float else "null"),
        where,
    )
    assert (row.value_count, row.null_count) == (values, count - values), location
    assert (row.distinct_count, row.distinct_count_guarantee) == (distinct, "exact"), location
    assert (row.nan_count or 0) == (nans or 0), location
    assert [bound and bound.as_py() for bound in (row.minimum, row.maximum)] == [least, greatest], location
    if pa.types.is_integer(field.type) and values:
        assert int(row.sum) == _one(connection, f"sum({column}::hugeint)", where)[0], location
    counts = dict(
        connection.execute(
            f"select {column}, count(*) from live where {where} and {column} is not null group by all"
        ).fetchall()
    )
    counts = {_key(value): number for value, number in counts.items()}
    top = [(_key(value.as_py()), number) for value, number in lookup.top(field.name, 3, partition=key)]
    assert [number for _, number in top] == sorted(counts.values(), reverse=True)[:3], location
    assert all(counts[value] == number for value, number in top), location


def _one(connection: duckdb.DuckDBPyConnection, what: str, where: str) -> tuple[Any, ...]:
    row_of_values = connection.execute(f"select {what} from live where {where}").fetchone()
    assert row_of_values is not None
    return row_of_values


def _key(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value
