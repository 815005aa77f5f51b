"""The entries of a version: one row per fragment, partition, merge node, profile spec and cached piece of metadata.

    entries/<unique>.<kind>.parquet    segments (see `store.segments`) with the entries of one kind, sorted by key

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. A
profile spec says which statistics of each column are wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.startup import pc
from metastore_assets.store.manifest import (
    FragmentEntry,
    MetadataCacheEntry,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    ProfileSpecEntry,
    Version,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import (
    KeyChanges,
    Segment,
    SegmentFiles,
    SegmentKind,
    SegmentOutput,
    SegmentReader,
    SegmentUpdate,
)

Entry = TypeVar("Entry")
Key: TypeAlias = Any
"""The key of an entry: a text or bytes, as in the first column of the entry's kind."""

FOLDER = "entries"
_ROW_GROUP_ROWS = 2048
"""Rows per row group: finding one entry reads one row group."""
_REWRITE_BELOW = 500
_MAX_DELTAS = 8
_STRINGS = pa.list_(pa.string())
FILE_COLUMNS = ("statistics", "histograms", "frequencies", "states")
"""Columns with the paths of a profile's files."""
_FILE_FIELDS = [
    *(pa.field(name, _STRINGS if name == "frequencies" else pa.string()) for name in FILE_COLUMNS),
    pa.field("section", pa.string()),
    pa.field("sections", pa.int64()),
]
"""Columns for the fields of `ProfileFiles`, in their order."""


@dataclass(frozen=True)
class EntryKind(Generic[Entry]):
    """A kind of entry, with its class and columns. The first column is the key, which is unique within a version."""

    name: str
    """Name of the kind. It is an attribute of `Version`, a key in the version's document, and a part of file names."""
    type: type[Entry]
    schema: pa.Schema

    @property
    def references_files(self) -> bool:
        """Whether entries of this kind reference the files of a profile."""
        return set(FILE_COLUMNS) <= set(self.schema.names)

    @property
    def segments(self) -> SegmentKind:
        """Columns and merge policy of the segments that store the entries."""
        return SegmentKind(
            self.name,
            FOLDER,
            self.schema,
            rewrite_below=_REWRITE_BELOW,
            max_deltas=_MAX_DELTAS,
            large_section_rows=_ROW_GROUP_ROWS,
            row_group_rows=_ROW_GROUP_ROWS,
            has_key_bounds=True,
        )

    @property
    def key(self) -> Callable[[Entry], Key]:
        """A function that returns the key of an entry."""
        return attrgetter(self.schema[0].name)

    def by_key(self, entries: Iterable[Entry]) -> dict[Key, Entry]:
        """Return entries by their keys."""
        key = self.key
        return {key(entry): entry for entry in entries}


FRAGMENTS = EntryKind(
    "fragments",
    FragmentEntry,
    pa.schema(
        [
            ("id", pa.string()),
            ("partition_key", pa.string()),
            ("path", pa.string()),
            ("bytes", pa.int64()),
            ("row_count", pa.int64()),
            ("spec_id", pa.string()),
            ("unprofiled", _STRINGS),
            ("retired", pa.int64()),
            ("not_enumerated", _STRINGS),
            *_FILE_FIELDS,
        ]
    ),
)
PARTITIONS = EntryKind(
    "partitions",
    PartitionEntry,
    pa.schema(
        [
            ("key", pa.string()),
            ("content_id", pa.string()),
            ("row_count", pa.int64()),
            ("bytes", pa.int64()),
            ("fragments", pa.int64()),
            ("version", pa.int64()),
            ("spec_id", pa.string()),
            ("members", pa.string()),
            *_FILE_FIELDS,
        ]
    ),
)
NODES = EntryKind("nodes", NodeEntry, pa.schema([("id", pa.string()), ("spec_id", pa.string()), *_FILE_FIELDS]))
PROFILE_SPECS = EntryKind(
    "specs",
    ProfileSpecEntry,
    pa.schema([("spec_id", pa.string()), ("field_ids", _STRINGS), ("column_specs", _STRINGS)]),
)
METADATA_CACHE = EntryKind(
    "metadata_cache", MetadataCacheEntry, pa.schema([("key", pa.binary()), ("value", pa.binary())])
)
KINDS: tuple[EntryKind[Any], ...] = (FRAGMENTS, PARTITIONS, NODES, PROFILE_SPECS, METADATA_CACHE)


def encode_entries(kind: EntryKind[Entry], entries: Sequence[Entry]) -> pa.Table:
    """Return entries as a table with one row per entry, in the given order.

    A field `files` becomes one column per field of `ProfileFiles`.
    """
    columns = []
    for field in kind.schema:
        is_file = kind.references_files and field in _FILE_FIELDS
        values = list(map(attrgetter(f"files.{field.name}" if is_file else field.name), entries))
        columns.append(_strings(values) if field.type == _STRINGS else pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=kind.schema)


def decode_entries(kind: EntryKind[Entry], table: pa.Table) -> list[Entry]:
    """Return the entries in the rows of a table that `encode_entries` returned."""
    columns = {name: _values(table.column(name)) for name in kind.schema.names}
    if kind.references_files:
        columns["files"] = list(map(ProfileFiles, *(columns[field.name] for field in _FILE_FIELDS)))
    return list(map(kind.type, *(columns[field.name] for field in fields(kind.type))))  # type: ignore[arg-type]


def version_entries(version: Version, kind: EntryKind[Any]) -> Sequence[Any]:
    """Return the entries of one kind in a version. Entries that the version has as a mapping become entry objects."""
    if kind is METADATA_CACHE:
        return [MetadataCacheEntry(key, value) for key, value in version.metadata_cache.items()]
    if kind is PROFILE_SPECS:
        specs = version.specs.items()
        return [ProfileSpecEntry(key, tuple(columns), tuple(columns.values())) for key, columns in specs]
    entries: Sequence[Any] = getattr(version, kind.name)
    return entries


class StoredEntries(Sequence[Entry]):
    """The entries of one kind in a published version, by ascending key.

    They are read on first use. A pickle contains the paths of the files, but no entries.
    """

    def __init__(self, kind: EntryKind[Entry], objects: ObjectStore, files: SegmentFiles) -> None:
        self.kind = kind
        self.files = files
        self._objects = objects

    def find(self, key: Key) -> Entry | None:
        """Return the entry with a key, or None.

        Unless all entries are in memory, only the row groups that may contain the key are read.
        """
        if not self.files.files or "_entries" in self.__dict__:
            return self.by_key.get(key)
        try:
            pa.scalar(key, self.kind.schema[0].type)
        except UnicodeEncodeError:
            return None  # invalid text, such as an argument of a command, cannot be a key
        return next(iter(self._decode(self._reader.find([key]))), None)

    @lock_free_cached_property
    def _reader(self) -> SegmentReader:
        return SegmentReader(self._objects, self.kind.segments, self.files)

    @cached_property
    def by_key(self) -> Mapping[Key, Entry]:
        """All entries by their keys."""
        return self.kind.by_key(self._entries)

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return self._decode(self._sorted_rows()) if self.files.files else ()

    def _sorted_rows(self) -> pa.Table:
        rows = self.read_rows()
        # The rows of one segment are sorted.
        return rows if len(self.files.files) == 1 else rows.take(pc.sort_indices(rows.column(0)))

    def read_rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the entries as a table in no order: all columns, or some."""
        return SegmentReader(self._objects, self.kind.segments, self.files).read_rows(columns)

    def _decode(self, rows: pa.Table) -> tuple[Entry, ...]:
        try:
            return tuple(decode_entries(self.kind, rows))
        except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
            names = ", ".join(self._objects.uri(path) for path in self.files.paths())
            raise CorruptionError(
                f"{names} is damaged ({type(error).__name__}: {error}); rebuild with `metastore refresh NAME --full`"
            ) from error

    def __len__(self) -> int:
        return self.files.rows

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._entries == tuple(other)

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"<{len(self)} {self.kind.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _stored, (self.kind.name, self._objects, self.files)


def _stored(name: str, objects: ObjectStore, files: SegmentFiles) -> StoredEntries[Any]:
    return StoredEntries(next(kind for kind in KINDS if kind.name == name), objects, files)


class StoredProfileSpecs(Mapping[str, Mapping[str, str]]):
    """The profile specs of a published version: by spec id, the spec fingerprint of each column by field id.

    They are read on first use. A fingerprint is a digest of the statistics that the spec wants for the column.
    """

    def __init__(self, entries: StoredEntries[ProfileSpecEntry]) -> None:
        self.entries = entries

    @cached_property
    def _specs(self) -> Mapping[str, Mapping[str, str]]:
        return {entry.spec_id: dict(zip(entry.field_ids, entry.column_specs, strict=True)) for entry in self.entries}

    def __getitem__(self, key: str) -> Mapping[str, str]:
        return self._specs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self.entries)

    def __reduce__(self) -> tuple[object, ...]:
        return StoredProfileSpecs, (self.entries,)


class StoredMetadataCache(Mapping[bytes, bytes]):
    """The metadata cache of a published version.

    It is read on first use, and is empty if its file is missing or corrupt.
    """

    def __init__(self, entries: StoredEntries[MetadataCacheEntry]) -> None:
        self.entries = entries

    @cached_property
    def _values(self) -> Mapping[bytes, bytes]:
        return {entry.key: entry.value for entry in self.entries} if self.is_readable else {}

    @cached_property
    def is_readable(self) -> bool:
        """Whether the cache can be read. An unreadable cache is no error, because the cache only saves work."""
        try:
            iter(self.entries)
        except (ObjectNotFoundError, CorruptionError, KeyError, pa.ArrowException):
            return False
        return True

    def __getitem__(self, key: bytes) -> bytes:
        return self._values[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[object, ...]:
        return StoredMetadataCache, (self.entries,)


@dataclass(frozen=True)
class WrittenEntries(Generic[Entry]):
    """The files that hold a version's entries of one kind, and the entries that the version no longer has."""

    files: SegmentFiles
    dropped: Sequence[Entry] = ()
    """The entries of the previous version that were removed or replaced."""


def write_entries(
    objects: ObjectStore, kind: EntryKind[Entry], entries: Sequence[Entry], base: StoredEntries[Entry] | None
) -> WrittenEntries[Entry]:
    """Write a version's entries of one kind. Only the differences from `base` are written.

    Args:
        objects: The table's folder.
        kind: The kind of the entries.
        entries: All entries of the version.
        base: The entries of the version before, in the same folder; None writes all entries.

    Raises:
        ValueError: Two entries have the same key.
    """
    new_entries = kind.by_key(entries)
    if len(new_entries) < len(entries):
        (duplicate, _), *_ = Counter(map(kind.key, entries)).most_common(1)
        raise ValueError(f"two {kind.name} of one version have the key {duplicate!r}")
    base_entries = {} if base is None else base.by_key
    changes = KeyChanges.between(base_entries, new_entries)

    def write(output: SegmentOutput, segments: Sequence[Segment], _: None) -> None:
        # The entries are in memory. Only the keys of older segments are read.
        keys = set(new_entries if output.is_base else changes.added)
        for segment in segments if not output.is_base else ():
            keys.update(segment.filter_live(segment.keys).to_pylist())
        with output.open(encode_entries(kind, [new_entries[key] for key in sorted(keys)])):
            pass

    files = SegmentUpdate(objects, kind.segments, None if base is None else base.files, changes).write((), write)
    dropped = tuple(base_entries[key] for key in (*changes.added, *changes.removed) if key in base_entries)
    return WrittenEntries(files, dropped)


def find_partition(version: Version, key: str) -> PartitionEntry | None:
    """Return the entry of the partition with a key in a version; None if the version has no such partition.

    In a stored version, only a few row groups are read.
    """
    if isinstance(version.partitions, StoredEntries):
        return version.partitions.find(key)
    return next((entry for entry in version.partitions if entry.key == key), None)


def _strings(values: Sequence[Sequence[str]]) -> pa.Array:
    """Return a list array with the texts of each value."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    flat = pa.array([text for value in values for text in value], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, with lists as tuples.

    Cutting one flat list is several times as fast as `to_pylist`.
    """
    if column.type != _STRINGS:
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        flat = chunk.flatten().to_pylist()
        start = 0
        for length in chunk.value_lengths().to_pylist():
            values.append(tuple(flat[start : start + length]))
            start += length
    return values
