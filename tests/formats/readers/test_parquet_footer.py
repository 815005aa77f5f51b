"""Parquet footers of Hive: maps whose entry group has a logical type that is reserved for columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.parquet_footer import REFUSED, read_lenient_metadata
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
