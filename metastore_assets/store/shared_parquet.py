"""A Parquet object that many threads read at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from metastore_assets.store.objects import ObjectStore
    from metastore_assets.store.parquet import ParquetObject

_IDLE = 2
"""Files that are kept open for who reads next."""


class SharedParquet:
    """A Parquet object whose footer is read once, and which many threads can read.

    Arrow's files are not thread-safe, so each reading thread gets a file of its own, opened with the known footer.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        first = store.open_parquet(path)
        self.metadata: pq.FileMetaData = first.metadata
        self._idle = [first]  # a list's `pop` and `append` are atomic

    @contextmanager
    def lent(self) -> Iterator[ParquetObject]:
        """A file that nobody else reads meanwhile."""
        try:
            file = self._idle.pop()
        except IndexError:
            file = self._store.open_parquet(self._path, self.metadata)
        try:
            yield file
        finally:
            if len(self._idle) < _IDLE:
                self._idle.append(file)
            else:
                file.close()

    def close(self) -> None:
        """Close what is open."""
        while self._idle:
            self._idle.pop().close()
