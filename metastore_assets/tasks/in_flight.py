"""The in-flight record: shared memory in which a child process notes the files that it is reading.

The memory outlives a child that crashes. The parent then reads in it which files the child was reading. Each thread of
the child has its own part of the memory, which is called its slot.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_THREADS = 64
"""Maximum number of threads of a child that can record what they read."""
_SLOT_BYTES = 4096
SIZE = MAX_THREADS * _SLOT_BYTES
"""Size of the shared memory in bytes: one slot per thread."""
_HEADER = struct.Struct("<QQ")
"""The beginning of a slot: number of the task, from 1 (0: no task), and length in bytes of the text that follows."""
_current = threading.local()


class InFlightRecord:
    """Memory shared by parent and child, with the running task of each thread and the file that it reads.

    The argument `descriptor` is the file descriptor of a file of `SIZE` bytes, which is open in both processes.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)

    def entries(self) -> dict[int, str]:
        """Return {number of a running task: the file that it reads, or "" if unknown}.

        Tasks are numbered from 0.
        """
        entries = {}
        for start in range(0, SIZE, _SLOT_BYTES):
            number, length = _HEADER.unpack_from(self._memory, start)
            if number:
                text = self._memory[start + _HEADER.size : start + _HEADER.size + length]
                entries[number - 1] = text.decode("utf-8", "replace")
        return entries

    def begin(self, slot: int, number: int) -> None:
        """Record that the calling thread begins a task.

        Args:
            slot: The number of the slot that only this thread writes.
            number: The number of the task, counted from 0.
        """
        _current.memory, _current.start, _current.number = self._memory, slot * _SLOT_BYTES, number + 1
        _current.text = ""
        _HEADER.pack_into(self._memory, _current.start, number + 1, 0)

    def end(self, slot: int) -> None:
        """Record that the thread of a slot runs no task any more."""
        _HEADER.pack_into(self._memory, slot * _SLOT_BYTES, 0, 0)
        _current.memory = None


@contextmanager
def record_in_flight(text: str) -> Iterator[None]:
    """Record the file, or part of a file, that the block reads.

    Does nothing outside of child processes.
    """
    if getattr(_current, "memory", None) is None:
        yield
        return
    outer = _current.text
    _write(text)
    try:
        yield
    finally:
        _write(outer)


def _write(text: str) -> None:
    """Write a text into the slot of the calling thread."""
    memory = _current.memory
    if memory is None:
        return  # The task has ended; its generator is closed late.
    _current.text = text
    data = text.encode("utf-8", "surrogateescape")[: _SLOT_BYTES - _HEADER.size]
    # The length is 0 while the text is written: a crash in between leaves no torn text.
    _HEADER.pack_into(memory, _current.start, _current.number, 0)
    memory[_current.start + _HEADER.size : _current.start + _HEADER.size + len(data)] = data
    _HEADER.pack_into(memory, _current.start, _current.number, len(data))
