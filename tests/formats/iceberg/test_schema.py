"""Iceberg tables with changed schemas and partitions are read, even from files without field ids.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, PrimitiveType, StringType

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import MetadataCache, NoDiff, Snapshot, open_table_format
from metastore_assets.formats.partition_ranges import PartitionRanges
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns


def _snapshot(folder: Path, **more: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), **more)).snapshot()


@pytest.fixture
def catalog(tmp_path: Path) -> InMemoryCatalog:
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path / "warehouse"))
    catalog.create_namespace("db")
    return catalog


def _create(catalog: InMemoryCatalog, folder: Path, table: pa.Table) -> Table:
    new_table = catalog.create_table("db.t", table.schema, str(folder))
    new_table.append(table)
    return new_table


def test_changed_columns_are_read_as_by_pyiceberg(catalog: InMemoryCatalog, tmp_path: Path) -> None:
    """Values equal those of pyiceberg after columns were added, dropped, renamed, moved and widened.

    The columns are at the top level, and in structs, lists and maps. The ids of the earlier fragments do not change.
    """
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    table = _create(
        catalog,
        tmp_path / "t",
        pa.table(
            {
                "a": pa.array([1, 2], pa.int32()),
                "b": ["p", "q"],
                "s": pa.array([{"x": 1, "y": "u"}, None], inner),
                "l": pa.array([[{"x": 2, "y": "v"}], []], pa.list_(inner)),
                "m": pa.array([[("k", {"x": 3, "y": "w"})], None], pa.map_(pa.string(), inner)),
            }
        ),
    )
    old = _snapshot(tmp_path / "t")
    with table.update_schema() as update:
        update.update_column("a", LongType()).rename_column("a", "number").delete_column("b")
        for path in ("s", "l.element", "m.value"):
            update.rename_column(f"{path}.x", "z").delete_column(f"{path}.y").update_column(f"{path}.x", LongType())
    added_types: dict[str, PrimitiveType] = dict.fromkeys(("s.y", "l.element.y", "m.value.y"), DoubleType())
    for path, type_ in (added_types | {"b": IntegerType()}).items():
        with table.update_schema() as update:
            update.add_column(tuple(path.split(".")), type_)
        with table.update_schema() as update:
            update.move_first(path)
    table.append(
        pa.table(
            {
                "b": pa.array([7], pa.int32()),
                "number": pa.array([2**40]),
                "s": pa.array([{"y": 0.5, "z": 2**41}]),
                "l": pa.array([[{"y": 1.5, "z": 2**42}]]),
                "m": pa.array(
                    [[("n", {"y": 2.5, "z": 2**43})]],
                    pa.map_(pa.string(), pa.struct([("y", pa.float64()), ("z", pa.int64())])),
                ),
            }
        )
    )
    new = _snapshot(tmp_path / "t")
    assert {fragment.id for fragment in old.fragments} < {fragment.id for fragment in new.fragments}
    columns = read_columns(new)
    expected = table.scan().to_arrow().to_pydict()
    assert list(columns) == list(expected)
    order = sorted(range(3), key=lambda row: columns["number"][row])
    other = sorted(range(3), key=lambda row: expected["number"][row])
    for name in columns:
        assert [columns[name][row] for row in order] == [expected[name][row] for row in other]
    assert columns["b"] in ([None, None, 7], [7, None, None])


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("boolean", True, True),
        ("int", 34, 34),
        ("long", -(2**63), -(2**63)),
        ("float", 0.5, 0.5),
        ("double", 0.1, 0.1),
        ("decimal(9,2)", "14.20", Decimal("14.20")),
        ("date", "2017-11-16", dt.date(2017, 11, 16)),
        ("time", "22:31:08.123456", dt.time(22, 31, 8, 123456)),
        ("timestamp", "2017-11-16T22:31:08.123456", dt.datetime(2017, 11, 16, 22, 31, 8, 123456)),
        ("timestamptz", "0001-01-01T00:00:00+00:00", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        ("timestamp_ns", "2017-11-16T22:31:08.123456000", dt.datetime(2017, 11, 16, 22, 31, 8, 123456)),
        ("string", "iceberg", "iceberg"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
        ("fixed[2]", "ff00", b"\xff\x00"),
        ("binary", "", b""),
    ],
)
def test_columns_missing_in_older_files_have_their_initial_default(
    tmp_path: Path, type_: str, default: Any, expected: Any
) -> None:
    """A new column, or a new field of a struct, has its initial default in rows of older files.

    A field of a null struct is null. Fragments do not change.
    """
    inner = [column(3, "x", "long")]
    writer = IcebergWriter(
        tmp_path / "t",
        [column(1, "id", "long"), column(2, "s", {"type": "struct", "fields": inner})],
        version=3,
    )
    x = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "3"})
    writer.commit(writer.data(pa.table({"id": [1, 2], "s": pa.array([{"x": 5}, None], pa.struct([x]))})))
    before = _snapshot(writer.folder).fragments
    new = column(4, "new", type_, initial_default=default)
    nested_fields = [*inner, column(5, "new", type_, initial_default=default)]
    writer.schemas.append([column(1, "id", "long"), column(2, "s", {"type": "struct", "fields": nested_fields}), new])
    writer.write_metadata()
    snapshot = _snapshot(writer.folder)
    assert snapshot.fragments == before
    columns = read_columns(snapshot)
    assert columns["new"] == [expected, expected]
    assert columns["s"] == [{"x": 5, "new": expected}, None]


def test_the_error_names_a_default_of_another_type(tmp_path: Path) -> None:
    writer = IcebergWriter(tmp_path / "t", [column(1, "d", "date", initial_default="soon")], version=3)
    writer.write_metadata()
    with pytest.raises(TableFormatError, match=r"'soon'.*'d'.*date32"):
        _snapshot(writer.folder)


def test_unusual_iceberg_types_are_read(tmp_path: Path) -> None:
    """An unknown column is null, a geometry is bytes, and a variant is a struct of its two stored parts."""
    schema = [
        column(1, "id", "long"),
        column(2, "u", "unknown"),
        column(3, "g", "geometry(OGC:CRS84)"),
        column(4, "v", "variant"),
    ]
    writer = IcebergWriter(tmp_path / "t", schema, version=3)
    variants = pa.array([{"metadata": b"\x01\x00", "value": b"\x0c\x05"}, None])
    writer.commit(writer.data(pa.table({"id": [1, 2], "g": [b"wkb", None], "v": variants})))
    columns = read_columns(_snapshot(writer.folder))
    assert columns["u"] == [None, None]
    assert columns["g"] == [b"wkb", None]
    assert columns["v"] == variants.to_pylist()


_NESTED = pa.array(
    [{"x": 1, "l": [{"y": "a"}]}, None],
    pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.string())])))]),
)
_NESTED_TYPE = {
    "type": "struct",
    "fields": [
        column(4, "x", "long"),
        column(
            5,
            "l",
            {"type": "list", "element-id": 6, "element": {"type": "struct", "fields": [column(7, "y", "string")]}},
        ),
    ],
}


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path, format_: str) -> None:
    """Columns of a file without field ids are found by the name mapping, at every depth.

    A column may have several names. Unmapped names belong to no column.
    """
    mapping = [
        {"field-id": 1, "names": ["old id", "ID"]},
        {"field-id": 3, "names": ["s"], "fields": [
            {"field-id": 4, "names": ["was_x"]},
            {"field-id": 5, "names": ["l"], "fields": [
                {"names": ["element"], "fields": [{"field-id": 7, "names": ["y"]}]}]}]},
    ]  # fmt: skip
    schema = [column(1, "id", "long"), column(2, "other", "string"), column(3, "s", _NESTED_TYPE)]
    writer = IcebergWriter(tmp_path / "t", schema, properties={"schema.name-mapping.default": json.dumps(mapping)})
    s = pa.StructArray.from_arrays([_NESTED.field(0), _NESTED.field(1)], ["was_x", "l"], mask=_NESTED.is_null())
    writer.commit(writer.data(pa.table({"other": ["o", "p"], "s": s, "ID": [1, 2]}), ids=False, format_=format_))
    columns = read_columns(_snapshot(writer.folder))
    assert columns == {"id": [1, 2], "other": [None, None], "s": _NESTED.to_pylist()}


def test_files_without_ids_and_mapping_are_read_by_position(tmp_path: Path) -> None:
    """Columns of a Parquet file without field ids are those of the oldest schema, by position.

    This holds without a name mapping. A name mapping is ignored if it has a field id that no schema has.
    """
    schema = [column(1, "a", "long"), column(2, "b", "string"), column(3, "s", _NESTED_TYPE)]
    for properties in ({}, {"schema.name-mapping.default": '[{"names": ["a"], "field-id": 7}]'}):
        writer = IcebergWriter(tmp_path / f"t{len(properties)}", schema, properties=properties)
        data = pa.table({"_col0": [1, 2], "_col1": ["p", "q"], "_col2": _NESTED})
        writer.commit(writer.data(data, ids=False))
        before = _snapshot(writer.folder)
        assert read_columns(before) == {"a": [1, 2], "b": ["p", "q"], "s": _NESTED.to_pylist()}
        writer.schemas.append([column(3, "s", _NESTED_TYPE), column(8, "b", "long"), column(2, "text", "string")])
        writer.write_metadata()
        after = _snapshot(writer.folder)
        assert after.fragments == before.fragments
        assert read_columns(after) == {"s": _NESTED.to_pylist(), "b": [None, None], "text": ["p", "q"]}


@pytest.mark.parametrize("format_", ["orc", "avro"])
def test_orc_and_avro_files_without_ids_and_mapping_are_read_by_name(tmp_path: Path, format_: str) -> None:
    """Columns of ORC and Avro files without field ids and mapping are matched by name.

    As in Iceberg's Java library, names are those of the snapshot's schema. If the name of a column later belongs to
    another field or to none, the fragment has another id.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long"), column(2, "b", "string"), column(3, "c", "long")])
    data = pa.table({"b": ["p", "q"], "d": [7, 8], "a": [1, 2], "c": [5, 6]})
    writer.commit(writer.data(data, format_=format_, ids=False))
    before = _snapshot(writer.folder)
    assert read_columns(before) == {"a": [1, 2], "b": ["p", "q"], "c": [5, 6]}
    with before.fragments[0].source.open() as reader:
        assert reader.stored_columns == {"1", "2", "3", "(unmapped)"}  # so that a later column d is looked for

    def change(*fields: tuple[int, str]) -> Snapshot:
        writer.schemas.append([column(number, name, "string" if name == "b" else "long") for number, name in fields])
        writer.write_metadata()
        return _snapshot(writer.folder)

    snapshot_with_addition = change((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    assert snapshot_with_addition.fragments[0].id == before.fragments[0].id
    assert read_columns(snapshot_with_addition)["d"] == [7, 8]
    snapshot_with_renaming = change((1, "x"), (2, "b"), (3, "c"), (4, "d"))
    assert read_columns(snapshot_with_renaming)["x"] == [None, None]
    snapshot_with_reuse = change((2, "b"), (4, "d"), (5, "c"))
    assert read_columns(snapshot_with_reuse) == {"b": ["p", "q"], "d": [7, 8], "c": [5, 6]}
    assert (
        len(
            {
                snapshot.fragments[0].id
                for snapshot in (snapshot_with_addition, snapshot_with_renaming, snapshot_with_reuse)
            }
        )
        == 3
    )


@pytest.mark.parametrize(
    ("mapping", "message"),
    [("{}", r"\blist\b"), ('[{"field-id": 1, "names": "id"}]', "names.*'id'"), ("[", "Expecting value")],
)
def test_an_invalid_name_mapping_is_an_error(tmp_path: Path, mapping: str, message: str) -> None:
    """A name mapping that is no JSON, no list, or has a text in place of a list of names is an error."""
    writer = IcebergWriter(
        tmp_path / "t", [column(1, "id", "long")], properties={"schema.name-mapping.default": mapping}
    )
    writer.commit(writer.data(pa.table({"id": [1]}), ids=False))
    with pytest.raises(TableFormatError, match=rf"/t.*schema\.name-mapping\.default .*{message}"):
        _snapshot(writer.folder)


def test_ids_change_if_a_mapping_gives_columns_other_names(tmp_path: Path) -> None:
    """A fragment without field ids gets another id if the mapping gives its columns other names.

    The fragment keeps its id if the mapping only gets the new names of renamed and added columns. The difference since
    another mapping is unknown.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long"), column(2, "b", "long")])
    writer.commit(writer.data(pa.table({"a": [1], "b": [2]}), ids=False))
    cache = MetadataCache(ignore_process=True)

    def set_mapping(*names: list[str]) -> Snapshot:
        mapping = [{"field-id": number, "names": values} for number, values in enumerate(names, 1)]
        writer.properties["schema.name-mapping.default"] = json.dumps(mapping)
        writer.write_metadata()
        return open_table_format(TableConfig(name="t", uri=str(writer.folder)), cache).snapshot()

    natural = set_mapping(["a"], ["b"])
    writer.schemas.append([column(1, "renamed", "long"), column(2, "b", "long"), column(3, "c", "long")])
    assert set_mapping(["renamed", "a"], ["b"], ["c"]).fragments[0].id == natural.fragments[0].id
    ids = {natural.fragments[0].id}
    for names in (
        (["b"], ["a"], ["c"]),
        (["a", "renamed", "x"], ["b"], ["c"]),
        (["a", "renamed"], ["c"], ["b"]),
        (["renamed"], ["b"], ["c"]),
        (["a"],),
    ):
        swapped_snapshot = set_mapping(*names)
        ids.add(swapped_snapshot.fragments[0].id)
    assert len(ids) == 6
    assert read_columns(swapped_snapshot) == {"renamed": [1], "b": [None], "c": [None]}
    before = swapped_snapshot.reference
    writer.properties["schema.name-mapping.default"] = json.dumps([{"field-id": 2, "names": ["a"]}])
    writer.write_metadata()
    changes = open_table_format(TableConfig(name="t", uri=str(writer.folder)), cache).changes(before)
    assert changes == NoDiff("the name mapping changed")


def test_a_column_that_returns_with_its_entry_in_the_mapping_is_read(tmp_path: Path) -> None:
    """If the name mapping gives the name of a dropped column to a new column, the old values are read.

    These are the values that a file without field ids stores under the name. Iceberg's Java library reads them, too.
    The same holds for a field of a struct. The fragment id changes.
    """
    struct = {"type": "struct", "fields": [column(2, "x", "long"), column(3, "y", "long")]}
    returned_type = {"type": "struct", "fields": [column(5, "x", "long"), column(3, "y", "long")]}
    fields = [{"field-id": 2, "names": ["x"]}, {"field-id": 3, "names": ["y"]}]
    mapping = [{"field-id": 1, "names": ["s"], "fields": fields}, {"field-id": 4, "names": ["a"]}]
    properties = {"schema.name-mapping.default": json.dumps(mapping)}
    writer = IcebergWriter(tmp_path / "t", [column(1, "s", struct), column(4, "a", "long")], properties=properties)
    writer.commit(writer.data(pa.table({"s": [{"x": 1, "y": 2}], "a": [3]}), ids=False))
    before = _snapshot(writer.folder)
    for schema, old, new in (
        ([column(1, "s", struct), column(6, "a", "long")], '"field-id": 4', '"field-id": 6'),
        ([column(1, "s", returned_type), column(4, "a", "long")], '"field-id": 2', '"field-id": 5'),
    ):
        writer.schemas = [writer.schemas[0], schema]
        writer.properties["schema.name-mapping.default"] = json.dumps(mapping).replace(old, new)
        writer.write_metadata()
        after = _snapshot(writer.folder)
        assert read_columns(after) == {"s": [{"x": 1, "y": 2}], "a": [3]}
        assert after.fragments[0].id != before.fragments[0].id


def test_large_field_ids_take_no_time(tmp_path: Path) -> None:
    """A table with the largest possible field id is read, and its pickled fragments are small."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long"), column(2**31 - 1, "b", "long")])
    for ids in (True, False):
        writer.commit(writer.data(pa.table({"a": [1], "b": [2]}), ids=ids))
    snapshot = _snapshot(writer.folder)
    assert max(len(pickle.dumps(fragment)) for fragment in snapshot.fragments) < 5_000
    assert sorted(read_columns(snapshot)["b"], key=str) == [2, None]


def test_migrated_partition_columns_have_the_values_of_the_manifest(tmp_path: Path) -> None:
    """A partition column that data files lack, as in Hive, has the partition value in the manifest.

    The partition field has another name than the column.
    """
    spec = [{"name": "day_of", "field-id": 1000, "source-id": 2, "transform": "identity"}]
    schema = [column(1, "id", "long"), column(2, "day", "date"), column(3, "x", "string")]
    writer = IcebergWriter(
        tmp_path / "t", schema, specs={0: spec}, partition_types={1000: {"type": "int", "logicalType": "date"}}
    )
    for ids, day in ((True, 19723), (False, None)):
        writer.commit(writer.data(pa.table({"id": [1]}), ids=ids, partition=(day,)))
    columns = read_columns(_snapshot(writer.folder))
    assert sorted(columns["day"], key=str) == [dt.date(2024, 1, 1), None]
    assert columns["x"] == [None, None]
    keys = [fragment.partition_key for fragment in _snapshot(writer.folder).fragments]
    assert keys == ["day_of=2024-01-01", "day_of=__HIVE_DEFAULT_PARTITION__"]


def test_duplicate_names_in_a_file_without_ids_are_refused(tmp_path: Path) -> None:
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long"), column(2, "b", "long")])
    entry = writer.data(pa.table({"a": [1], "b": [2]}), ids=False)
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), entry["file_path"])
    writer.commit(entry)
    with pytest.raises(FragmentError, match=r"fields.*'a'"):
        read_columns(_snapshot(writer.folder))


def _field(field_id: int, source_id: int, transform: str, name: str) -> dict[str, Any]:
    return {"name": name, "field-id": field_id, "source-id": source_id, "transform": transform}


@pytest.mark.parametrize("transform", ["identity", "truncate[2]"])
def test_partition_fields_of_texts_are_ordered_as_texts(tmp_path: Path, transform: str) -> None:
    """Partition values of a text column, here "9", "10" and "2", are ordered as texts, not as integers."""
    spec = {0: [_field(1000, 1, transform, "part")]}
    writer = IcebergWriter(tmp_path / "t", [column(1, "s", "string")], specs=spec, partition_types={1000: "string"})
    writer.commit(*(writer.data(pa.table({"s": [text]}), partition=(text,)) for text in ("9", "10", "2")))
    snapshot = _snapshot(writer.folder)
    ranges = PartitionRanges("t", snapshot, {fragment.partition_key for fragment in snapshot.fragments})
    assert ranges.keys == ("part=10", "part=2", "part=9")
    assert ranges.between("1", "2") == ("part=10", "part=2")


def test_files_are_in_partitions_of_their_own_spec(tmp_path: Path) -> None:
    """Partition keys have the fields of the file's spec, with readable values.

    A filter may use the fields of any spec, and does not exclude files whose spec lacks a field. A filter by a column
    that is no partition field is an error.
    """
    written_files: list[tuple[list[dict[str, Any]], tuple[Any, ...], str]] = [
        ([], (), "all"),
        ([_field(1000, 1, "year", "year")], (-1,), "year=1969"),
        ([_field(1000, 1, "year", "year")], (54,), "year=2024"),
        ([_field(1001, 1, "month", "month"), _field(1002, 2, "truncate[10]", "ten")], (-1, 10), "month=1969-12/ten=10"),
        (
            [_field(1003, 1, "day", "day"), _field(1004, 3, "truncate[2]", "two")],
            (19753, "é😀"),
            "day=2024-01-31/two=é%F0%9F%98%80",
        ),
        ([_field(1005, 1, "hour", "hour"), _field(1006, 2, "identity", "n")], (-1, -3), "hour=1969-12-31-23/n=-3"),
        (
            [_field(1005, 1, "hour", "hour"), _field(1006, 2, "identity", "n")],
            (474080, None),
            "hour=2024-01-31-08/n=__HIVE_DEFAULT_PARTITION__",
        ),
        ([_field(1011, 6, "identity", "ns")], (1_700_000_000_000_000_007,), "ns=2023-11-14 22:13:20.000000007"),
        ([_field(1007, 2, "bucket[16]", "bucket"), _field(1008, 3, "void", "gone")], (3, None), "bucket=3"),
        (
            [_field(1009, 4, "identity", "price"), _field(1010, 5, "identity", "raw")],
            (b"\xff\x85", b"\x00\xff"),
            "price=-1.23/raw=00ff",
        ),
    ]
    types: dict[int, Any] = dict.fromkeys(range(1000, 1009), "int") | {1004: "string", 1006: "long", 1008: "string"}
    types |= {
        1009: {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        1010: "bytes",
        1011: "long",
    }
    schema = [column(1, "ts", "timestamp"), column(2, "n", "long"), column(3, "s", "string")]
    schema += [column(4, "price", "decimal(9,2)"), column(5, "raw", "binary"), column(6, "at", "timestamp_ns")]
    specs: dict[int, list[dict[str, Any]]] = {}
    for fields, _, _ in written_files:
        if fields not in specs.values():
            specs[len(specs)] = fields
    writer = IcebergWriter(tmp_path / "t", schema, specs=specs, partition_types=types)
    entries = []
    for number, (fields, partition, _) in enumerate(written_files):
        spec_id = next(key for key, spec_fields in specs.items() if spec_fields == fields)
        entries.append(writer.data(pa.table({"n": [number]}), spec_id=spec_id, partition=partition))
    writer.commit(*entries)
    snapshot = _snapshot(writer.folder)
    assert {fragment.partition_key for fragment in snapshot.fragments} == {key for _, _, key in written_files}
    assert snapshot.partition_columns == (
        "price",
        "raw",
        "year",
        "month",
        "ten",
        "day",
        "two",
        "hour",
        "n",
        "ns",
        "bucket",
    )
    assert sorted(read_columns(snapshot)["n"]) == list(range(len(written_files)))
    filtered_snapshot = _snapshot(writer.folder, partitions={"hour": ("1969-*",), "year": ("2024",)})
    remaining = {fragment.partition_key for fragment in snapshot.fragments} - {
        fragment.partition_key for fragment in filtered_snapshot.fragments
    }
    assert remaining == {"year=1969", "hour=2024-01-31-08/n=__HIVE_DEFAULT_PARTITION__"}
    with pytest.raises(TableFormatError, match=r"'ts'.*\bprice\b"):
        _snapshot(writer.folder, partitions={"ts": ("*",)})


def test_manifests_of_other_partitions_are_not_read(catalog: InMemoryCatalog, tmp_path: Path) -> None:
    """Manifests that a partition filter excludes by bounds in the manifest list are not read.

    The test deletes the excluded manifests. With a filter that does not exclude them, planning is an error.
    """
    rows = pa.table({"n": [1], "s": ["x"]})
    table = catalog.create_table("db.t", rows.schema, str(tmp_path / "t"))
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s").add_field("n", IdentityTransform(), "n")
    for s in ("x", "y", "z"):
        table.append(pa.table({"n": [1], "s": [s]}))
    manifests = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    for manifest in manifests[1:]:
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    filtered_snapshot = _snapshot(tmp_path / "t", partitions={"s": ("z",), "n": ("1",)})
    assert [fragment.partition_key for fragment in filtered_snapshot.fragments] == ["s=z/n=1"]
    with pytest.raises(TableFormatError, match="/t/metad"):
        _snapshot(tmp_path / "t", partitions={"n": ("1",)})


def test_names_that_avro_cannot_represent_are_read(catalog: InMemoryCatalog, tmp_path: Path) -> None:
    """Columns and partition fields whose names Avro cannot represent are matched by their ids.

    In manifests, writers change such names.
    """
    rows = pa.table({"a b/c": ["x"], "é": pa.array([1], pa.int32())})
    table = catalog.create_table("db.t", rows.schema, str(tmp_path / "t"))
    with table.update_spec() as update:
        update.add_field("a b/c", IdentityTransform(), "p q/r")
    table.append(rows)
    with table.update_schema() as schema:
        schema.rename_column("a b/c", "new").add_column("x", StringType())
    snapshot = _snapshot(tmp_path / "t")
    assert snapshot.fragments[0].partition_key == "p q%2Fr=x"
    assert read_columns(snapshot) == {"new": ["x"], "é": [1], "x": [None]}
