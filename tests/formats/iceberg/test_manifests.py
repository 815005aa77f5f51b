"""Manifests and manifest lists of different writers are read.

The files have different codecs, field orders, and unknown or missing fields.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.iceberg import fragment_planner
from metastore_assets.formats.iceberg.partitions import Partitions
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_rows
from tests.formats.readers.avro_container import CODECS, OTHER_NAMES, container, recode


def _ids(folder: Path | str) -> list[int]:
    return sorted(row[0] for row in read_rows(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()))


@pytest.fixture
def writer(tmp_path: Path) -> IcebergWriter:
    """A table of two data files with the rows 1 to 4.

    Position deletes delete the second row.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    data = writer.data(pa.table({"id": [1, 2, 3]}))
    writer.commit(data)
    writer.commit(writer.data(pa.table({"id": [4]})), writer.position_deletes([(data["file_path"], 1)]))
    return writer


@pytest.mark.parametrize("codec", [None, *CODECS, *OTHER_NAMES])
def test_manifests_in_every_codec_are_read(writer: IcebergWriter, codec: str | None) -> None:
    """Manifests and manifest lists are read in every codec of Avro.

    They are also read if their header has another name of the codec, or names no codec.
    """
    for path in (writer.folder / "metadata").glob("*.avro"):
        recode(path, codec)
    assert _ids(writer.folder) == [1, 3, 4]


def test_an_unknown_codec_is_reported(writer: IcebergWriter) -> None:
    """The error for a manifest list in an unknown codec names the file and the codec."""
    (path,) = (writer.folder / "metadata").glob("snap-*2.avro")
    path.write_bytes(path.read_bytes().replace(b"\x0edeflate", b"\x0ebrotli!"))
    with pytest.raises(TableFormatError, match=f"{path.name}.*'brotli!'"):
        _ids(writer.folder)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bzip2", "null"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_codecs_written_by_pyiceberg_are_read(tmp_path: Path, codec: str, version: str) -> None:
    """Manifests that pyiceberg writes are read in each codec that a table property can select."""
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    properties = {"write.avro.compression-codec": codec, "format-version": version}
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), properties=properties)
    for start in (0, 10):
        table.append(pa.table({"id": range(start, start + 2)}))
    table.delete("id = 10")
    assert _ids(table.location()) == [0, 1, 11]


@pytest.mark.parametrize("kind", ["manifest", "manifest list"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "ends early"),
        (lambda data: data[:-20], "ends early"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "marker"),
        (lambda data: b"[]", "Avro"),
        (lambda data: b"", "Avro"),
    ],
)
def test_the_error_names_a_broken_manifest_or_manifest_list(
    writer: IcebergWriter, kind: str, damage: Any, message: str
) -> None:
    pattern = "snap-*2.avro" if kind == "manifest list" else "*-m0.avro"
    for path in (writer.folder / "metadata").glob(pattern):
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TableFormatError, match=rf"{writer.folder}: .*{kind} .*\.avro.*{message}"):
        _ids(writer.folder)


@pytest.mark.parametrize("content", [None, 3])
def test_a_manifest_of_deletes_without_recorded_content_is_an_error(writer: IcebergWriter, content: int | None) -> None:
    """A delete file whose field `content` is missing or unknown is an error.

    The rows of such a file must not be read as data.
    """
    deletes = writer.live[-1]
    writer.commit(deletes | {"content": 3, "sequence_number": None}, removed_entries=[deletes])
    if content is None:
        for path in (writer.folder / "metadata").glob("*-m0.avro"):
            _without(path, "content")
    message = "does not say whether it deletes" if content is None else "has the content 3"
    with pytest.raises(TableFormatError, match=rf"m0\.avro.*{message}"):
        _ids(writer.folder)


def _without(path: Path, name: str) -> None:
    """Rewrite a manifest without the field `name` of the files that it lists."""
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        records, schema = list(reader), json.loads(reader.metadata["avro.schema"])
    data_file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    data_file["fields"] = [field for field in data_file["fields"] if field["name"] != name]
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), records)


_REQUIRED_FIELDS = {
    "status",
    "data_file",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "partition",
}
_REQUIRED_FIELDS |= {"content", "sequence_number", "manifest_path", "partition_spec_id", "p1000", "equality_ids"}
"""Fields that tables of version 2 cannot do without."""
_UNKNOWN: list[tuple[Any, Any]] = [
    ("string", "é"),
    (["long", "null"], None),
    ({"type": "array", "items": ["null", "bytes"]}, [b"x", None]),
    ({"type": "map", "values": "double"}, {"a": 0.5}),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B"),
    ({"type": "fixed", "name": "f", "size": 2}, b"ab"),
    ({"type": "record", "name": "r", "fields": [{"name": "file_path", "type": "int"}]}, {"file_path": 7}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\0"),
]


class _Other:
    """A rewriter of Avro files as another writer might write them.

    Fields are renamed, reordered, added and removed.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._names = 0

    def rewrite(self, path: Path) -> None:
        with path.open("rb") as file:
            reader: Any = fastavro.reader(file)
            records, schema = list(reader), json.loads(reader.metadata["avro.schema"])
        other, change = self._record(schema)
        data = []
        for record in records:
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, fastavro.parse_schema(other), change(record))
            data.append((1, sink.getvalue()))
        metadata = {"é": b"\xff", "content": b"nonsense"} if self._random.random() < 0.5 else {}
        codec = self._random.choice([*CODECS, *OTHER_NAMES])
        path.write_bytes(container(json.dumps(other).encode(), data, codec, metadata))

    def _record(self, schema: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return a random variant of a record schema, and a function that converts a record to it."""
        fields = []
        for field in schema["fields"]:
            optional = isinstance(field["type"], list) and field["name"] not in _REQUIRED_FIELDS
            if optional and self._random.random() < 0.2 and field["name"] not in ("key", "value"):
                continue
            type_, change = self._type(field["type"])
            # Fields with an id may have any name.
            name = self._name("n") if "field-id" in field and self._random.random() < 0.3 else field["name"]
            more = {"default": None} if isinstance(type_, list) and type_[0] == "null" else {}
            changed_field = {key: value for key, value in field.items() if key != "default"} | more
            fields.append((changed_field | {"name": name, "type": type_, "doc": "?"}, field["name"], change))
        for _ in range(self._random.choice([0, 0, 1, 3])):
            type_, value = self._random.choice(_UNKNOWN)
            if isinstance(type_, dict) and "name" in type_:
                type_ = type_ | {"name": self._name(type_["name"])}
            field_id = {"field-id": self._random.randrange(5000, 9000)} if self._random.random() < 0.5 else {}
            fields.append(({"name": self._name("unknown"), "type": type_, **field_id}, None, value))
        self._random.shuffle(fields)

        def change(record: dict[str, Any]) -> dict[str, Any]:
            return {field["name"]: change if old is None else change(record.get(old)) for field, old, change in fields}

        name_fields = {"name": self._name(schema["name"]), "namespace": "org.example"}
        return {"type": "record", **name_fields, "fields": [field for field, _, _ in fields]}, change

    def _type(self, type_: Any) -> tuple[Any, Any]:
        """Return a random variant of an Avro type, and a function that converts a value to it."""
        if isinstance(type_, list):
            branches = [self._type(branch) for branch in type_]
            (change,) = [change for branch, change in branches if branch != "null"]
            order = [branch for branch, _ in branches]
            self._random.shuffle(order)
            return order, lambda value: None if value is None else change(value)
        if isinstance(type_, dict) and type_["type"] == "record":
            return self._record(type_)
        if isinstance(type_, dict) and type_["type"] == "array":
            items, change = self._type(type_["items"])
            return type_ | {"items": items}, lambda values: [change(value) for value in values]
        return type_, lambda value: value

    def _name(self, start: str) -> str:
        self._names += 1
        return f"{start}_{self._names}"


@given(st.integers(0, 10**9))
@settings(max_examples=max(10, settings().max_examples // 3))
def test_manifests_of_other_writers_are_read_by_field_ids(seed: int) -> None:
    """Manifests are read by field ids, whatever the names and the order of their fields.

    Some fields are added or missing. Unions may have null last.
    """
    with tempfile.TemporaryDirectory() as folder:
        schema = [column(1, "id", "long"), column(2, "part", "string")]
        spec = [{"name": "part", "field-id": 1000, "source-id": 2, "transform": "identity"}]
        writer = IcebergWriter(Path(folder) / "t", schema, specs={0: spec}, partition_types={1000: "string"})
        data = [
            writer.data(pa.table({"id": [number, number + 1]}), partition=(part,)) for number, part in enumerate("ab")
        ]
        writer.commit(*data)
        positions = writer.position_deletes([(data[0]["file_path"], 1)], partition=("a",))
        writer.commit(positions, writer.equality_deletes(pa.table({"id": [2]}), "id", partition=("b",)))
        other = _Other(seed)
        for path in sorted((writer.folder / "metadata").glob("*.avro")):
            other.rewrite(path)
        snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
        assert sorted(read_rows(snapshot)) == [(0, "a"), (1, "b")]
        assert [fragment.partition_key for fragment in snapshot.fragments] == ["part=a", "part=b"]


def test_a_type_that_an_ignored_field_defines_is_resolved(tmp_path: Path) -> None:
    """A partition field may refer by name to an Avro type that an unknown field defines.

    Avro defines a named type only once, where it occurs first.
    """
    fixed_type = {"type": "fixed", "size": 16, "name": "uuid_fixed"}
    spec = [{"name": "key", "field-id": 1000, "source-id": 2, "transform": "identity"}]
    columns = [column(1, "id", "long"), column(2, "key", "uuid")]
    writer = IcebergWriter(tmp_path / "t", columns, specs={0: spec}, partition_types={1000: fixed_type})
    writer.commit(writer.data(pa.table({"id": [1]}), partition=(bytes(16),)))
    (path,) = (writer.folder / "metadata").glob("*-m0.avro")
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, records = json.loads(reader.metadata["avro.schema"]), list(reader)
    (fields,) = [field["type"]["fields"] for field in schema["fields"] if field["name"] == "data_file"]
    (partition,) = [field["type"]["fields"] for field in fields if field["name"] == "partition"]
    partition[0]["type"] = ["null", "uuid_fixed"]
    fields.insert(0, {"name": "ignored", "type": fixed_type, "field-id": 999})
    for record in records:
        record["data_file"]["ignored"] = bytes(16)
    with path.open("wb") as file:
        fastavro.writer(file, schema, records)
    assert _ids(writer.folder) == [1]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_error_names_a_manifest_of_an_unknown_spec(writer: IcebergWriter, is_streamed: bool) -> None:
    writer.specs = {7: ()}
    writer.write_metadata()
    table_format = open_table_format(TableConfig(name="t", uri=str(writer.folder)))
    with pytest.raises(TableFormatError, match=r"m0\.avro.*\bspec 0\b"):
        table_format.stream() if is_streamed else table_format.snapshot()


@pytest.mark.parametrize("limit", [1, 7])
def test_a_stream_has_few_entries_and_partitions_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """A stream of fragments reads several manifests together only if they list at most `limit` files.

    At most `limit` partitions are in memory. The fragments are those of the snapshot.
    """
    monkeypatch.setattr(fragment_planner, "_FILES_AT_ONCE", limit)
    monkeypatch.setattr(fragment_planner, "_STREAMED_PARTITIONS", limit)
    table = InMemoryCatalog("test", warehouse=str(tmp_path))
    table.create_namespace("db")
    iceberg = table.create_table("db.t", pa.schema([("id", pa.int64())]), properties={"format-version": "2"})
    with iceberg.update_spec() as update:
        update.add_identity("id")
    for count in (3, 3, 12):
        iceberg.append(pa.table({"id": pa.array(range(count), pa.int64())}))
    batches, partitions = [], []
    read, partition_of = fragment_planner.IcebergFragmentPlanner._read, Partitions.partition

    def read_batch(planner: Any, reader: Any, manifests: list[Any]) -> Any:
        batches.append([manifest.file_count for manifest in manifests])
        return read(planner, reader, manifests)

    def count_partitions(all_partitions: Partitions, *arguments: Any) -> Any:
        partition = partition_of(all_partitions, *arguments)
        partitions.append(len(all_partitions._partitions_by_values))
        return partition

    monkeypatch.setattr(fragment_planner.IcebergFragmentPlanner, "_read", read_batch)
    monkeypatch.setattr(Partitions, "partition", count_partitions)
    table_format = open_table_format(TableConfig(name="t", uri=iceberg.location()))
    fragments = sorted(table_format.stream().fragments, key=lambda fragment: (fragment.partition_key, fragment.id))
    assert len(fragments) == 18
    assert [len(batch) for batch in batches] == ([1, 1, 1] if limit == 1 else [1, 2])
    assert max(partitions) == limit
    assert fragments == list(table_format.snapshot().fragments)
    partitions.clear()
    filtered_table = open_table_format(TableConfig(name="t", uri=iceberg.location(), partitions={"id": ["11"]}))
    assert [fragment.partition_key for fragment in filtered_table.stream().fragments] == ["id=11"]
    assert max(partitions) == limit, "partitions that the filter does not select are forgotten, too"
