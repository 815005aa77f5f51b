"""The differences between the fragments of a table's snapshot and those of a published version.

A fragment is a data file with its deletes. Some formats report the difference from the commits of the table. For
others, all fragments are compared. A version has an entry for each fragment. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from metastore_assets.errors import FragmentError
from metastore_assets.formats.base import (
    Fragment,
    FragmentPath,
    NoDiffError,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
)
from metastore_assets.store.entries import FRAGMENTS, partition_fragment_counts
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.version import FragmentEntry, Version, fragment_key


@dataclass(frozen=True)
class SnapshotChanges:
    """The difference between a table's snapshot and a published version, in fragments."""

    snapshot: SnapshotMetadata
    added_fragments: tuple[Fragment, ...]
    """Fragments of the snapshot without an entry of the same id, partition key and path; sorted by (partition_key,
    id)."""
    removed_entries: Mapping[str, FragmentEntry]
    """Entries of the version without a fragment of the same id, partition key and path; by `FragmentEntry.key`."""
    unchanged_fragments: tuple[Fragment, ...] = ()
    """Fragments that both have, in partitions that are read again on request. Other unchanged fragments are omitted."""
    comparison: str = ""
    """Why all fragments were compared, as text for users; empty if the format reported the difference."""
    entries_before: Mapping[str, Sequence[FragmentEntry]] = field(default_factory=dict)
    """{partition key: all fragments of the partition in the version, sorted by key}, for partitions whose entries are
    already read."""
    find: Callable[[Collection[FragmentPath]], Iterable[Fragment]] | None = field(
        default=None, compare=False, repr=False
    )
    """Returns the fragments of the table's current snapshot with these partition keys and paths; None if this object
    has all fragments that a refresh may read."""

    @property
    def complete_snapshot(self) -> Snapshot | None:
        """The snapshot with all of its fragments; None if only the difference is known."""
        return self.snapshot if isinstance(self.snapshot, Snapshot) else None

    @cached_property
    def current(self) -> Mapping[str, Fragment] | None:
        """All fragments of the snapshot, by id; None if only the difference is known."""
        snapshot = self.complete_snapshot
        return None if snapshot is None else {fragment.id: fragment for fragment in snapshot.fragments}

    def find_fragments(self, entries: Iterable[FragmentEntry]) -> dict[str, Fragment]:
        """Return the fragments of the snapshot that these entries describe, by fragment id.

        Raises:
            FragmentError: The table does not have a fragment any more, because a commit has removed it since planning.
        """
        known_fragments = self.current or {
            fragment.id: fragment for fragment in (*self.added_fragments, *self.unchanged_fragments)
        }
        wanted_entries = {entry.id: entry for entry in entries}
        found_fragments = {id_: known_fragments[id_] for id_ in wanted_entries.keys() & known_fragments.keys()}
        others = {id_: entry for id_, entry in wanted_entries.items() if id_ not in found_fragments}
        if others and self.find is not None:
            paths = {(entry.partition_key, entry.path) for entry in others.values()}
            found_fragments |= {fragment.id: fragment for fragment in self.find(paths) if fragment.id in others}
        for id_, entry in others.items():
            if id_ not in found_fragments:
                raise FragmentError(f"{entry.path}: the table has no such file any more", path=entry.path, missing=True)
        return found_fragments

    def partition_keys(self, base: Version | None) -> set[str]:
        """Return the keys of all partitions of the snapshot.

        Args:
            base: The version with which the snapshot was compared; None if there is none.
        """
        counts = Counter(partition_fragment_counts(base) if base is not None else {})
        counts.subtract(entry.partition_key for entry in self.removed_entries.values())
        counts.update(fragment.partition_key for fragment in self.added_fragments)
        return {key for key, count in counts.items() if count}


def compare_snapshot(snapshot: Snapshot, base: Version | None, reason: str) -> SnapshotChanges:
    """Compare all fragments of a snapshot with those of a published version.

    Args:
        snapshot: The snapshot.
        base: The version; None if there is none.
        reason: Why all fragments are compared, as text for the plan.
    """
    published_entries = {entry.key: entry for entry in base.fragments} if base else {}
    keys: set[str] = set()
    added_fragments = []
    for fragment in snapshot.fragments:
        key = fragment_key(fragment.partition_key, fragment.path)
        entry = published_entries.get(key)
        if entry is not None and entry.id == fragment.id:
            keys.add(key)
        else:
            added_fragments.append(fragment)
    removed_entries = {key: entry for key, entry in published_entries.items() if key not in keys}
    return SnapshotChanges(snapshot, tuple(added_fragments), removed_entries, comparison=reason)


def changes_from_diff(diff: SnapshotDiff, base: Version) -> SnapshotChanges:
    """Return the changes that a format reported, with the published entries of the removed fragments.

    Args:
        diff: The difference between the version's snapshot and the current one.
        base: The version.

    Raises:
        NoDiffError: The difference contradicts the entries of the version, or the table lists a file several times.
    """
    removed_keys = {fragment_key(*path) for path in diff.removed}
    added_keys = {fragment_key(fragment.partition_key, fragment.path): fragment for fragment in diff.added}
    possibly_removed = [fragment_key(*path) for path in diff.possibly_removed]
    # The plan needs all fragments of these partitions. One lookup reads them with those that the difference names.
    partition_keys = {key for key, _ in diff.removed} | {fragment.partition_key for fragment in diff.added}
    entries = entries_of(base, FRAGMENTS)
    partition_entries = {
        entry.key: entry for entry in entries.find_prefixes([fragment_key(key, "") for key in partition_keys])
    }
    published_entries = {
        key: partition_entries[key] for key in (*removed_keys, *added_keys) if key in partition_entries
    }
    published_entries |= entries.find_all([key for key in possibly_removed if key not in published_entries])
    before: dict[str, list[FragmentEntry]] = {key: [] for key in partition_keys}
    for entry in partition_entries.values():
        before[entry.partition_key].append(entry)
    unknown = removed_keys - published_entries.keys()
    if unknown:
        raise NoDiffError(f"the commits remove {len(unknown):,} files that version {base.number} does not have")
    replaced_keys = None if diff.replaced is None else {fragment_key(*path) for path in diff.replaced}
    if replaced_keys is not None and added_keys.keys() & published_entries.keys() != replaced_keys:
        raise NoDiffError("the table lists a file several times")
    # A file may be removed and added again with the same content.
    unchanged_keys = {
        key
        for key, fragment in added_keys.items()
        if key in published_entries and published_entries[key].id == fragment.id
    }
    added_fragments = tuple(fragment for key, fragment in added_keys.items() if key not in unchanged_keys)
    removed_entries = {key: entry for key, entry in published_entries.items() if key not in unchanged_keys}
    return SnapshotChanges(diff.current, added_fragments, removed_entries, entries_before=before)
