"""A writer of Iceberg tables according to the specification, of any format version.

It writes delete files of every kind and unusual paths. It shares no code with the reader.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tests.formats.delta.log_writer import encode_array

_PUFFIN = b"PFA1"
"""The magic bytes of Puffin files."""
Entry = dict[str, Any]
"""A data file or delete file, by the names of Iceberg's specification."""


def column(field_id: int, name: str, type_: Any, **more: Any) -> dict[str, Any]:
    """Return a field of a schema in Iceberg's JSON form.

    `more` are further attributes, with underscores for hyphens.
    """
    return {"id": field_id, "name": name, "type": type_, "required": False} | {
        key.replace("_", "-"): value for key, value in more.items()
    }


def with_ids(table: pa.Table, ids: Mapping[str, int], key: str = "PARQUET:field_id") -> pa.Table:
    """Return the table with field ids, given by column name, in the metadata `key` of its fields."""
    fields = [field.with_metadata({key: str(ids[field.name])} if field.name in ids else {}) for field in table.schema]
    return table.cast(pa.schema(fields))


class IcebergWriter:
    """A writer of a table in a folder.

    `partition_types` are the Avro types of partition fields by field id.
    """

    def __init__(
        self,
        folder: Path,
        columns: Sequence[dict[str, Any]],
        *,
        specs: Mapping[int, Sequence[dict[str, Any]]] | None = None,
        partition_types: Mapping[int, Any] | None = None,
        version: int = 2,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.location = location or str(folder)
        self.schemas = [list(columns)]
        self.specs = {0: ()} if specs is None else dict(specs)
        self.partition_types = partition_types or {}
        self.version = version
        self.properties = dict(properties or {})
        self.sequence = 0
        self.live: list[Entry] = []
        self.manifests: list[tuple[dict[str, Any], list[Entry]]] = []
        self.snapshots: list[dict[str, Any]] = []
        self.refs: dict[str, Any] = {}
        self.number = 0
        (folder / "metadata").mkdir(parents=True)
        (folder / "data").mkdir()

    @property
    def ids(self) -> dict[str, int]:
        """Return field ids by name, of the newest and older schemas."""
        return {field["name"]: field["id"] for schema in self.schemas for field in schema}

    def data(self, table: pa.Table, *, format_: str = "parquet", ids: bool = True, **more: Any) -> Entry:
        """Write a data file, and return its manifest entry.

        `more` are further fields of the entry. Unless `ids` is false, the file has field ids.
        """
        return self._file(table, format_, ids, "data") | {"content": 0} | more

    def position_deletes(self, rows: Sequence[tuple[str, int]], *, format_: str = "parquet", **more: Any) -> Entry:
        """Write a file of (path, position) pairs, and return its manifest entry.

        `more` are further fields of the entry.
        """
        paths, positions = zip(*sorted(rows), strict=True)
        table = pa.table({"file_path": pa.array(paths), "pos": pa.array(positions, pa.int64())})
        entry = self._file(with_ids(table, {"file_path": 2147483546, "pos": 2147483545}), format_, False, "pos")
        return entry | {"content": 1} | more

    def equality_deletes(self, table: pa.Table, *names: str, format_: str = "parquet", **more: Any) -> Entry:
        """Write a file of equality deletes, and return its manifest entry.

        Args:
            table: The deleted keys, as rows.
            names: The columns that are compared.
            format_: The format of the file.
            more: Further fields of the entry.
        """
        ids = [self.ids[name] for name in names]
        return self._file(table, format_, True, "eq") | {"content": 2, "equality_ids": ids} | more

    def deletion_vector(self, path: str, positions: Collection[int], *, padding: bytes = _PUFFIN, **more: Any) -> Entry:
        """Write a deletion vector of a data file, and return its manifest entry.

        `padding` precedes the vector in its file. `more` are further fields of the entry.
        """
        data = encode_array(sorted(positions))
        blob = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        name = f"data/{uuid.uuid4()}.puffin"
        footer = _puffin_footer(
            len(padding), len(blob), {"referenced-data-file": path, "cardinality": str(len(positions))}
        )
        (self.folder / name).write_bytes(padding + blob + footer)
        blob_at = {
            "content_offset": len(padding),
            "content_size_in_bytes": len(blob),
            "referenced_data_file": path,
        }
        return self._entry(name, "puffin", len(positions)) | {"content": 1} | blob_at | more

    def commit(
        self,
        *added_entries: Entry,
        removed_entries: Collection[Entry] = (),
        branch: str = "main",
        retain_manifests: bool = False,
    ) -> int:
        """Commit a new snapshot of `branch` with these files added and removed, and return its id.

        By default, new manifests list all files. With `retain_manifests`, unchanged manifests are used again. New
        manifests list the added files and the remaining files of manifests that had a removed file.
        """
        self.sequence += 1
        snapshot_id = 1_000_000_000_000_000_000 + self.sequence
        removed_ids = {id(entry) for entry in removed_entries}
        unchanged_manifests = [
            one for one in self.manifests if retain_manifests and not removed_ids & set(map(id, one[1]))
        ]
        retained_entries = {id(entry) for _, entries in unchanged_manifests for entry in entries}
        numbers = {id(entry): number for number, (_, entries) in enumerate(self.manifests, 1) for entry in entries}
        groups: dict[Any, list[Entry]] = {}
        for entry in (entry for entry in self.live if id(entry) not in retained_entries):
            key = (entry["spec_id"], min(1, entry["content"])), numbers[id(entry)] if retain_manifests else 0
            groups.setdefault(key, []).append(entry)
        self.manifests = unchanged_manifests
        for entry in added_entries:
            groups.setdefault(((entry["spec_id"], min(1, entry["content"])), 0), []).append(entry)
        for (key, _), entries in groups.items():
            live = [entry for entry in entries if id(entry) not in removed_ids]
            record = self._manifest(key, live, snapshot_id, [one for one in entries if id(one) in removed_ids])
            self.manifests.append((record, live))
        for entry in added_entries:
            entry.setdefault("sequence_number", self.sequence)
        self.live = [*(entry for entry in self.live if id(entry) not in removed_ids), *added_entries]
        name = f"snap-{snapshot_id}.avro"
        self._avro(name, _MANIFEST_FILE, [record for record, _ in self.manifests])
        self.manifests = [(record, live) for record, live in self.manifests if live]
        self.snapshots.append(
            {
                "snapshot-id": snapshot_id,
                "sequence-number": self.sequence,
                "timestamp-ms": 1_700_000_000_000 + 60_000 * self.sequence,
                "manifest-list": f"{self.location}/metadata/{name}",
                "summary": {"operation": "append"},
                "schema-id": len(self.schemas) - 1,
            }
        )
        self.refs[branch] = {"snapshot-id": snapshot_id, "type": "branch"}
        self.write_metadata()
        return snapshot_id

    def write_metadata(self, **changes: Any) -> Path:
        """Write the next version of the metadata file, with changed top-level fields.

        Return its path.
        """
        self.number += 1
        current = self.refs.get("main", {}).get("snapshot-id", -1)
        schemas = [
            {"type": "struct", "schema-id": index, "fields": fields} for index, fields in enumerate(self.schemas)
        ]
        metadata = {
            "format-version": self.version,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": self.location,
            "last-sequence-number": self.sequence,
            "last-updated-ms": 1_700_000_000_000 + 60_000 * self.sequence + self.number,
            "last-column-id": 100,
            "schemas": schemas,
            "current-schema-id": len(self.schemas) - 1,
            "partition-specs": [{"spec-id": key, "fields": list(fields)} for key, fields in self.specs.items()],
            "default-spec-id": max(self.specs),
            "properties": self.properties,
            "current-snapshot-id": current,
            "snapshots": self.snapshots,
            "snapshot-log": [
                {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in self.snapshots
            ],
            "refs": self.refs,
        }
        path = self.folder / "metadata" / f"v{self.number}.metadata.json"
        path.write_text(json.dumps(metadata | changes))
        return path

    def _file(self, table: pa.Table, format_: str, ids: bool, kind: str) -> Entry:
        name = f"data/{kind}-{uuid.uuid4()}.{format_}"
        path = self.folder / name
        if format_ == "orc":
            orc.write_table(with_ids(table, self.ids, "iceberg.id") if ids else table, path)
        elif format_ == "avro":
            self._write_avro(table, path, ids)
        else:
            pq.write_table(with_ids(table, self.ids) if ids else table, path, row_group_size=4 + table.num_rows // 8)
        return self._entry(name, format_, table.num_rows)

    def _write_avro(self, table: pa.Table, path: Path, ids: bool) -> None:
        delete_ids = self.ids | {"file_path": 2147483546, "pos": 2147483545}
        names = {"int64": "long", "int32": "int", "string": "string", "double": "double"}
        fields = [
            {"name": field.name, "type": ["null", names[str(field.type)]]}
            | ({"field-id": delete_ids[field.name]} if ids or field.name in ("file_path", "pos") else {})
            for field in table.schema
        ]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())

    def _entry(self, name: str, format_: str, rows: int) -> Entry:
        return {
            "file_path": f"{self.location}/{name}",
            "file_format": format_.upper(),
            "partition": (),
            "record_count": rows,
            "file_size_in_bytes": 1,
            "spec_id": 0,
        }

    def _manifest(
        self, key: tuple[int, int], entries: Sequence[Entry], snapshot_id: int, deleted_entries: Sequence[Entry] = ()
    ) -> dict[str, Any]:
        """Write a manifest of live and deleted files.

        Return its entry in the manifest list.

        `key` is the spec id and the content: 0 for data files, 1 for delete files.
        """
        spec_id, content = key
        fields = self.specs[spec_id]
        types = [self.partition_types[field["field-id"]] for field in fields]
        partition = [
            _field(f"p{field['field-id']}", ["null", type_], field["field-id"])
            for field, type_ in zip(fields, types, strict=True)
        ]
        records = []
        statuses = [(entry, 0 if "sequence_number" in entry else 1) for entry in entries]
        for entry, status in [*statuses, *((entry, 2) for entry in deleted_entries)]:
            # Existing files have a recorded sequence number, and new files inherit it.
            values = dict(zip((f"p{field['field-id']}" for field in fields), entry["partition"], strict=True))
            data_file = {name: value for name, value in entry.items() if name != "sequence_number"}
            records.append(
                {
                    "status": status,
                    "snapshot_id": snapshot_id,
                    "sequence_number": entry.get("sequence_number"),
                    "data_file": data_file | {"partition": values},
                }
            )
        name = f"{uuid.uuid4()}-m0.avro"
        self._avro(name, _manifest_entry(partition), records)
        files = [*entries, *deleted_entries]
        return {
            "manifest_path": f"{self.location}/metadata/{name}",
            "manifest_length": 1,
            "partition_spec_id": spec_id,
            "content": content,
            "sequence_number": self.sequence,
            "min_sequence_number": min((entry.get("sequence_number") or self.sequence for entry in entries), default=0),
            "added_snapshot_id": snapshot_id,
            **_counts([*statuses, *((entry, 2) for entry in deleted_entries)]),
            "partitions": [
                _summary([entry["partition"][index] for entry in files], type_) for index, type_ in enumerate(types)
            ],
        }

    def _avro(self, name: str, schema: Any, records: Sequence[Any]) -> None:
        with (self.folder / "metadata" / name).open("wb") as file:
            fastavro.writer(file, schema, records, codec="deflate")


def _puffin_footer(offset: int, length: int, properties: Mapping[str, str]) -> bytes:
    """Return the footer of a Puffin file with one deletion vector."""
    blob = {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1}
    blob |= {"offset": offset, "length": length, "properties": properties}
    payload = json.dumps({"blobs": [blob]}).encode()
    return _PUFFIN + payload + struct.pack("<II", len(payload), 0) + _PUFFIN


def _counts(statuses: Sequence[tuple[Entry, int]]) -> dict[str, int]:
    """Return the numbers of files and rows in a manifest, keyed as in a manifest list."""
    counts = {}
    for number, status in enumerate(("existing", "added", "deleted")):
        rows = [entry["record_count"] for entry, entry_status in statuses if entry_status == number]
        counts |= {f"{status}_files_count": len(rows), f"{status}_rows_count": sum(rows)}
    return counts


def _summary(values: Sequence[Any], type_: Any) -> dict[str, Any]:
    """Return the summary of a partition field's values in a manifest list, without bounds for some types."""
    numbers = [value for value in values if value is not None and value == value]
    bounds = {}
    if numbers and type_ == "string":
        bounds = {"lower_bound": min(numbers).encode(), "upper_bound": max(numbers).encode()}
    elif numbers and isinstance(type_, str) and type_ in _PACKED:
        lower, upper = (struct.pack(_PACKED[type_], value) for value in (min(numbers), max(numbers)))
        bounds = {"lower_bound": lower, "upper_bound": upper}
    is_nan = any(value != value for value in values)
    return {"contains_null": any(value is None for value in values), "contains_nan": is_nan, **bounds}


_PACKED = {"int": "<i", "long": "<q", "float": "<f", "double": "<d", "boolean": "?"}


def _field(name: str, type_: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": type_, "field-id": field_id} | ({"default": None} if isinstance(type_, list) else {})


def _map(name: str, value: str, ids: tuple[int, int, int]) -> dict[str, Any]:
    record = {
        "type": "record",
        "name": f"k{ids[1]}_v{ids[2]}",
        "fields": [_field("key", "int", ids[1]), _field("value", value, ids[2])],
    }
    return _field(name, ["null", {"type": "array", "items": record, "logicalType": "map"}], ids[0])


def _manifest_entry(partition: Sequence[dict[str, Any]]) -> dict[str, Any]:
    data_file = [
        _field("content", "int", 134),
        _field("file_path", "string", 100),
        _field("file_format", "string", 101),
        _field("partition", {"type": "record", "name": "r102", "fields": list(partition)}, 102),
        _field("record_count", "long", 103),
        _field("file_size_in_bytes", "long", 104),
        _map("value_counts", "long", (109, 119, 120)),
        _map("null_value_counts", "long", (110, 121, 122)),
        _map("lower_bounds", "bytes", (125, 126, 127)),
        _map("upper_bounds", "bytes", (128, 129, 130)),
        _field("key_metadata", ["null", "bytes"], 131),
        _field("equality_ids", ["null", {"type": "array", "items": "int", "element-id": 136}], 135),
        _field("referenced_data_file", ["null", "string"], 143),
        _field("content_offset", ["null", "long"], 144),
        _field("content_size_in_bytes", ["null", "long"], 145),
    ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _field("snapshot_id", ["null", "long"], 1),
            _field("sequence_number", ["null", "long"], 3),
            _field("data_file", {"type": "record", "name": "r2", "fields": data_file}, 2),
        ],
    }


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field("contains_null", "boolean", 509),
        _field("contains_nan", ["null", "boolean"], 518),
        _field("lower_bound", ["null", "bytes"], 510),
        _field("upper_bound", ["null", "bytes"], 511),
    ],
}

_MANIFEST_FILE = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _field("partitions", ["null", {"type": "array", "items": _SUMMARY, "element-id": 508}], 507),
    ],
}
