"""Synthetic Delta, Iceberg and Hudi tables of any size: real metadata, without rows.

Each partition has a hundred files, a megabyte each in the metadata. The files do not exist or, in Hudi tables, have no
content. Names contain pseudo-random digits, so that they compress as little as those of real writers. `FilesTable` is
another kind: a folder of small Parquet files, which exist and have rows.

The first state of a table is its content before the commits that are measured.
"""

from __future__ import annotations

import json
import os
import pickle
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.storage.listing import StoredFile
from metastore_assets.storage.location import Location

PER_PARTITION = 100
ROWS = 1_000
SIZE = 1 << 20
COLUMNS = {"id": "long", "text": "string", "price": "double", "shop": "string", "day": "string"}
_CHECKPOINT_ROWS = 100_000
"""Files in one part of a Delta checkpoint."""
_MANIFEST_FILES = 10_000
"""Files in one Iceberg manifest, which has the files of a hundred neighbouring partitions."""
_ODD = 0x9E3779B97F4A7C15F39CC0605CEDC835


@dataclass(frozen=True)
class DataFile:
    """One data file of a synthetic table."""

    number: int
    day: int
    instant: str
    """The time of the commit that added the file, as digits."""
    size: int = SIZE
    rows: int = ROWS

    @property
    def partition(self) -> str:
        """Name of the partition's folder, which is also its partition key."""
        return f"day={self.day:06}"

    @property
    def unique(self) -> str:
        """32 hexadecimal digits that look random."""
        return f"{(self.number + 1) * _ODD % (1 << 128):032x}"

    @property
    def path(self) -> str:
        """Path below the table's folder, as Hudi names files; other formats accept any name."""
        return f"{self.partition}/{self.unique}-0_0-1-2_{self.instant}.parquet"


@dataclass
class Change:
    """The files that a commit adds and removes."""

    added: list[DataFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)


class SyntheticTable(ABC):
    """A table in a folder, to which commits can be added.

    `save` and `load` transfer it between processes.

    `COMMITS` are the kinds of commit, which change only the `touched` partitions. `create` may write only these
    partitions. `complete` then adds the other partitions without another commit.
    """

    format = ""

    def __init__(self, folder: Path, count: int) -> None:
        """Prepare a table with `count` files, a multiple of PER_PARTITION.

        `create` writes it.
        """
        self.folder = folder
        self.count = count
        self.partitions = count // PER_PARTITION
        self.is_complete = True
        """Whether the table has all partitions, not only the touched ones."""
        self._next = count
        self._commits = 0
        """Number of commits after the table's first state."""
        self._added: dict[int, DataFile] = {}
        self._removed: set[int] = set()
        self._history: list[Change] = []

    def save(self, path: Path) -> None:
        """Write this object to a file.

        The table's metadata are not in this file, because they are in the folder.
        """
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> SyntheticTable:
        """Read a file that `save` wrote."""
        table: SyntheticTable = pickle.loads(path.read_bytes())
        return table

    def create(self, *, complete: bool = True) -> None:
        """Write the table's first state, with all partitions or only those that the COMMITS touch."""
        self.is_complete = complete
        self._create()

    def complete(self) -> None:
        """Add the partitions that `create(complete=False)` omitted."""
        self.is_complete = True
        self._write_files()

    @cached_property
    def touched(self) -> frozenset[int]:
        """The partitions that the COMMITS touch."""
        middle = self.partitions // 2
        return frozenset({self.partitions // 3, *_spread(self, 100), *range(middle, middle + 10)})

    @abstractmethod
    def _create(self) -> None:
        """Write the table's first state."""

    @abstractmethod
    def _write_files(self) -> None:
        """Write the metadata that list the files of the first state."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the table's reader see, during the block, files that are not in the folder.

        This base class has no such files.
        """
        yield

    @abstractmethod
    def _commit(self, change: Change, operation: str) -> None:
        """Write a commit with a change.

        The operation is `append`, `delete`, `rewrite` or `restore`.
        """

    def commit(self, kind: str) -> None:
        """Write a commit of a kind, given by its name in `COMMITS`."""
        COMMITS[kind](self)

    def append(self, days: Iterable[int]) -> None:
        """Commit a new file in each of some partitions, given by their numbers."""
        self._apply(Change([self._new_file(day) for day in days]), "append")

    def delete_partition(self, day: int) -> None:
        """Commit the removal of all files of a partition."""
        self._apply(Change([], list(self.files_of(day))), "delete")

    def compact(self, days: Iterable[int]) -> None:
        """Commit one file in place of all files, in each of some partitions, given by their numbers."""
        change = Change()
        for day in days:
            removed_files = list(self.files_of(day))
            sums = (sum(file.size for file in removed_files), sum(file.rows for file in removed_files))
            change.removed += removed_files
            change.added.append(self._new_file(day, *sums))
        self._apply(change, "rewrite")

    def restore(self) -> None:
        """Make the state before the last commit current again."""
        last_change = self._history[-1]
        self._apply(Change(last_change.removed, last_change.added), "restore")

    def files_of(self, day: int) -> Iterator[DataFile]:
        """Yield the live files of a partition."""
        first = day * PER_PARTITION
        yield from (file for file in self.base_files(first, first + PER_PARTITION) if file.number not in self._removed)
        yield from (file for file in self._added.values() if file.day == day)

    def base_files(self, first: int, last: int) -> Iterator[DataFile]:
        """Yield files of the first state, from number `first` (inclusive) to `last` (exclusive).

        Files of untouched partitions are left out until `complete` has added them.
        """
        touched_partitions = self.touched
        for number in range(first, min(last, self.count)):
            if self.is_complete or number // PER_PARTITION in touched_partitions:
                yield DataFile(number, number // PER_PARTITION, _FIRST_INSTANT)

    def _new_file(self, day: int, size: int = SIZE, rows: int = ROWS) -> DataFile:
        self._next += 1
        return DataFile(self._next - 1, day, _instant(self._commits + 1), size, rows)

    def _apply(self, change: Change, operation: str) -> None:
        self._commits += 1
        for file in change.removed:
            if self._added.pop(file.number, None) is None:
                self._removed.add(file.number)
        for file in change.added:
            if file.number < self.count:
                self._removed.discard(file.number)
            else:
                self._added[file.number] = file
        self._commit(change, operation)
        self._history.append(change)


def _instant(number: int) -> str:
    """Return the time of a commit as digits.

    Commit 0 is at 2024-02-01 00:00, and each further commit is one minute later.
    """
    return (datetime(2024, 2, 1, tzinfo=UTC) + timedelta(minutes=number)).strftime("%Y%m%d%H%M%S") + "000"


_FIRST_INSTANT = "20240101000000000"
"""The time of the commit of the first files."""


def _spread(table: SyntheticTable, count: int) -> list[int]:
    """Return the numbers of up to `count` partitions at equal distances."""
    count = min(count, table.partitions)
    return [number * table.partitions // count for number in range(count)]


COMMITS: Mapping[str, Callable[[SyntheticTable], None]] = {
    "one file": lambda table: table.append([table.partitions // 2]),
    "100 files in 100 partitions": lambda table: table.append(_spread(table, 100)),
    "delete a partition": lambda table: table.delete_partition(table.partitions // 3),
    "compact 1,000 files to 10": lambda table: table.compact(range(table.partitions // 2, table.partitions // 2 + 10)),
    "restore": lambda table: table.restore(),
}
"""The measured commits, in their order. `restore` takes back the compaction."""

_SPARK_TYPES = {"long": "long", "string": "string", "double": "double"}


class DeltaTable(SyntheticTable):
    """A Delta log: a checkpoint in parts, and a JSON file per commit."""

    format = "delta"
    _FIRST = 10

    def _create(self) -> None:
        self.version = self._FIRST
        self._log.mkdir(parents=True)
        self._write({"add": self._add(file)} for file in self.files_of(self.partitions // 2))
        self._write_files()

    def _write_files(self) -> None:
        """Write the checkpoint of the table's first state, in parts."""
        for old in self._log.glob("*.checkpoint.*"):
            old.unlink()
        parts = -(-self.count // _CHECKPOINT_ROWS)
        size = 2
        for part in range(parts):
            name = f"{self.version:020}.checkpoint.{part + 1:010}.{parts:010}.parquet"
            files = list(self.base_files(part * _CHECKPOINT_ROWS, (part + 1) * _CHECKPOINT_ROWS))
            size += len(files)
            pq.write_table(self._checkpoint(files, is_first=part == 0), self._log / name, compression="snappy")
        hint = {"version": self.version, "size": size, "parts": parts}
        (self._log / "_last_checkpoint").write_text(json.dumps(hint))

    def _commit(self, change: Change, operation: str) -> None:
        self.version += 1
        removes = [
            {"remove": {"path": file.path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True,
                        "extendedFileMetadata": True, "partitionValues": {"day": f"{file.day:06}"}, "size": file.size}}
            for file in change.removed
        ]  # fmt: skip
        self._write([*removes, *({"add": self._add(file)} for file in change.added)])

    @property
    def _log(self) -> Path:
        return self.folder / "_delta_log"

    def _write(self, actions: Iterable[Mapping[str, Any]]) -> None:
        info = {"commitInfo": {"timestamp": 1_700_000_000_000 + self.version, "operation": "WRITE"}}
        with (self._log / f"{self.version:020}.json").open("w") as file:
            file.writelines(f"{json.dumps(action)}\n" for action in chain([info], actions))

    def _add(self, file: DataFile) -> dict[str, Any]:
        return {
            "path": file.path,
            "partitionValues": {"day": f"{file.day:06}"},
            "size": file.size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": _STATS.replace("ROWS", str(file.rows)),
        }

    def _checkpoint(self, files: Sequence[DataFile], *, is_first: bool) -> pa.Table:
        """Return the rows of a Delta checkpoint that adds `files`.

        If `is_first`, protocol and metadata come first.
        """
        adds = pa.StructArray.from_arrays(
            [
                pa.array([file.path for file in files]),
                pa.MapArray.from_arrays(
                    pa.array(range(len(files) + 1), pa.int32()),
                    pa.array(["day"] * len(files)),
                    pa.array([f"{file.day:06}" for file in files]),
                ),
                pa.array([file.size for file in files], pa.int64()),
                pa.array([1_700_000_000_000] * len(files), pa.int64()),
                pa.array([True] * len(files)),
                pa.array([_STATS.replace("ROWS", str(file.rows)) for file in files]),
            ],
            names=["path", "partitionValues", "size", "modificationTime", "dataChange", "stats"],
        )
        rows = len(files)
        protocol, metadata = pa.nulls(rows, _PROTOCOL_TYPE), pa.nulls(rows, _METADATA_TYPE)
        if is_first:
            fields = [
                {"name": name, "type": _SPARK_TYPES[type_], "nullable": True, "metadata": {}}
                for name, type_ in COLUMNS.items()
            ]
            schema = json.dumps({"type": "struct", "fields": fields})
            adds = pa.concat_arrays([pa.nulls(2, adds.type), adds])
            protocol = pa.concat_arrays(
                [pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}, None], _PROTOCOL_TYPE), protocol]
            )
            metadata_action = {"id": "5f0c", "format": {"provider": "parquet", "options": []}, "schemaString": schema,
                         "partitionColumns": ["day"], "configuration": []}  # fmt: skip
            metadata = pa.concat_arrays([pa.array([None, metadata_action], _METADATA_TYPE), metadata])
        return pa.table({"protocol": protocol, "metaData": metadata, "add": adds})


_PROTOCOL_TYPE = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_OPTIONS_TYPE = pa.map_(pa.string(), pa.string())
_METADATA_TYPE = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _OPTIONS_TYPE)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _OPTIONS_TYPE),
    ]
)
_STATS = json.dumps(
    {
        "numRecords": "ROWS",
        "minValues": {"id": 1, "text": "text 1", "price": 0.25, "shop": "shop 0"},
        "maxValues": {"id": 999, "text": "text 999", "price": 99.75, "shop": "shop 2"},
        "nullCount": {"id": 0, "text": 0, "price": 0, "shop": 0},
    }
).replace('"ROWS"', "ROWS")


@dataclass
class _Manifest:
    """A manifest: its path, the facts that a manifest list records of it, and its data files.

    A manifest of the table's first state has its data files as a range of `numbers`. Any other has them in `files`.
    """

    path: str
    length: int
    sequence: int
    snapshot: int
    days: tuple[int, int]
    counts: tuple[int, int, int]
    """Number of added, existing and deleted entries."""
    numbers: tuple[int, int] | None
    """First and last (exclusive) number of its files, for a manifest of the table's first state."""
    files: list[tuple[DataFile, int]] = field(default_factory=list)
    """The live files, each with its sequence number. Empty for a manifest of the table's first state."""


class IcebergTable(SyntheticTable):
    """Iceberg metadata files, manifest lists, and manifests with statistics of four columns."""

    format = "iceberg"

    def _create(self) -> None:
        self.sequence, self.number = 1, 0
        self._snapshots: list[dict[str, Any]] = []
        self._log: list[dict[str, int]] = []
        self._before: list[list[_Manifest]] = []
        self._metadata.mkdir(parents=True)
        self._write_files()
        self._write_snapshot("append")

    def _write_files(self) -> None:
        """Write manifests of the first state, each with the files of a hundred partitions, and their list."""
        self._manifests: list[_Manifest] = []
        for start in range(0, self.count, _MANIFEST_FILES):
            end = min(self.count, start + _MANIFEST_FILES)
            files = list(self.base_files(start, end))
            if files:
                counts = (len(files), 0, 0)
                path_and_size = self._write_manifest(f"base-{start:09}", ((1, None, file) for file in files), counts)
                days = (files[0].day, files[-1].day)
                self._manifests.append(_Manifest(*path_and_size, 1, self._id, days, counts, (start, end)))
        self._write_list()

    def _commit(self, change: Change, operation: str) -> None:
        """Write a snapshot with the changed files.

        The operation `restore` makes the previous snapshot current.
        """
        if operation == "restore":
            # The table's state is an earlier snapshot again.
            self._manifests = self._before.pop()
            self._write_metadata(self._snapshots[-2]["snapshot-id"])
            return
        self._before.append(list(self._manifests))
        self.sequence += 1
        removed_by_number = {file.number: file for file in change.removed}
        if removed_by_number:
            self._manifests = [
                self._without(manifest, removed_by_number) if self._has_any(manifest, removed_by_number) else manifest
                for manifest in self._manifests
            ]
        if change.added:
            counts = (len(change.added), 0, 0)
            path_and_size = self._write_manifest(
                f"m{self.sequence}", ((1, None, file) for file in change.added), counts
            )
            days = [file.day for file in change.added]
            self._manifests.append(
                _Manifest(
                    *path_and_size,
                    self.sequence,
                    self._id,
                    (min(days), max(days)),
                    counts,
                    None,
                    [(file, self.sequence) for file in change.added],
                )
            )
        self._write_snapshot({"append": "append", "delete": "delete", "rewrite": "replace"}[operation])

    @property
    def _metadata(self) -> Path:
        return self.folder / "metadata"

    @property
    def _id(self) -> int:
        return 1_000_000_000_000_000_000 + self.sequence

    def _has_any(self, manifest: _Manifest, removed_by_number: Mapping[int, DataFile]) -> bool:
        if manifest.numbers is not None:
            return any(manifest.numbers[0] <= number < manifest.numbers[1] for number in removed_by_number)
        return any(file.number in removed_by_number for file, _ in manifest.files)

    def _without(self, manifest: _Manifest, removed_by_number: Mapping[int, DataFile]) -> _Manifest:
        """Write a new manifest with the files of `manifest`, and return it.

        Entries of the removed files, given by number, have the status DELETED.
        """
        files = manifest.files or [(file, manifest.sequence) for file in self.base_files(*(manifest.numbers or (0, 0)))]
        live = [(file, sequence) for file, sequence in files if file.number not in removed_by_number]
        counts = (0, len(live), len(files) - len(live))
        entries = ((2 if file.number in removed_by_number else 0, sequence, file) for file, sequence in files)
        path_and_size = self._write_manifest(f"m{self.sequence}-{Path(manifest.path).stem}", entries, counts)
        return _Manifest(*path_and_size, self.sequence, self._id, manifest.days, counts, None, live)

    def _write_manifest(
        self, name: str, entries: Iterable[tuple[int, int | None, DataFile]], counts: tuple[int, int, int]
    ) -> tuple[str, int]:
        """Write the entries (status, sequence number, file); return path and length of the manifest.

        `counts` are the numbers of added, existing and deleted entries.
        """
        encoder = _EntryEncoder(str(self.folder), self._id)
        records = b"".join(encoder.encode(*entry) for entry in entries)
        header = BytesIO()
        metadata = {"partition-spec-id": "0", "format-version": "2", "content": "data"}
        fastavro.writer(header, _ENTRY_SCHEMA, [], codec="deflate", metadata=metadata, sync_marker=_SYNC)
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        block = deflate.compress(records) + deflate.flush()
        data = header.getvalue() + _zigzag(sum(counts)) + _zigzag(len(block)) + block + _SYNC
        path = self._metadata / f"{name}.avro"
        path.write_bytes(data)
        return str(path), len(data)

    def _write_list(self) -> Path:
        """Write the manifest list of the current snapshot.

        Return its path.
        """
        path = self._metadata / f"snap-{self._id}.avro"
        records = [
            {
                "manifest_path": manifest.path,
                "manifest_length": manifest.length,
                "partition_spec_id": 0,
                "content": 0,
                "sequence_number": manifest.sequence,
                "min_sequence_number": 1,
                "added_snapshot_id": manifest.snapshot,
                **_list_counts("files", manifest.counts, 1),
                **_list_counts("rows", manifest.counts, ROWS),
                "partitions": [
                    {"contains_null": False, "contains_nan": False,
                     "lower_bound": f"{manifest.days[0]:06}".encode(), "upper_bound": f"{manifest.days[1]:06}".encode()}
                ],
            }
            for manifest in self._manifests
        ]  # fmt: skip
        with path.open("wb") as file:
            fastavro.writer(file, _LIST_SCHEMA, records, codec="deflate")
        return path

    def _write_snapshot(self, operation: str) -> None:
        path = self._write_list()
        snapshot = {
            "snapshot-id": self._id,
            "sequence-number": self.sequence,
            "timestamp-ms": 1_700_000_000_000 + 60_000 * self.sequence,
            "manifest-list": str(path),
            "summary": {"operation": operation},
            "schema-id": 0,
        }
        if self._snapshots:
            snapshot["parent-snapshot-id"] = self._snapshots[-1]["snapshot-id"]
        self._snapshots.append(snapshot)
        self._write_metadata(self._id)

    def _write_metadata(self, current: int) -> None:
        self.number += 1
        updated_at = 1_700_000_000_000 + 60_000 * self.sequence + self.number
        self._log.append({"snapshot-id": current, "timestamp-ms": updated_at})
        fields = [
            {"id": number, "name": name, "type": type_, "required": False}
            for number, (name, type_) in enumerate(COLUMNS.items(), 1)
        ]
        partition = {"source-id": 5, "field-id": 1000, "name": "day", "transform": "identity"}
        metadata = {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": str(self.folder),
            "last-sequence-number": self.sequence,
            "last-updated-ms": updated_at,
            "last-column-id": 5,
            "last-partition-id": 1000,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": [partition]}],
            "default-spec-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": current,
            "snapshots": self._snapshots,
            "snapshot-log": self._log,
            "refs": {"main": {"snapshot-id": current, "type": "branch"}},
        }
        (self._metadata / f"v{self.number}.metadata.json").write_text(json.dumps(metadata))


def _list_counts(what: str, counts: tuple[int, int, int], factor: int) -> dict[str, int]:
    """Return the counts of added, existing and deleted files or rows, as a manifest list names them.

    `what` is `files` or `rows`. `counts` are numbers of files, and `factor` is the number of rows of each; 1 for files.
    """
    kinds = ("added", "existing", "deleted")
    return {f"{kind}_{what}_count": factor * count for kind, count in zip(kinds, counts, strict=True)}


class _EntryEncoder:
    """Encodes the entries of a manifest, quickly.

    One entry is encoded in full. For similar entries, the texts that differ are replaced in its bytes.
    """

    def __init__(self, folder: str, snapshot: int) -> None:
        self._folder = folder
        self._snapshot = snapshot
        self._templates: dict[tuple[int, int | None, str, int, int], list[bytes]] = {}

    def encode(self, status: int, sequence: int | None, file: DataFile) -> bytes:
        """Return the Avro record of one entry."""
        key = (status, sequence, file.instant, file.size, file.rows)
        parts = self._templates.get(key)
        if parts is None:
            parts = self._templates[key] = self._template(*key)
        day, unique = b"%06d" % file.day, file.unique.encode()
        return parts[0] + day + parts[1] + unique + parts[2] + day + parts[3]

    def _template(self, status: int, sequence: int | None, instant: str, size: int, rows: int) -> list[bytes]:
        """Encode an entry, and return the four byte strings around its variable parts.

        The variable parts are the day in the path, the unique digits, and the day as partition value.
        """
        day, unique = "DDDDDD", "U" * 32
        path = DataFile(0, 0, instant).path.replace(f"{0:06}", day, 1).replace(DataFile(0, 0, instant).unique, unique)
        numbers = range(1, 5)
        record = {
            "status": status,
            "snapshot_id": self._snapshot,
            "sequence_number": sequence,
            "file_sequence_number": sequence,
            "data_file": {
                "content": 0,
                "file_path": f"{self._folder}/{path}",
                "file_format": "PARQUET",
                "partition": {"day": day},
                "record_count": rows,
                "file_size_in_bytes": size,
                "column_sizes": [{"key": number, "value": 1000 + number} for number in numbers],
                "value_counts": [{"key": number, "value": rows} for number in numbers],
                "null_value_counts": [{"key": number, "value": 0} for number in numbers],
                "lower_bounds": [{"key": number, "value": b"lower-%d" % number} for number in numbers],
                "upper_bounds": [{"key": number, "value": b"upper-%d" % number} for number in numbers],
            },
        }
        out = BytesIO()
        fastavro.schemaless_writer(out, _ENTRY_SCHEMA, record)
        head, middle, tail = out.getvalue().split(day.encode())
        return [head, *middle.split(unique.encode()), tail]


def _zigzag(number: int) -> bytes:
    """Return a non-negative integer as Avro encodes it."""
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _avro_field(name: str, type_: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": type_, "field-id": field_id} | ({"default": None} if isinstance(type_, list) else {})


def _avro_map(name: str, value: str, ids: tuple[int, int, int]) -> dict[str, Any]:
    fields = [_avro_field("key", "int", ids[1]), _avro_field("value", value, ids[2])]
    items = {"type": "record", "name": f"k{ids[1]}_v{ids[2]}", "fields": fields}
    return _avro_field(name, ["null", {"type": "array", "items": items, "logicalType": "map"}], ids[0])


_SYNC = b"benchmarks-scale"
_PARTITION_FIELDS = [_avro_field("day", ["null", "string"], 1000)]
_ENTRY_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _avro_field("status", "int", 0),
            _avro_field("snapshot_id", ["null", "long"], 1),
            _avro_field("sequence_number", ["null", "long"], 3),
            _avro_field("file_sequence_number", ["null", "long"], 4),
            _avro_field(
                "data_file",
                {
                    "type": "record",
                    "name": "r2",
                    "fields": [
                        _avro_field("content", "int", 134),
                        _avro_field("file_path", "string", 100),
                        _avro_field("file_format", "string", 101),
                        _avro_field("partition", {"type": "record", "name": "r102", "fields": _PARTITION_FIELDS}, 102),
                        _avro_field("record_count", "long", 103),
                        _avro_field("file_size_in_bytes", "long", 104),
                        _avro_map("column_sizes", "long", (108, 117, 118)),
                        _avro_map("value_counts", "long", (109, 119, 120)),
                        _avro_map("null_value_counts", "long", (110, 121, 122)),
                        _avro_map("lower_bounds", "bytes", (125, 126, 127)),
                        _avro_map("upper_bounds", "bytes", (128, 129, 130)),
                    ],
                },
                2,
            ),
        ],
    }
)
_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _avro_field("contains_null", "boolean", 509),
        _avro_field("contains_nan", ["null", "boolean"], 518),
        _avro_field("lower_bound", ["null", "bytes"], 510),
        _avro_field("upper_bound", ["null", "bytes"], 511),
    ],
}
_LIST_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            _avro_field("manifest_path", "string", 500),
            _avro_field("manifest_length", "long", 501),
            _avro_field("partition_spec_id", "int", 502),
            _avro_field("content", "int", 517),
            _avro_field("sequence_number", "long", 515),
            _avro_field("min_sequence_number", "long", 516),
            _avro_field("added_snapshot_id", "long", 503),
            _avro_field("added_files_count", "int", 504),
            _avro_field("existing_files_count", "int", 505),
            _avro_field("deleted_files_count", "int", 506),
            _avro_field("added_rows_count", "long", 512),
            _avro_field("existing_rows_count", "long", 513),
            _avro_field("deleted_rows_count", "long", 514),
            _avro_field("partitions", ["null", {"type": "array", "items": _SUMMARY, "element-id": 508}], 507),
        ],
    }
)


class HudiTable(SyntheticTable):
    """A Hudi table of version 6: a timeline, and sparse files without content.

    The files exist because the reader lists partitions. If the table has more than MAX_WRITTEN files, only those of
    touched partitions are written. While `installed` is active, listings of the table include the others.
    """

    format = "hudi"
    MAX_WRITTEN = 100_000

    def _create(self) -> None:
        """Write the first files, and a timeline with one commit, which has no files.

        The timeline looks as if the commit of the first files had been archived.
        """
        self._instants: list[str] = []
        (self.folder / ".hoodie" / "archived").mkdir(parents=True)
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.type": "COPY_ON_WRITE",
            "hoodie.table.version": "6",
            "hoodie.timeline.layout.version": "1",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.partition.fields": "day",
            "hoodie.datasource.write.hive_style_partitioning": "true",
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.folder / ".hoodie" / "hoodie.properties").write_text(text)
        self._written: set[int] = set()
        self._write_files()
        self._write("commit", [], [], "INSERT")

    def _write_files(self) -> None:
        days = range(self.partitions) if self.is_complete and self.count <= self.MAX_WRITTEN else self.touched
        for day in set(days) - self._written:
            self._write_data(self.base_files(day * PER_PARTITION, (day + 1) * PER_PARTITION))
        self._written.update(days)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let listings of the table include its unwritten files, which exist only in this object."""
        list_files = Location.list

        def list_all(location: Location, *arguments: Any, **options: Any) -> Iterator[StoredFile]:
            yield from list_files(location, *arguments, **options)
            if location.uri == str(self.folder) and self.is_complete:
                for day in range(self.partitions):
                    if day not in self._written:
                        yield StoredFile(f"day={day:06}/.hoodie_partition_metadata", 20, "1")
                        for file in self.base_files(day * PER_PARTITION, (day + 1) * PER_PARTITION):
                            yield StoredFile(file.path, file.size, "1")

        with patch.object(Location, "list", list_all):
            yield

    def _commit(self, change: Change, operation: str) -> None:
        if operation == "restore":
            # Hudi removes the files and the instants after the restored one.
            (self.folder / ".hoodie" / self._instants.pop()).unlink()
            for file in change.removed:
                (self.folder / file.path).unlink()
            return
        self._write_data(change.added)
        if operation == "append":
            self._write("commit", change.added, [], "INSERT")
        else:
            self._write(
                "replacecommit",
                change.added,
                change.removed,
                "CLUSTER" if operation == "rewrite" else "DELETE_PARTITION",
            )

    def _write_data(self, files: Iterable[DataFile]) -> None:
        for file in files:
            path = self.folder / file.path
            if not path.parent.exists():
                path.parent.mkdir()
                (path.parent / ".hoodie_partition_metadata").write_text("#partition metadata\n")
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
            os.ftruncate(descriptor, file.size)
            os.close(descriptor)

    def _write(
        self, action: str, added_files: Iterable[DataFile], removed_files: Collection[DataFile], operation: str
    ) -> None:
        write_stats: dict[str, list[Any]] = {}
        for file in added_files:
            stat = {"fileId": f"{file.unique}-0", "path": file.path, "prevCommit": "null",
                    "numWrites": file.rows, "partitionPath": file.partition, "fileSizeInBytes": file.size}  # fmt: skip
            write_stats.setdefault(file.partition, []).append(stat)
        replaced_ids: dict[str, list[str]] = {}
        for file in removed_files:
            replaced_ids.setdefault(file.partition, []).append(f"{file.unique}-0")
        fields = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in COLUMNS.items()]
        schema = {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": fields}
        document = {
            "partitionToWriteStats": write_stats,
            "compacted": False,
            "extraMetadata": {"schema": json.dumps(schema)},
            "operationType": operation,
        }
        if replaced_ids:
            document["partitionToReplaceFileIds"] = replaced_ids
        name = f"{_instant(self._commits)}.{action}"
        (self.folder / ".hoodie" / name).write_text(json.dumps(document))
        self._instants.append(name)


class FilesTable(SyntheticTable):
    """A folder of Parquet files, which are links to few files."""

    format = "files"
    _LINKS = 30_000
    """Maximum number of links to one file."""

    def _create(self) -> None:
        self._links = 0
        self._sources.mkdir(parents=True)
        self._write_files()

    def _write_files(self) -> None:
        for file in self.base_files(0, self.count):
            if not (self.folder / file.path).exists():
                self._link(file)

    def _commit(self, change: Change, operation: str) -> None:
        for file in change.removed:
            (self.folder / file.path).unlink()
        for file in change.added:
            self._link(file)

    @property
    def _sources(self) -> Path:
        return self.folder / "_sources"

    def _link(self, file: DataFile) -> None:
        source = self._sources / f"{self._links // self._LINKS}.parquet"
        if self._links % self._LINKS == 0:
            types = {"long": pa.int64(), "string": pa.string(), "double": pa.float64()}
            columns = {name: pa.array([None, 1], pa.int64()).cast(types[type_]) for name, type_ in COLUMNS.items()}
            pq.write_table(pa.table(columns).drop_columns("day"), source)
        self._links += 1
        path = self.folder / file.path
        path.parent.mkdir(exist_ok=True)
        path.hardlink_to(source)


TABLES: Mapping[str, type[SyntheticTable]] = {
    table.format: table for table in (DeltaTable, IcebergTable, HudiTable, FilesTable)
}
