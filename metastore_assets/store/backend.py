"""What a place that holds objects must do: local disk and remote object stores answer the same protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True)
class ObjectInfo:
    """One stored object."""

    path: str
    """Path below the root of the store, with `/` between segments."""
    size: int
    """Bytes."""
    modified: datetime
    """UTC, by the clock of the store."""


class Output(Protocol):
    """What pyarrow needs of a file it writes to."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any, /) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Input:
    """An object to be read."""

    file: pa.NativeFile
    fetch: Callable[[Sequence[tuple[int, int]]], None] | None = None
    """Fetches ranges, each from a byte up to but without another, in which the next reads are: in few requests, where
    one costs more than to read. None where a read is no request."""


class Backend(Protocol):
    """Paths are relative to the root, checked by the caller. Every failure is a StoreError that names the URI."""

    def read(self, path: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        """Write the object, all or nothing. With `create`, raises ObjectExistsError when there is one.

        `private`: for this user alone, where there are users.
        """

    def list(self, prefix: str) -> list[ObjectInfo]:
        """All finished objects below the folder `prefix` (empty: the root), at any depth, in no order."""

    def info(self, path: str) -> ObjectInfo | None:
        """Size and time of the object; None where there is none."""

    def folders(self) -> tuple[str, ...]:
        """Names of the folders directly below the root, in no order."""

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error."""

    def delete_folder(self, prefix: str) -> None:
        """Remove all that is below the folder `prefix`, into which nobody writes any more."""

    def refuse_links(self, prefix: str) -> None:
        """Raise StoreError where the folder `prefix`, a folder on the way to it or what is in it is a symbolic link."""

    def open_input(self, path: str, *, again: bool = False) -> Input:
        """The object for ranged reads. Raises ObjectNotFoundError.

        `again`: it was opened before, and is as it was then, so that how it ends need not be asked for once more.
        """

    def create_output(self, path: str) -> AbstractContextManager[Output]:
        """A file to write to, visible under `path` when the block ends well, and never when it raises."""

    def remove_unfinished(self, before: datetime) -> int:
        """Remove what killed writers left behind before that time; the number of files removed."""
