"""The interface of object storage, implemented for local disk and for remote object stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True)
class ObjectInfo:
    """A stored object."""

    path: str
    """Path below the root of the store, with `/` between segments."""
    size: int
    """Size in bytes."""
    modified: datetime
    """Modification time in UTC, by the clock of the store."""


class Output(Protocol):
    """A writable file, as pyarrow needs it."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any, /) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Input:
    """An object that is open for reading."""

    file: pa.NativeFile
    fetch: Callable[[Sequence[tuple[int, int]]], None] | None = None
    """Prefetches ranges (start inclusive, end exclusive) that the next reads need, in few requests. None if reads are
    no requests."""


class Backend(Protocol):
    """A storage backend. The caller validates paths, which are relative to the root. Failures are StoreErrors with the
    URI.
    """

    def read(self, path: str) -> bytes:
        """Return the bytes of an object. Raises ObjectNotFoundError."""

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        """Write an object, all or nothing.

        Args:
            create: Raise ObjectExistsError if the object exists.
            private: Make the object readable for this user only, if the store has users.
        """

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Yield all finished objects below the folder `prefix` (empty: the root), at any depth, in no order."""

    def info(self, path: str) -> ObjectInfo | None:
        """Return size and time of an object, or None if it does not exist."""

    def folders(self) -> tuple[str, ...]:
        """Return the names of the folders directly below the root, in no order."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Missing objects are ignored."""

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below the folder `prefix`. Nobody may write into it any more."""

    def refuse_links(self, prefix: str) -> None:
        """Raise StoreError if the folder `prefix`, a parent of it or anything in it is a symbolic link."""

    def open_input(self, path: str, *, use_cached_tail: bool = False) -> Input:
        """Open an object for ranged reads. Raises ObjectNotFoundError.

        With `use_cached_tail`, the object was opened before and is immutable, so its tail may come from a cache.
        """

    def create_output(self, path: str) -> AbstractContextManager[Output]:
        """Open a file for writing. It appears under `path` if the block ends normally, and only then."""

    def remove_unfinished(self, before: datetime) -> int:
        """Delete what killed writers left before that time. Return the number of files."""
