"""Matching of delete files with data files, as the Iceberg specification defines it.

Sequence numbers and partitions decide which deletes apply to a data file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.digests import digest_json
from metastore_assets.formats.iceberg.locations import is_same_file, plain_path
from metastore_assets.formats.iceberg.manifests import DELETED_PATH_ID, EQUALITY_DELETES, FileEntry

_Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Deletes:
    """The delete files that apply to one data file."""

    files: tuple[FileEntry, ...] = ()
    digest: str = ""
    """Identifies `files`; empty if there are none."""

    def row_count(self, data: FileEntry) -> int | None:
        """Return the number of live rows of a data file; None if the manifests do not determine it."""
        if not self.files:
            return data.record_count
        # Only the record count of a single deletion vector is the number of deleted rows. Other delete files may
        # overlap.
        only_vector = len(self.files) == 1 and self.files[0].format == "puffin"
        remaining_rows = data.record_count - self.files[0].record_count if only_vector else -1
        return remaining_rows if remaining_rows >= 0 else None


_NO_DELETES = Deletes()


class DeleteIndex:
    """An index of delete files by data file and by partition."""

    def __init__(self, deletes: Iterable[FileEntry], is_unpartitioned: Callable[[int], bool]) -> None:
        """Create the index.

        Args:
            deletes: the entries of delete files.
            is_unpartitioned: returns True for the id of an unpartitioned partition spec.

        Raises:
            ValueError: a deletion vector names no data file.
        """
        self.crosses_partitions = False
        """True after `deletes_of` returned a position delete file of another partition than its data file. The
        specification forbids such files, but other readers apply them."""
        self._by_path: dict[str, list[tuple[str, FileEntry]]] = {}
        self._by_partition: dict[_Partition, list[FileEntry]] = {}
        self._unpartitioned: list[FileEntry] = []
        for entry in deletes:
            target = target_path(entry)
            if entry.format == "puffin" and entry.referenced_data_file is None:
                raise ValueError(
                    f"the manifest does not say to which data file the deletion vector {entry.path} applies"
                )
            if target is not None:
                self._by_path.setdefault(plain_path(target), []).append((target, entry))
            elif entry.content == EQUALITY_DELETES and is_unpartitioned(entry.spec_id):
                self._unpartitioned.append(entry)
            else:
                self._by_partition.setdefault((entry.spec_id, entry.partition), []).append(entry)
        self._lengths = sorted(set(map(len, self._by_path)))
        """Lengths of the paths in `_by_path`, ascending."""
        self._shared: dict[tuple[_Partition, int], Deletes] = {}

    def deletes_of(self, data: FileEntry) -> Deletes:
        """Return the deletes that apply to a data file.

        Raises ValueError if a sequence number is missing, or if the file has several deletion vectors.
        """
        by_path = self.path_deletes(data) if self._by_path else []
        if not by_path and not self._by_partition and not self._unpartitioned:
            return _NO_DELETES
        if data.sequence_number is None:
            raise ValueError(f"{data.path} has no sequence number in its manifest, and there are delete files")
        by_path = [entry for entry in by_path if _applies(entry, data.sequence_number)]
        partition = data.spec_id, data.partition
        shared_deletes = self._shared.get((partition, data.sequence_number))
        if shared_deletes is None:
            shared_deletes = self._shared[partition, data.sequence_number] = self._partition_deletes(
                partition, data.sequence_number
            )
        if not by_path:
            return shared_deletes
        self.crosses_partitions |= any((entry.spec_id, entry.partition) != partition for entry in by_path)
        files = (*by_path, *shared_deletes.files)
        if any(entry.format == "puffin" for entry in by_path):
            # A deletion vector includes all earlier position deletes of its data file.
            vectors = [entry for entry in by_path if entry.format == "puffin"]
            files = (*vectors, *(entry for entry in shared_deletes.files if entry.content == EQUALITY_DELETES))
            if len(vectors) > 1:
                raise ValueError(f"{data.path} has {len(vectors)} deletion vectors, of which there may be one")
        return Deletes(files, _digest(files))

    def path_deletes(self, data: FileEntry) -> list[FileEntry]:
        """Return the position delete files that have a single target, which is or may be the given data file.

        Some manifests record only the beginning of the target's path. Every data file of the same partition whose path
        has this beginning may be the target.
        """
        path, partition = plain_path(data.path), (data.spec_id, data.partition)
        files: list[FileEntry] = []
        for length in self._lengths:
            if length > len(path):
                break
            for target, entry in self._by_path.get(path[:length], ()):
                if length == len(path):
                    may_apply = is_same_file(target, data.path)
                else:
                    may_apply = entry.referenced_data_file is None and (entry.spec_id, entry.partition) == partition
                if may_apply:
                    files.append(entry)
        return sorted(files, key=_sort_key)

    def _partition_deletes(self, partition: _Partition, sequence_number: int) -> Deletes:
        candidates = [*self._by_partition.get(partition, ()), *self._unpartitioned]
        files = tuple(sorted((entry for entry in candidates if _applies(entry, sequence_number)), key=_sort_key))
        return Deletes(files, _digest(files))


def _applies(entry: FileEntry, sequence_number: int) -> bool:
    """Return True if a delete file is new enough to apply to a data file with this sequence number.

    Raises ValueError if the delete file has no sequence number.
    """
    if entry.sequence_number is None:
        raise ValueError(f"the delete file {entry.path} has no sequence number in its manifest")
    if entry.content == EQUALITY_DELETES:
        return sequence_number < entry.sequence_number
    return sequence_number <= entry.sequence_number


def _sort_key(entry: FileEntry) -> tuple[str, int]:
    return entry.path, entry.content_offset or 0


def target_path(entry: FileEntry) -> str | None:
    """Return the path of the only data file that a position delete file applies to.

    The path may be truncated, because it may come from the bounds of a column. The result is None for an equality
    delete file, or if the manifest does not name exactly one data file.
    """
    if entry.content == EQUALITY_DELETES:
        return None
    if entry.referenced_data_file is not None:
        return entry.referenced_data_file
    if entry.statistics is None:
        return None
    lower, upper = (
        bounds.get(DELETED_PATH_ID) for bounds in (entry.statistics.lower_bounds, entry.statistics.upper_bounds)
    )
    try:
        return lower.decode() if lower is not None and lower == upper else None
    except UnicodeDecodeError:
        return None  # it is truncated inside of a character


def _digest(files: Sequence[FileEntry]) -> str:
    parts = sorted(json.dumps([entry.path, entry.size, entry.content_offset, entry.record_count]) for entry in files)
    return digest_json(parts) if parts else ""
