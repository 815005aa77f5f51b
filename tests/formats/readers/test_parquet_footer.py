"""Parquet footers of Hive and Java: entries of maps, and intervals, with the logical type of a column of nulls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.parquet_footer import REFUSED, read_lenient_metadata
from tests.formats.oracle import read_columns
from tests.formats.readers.hive_groups import with_groups_of_hive

_TABLE = pa.table(
    {
        "before": pa.array([1, 2, 3]),
        "map": pa.array([[("a", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "nulls": pa.nulls(3),
        "nested": pa.array(
            [{"m": [(True, [1])]}, {"m": None}, None], pa.struct([("m", pa.map_(pa.bool_(), pa.list_(pa.int32())))])
        ),
        "after": pa.array(["x", None, "z"]),
    }
)


def _as_hive(path: Path) -> None:
    pq.write_table(_TABLE, path, row_group_size=2, store_schema=False)
    assert with_groups_of_hive(path) == 2


def test_maps_of_hive_are_read(tmp_path: Path) -> None:
    """Arrow refuses the file; with that logical type removed, all columns are read, including columns of nulls."""
    path = tmp_path / "x.parquet"
    _as_hive(path)
    with pytest.raises(OSError, match=REFUSED):
        pq.ParquetFile(path)
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    assert columns.row_count == 3
    assert [field.name for field in columns.fields] == _TABLE.column_names
    for index, name in enumerate(_TABLE.column_names):
        assert [value for chunk in columns.read(index) for value in chunk.to_pylist()] == _TABLE[name].to_pylist()


def test_intervals_of_java_are_read(tmp_path: Path) -> None:
    """Java's library gives them the logical type UNKNOWN, from which Arrow concludes that all values are null."""
    path = tmp_path / "x.parquet"
    values = [bytes(range(12)), None, bytes(12)]
    table = pa.table({"before": [1, 2, 3], "x": pa.array(values, pa.binary(12)), "nulls": pa.nulls(3)})
    pq.write_table(table, path, store_schema=False)
    _as_interval(path)
    assert pq.read_table(path)["x"].to_pylist() == [None] * 3
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    assert [field.type for field in columns.fields] == [pa.int64(), pa.binary(12), pa.null()]
    assert [value for chunk in columns.read(1) for value in chunk.to_pylist()] == values
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    assert read_columns(snapshot) == table.to_pydict()


def _as_interval(path: Path) -> None:
    """Give the column `x` the converted type INTERVAL and the logical type UNKNOWN."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    column = b"\x18\x01x"
    assert footer.count(column + b"\x00") == 1
    footer = footer.replace(column + b"\x00", column + b"\x25\x2a\x4c\xbc\x00\x00\x00")
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_a_valid_footer_is_not_changed(tmp_path: Path) -> None:
    """Nothing else is removed: a column of nulls keeps its type."""
    path = tmp_path / "x.parquet"
    pq.write_table(_TABLE, path)
    with pa.OSFile(str(path), "rb") as source:
        assert read_lenient_metadata(source).equals(pq.read_metadata(path))


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_a_broken_footer_is_an_error(tmp_path: Path, cut: int) -> None:
    """Nothing beyond the end of the file is read."""
    path = tmp_path / "x.parquet"
    _as_hive(path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8][:cut]
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + (b"PAR1" if cut else b"PARE"))
    with pa.OSFile(str(path), "rb") as source, pytest.raises((pa.ArrowInvalid, OSError)):
        read_lenient_metadata(source)
