"""Matching of delete files with data files, as the Iceberg specification defines it.

Sequence numbers and partitions decide which deletes apply to a data file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.iceberg.locations import plain_path
from metastore_assets.formats.iceberg.manifests import DELETED_PATH_ID, EQUALITY_DELETES, FileEntry

_Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Deletes:
    """The delete files that apply to one data file."""

    files: tuple[FileEntry, ...] = ()
    digest: str = ""
    """Digest that identifies `files`; empty if there are none."""
    exact_path: bool = False
    """Whether delete files must name the data file by its complete recorded path.

    Otherwise they may name it under another scheme or authority. It is true if another data file has the same path
    under another scheme or authority.
    """

    def row_count(self, data: FileEntry) -> int | None:
        """Return the number of live rows of a data file; None if the manifests do not determine it."""
        if not self.files:
            return data.record_count
        # Only the record count of a single deletion vector is the number of deleted rows. Other delete files may
        # overlap.
        only_vector = len(self.files) == 1 and self.files[0].format == "puffin"
        remaining = data.record_count - self.files[0].record_count if only_vector else -1
        return remaining if remaining >= 0 else None


_NO_DELETES = Deletes()


class DeleteIndex:
    """An index of a snapshot's delete files, by data file and by partition.

    Equality deletes of an unpartitioned spec apply to all partitions.
    """

    def __init__(
        self,
        deletes: Collection[FileEntry],
        data_paths: Iterable[str],
        is_unpartitioned: Callable[[int], bool],
    ) -> None:
        """Create the index.

        Args:
            deletes: the entries of all delete files.
            data_paths: the recorded paths of all data files.
            is_unpartitioned: returns whether the spec with an id is unpartitioned.
        """
        counts = Counter(map(plain_path, data_paths)) if deletes else Counter()
        self._ambiguous = {path for path, count in counts.items() if count > 1}
        self._by_path: dict[str, list[FileEntry]] = {}
        self._by_partition: dict[_Partition, list[FileEntry]] = {}
        self._unpartitioned: list[FileEntry] = []
        for entry in deletes:
            target = None if entry.content == EQUALITY_DELETES else _target(entry, counts)
            if target is not None:
                self._by_path.setdefault(self._key(target), []).append(entry)
            elif entry.content == EQUALITY_DELETES and is_unpartitioned(entry.spec_id):
                self._unpartitioned.append(entry)
            else:
                self._by_partition.setdefault((entry.spec_id, entry.partition), []).append(entry)
        self._shared: dict[tuple[_Partition, int], Deletes] = {}

    def deletes_of(self, data: FileEntry) -> Deletes:
        """Return the deletes that apply to a data file.

        Raises ValueError if a sequence number that is needed is missing, or if the file has several deletion vectors.
        """
        if not (self._by_path or self._by_partition or self._unpartitioned):
            return _NO_DELETES
        by_path = self._by_path.get(self._key(data.path), ())
        if not by_path and not self._by_partition and not self._unpartitioned:
            return _NO_DELETES
        if data.sequence_number is None:
            raise ValueError(f"{data.path} has no sequence number in its manifest, and there are delete files")
        by_path = [entry for entry in by_path if _applies(entry, data.sequence_number)]
        partition = data.spec_id, data.partition
        shared = self._shared.get((partition, data.sequence_number))
        if shared is None:
            shared = self._shared[partition, data.sequence_number] = self._partition_deletes(
                partition, data.sequence_number
            )
        files = (*by_path, *shared.files)
        if any(entry.format == "puffin" for entry in by_path):
            # A deletion vector includes all earlier position deletes of its data file.
            vectors = [entry for entry in by_path if entry.format == "puffin"]
            files = (*vectors, *(entry for entry in shared.files if entry.content == EQUALITY_DELETES))
            if len(vectors) > 1:
                raise ValueError(f"{data.path} has {len(vectors)} deletion vectors, of which there may be one")
        exact = plain_path(data.path) in self._ambiguous
        if not by_path and not exact:
            return shared
        return Deletes(files, _digest(files), exact)

    def _partition_deletes(self, partition: _Partition, sequence_number: int) -> Deletes:
        candidates = [*self._by_partition.get(partition, ()), *self._unpartitioned]
        files = tuple(entry for entry in candidates if _applies(entry, sequence_number))
        return Deletes(files, _digest(files))

    def _key(self, path: str) -> str:
        plain = plain_path(path)
        return path if plain in self._ambiguous else plain


def _applies(entry: FileEntry, sequence_number: int) -> bool:
    """Return True if a delete file applies to the data files of its partition with a sequence number.

    Equality deletes do not apply to data files of their own commit. Raises ValueError if the delete file has no
    sequence number.
    """
    if entry.sequence_number is None:
        raise ValueError(f"the delete file {entry.path} has no sequence number in its manifest")
    if entry.content == EQUALITY_DELETES:
        return sequence_number < entry.sequence_number
    return sequence_number <= entry.sequence_number


def _target(entry: FileEntry, data_paths: Collection[str]) -> str | None:
    """Return the path of the only data file that a position delete file concerns.

    None if it concerns several, or if the manifest does not show which.
    """
    if entry.referenced_data_file is not None:
        return entry.referenced_data_file
    if entry.statistics is None:
        return None
    lower, upper = (
        bounds.get(DELETED_PATH_ID) for bounds in (entry.statistics.lower_bounds, entry.statistics.upper_bounds)
    )
    if lower is None or lower != upper:
        return None
    path = lower.decode("utf-8", "replace")
    # Bounds may be truncated. They are used only if they name an existing file.
    return path if plain_path(path) in data_paths else None


def _digest(files: Sequence[FileEntry]) -> str:
    parts = sorted(json.dumps([entry.path, entry.size, entry.content_offset, entry.record_count]) for entry in files)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32] if parts else ""
