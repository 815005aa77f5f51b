"""What was read and written, counted where the bytes pass, for who asked to have it counted.

Whoever opens files tells it here; a task in another process counts its own, and sends the count back. Nothing is
counted, and nothing is in the way of the bytes, while nobody asked.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa

_lock = threading.Lock()


@dataclass(frozen=True)
class FileCount:
    """Files, as digests of where they are, and bytes. What is read twice counts twice in bytes, and once as a file."""

    files: frozenset[bytes] = frozenset()
    bytes: int = 0

    def __add__(self, other: FileCount) -> FileCount:
        return FileCount(self.files | other.files, self.bytes + other.bytes)

    def to_json(self) -> dict[str, int]:
        """How many files and bytes."""
        return {"files": len(self.files), "bytes": self.bytes}


@dataclass
class _Tally:
    files: set[bytes] = field(default_factory=set)
    size: int = 0

    def add(self, files: frozenset[bytes], size: int) -> None:
        with _lock:
            self.files |= files
            self.size += size

    def count(self) -> FileCount:
        with _lock:
            return FileCount(frozenset(self.files), self.size)


@dataclass(frozen=True)
class IoCounts:
    """What was read, and what was written to its end. Picklable."""

    read: FileCount = FileCount()
    written: FileCount = FileCount()


class IoCounter:
    """Counts by step. A step is whatever a name was given to; what is outside of all steps is of the step ``""``."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[_Tally, _Tally]] = {}

    def tallies(self, step: str) -> tuple[_Tally, _Tally]:
        """Where a step's reads and writes are counted."""
        with _lock:
            return self._steps.setdefault(step, (_Tally(), _Tally()))

    def counts(self, step: str = "") -> IoCounts:
        """What a step has read and written up to now."""
        read, written = self.tallies(step)
        return IoCounts(read.count(), written.count())


_current: ContextVar[tuple[IoCounter, str] | None] = ContextVar("traffic", default=None)


def is_counting_io() -> bool:
    """Whether anybody counts what this thread reads and writes."""
    return _current.get() is not None


@contextmanager
def count_io() -> Iterator[IoCounter]:
    """Count what the block reads and writes, here and, of `add_io_counts`, elsewhere."""
    meter = IoCounter()
    token = _current.set((meter, ""))
    try:
        yield meter
    finally:
        _current.reset(token)


@contextmanager
def io_step(name: str) -> Iterator[None]:
    """What the block reads and writes is of this step, if anybody counts; an inner step's is not the outer's."""
    current = _current.get()
    if current is None:
        yield
        return
    token = _current.set((current[0], name))
    try:
        yield
    finally:
        _current.reset(token)


def record_read(place: str, size: int) -> None:
    """So many bytes of the file or object at that place were read."""
    if (current := _current.get()) is not None:
        current[0].tallies(current[1])[0].add(_digests(place), size)


def record_write(place: str, size: int) -> None:
    """A file or object of so many bytes was written there."""
    if (current := _current.get()) is not None:
        current[0].tallies(current[1])[1].add(_digests(place), size)


def add_io_counts(traffic: IoCounts) -> None:
    """What another process read and wrote for this one."""
    if (current := _current.get()) is not None:
        for tally, count in zip(current[0].tallies(current[1]), (traffic.read, traffic.written), strict=True):
            tally.add(count.files, count.bytes)


def read_recorder(place: str) -> Callable[[int], None]:
    """To be told of so many bytes that were read of a file or object, whichever thread reads them, for whoever counts
    now."""
    if (current := _current.get()) is None:
        return lambda size: None
    return partial(current[0].tallies(current[1])[0].add, _digests(place))


def counting_input(file: pa.NativeFile, place: str) -> pa.NativeFile:
    """The opened file, whose reads are counted from now on, for whoever counts now."""
    return pa.PythonFile(_CountingInput(file, read_recorder(place)), mode="r") if is_counting_io() else file


class IoCountingThreadPool(ThreadPoolExecutor):
    """Threads that count for who gave them their work."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(copy_context().run, function, *args, **kwargs)


class _CountingInput(io.RawIOBase):
    def __init__(self, file: pa.NativeFile, note: Callable[[int], None]) -> None:
        self._file = file
        self._note = note

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
        self._note(len(data))
        return data

    def read_buffer(self, size: int) -> pa.Buffer:
        """The same without a copy: what Arrow asks for."""
        data = self._file.read_buffer(size)
        self._note(data.size)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _digests(place: str) -> frozenset[bytes]:
    return frozenset((blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).digest(),))
