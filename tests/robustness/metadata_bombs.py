"""Iceberg and Delta metadata that are invalid, contradictory, or far too large.

Some metadata claim far more than they contain. Others decompress to far more than their stored size.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.formats.delta.log_writer import add_file, commit, encode_z85, field, metadata, protocol
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.readers.avro_container import recode
from tests.robustness.bomb_encoders import PACKED, gzipped, long


def _iceberg(folder: Path, version: int = 2) -> IcebergWriter:
    writer = IcebergWriter(folder, [column(1, "a", "long")], version=version)
    writer.commit(writer.data(pa.table({"a": [1, 2, 3]})))
    return writer


def _iceberg_metadata(change: Callable[[dict[str, Any]], Any], is_packed: bool = False) -> Callable[[Path], None]:
    """Return a writer of a table with changed metadata.

    `change` returns the new content of the metadata file, or modifies the document in place and returns None. With
    `is_packed`, the content is compressed by gzip.
    """

    def write(folder: Path) -> None:
        _iceberg(folder)
        (path,) = (folder / "metadata").glob("*.metadata.json")
        document = json.loads(path.read_text())
        changed_document = change(document)
        data = (
            changed_document
            if isinstance(changed_document, bytes)
            else (changed_document or json.dumps(document)).encode()
        )
        path.write_bytes(gzip.compress(data, 1) if is_packed else data)

    return write


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def _spliced(key: str, text: str) -> Callable[[dict[str, Any]], str]:
    """Return a function that encodes a document with `text` as the value of `key`.

    The text need not be valid JSON.
    """
    return lambda document: json.dumps(document | {key: "@@@"}).replace('"@@@"', text)


def _deep_schema(levels: int) -> list[dict[str, Any]]:
    type_: Any = "long"
    for level in range(levels):
        type_ = {"type": "struct", "fields": [{"id": level + 10, "name": "f", "required": False, "type": type_}]}
    fields = [{"id": 1, "name": "a", "required": False, "type": type_}]
    return [{"type": "struct", "schema-id": 0, "fields": fields}]


def _wide_schema(count: int) -> list[dict[str, Any]]:
    fields = [{"id": at, "name": f"c{at}", "required": False, "type": "long"} for at in range(1, count + 1)]
    return [{"type": "struct", "schema-id": 0, "fields": fields}]


def _packed_manifest(codec: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        _iceberg(folder)
        for path in (folder / "metadata").glob("snap-*.avro"):
            recode(path, codec)
            data = path.read_bytes()
            sync = data[-16:]
            head = data[: data.index(sync) + 16]
            block = PACKED[codec]()
            path.write_bytes(head + long(1) + long(len(block)) + block + sync)

    return write


def _listed_twice(folder: Path) -> None:
    """Write a manifest list with very many references to its only manifest."""
    writer = _iceberg(folder)
    original = IcebergWriter._avro

    def write(self: IcebergWriter, name: str, schema: Any, records: Any) -> None:
        original(self, name, schema, list(records) * (1000 if name.startswith("snap-") else 1))

    IcebergWriter._avro = write  # type: ignore[method-assign]
    try:
        writer.commit()
    finally:
        IcebergWriter._avro = original  # type: ignore[method-assign]


def _list_of_itself(folder: Path) -> None:
    """Write a metadata file that names the manifest list as if it were a manifest."""
    _iceberg(folder, version=1)
    (path,) = (folder / "metadata").glob("*.metadata.json")
    document = json.loads(path.read_text())
    snapshot = document["snapshots"][0]
    snapshot["manifests"] = [snapshot.pop("manifest-list")]
    path.write_text(json.dumps(document))


def _runs(containers: int) -> bytes:
    """Return a deletion vector of full containers, in which 14 bytes stand for 65,536 deleted rows."""
    flags = b"\xff" * ((containers + 7) // 8)
    heads = b"".join(struct.pack("<HH", key, 65_535) for key in range(containers))
    offsets = bytes(4 * containers) if containers >= 4 else b""
    body = struct.pack("<HHH", 1, 0, 65_535) * containers
    bitmap = struct.pack("<I", 12347 | (containers - 1) << 16) + flags + heads + offsets + body
    return struct.pack("<Iq", 1681511377, 1) + struct.pack("<I", 0) + bitmap


def _delta_vector(data: bytes, cardinality: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        add = add_file(folder, pa.table({"a": list(range(10))}), "data.parquet")
        padded_data = data + bytes(-len(data) % 4)
        vector = {"storageType": "i", "pathOrInlineDv": encode_z85(padded_data), "sizeInBytes": len(data)}
        add["add"]["deletionVector"] = vector | {"cardinality": cardinality}
        table = metadata([field("a", "long")], **{"delta.enableDeletionVectors": "true"})
        commit(folder, protocol("deletionVectors"), table, add)

    return write


def _iceberg_vector(data: bytes, cardinality: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        writer = IcebergWriter(folder, [column(1, "a", "long")], version=3)
        rows = writer.data(pa.table({"a": list(range(10))}))
        vector = writer.deletion_vector(rows["file_path"], [0])
        blob = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        Path(vector["file_path"]).write_bytes(b"PFA1" + blob)
        blob_location = {"content_offset": 4, "content_size_in_bytes": len(blob), "record_count": cardinality}
        writer.commit(rows, vector | blob_location)

    return write


def _delta_commit(line: Callable[[dict[str, Any]], str]) -> Callable[[Path], None]:
    """Return a writer of a Delta table whose log has one more line, derived from its add action."""

    def write(folder: Path) -> None:
        add = add_file(folder, pa.table({"a": [1]}), "data.parquet")
        commit(folder, protocol(), metadata([field("a", "long")]), add)
        (log,) = (folder / "_delta_log").glob("*.json")
        log.write_text(log.read_text() + line(add) + "\n", encoding="utf-8", errors="surrogatepass")

    return write


def _changed_add(**values: Any) -> Callable[[dict[str, Any]], str]:
    return lambda add: json.dumps({"add": add["add"] | {"path": "other.parquet"} | values})


def _delta_schema(fields: Callable[[], list[dict[str, Any]]]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        commit(folder, protocol(), metadata(fields()), add_file(folder, pa.table({"a": [1]}), "data.parquet"))

    return write


def _nested_field(levels: int) -> dict[str, Any]:
    type_: Any = "long"
    for _ in range(levels):
        type_ = {"type": "array", "elementType": type_, "containsNull": True}
    return field("a", type_)


_FULL = _runs(60_000)

METADATA_BOMBS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    **{
        f"manifest list {codec}": (
            _packed_manifest(codec),
            r"manifest list .*snap-.*avro.*(decompress to more than|declare a size)",
        )
        for codec in PACKED
    },
    "manifest list, twice": (_listed_twice, r"manifest list .*snap-.*avro.*the manifest .*twice"),
    "manifest list of itself": (_list_of_itself, r"manifest .*snap-.*avro.*lacks"),
    "metadata gzip": (_iceberg_metadata(lambda _: gzipped()), r"v1\.metadata\.json.*decompress to more than"),
    "metadata values": (
        _iceberg_metadata(lambda _: "[" + "[]," * 20_000_000 + "0]", is_packed=True),
        r"v1\.metadata\.json.*values in .* packed bytes; at most",
    ),
    "metadata lists": (
        _iceberg_metadata(lambda _: "[" + "[]," * 21_000_000 + "0]"),
        r"v1\.metadata\.json.*values; at most",
    ),
    "metadata deep": (_iceberg_metadata(lambda _: "[" * 100_000), r"v1\.metadata\.json.*nested too deeply"),
    "metadata digits": (
        _iceberg_metadata(_spliced("last-updated-ms", "9" * 1_000_000)),
        r"v1\.metadata\.json.*4300 digits",
    ),
    "metadata infinite": (
        _iceberg_metadata(_spliced("last-updated-ms", "1e999")),
        r"v1\.metadata\.json.*last-updated-ms is inf",
    ),
    "metadata no number": (
        _iceberg_metadata(_spliced("last-updated-ms", "NaN")),
        r"v1\.metadata\.json.*last-updated-ms is nan",
    ),
    "metadata twice": (
        _iceberg_metadata(lambda one: json.dumps(one)[:-1] + ', "location": "/x"}'),
        r"v1\.metadata\.json.*key 'location' twice",
    ),
    "metadata halves": (
        _iceberg_metadata(_set(location="\ud800")),
        r"v1\.metadata\.json.*location is '\\ud800', not a text of whole",
    ),
    "metadata year": (_iceberg_metadata(_set(**{"last-updated-ms": 1 << 62})), r"v1\.metadata\.json.*year"),
    "schema deep": (
        _iceberg_metadata(_set(schemas=_deep_schema(120))),
        r"v1\.metadata\.json.*inside of each other in a schema; at most 100",
    ),
    "schema wide": (
        _iceberg_metadata(_set(schemas=_wide_schema(100_001))),
        r"v1\.metadata\.json.*fields in a schema; at most 100,000",
    ),
    "schema twice": (
        _iceberg_metadata(
            _set(schemas=[{"type": "struct", "schema-id": 0, "fields": _wide_schema(1)[0]["fields"] * 2}])
        ),
        r"v1\.metadata\.json.*twice",
    ),
    "delta vector": (
        _delta_vector(_FULL, 60_000 << 16),
        r"data\.parquet: its deletion vector.*3,932,160,000 deleted rows of one data file; at most",
    ),
    "delta vector, fewer": (
        _delta_vector(_FULL, 5),
        r"data\.parquet: its deletion vector.*deletes 3932160000 rows, but the log records 5",
    ),
    "delta vector, one": (
        _delta_vector(_runs(1500), 1500 << 16),
        r"data\.parquet: its deletion vector.*deletes row .*the data file has 10 rows",
    ),
    "iceberg vector": (
        _iceberg_vector(_FULL, 60_000 << 16),
        r"the deletion vector in .*puffin.*3,932,160,000 deleted rows of one data file; at most",
    ),
    "iceberg vector, fewer": (
        _iceberg_vector(_FULL, 5),
        r"the deletion vector in .*puffin.*deletes 3932160000 rows, but the manifest records 5",
    ),
    "delta line": (
        _delta_commit(lambda _: '{"x": "' + "y" * (65 << 20) + '"}'),
        r"0\.json.*line 5.*bytes in a line; at most",
    ),
    "delta values": (
        _delta_commit(lambda _: "[" + "[]," * 5_000_000 + "0]"),
        r"0\.json.*line 5.*values in a line; at most",
    ),
    "delta deep": (_delta_commit(lambda _: '{"x":' * 100_000), r"0\.json.*line 5.*nested too deeply"),
    "delta no object": (_delta_commit(lambda _: "[1]"), r"0\.json.*line 5.*a list of 1, not an object"),
    "delta twice": (_delta_commit(lambda _: '{"add": 1, "add": 2}'), r"0\.json.*key 'add' twice"),
    "delta size": (_delta_commit(_changed_add(size=-1)), r"0\.json.*size is -1, not a whole number"),
    "delta size of text": (_delta_commit(_changed_add(size="1")), r"0\.json.*size is '1', not a whole number"),
    "delta no path": (_delta_commit(_changed_add(path="")), r"0\.json.*path is '', not a text"),
    "delta NUL": (_delta_commit(_changed_add(path="a\0.parquet")), r"0\.json.*path is 'a\\x00"),
    "delta folder": (_delta_commit(_changed_add(path="_delta_log")), r"_delta_log.*"),
    "delta values of numbers": (
        _delta_commit(_changed_add(partitionValues={"p": 1})),
        r"0\.json.*partition value 'p' is 1, not a text",
    ),
    "delta rows": (_delta_commit(_changed_add(stats='{"numRecords": -5}')), r"0\.json.*numRecords is -5"),
    "delta schema deep": (
        _delta_schema(lambda: [_nested_field(120)]),
        r"_delta_log.*inside of each other in a schema; at most 100",
    ),
    "delta schema wide": (
        _delta_schema(lambda: [field(f"c{at}", "long") for at in range(100_001)]),
        r"_delta_log.*fields in a schema; at most 100,000",
    ),
    "delta schema twice": (
        _delta_schema(lambda: [field("a", "long"), field("A", "long")]),
        r"_delta_log.*a field named 'a'.*twice",
    ),
}
"""Bombs by name: a function that writes the table, and a pattern of the error."""
