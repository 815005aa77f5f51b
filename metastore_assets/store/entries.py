"""The entries of a version (one per fragment, partition, node or profile spec) as Arrow tables and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from metastore_assets.store.manifest import (
    FragmentEntry,
    MemoryEntry,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    ProfileSpecEntry,
    Version,
)

Entry = TypeVar("Entry")
Key: TypeAlias = Any
"""Text, or bytes, as the first column of a kind of entry has."""

_STRINGS = pa.list_(pa.string())
FILES = ("statistics", "histograms", "frequencies", "states")
"""The columns that name files."""
_FILES = [
    *(pa.field(name, _STRINGS if name == "frequencies" else pa.string()) for name in FILES),
    pa.field("section", pa.string()),
    pa.field("sections", pa.int64()),
]
"""`ProfileFiles`, in the order of its fields."""


@dataclass(frozen=True)
class EntryKind(Generic[Entry]):
    """One kind of entry. The first column is the key: each entry of a version has another one."""

    name: str
    """Of the attribute of a version, in its document, and in the names of the files."""
    type: type[Entry]
    schema: pa.Schema

    @property
    def names_files(self) -> bool:
        """Whether its entries have profiles."""
        return set(FILES) <= set(self.schema.names)

    @property
    def key(self) -> Callable[[Entry], Key]:
        """What tells an entry from the others of its kind."""
        return attrgetter(self.schema[0].name)

    def by_key(self, entries: Iterable[Entry]) -> dict[Key, Entry]:
        """Entries by their keys."""
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
            ("unlisted", _STRINGS),
            *_FILES,
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
            *_FILES,
        ]
    ),
)
NODES = EntryKind("nodes", NodeEntry, pa.schema([("id", pa.string()), ("spec_id", pa.string()), *_FILES]))
PROFILE_SPECS = EntryKind(
    "specs",
    ProfileSpecEntry,
    pa.schema([("spec_id", pa.string()), ("field_ids", _STRINGS), ("column_specs", _STRINGS)]),
)
MEMORY = EntryKind("memory", MemoryEntry, pa.schema([("key", pa.binary()), ("value", pa.binary())]))
KINDS: tuple[EntryKind[Any], ...] = (FRAGMENTS, PARTITIONS, NODES, PROFILE_SPECS, MEMORY)


def entries_table(kind: EntryKind[Entry], entries: Sequence[Entry]) -> pa.Table:
    """One row per entry, in the given order; the profile's files are four columns."""
    columns = []
    for field in kind.schema:
        is_file = kind.names_files and field in _FILES
        values = list(map(attrgetter(f"files.{field.name}" if is_file else field.name), entries))
        columns.append(_strings(values) if field.type == _STRINGS else pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=kind.schema)


def entries_of(kind: EntryKind[Entry], table: pa.Table) -> list[Entry]:
    """The entries of a table made by `entries_table`."""
    columns = {name: _values(table.column(name)) for name in kind.schema.names}
    if kind.names_files:
        columns["files"] = list(map(ProfileFiles, *(columns[field.name] for field in _FILES)))
    return list(map(kind.type, *(columns[field.name] for field in fields(kind.type))))  # type: ignore[arg-type]


def version_entries(version: Version, kind: EntryKind[Any]) -> Sequence[Any]:
    """What a version has of one kind."""
    if kind is MEMORY:
        return [MemoryEntry(key, value) for key, value in version.memory.items()]
    if kind is PROFILE_SPECS:
        specs = version.specs.items()
        return [ProfileSpecEntry(key, tuple(columns), tuple(columns.values())) for key, columns in specs]
    entries: Sequence[Any] = getattr(version, kind.name)
    return entries


def _strings(values: Sequence[Sequence[str]]) -> pa.Array:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    flat = pa.array([text for value in values for text in value], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; lists as tuples, made from one flat list (several times faster than `to_pylist`)."""
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
