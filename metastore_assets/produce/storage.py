"""What the layer needs of the place where its files are: an object store with atomic writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class StoredObject(Protocol):
    """One object of a listing."""

    @property
    def path(self) -> str:
        """Relative to the root of the storage."""

    @property
    def modified(self) -> datetime:
        """UTC, by the clock of the storage."""


class TableWriter(Protocol):
    """A Parquet object being written."""

    def write_table(self, table: pa.Table, row_group_rows: int = ...) -> None:
        """Append rows as row groups of at most so many rows."""

    def add_metadata(self, metadata: dict[str, str]) -> None:
        """Add to the file's key-value metadata."""


class Storage(Protocol):
    """A folder of objects, hashable and picklable; `metastore_assets.store.objects.ObjectStore` is one.

    What is written is visible whole or not at all. Failures are StoreErrors.
    """

    def __hash__(self) -> int:
        """Equal for what is the same folder."""

    def uri(self, path: str = "") -> str:
        """The object as a person would name it."""

    def read(self, path: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Write one object. With `create`, raises ObjectExistsError when there is one already."""

    def list(self, prefix: str = "") -> Sequence[StoredObject]:
        """The objects below a folder at any depth, sorted by path."""

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those already gone are no error."""

    def open_parquet(self, path: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        """A Parquet object for ranged reads, closed by its `with` block; its footer is not read where it is known."""

    def parquet_writer(self, path: str, schema: pa.Schema, *, delta: Sequence[str] = ()) -> AbstractContextManager[Any]:
        """A TableWriter; the object is visible when the block ends well. `delta` columns are stored as differences."""
