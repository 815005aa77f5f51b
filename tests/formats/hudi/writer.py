"""A writer of Hudi table versions 6 and 9 according to the specification.

It shares no code with the reader.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, Any]

META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
FIELDS = [
    {"name": "key", "type": ["null", "string"], "default": None},
    {"name": "part", "type": ["null", "string"], "default": None},
    {"name": "ts", "type": ["null", "long"], "default": None},
    {"name": "value", "type": ["null", "double"], "default": None},
]
_ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "int": pa.int32(), "boolean": pa.bool_()}
_WRAPPED: dict[str, Any] = {
    "Boolean": "boolean",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Bytes": "bytes",
    "String": "string",
    "Date": "int",
    "Decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicros": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicros": "long",
}
_WRAPPERS: list[Any] = [
    {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": type_}]}
    for name, type_ in _WRAPPED.items()
]
_DELETES = {
    "type": "record",
    "name": "HoodieDeleteRecordList",
    "fields": [
        {
            "name": "deleteRecordList",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieDeleteRecord",
                    "fields": [
                        {"name": "recordKey", "type": ["null", "string"]},
                        {"name": "partitionPath", "type": ["null", "string"]},
                        {"name": "orderingVal", "type": ["null", *_WRAPPERS]},
                    ],
                },
            },
        }
    ],
}
_NAMES: dict[str, Any] = {"type": "array", "items": "string"}
_SERVICES: dict[str, Any] = {
    "commitsRollback": _NAMES,
    "partitionMetadata": {
        "type": "map",
        "values": {
            "type": "record",
            "name": "cleaned",
            "fields": [
                {"name": "partitionPath", "type": "string"},
                {"name": "successDeleteFiles", "type": _NAMES},
                {"name": "failedDeleteFiles", "type": _NAMES},
            ],
        },
    },
}


@dataclass
class Slice:
    """The newest files of a file group, and their expected rows."""

    partition: str
    file_id: str
    base_instant: str
    base_name: str = ""
    logs: int = 0
    base_rows: dict[str, Row] = field(default_factory=dict)
    changes: list[tuple[str, Row | None, int]] = field(default_factory=list)
    """Changes since the base file: key, row or None for a delete, and ordering value."""
    planned: tuple[str, int] | None = None
    """A pending compaction: its instant, and how many changes it includes."""


class HudiWriter:
    """A writer of one table.

    A write has three steps, which tests may omit: its request, its files, and its completion. With `by_commit`, the
    table merges records by commit time, otherwise by the ordering field `ts`.
    """

    def __init__(
        self,
        folder: Path,
        version: int = 6,
        *,
        by_commit: bool = False,
        fields: list[dict[str, Any]] = FIELDS,
        key: str = "key",
        partition_field: str = "part",
    ) -> None:
        self.folder = folder
        self.version = version
        self.by_commit = by_commit
        self.fields = list(fields)
        self.key = key
        self.partition_field = partition_field
        self.meta_columns = META
        """Columns that Hudi adds; none in tables without meta fields."""
        self.types: dict[str, pa.DataType] = {}
        """Arrow types of columns whose Avro type is not in `_ARROW`."""
        self.slices: dict[str, Slice] = {}
        self._clock = datetime(2024, 1, 1)
        self._groups = 0
        timeline = folder / ".hoodie" / ("timeline/history" if version >= 8 else "archived")
        timeline.mkdir(parents=True)
        self.timeline = folder / ".hoodie" / ("timeline" if version >= 8 else "")
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": str(version),
            "hoodie.timeline.layout.version": "2" if version >= 8 else "1",
            "hoodie.table.recordkey.fields": key,
            "hoodie.table.partition.fields": partition_field,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING" if by_commit else "EVENT_TIME_ORDERING",
        }
        if any(one["name"] == "ts" for one in fields):
            properties["hoodie.table.precombine.field" if version < 9 else "hoodie.table.ordering.fields"] = "ts"
        self.set_properties(**properties)

    def set_properties(self, **properties: str) -> None:
        path = self.folder / ".hoodie" / "hoodie.properties"
        old = path.read_text() if path.exists() else "#made by a test\n"
        path.write_text(old + "".join(f"{key}={value}\n" for key, value in properties.items()))

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": self.fields}

    def tick(self) -> str:
        """Return the next instant."""
        self._clock += timedelta(seconds=1)
        return self._clock.strftime("%Y%m%d%H%M%S") + "007"

    def request(self, instant: str, action: str) -> None:
        """Write the timeline files of a write that has started."""
        inflight = f"{instant}.inflight" if action == "commit" else f"{instant}.{action}.inflight"
        (self.timeline / f"{instant}.{action}.requested").write_bytes(b"")
        (self.timeline / inflight).write_bytes(b"")

    def complete(
        self,
        instant: str,
        action: str,
        stats: Iterable[Mapping[str, Any]],
        replaced_slices: Iterable[Slice] = (),
        operation: str = "UPSERT",
    ) -> str:
        """Write the metadata of a completed write, and forget the slices that it replaced.

        Return its instant.

        Args:
            instant: The instant of the write.
            action: Its action, such as `commit`.
            stats: The write stats of its files, which `base_file` and `log_file` return.
            replaced_slices: The slices that it replaced.
            operation: Its operation, which the metadata record.
        """
        partitions: dict[str, list[Any]] = {}
        for stat in stats:
            partitions.setdefault(stat["partitionPath"], []).append(stat)
        document: dict[str, Any] = {
            "partitionToWriteStats": partitions,
            "compacted": False,
            "extraMetadata": {"schema": json.dumps(self.schema)},
            "operationType": operation,
        }
        removed_files: dict[str, list[str]] = {}
        for one in replaced_slices:
            removed_files.setdefault(one.partition, []).append(one.file_id)
            self.slices.pop(one.file_id)
        if removed_files:
            document["partitionToReplaceFileIds"] = removed_files
        name = f"{instant}_{self.tick()}.{action}" if self.version >= 8 else f"{instant}.{action}"
        (self.timeline / name).write_text(json.dumps(document))
        return instant

    def clean(self, removed_names: Mapping[str, Iterable[str]]) -> str:
        """Remove data files, given as names by partition, as the cleaner does.

        Return the instant of the clean.
        """
        instant = self.tick()
        for partition, names in removed_names.items():
            for name in names:
                (self.folder / partition / name).unlink()
        metadata = {
            partition: {"partitionPath": partition, "successDeleteFiles": list(names), "failedDeleteFiles": []}
            for partition, names in removed_names.items()
        }
        return self._service(instant, "clean", "partitionMetadata", metadata)

    def record_rollback(self, targets: Iterable[str], action: str = "rollback") -> str:
        """Record that the instants in `targets` were rolled back, without changing their files.

        `action` is `rollback` or `restore`. Return the instant of the action.
        """
        return self._service(self.tick(), action, "commitsRollback", list(targets))

    def _service(self, instant: str, action: str, name: str, value: Any) -> str:
        """Complete an instant of a table service, and return the instant.

        The metadata, which are always Avro, have the field `name` with `value`.
        """
        schema = {"type": "record", "name": "service", "fields": [{"name": name, "type": _SERVICES[name]}]}
        out = io.BytesIO()
        fastavro.writer(out, fastavro.parse_schema(schema), [{name: value}])
        file = f"{instant}_{self.tick()}.{action}" if self.version >= 8 else f"{instant}.{action}"
        (self.timeline / file).write_bytes(out.getvalue())
        return instant

    def new_slice(self, part: str, instant: str) -> Slice:
        self._groups += 1
        partition = f"{self.partition_field}={part}" if self.partition_field else part
        (self.folder / partition).mkdir(parents=True, exist_ok=True)
        (self.folder / partition / ".hoodie_partition_metadata").write_text("#partition metadata\n")
        return Slice(partition, f"{self._groups:08}-1111-4222-8333-444444444444-0", instant)

    def base_file(self, one: Slice, instant: str, rows: Iterable[Row], token: str = "0-1-2") -> dict[str, Any]:
        """Write a base file with these rows, and return its write stat for a commit.

        `token` identifies the task in the file's name.
        """
        name = f"{one.file_id}_{token}_{instant}.parquet"
        path = f"{one.partition}/{name}".lstrip("/")
        records = [self._stored(one, instant, number, row, name) for number, row in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(records, self._arrow()), self.folder / path, row_group_size=3)
        previous = one.base_name.rpartition("_")[2].removesuffix(".parquet") or "null"
        return self._stat(one, path, len(records), previous)

    def log_file(
        self,
        one: Slice,
        instant: str,
        rows: Iterable[Row] = (),
        deletes: Mapping[str, Any] | None = None,
        kind: int = 3,
    ) -> dict[str, Any]:
        """Write a log file with a block of rows and blocks of deletes.

        Return its write stat for a commit.

        Args:
            one: The file slice.
            instant: The instant of the write.
            rows: Inserted and updated rows.
            deletes: The ordering value of each delete by record key: an integer, or a pair such as ("Double", 1.0).
            kind: The kind of the block of rows: 3 for Avro, otherwise Parquet.
        """
        content = b""
        records = list(rows)
        schema = json.dumps(self.stored_schema)
        if records:
            stored_rows = [self._stored(one, instant, number, row, "") for number, row in enumerate(records)]
            data = self._avro_block(stored_rows) if kind == 3 else self._parquet_block(stored_rows)
            content += block(kind, {0: instant, 2: schema}, data)
        # All ordering values of a block have one type.
        for absolute in (True, False):
            if chosen_deletes := {key: value for key, value in (deletes or {}).items() if (value == 0) == absolute}:
                content += block(1, {0: instant, 2: schema}, self._delete_block(one, chosen_deletes))
        return self.raw_log_file(one, instant, content)

    def raw_log_file(self, one: Slice, instant: str, content: bytes) -> dict[str, Any]:
        one.logs += 1
        name_instant = instant if self.version >= 8 else one.base_instant
        version = 1 if self.version >= 8 else one.logs
        name = f".{one.file_id}_{name_instant}.log.{version}_0-{one.logs}-1"
        path = f"{one.partition}/{name}".lstrip("/")
        (self.folder / path).write_bytes(content)
        stat = self._stat(one, path, 1, instant if self.version >= 8 else one.base_instant)
        return stat | {"logFiles": [name], "baseFile": one.base_name if self.version < 8 else None}

    @property
    def stored_schema(self) -> dict[str, Any]:
        meta_fields = [{"name": name, "type": ["null", "string"], "default": None} for name in self.meta_columns]
        return self.schema | {"fields": [*meta_fields, *self.fields]}

    def _stored(self, one: Slice, instant: str, number: int, row: Row, name: str) -> dict[str, Any]:
        meta_values: dict[str, Any] = dict(
            zip(META, [instant, f"{instant}_0_{number}", str(row[self.key]), one.partition, name], strict=True)
        )
        if "_hoodie_operation" in self.meta_columns:
            meta_values["_hoodie_operation"] = row.get("_hoodie_operation")
        fields = {one["name"]: row.get(one["name"]) for one in self.fields}
        return fields | meta_values if self.meta_columns else fields

    def _arrow(self) -> pa.Schema:
        typed_fields = [(one["name"], self.types.get(one["name"]) or _ARROW[one["type"][1]]) for one in self.fields]
        return pa.schema([*((name, pa.string()) for name in self.meta_columns), *typed_fields])

    def _avro_block(self, records: list[dict[str, Any]]) -> bytes:
        out = io.BytesIO()
        out.write((3).to_bytes(4, "big") + len(records).to_bytes(4, "big"))
        for record in records:
            one = io.BytesIO()
            fastavro.schemaless_writer(one, fastavro.parse_schema(self.stored_schema), record)
            out.write(len(one.getvalue()).to_bytes(4, "big") + one.getvalue())
        return out.getvalue()

    def _parquet_block(self, records: list[dict[str, Any]]) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(records, self._arrow()), sink)
        return sink.getvalue().to_pybytes()

    def _delete_block(self, one: Slice, deletes: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        entries = [
            {"recordKey": key, "partitionPath": one.partition, "orderingVal": _ordering(ordering)}
            for key, ordering in deletes.items()
        ]
        fastavro.schemaless_writer(out, fastavro.parse_schema(_DELETES), {"deleteRecordList": entries})
        return (3).to_bytes(4, "big") + len(out.getvalue()).to_bytes(4, "big") + out.getvalue()

    def _stat(self, one: Slice, path: str, rows: int, previous: str) -> dict[str, Any]:
        return {
            "fileId": one.file_id,
            "path": path,
            "prevCommit": previous,
            "numWrites": rows,
            "partitionPath": one.partition,
            "fileSizeInBytes": (self.folder / path).stat().st_size,
        }


def _ordering(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the ordering value as stored.

    Zero stands for no ordering value, and is stored as a 32-bit integer.
    """
    if isinstance(value, tuple):
        return f"{value[0]}Wrapper", {"value": value[1]}
    return ("LongWrapper" if value else "IntWrapper", {"value": value})


def block(kind: int, headers: Mapping[int, str], content: bytes) -> bytes:
    """Return one block of a log file.

    `kind` and the keys of `headers` are numbers of Hudi's specification.
    """
    head = len(headers).to_bytes(4, "big")
    for key, text in headers.items():
        head += key.to_bytes(4, "big") + len(text.encode()).to_bytes(4, "big") + text.encode()
    body = (1).to_bytes(4, "big") + kind.to_bytes(4, "big") + head
    body += len(content).to_bytes(8, "big") + content + (0).to_bytes(4, "big")
    length = len(body) + 8
    return b"#HUDI#" + length.to_bytes(8, "big") + body + (length + 6).to_bytes(8, "big")


def rollback(instant: str, target: str) -> bytes:
    """Return the block with which `instant` rolls back the blocks of `target`."""
    return block(0, {0: instant, 1: target, 3: "0"}, b"")
