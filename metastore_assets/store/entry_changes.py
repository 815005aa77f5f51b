"""The entries of a version that is being built, as changes of the entries of the previous version.

An entry describes a fragment (a data file with its deletes), a partition or the like. Entries are stored in segments,
which are sorted files. The commit of a new version adds a segment with its changes, and merges some of the segments of
the previous version (see `store.segments`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import pyarrow as pa

from metastore_assets.store.entries import (
    CACHE_ERRORS,
    METADATA_CACHE,
    ChangedMetadataCache,
    Entries,
    Entry,
    EntryKind,
    Key,
    StoredEntries,
    StoredMetadataCache,
    encode_entries,
    version_entries,
)
from metastore_assets.store.keys import KeyPrefixes
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segment_levels import SegmentMerge, SegmentUpdate
from metastore_assets.store.segment_merge import MergeSource, write_segment
from metastore_assets.store.segments import EMPTY, KeyChanges, SegmentFile, SegmentFiles, key_count
from metastore_assets.store.version import MetadataCacheEntry, Version


class DuplicateKeyError(ValueError):
    """Raised if two entries of one kind in one version have the same key."""

    def __init__(self, kind: EntryKind[Any], key: Key) -> None:
        super().__init__(f"two {kind.name} of one version have the key {key!r}")
        self.kind = kind
        self.key = key


class EntryChanges(Entries[Entry]):
    """The entries of one kind in a new version, as changes of the stored entries of the previous version.

    Lookups search the changes and the stored entries. Iteration reads all stored entries.
    """

    def __init__(
        self,
        kind: EntryKind[Entry],
        base: StoredEntries[Entry] | None,
        put_entries: Mapping[Key, Entry],
        dropped_entries: Mapping[Key, Entry],
    ) -> None:
        """Create the entries of a new version.

        Usually `changed` or `between` is called instead.

        Args:
            kind: The kind of the entries.
            base: The entries of the previous version; None if there is none.
            put_entries: The new and the changed entries, by key.
            dropped_entries: The entries of `base` that the new version removes or replaces, by key.
        """
        self.kind = kind
        self.base = base
        self.put_entries = put_entries
        self.dropped_entries = dropped_entries

    @classmethod
    def changed(
        cls,
        kind: EntryKind[Entry],
        base: StoredEntries[Entry] | None,
        put_entries: Iterable[Entry],
        removed_keys: Iterable[Key] = (),
    ) -> EntryChanges[Entry]:
        """Return the changes that put some entries and remove others.

        Only entries of `base` with keys of put or removed entries are read.

        Args:
            kind: The kind of the entries.
            base: The entries of the previous version; None if there is none.
            put_entries: Entries of the new version. Each replaces the entry of `base` with its key. If both are equal,
                this is no change.
            removed_keys: Keys of entries that the new version does not have. Keys that `base` lacks are ignored.

        Raises:
            DuplicateKeyError: Two entries of `put_entries` have the same key.
        """
        entries = _by_key(kind, put_entries)
        keys = entries.keys() | set(removed_keys)
        dropped_entries = base.find_all(keys) if base is not None and keys else {}
        unchanged_keys = {key for key, entry in entries.items() if dropped_entries.get(key) == entry}
        return cls(
            kind,
            base,
            {key: entry for key, entry in entries.items() if key not in unchanged_keys},
            {key: entry for key, entry in dropped_entries.items() if key not in unchanged_keys},
        )

    @classmethod
    def between(
        cls, kind: EntryKind[Entry], base: StoredEntries[Entry] | None, entries: Iterable[Entry]
    ) -> EntryChanges[Entry]:
        """Return the changes from all stored entries to all entries of the new version.

        Args:
            kind: The kind of the entries.
            base: The entries of the previous version; None if there is none.
            entries: All entries of the new version.

        Raises:
            DuplicateKeyError: Two of the entries have the same key.
        """
        if isinstance(entries, EntryChanges) and is_same_base(entries.base, base):
            return entries
        if isinstance(entries, StoredEntries) and is_same_base(entries, base):
            return cls(kind, base, {}, {})
        put_entries, dropped_entries, key_of = _by_key(kind, entries), {}, kind.key
        for entry in base.stream() if base is not None else ():
            key = key_of(entry)
            new_entry = put_entries.get(key)
            if new_entry == entry:
                del put_entries[key]
            else:
                dropped_entries[key] = entry
        return cls(kind, base, put_entries, dropped_entries)

    def replacing(self, replacements: Iterable[tuple[Entry, Entry]]) -> EntryChanges[Entry]:
        """Return changes in which some entries of the new version are replaced.

        Args:
            replacements: (entry of the new version, entry that replaces it), both with the same key.
        """
        put_entries, dropped_entries, key_of = dict(self.put_entries), dict(self.dropped_entries), self.kind.key
        for entry, new_entry in replacements:
            key = key_of(entry)
            if key not in put_entries:
                dropped_entries[key] = entry
            put_entries[key] = new_entry
        return EntryChanges(self.kind, self.base, put_entries, dropped_entries)

    @property
    def is_empty(self) -> bool:
        """Whether the new version has the same entries as the previous version."""
        return not self.put_entries and not self.dropped_entries

    def find_all(self, keys: Collection[Key]) -> dict[Key, Entry]:
        unchanged_keys = [key for key in keys if key not in self.put_entries and key not in self.dropped_entries]
        stored_entries = self.base.find_all(unchanged_keys) if self.base is not None and unchanged_keys else {}
        return {**stored_entries, **{key: self.put_entries[key] for key in keys if key in self.put_entries}}

    def find_prefixes(self, prefixes: Collection[Key]) -> list[Entry]:
        starts, key_of = tuple(prefixes), self.kind.key
        if not starts:
            return []
        if len(starts) == 1:
            put_entries = [entry for key, entry in self.put_entries.items() if key.startswith(starts[0])]
        else:
            selection = KeyPrefixes(starts)
            put_entries = [entry for key, entry in self.put_entries.items() if selection.overlaps(key, key)]
        stored_entries = self.base.find_prefixes(starts) if self.base is not None else []
        unchanged_entries = [entry for entry in stored_entries if key_of(entry) not in self.dropped_entries]
        return list(heapq.merge(unchanged_entries, sorted(put_entries, key=key_of), key=key_of))

    def least_key(self) -> Key | None:
        stored_keys = [] if self.base is None or not len(self.base) else [self.base.least_key()]
        return None if None in stored_keys else min([*self.put_entries, *stored_keys], default=None)

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return tuple(self)

    def __len__(self) -> int:
        return (len(self.base) if self.base is not None else 0) - len(self.dropped_entries) + len(self.put_entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        key_of = self.kind.key
        stored_entries = self.base.stream() if self.base is not None else ()
        unchanged_entries = (entry for entry in stored_entries if key_of(entry) not in self.dropped_entries)
        return heapq.merge(unchanged_entries, sorted(self.put_entries.values(), key=key_of), key=key_of)


def change_metadata_cache(
    base: Mapping[bytes, bytes] | None, values: Mapping[bytes, bytes], removed_keys: Iterable[bytes] = ()
) -> Mapping[bytes, bytes]:
    """Return a new version's metadata cache: the previous one with some values changed or removed.

    The cache has pieces of the table's own metadata, which the next refresh then need not read again. If the cache of
    the previous version cannot be read, the result has only the new values.

    Args:
        base: The metadata cache of the previous version; None if there is none.
        values: New values, and values that replace others.
        removed_keys: Keys of values that the new version does not have.
    """
    removed_keys = set(removed_keys)
    if base is None or not isinstance(base, StoredMetadataCache):
        return {**{key: value for key, value in (base or {}).items() if key not in removed_keys}, **values}
    new_entries = [MetadataCacheEntry(key, value) for key, value in values.items()]
    try:
        return ChangedMetadataCache(EntryChanges.changed(METADATA_CACHE, base.entries, new_entries, removed_keys))
    except CACHE_ERRORS:
        return values


def is_same_base(one: StoredEntries[Any] | None, other: StoredEntries[Any] | None) -> bool:
    """Return whether both objects read the same files, or both are None."""
    if one is None or other is None:
        return one is other
    return one.is_same(other)


def entries_of(version: Version, kind: EntryKind[Entry]) -> Entries[Entry]:
    """Return the entries of one kind in a version, with lookups by key."""
    entries = version_entries(version, kind)
    return entries if isinstance(entries, Entries) else EntryChanges.between(kind, None, entries)


def changed_entries(entries: EntryChanges[Entry], *, is_rebuilt: bool) -> tuple[Iterable[Entry], Iterable[Entry]]:
    """Return (removed entries, added entries), to update an index.

    A changed entry counts as both.

    Args:
        entries: The entries of a new version.
        is_rebuilt: Whether the index is built from scratch. If so, all entries are returned as added.
    """
    return ((), entries) if is_rebuilt else (entries.dropped_entries.values(), entries.put_entries.values())


def write_entries(
    objects: ObjectStore, changes: EntryChanges[Any], *, allow_step: bool, may_merge: bool
) -> SegmentFiles:
    """Write a new version's changed entries as a segment, and merge a limited part of older segments.

    Args:
        objects: The table's folder.
        changes: The entries of the new version.
        allow_step: Whether a commit of few entries may do a step, which merges one range of keys of a segment into the
            next older segment.
        may_merge: Whether a commit of many entries merges segments of this kind.

    Returns:
        The files with all entries of the new version.
    """
    kind = changes.kind
    stored_entries = StoredEntries(kind, objects, EMPTY) if changes.base is None else changes.base
    removed_keys = changes.dropped_entries.keys() - changes.put_entries.keys()

    def merge(segment_merge: SegmentMerge[pa.Table]) -> tuple[SegmentFile, ...]:
        sources, row_count = [], 0
        for part in segment_merge.parts:
            segment = stored_entries.open_files(part.files)
            sources.append(
                MergeSource.of_segments(segment, kind.schema.names)
                if part.keys is None
                else MergeSource.of_range(segment, part.keys)
            )
            row_count += key_count(part.files)
        if segment_merge.batch is not None:
            tombstones = pa.array(sorted(segment_merge.removed_keys), kind.schema[0].type)
            sources.append(MergeSource.of_table(segment_merge.batch, tombstones))
            row_count += len(segment_merge.batch) + len(tombstones)
        ranges = segment_merge.merge_ranges(sources, kind.schema)
        return write_segment(objects, kind.segments, ranges, row_count, segment_merge.file_rows)

    keys = KeyChanges(changes.put_entries.keys(), removed_keys, len(changes), may_merge=may_merge)
    update = SegmentUpdate(objects, kind.segments, stored_entries.files, keys)
    put_rows = encode_entries(kind, [changes.put_entries[key] for key in sorted(changes.put_entries)])
    return update.write([put_rows], merge, allow_step=allow_step)


def _by_key(kind: EntryKind[Entry], entries: Iterable[Entry]) -> dict[Key, Entry]:
    """Return entries by their keys.

    Raises DuplicateKeyError.
    """
    key_of, by_key = kind.key, {}
    for entry in entries:
        key = key_of(entry)
        if key in by_key:
            raise DuplicateKeyError(kind, key)
        by_key[key] = entry
    return by_key
