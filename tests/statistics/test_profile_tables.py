"""Statistics, frequencies and histograms survive a round trip, and other engines read their files.

A type class is a group of Arrow types whose values are converted to one type, such as int8 and int64. States are the
forms of statistics that can be merged. The value counts of a column are its distinct values with the frequency of each.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.profile_tables import (
    build_frequencies_table,
    build_histograms_table,
    build_statistics_table,
    parse_frequencies,
    parse_histograms,
    parse_statistics_rows,
    union_type,
)
from metastore_assets.values.types import class_named
from tests.statistics.oracle import plain
from tests.statistics.random_columns import KINDS, merge_statistics, profile, profile_one, rows, share

EVERYTHING: dict[str, list[Any]] = {
    "boolean": [True, None, False],
    "int8": [1, -3, None],
    "uint64": [2**64 - 1, 0],
    "float64": [1.5, math.nan, -0.0, 5e-324],
    "decimal128_short": [10, -20, None],
    "decimal128_scaled": [0],
    "string": ["", "\U0001f600", None],
    "binary_view": [b"\xff\x00", b""],
    "uuid": [b"0123456789abcdef", None],
    "date32": [-719162, 2932896],
    "time64_ns": [86_399_999_999_999],
    "timestamp_ms": [2**50],
    "timestamp_us": [-(2**62)],
    "timestamp_ns": [1],
    "timestamptz_ms": [0],
    "timestamptz_us": [1_700_000_000_000_000],
    "timestamptz_ns": [None],
}


def all_rows() -> list[ColumnStatistics]:
    """Return statistics of columns of every type class, of containers and of unprofiled columns.

    Some of them are merged, so that they have estimates.
    """
    result = []
    for name, values in EVERYTHING.items():
        one = profile_one(KINDS[name].array(values)).statistics
        result += [one, merge_statistics([one, profile_one(KINDS[name].array(values + values)).statistics])]
    nested_profiles = profile(pa.array([{"a": [1, 2]}, None]))
    result += [each.statistics for each in nested_profiles]
    result += [profile_one(pa.array([1, None], pa.duration("s"))).statistics, profile_one(pa.nulls(2)).statistics]
    result.append(profile_one(pa.array(["x" * 5000, b"\xff" * 5000][:1])).statistics)
    return [replace(row, position=at, column=f"c{at}") for at, row in enumerate(result)]


def read_back(rows: list[ColumnStatistics]) -> list[ColumnStatistics]:
    """Return the rows as they are read back from the file `statistics`, which does not store states."""
    return [replace(row, moments=None, quantile_sketch=None, distinct_sketch=None) for row in rows]


def through_parquet(table: pa.Table, folder: Path) -> pa.Table:
    pq.write_table(table, folder / "t.parquet", compression="zstd")
    return pq.read_table(folder / "t.parquet")


def test_statistics_survive_a_round_trip(tmp_path: Path) -> None:
    rows = read_back(all_rows())
    table = build_statistics_table(rows)
    assert parse_statistics_rows(table) == rows
    assert parse_statistics_rows(through_parquet(table, tmp_path)) == rows
    assert parse_statistics_rows(build_statistics_table([])) == []
    assert parse_statistics_rows(through_parquet(build_statistics_table([]), tmp_path)) == []


def test_the_file_has_a_column_for_each_field() -> None:
    """The file `statistics` has a column for each field of ColumnStatistics that users see.

    States, the partition and results of users' statistics are not among these columns.
    `minimum` and `maximum` are unions of the type classes that occur.
    """
    table = build_statistics_table([profile_one(pa.array(v)).statistics for v in ([1], ["a"], [None])])
    states = {"moments", "quantile_sketch", "distinct_sketch", "user_states", "user_defined", "partition"}
    assert table.column_names == [field.name for field in fields(ColumnStatistics) if field.name not in states]
    union = pa.struct([("int64", pa.int64()), ("string", pa.large_string())])
    assert table.schema.field("minimum").type == union
    assert table["minimum"].to_pylist() == [
        {"int64": 1, "string": None},
        {"int64": None, "string": "a"},
        None,
    ]
    assert table.schema.field("percentiles").type == pa.list_(
        pa.struct([pa.field("fraction", pa.float64()), pa.field("value", union)])
    )


def test_statistics_of_containers_only(tmp_path: Path) -> None:
    """If all columns are containers, their statistics survive a round trip through Parquet.

    Containers have no bounds, so the union type of bounds would have no children, which Parquet cannot write.
    """
    rows = read_back([each.statistics for each in profile(pa.array([{"a": None}]))])
    assert parse_statistics_rows(through_parquet(build_statistics_table(rows), tmp_path)) == rows


def test_concatenated_and_sliced_tables_are_read() -> None:
    rows = read_back(all_rows())
    table = build_statistics_table(rows)
    assert parse_statistics_rows(pa.concat_tables([table.slice(0, 7), table.slice(7)])) == rows
    assert parse_statistics_rows(table.slice(3, 5)) == rows[3:8]


def test_other_engines_read_statistics(tmp_path: Path) -> None:
    """DuckDB and Polars read a Parquet file of statistics, including bounds of each type."""
    pq.write_table(build_statistics_table(all_rows()), tmp_path / "s.parquet")
    path = str(tmp_path / "s.parquet")
    query = "select min(minimum.date)::varchar, max(maximum.date)::varchar, max(maximum.uint64), max(maximum.uuid), \
        max(maximum.string), min(minimum.decimal_2), max(len(percentiles)), max(maximum.time) from read_parquet(?)"

    first, last, unsigned, uuid, text, decimal, length, _ = duckdb.execute(query, [path]).fetchall()[0]
    assert (first, last, unsigned) == ("0001-01-01", "9999-12-31", 2**64 - 1)
    assert (uuid.bytes, text[0], float(decimal), length) == (b"0123456789abcdef", "\U0001f600", -20.0, 9)
    frame = pl.read_parquet(path)
    assert frame["maximum"].struct.field("uint64").max() == 2**64 - 1
    assert frame["percentiles"].list.len().max() == 9


def test_wide_tables_survive_a_round_trip() -> None:
    base = [profile_one(KINDS[name].array(values)).statistics for name, values in EVERYTHING.items()]
    rows = read_back([replace(base[at % len(base)], position=at, column=f"c{at}") for at in range(5000)])
    assert parse_statistics_rows(build_statistics_table(rows)) == rows


@pytest.mark.parametrize("name", KINDS)
@share(20)
@given(data=st.data())
def test_frequencies_survive_a_round_trip(name: str, data: st.DataObject) -> None:
    """Value counts of each type survive a round trip through a table, in any order of its rows.

    The table is sorted by descending frequency, then by value.
    """
    kind = KINDS[name]
    frequencies = profile_one(kind.array(data.draw(rows(kind, 20))), ColumnPolicy(frequencies="all")).frequencies
    assert frequencies is not None
    union = union_type(class_named(each) for each in (kind.type_class, "int64", "string", "null"))
    table = build_frequencies_table("a.b", frequencies, union)
    assert table.schema == pa.schema([("column", pa.string()), ("value", union), ("frequency", pa.int64())])
    assert set(table["column"].to_pylist()) <= {"a.b"}
    counts = table["frequency"].to_pylist()
    assert counts == sorted(counts, reverse=True)
    values = table["value"].combine_chunks().field(kind.type_class)
    position = {at: where for where, at in enumerate(_positions(frequencies, values))}
    ties = [(counts[at], position[at]) for at in range(len(counts))]
    assert ties == sorted(ties, key=lambda tie: (-tie[0], tie[1]))
    shuffled_table = table.take(pa.array(data.draw(st.permutations(range(len(table)))), pa.int64()))
    assert parse_frequencies(shuffled_table) == (frequencies if len(frequencies) else EMPTY)


def _positions(frequencies: Frequencies, values: pa.Array) -> list[int]:
    """Return the position in `values` of each value of `frequencies`, in ascending order of the values."""
    rows = {plain(value): row for row, value in enumerate(values)}
    return [rows[plain(value)] for value in frequencies.values]


def test_frequencies_survive_a_round_trip_through_parquet(tmp_path: Path) -> None:
    """Value counts of every type class survive a round trip through Parquet.

    DuckDB reads the same number of values and the same sum of frequencies.
    """
    for name, values in EVERYTHING.items():
        frequencies = profile_one(KINDS[name].array(values + values[:1])).frequencies
        assert frequencies is not None
        union = union_type([frequencies.type_class, class_named("date"), class_named("uuid")])
        table = through_parquet(build_frequencies_table("c", frequencies, union), tmp_path)
        assert parse_frequencies(table) == (frequencies if len(frequencies) else EMPTY)
        query = 'select count(*), sum(frequency)::bigint from read_parquet(?) where "column" = ?'
        [result] = duckdb.execute(query, [str(tmp_path / "t.parquet"), "c"]).fetchall()
        assert result == (len(frequencies), sum(frequencies.counts.to_pylist()) or None)


def test_the_path_is_in_each_row_of_long_value_counts() -> None:
    """Each of more than a million rows of a frequencies table has the path of the column."""
    count = (1 << 20) + 5
    frequencies = Frequencies(pa.array(range(count)), pa.repeat(pa.scalar(1), count))
    table = build_frequencies_table("c", frequencies, union_type([frequencies.type_class]))
    assert len(table) == count
    assert table["column"].null_count == 0
    assert table["column"][count - 1].as_py() == "c"


def all_histograms() -> dict[str, Histogram]:
    result = {}
    for name, values in EVERYTHING.items():
        histogram = profile_one(KINDS[name].array(values)).histogram
        if histogram is not None:
            result[f"x.{name}"] = histogram
    return result


def test_histograms_survive_a_round_trip(tmp_path: Path) -> None:
    """Histograms of different lengths survive a round trip, and one column can be read alone."""
    histograms = all_histograms()
    assert len(histograms) >= 10
    table = build_histograms_table(histograms)
    assert table.num_rows == max(np.count_nonzero(histogram.counts) for histogram in histograms.values())
    assert parse_histograms(table) == histograms
    assert parse_histograms(through_parquet(table, tmp_path)) == histograms
    one = pq.read_table(tmp_path / "t.parquet", columns=["x.date32"])
    assert parse_histograms(one) == {"x.date32": histograms["x.date32"]}
    assert parse_histograms(through_parquet(build_histograms_table({}), tmp_path)) == {}


def test_other_engines_read_histograms(tmp_path: Path) -> None:
    """DuckDB reads a histogram as a column of structs of minimum and frequency.

    Empty bins have no rows.
    """
    histograms = all_histograms()
    pq.write_table(build_histograms_table(histograms), tmp_path / "h.parquet")
    query = 'select count(h), sum(h.frequency)::bigint, min(h.minimum)::varchar from \
        (select "x.date32" as h from read_parquet(?))'
    [result] = duckdb.execute(query, [str(tmp_path / "h.parquet")]).fetchall()
    assert result == (2, 2, "0005-04-03 (BC)"), "empty bins have no rows"


def test_a_histogram_without_metadata_is_corrupt() -> None:
    """A table of histograms without the metadata of the bins is corrupt, not empty."""
    table = pa.table({"c": pa.array([{"minimum": 1, "frequency": 1}])})
    with pytest.raises(CorruptionError, match="'c'"):
        parse_histograms(table)


def test_statistics_of_only_uuids_survive_a_round_trip(tmp_path: Path) -> None:
    """Statistics of a single column of UUIDs survive a round trip through Parquet.

    UUIDs are an extension type in Arrow.
    """
    result = read_back([profile_one(KINDS["uuid"].array([b"0123456789abcdef", None, b"fedcba9876543210"])).statistics])
    assert result[0].type == "uuid"
    assert parse_statistics_rows(through_parquet(build_statistics_table(result), tmp_path)) == result
