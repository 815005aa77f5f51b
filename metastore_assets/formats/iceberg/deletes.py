"""Which delete files apply to which data file of an Iceberg table, by its rules of sequence numbers and partitions."""

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
    """What applies to one data file."""

    files: tuple[FileEntry, ...] = ()
    digest: str = ""
    """Changes whenever `files` do; empty without any."""
    exact_path: bool = False
    """Rows are deleted by the recorded path only: another data file has the same one under another authority."""

    def row_count(self, data: FileEntry) -> int | None:
        """Live rows of the data file, None when the manifests do not tell."""
        if not self.files:
            return data.record_count
        # A vector says how many rows of one file it deletes; other delete files may repeat each other.
        only_vector = len(self.files) == 1 and self.files[0].format == "puffin"
        left = data.record_count - self.files[0].record_count if only_vector else -1
        return left if left >= 0 else None


_NOTHING = Deletes()


class DeleteIndex:
    """The delete files of a snapshot, to be asked for each of its data files.

    `is_unpartitioned` tells it of a spec; equality deletes of such a spec apply in every partition.
    """

    def __init__(
        self,
        deletes: Collection[FileEntry],
        data_paths: Iterable[str],
        is_unpartitioned: Callable[[int], bool],
    ) -> None:
        counts = Counter(map(plain_path, data_paths)) if deletes else Counter()
        self._ambiguous = {path for path, count in counts.items() if count > 1}
        self._by_path: dict[str, list[FileEntry]] = {}
        self._by_partition: dict[_Partition, list[FileEntry]] = {}
        self._everywhere: list[FileEntry] = []
        for entry in deletes:
            target = None if entry.content == EQUALITY_DELETES else _target(entry, counts)
            if target is not None:
                self._by_path.setdefault(self._key(target), []).append(entry)
            elif entry.content == EQUALITY_DELETES and is_unpartitioned(entry.spec_id):
                self._everywhere.append(entry)
            else:
                self._by_partition.setdefault((entry.spec_id, entry.partition), []).append(entry)
        self._shared: dict[tuple[_Partition, int], Deletes] = {}

    def of(self, data: FileEntry) -> Deletes:
        """What applies to a data file. Raises ValueError when it has no sequence number to tell by."""
        if not (self._by_path or self._by_partition or self._everywhere):
            return _NOTHING
        own = self._by_path.get(self._key(data.path), ())
        if not own and not self._by_partition and not self._everywhere:
            return _NOTHING
        if data.sequence_number is None:
            raise ValueError(f"{data.path} has no sequence number in its manifest, and there are delete files")
        own = [entry for entry in own if _applies(entry, data.sequence_number)]
        partition = data.spec_id, data.partition
        shared = self._shared.get((partition, data.sequence_number))
        if shared is None:
            shared = self._shared[partition, data.sequence_number] = self._of_partition(partition, data.sequence_number)
        files = (*own, *shared.files)
        if any(entry.format == "puffin" for entry in own):
            # A vector holds all that was deleted by position before it.
            vectors = [entry for entry in own if entry.format == "puffin"]
            files = (*vectors, *(entry for entry in shared.files if entry.content == EQUALITY_DELETES))
            if len(vectors) > 1:
                raise ValueError(f"{data.path} has {len(vectors)} deletion vectors, of which there may be one")
        exact = plain_path(data.path) in self._ambiguous
        if not own and not exact:
            return shared
        return Deletes(files, _digest(files), exact)

    def _of_partition(self, partition: _Partition, sequence_number: int) -> Deletes:
        candidates = [*self._by_partition.get(partition, ()), *self._everywhere]
        files = tuple(entry for entry in candidates if _applies(entry, sequence_number))
        return Deletes(files, _digest(files))

    def _key(self, path: str) -> str:
        plain = plain_path(path)
        return path if plain in self._ambiguous else plain


def _applies(entry: FileEntry, sequence_number: int) -> bool:
    """Whether a delete file is of rows that old. What is deleted by value may be added again by the same commit."""
    if entry.sequence_number is None:
        raise ValueError(f"the delete file {entry.path} has no sequence number in its manifest")
    if entry.content == EQUALITY_DELETES:
        return sequence_number < entry.sequence_number
    return sequence_number <= entry.sequence_number


def _target(entry: FileEntry, data_paths: Collection[str]) -> str | None:
    """The only data file that positions are deleted of, where the manifest tells."""
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
    # Bounds may be cut short: they are believed when they name a file there is.
    return path if plain_path(path) in data_paths else None


def _digest(files: Sequence[FileEntry]) -> str:
    parts = sorted(json.dumps([entry.path, entry.size, entry.content_offset, entry.record_count]) for entry in files)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32] if parts else ""
