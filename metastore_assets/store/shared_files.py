"""Reference counts of files, which show which files a new version no longer references.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. Entries
of a version, such as those of fragments and partitions, reference files. A file is shared if it has several profiles,
or if several entries reference it. For example, a partition with one fragment uses the files of this fragment. For each
shared file, the number of references from each group is stored. A group is a partition, or the table (`*`). Every other
file has one reference, and no stored count.

The counts of a new version are computed from the stored counts, and from the entries that the version puts and drops.
If a file without a stored count gets a reference, an unchanged entry may already reference it. Such entries are looked
up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metastore_assets.errors import CorruptionError
from metastore_assets.store.entries import FRAGMENTS, PARTITIONS, SHARED_FILES, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.version import ProfileFiles, SharedFileEntry, Version, fragment_key, shared_file_key

_TABLE = "*"
"""The group of references from the version's document."""


@dataclass
class _References:
    """Changes of the number of references to one file."""

    put_counts: Counter[str] = field(default_factory=Counter)
    """{group: number of new references}."""
    dropped_counts: Counter[str] = field(default_factory=Counter)
    sections: int = 0
    """Number of profiles with which the file was written."""


def count_references(
    version: Version,
    base: Version | None,
    changes: Mapping[str, EntryChanges[Any]],
    shared_files: StoredEntries[SharedFileEntry] | None,
) -> tuple[EntryChanges[SharedFileEntry], list[str]]:
    """Count the references to files in a new version.

    Args:
        version: The new version.
        base: The previous version; None if there is none.
        changes: The changes of the entries, by name of the kind.
        shared_files: The counts of the previous version; None if there is none.

    Returns:
        (changes of the stored counts, sorted paths of the files that `base` references and `version` does not). The
        paths are those of files with profiles, value counts (distinct values with their frequencies) or indexes.

    Raises:
        CorruptionError: The stored counts contradict the entries.
    """
    references = _changed_references(changes.values())
    _add_references(references, version.files.paths(), _TABLE, is_put=True)
    if base is not None:
        _add_references(references, base.files.paths(), _TABLE, is_put=False)
    references = {
        path: file_changes
        for path, file_changes in references.items()
        if file_changes.put_counts != file_changes.dropped_counts
    }
    stored_counts = _find_counts(shared_files, references)
    unchanged_references = (
        _unchanged_references(version, references, stored_counts, changes) if base is not None else {}
    )
    counts = _count(references, stored_counts, unchanged_references, version.table)
    garbage = {path for path, entry in counts.items() if not entry.references}
    if base is not None:
        # No entry references files of value counts and indexes.
        garbage |= set(base.auxiliary_files()).difference(version.document_paths())
    return EntryChanges(SHARED_FILES, shared_files, *_shared(counts, stored_counts)), sorted(garbage)


def count_profiles(
    table: str, changes: Iterable[EntryChanges[Any]], shared_files: StoredEntries[SharedFileEntry] | None
) -> EntryChanges[SharedFileEntry]:
    """Count the references to files with several profiles.

    Return the changes of the stored counts.

    A file with one profile is not counted, even if several entries reference it. `count_references` counts all shared
    files, but needs the new version. Callers that have no new version yet use this function.

    Args:
        table: Name of the table, for messages.
        changes: The changes of the entries that reference files.
        shared_files: The counts of the previous version; None if there is none.

    Raises:
        CorruptionError: The stored counts contradict the entries.
    """
    references = {
        path: file_changes
        for path, file_changes in _changed_references(changes).items()
        if file_changes.sections > 1 and file_changes.put_counts != file_changes.dropped_counts
    }
    stored_counts = _find_counts(shared_files, references)
    return EntryChanges(
        SHARED_FILES, shared_files, *_shared(_count(references, stored_counts, {}, table), stored_counts)
    )


def _find_counts(
    shared_files: StoredEntries[SharedFileEntry] | None, paths: Iterable[str]
) -> dict[str, SharedFileEntry]:
    """Return the stored counts of files, by path.

    Files without a stored count are omitted.
    """
    if shared_files is None:
        return {}
    return {entry.path: entry for entry in shared_files.find_all(list(map(shared_file_key, paths))).values()}


def _count(
    references: Mapping[str, _References],
    stored_counts: Mapping[str, SharedFileEntry],
    unchanged_references: Mapping[str, Counter[str]],
    table: str,
) -> dict[str, SharedFileEntry]:
    """Return {path: entry with the number of references after the changes} for each file in `references`.

    The changes are applied to the number of references in the previous version. This number is:

    - for a file with a stored count: this count;
    - for a file without a stored count that loses references: the number that it loses, because it had no others;
    - for any other file: the number in `unchanged_references`, or 0 if the file is missing there.

    Args:
        references: The changes of the references, by path.
        stored_counts: The stored counts, by path.
        unchanged_references: References from unchanged entries, as {path: {group: number}}. Needed only for files that
            have no stored count and lose no reference.
        table: Name of the table, for messages.

    Raises:
        CorruptionError: A file loses more references than it had.
    """
    counts: dict[str, SharedFileEntry] = {}
    for path, file_changes in references.items():
        entry = stored_counts.get(path)
        if entry is not None:
            groups = Counter(dict(zip(entry.groups, entry.group_references, strict=True)))
        else:
            groups = Counter(file_changes.dropped_counts or unchanged_references.get(path))
        groups.update(file_changes.put_counts)
        groups.subtract(file_changes.dropped_counts)
        if min(groups.values()) < 0:
            raise CorruptionError(
                f"table {table!r}: more references to {path} are removed than the last version has; rebuild with "
                f"`metastore refresh {table} --full`"
            )
        keys = tuple(sorted(+groups))
        sections = entry.sections if entry is not None else file_changes.sections
        counts[path] = SharedFileEntry(path, sections, keys, tuple(groups[key] for key in keys))
    return counts


def _shared(
    counts: Mapping[str, SharedFileEntry], stored_counts: Mapping[str, SharedFileEntry]
) -> tuple[dict[str, SharedFileEntry], dict[str, SharedFileEntry]]:
    """Return (counts to store, stored counts that are replaced or removed), each by key.

    The count of a file is stored if the file has several references. It is also stored if the file has one reference
    and was written with several profiles (`SharedFileEntry.sections`).

    Args:
        counts: The new counts, by path.
        stored_counts: The counts of these files that the previous version has stored, by path. All of them are replaced
            or removed.
    """
    put_counts = {
        entry.key: entry
        for entry in counts.values()
        if entry.references > 1 or (entry.references and entry.sections > 1)
    }
    return put_counts, {entry.key: entry for entry in stored_counts.values()}


def _changed_references(changes: Iterable[EntryChanges[Any]]) -> dict[str, _References]:
    """Return the changes of the number of references to each file, by path."""
    references: dict[str, _References] = {}
    for kind_changes in changes:
        if not kind_changes.kind.references_files:
            continue
        for entries, is_put in ((kind_changes.put_entries, True), (kind_changes.dropped_entries, False)):
            for entry in entries.values():
                files: ProfileFiles = entry.files
                _add_references(references, files.paths(), entry.group, is_put=is_put)
                if files.states:
                    references[files.states].sections = files.sections
    return references


def _add_references(references: dict[str, _References], paths: Iterable[str], group: str, *, is_put: bool) -> None:
    """Count the references from one entry to its files.

    There is one reference per file, even if the path of the file occurs twice.

    Args:
        references: {path: numbers of new and dropped references}, in which the references are counted.
        paths: The files of the entry.
        group: The group of the entry, such as the key of its partition.
        is_put: True to count new references, False to count dropped ones.
    """
    for path in set(paths):
        file_changes = references.setdefault(path, _References())
        (file_changes.put_counts if is_put else file_changes.dropped_counts)[group] += 1


def _unchanged_references(
    version: Version,
    references: Mapping[str, _References],
    stored_counts: Mapping[str, SharedFileEntry],
    changes: Mapping[str, EntryChanges[Any]],
) -> dict[str, Counter[str]]:
    """Count references from unchanged entries.

    Return {path: {group: number}}; a group is a partition, or `*` (table).

    A file of `references` is counted only if it has no stored count and loses no reference. A stored count already has
    the references from unchanged entries. A file without a stored count has one reference: if it loses that, no
    unchanged entry references it.

    Args:
        version: The new version.
        references: The changes of the number of references to each file, by path.
        stored_counts: The stored counts of files in `references`, by path. Files without a stored count are missing.
        changes: The changes of the entries, by name of the kind.
    """
    uncounted_paths = {
        path
        for path, file_changes in references.items()
        if path not in stored_counts and not file_changes.dropped_counts
    }
    fragments, partitions = changes[FRAGMENTS.name], changes[PARTITIONS.name]
    # A new entry of a partition with one fragment uses the files of that fragment, which may be unchanged.
    profiled_keys = {entry.partition_key for entry in fragments.put_entries.values()}
    keys = [
        entry.key
        for entry in partitions.put_entries.values()
        if entry.fragments == 1
        and entry.key not in profiled_keys
        and not uncounted_paths.isdisjoint(entry.files.paths())
    ]
    entries: list[Any] = fragments.find_prefixes([fragment_key(key, "") for key in keys]) if keys else []
    # A table with one partition also uses the files of that partition.
    if len(partitions) == 1 and not partitions.put_entries and not uncounted_paths.isdisjoint(version.files.paths()):
        entries += list(partitions)
    references_by_path: dict[str, Counter[str]] = {}
    for entry in entries:
        for path in uncounted_paths.intersection(entry.files.paths()):
            references_by_path.setdefault(path, Counter())[entry.group] += 1
    return references_by_path
