"""The difference between two snapshots of an Iceberg table, in fragments.

A fragment is a data file with the delete files that apply to it.

Manifests that only one snapshot lists contain the changed files. Shared manifests, which both snapshots list, are
opened only to match their files with changed files: for example, an old data file with a new delete file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import Fragment, FragmentPath, NoDiffError, fragment_order
from metastore_assets.formats.iceberg.deletes import DeleteIndex, target_path
from metastore_assets.formats.iceberg.fragment_planner import IcebergFragmentPlanner
from metastore_assets.formats.iceberg.manifests import DATA, FileEntry, Manifest
from metastore_assets.formats.iceberg.metadata import IcebergSnapshot
from metastore_assets.formats.iceberg.planned_state import ManifestRecord
from metastore_assets.formats.iceberg.touched_manifests import TouchedManifests

_DELETE_MANIFEST = 1
"""The value of `Manifest.content` for manifests of delete files."""


@dataclass(frozen=True)
class FragmentDifference:
    """The fragments by which two snapshots of a table differ."""

    added: tuple[Fragment, ...]
    """Sorted by (partition_key, id)."""
    removed: frozenset[FragmentPath]
    """(partition key, path) of the fragments that only the earlier snapshot has."""
    replaced: frozenset[FragmentPath]
    """(partition key, path) of the earlier fragments that fragments in `added` replace."""


def plan_changes(
    planner: IcebergFragmentPlanner, since: IcebergSnapshot | None, manifest_record: ManifestRecord
) -> FragmentDifference:
    """Return the fragments by which the planner's state differs from an earlier snapshot.

    Args:
        planner: plans the fragments of the current state.
        since: the earlier snapshot; None if the table had no snapshot.
        manifest_record: the record of the manifests of the earlier snapshot. Its manifest list is read only if the
            current snapshot lacks one of these manifests.

    Raises:
        NoDiffError: the earlier snapshot cannot be read, or the manifests do not determine the difference.
        TableFormatError: the current snapshot cannot be read.
    """
    manifests = planner.manifests(planner.state.snapshot)
    removed_manifests: list[Manifest] = []
    if (parts := manifest_record.split(manifests)) is not None:
        # The common case: comparing the identities of thousands of manifests would take longer.
        shared_manifests, added_manifests = parts
    else:
        with _no_diff_errors(since):
            before = planner.manifests(since)
        shared_identities = {manifest.identity for manifest in before} & {manifest.identity for manifest in manifests}
        removed_manifests = [manifest for manifest in before if manifest.identity not in shared_identities]
        added_manifests = [manifest for manifest in manifests if manifest.identity not in shared_identities]
        shared_manifests = [manifest for manifest in manifests if manifest.identity in shared_identities]
    spec_ids = {manifest.spec_id for manifest in manifests}
    if None in spec_ids or any(manifest.spec_id is None for manifest in removed_manifests):
        raise NoDiffError("the table does not record the partition specs of its manifests")
    planner.specs_in_use |= {spec_id for spec_id in spec_ids if spec_id is not None}
    with _no_diff_errors(since):
        old = list(planner.entries(removed_manifests))
    new = list(planner.entries(added_manifests))
    return _FileChanges(planner, shared_manifests, *_compare_entries(old, new)).fragments()


@contextmanager
def _no_diff_errors(snapshot: IcebergSnapshot | None) -> Iterator[None]:
    """Convert FileNotFoundError and TableFormatError in the `with` block to NoDiffError.

    Args:
        snapshot: the earlier snapshot, whose manifests the block reads. The message names it. None if the table had no
            snapshot: then the block reads nothing.
    """
    try:
        yield
    except (FileNotFoundError, TableFormatError) as error:
        assert snapshot is not None
        raise NoDiffError(f"a manifest of the snapshot {snapshot.id} cannot be read") from error


def _compare_entries(
    old: Sequence[FileEntry], new: Sequence[FileEntry]
) -> tuple[list[FileEntry], list[FileEntry], list[FileEntry]]:
    """Return the entries only in `old`, those only in `new`, and those in both.

    Raises NoDiffError if a list repeats an entry.
    """
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
    """The files that were added, removed or unchanged between two snapshots."""

    def __init__(
        self,
        planner: IcebergFragmentPlanner,
        shared_manifests: Sequence[Manifest],
        removed_entries: Sequence[FileEntry],
        added_entries: Sequence[FileEntry],
        unchanged_entries: Sequence[FileEntry],
    ) -> None:
        """Split each list of files into data files and delete files.

        Args:
            planner: plans the fragments of the current snapshot.
            shared_manifests: the manifests that both snapshots list.
            removed_entries: files that only the earlier snapshot has.
            added_entries: files that only the current snapshot has.
            unchanged_entries: files that both snapshots have, except those in shared manifests.
        """
        self._planner = planner
        self._shared_manifests = shared_manifests
        self._removed, self._removed_deletes = _split_by_kind(removed_entries)
        self._added, self._added_deletes = _split_by_kind(added_entries)
        self._unchanged, self._unchanged_deletes = _split_by_kind(unchanged_entries)

    def fragments(self) -> FragmentDifference:
        """Return the fragments that differ.

        Raises NoDiffError if the manifests do not determine them.
        """
        # Compare the fragments before and after of all data files that may differ: files of one path in both snapshots
        # (`replaced_entries`), files whose deletes changed (`touched_entries`), and added files.
        touched_entries = self._touched()
        added_paths = set(map(self._planner.fragment_path, self._added))
        replaced_entries = [entry for entry in self._removed if self._planner.fragment_path(entry) in added_paths]
        deletes = [
            *self._unchanged_deletes,
            *self._read(_DELETE_MANIFEST, [*self._added, *replaced_entries, *touched_entries]),
        ]
        old_index, new_index = (self._index([*deletes, *more]) for more in (self._removed_deletes, self._added_deletes))
        old_ids = {
            (fragment.partition_key, fragment.path): fragment.id
            for fragment in (
                self._planner.fragment(entry, old_index.deletes_of(entry))
                for entry in (*replaced_entries, *touched_entries)
            )
        }
        # Only the manifests that were read are searched for repeated files.
        removed_paths = set(map(self._planner.fragment_path, self._removed))
        if len(removed_paths) < len(self._removed) or len(added_paths) < len(self._added):
            raise _listed_again()
        added_fragments = [
            fragment
            for fragment in (
                self._planner.fragment(entry, new_index.deletes_of(entry)) for entry in (*self._added, *touched_entries)
            )
            if old_ids.get((fragment.partition_key, fragment.path)) != fragment.id
        ]
        if old_index.crosses_partitions or new_index.crosses_partitions:
            raise NoDiffError("position delete files are of other partitions than their data files")
        added_fragments.sort(key=fragment_order)
        replaced_paths = old_ids.keys() & {(fragment.partition_key, fragment.path) for fragment in added_fragments}
        return FragmentDifference(
            tuple(added_fragments), frozenset(removed_paths - added_paths), frozenset(replaced_paths)
        )

    def _touched(self) -> list[FileEntry]:
        """Return the shared data files to which an added or removed delete file applies.

        Shared data files are those that both snapshots have. Raises NoDiffError if a file is listed twice, or if the
        data file of an added delete file is not found.
        """
        changed_deletes = [*self._removed_deletes, *self._added_deletes]
        indexes = [self._index(deletes) for deletes in (self._removed_deletes, self._added_deletes)]
        candidates = [*self._unchanged, *self._read(DATA, changed_deletes)]
        for entries in (self._removed, self._added):
            if len({entry.path for entry in (*entries, *candidates)}) < len(entries) + len(candidates):
                raise _listed_again()
        self._check_targets([*candidates, *self._added, *self._removed])
        return [entry for entry in candidates if any(index.deletes_of(entry).files for index in indexes)]

    def _check_targets(self, data: Iterable[FileEntry]) -> None:
        """Raise NoDiffError if an added delete file names a data file that `data` lacks.

        Some delete files name the only data file that they apply to. This data file may be in a partition that was not
        searched. Then the changed fragments are unknown.
        """
        # Such a delete file may apply to a data file in a partition that was not searched.
        naming_deletes = [entry for entry in self._added_deletes if target_path(entry) is not None]
        index = self._index(naming_deletes)
        named_deletes = {id(delete) for entry in data for delete in index.path_deletes(entry)}
        if len(named_deletes) < len(naming_deletes):
            raise NoDiffError("a delete file names a data file that is not in its partition")

    def _read(self, content: int, files: Collection[FileEntry]) -> list[FileEntry]:
        """Return all live entries of those shared manifests that may list counterparts of the given files.

        Shared manifests are those that both snapshots list. The counterparts of a delete file are the data files that
        it applies to. The counterparts of a data file are the delete files that apply to it.

        Args:
            content: The kind of manifests to read: DATA or _DELETE_MANIFEST.
            files: Delete files if `content` is DATA, otherwise data files.
        """
        if not files:
            return []
        manifests = [manifest for manifest in self._shared_manifests if manifest.content == content]
        selected_manifests = TouchedManifests(self._planner.partitions, files).select(manifests)
        return list(self._planner.entries(selected_manifests))

    def _index(self, deletes: Iterable[FileEntry]) -> DeleteIndex:
        return DeleteIndex(deletes, self._planner.partitions.is_unpartitioned)


def _split_by_kind(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], list[FileEntry]]:
    data: list[FileEntry] = []
    deletes: list[FileEntry] = []
    for entry in entries:
        (data if entry.content == DATA else deletes).append(entry)
    return data, deletes
