"""Prefetch the ranges of a remote Parquet object in few requests, instead of one request per column chunk.

Arrow's own prefetching runs in threads that may release a Python object after the interpreter has started to shut down,
which aborts the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq

_HOLE = 8 << 10
"""Bytes between two ranges that are rather read than asked for apart: as Arrow does."""
_MOST = 32 << 20
"""Bytes of a request, unless a single range is longer."""
_THREADS = 8

Range = tuple[int, int]
"""From a byte up to but without another."""


class FetchedRanges:
    """Ranges of an object that were fetched, until others are."""

    def __init__(self, fetch: Callable[[int, int], bytes]) -> None:
        self._fetch = fetch
        self._starts: list[int] = []
        self._data: list[bytes] = []

    def fetch(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges in few requests, several at a time, instead of what was fetched before."""
        wanted = coalesced(ranges)
        self._starts, self._data = [], []
        if len(wanted) > 1:
            with ThreadPoolExecutor(min(_THREADS, len(wanted))) as threads:
                data = list(threads.map(lambda own: self._fetch(*own), wanted))
        else:
            data = [self._fetch(*own) for own in wanted]
        self._starts, self._data = [start for start, _ in wanted], data

    def find(self, start: int, end: int) -> bytes | None:
        """The bytes of a range that lies within one that was fetched; None of any other."""
        at = bisect_right(self._starts, start) - 1
        if at < 0 or end > self._starts[at] + len(self._data[at]):
            return None
        return self._data[at][start - self._starts[at] : end - self._starts[at]]


def coalesced(ranges: Iterable[Range]) -> list[Range]:
    """The ranges by where they start, neighbours as one."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start - found[-1][1] <= _HOLE and end - found[-1][0] <= _MOST:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def chunk_ranges(metadata: pq.FileMetaData, groups: Sequence[int], columns: Collection[str] | None) -> list[Range]:
    """Where columns lie in some row groups: all, or those named by their paths, or the paths of what they are part of.

    From a byte up to but without another, in no order.
    """
    schema = metadata.schema
    numbers = [at for at in range(metadata.num_columns) if columns is None or _is_of(schema.column(at).path, columns)]
    ranges = []
    for group in groups:
        own = metadata.row_group(group)
        for at in numbers:
            chunk = own.column(at)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
                start = chunk.dictionary_page_offset
            ranges.append((start, start + chunk.total_compressed_size))
    return ranges


def _is_of(path: str, columns: Collection[str]) -> bool:
    while path:
        if path in columns:
            return True
        path = path.rpartition(".")[0]
    return False
