"""The files of one listing of a table of plain files, in bounded memory.

`ListedFiles` has all files. `ListedDataFiles` has the data files, with the ids of their fragments. Each data file is
one fragment, and the id of a fragment is a digest of everything that determines its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from metastore_assets.formats.files.partitioning import Items
from metastore_assets.storage.listing import StoredFile
from metastore_assets.store.sorted_runs import SortedTuples

TEXT_KINDS = ("csv", "json")
_LISTED = pa.schema([("path", pa.string()), ("size", pa.int64()), ("version", pa.string())])
_DATA = pa.schema([*_LISTED, ("kind", pa.string()), ("suffix", pa.string()), ("id", pa.string())])


class ListedFiles:
    """The files of a listing.

    Iteration yields them ordered by path.

    If there are many files, a temporary file has their paths and sizes, and their ETags or modification times. The
    paths of folders and of empty files are always in memory.
    """

    def __init__(self) -> None:
        self._files = SortedTuples(_LISTED)
        self._first_paths: dict[str, str] = {}
        """The least path of a file with content, by the folder that contains the file."""
        self._empty: list[str] = []
        """The paths of empty files."""
        self.folders: set[str] = set()
        """The paths of all folders below the location that contain listed files, at any depth."""
        self.invalid_path: str | None = None
        """The least path that is no valid Unicode. Files with such paths are left out."""

    def add(self, file: StoredFile) -> None:
        """Add a file.

        If its path is no valid Unicode, the file is left out, and the path may become `invalid_path`.
        """
        path = file.path
        if not path.isascii() and not _is_unicode(path):
            self.invalid_path = min(path, self.invalid_path or path)
            return
        folder = path.rpartition("/")[0]
        if folder and folder not in self.folders:
            self.folders.add(folder)
            self.folders.update(parents(folder))
        if not file.size:
            self._empty.append(path)
        elif path < self._first_paths.setdefault(folder, path):
            self._first_paths[folder] = path
        self._files.add(file)

    def first_paths(self, is_data: Callable[[str], bool]) -> list[str]:
        """Return the alphabetically first data file of each folder that directly contains data files.

        The paths are sorted.

        Args:
            is_data: Returns whether the empty file at a path is a data file. It is not called for files with content,
                which are all data files.
        """
        first_paths = dict(self._first_paths)
        for path in filter(is_data, self._empty):
            folder = path.rpartition("/")[0]
            first_paths[folder] = min(path, first_paths.get(folder, path))
        return sorted(first_paths.values())

    def __iter__(self) -> Iterator[StoredFile]:
        return (StoredFile(*items) for items in self._files)


class DataFile(NamedTuple):
    """One data file of a table of plain files."""

    stored: StoredFile
    kind: str
    """`parquet`, `orc`, `avro`, `csv` or `json`."""
    suffix: str
    """The suffix that shows the kind, in lower case, such as `.tsv`; empty if the name has none."""
    partition: Items
    """Partition values of the folders that contain the file, outermost first."""

    @property
    def is_text(self) -> bool:
        """Whether the file is CSV or JSON, so that the types of its columns are not stored in it."""
        return self.kind in TEXT_KINDS


@dataclass
class ListedDataFiles:
    """The data files of a listing, with the ids of their fragments."""

    partitions: dict[str, Items] = field(default_factory=dict)
    """The partition values of each folder that directly contains data files."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The path of one file of each kind."""
    count: int = 0
    _files: SortedTuples = field(default_factory=lambda: SortedTuples(_DATA))

    def add(self, file: DataFile, id_: str) -> None:
        """Add a data file with the id of its fragment."""
        path = file.stored.path
        self.partitions[path.rpartition("/")[0]] = file.partition
        self.kinds[file.kind] = path
        self.count += 1
        self._files.add((*file.stored, file.kind, file.suffix, id_))

    def partition_of(self, path: str) -> Items:
        """Return the partition values of a file at a path."""
        return self.partitions[path.rpartition("/")[0]]

    def __iter__(self) -> Iterator[tuple[DataFile, str]]:
        """Yield the files with the ids of their fragments, ordered by path."""
        for path, size, version, kind, suffix, id_ in self._files:
            yield DataFile(StoredFile(path, size, version), kind, suffix, self.partition_of(path)), id_


def parents(path: str) -> Iterator[str]:
    """Yield the paths of the folders above a path, the nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def _is_unicode(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
