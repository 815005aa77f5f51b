"""INT96 timestamps: nanoseconds are not truncated, and values that no type can represent are refused."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile
from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.pipeline.profiling import FailureAdvice
from metastore_assets.storage.corrupt_input import UnsupportedError
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol

_SECOND = 1_700_000_000_000_000_000
_NANOS = [_SECOND + 1, _SECOND + 2, _SECOND + 3, -1, None, -(2**63) + 1_000_000_000]
_FAR = [-62_135_596_800_000_000, 253_402_300_799_999_999]
"""Microseconds of the years 1 and 9999."""


def _write(path: Path, array: pa.Array, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"a": array, "s": pa.StructArray.from_arrays([array], ["x"])})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **options)


def _values(path: Path) -> list[int | None]:
    """Return the values of the first column in nanoseconds.

    Also check that the structs in the second column have the same values.
    """
    columns = open_columns("parquet", pa.OSFile(str(path)))
    values_by_column = []
    for index in range(2):
        chunks = [chunk.field(0) if index else chunk for chunk in columns.read(index)]
        values_by_column.append([_nanos(value) for chunk in chunks for value in chunk])
    assert values_by_column[0] == values_by_column[1]
    return values_by_column[0]


def _nanos(value: pa.TimestampScalar) -> int | None:
    return None if not value.is_valid else value.value * (1 if value.type.unit == "ns" else 1000)


def test_nanoseconds_are_not_truncated(tmp_path: Path) -> None:
    """Values with nanoseconds are read exactly, beside row groups whose values have none."""
    micros = [1000, -2000, _SECOND] * 50_000
    _write(tmp_path / "a.parquet", pa.array(_NANOS + micros, pa.timestamp("ns")), row_group_size=120_000)
    assert _values(tmp_path / "a.parquet") == _NANOS + micros


def test_the_error_names_the_type_to_declare(tmp_path: Path) -> None:
    """In a column of microseconds, an INT96 value with nanoseconds is an error that names `schema`.

    If the setting `schema` declares nanoseconds, all values are read.
    """
    lake = tmp_path / "lake"
    _write(lake / "a.parquet", pa.array(_NANOS[:3], pa.timestamp("ns")))
    with pytest.raises(ProfileError, match=r"000000001.*timestamp\[us\].*`schema`"):
        profile(lake)
    declared_schema = {"a": "timestamp[ns]", "s.x": "timestamp[ns]"}
    table = open_table_format(TableConfig.model_validate({"name": "t", "uri": str(lake), "schema": declared_schema}))
    snapshot = table.snapshot()
    assert snapshot.schema.field("a").type == pa.timestamp("ns")
    with snapshot.fragments[0].source.open() as reader:
        (chunk,) = reader.read(snapshot.schema.field("a"))
    assert chunk.view(pa.int64()).to_pylist() == _NANOS[:3]


def test_a_delta_table_limits_the_precision(tmp_path: Path) -> None:
    """In a Delta table, nanoseconds of INT96 values are rounded down to the declared microseconds."""
    add = add_file(tmp_path, pa.table({"a": pa.array([1], pa.timestamp("us"))}), "f.parquet")
    for values in ([_SECOND + 1, _SECOND + 2, -1, None], [_SECOND + 1, None, -1]):
        _write(tmp_path / "f.parquet", pa.array(values, pa.timestamp("ns")))
        add["add"]["size"] = (tmp_path / "f.parquet").stat().st_size
        add["add"]["stats"] = None
        commit(tmp_path, protocol("timestampNtz"), metadata([field("a", "timestamp_ntz")]), add)
        snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
        with snapshot.fragments[0].source.open() as reader:
            (chunk,) = reader.read(snapshot.schema.field("a"))
        assert chunk.cast(pa.int64()).to_pylist() == [None if value is None else value // 1000 for value in values]


def _int96(values: list[tuple[int, int]]) -> bytes:
    """Return a Parquet file of INT96 timestamps, given as (days since 1970, nanoseconds of the day).

    Arrow cannot write far years in nanoseconds. So Arrow writes other values, which are then replaced in the bytes.
    """
    sink = io.BytesIO()
    array = pa.array(range(len(values)), pa.timestamp("ns"))
    pq.write_table(
        pa.table({"a": array}), sink, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False
    )
    data = sink.getvalue()
    for number, (day, nanos) in enumerate(values):
        old = number.to_bytes(8, "little") + (2_440_588).to_bytes(4, "little")
        assert data.count(old) >= 1
        data = data.replace(old, nanos.to_bytes(8, "little") + (2_440_588 + day).to_bytes(4, "little"), 1)
    return data


def _read(data: bytes) -> list[int | None]:
    columns = open_columns("parquet", pa.BufferReader(data))
    return [_nanos(value) for chunk in columns.read(0) for value in chunk]


def test_nanoseconds_beside_far_years() -> None:
    """Values of near years are read in nanoseconds, and those of far years in microseconds.

    If neither unit can represent a value, it is refused.
    """
    near, far = (19_000, 1), (2_932_896, 86_399_999_999_000)
    values = [near, far, far, near, (-719_162, 0)]
    day = 86_400_000_000_000
    assert _read(_int96(values)) == [days * day + nanos for days, nanos in values]
    with pytest.raises(UnsupportedError):
        _read(_int96([near, (2_932_896, 1)]))


def test_years_beyond_64_bits_are_refused() -> None:
    """The error for a timestamp beyond 64 bits names its year and the greatest supported year."""
    with pytest.raises(UnsupportedError, match=r"\b296,\d{3}\b.*\b294,246\b"):
        _read(_int96([(0, 0), (107_500_000, 0)]))
    assert _read(_int96([(0, 0), (3_000_000, 0)])) == [0, 3_000_000 * 86_400_000_000_000]


def test_a_real_file_of_spark(realtables: Path) -> None:
    """A timestamp that overflowed to a negative year is refused, and the error names this year.

    It is in a real file that Spark wrote.
    """
    with pytest.raises(ProfileError, match=r"'a'.*year -29") as error_info:
        profile(realtables / "listing" / "parquet_int96_from_spark")
    assert str(error_info.value).endswith(FailureAdvice.UNSUPPORTED)
