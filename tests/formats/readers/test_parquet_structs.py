"""Parquet files that Arrow refuses are read, or refused with the name of the column.

The files have structs without fields, or lists or integers as DuckDB writes them.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile
from metastore_assets.errors import ProfileError
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.pipeline.profiling import FailureAdvice


def _with_empty_struct(path: Path, *, is_required: bool) -> None:
    """Write a file with the columns `e`, a struct without fields, and `b`.

    If `is_required`, the schema does not permit null structs. No library writes such a struct.
    """
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"b": pa.array([1, 2, None])}), path, store_schema=False)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    root = b"\x35\x00\x18\x06schema\x15\x02\x00"
    assert footer[3:].startswith(b"\x2c" + root)
    struct = bytes([0x35, 0 if is_required else 2, 0x18, 1]) + b"e\x15\x00\x00"
    footer = footer[:3] + b"\x3c" + root[:-2] + b"\x04\x00" + struct + footer[4 + len(root) :]
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_a_required_struct_has_no_nulls(tmp_path: Path) -> None:
    """A required struct without fields has the null count 0, although the file stores nothing about it."""
    _with_empty_struct(tmp_path / "lake" / "a.parquet", is_required=True)
    null_counts = {row.column: row.null_count for row in profile(tmp_path / "lake").statistics()}
    assert null_counts == {"e": 0, "b": 1}


def test_an_optional_struct_is_refused(tmp_path: Path) -> None:
    """An optional struct without fields is an error.

    The file does not store which values are null.
    """
    _with_empty_struct(tmp_path / "lake" / "a.parquet", is_required=False)
    with pytest.raises(ProfileError, match=r"a\.parquet\b.*'e'") as error_info:
        profile(tmp_path / "lake")
    assert str(error_info.value).endswith(FailureAdvice.UNSUPPORTED)


@pytest.mark.parametrize("type_", ["int", "float", "utinyint"])
def test_nulls_of_duckdb_among_arrays_of_fixed_size_are_read(tmp_path: Path, type_: str) -> None:
    """DuckDB stores a null among arrays of fixed size as several values, which Arrow refuses.

    The reader turns each group of these values into one null, in every row group of the file.
    """
    path = tmp_path / "x.parquet"
    array = f"[i % 7, null, i % 3]::{type_}[3]"
    with duckdb.connect() as connection:
        rows = f"select i, case when i % 5 > 0 or i < 3000 then {array} end a from range(9000) t(i)"
        connection.execute(f"copy ({rows}) to '{path}' (row_group_size 2048)")
        expected = [value for (value,) in connection.execute(f"select a from ({rows})").fetchall()]
    assert pq.read_metadata(path).num_row_groups > 2
    with pytest.raises(pa.ArrowInvalid, match="list offsets"):
        pq.read_table(path)
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    chunks = list(columns.read(1))
    assert {chunk.type for chunk in chunks} == {columns.fields[1].type}
    assert [None if value is None else tuple(value) for chunk in chunks for value in chunk.to_pylist()] == expected
    assert [value for chunk in columns.read(0) for value in chunk.to_pylist()] == list(range(9000))
    null_counts = {row.column: row.null_count for row in profile(path).statistics()}
    assert null_counts == {"i": 0, "a": 1200, "a.element": 7800}


@pytest.mark.parametrize("value", ["['x', 'y']::text[2]", "{'b': [1, 2]::int[2]}"])
def test_other_nulls_of_duckdb_are_refused(tmp_path: Path, value: str) -> None:
    """Null arrays of texts, and null arrays in structs, are an error that says how to write the column."""
    null = "{'b': null::int[2]}" if "b" in value else "null"
    duckdb.sql(f"copy (select {value} a union all select {null}) to '{tmp_path}/x.parquet'")
    with pytest.raises(ProfileError, match=r"'a'.*`x::float\[\]`"):
        profile(tmp_path)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", "case when i % 2 = 0 then 2147483647 - i else i - 2147483648 end"),
        ("uinteger", "4294967295 - i"),
        ("int[]", "[2147483647 - i, -2147483648, null]"),
    ],
)
def test_long_differences_of_duckdb_are_read(tmp_path: Path, type_: str, value: str) -> None:
    """Delta-encoded 32-bit integers are read, even if a difference takes more than 32 bits.

    DuckDB writes such files, and Arrow refuses them.
    """
    path = tmp_path / "x.parquet"
    with duckdb.connect() as connection:
        rows = f"select case when i % 7 > 0 or i < 3000 then ({value})::{type_} end a, i from range(9000) t(i)"
        options = "parquet_version v2, row_group_size 2048, dictionary_size_limit 1"
        connection.execute(f"copy ({rows}) to '{path}' ({options})")
        expected = connection.execute(f"select a, i from ({rows})").fetchall()
    assert "DELTA_BINARY_PACKED" in pq.read_metadata(path).row_group(1).column(0).encodings
    with pytest.raises(OSError, match="EOF"):
        pq.read_table(path)
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    chunks = list(columns.read(0))
    assert {chunk.type for chunk in chunks} == {columns.fields[0].type}
    actual = [value for chunk in chunks for value in chunk.to_pylist()]
    assert actual == [value for value, _ in expected]
    assert profile(path).statistics()[0].null_count == actual.count(None)


def test_long_differences_in_structs_are_refused(tmp_path: Path) -> None:
    """A struct is refused if DuckDB stored its 32-bit integers as differences of more than 32 bits.

    The error says how to write the file.
    """
    rows = "select {'b': (4294967295 - i)::uinteger} a from range(3000) t(i)"
    duckdb.sql(f"copy ({rows}) to '{tmp_path}/x.parquet' (parquet_version v2, dictionary_size_limit 1)")
    with pytest.raises(ProfileError, match=r"'a'.*`parquet_version v1`"):
        profile(tmp_path)
