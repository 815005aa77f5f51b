"""An object of an object store as a seekable file whose content cannot change under its reader."""

from __future__ import annotations

import io
import os
from typing import Any


class ObjectFile(io.RawIOBase):
    """Each read is one ranged request of exactly those bytes, for the given ETag only."""

    def __init__(self, store: Any, path: str, size: int, e_tag: str) -> None:
        self._store = store
        self._path = path
        self._size = size
        # A store without ETags gives a time instead; it has nothing to match on.
        self._e_tag = e_tag if e_tag.startswith(('"', "W/")) else None
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self._size if size < 0 else min(self._size, start + size)
        if end <= start:
            return b""
        options: dict[str, Any] = {"range": (start, end)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag
        data = bytes(self._store.get(self._path, options=options).bytes())
        self._position = end
        return data
