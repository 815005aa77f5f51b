"""The entries of published versions, read on first use, and written as what has changed since the version before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.entries import KINDS, Entry, EntryKind, Key, entries_of, entries_table
from metastore_assets.store.entry_files import (
    EntryFiles,
    EntryFinder,
    kept_files,
    keys_in,
    read_entries,
    write_base,
    write_changes,
)
from metastore_assets.store.manifest import MemoryEntry, PartitionEntry, ProfileSpecEntry, Version
from metastore_assets.store.objects import ObjectStore


class StoredEntries(Sequence[Entry]):
    """The entries of one kind in a published version, by increasing key, read on first use. Picklable unread."""

    def __init__(self, kind: EntryKind[Entry], objects: ObjectStore, files: EntryFiles) -> None:
        self.kind = kind
        self.files = files
        self._objects = objects

    def find(self, key: Key) -> Entry | None:
        """The entry with that key, if there is one. Reads a small part of the files, unless all are read already."""
        if not self.files.files or "_entries" in self.__dict__:
            return self.by_key.get(key)
        try:
            pa.scalar(key, self.kind.schema[0].type)
        except UnicodeEncodeError:
            return None  # a text that is none, such as an argument of a command, is no key
        return next(iter(self._decoded(self._finder.find([key]))), None)

    @lock_free_cached_property
    def _finder(self) -> EntryFinder:
        return EntryFinder(self._objects, self.files)

    @cached_property
    def by_key(self) -> Mapping[Key, Entry]:
        """All entries by their keys."""
        return self.kind.by_key(self._entries)

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return self._decoded(read_entries(self._objects, self.files)) if self.files.files else ()

    def _decoded(self, rows: pa.Table) -> tuple[Entry, ...]:
        try:
            return tuple(entries_of(self.kind, rows))
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


def _stored(name: str, objects: ObjectStore, files: EntryFiles) -> StoredEntries[Any]:
    return StoredEntries(next(kind for kind in KINDS if kind.name == name), objects, files)


class StoredProfileSpecs(Mapping[str, Mapping[str, str]]):
    """The profile specs of a published version, read on first use."""

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


class StoredMemory(Mapping[bytes, bytes]):
    """What planning learnt up to a published version, read on first use; nothing where that is gone or damaged."""

    def __init__(self, entries: StoredEntries[MemoryEntry]) -> None:
        self.entries = entries

    @cached_property
    def _values(self) -> Mapping[bytes, bytes]:
        return {entry.key: entry.value for entry in self.entries} if self.is_sound else {}

    @cached_property
    def is_sound(self) -> bool:
        """Whether it can be read. It only saves work, so it is no error when it cannot."""
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
        return StoredMemory, (self.entries,)


@dataclass(frozen=True)
class Written(Generic[Entry]):
    """What became of the entries of one kind."""

    files: EntryFiles
    dropped: Sequence[Entry] = ()
    """Entries of the version before that are not there any more, or not as they were."""


def write_entries(
    objects: ObjectStore, kind: EntryKind[Entry], entries: Sequence[Entry], base: StoredEntries[Entry] | None
) -> Written[Entry]:
    """Write the entries of a version, or what of them has changed since `base`, which lies in the same store.

    Raises ValueError when two entries have the same key.
    """
    now = kind.by_key(entries)
    if len(now) < len(entries):
        (twice, _), *_ = Counter(map(kind.key, entries)).most_common(1)
        raise ValueError(f"two {kind.name} of one version have the key {twice!r}")
    if base is None:
        return Written(_write_whole(objects, kind, now))
    before = base.by_key
    changed = {key for key, entry in now.items() if before.get(key) != entry}
    changed |= before.keys() - now.keys()
    if not changed:
        return Written(base.files)
    dropped = [before[key] for key in changed if key in before]
    kept = kept_files(base.files, len(now), len(changed))
    if not kept:
        return Written(_write_whole(objects, kind, now), dropped)
    told = changed | keys_in(objects, base.files.files[len(kept) :])
    table = entries_table(kind, [now[key] for key in sorted(told) if key in now])
    return Written(write_changes(objects, kind.name, len(now), kept, table, told - now.keys()), dropped)


def _write_whole(objects: ObjectStore, kind: EntryKind[Entry], entries: Mapping[Key, Entry]) -> EntryFiles:
    if not entries:
        return EntryFiles(0, ())
    return write_base(objects, kind.name, entries_table(kind, [entries[key] for key in sorted(entries)]))


def find_partition(version: Version, key: str) -> PartitionEntry | None:
    """The partition of a version that has a key. Of a version that was read from a store little is read."""
    if isinstance(version.partitions, StoredEntries):
        return version.partitions.find(key)
    return next((entry for entry in version.partitions if entry.key == key), None)
