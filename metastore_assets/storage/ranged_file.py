"""An object in a store as a seekable file: what is read are ranges of its bytes."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod


class RangedFile(io.RawIOBase, ABC):
    """An object of `size` bytes. Each read asks for exactly the bytes that are read, none at or beyond the end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    @abstractmethod
    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to but without `end`, of which there is one at least."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self.size if size < 0 else min(self.size, start + size)
        if end <= start:
            return b""
        data = self.fetch(start, end)
        self._position = end
        return data
