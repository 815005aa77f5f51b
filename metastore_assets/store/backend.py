"""The interface of a store of objects.

There is one implementation for local disk and one for object stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.store.prefetch import FetchedRanges


@dataclass(frozen=True)
class ObjectInfo:
    """Path, size and modification time of a stored object."""

    path: str
    """Path relative to the root of the store, with `/` between segments."""
    size: int
    """Size in bytes."""
    modified: datetime
    """Time of the last change, UTC, by the clock of the store."""


class Output(Protocol):
    """A writable file, with the methods that pyarrow calls."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any, /) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Input:
    """An open object that supports reads of byte ranges."""

    file: pa.NativeFile
    fetched_ranges: FetchedRanges | None = None
    """The byte ranges of the next reads, which are fetched before in few requests. None on local disk."""
    tail: bytes = b""
    """The last bytes of the object, as many as are in memory. Empty on local disk."""


class Backend(Protocol):
    """A place where objects are stored: a root folder on disk, or a prefix of a bucket.

    Paths are relative to the root, and validated by callers. Methods that fail raise StoreErrors with the URI.
    """

    def read(self, path: str) -> bytes:
        """Return all bytes of the object.

        Raises ObjectNotFoundError.
        """

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of the object from `start` (inclusive) to `end` (exclusive).

        If the object is shorter, only its bytes from `start` are returned. Raises ObjectNotFoundError.
        """

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        """Write an object, completely or not at all.

        Args:
            path: Path of the object.
            data: Bytes of the object.
            create: Whether to raise ObjectExistsError if the object exists.
            private: Whether only this user may read the object. Object stores ignore it.
        """

    def scan(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield all finished objects below the folder `prefix`, at any depth, in no order.

        An empty prefix is the root.
        """

    def info(self, path: str) -> ObjectInfo | None:
        """Return path, size and modification time of an object; None if it does not exist."""

    def folders(self) -> tuple[str, ...]:
        """Return the names of the folders directly below the root, unordered."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects.

        Missing objects are ignored.
        """

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below the folder `prefix`.

        If another process writes there at the same time, its objects may remain, or StoreError is raised.
        """

    def refuse_links(self, prefix: str) -> None:
        """Raise StoreError if the folder `prefix`, or anything in it at any depth, is a symbolic link.

        StoreError is also raised if a folder between `prefix` and the folder that the user configured is a link.
        """

    def open_input(
        self, path: str, *, use_cached_tail: bool = False, tail_bytes: int = 0, data_bytes: int = 0
    ) -> Input:
        """Open an object for ranged reads.

        Raises ObjectNotFoundError.

        Args:
            path: Path of the object.
            use_cached_tail: Whether the object is immutable and was opened before, so that its last bytes may be in
                a cache.
            tail_bytes: Number of last bytes that the caller reads first; 0 if unknown. A backend may read more.
            data_bytes: Number of first bytes, if the caller reads nothing after them; otherwise 0. If it is not 0, no
                last bytes are read when the object is opened.
        """

    def create_output(self, path: str) -> AbstractContextManager[Output]:
        """Open a file for writing.

        It appears under `path` only if the block ends without an error.
        """

    def remove_unfinished(self, before: datetime) -> int:
        """Delete unfinished files of killed writers, if older than `before`.

        Return the number of deleted files.
        """
