"""Equality deletes of Iceberg tables apply null-safely to columns of every type.

This holds also after schema changes.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

_NAN = float("nan")
_OTHER_NAN = -float("nan")


def _ids(writer: IcebergWriter) -> list[int]:
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    return sorted(read_columns(snapshot)["id"])


@pytest.mark.parametrize(
    ("name", "type_", "values", "deleted_ids"),
    [
        ("boolean", pa.bool_(), [True, False, None, True], [0, 3]),
        ("int", pa.int32(), [1, 2, None, 1], [0, 3]),
        ("long", pa.int64(), [2**60, 2**60 + 1, None], [0]),
        ("float", pa.float32(), [0.5, 1.5, None, 0.5], [0, 3]),
        ("double", pa.float64(), [_NAN, 0.0, None, _OTHER_NAN], [0, 3]),
        ("double", pa.float64(), [0.0, -0.0, None, 0.0], [0, 3]),
        ("decimal(38, 4)", pa.decimal128(38, 4), [Decimal("1.5"), Decimal("-1.5"), None], [0]),
        ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29), None], [0]),
        ("time", pa.time64("us"), [dt.time(1), dt.time(2), None], [0]),
        ("timestamp", pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2024, 1, 1), None], [0]),
        ("timestamptz", pa.timestamp("us", "UTC"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1), None], [0]),
        ("timestamp_ns", pa.timestamp("ns"), [1, 2, None], [0]),
        ("string", pa.string(), ["", "é", None, ""], [0, 3]),
        ("uuid", pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes, None], [0]),
        ("fixed[2]", pa.binary(2), [b"ab", b"ba", None], [0]),
        ("binary", pa.binary(), [b"", b"\x00", None], [0]),
    ],
)
def test_equality_deletes_of_every_type_apply(
    tmp_path: Path, name: str, type_: pa.DataType, values: list[Any], deleted_ids: list[int]
) -> None:
    """Equality deletes remove rows with equal values of every type, and a null removes only nulls.

    The first delete removes the first value and equal ones. The second removes the nulls.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "key", name)], version=3)
    ids = list(range(len(values)))
    writer.commit(writer.data(pa.table({"id": ids, "key": pa.array(values, type_)})))
    writer.commit(writer.equality_deletes(pa.table({"key": pa.array(values[:1], type_)}), "key"))
    assert _ids(writer) == [id_ for id_ in ids if id_ not in deleted_ids]
    writer.commit(writer.equality_deletes(pa.table({"key": pa.array([None], type_)}), "key"))
    assert _ids(writer) == [id_ for id_ in ids if id_ not in deleted_ids and values[id_] is not None]


def test_deletes_by_dropped_or_renamed_columns_apply(tmp_path: Path) -> None:
    """Equality deletes apply although their columns were dropped or renamed later.

    Field ids identify the columns, because the old names are used again.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "a", "long"), column(3, "b", "string")])
    writer.commit(writer.data(pa.table({"id": [1, 2, 3, 4], "a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})))
    writer.commit(
        writer.equality_deletes(pa.table({"a": [1]}), "a"), writer.equality_deletes(pa.table({"b": ["x"]}), "b")
    )
    writer.schemas.append([column(1, "number", "long"), column(3, "a", "string"), column(4, "id", "long")])
    writer.write_metadata()
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    assert read_columns(snapshot) == {"number": [3, 4], "a": ["y", "z"], "id": [None, None]}


def test_deletes_by_columns_of_the_same_name_are_distinguished(tmp_path: Path) -> None:
    """Equality deletes by a dropped column do not apply to a later column of the same name.

    Each of the two columns `key` has deletes, which compare its values. The new column has a default value in older
    files.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "key", "long")], version=3)
    writer.commit(writer.data(pa.table({"id": [0, 1], "key": [10, 20]})))
    writer.commit(writer.equality_deletes(pa.table({"key": [10]}), "key"))
    writer.schemas.append([column(1, "id", "long"), column(3, "key", "long", initial_default=10)])
    writer.commit(writer.data(pa.table({"id": [2, 3], "key": [10, 20]})))
    writer.commit(writer.equality_deletes(pa.table({"key": [20]}), "key"))
    assert _ids(writer) == [1, 2]


def test_deletes_by_a_widened_column_apply(tmp_path: Path) -> None:
    """Equality deletes by columns that were widened apply: values are compared in the new type.

    The columns of a data file are widened before or after the deletes.
    """
    writer = IcebergWriter(
        tmp_path / "t",
        [column(1, "id", "long"), column(2, "n", "int"), column(3, "f", "float"), column(4, "d", "decimal(5,2)")],
    )
    old = pa.table(
        {
            "id": [1, 2, 3],
            "n": pa.array([1, 2, 3], pa.int32()),
            "f": pa.array([0.1, 0.2, 0.3], pa.float32()),
            "d": pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("3.00")], pa.decimal128(5, 2)),
        }
    )
    writer.commit(writer.data(old))
    writer.commit(writer.equality_deletes(old.slice(0, 1).select(["n"]), "n"))
    writer.schemas.append(
        [column(1, "id", "long"), column(2, "n", "long"), column(3, "f", "double"), column(4, "d", "decimal(20,2)")]
    )
    exact = float(pa.scalar(0.2, pa.float32()).as_py())
    new = pa.table({"f": [exact, 0.3], "d": pa.array([Decimal("2.00"), Decimal("3.00")], pa.decimal128(20, 2))})
    writer.commit(writer.equality_deletes(new, "f", "d"))
    assert _ids(writer) == [3]


def test_other_columns_of_a_delete_file_are_ignored(tmp_path: Path) -> None:
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "a", "string")])
    writer.commit(writer.data(pa.table({"id": [1, 2], "a": ["x", "y"]})))
    writer.commit(writer.equality_deletes(pa.table({"a": ["other"], "id": [2]}), "id"))
    assert _ids(writer) == [1]


def test_a_column_missing_in_the_data_file_has_its_default(tmp_path: Path) -> None:
    """Equality deletes use the default of a column that the data file lacks.

    A column without a default is null. The source column of an identity partition field has the partition value.
    """
    spec = {"name": "p", "field-id": 1000, "source-id": 4, "transform": "identity"}
    writer = IcebergWriter(
        tmp_path / "t", [column(1, "id", "long")], version=3, specs={0: [spec]}, partition_types={1000: "int"}
    )
    writer.commit(*(writer.data(pa.table({"id": [p]}), partition=(p,)) for p in (5, 6, 7)))
    writer.schemas.append(
        [
            column(1, "id", "long"),
            column(2, "d", "string", initial_default="new"),
            column(3, "n", "string"),
            column(4, "p", "int"),
        ]
    )
    keys = pa.table({"d": ["new"], "n": pa.array([None], pa.string()), "p": pa.array([5], pa.int32())})
    writer.commit(*(writer.equality_deletes(keys, "d", "n", "p", partition=(p,)) for p in (5, 6, 7)))
    assert _ids(writer) == [6, 7]
    others = pa.table({"d": ["old"], "n": ["new"]})
    writer.commit(*(writer.equality_deletes(others, name, partition=(7,)) for name in ("d", "n")))
    assert _ids(writer) == [6, 7]


def test_a_field_below_a_null_struct_is_null(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [column(3, "x", "string"), column(4, "y", "long")]}
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "s", inner)])
    x, y = (
        pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)})
        for name, type_, id_ in (("x", pa.string(), 3), ("y", pa.int64(), 4))
    )
    values = [{"x": "a", "y": 1}, {"x": None, "y": 2}, None, {"x": "b", "y": 1}]
    writer.commit(writer.data(pa.table({"id": [1, 2, 3, 4], "s": pa.array(values, pa.struct([x, y]))})))
    for value, live in (("a", [2, 3, 4]), (None, [4])):
        entry = writer.equality_deletes(pa.table({"s": pa.array([{"x": value}], pa.struct([x]))}), "s")
        writer.commit(entry | {"equality_ids": [3]})
        assert _ids(writer) == live


@pytest.mark.slow
def test_columns_with_different_chunks_are_aligned(tmp_path: Path) -> None:
    """Equality deletes by two columns apply although the columns are read in chunks of other lengths."""
    count = 300_000
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "a", "string"), column(3, "b", "long")])
    table = pa.table(
        {
            "id": range(count),
            "a": [f"{i % 997:0500}" if i % 3 else None for i in range(count)],
            "b": [i % 11 for i in range(count)],
        }
    )
    writer.commit(writer.data(table))
    deleted_rows = pa.table({"a": [f"{i:0500}" for i in range(500)] + [None], "b": [i % 11 for i in range(500)] + [7]})
    writer.commit(writer.equality_deletes(deleted_rows, "a", "b"))
    pairs = set(zip(deleted_rows["a"].to_pylist(), deleted_rows["b"].to_pylist(), strict=True))
    rows = zip(*(table[name].to_pylist() for name in ("id", "a", "b")), strict=True)
    assert _ids(writer) == [id_ for id_, a, b in rows if (a, b) not in pairs]


def test_incomplete_delete_files_are_errors(tmp_path: Path) -> None:
    """Equality deletes are an error if their columns are not recorded, or cannot be found.

    The delete file may lack a column, or a field id may be in no remaining schema.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long"), column(2, "a", "string")])
    data = writer.data(pa.table({"id": [1], "a": ["x"]}))
    writer.commit(data)
    incomplete = writer.equality_deletes(pa.table({"id": [1]}), "a")
    writer.commit(incomplete)
    with pytest.raises(FragmentError, match="'a'"):
        _ids(writer)
    for ids, message in (([], "does not say by which columns"), ([9], "the field 9, which is in no schema")):
        writer.commit(incomplete | {"equality_ids": ids}, removed_entries=writer.live[1:])
        with pytest.raises(TableFormatError, match=message):
            _ids(writer)


def test_delete_files_without_field_ids_use_the_name_mapping(tmp_path: Path) -> None:
    """Columns of a delete file without field ids are found by the name mapping of the table.

    Without a mapping, such a file is refused: a delete file need not have all columns, so columns cannot be found by
    position.
    """
    columns = [column(1, "id", "long"), column(2, "a", "string")]
    for mapping in ('[{"field-id": 2, "names": ["a"]}]', None):
        properties = {"schema.name-mapping.default": mapping} if mapping else {}
        writer = IcebergWriter(tmp_path / str(bool(mapping)), columns, properties=properties)
        writer.commit(writer.data(pa.table({"id": [1, 2], "a": ["x", "y"]})))
        entry = writer.equality_deletes(pa.table({"a": ["x"]}), "a")
        pq.write_table(pa.table({"a": ["x"]}), entry["file_path"])
        writer.commit(entry)
        if mapping:
            assert _ids(writer) == [2]
        else:
            with pytest.raises(FragmentError, match="'a'"):
                _ids(writer)


def test_equal_partition_values_may_have_different_encodings(tmp_path: Path) -> None:
    """Deletes apply to data files of an equal partition, even if its values have other encodings.

    The encodings differ in the bits of NaN and in the bytes of a decimal.
    """
    fields = [
        {"name": name, "field-id": 1000 + source, "source-id": source, "transform": "identity"}
        for name, source in (("f", 2), ("d", 3))
    ]
    schema = [column(1, "id", "long"), column(2, "f", "double"), column(3, "d", "decimal(9,2)")]
    writer = IcebergWriter(tmp_path / "t", schema, specs={0: fields}, partition_types={1002: "double", 1003: "bytes"})
    partitions = [(_NAN, b"\xff"), (1.5, b"\xff"), (_NAN, b"\x01\x00")]
    rows = [pa.table({"id": [number]}) for number in range(3)]
    writer.commit(*(writer.data(row, partition=partition) for row, partition in zip(rows, partitions, strict=True)))
    everything = pa.table({"id": [0, 1, 2]})
    writer.commit(writer.equality_deletes(everything, "id", partition=(float("-nan"), b"\xff\xff\xff")))
    assert _ids(writer) == [1, 2]
    keys = [
        fragment.partition_key
        for fragment in open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot().fragments
    ]
    assert sorted(keys) == ["f=1.5/d=-0.01", "f=nan/d=-0.01", "f=nan/d=2.56"]


def test_zero_and_minus_zero_are_different_partitions(tmp_path: Path) -> None:
    """Deletes in the partition 0.0 do not apply to the file in the partition -0.0.

    Both partitions have the same partition key. The files lack the column, and rows have the zero of their partition.
    """
    spec = [{"name": "f", "field-id": 1000, "source-id": 2, "transform": "identity"}]
    schema = [column(1, "id", "long"), column(2, "f", "double")]
    writer = IcebergWriter(tmp_path / "t", schema, specs={0: spec}, partition_types={1000: "double"})
    writer.commit(
        *(writer.data(pa.table({"id": [number]}), partition=(zero,)) for number, zero in enumerate((-0.0, 0.0)))
    )
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    columns = read_columns(snapshot)
    assert sorted(zip(columns["id"], map(str, columns["f"]), strict=True)) == [(0, "-0.0"), (1, "0.0")]
    assert {fragment.partition_key for fragment in snapshot.fragments} == {"f=0.0"}
    writer.commit(writer.equality_deletes(pa.table({"id": [0, 1]}), "id", partition=(0.0,)))
    assert _ids(writer) == [0]


def test_the_error_names_a_missing_or_corrupt_delete_file(tmp_path: Path) -> None:
    """The error for a missing or corrupt delete file also names the data file."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    data = writer.data(pa.table({"id": [1, 2]}))
    writer.commit(data)
    deletes = writer.equality_deletes(pa.table({"id": [1]}), "id")
    writer.commit(deletes)
    (fragment,) = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot().fragments
    path = Path(deletes["file_path"])
    path.write_bytes(path.read_bytes()[:-9])
    explanation = f"{data['file_path']}: the equality deletes in {path} cannot be read: "
    with pytest.raises(FragmentError, match=explanation) as error_info:
        fragment.source.open()
    assert error_info.value.path == data["file_path"]
    path.unlink()
    explanation = f"{path} is gone since the table was listed: {data['file_path']} cannot be read without it"
    with pytest.raises(FragmentError, match=explanation) as error_info:
        fragment.source.open()
    assert error_info.value.missing
