"""The difference between two snapshots of an Iceberg table, from the manifests that only one of them lists.

A manifest is a list of files. A manifest that both snapshots list is opened only if it may contain data files whose
deletes changed, or deletes for added or changed data files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import Fragment, FragmentPath, NoDiffError
from metastore_assets.formats.iceberg.deletes import DeleteIndex, target_path
from metastore_assets.formats.iceberg.manifests import DATA, FileEntry, Manifest
from metastore_assets.formats.iceberg.metadata import IcebergSnapshot
from metastore_assets.formats.iceberg.plan import IcebergFragmentPlanner
from metastore_assets.formats.iceberg.touched_manifests import TouchedManifests

_DELETE_MANIFEST = 1
"""The content of manifests of delete files."""


@dataclass(frozen=True)
class FragmentDifference:
    """The fragments by which two snapshots of a table differ."""

    added: tuple[Fragment, ...]
    """Sorted by (partition_key, id)."""
    removed: frozenset[FragmentPath]
    """Fragments whose partition key and path only the earlier snapshot has."""
    replaced: frozenset[FragmentPath]
    """Fragments of the earlier snapshot that have the partition key and path of an added one."""


def plan_changes(planner: IcebergFragmentPlanner, since: IcebergSnapshot | None) -> FragmentDifference:
    """Return the difference between an earlier snapshot and the planner's state.

    Args:
        planner: plans the fragments of the current state.
        since: the earlier snapshot; None if the table had none.

    Raises:
        NoDiffError: the earlier snapshot cannot be read, or a file is listed several times.
        TableFormatError: the current snapshot cannot be read.
    """
    manifests = planner.manifests(planner.state.snapshot)
    if since == planner.state.snapshot:
        before = manifests
    else:
        with _earlier_snapshot(since):
            before = planner.manifests(since)
    if any(manifest.spec_id is None for manifest in (*before, *manifests)):
        raise NoDiffError("the table does not record the partition specs of its manifests")
    planner.specs_in_use |= {manifest.spec_id for manifest in manifests if manifest.spec_id is not None}
    unchanged = set(map(_manifest_identity, before)) & set(map(_manifest_identity, manifests))
    with _earlier_snapshot(since):
        old = list(planner.entries([manifest for manifest in before if _manifest_identity(manifest) not in unchanged]))
    new = list(planner.entries([manifest for manifest in manifests if _manifest_identity(manifest) not in unchanged]))
    shared_manifests = [manifest for manifest in manifests if _manifest_identity(manifest) in unchanged]
    return _FileChanges(planner, shared_manifests, *_without_common(old, new)).fragments()


def _manifest_identity(manifest: Manifest) -> tuple[str, int]:
    """Return a value that identifies the entries of a manifest. Manifests are immutable."""
    return manifest.path, manifest.sequence_number


@contextmanager
def _earlier_snapshot(snapshot: IcebergSnapshot | None) -> Iterator[None]:
    """Convert errors in the `with` block, such as a missing file of the earlier snapshot, to NoDiffError.

    Only the difference needs the earlier snapshot. The current snapshot may be valid.
    """
    try:
        yield
    except (FileNotFoundError, TableFormatError) as error:
        assert snapshot is not None
        raise NoDiffError(f"a manifest of the snapshot {snapshot.id} cannot be read") from error


def _without_common(
    old: Sequence[FileEntry], new: Sequence[FileEntry]
) -> tuple[list[FileEntry], list[FileEntry], list[FileEntry]]:
    """Return three lists of entries: those only in the old list, those only in the new list, and those in both."""
    old_keys, new_keys = ([_identity(entry) for entry in entries] for entries in (old, new))
    old_set, new_set = set(old_keys), set(new_keys)
    for entries, keys in ((old, old_set), (new, new_set)):
        if len(keys) < len(entries):
            raise _listed_again()
    return (
        [entry for entry, key in zip(old, old_keys, strict=True) if key not in new_set],
        [entry for entry, key in zip(new, new_keys, strict=True) if key not in old_set],
        [entry for entry, key in zip(new, new_keys, strict=True) if key in old_set],
    )


def _listed_again() -> NoDiffError:
    return NoDiffError("the table lists a file several times")


def _identity(entry: FileEntry) -> FileEntry:
    return entry._replace(statistics=None)  # Statistics have no hash.


class _FileChanges:
    """The files that were added or removed between two snapshots, and the files that both snapshots have."""

    def __init__(
        self,
        planner: IcebergFragmentPlanner,
        shared_manifests: Sequence[Manifest],
        removed: Sequence[FileEntry],
        added: Sequence[FileEntry],
        unchanged: Sequence[FileEntry],
    ) -> None:
        """Split each list of files into data files and delete files.

        Args:
            planner: plans the fragments of the current snapshot.
            shared_manifests: the manifests that both snapshots list.
            removed: files that only the earlier snapshot has, from its manifests that are not shared.
            added: files that only the current snapshot has, from its manifests that are not shared.
            unchanged: files that both snapshots have, from manifests that are not shared.
        """
        self._planner = planner
        self._shared_manifests = shared_manifests
        self._removed, self._removed_deletes = _split(removed)
        self._added, self._added_deletes = _split(added)
        self._unchanged, self._unchanged_deletes = _split(unchanged)

    def fragments(self) -> FragmentDifference:
        """Return the fragments that differ.

        Raises NoDiffError if a snapshot has several fragments of one path and partition in the manifests that are read.
        Other manifests are not checked for such fragments.
        """
        # Compare the fragments before and after of all data files that may differ: files of one path in both snapshots
        # (`replaced`), files whose deletes changed (`touched`), and added files.
        touched = self._touched()
        added_paths = set(map(self._planner.fragment_path, self._added))
        replaced = [entry for entry in self._removed if self._planner.fragment_path(entry) in added_paths]
        deletes = [*self._unchanged_deletes, *self._read(_DELETE_MANIFEST, [*self._added, *replaced, *touched])]
        old_index, new_index = (self._index([*deletes, *more]) for more in (self._removed_deletes, self._added_deletes))
        old_ids = {
            (fragment.partition_key, fragment.path): fragment.id
            for fragment in (
                self._planner.fragment(entry, old_index.deletes_of(entry)) for entry in (*replaced, *touched)
            )
        }
        removed = set(map(self._planner.fragment_path, self._removed))
        if len(removed) < len(self._removed) or len(added_paths) < len(self._added):
            raise _listed_again()
        added = [
            fragment
            for fragment in (
                self._planner.fragment(entry, new_index.deletes_of(entry)) for entry in (*self._added, *touched)
            )
            if old_ids.get((fragment.partition_key, fragment.path)) != fragment.id
        ]
        if old_index.crosses_partitions or new_index.crosses_partitions:
            raise NoDiffError("position delete files are of other partitions than their data files")
        added.sort(key=lambda fragment: (fragment.partition_key, fragment.id))
        replaced_paths = old_ids.keys() & {(fragment.partition_key, fragment.path) for fragment in added}
        return FragmentDifference(tuple(added), frozenset(removed - added_paths), frozenset(replaced_paths))

    def _touched(self) -> list[FileEntry]:
        """Return the data files in both snapshots that a removed or an added delete file applies to."""
        changed = [*self._removed_deletes, *self._added_deletes]
        indexes = [self._index(deletes) for deletes in (self._removed_deletes, self._added_deletes)]
        candidates = [*self._unchanged, *self._read(DATA, changed)]
        for others in (self._removed, self._added):
            if len({entry.path for entry in (*others, *candidates)}) < len(others) + len(candidates):
                raise _listed_again()
        self._check_targets([*candidates, *self._added, *self._removed])
        return [entry for entry in candidates if any(index.deletes_of(entry).files for index in indexes)]

    def _check_targets(self, data: Iterable[FileEntry]) -> None:
        """Raise NoDiffError if a delete file was added for a data file that is not among `data`.

        Such a delete file may apply to a data file in a partition that was not searched.
        """
        naming = [entry for entry in self._added_deletes if target_path(entry) is not None]
        index = self._index(naming)
        named = {id(delete) for entry in data for delete in index.path_deletes(entry)}
        if len(named) < len(naming):
            raise NoDiffError("a delete file names a data file that is not in its partition")

    def _read(self, content: int, touching: Collection[FileEntry]) -> list[FileEntry]:
        """Read the shared manifests that may contain files touched by the given files, and return their entries.

        Delete files touch the data files that they apply to, and data files touch the delete files that apply to them.
        `content` is the kind of manifest to read: DATA or _DELETE_MANIFEST.
        """
        manifests = [manifest for manifest in self._shared_manifests if manifest.content == content]
        selected = TouchedManifests(self._planner.partitions, touching).select(manifests)
        return list(self._planner.entries(selected))

    def _index(self, deletes: Iterable[FileEntry]) -> DeleteIndex:
        return DeleteIndex(deletes, self._planner.partitions.is_unpartitioned)


def _split(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], list[FileEntry]]:
    """Return the entries of data files and those of delete files."""
    data: list[FileEntry] = []
    deletes: list[FileEntry] = []
    for entry in entries:
        (data if entry.content == DATA else deletes).append(entry)
    return data, deletes
