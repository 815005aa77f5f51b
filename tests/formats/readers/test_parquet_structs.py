"""Parquet files with structs without fields, and with nulls among arrays of fixed size."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile
from metastore_assets.errors import ProfileError
from metastore_assets.pipeline.profiling import FailureAdvice


def _with_empty_struct(path: Path, *, required: bool) -> None:
    """Write the columns `e`, a struct without fields, and `b`. No library writes such a struct."""
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"b": pa.array([1, 2, None])}), path, store_schema=False)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    root = b"\x35\x00\x18\x06schema\x15\x02\x00"
    assert footer[3:].startswith(b"\x2c" + root)
    struct = bytes([0x35, 0 if required else 2, 0x18, 1]) + b"e\x15\x00\x00"
    footer = footer[:3] + b"\x3c" + root[:-2] + b"\x04\x00" + struct + footer[4 + len(root) :]
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_a_required_struct_has_no_nulls(tmp_path: Path) -> None:
    """Its values can be counted without being stored."""
    _with_empty_struct(tmp_path / "lake" / "a.parquet", required=True)
    null_counts = {row.column: row.null_count for row in profile(tmp_path / "lake").statistics()}
    assert null_counts == {"e": 0, "b": 1}


def test_an_optional_struct_is_refused(tmp_path: Path) -> None:
    """Parquet does not store which of them are null."""
    _with_empty_struct(tmp_path / "lake" / "a.parquet", required=False)
    with pytest.raises(ProfileError, match=r"a\.parquet\b.*'e'") as caught:
        profile(tmp_path / "lake")
    assert str(caught.value).endswith(FailureAdvice.UNSUPPORTED)


def test_nulls_of_duckdb_among_arrays_of_fixed_size_are_refused(tmp_path: Path) -> None:
    """The error says how to write the column. Without nulls, the arrays are lists."""
    for name, value in (("arrays", "[3, 4]::int[2]"), ("nulls", "null")):
        (tmp_path / name).mkdir()
        duckdb.sql(f"copy (select [1, 2]::int[2] a union all select {value}) to '{tmp_path / name}/x.parquet'")
    null_counts = {row.column: row.null_count for row in profile(tmp_path / "arrays").statistics()}
    assert null_counts == {"a": 0, "a.element": 0}
    with pytest.raises(ProfileError, match=r"'a'.*`x::float\[\]`"):
        profile(tmp_path / "nulls")
