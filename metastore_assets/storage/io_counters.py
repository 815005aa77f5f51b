"""Counters of the files and bytes that a block of code reads and writes.

Code that reads or writes files calls `record_read` and `record_write`. A task in another process counts separately, and
its runner adds these counts. Outside of `count_io` blocks, nothing is counted. Within a `count_io` block, an
`io_step` block names a part of the work, a *step*, which has its own counts.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

_lock = threading.Lock()


PackedDigests: TypeAlias = bytes
"""Distinct digests of the locations of files, 8 bytes each, ascending."""
_DIGEST = np.dtype("<u8")
_UNPACKED = 1 << 14
"""Number of digests in a set before they are packed. A million digests take 100 MB in a set, and 8 MB packed."""


@dataclass(frozen=True)
class FileCount:
    """The number of bytes that were read or written, and the distinct files.

    If a file is read twice, its bytes count twice.
    """

    digests: PackedDigests = b""
    bytes: int = 0

    @property
    def files(self) -> int:
        """Number of distinct files."""
        return len(self.digests) // _DIGEST.itemsize

    def __add__(self, other: FileCount) -> FileCount:
        return FileCount(_union([self.digests, other.digests]), self.bytes + other.bytes)

    def to_json(self) -> dict[str, int]:
        """Return the number of files and the number of bytes as JSON fields."""
        return {"files": self.files, "bytes": self.bytes}


class _FileTally:
    """A mutable FileCount that threads may share."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._packed: list[PackedDigests] = []
        """Each is less than half as long as the previous one, so a digest is merged few times."""
        self._size = 0

    def add(self, digest: int, size: int) -> None:
        """Count the read or write of `size` bytes of the file that `digest` identifies."""
        with _lock:
            self._size += size
            self._new.add(digest)
            if len(self._new) >= _UNPACKED:
                self._pack()

    def add_count(self, count: FileCount) -> None:
        """Add the counts of another process."""
        with _lock:
            self._size += count.bytes
            self._new.update(np.frombuffer(count.digests, _DIGEST).tolist())
            if len(self._new) >= _UNPACKED:
                self._pack()

    def count(self) -> FileCount:
        with _lock:
            self._pack()
            self._packed = [_union(self._packed)]
            return FileCount(self._packed[0], self._size)

    def _pack(self) -> None:
        new = np.fromiter(self._new, _DIGEST, len(self._new))
        new.sort()
        self._packed.append(new.tobytes())
        self._new = set()
        while len(self._packed) > 1 and 2 * len(self._packed[-1]) >= len(self._packed[-2]):
            self._packed[-2:] = [_union(self._packed[-2:])]


def _union(packed_digests: Sequence[PackedDigests]) -> PackedDigests:
    if len(packed_digests) == 1:
        return packed_digests[0]
    return np.unique(np.concatenate([np.frombuffer(digests, _DIGEST) for digests in packed_digests])).tobytes()


@dataclass(frozen=True)
class IoCounts:
    """The files that were read, and the files that were written completely."""

    read: FileCount = FileCount()
    written: FileCount = FileCount()


class IoCounter:
    """The counts of a `count_io` block, separately for each step that an `io_step` block names.

    Reads and writes outside of `io_step` blocks count for the step `""`.
    """

    def __init__(self) -> None:
        self._steps: dict[str, tuple[_FileTally, _FileTally]] = {}

    def tallies(self, step: str) -> tuple[_FileTally, _FileTally]:
        """Return the mutable counts (reads, writes) of a step."""
        with _lock:
            return self._steps.setdefault(step, (_FileTally(), _FileTally()))

    def counts(self, step: str = "") -> IoCounts:
        """Return what a step has read and written so far.

        The default step has the reads and writes outside of all `io_step` blocks.
        """
        reads, writes = self.tallies(step)
        return IoCounts(reads.count(), writes.count())


_current: ContextVar[tuple[IoCounter, str] | None] = ContextVar("io_counter", default=None)


def is_counting_io() -> bool:
    """Return True if the calling thread is in a `count_io` block."""
    return _current.get() is not None


@contextmanager
def count_io() -> Iterator[IoCounter]:
    """Count the reads and writes of the block in this process.

    Call `add_io_counts` to add the reads and writes of other processes.
    """
    counter = IoCounter()
    token = _current.set((counter, ""))
    try:
        yield counter
    finally:
        _current.reset(token)


@contextmanager
def io_step(name: str) -> Iterator[None]:
    """Count the reads and writes of the block for a named step, except those in nested `io_step` blocks."""
    current = _current.get()
    if current is None:
        yield
        return
    token = _current.set((current[0], name))
    try:
        yield
    finally:
        _current.reset(token)


def record_read(location: str, size: int) -> None:
    """Count a read of `size` bytes from the file or object at a location."""
    if (current := _current.get()) is not None:
        current[0].tallies(current[1])[0].add(_digest(location), size)


def record_write(location: str, size: int) -> None:
    """Count a file or object of `size` bytes that was written completely."""
    if (current := _current.get()) is not None:
        current[0].tallies(current[1])[1].add(_digest(location), size)


def add_io_counts(counts: IoCounts) -> None:
    """Add the counts of a task in another process to the current `io_step` block, or `count_io` block.

    Outside of such blocks, do nothing.
    """
    if (current := _current.get()) is not None:
        for tally, count in zip(current[0].tallies(current[1]), (counts.read, counts.written), strict=True):
            tally.add_count(count)


def read_recorder(location: str) -> Callable[[int], None]:
    """Return a thread-safe function that counts one read of the file at `location`.

    Its argument is a number of bytes.

    The reads count for the `io_step` or `count_io` block in which `read_recorder` is called. Outside of such blocks,
    the function does nothing.
    """
    if (current := _current.get()) is None:
        return lambda size: None
    return partial(current[0].tallies(current[1])[0].add, _digest(location))


def counting_input(file: pa.NativeFile, location: str) -> pa.NativeFile:
    """Return a view of an open file that counts its reads.

    Outside of `count_io` blocks, return the file itself.

    The reads count for the `io_step` or `count_io` block in which `counting_input` is called.
    """
    return pa.PythonFile(_CountingInput(file, read_recorder(location)), mode="r") if is_counting_io() else file


class IoCountingThreadPool(ThreadPoolExecutor):
    """A thread pool whose reads and writes count for the `count_io` block that submits the work."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(copy_context().run, function, *args, **kwargs)


class _CountingInput(io.RawIOBase):
    def __init__(self, file: pa.NativeFile, record: Callable[[int], None]) -> None:
        self._file = file
        self._record = record

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position: int = self._file.seek(offset, whence)
        return position

    def tell(self) -> int:
        position: int = self._file.tell()
        return position

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(None if size < 0 else size)
        self._record(len(data))
        return data

    def read_buffer(self, size: int) -> pa.Buffer:
        # Arrow calls `read_buffer` instead of `read`, to avoid a copy.
        data = self._file.read_buffer(size)
        self._record(data.size)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _digest(location: str) -> int:
    digest = blake2b(location.encode("utf-8", "surrogatepass"), digest_size=_DIGEST.itemsize).digest()
    return int.from_bytes(digest, "little")
