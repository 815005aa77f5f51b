"""Access to all stored files: a root on local disk or in an object store, with atomic writes and ranged reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import InvalidPathError, ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.store.backend import Backend, ObjectInfo
from metastore_assets.store.local import LocalFiles
from metastore_assets.store.parquet import (
    MinimalParquet,
    ParquetObject,
    ParquetTableWriter,
    open_parquet,
    parquet_errors,
    parquet_writer,
)

__all__ = ["MinimalParquet", "ObjectExistsError", "ObjectInfo", "ObjectNotFoundError", "ObjectStore"]

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}


class ObjectStore:
    """A folder of objects: a local path, `file://`, `s3://`, `gs://` or `az://` URI, with its storage options.

    A small value: hashable, picklable, compared by URI and options; connections open on first use and are shared
    within a process. Paths are relative, with `/` between segments. Nothing half-written is ever visible. Every
    failure is a StoreError that names the URI and what to do.
    """

    __slots__ = ("_depth", "_options", "_uri")

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, *, depth: int = 0) -> None:
        self._uri = _normalized(uri)
        self._options = tuple(sorted((options or {}).items()))
        self._depth = depth
        """How many folders below the one that a person named: deletions follow no link in these."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and (self._uri, self._options) == (other._uri, other._options)

    def __hash__(self) -> int:
        return hash((self._uri, self._options))

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._uri, dict(self._options), self._depth)

    def __repr__(self) -> str:
        return f"ObjectStore({self._uri!r})"  # options may hold secrets

    def uri(self, path: str = "") -> str:
        """Return the absolute local path or the URI of an object."""
        return f"{self._uri.rstrip('/')}/{_checked(path)}" if path else self._uri

    @property
    def storage_options(self) -> dict[str, str]:
        """The options that the store was given, which may hold secrets."""
        return dict(self._options)

    def child(self, prefix: str) -> ObjectStore:
        """Return the store of the objects below a folder of this one."""
        depth = self._depth + prefix.count("/") + 1
        return ObjectStore(self.uri(prefix), dict(self._options), depth=depth)

    def read(self, path: str) -> bytes:
        """Return the bytes of an object. Raises ObjectNotFoundError."""
        return self._backend.read(_checked(path))

    def write(self, path: str, data: bytes, *, create: bool = False, private: bool = False) -> None:
        """Write one object, all or nothing. With `create`, raises ObjectExistsError when there is one already.

        `private`, on a file system only this user may read it; in an object store, whoever may read the rest.
        """
        self._backend.write(_checked(path), data, create=create, private=private)

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Return the objects below a folder at any depth, sorted by path; empty if the folder does not exist."""
        found = self._backend.list(_checked(prefix) if prefix else "")
        return sorted(found, key=lambda info: info.path)

    def info(self, path: str) -> ObjectInfo | None:
        """Return size and time of an object without reading it, or None if it does not exist."""
        return self._backend.info(_checked(path))

    def folders(self) -> tuple[str, ...]:
        """Return the names of the folders directly below the root, sorted, by one request."""
        return tuple(sorted(self._backend.folders()))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored. On disk, a path through a symbolic link is refused."""
        self._backend.delete([_checked(path) for path in paths])

    def delete_folder(self, prefix: str) -> None:
        """Remove all that is below the folder `prefix`, into which nobody writes any more."""
        self._backend.delete_folder(_checked(prefix))

    def refuse_links(self, prefix: str) -> None:
        """Raise StoreError where a folder is reached by a symbolic link or holds one: before a library changes it."""
        self._backend.refuse_links(_checked(prefix))

    def remove_unfinished(self, before: datetime) -> int:
        """Delete what killed writers left before that time. Return the number of files."""
        return self._backend.remove_unfinished(before)

    def open_parquet(self, path: str, metadata: pq.FileMetaData | None = None) -> ParquetObject:
        """A Parquet object for ranged reads: only the footer, unless it is known, and what is asked for is fetched.

        What has a known footer must not have changed since.
        """
        source = self._backend.open_input(_checked(path), use_cached_tail=metadata is not None)
        return open_parquet(source, self.uri(path), metadata)

    def read_parquet(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a Parquet object, or some of its columns, as a table."""
        with self.open_parquet(path) as file, parquet_errors(self.uri(path)):
            return file.read(columns=None if columns is None else list(columns))

    @contextmanager
    def parquet_writer(
        self,
        path: str,
        schema: pa.Schema,
        *,
        encodings: Mapping[str, str] | None = None,
        bounded: Sequence[str] | None = None,
        minimal: MinimalParquet | None = None,
    ) -> Iterator[ParquetTableWriter]:
        """Write one Parquet object table by table; visible when the block ends well, never when it raises.

        `encodings` of columns, by name, suit sorted rows: these columns have no dictionaries, others do. `bounded`
        names those that get a minimum and maximum per row group, without it all of short values.
        """
        with (
            self._backend.create_output(_checked(path)) as sink,
            parquet_writer(sink, schema, encodings, bounded, minimal) as writer,
        ):
            yield writer

    def write_parquet(self, path: str, table: pa.Table) -> None:
        """Write a table as one Parquet object."""
        with self.parquet_writer(path, table.schema) as writer:
            writer.write_table(table)

    @property
    def is_remote(self) -> bool:
        """Whether a read is a request over a network."""
        return "://" in self._uri

    @property
    def _backend(self) -> Backend:
        return _backend(self._uri, self._options, self._depth, os.getpid())


def _reopened(uri: str, options: Mapping[str, str], depth: int) -> ObjectStore:
    return ObjectStore(uri, options, depth=depth)


@lru_cache(maxsize=256)
def _backend(uri: str, options: tuple[tuple[str, str], ...], depth: int, process: int) -> Backend:
    """One backend per root and process; the process id keeps forked children from sharing connections."""
    if "://" not in uri:
        return LocalFiles(uri, depth)
    from metastore_assets.store.remote import RemoteObjects  # costs 30 ms that a local root need not pay

    return RemoteObjects(uri, dict(options))


def _normalized(uri: str) -> str:
    if "://" not in uri:
        return os.path.abspath(os.path.expanduser(uri))
    scheme, rest = uri.split("://", 1)
    if scheme == "file":
        return os.path.abspath(unquote(urlsplit(uri).path))
    if scheme not in _SCHEMES:
        raise StoreError(f"{uri}: a root is a local path or starts with file://, s3://, gs:// or az://")
    if not rest.strip("/"):
        raise StoreError(f"{uri} names no bucket; write {scheme}://bucket/prefix")
    return f"{_SCHEMES[scheme]}://{rest.rstrip('/')}"


def _checked(path: str) -> str:
    if not path or any(segment in ("", ".", "..") for segment in path.split("/")) or "\0" in path:
        # Paths come from documents in the store, which others may have written.
        raise InvalidPathError(f"{path!r} is not a relative object path: what names it is damaged or forged")
    return path
