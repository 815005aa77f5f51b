"""Assertions that compare answers about a table and partitions with DuckDB's over the live rows.

A version is the published statistics of a table at one snapshot.

The value counts of a column are its distinct values with the frequency of each. A policy says which statistics and
values of a column are stored. Compaction writes the value counts of a version to Parquet files, one by frequency and
one by value.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import NotStoredError
from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Table
from metastore_assets.statistics.column import ColumnStatistics

_ORACLE = duckdb.connect(config={"threads": 1})
_ORACLE.execute("SET TimeZone = 'UTC'")
_LONG = 4096
"""The length in characters from which stored bounds of texts may be truncated."""


@dataclass
class LiveColumn:
    """A column or a nested field, with an SQL query for its values in the rows."""

    path: str
    type: pa.DataType
    query: str
    """A query for the values of the column, under the name `x`."""
    condition: str
    connection: duckdb.DuckDBPyConnection
    counts: Counter[Any] = field(init=False)
    """Frequencies by value, with `"nan"` instead of NaN. Empty for containers."""
    values: int = field(init=False)
    nulls: int = field(init=False)

    def __post_init__(self) -> None:
        if pa.types.is_nested(self.type):
            self.counts = Counter()
            (actual,) = self.connection.execute(f"SELECT count(x), count(*) - count(x) FROM ({self.query})").fetchall()
            self.values, self.nulls = actual
            return
        rows = self.connection.execute(f"SELECT x, count(*) FROM ({self.query}) GROUP BY x").fetchall()
        self.counts = Counter({nan_as_text(value): count for value, count in rows if value is not None})
        self.values = self.counts.total()
        self.nulls = sum(count for value, count in rows if value is None)

    def of(self, condition: str) -> LiveColumn:
        """Return the same column for the rows that match a condition."""
        return LiveColumn(
            self.path, self.type, self.query.replace(self.condition, condition), condition, self.connection
        )

    @property
    def finite(self) -> list[Any]:
        """Return the distinct values except NaN, ascending."""
        return sorted(value for value in self.counts if value != "nan")


def nan_as_text(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@contextmanager
def columns_of(live: pa.Table) -> Iterator[list[LiveColumn]]:
    """Yield for the block a list of all columns of the rows, nested ones included, depth first."""
    with _ORACLE.cursor() as connection:
        connection.register("live", live)

        def walk(path: str, type_: pa.DataType, query: str) -> Iterator[LiveColumn]:
            """Yield a column and the columns inside it, each with a query for its values."""
            yield LiveColumn(path, type_, query, "(true)", connection)
            below: list[tuple[str, pa.DataType, str]] = []
            if pa.types.is_struct(type_):
                below = [(part.name, part.type, f'x."{part.name}"') for part in type_]
            elif pa.types.is_map(type_):
                parts = (("key", type_.key_type, "map_keys"), ("value", type_.item_type, "map_values"))
                below = [(name, part, f"unnest({function}(x))") for name, part, function in parts]
            elif pa.types.is_list(type_):
                below = [("element", type_.value_type, "unnest(x)")]
            for name, part, expression in below:
                yield from walk(f"{path}.{name}", part, f"SELECT {expression} AS x FROM ({query})")

        yield [
            column
            for part in live.schema
            for column in walk(part.name, part.type, f'SELECT "{part.name}" AS x FROM live WHERE (true)')
        ]


def assert_answers(lookup: Table, live: pa.Table, config: MetastoreConfig, draw: random.Random) -> None:
    """Compare answers for the table and some partitions, and compacted value counts, with live rows.

    Args:
        lookup: The newest version.
        live: The rows of its snapshot.
        config: A configuration with only this table.
        draw: A generator, which chooses the partitions, and the columns whose ranks are compared.
    """
    assert lookup.count().value == len(live)
    rows = {row.column: row for row in lookup.statistics()}
    with columns_of(live) as columns:
        assert sorted(column.path for column in columns) == sorted(rows)
        for column in columns:
            assert_column(lookup, rows[column.path], column, config.tables[0], None)
        by_path = {column.path: column for column in columns}
        enumerated_rows = [row for row in rows.values() if row.frequencies == "enumerated" and row.value_count]
        for row in draw.sample(enumerated_rows, min(3, len(enumerated_rows))):
            assert_ordered(lookup, row, by_path[row.column], draw)
        entries = lookup.partitions()
        assert sum(entry.row_count for entry in entries) == len(live)
        for entry in draw.sample(entries, min(2, len(entries))):
            part = {row.column: row for row in lookup.statistics(partition=entry.key)}
            for column in columns:
                assert_column(
                    lookup, part[column.path], column.of(_of_partition(entry.key)), config.tables[0], entry.key
                )
        if lookup.frequencies_file is not None:
            assert_compacted_files(lookup, by_path, rows.values())


def _of_partition(key: str) -> str:
    ((name, value),) = decode_partition_key(key)
    text = "NULL" if value is None else "'" + value.replace("'", "''") + "'"
    return f'("{name}" IS NOT DISTINCT FROM {text})'


def assert_changes(before: Table, was: pa.Table, after: Table, live: pa.Table) -> None:
    """Compare the changes of values between two versions, and both row counts, with the rows.

    `was` has the rows of the version `before`, and `live` those of the version `after`. Columns whose changes the
    Metastore does not know are left out.
    """
    first, last = _counts(was), _counts(live)
    names = {row.field_id: row.column for row in before.statistics()}
    changes = after.changes(before.version.number).columns
    for row, lookup in zip(after.statistics(), changes, strict=True):
        if lookup.changes is None:
            continue
        old, new = first.get(names.get(row.field_id, ""), Counter()), last[row.column]
        expected_changes = {value: (old.get(value), new.get(value)) for value in old | new if old[value] != new[value]}
        actual = {nan_as_text(row.value.as_py()): (row.before, row.after) for row in lookup.changes}
        assert (actual, len(actual)) == (expected_changes, len(lookup.changes)), row.column
    assert after.diff(before.version.number).row_count == (len(was), len(live))


def _counts(live: pa.Table) -> dict[str, Counter[Any]]:
    with columns_of(live) as columns:
        return {column.path: column.counts for column in columns}


def assert_column(
    lookup: Table, row: ColumnStatistics, column: LiveColumn, table: TableConfig, partition: str | None
) -> None:
    """Compare a column's statistics, values with frequencies, histogram, and user-defined statistics.

    If `partition` is None, the statistics of the whole table are compared, otherwise those of the partition with this
    key. `column` has the values of the column in the same partition or table.
    """
    location, policy = (partition, column.path), table.effective_policy(column.path)
    assert (row.value_count, row.null_count) == (column.values, column.nulls), location
    if pa.types.is_nested(column.type):
        assert row.frequencies == "absent", location
        return
    if policy.values == "hidden":
        assert row.distinct_count is not None
        assert abs(row.distinct_count - len(column.counts)) <= 4, location
        assert (row.minimum, row.maximum, row.sum, row.frequencies, row.user_defined) == (*[None] * 3, "absent", {})
        with pytest.raises(NotStoredError, match="hidden"):
            lookup.dyadic_histogram(column.path, partition=partition)
        return
    assert (row.nan_count or 0) == column.counts["nan"], location
    assert_bounds(row, column, location)
    expected_kinds = {"off": {"off"}, "auto": {"enumerated", "estimated"}, "repeated": {"enumerated", "repeated"}}
    expected = {"repeated"} if policy.is_fingerprinted else expected_kinds.get(policy.frequencies, {"enumerated"})
    if policy.frequencies == "auto" and policy.enumerating_key:
        expected = {"enumerated"}
    assert row.frequencies in expected, location
    if row.frequencies == "enumerated" or (row.frequencies == "repeated" and partition is None):
        assert_value_counts(lookup, row, column, policy.min_frequency, policy.max_values, partition)
    elif row.frequencies == "estimated":
        assert lookup.version.decisions[row.field_id].frequencies == "estimated", location
        with pytest.raises(NotStoredError):
            lookup.top(column.path, 1, partition=partition)
    assert_bins(lookup, row, column, policy.histogram, partition)
    assert_custom_statistics(row, column, location)


def assert_bounds(row: ColumnStatistics, column: LiveColumn, location: Any) -> None:
    """Compare minimum, maximum, sum and lengths of a column with those of its values.

    Long texts may be truncated.
    """
    values, counts = column.finite, column.counts
    least, greatest = (values[0], values[-1]) if values else (None, None)
    if isinstance(greatest, str) and max(map(len, values)) > _LONG // 2:
        assert row.minimum is not None, location
        assert row.maximum is not None, location
        assert row.minimum.as_py() <= least, location
        assert row.maximum.as_py() >= greatest, location
        assert least.startswith(row.minimum.as_py()[:1000]), location
    else:
        assert [None if part is None else part.as_py() for part in (row.minimum, row.maximum)] == [least, greatest], (
            location
        )
        assert not values or (row.minimum_exact, row.maximum_exact) == (True, True), location
    if isinstance(greatest, bool):
        assert row.true_count == counts[True], location
    elif isinstance(greatest, int | Decimal):
        assert row.sum is not None
        assert Fraction(row.sum) == sum(Fraction(value) * counts[value] for value in values), location
    elif isinstance(greatest, float):
        assert row.sum is not None
        total = math.fsum(value for value in values for _ in range(counts[value]))
        assert float(row.sum) == pytest.approx(total, rel=1e-12, abs=1e-12), location
    elif isinstance(greatest, str | bytes):
        lengths = [len(value) for value in values]
        assert (row.minimum_length, row.maximum_length) == (min(lengths), max(lengths)), location
        assert row.total_length == sum(len(value) * counts[value] for value in values), location


def assert_value_counts(
    lookup: Table, row: ColumnStatistics, column: LiveColumn, least: int, most: int | None, partition: str | None
) -> None:
    """Compare stored value counts, and the statistics from them, with the counts of the rows.

    The statistics are the numbers of distinct, duplicate and single values, and the entropy. Values with a frequency
    below `least` are not stored, and at most `most` values are (None: no limit).
    """
    location = (partition, column.path)
    expected = {value: count for value, count in column.counts.items() if count >= least}
    value_counts = [
        (nan_as_text(part.as_py()), count) for part, count in lookup.top(row.column, 10**6, partition=partition)
    ]
    assert [count for _, count in value_counts] == sorted(expected.values(), reverse=True)[:most], location
    assert all(expected[value] == count for value, count in value_counts), location
    assert len({value for value, _ in value_counts}) == len(value_counts), location
    duplicates = sum(count > 1 for count in column.counts.values())
    facts = (row.distinct_count, row.duplicate_count, row.distinct_count_guarantee)
    assert facts == (len(column.counts), duplicates, "exact"), location
    spread = lookup.spread(row.column, partition=partition)
    assert spread.singleton_count == sum(count == 1 for count in column.counts.values()), location
    entropy = -sum(count / column.values * math.log2(count / column.values) for count in column.counts.values())
    assert spread.entropy == pytest.approx(entropy, abs=1e-9), location


def assert_bins(
    lookup: Table, row: ColumnStatistics, column: LiveColumn, policy: str | int, partition: str | None
) -> None:
    """Assert that bins have the counts of their values, and do not exceed the histogram's capacity.

    Nothing is checked if the column's policy for histograms, `policy`, is `off`. The same holds for columns of
    booleans, texts or bytes, and for columns with only nulls and NaN.
    """
    values = column.finite
    if policy == "off" or not values or isinstance(values[0], bool | str | bytes):
        return
    bins = lookup.dyadic_histogram(row.column, partition=partition)
    location = (partition, column.path)
    assert bins is not None, location
    width = Fraction(2) ** bins.exponent
    expected: Counter[int] = Counter()
    for value in values:
        expected[math.floor(_physical(value) / width) - bins.first] += column.counts[value]
    assert {at: count for at, count in enumerate(bins.counts.tolist()) if count} == expected, location
    assert len(bins) <= bins.capacity <= 10_000, location


def _physical(value: Any) -> Fraction:
    """Return a value as the number by which histograms sort it into bins.

    Decimals are numbers of hundredths, timestamps of microseconds since 1970, and dates of days since 1970.
    """
    if isinstance(value, Decimal):
        return Fraction(value) * 100
    if isinstance(value, datetime):
        return Fraction((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**6
    return Fraction((value - date(1970, 1, 1)).days) if isinstance(value, date) else Fraction(value)


def assert_custom_statistics(row: ColumnStatistics, column: LiveColumn, location: Any) -> None:
    """Compare the shipped user-defined statistics with numbers that this module computes from the values."""
    texts = pa.types.is_string(column.type)
    for name, part in row.user_defined.items():
        result = part.value.as_py()
        if name == "common_prefix" and texts:
            expected: Any = _common(column.finite)
            assert result == expected, (location, name)
        elif name == "string_patterns" and texts:
            patterns = {"empty": "", "word": r"[^\W\d_]+", "e-mail": r"[^@\s]+@[^@\s]+\.[^@\s]+", "url": r"https://\S+"}
            shares = {part["pattern"]: part["share"] for part in result or ()}
            for pattern, expression in patterns.items():
                fits = sum(n for value, n in column.counts.items() if re.fullmatch(expression, value))
                assert shares.get(pattern, 0) == pytest.approx(fits / max(1, column.values)), (location, name, pattern)
        elif name == "benford_distance":
            assert result == pytest.approx(_benford(column.counts)), (location, name)
        elif name == "share_outside_fences" and part.guarantee != "absent":
            assert result == pytest.approx(_outside(column)), (location, name)


def _common(texts: list[str]) -> str | None:
    if not texts:
        return None
    return next(
        text for at in range(len(texts[0]), -1, -1) if all(each.startswith(text := texts[0][:at]) for each in texts)
    )


def _benford(counts: Counter[Any]) -> float | None:
    """Return the mean distance of the shares of first digits from Benford's law; None without a digit."""
    digits: Counter[int] = Counter()
    for value, count in counts.items():
        if value != "nan" and value:
            digits[int(f"{abs(Decimal(value)):e}"[0])] += count
    if not digits:
        return None
    return sum(abs(digits[d] / digits.total() - math.log10(1 + 1 / d)) for d in range(1, 10)) / 9


def _outside(column: LiveColumn) -> float | None:
    """Return the share of values beyond 1.5 interquartile ranges from the quartiles."""
    values = [Fraction(value) for value in column.finite for _ in range(column.counts[value])]
    if not values:
        return None
    low, high = (values[max(0, math.ceil(len(values) * share) - 1)] for share in (Fraction(1, 4), Fraction(3, 4)))
    fence = (high - low) * Fraction(3, 2)
    return sum(not low - fence <= value <= high + fence for value in values) / len(values)


def assert_ordered(lookup: Table, row: ColumnStatistics, column: LiveColumn, draw: random.Random) -> None:
    """Compare quantiles, and a value's rank, frequency and partitions, with DuckDB's over the rows."""
    number = "CASE WHEN isnan(x) THEN NULL ELSE x END" if row.type == "double" else "x"
    fractions = [0.0, draw.choice([0.25, 0.5, 0.9]), 1.0]
    rows = f"FROM (SELECT {number} AS x FROM ({column.query}))"
    ((quantiles,),) = column.connection.execute(f"SELECT quantile_disc(x, {fractions}) {rows}").fetchall()
    if quantiles is None:
        return
    actual = lookup.quantile(row.column, fractions)
    assert [one.value.as_py() for one in actual] == quantiles, row.column
    assert {one.guarantee for one in actual} == {"exact"}, row.column
    value = quantiles[1]
    ((before, value_count),) = column.connection.execute(
        f"SELECT count(*) FILTER (x < $1), count(*) FILTER (x = $1) {rows}", [value]
    ).fetchall()
    rank = lookup.rank(row.column, value)
    assert (rank.value, rank.guarantee) == (before, "exact"), row.column
    assert lookup.frequency(row.column, value).value == value_count == column.counts[value], row.column
    assert lookup.frequency_between(row.column, quantiles[0], value).value == before + value_count, row.column
    conditions = {entry.key: _of_partition(entry.key) for entry in lookup.partitions()}
    expected = {key: column.of(condition).counts[value] for key, condition in conditions.items()}
    assert dict(lookup.locate(row.column, value)) == {key: n for key, n in expected.items() if n}, row.column


def assert_compacted_files(lookup: Table, columns: dict[str, LiveColumn], rows: Iterable[ColumnStatistics]) -> None:
    """Compare the rows in the files of compacted value counts with DuckDB's counts."""
    listed_rows = {row.column: row for row in rows if row.frequencies in ("enumerated", "repeated")}
    frequencies, ranks = (
        None if path is None else pq.read_table(f"{lookup.metastore_folder}/{path}")
        for path in (lookup.frequencies_file, lookup.ranks_file)
    )
    assert frequencies is not None
    assert set(frequencies["column"].unique().to_pylist()) <= listed_rows.keys()
    for name, row in listed_rows.items():
        least = 2 if row.frequencies == "repeated" else 1
        counts = {_comparable(value): count for value, count in columns[name].counts.items()}
        expected = sorted((-count, value) for value, count in counts.items() if count >= least)
        part = frequencies.filter(pc.equal(frequencies["column"], name))
        actual = zip(_values(part, row), part["frequency"].to_pylist(), strict=True)
        assert [(-count, value) for value, count in actual] == expected, name
        part = None if ranks is None else ranks.filter(pc.equal(ranks["column"], name))
        if part is not None and part.num_rows:
            sorted_counts, before = sorted(counts.items()), 0
            for (value, count), *rank_columns in zip(
                sorted_counts, _values(part, row), part["frequency"].to_pylist(), part["rank"].to_pylist(), strict=True
            ):
                assert rank_columns == [value, count, before], name
                before += count


def _values(rows: pa.Table, row: ColumnStatistics) -> list[Any]:
    if not rows.num_rows:
        return []
    value = rows["value"].combine_chunks()
    return [_comparable(nan_as_text(part)) for part in value.field(row.type_class).to_pylist()]


def _comparable(value: Any) -> Any:
    """Return a sort key with which NaN is equal to itself and greater than all other values."""
    return (True, 0.0) if isinstance(value, str) and value == "nan" else (False, value)
