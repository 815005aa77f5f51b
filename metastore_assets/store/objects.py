"""The object store that holds all files of a Metastore: a folder on local disk or in a bucket."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import InvalidPathError, ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.messages import is_uri
from metastore_assets.storage.location import Location
from metastore_assets.store.backend import Backend, ObjectInfo
from metastore_assets.store.local import LocalFiles
from metastore_assets.store.parquet import (
    DEFAULT_OPTIONS,
    MinimalParquet,
    ParquetObject,
    ParquetOptions,
    ParquetTableWriter,
    open_parquet,
    parquet_errors,
    parquet_writer,
)

__all__ = [
    "MinimalParquet",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectStore",
    "ParquetOptions",
    "unique_name",
]

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}


def unique_name() -> str:
    """Return a name for a new file: 32 hexadecimal digits that begin with the time."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"


class ObjectStore:
    """A folder of objects, local or in an object store, with its storage options.

    Its URI is a local path, or begins with `file://`, `s3://`, `gs://` or `az://`. An ObjectStore is hashable and
    picklable.

    Paths are relative, with `/` between segments. Readers never see half-written objects. Every failure is a StoreError
    that names the URI and what to do.
    """

    __slots__ = ("__weakref__", "_depth", "_options", "_uri")

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, *, depth: int = 0) -> None:
        self._uri = _normalize_root(uri)
        self._options = tuple(sorted((options or {}).items()))
        self._depth = depth
        """Number of last folders of a local path in which deletions follow no symbolic link, because the user did
        not name them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and (self._uri, self._options) == (other._uri, other._options)

    def __hash__(self) -> int:
        return hash((self._uri, self._options))

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._uri, dict(self._options), self._depth)

    def __repr__(self) -> str:
        return f"ObjectStore({self._uri!r})"  # options may hold secrets

    def uri(self, path: str = "") -> str:
        """Return the absolute local path or the URI of an object; of the folder itself for an empty path."""
        return f"{self._uri.rstrip('/')}/{_validate_path(path)}" if path else self._uri

    def is_same_folder(self, other: ObjectStore) -> bool:
        """Return whether both stores are the same folder.

        In local paths, symbolic links are resolved first.
        """
        if is_uri(self._uri) or is_uri(other._uri):
            return self._uri == other._uri
        return os.path.realpath(self._uri) == os.path.realpath(other._uri)

    @property
    def storage_options(self) -> dict[str, str]:
        """The options with which the store was created.

        They may contain secrets.
        """
        return dict(self._options)

    def child(self, prefix: str) -> ObjectStore:
        """Return the store of the objects below a folder of this one."""
        depth = self._depth + prefix.count("/") + 1
        return ObjectStore(self.uri(prefix), dict(self._options), depth=depth)

    def read(self, path: str) -> bytes:
        """Return all bytes of the object.

        Raises ObjectNotFoundError.
        """
        return self._backend.read(_validate_path(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of the object from `start` (inclusive) to `end` (exclusive).

        If the object is shorter, only its bytes from `start` are returned. Raises ObjectNotFoundError.
        """
        return self._backend.read_range(_validate_path(path), start, end)

    def write(self, path: str, data: bytes, *, create: bool = False, private: bool = False) -> None:
        """Write one object, completely or not at all.

        Args:
            path: Path of the object.
            data: Bytes of the object.
            create: Whether to raise ObjectExistsError if the object exists.
            private: Whether only this user may read the object. Object stores ignore it.
        """
        self._backend.write(_validate_path(path), data, create=create, private=private)

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Return all objects below a folder, at any depth, sorted by path.

        A missing folder has none.
        """
        return sorted(self.scan(prefix), key=lambda info: info.path)

    def scan(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below a folder, at any depth, in no order."""
        return self._backend.scan(_validate_path(prefix) if prefix else "")

    def info(self, path: str) -> ObjectInfo | None:
        """Return size and time of one object without reading it, or None if it does not exist."""
        return self._backend.info(_validate_path(path))

    def folders(self) -> tuple[str, ...]:
        """Return the names of the folders directly below the root, sorted.

        Takes one request.
        """
        return tuple(sorted(self._backend.folders()))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects.

        Missing objects are ignored.

        On disk, StoreError is raised if a folder between the configured folder and an object is a symbolic link.
        """
        self._backend.delete([_validate_path(path) for path in paths])

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below a folder.

        If another process writes there at the same time, its objects may remain, or StoreError is raised. On disk,
        StoreError is also raised if the folder, or one between the configured folder and it, is a symbolic link.
        """
        self._backend.delete_folder(_validate_path(prefix))

    def refuse_links(self, prefix: str) -> None:
        """Raise StoreError if the folder `prefix`, or anything in it at any depth, is a symbolic link.

        StoreError is also raised if a folder between `prefix` and the folder that the user configured is a link. The
        configured folder itself may be a link.
        """
        self._backend.refuse_links(_validate_path(prefix))

    def remove_unfinished(self, before: datetime) -> int:
        """Delete unfinished files of killed writers, if older than `before`.

        Return the number of deleted files.
        """
        return self._backend.remove_unfinished(before)

    def open_parquet(
        self,
        path: str,
        metadata: pq.FileMetaData | None = None,
        footer_bytes: int = 0,
        *,
        use_cached_tail: bool = False,
        data_bytes: int = 0,
    ) -> ParquetObject:
        """Open a Parquet object for reads of single row groups and columns.

        Args:
            path: Path of the object.
            metadata: The footer, if it was read before; None to read it.
            footer_bytes: Number of bytes after the row groups; 0 if unknown. If known, one request reads the footer.
            use_cached_tail: Whether the object is immutable and was opened before, so that its last bytes may be in
                a cache. Always true if `metadata` is given.
            data_bytes: Number of bytes up to the end of the row groups, if it is known and `metadata` is given;
                otherwise 0. If it is known, opening the object takes no request.
        """
        source = self._backend.open_input(
            _validate_path(path),
            use_cached_tail=use_cached_tail or metadata is not None,
            tail_bytes=footer_bytes,
            data_bytes=data_bytes,
        )
        return open_parquet(source, self.uri(path), metadata)

    def read_parquet(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows of a Parquet object: all columns, or some."""
        with self.open_parquet(path) as file, parquet_errors(self.uri(path)):
            return file.read(columns=None if columns is None else list(columns))

    @contextmanager
    def parquet_writer(
        self, path: str, schema: pa.Schema, options: ParquetOptions = DEFAULT_OPTIONS
    ) -> Iterator[ParquetTableWriter]:
        """Open a Parquet object for writing, table by table.

        It becomes visible if the block ends without an error.

        Args:
            path: Path of the object.
            schema: Columns of all tables.
            options: How the columns are stored.
        """
        with (
            self._backend.create_output(_validate_path(path)) as sink,
            parquet_writer(sink, schema, options) as writer,
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


def _reopen(uri: str, options: Mapping[str, str], depth: int) -> ObjectStore:
    return ObjectStore(uri, options, depth=depth)


@lru_cache(maxsize=256)
def _backend(uri: str, options: tuple[tuple[str, str], ...], depth: int, process: int) -> Backend:
    """Return the backend of a root.

    A later call with equal arguments returns the same backend.

    Args:
        uri: The root.
        options: (name, value) of each storage option, sorted.
        depth: Number of folders at the end of a local root that the user did not configure: 1 for `/data/sales` if the
            user configured `/data`. Deletions raise StoreError if one of these folders is a symbolic link.
        process: The id of this process. Forked children therefore get other backends.
    """
    if "://" not in uri:
        return LocalFiles(uri, depth)
    from metastore_assets.store.remote import RemoteObjects  # takes 30 ms, which a local root does not need

    return RemoteObjects(uri, dict(options))


def _normalize_root(uri: str) -> str:
    """Return a root in normal form: an absolute local path, or a URI with its usual scheme.

    A URI has no slash at the end. StoreError is raised for a URI of an unknown scheme or without a bucket, and for a
    text that is no path.
    """
    if not is_path_text(uri):
        raise StoreError(f"{uri!r} is no path: it has a null character or is no valid Unicode")
    if not is_uri(uri):
        return os.path.abspath(os.path.expanduser(uri))
    if uri.lower().startswith("file:"):
        return Location.of(uri).uri
    scheme, rest = uri.split("://", 1)
    if scheme not in _SCHEMES:
        raise StoreError(f"{uri}: a root is a local path or starts with file://, s3://, gs:// or az://")
    if not rest.strip("/"):
        raise StoreError(f"{uri} names no bucket; write {scheme}://bucket/prefix")
    return f"{_SCHEMES[scheme]}://{rest.rstrip('/')}"


def is_path_text(text: str) -> bool:
    """Return whether a text can be part of a path: it can be encoded, and has no null character."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _validate_path(path: str) -> str:
    if not path or any(segment in ("", ".", "..") for segment in path.split("/")) or "\0" in path:
        # Paths come from documents in the store, which others may have forged.
        raise InvalidPathError(f"{path!r} is not a relative object path: what names it is damaged or forged")
    return path
