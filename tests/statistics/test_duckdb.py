"""Profiles of parts, merged, have the statistics that DuckDB computes over all rows.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from metastore_assets.config import ColumnPolicy
from metastore_assets.statistics.column import ColumnStatistics, format_sum
from metastore_assets.statistics.finalize import apply_summary
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies, summarize_frequencies
from metastore_assets.statistics.histogram import merge_histograms
from metastore_assets.statistics.profile import ColumnProfile, profile_field
from tests.statistics.oracle import FRACTIONS
from tests.statistics.random_columns import merge_statistics

ROWS = 6_000
COLUMNS = {
    "flag": "case when h % 11 = 0 then null else h % 3 = 0 end",
    "tiny": "((h % 200)::int - 100)::tinyint",
    "key": "i // 4",
    "wide": "(h % 9223372036854775807)::bigint - 4611686018427387904",
    "unsigned": "h",
    "huge": "((h % 1000000007)::hugeint * 100000000000000000000 + (h % 10)::hugeint)::decimal(38, 0)",
    "price": "case when h % 7 = 0 then null else ((h % 1049495)::decimal(18, 2) / 100)::decimal(15, 2) end",
    "rate": "((h % 11)::decimal(15, 2) / 100)::decimal(15, 2)",
    "small_float": "(h % 1000 / 8.0)::float",
    "measure": "case when h % 13 = 0 then null else sqrt((h % 100003)::double) - 100 end",
    "skewed": "exp(((h % 1000)::double / 100) - 4)",
    "mode": "case h % 7 when 0 then 'AIR' when 1 then 'TRUCK' when 2 then '' when 3 then null else 'MAIL é' end",
    "text": "'row ' || (h % 4001)::varchar || repeat('ß', (h % 50)::int)",
    "blob": "encode('b' || (h % 77)::varchar)",
    "day": "(date '0001-01-01' + (h % 3652059)::int)",
    "clock": "(time '00:00:00' + to_microseconds((h % 86400000000)::bigint))",
    "moment": "make_timestamp((h % 4102444800000000)::bigint)",
    "zoned": "make_timestamptz((h % 4102444800000000)::bigint)",
    "id": "md5((h % 3000)::varchar)::uuid",
}
"""The SQL expression of each column, over `i` (the row number) and `h` (a hash of it)."""
NUMERIC = ("tiny", "key", "wide", "unsigned", "huge", "price", "rate", "small_float", "measure", "skewed")


@cache
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'; set threads = 1").fetchall()
    columns = ", ".join(f"{sql} as {name}" for name, sql in COLUMNS.items())
    connection.execute(
        f"create table t as select {columns} from (select range as i, hash(range) as h from range({ROWS}))"
    ).fetchall()
    return connection


def query_one_row(sql: str) -> tuple[Any, ...]:
    (row,) = connection().execute(sql).fetchall()
    return tuple(row)


@cache
def profiles(column: str) -> tuple[ColumnProfile, ...]:
    """Return the profiles of five parts of the column, which have unequal sizes."""
    table = connection().sql(f"select {column} from t").to_arrow_table()
    cuts = [0, 10, 1_000, 1_001, 4_500, ROWS]
    return tuple(
        profile_field(table.schema.field(0), table.column(0).slice(a, b - a).chunks, lambda _: ColumnPolicy())[0]
        for a, b in pairwise(cuts)
    )


@cache
def merged(column: str) -> tuple[ColumnStatistics, Frequencies]:
    rows = [each.statistics for each in profiles(column)]
    lists = [each.frequencies for each in profiles(column) if each.frequencies is not None]
    total = sum_frequencies((each, 1) for each in lists)
    grouped_statistics = merge_statistics([merge_statistics(rows[3:]), merge_statistics(rows[:3])])
    return apply_summary(grouped_statistics, summarize_frequencies(total)), total


def as_text(scalars: list[pa.Scalar | None], column: str) -> str:
    """Convert scalars to the text that DuckDB uses for values of the column's type."""
    type = query_one_row(f"select any_value(typeof({column})) from t")[0]
    non_null = [scalar for scalar in scalars if scalar is not None]
    assert len(non_null) == len(scalars)
    connection().register("ours", pa.table({"i": range(len(non_null)), "v": pa.array(non_null, non_null[0].type)}))
    return str(query_one_row(f"select list(v::{type} order by i)::varchar from ours")[0])


@pytest.mark.parametrize("column", COLUMNS)
def test_counts_bounds_and_percentiles_equal_those_of_duckdb(column: str) -> None:
    row, _ = merged(column)
    result = query_one_row(f"select count({column}), count(*) - count({column}), count(distinct {column}) from t")
    assert (row.value_count, row.null_count, row.distinct_count) == result
    repeats_query = f"select 1 from t where {column} is not null group by {column} having count(*) > 1"
    assert (row.duplicate_count,) == query_one_row(f"select count(*) from ({repeats_query})")
    bounds = query_one_row(f"select [min({column}), max({column})]::varchar from t")
    assert as_text([row.minimum, row.maximum], column) == bounds[0]
    quantiles = query_one_row(f"select quantile_disc({column}, {list(FRACTIONS)})::varchar from t")[0]
    assert row.percentiles is not None
    assert as_text([value for _, value in row.percentiles], column) == quantiles


@pytest.mark.parametrize("column", COLUMNS)
def test_frequencies(column: str) -> None:
    """Frequencies that are summed over the parts equal those of GROUP BY, and their values ascend."""
    _, total = merged(column)
    connection().register("listed", pa.table({"v": total.values, "n": total.counts}))
    counts_query = f"select {column} as v, count(*) as n from t where {column} is not null group by {column}"
    type = query_one_row(f"select any_value(typeof({column})) from t")[0]
    ours = f"select v::{type} as v, n from listed"
    assert query_one_row(f"select count(*) from (({counts_query}) except ({ours}))") == (0,)
    assert query_one_row(f"select count(*) from (({ours}) except ({counts_query}))") == (0,)
    assert query_one_row(f"select bool_and(v > before) from (select v, lag(v) over () as before from ({ours}))") == (
        True,
    )


@pytest.mark.parametrize("column", NUMERIC)
def test_moments(column: str) -> None:
    """Sum, mean, standard deviation, skewness and kurtosis equal DuckDB's, up to rounding errors.

    DuckDB's skewness is corrected for samples, so the test undoes this correction.
    """
    row, _ = merged(column)
    assert row.sum is not None
    if column in ("small_float", "measure", "skewed"):
        assert float(row.sum) == pytest.approx(query_one_row(f"select fsum({column}) from t")[0], rel=1e-12)
    elif column == "huge":
        parts = connection().execute(f"select {column} from t").fetchall()
        assert int(row.sum) == sum(int(value) for (value,) in parts)
    else:
        assert query_one_row(f"select sum({column})::varchar from t") == (format_sum(row.sum),)
    functions = ("count", "favg", "stddev_samp", "skewness", "kurtosis_pop")
    n, mean, deviation, skewness, kurtosis = query_one_row(
        f"select {', '.join(f'{each}({column})' for each in functions)} from t"
    )
    assert row.mean == pytest.approx(mean, rel=1e-12)
    assert row.standard_deviation == pytest.approx(deviation, rel=1e-9)
    assert row.skewness == pytest.approx(skewness * (n - 2) / math.sqrt(n * (n - 1)), rel=1e-6, abs=1e-6)
    assert row.kurtosis == pytest.approx(kurtosis, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("column", ["mode", "text", "blob"])
def test_lengths(column: str) -> None:
    """Lengths equal DuckDB's: in characters for text, and in bytes for binary values.

    The same holds for their total. `total_bytes` is in bytes for both.
    """
    row, _ = merged(column)
    length = f"octet_length({column})" if column == "blob" else f"length({column})"
    sizes = f"octet_length({column})" if column == "blob" else f"strlen({column})"
    result = query_one_row(
        f"select min({length}), max({length}), avg({length}), sum({length})::bigint, sum({sizes})::bigint from t"
    )
    lengths = (row.minimum_length, row.maximum_length, row.mean_length, row.total_length, row.total_bytes)
    assert lengths == pytest.approx(result, rel=1e-15)


def test_booleans() -> None:
    row, _ = merged("flag")
    assert (row.true_count,) == query_one_row("select count(*) from t where flag")
    statistics_without_summary = merge_statistics([each.statistics for each in profiles("flag")])
    assert (statistics_without_summary.distinct_count, statistics_without_summary.distinct_count_guarantee) == (
        2,
        "exact",
    )


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("flag", "mode", "text", "blob", "id")])
def test_histograms(column: str) -> None:
    """Each bin of the merged histogram counts the values between its edges."""
    histogram = merge_histograms([each.histogram for each in profiles(column) if each.histogram is not None])
    edges = histogram.edges()
    connection().register(
        "bins", pa.table({"low": edges[:-1], "high": edges[1:], "n": histogram.counts, "i": range(len(histogram))})
    )
    type = query_one_row(f"select any_value(typeof({column})) from t")[0]
    join_query = f"""select i, any_value(n) as n, count({column}) as found from bins left join t
        on {column} >= low::{type} and ({column} < high::{type} or i = {len(histogram) - 1}) group by i"""
    assert query_one_row(f"select count(*), count(*) filter (n = found) from ({join_query})") == (len(histogram),) * 2
