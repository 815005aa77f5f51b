"""The entries of a version: one for each fragment, partition, profile spec, and so on.

    entries/<unique>.<kind>.parquet    segments (see `store.segments`) with the entries of one kind, sorted by key

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. Its
files have statistics, histograms, frequencies of values, and states, which are statistics in mergeable form. A profile
spec says which statistics of each column are wanted. The metadata cache has an entry for each piece of the table's own
metadata that the next refresh then need not read again. A commit writes a version's changes of entries as a segment,
which is sorted by key. The commit may also merge older segments.

Lookups and streams of entries read single row groups.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.startup import pc
from metastore_assets.store.keys import KeyPrefixes, KeySet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segment_merge import merge_segments, stored_sources
from metastore_assets.store.segments import (
    Segment,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
    SegmentReader,
    unshared_files,
)
from metastore_assets.store.version import (
    FragmentEntry,
    MetadataCacheEntry,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    ProfileSpecEntry,
    RetiredFragment,
    SharedFileEntry,
    Version,
    fragment_key,
    split_fragment_key,
    split_retired_key,
    split_shared_file_key,
)

Entry = TypeVar("Entry")
Key: TypeAlias = Any
"""The key of an entry: text or bytes."""

FOLDER = "entries"
_ROW_GROUP_ROWS: int | None = None
_REWRITE_BELOW = 500
_MERGE_BELOW = 1_000
_FILE_ROWS = 16_384
"""Number of entries after which a file is closed, about a megabyte."""
_MAX_DELTAS = 2
"""Maximum number of deltas before newer ones are merged. A commit of one file reads each of them. With 3 deltas and
`_MERGE_BELOW` 500, it makes about three more requests in a table of ten million files."""
_STRINGS = pa.list_(pa.string())
_INTEGERS = pa.list_(pa.int64())
_SINGLE_LOOKUPS = 16
"""Number of values of the metadata cache that are looked up one by one, before all are read."""
_MAX_FOUND = 1_000
"""Maximum number of keys whose entries stay in memory after a lookup."""
FILE_COLUMNS = ("statistics", "histograms", "frequencies", "states")
"""Columns with the paths of a profile's files."""
_FILE_FIELDS = [
    *(pa.field(name, _STRINGS if name == "frequencies" else pa.string()) for name in FILE_COLUMNS),
    pa.field("section", pa.string()),
    pa.field("sections", pa.int64()),
    pa.field("states_bytes", pa.int64()),
]
"""Columns for the fields of `ProfileFiles`, in their order."""
_STATISTICS_END = ".statistics.parquet"
_DERIVABLE_COLUMNS = ("histograms", "states")
"""Columns with paths that are mostly equal to that of the statistics up to the end of the file name. Such a path is
stored as null, because the random part of the name does not compress."""


@dataclass(frozen=True)
class EntryKind(Generic[Entry]):
    """A kind of entry, such as fragments, with its Python class and its columns in files.

    The first column is the key, which is unique within a version.
    """

    name: str
    """Name of the kind. It is an attribute of `Version`, a key in the version's document, and a part of file names."""
    type: type[Entry]
    schema: pa.Schema
    attribute_prefix: str = ""
    """Prefix of the attributes that columns store. With `fragment.`, the column `bytes` stores `entry.fragment.bytes`.
    The key has no prefix."""
    decode: Callable[[dict[str, list[Any]]], Iterable[Entry]] | None = None
    """Returns the entries, given {column name: values}, with `ProfileFiles` under the key `files`. None if the columns
    are the fields of the class."""
    entry_size: int = 1
    """Relative size of an entry. With 2, a file has half as many entries."""

    @property
    def references_files(self) -> bool:
        """Whether entries of this kind reference files of profiles."""
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
            merge_below=_MERGE_BELOW,
            file_rows=-(-_FILE_ROWS // self.entry_size),
            merge_budget=2 * _FILE_ROWS,
            row_group_rows=_ROW_GROUP_ROWS,
        )

    @property
    def key(self) -> Callable[[Entry], Key]:
        """A function that returns the key of an entry."""
        return attrgetter(self.schema[0].name)

    def attribute(self, column: pa.Field) -> str:
        """Return the dotted path of the attribute that a column stores, such as `fragment.files.states`."""
        if column.name == self.schema[0].name:
            return str(column.name)
        files = "files." if self.references_files and column in _FILE_FIELDS else ""
        return f"{self.attribute_prefix}{files}{column.name}"


def _decode_fragments(columns: dict[str, list[Any]]) -> Iterable[FragmentEntry]:
    keys = [split_fragment_key(key) for key in columns["key"]]
    columns["partition_key"], columns["path"] = [key for key, _ in keys], [path for _, path in keys]
    return map(FragmentEntry, *(columns[field.name] for field in fields(FragmentEntry)))


def _decode_retired(columns: dict[str, list[Any]]) -> Iterable[RetiredFragment]:
    keys = [split_retired_key(key) for key in columns["key"]]
    columns["id"] = [id_ for _, id_ in keys]
    fragments = map(FragmentEntry, *(columns[field.name] for field in fields(FragmentEntry)))
    return map(RetiredFragment, [number for number, _ in keys], fragments)


def _decode_shared_files(columns: dict[str, list[Any]]) -> Iterable[SharedFileEntry]:
    columns["path"] = list(map(split_shared_file_key, columns["key"]))
    return map(SharedFileEntry, *(columns[field.name] for field in fields(SharedFileEntry)))


_PROFILE_COLUMNS = [
    pa.field("bytes", pa.int64()),
    pa.field("row_count", pa.int64()),
    pa.field("spec_id", pa.string()),
    pa.field("unprofiled", _STRINGS),
    pa.field("not_enumerated", _STRINGS),
    *_FILE_FIELDS,
]
FRAGMENTS = EntryKind(
    "fragments",
    FragmentEntry,
    pa.schema([("key", pa.string()), ("id", pa.string()), *_PROFILE_COLUMNS]),
    decode=_decode_fragments,
)
RETIRED = EntryKind(
    "retired",
    RetiredFragment,
    pa.schema([("key", pa.string()), ("partition_key", pa.string()), ("path", pa.string()), *_PROFILE_COLUMNS]),
    attribute_prefix="fragment.",
    decode=_decode_retired,
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
NODES = EntryKind(
    "nodes",
    NodeEntry,
    pa.schema(
        [
            ("key", pa.string()),
            ("spec_id", pa.string()),
            ("valid_spec_id", pa.string()),
            ("children", _STRINGS),
            ("branches", _STRINGS),
            ("count", pa.int64()),
            ("child_files", _STRINGS),
            *_FILE_FIELDS,
        ]
    ),
    entry_size=2,
)
SHARED_FILES = EntryKind(
    "shared_files",
    SharedFileEntry,
    pa.schema([("key", pa.string()), ("sections", pa.int64()), ("groups", _STRINGS), ("group_references", _INTEGERS)]),
    decode=_decode_shared_files,
)
PROFILE_SPECS = EntryKind(
    "specs",
    ProfileSpecEntry,
    pa.schema([("spec_id", pa.string()), ("field_ids", _STRINGS), ("column_specs", _STRINGS)]),
)
METADATA_CACHE = EntryKind(
    "metadata_cache", MetadataCacheEntry, pa.schema([("key", pa.binary()), ("value", pa.binary())])
)
KINDS: tuple[EntryKind[Any], ...] = (
    FRAGMENTS,
    RETIRED,
    PARTITIONS,
    NODES,
    SHARED_FILES,
    PROFILE_SPECS,
    METADATA_CACHE,
)


def encode_entries(kind: EntryKind[Entry], entries: Sequence[Entry]) -> pa.Table:
    """Return entries as a table with one row per entry, in the same order.

    A field `files` becomes several columns, one for each field of `ProfileFiles`. Paths that `derive_paths` can derive
    are null.
    """
    columns = []
    for field in kind.schema:
        values = list(map(attrgetter(kind.attribute(field)), entries))
        columns.append(_lists(values, field.type) if pa.types.is_list(field.type) else pa.array(values, field.type))
    table = pa.Table.from_arrays(columns, schema=kind.schema)
    return _omit_derivable_paths(table) if kind.references_files else table


def _omit_derivable_paths(rows: pa.Table) -> pa.Table:
    for name in _DERIVABLE_COLUMNS:
        paths = rows[name]
        is_derivable = pc.and_(pc.not_equal(paths, ""), pc.equal(paths, _derived_paths(rows, name)))
        stored_paths = pc.if_else(is_derivable, pa.scalar(None, paths.type), paths)
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), stored_paths)
    return rows


def derive_paths(rows: pa.Table) -> pa.Table:
    """Return stored rows with the paths that `encode_entries` left out.

    Args:
        rows: Rows of entries that reference files of profiles, with all columns or some. They must have the column
            `statistics` if they have a column whose paths are derived.
    """
    for name in _DERIVABLE_COLUMNS:
        if name in rows.column_names and rows[name].null_count:
            paths = pc.coalesce(rows[name], _derived_paths(rows, name))
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), paths)
    return rows


def _derived_paths(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the path of another file of each row's profile, derived from the path of the statistics.

    The two paths differ only in their ends, such as `.statistics.parquet` and `.states.parquet`. `name` is the kind of
    the other file, such as `states`.
    """
    pattern = re.escape(_STATISTICS_END) + "$"
    return pc.replace_substring_regex(rows["statistics"], pattern, f".{name}.parquet")


def decode_entries(kind: EntryKind[Entry], table: pa.Table) -> list[Entry]:
    """Return the entries in a table of `encode_entries`."""
    if kind.references_files:
        table = derive_paths(table)
    columns = {name: _values(table.column(name)) for name in kind.schema.names}
    if kind.references_files:
        columns["files"] = list(map(ProfileFiles, *(columns[field.name] for field in _FILE_FIELDS)))
    if kind.decode is not None:
        return list(kind.decode(columns))
    return list(map(kind.type, *(columns[field.name] for field in fields(kind.type))))  # type: ignore[arg-type]


def version_entries(version: Version, kind: EntryKind[Any]) -> Sequence[Any]:
    """Return the entries of one kind in a version.

    A version may have its profile specs and metadata cache as plain mappings. Their items are converted to entries.
    """
    if kind is METADATA_CACHE:
        if isinstance(version.metadata_cache, StoredMetadataCache | ChangedMetadataCache):
            return version.metadata_cache.entries
        return [MetadataCacheEntry(key, value) for key, value in version.metadata_cache.items()]
    if kind is PROFILE_SPECS:
        if isinstance(version.specs, StoredProfileSpecs):
            return version.specs.entries
        specs = version.specs.items()
        return [ProfileSpecEntry(key, tuple(columns), tuple(columns.values())) for key, columns in specs]
    entries: Sequence[Any] = getattr(version, kind.name)
    return entries


class Entries(Sequence[Entry]):
    """The entries of one kind in a version, by ascending key.

    Lookups do not read all of them.
    """

    kind: EntryKind[Entry]

    def find(self, key: Key) -> Entry | None:
        """Return the entry with this key, or None."""
        return self.find_all([key]).get(key)

    @abstractmethod
    def find_all(self, keys: Collection[Key]) -> dict[Key, Entry]:
        """Return the entries with these keys, by key.

        Keys without an entry are omitted.
        """

    @abstractmethod
    def find_prefixes(self, prefixes: Collection[Key]) -> list[Entry]:
        """Return the entries whose keys begin with one of the prefixes, sorted by key."""

    @abstractmethod
    def least_key(self) -> Key | None:
        """Return a lower bound of the keys without reading entries; None if it is unknown."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} {self.kind.name}>"


class StoredEntries(Entries[Entry]):
    """The entries of one kind in a published version, by ascending key.

    Lookups read only the row groups that may match. Iteration reads all entries and caches them.
    """

    def __init__(self, kind: EntryKind[Entry], objects: ObjectStore, files: SegmentFiles) -> None:
        self.kind = kind
        self.files = files
        self._objects = objects
        self._found: Mapping[Key, Entry | None] = {}
        """Entries of the first lookups by key, because a refresh looks up most keys several times; None for a key
        without an entry."""

    def is_same(self, other: StoredEntries[Any]) -> bool:
        """Return whether these entries and `other` are in the same files."""
        return (self.kind, self.files, self._objects) == (other.kind, other.files, other._objects)

    def differing_keys(self, other: StoredEntries[Entry]) -> set[Key] | None:
        """Return the keys whose entries may differ between two versions.

        None means that all keys may differ.

        Only keys are read. A file that both versions use is skipped, unless a merge between the two versions copied
        rows from it to another file.
        """
        if (self.kind, self._objects) != (other.kind, other._objects):
            return None
        files = SegmentFiles(0, unshared_files(self.files, other.files))
        return SegmentReader(self._objects, self.kind.segments, files).read_all_keys() if files.files else set()

    def find_all(self, keys: Collection[Key]) -> dict[Key, Entry]:
        if not self.files.files or "_entries" in self.__dict__:
            return {key: self.by_key[key] for key in keys if key in self.by_key}
        storable_keys = [key for key in dict.fromkeys(keys) if _is_storable(key)]
        found = self._found
        missing_keys = [key for key in storable_keys if key not in found]
        if missing_keys:
            key_of = self.kind.key
            read_entries = {key_of(entry): entry for entry in self._decode(self._reader.find(KeySet(missing_keys)))}
            # Replaced, not changed: threads share it.
            found = {**found, **dict.fromkeys(missing_keys), **read_entries}
            if len(found) <= _MAX_FOUND:
                self._found = found
        return {key: entry for key in storable_keys if (entry := found[key]) is not None}

    def find_prefixes(self, prefixes: Collection[Key]) -> list[Entry]:
        storable_prefixes = [prefix for prefix in dict.fromkeys(prefixes) if _is_storable(prefix)]
        if not self.files.files or not storable_prefixes:
            return []
        rows = self._reader.find(KeyPrefixes(storable_prefixes))
        return list(self._decode(rows.take(pc.sort_indices(rows.column(0)))))

    def least_key(self) -> Key | None:
        return self._reader.least_key()

    @lock_free_cached_property
    def _reader(self) -> SegmentReader:
        return SegmentReader(self._objects, self.kind.segments, self.files)

    @cached_property
    def by_key(self) -> Mapping[Key, Entry]:
        """All entries by their keys."""
        key_of = self.kind.key
        return {key_of(entry): entry for entry in self._entries}

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return self._decode(self._sorted_rows()) if self.files.files else ()

    def _sorted_rows(self) -> pa.Table:
        rows = self.read_rows()
        # The rows of one segment are sorted.
        return rows if len(self.files.files) == 1 else rows.take(pc.sort_indices(rows.column(0)))

    def read_rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the entries as an unordered table, with all columns or some."""
        return SegmentReader(self._objects, self.kind.segments, self.files).read_rows(columns)

    def _decode(self, rows: pa.Table) -> tuple[Entry, ...]:
        try:
            return tuple(decode_entries(self.kind, rows))
        except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
            names = ", ".join(self._objects.uri(path) for path in self.files.paths())
            raise CorruptionError(
                f"{names} is damaged ({type(error).__name__}: {error}); rebuild with `metastore refresh NAME --full`"
            ) from error

    def stream(self) -> Iterator[Entry]:
        """Yield all entries by ascending key.

        Entries that are not in memory yet are read in batches.
        """
        if "_entries" in self.__dict__:
            yield from self._entries
            return
        for rows in self.stream_rows():
            yield from self._decode(rows)

    def open_files(self, files: Sequence[SegmentFile]) -> list[Segment]:
        """Return a reader of each of `files`, in the same order.

        A file of these entries with an equal `SegmentFile` gets the reader that lookups use, with what it has cached.
        Any other file gets a new reader. A `SegmentFile` changes if a merge copies some of the file's rows to an older
        segment.
        """
        stored_files = self.files.files
        numbers = {file.path: number for number, file in enumerate(stored_files)}
        others = SegmentReader(self._objects, self.kind.segments, SegmentFiles(0, tuple(files)))
        return [
            self._reader.segment(number)
            if (number := numbers.get(file.path)) is not None and stored_files[number] == file
            else others.segment(at)
            for at, file in enumerate(files)
        ]

    def stream_rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the entries as tables of bounded size, by ascending key.

        The tables have all columns, or the key and `columns`.
        """
        schema = self.kind.schema
        if columns is not None:
            schema = pa.schema([field for field in schema if field.name in {schema[0].name, *columns}])
        count = 0
        for rows, _ in merge_segments(stored_sources(self._reader, schema.names), schema):
            count += len(rows)
            yield rows
        if count != self.files.rows:
            raise CorruptionError(
                f"{self._objects.uri()}: the {self.kind.name} files have {count:,} rows, and the version "
                f"{self.files.rows:,}; rebuild with `metastore refresh NAME --full`"
            )

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

    def __reduce__(self) -> tuple[object, ...]:
        return _stored, (self.kind.name, self._objects, self.files)


def _stored(name: str, objects: ObjectStore, files: SegmentFiles) -> StoredEntries[Any]:
    return StoredEntries(next(kind for kind in KINDS if kind.name == name), objects, files)


class StoredProfileSpecs(Mapping[str, Mapping[str, str]]):
    """The profile specs of a published version: {spec id: {top-level column: text of its column spec}}.

    A column is given by its field id, or by its name if it has none. The text says what is stored of the column (see
    `pipeline.column_spec`). Specs are read on first use.
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


CACHE_ERRORS = (ObjectNotFoundError, CorruptionError, KeyError, pa.ArrowException)
"""Errors of reading a metadata cache, which are ignored, because the cache only saves work."""


class StoredMetadataCache(Mapping[bytes, bytes]):
    """The metadata cache of a published version.

    A value that cannot be read counts as missing.
    """

    def __init__(self, entries: StoredEntries[MetadataCacheEntry]) -> None:
        self.entries = entries
        self._lookups = 0

    @cached_property
    def _values(self) -> Mapping[bytes, bytes]:
        try:
            return {entry.key: entry.value for entry in self.entries}
        except CACHE_ERRORS:
            return {}

    def __getitem__(self, key: bytes) -> bytes:
        self._lookups += 1
        if self._lookups > _SINGLE_LOOKUPS or "_values" in self.__dict__:
            return self._values[key]
        try:
            entry = self.entries.find(key)
        except CACHE_ERRORS as error:
            raise KeyError(key) from error
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[object, ...]:
        return StoredMetadataCache, (self.entries,)


def diff_entries(
    kind: EntryKind[Entry], before: Sequence[Entry], after: Sequence[Entry]
) -> dict[Key, tuple[Entry | None, Entry | None]]:
    """Return {key: (entry before, entry after)} for entries that differ between versions, sorted by key.

    A missing entry is None. If both versions are published, keys are read only from files that one of them lacks.

    Args:
        kind: The kind of the entries.
        before: The entries of the earlier version.
        after: The entries of the later version.

    Raises:
        StoreError: The entries of an expired version have been deleted, or a file is corrupt.
    """
    keys = None
    if isinstance(before, StoredEntries) and isinstance(after, StoredEntries):
        keys = before.differing_keys(after)
    old, new = _entries_by_key(kind, before, keys), _entries_by_key(kind, after, keys)
    pairs = ((key, (old.get(key), new.get(key))) for key in sorted(old.keys() | new.keys()))
    return {key: (entry, later) for key, (entry, later) in pairs if entry != later}


def partition_contents(version: Version) -> dict[str, str]:
    """Return {partition key: digest of what determines its statistics} of a version, sorted by key."""
    return {key: values[0] for key, values in _partition_columns(version, "content_id")}


def partition_fragment_counts(version: Version) -> dict[str, int]:
    """Return {partition key: number of fragments} of a version's partitions, sorted by key."""
    return {key: values[0] for key, values in _partition_columns(version, "fragments")}


def partition_sizes(version: Version) -> dict[str, tuple[int, int]]:
    """Return {partition key: (number of fragments, their stored bytes)} of a version's partitions."""
    return dict(_partition_columns(version, "fragments", "bytes"))


def _partition_columns(version: Version, *names: str) -> Iterator[tuple[str, Any]]:
    """Yield (partition key, tuple of values) for each partition of a version, sorted by key.

    The values are those of the fields `names` of the partition's entry, in this order. For a published version, no
    entry objects are created, which is fast.
    """
    partitions = version.partitions
    if not isinstance(partitions, StoredEntries):
        for entry in sorted(partitions, key=PARTITIONS.key):
            yield entry.key, tuple(getattr(entry, name) for name in names)
        return
    rows = partitions.read_rows(["key", *names])
    rows = rows.take(pc.sort_indices(rows["key"]))
    columns = [rows[name].to_pylist() for name in names]
    yield from zip(rows["key"].to_pylist(), zip(*columns, strict=True), strict=True)


class ChangedMetadataCache(Mapping[bytes, bytes]):
    """The metadata cache of a version that is being built, as changes of the previous version's cache."""

    def __init__(self, entries: Entries[MetadataCacheEntry]) -> None:
        self.entries = entries

    def __getitem__(self, key: bytes) -> bytes:
        entry = self.entries.find(key)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __iter__(self) -> Iterator[bytes]:
        return (entry.key for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def find_partition(version: Version, key: str) -> PartitionEntry | None:
    """Return the entry of a partition; None if the version has no such partition."""
    return _entries_by_key(PARTITIONS, version.partitions, [key]).get(key)


def _entries_by_key(kind: EntryKind[Entry], entries: Sequence[Entry], keys: Collection[Key] | None) -> dict[Key, Entry]:
    """Return the entries with these keys, by key; all entries if `keys` is None."""
    if keys is not None and isinstance(entries, Entries):
        return entries.find_all(keys)
    wanted_keys = None if keys is None else set(keys)
    by_key = zip(map(kind.key, entries), entries, strict=True)
    return {key: entry for key, entry in by_key if wanted_keys is None or key in wanted_keys}


def find_partitions(version: Version, keys: Collection[str]) -> list[PartitionEntry]:
    """Return the entries of partitions, sorted by key.

    Keys without a partition are ignored.
    """
    partitions = _entries_by_key(PARTITIONS, version.partitions, keys)
    return [partitions[key] for key in sorted(partitions)]


def find_fragments(version: Version, partition_keys: Collection[str]) -> list[FragmentEntry]:
    """Return the entries of all fragments in the partitions with the given keys, sorted by key."""
    if isinstance(version.fragments, Entries):
        return version.fragments.find_prefixes([fragment_key(key, "") for key in partition_keys])
    selected_keys = set(partition_keys)
    return sorted((entry for entry in version.fragments if entry.partition_key in selected_keys), key=attrgetter("key"))


def _is_storable(key: Key) -> bool:
    """Return whether a key can be stored.

    Text with invalid Unicode, for example from a command line, cannot.
    """
    try:
        if isinstance(key, str):
            key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lists(values: Sequence[Sequence[Any]], type: pa.ListType) -> pa.Array:
    """Return an Arrow array of lists: one for each of `values`."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    flat = pa.array([item for value in values for item in value], type.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, with lists as tuples.

    Faster than `to_pylist`.
    """
    if not pa.types.is_list(column.type):
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        flat = chunk.flatten().to_pylist()
        start = 0
        for length in chunk.value_lengths().to_pylist():
            values.append(tuple(flat[start : start + length]))
            start += length
    return values
