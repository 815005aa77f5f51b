"""A process-wide cache of rows of delete files, because one delete file applies to many fragments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import pyarrow as pa

Columns = Sequence[pa.Array]


class DeleteRowCache:
    """A least-recently-used cache of columns with a limit in bytes. The keys identify the content."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[Columns, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], Columns]) -> Columns:
        """Return the columns, reading them if they are not cached. Raises what `read` raises."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        columns = read()
        size = sum(column.nbytes for column in columns)
        with self._lock:
            if key not in self._kept and size <= self._most_bytes:
                self._kept[key] = columns, size
                self._bytes += size
            while self._bytes > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return columns

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0
