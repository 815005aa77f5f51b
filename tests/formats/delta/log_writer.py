"""A writer of Delta commits that deltalake cannot write.

Examples are deletion vectors, column mapping, and arbitrary actions. The writer shares no code with the reader.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def log_files(table: Path) -> list[Path]:
    return sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def commit(table: Path, *actions: dict[str, Any]) -> int:
    """Write the next commit of a table, with these actions.

    Return its version.
    """
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    existing = log_files(table)
    version = int(existing[-1].stem) + 1 if existing else 0
    info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "TEST"}}
    lines = [json.dumps(action) for action in (info, *actions)]
    (table / "_delta_log" / f"{version:020}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return version


def newest(table: Path, kind: str, path: str | None = None) -> dict[str, Any]:
    """Return the content of the newest action of a kind, such as `add`.

    With `path`, only actions of this file count.
    """
    for file in reversed(log_files(table)):
        for line in reversed(file.read_text(encoding="utf-8").splitlines()):
            action = json.loads(line).get(kind)
            if action and path in (None, action.get("path")):
                return dict(action)
    raise AssertionError(f"no {kind} of {path}")


def delete_rows(table: Path, path: str, positions: Sequence[int], storage: str = "u") -> None:
    """Commit a deletion vector for a data file.

    `positions` are all deleted rows, including those of an earlier vector. `storage` is as for `write_vector`.
    """
    add = newest(table, "add", path)
    old = add.get("deletionVector")
    remove = {"path": path, "dataChange": True, "deletionTimestamp": 1, "partitionValues": add["partitionValues"]}
    if old:
        remove["deletionVector"] = old
    vector = write_vector(table, positions, storage)
    commit(table, {"add": add | {"deletionVector": vector, "dataChange": True}}, {"remove": remove})


def write_vector(table: Path, positions: Sequence[int], storage: str, padding: int = 3) -> dict[str, Any]:
    """Store a deletion vector, and return its descriptor.

    `storage` is the letter of the protocol: `u` for a file below the table, `p` for a file with an absolute URI, or `i`
    for inline. `padding` bytes precede the vector in its file.
    """
    data = encode_array(sorted(positions))
    if storage == "i":
        padded_data = data + b"\0" * (-len(data) % 4)
        return _descriptor("i", encode_z85(padded_data), None, len(data), len(positions))
    name = uuid.uuid4()
    file = table / f"deletion_vector_{name}.bin"
    offset = 1 + padding
    file_data = b"\1" + b"\xff" * padding + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if storage == "u":
        folder = table / "ab"
        folder.mkdir(exist_ok=True)
        file = folder / file.name
        file.write_bytes(file_data)
        return _descriptor("u", f"ab{encode_z85(name.bytes)}", offset, len(data), len(positions))
    file.write_bytes(file_data)
    return _descriptor("p", file.as_uri(), offset, len(data), len(positions))


def encode_array(values: Sequence[int]) -> bytes:
    """Encode positions as a RoaringBitmapArray in the portable format."""
    keys = sorted({value >> 32 for value in values})
    result = struct.pack("<Iq", 1681511377, len(keys))
    for key in keys:
        result += struct.pack("<I", key) + encode_bitmap([v & 0xFFFFFFFF for v in values if v >> 32 == key])
    return result


def encode_bitmap(values: Sequence[int], runs: bool = False) -> bytes:
    """Encode values as a 32-bit Roaring bitmap.

    With `runs`, every container is a run container.
    """
    containers = {key: [v & 0xFFFF for v in values if v >> 16 == key] for key in sorted({v >> 16 for v in values})}
    header = b"".join(struct.pack("<HH", key, len(content) - 1) for key, content in containers.items())
    bodies = [_container(content, runs) for content in containers.values()]
    if runs:
        flags = np.packbits(np.ones(len(containers), np.uint8), bitorder="little").tobytes()
        start = struct.pack("<I", 12347 | (len(containers) - 1) << 16) + flags + header
        with_offsets = len(containers) >= 4
    else:
        start = struct.pack("<II", 12346, len(containers)) + header
        with_offsets = True
    offsets = b""
    if with_offsets:
        at = len(start) + 4 * len(containers)
        for body in bodies:
            offsets += struct.pack("<I", at)
            at += len(body)
    return start + offsets + b"".join(bodies)


def encode_z85(data: bytes) -> str:
    result = ""
    for (number,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits.append(_Z85[digit])
        result += "".join(reversed(digits))
    return result


def _container(content: list[int], runs: bool) -> bytes:
    """Return a container of a Roaring bitmap with the values in `content`.

    If `runs`, the container is run-length encoded.
    """
    if runs:
        pairs: list[list[int]] = []
        for value in content:
            if pairs and pairs[-1][0] + pairs[-1][1] + 1 == value:
                pairs[-1][1] += 1
            else:
                pairs.append([value, 0])
        return struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs)
    if len(content) <= 4096:
        return b"".join(struct.pack("<H", value) for value in content)
    bits = np.zeros(65536, np.uint8)
    bits[content] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _descriptor(storage: str, path: str, offset: int | None, size: int, cardinality: int) -> dict[str, Any]:
    result = {"storageType": storage, "pathOrInlineDv": path, "sizeInBytes": size, "cardinality": cardinality}
    return result if offset is None else result | {"offset": offset}


def protocol(*features: str) -> dict[str, Any]:
    """Return the protocol action of a table that requires these features of readers and writers."""
    action: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": action | {"readerFeatures": list(features), "writerFeatures": list(features)}}


def metadata(
    fields: Sequence[dict[str, Any]], partition_columns: Sequence[str] = (), **configuration: str
) -> dict[str, Any]:
    """Return the metaData action of a table with these columns.

    `configuration` has its table properties.
    """
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
            "partitionColumns": list(partition_columns),
            "configuration": configuration,
            "createdTime": 1,
        }
    }


def field(name: str, type_: Any, **metadata: Any) -> dict[str, Any]:
    """Return a column in Delta's JSON form."""
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def struct_of(*fields: dict[str, Any]) -> dict[str, Any]:
    """Return a struct type in Delta's JSON form."""
    return {"type": "struct", "fields": list(fields)}


def list_of(element: Any) -> dict[str, Any]:
    """Return a list type in Delta's JSON form."""
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    """Return a map type in Delta's JSON form."""
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def mapped(name: str, type_: Any, number: int, physical: str | None = None) -> dict[str, Any]:
    """Return a column with column mapping in Delta's JSON form.

    Its id is `number`, and its physical name is `p<number>` by default.
    """
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical or f"p{number}"}
    return {"name": name, "type": type_, "nullable": True, "metadata": ids}


def add_file(
    table: Path, data: pa.Table, path: str = "f.parquet", log_path: str | None = None, **values: Any
) -> dict[str, Any]:
    """Write a data file, and return its add action.

    Args:
        table: The folder of the table.
        data: The rows of the file.
        path: The path of the file below the table.
        log_path: The path in the action, if it differs from `path`.
        values: The partition values in the action, by physical name.
    """
    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, file)
    return {
        "add": {
            "path": log_path or path,
            "partitionValues": values,
            "size": file.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": data.num_rows}),
        }
    }
