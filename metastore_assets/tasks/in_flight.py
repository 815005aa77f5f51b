"""What is being read right now, left in memory that outlives the process that reads it: there the culprit is found."""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PLACES = 64
"""Most threads that leave crumbs."""
_PLACE_BYTES = 4096
SIZE = PLACES * _PLACE_BYTES
_HEAD = struct.Struct("<QQ")
"""Number of the task, counted from 1, 0 for none; and length of the text behind it."""
_own = threading.local()


class Crumbs:
    """The memory, `SIZE` bytes of the file of that descriptor, which two processes share."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)

    def found(self) -> dict[int, str]:
        """What is being read by the number of its task, counted from 0: path and perhaps part of a file, or empty."""
        found = {}
        for start in range(0, SIZE, _PLACE_BYTES):
            number, length = _HEAD.unpack_from(self._memory, start)
            if number:
                text = self._memory[start + _HEAD.size : start + _HEAD.size + length]
                found[number - 1] = text.decode("utf-8", "replace")
        return found

    def begin(self, place: int, number: int) -> None:
        """The thread that calls, whose place that is, is at that task."""
        _own.memory, _own.start, _own.number, _own.text = self._memory, place * _PLACE_BYTES, number + 1, ""
        _HEAD.pack_into(self._memory, _own.start, number + 1, 0)

    def end(self, place: int) -> None:
        """It has done it."""
        _HEAD.pack_into(self._memory, place * _PLACE_BYTES, 0, 0)
        _own.memory = None


@contextmanager
def reading(text: str) -> Iterator[None]:
    """Say what is read. Does nothing in threads that are at no task: nobody follows them."""
    if getattr(_own, "memory", None) is None:
        yield
        return
    before = _own.text
    _leave(text)
    try:
        yield
    finally:
        _leave(before)


def _leave(text: str) -> None:
    memory = _own.memory
    if memory is None:
        return  # A generator that is closed late.
    _own.text = text
    data = text.encode("utf-8", "surrogateescape")[: _PLACE_BYTES - _HEAD.size]
    _HEAD.pack_into(memory, _own.start, _own.number, 0)
    memory[_own.start + _HEAD.size : _own.start + _HEAD.size + len(data)] = data
    _HEAD.pack_into(memory, _own.start, _own.number, len(data))
