"""Objects in S3, Google Cloud Storage or Azure, through obstore."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url

from metastore_assets.batching import batched
from metastore_assets.caching import SizedCache
from metastore_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.storage.io_counters import record_read, record_write
from metastore_assets.storage.object_store import RangedFile, explain_connection_error, first_line, obstore_arguments
from metastore_assets.store.backend import Input, ObjectInfo, Output
from metastore_assets.store.prefetch import FetchedRanges

if TYPE_CHECKING:
    from metastore_assets.store.read_rounds import ByteRange

_TAIL = 1 << 16
"""Number of last bytes that are read of an object with a footer of unknown size, or with a small one. Arrow reads as
many, and a small object completely."""
_EXACT_TAIL = 1 << 14
"""Minimum size of a footer of which exactly its bytes are read. The object is so large that a longer read would hardly
contain the row groups that are read next."""
_WRITE_BYTES = 1 << 20
"""Number of bytes that are passed to an object store's client at once. Each call takes about 40 microseconds."""
_LISTED_AT_ONCE = 1000
"""Number of objects in one response of a listing, in most object stores."""
_CACHED_TAIL_BYTES = 8 << 20
"""Maximum number of last bytes of objects that are cached: those of 128 objects with small footers."""


class RemoteObjects:
    """A backend for the objects below a URI such as `s3://bucket/prefix`."""

    _opened_in: ClassVar[int | None] = None
    """Id of the process in which obstore's threads run; None before the first store is opened."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """Open the store.

        Raises StoreError if that fails, or if this process was forked after an object store was used.
        """
        self._uri = uri
        self._tails: SizedCache[str, tuple[int, bytes]] = SizedCache(_CACHED_TAIL_BYTES, lambda tail: len(tail[1]))
        if RemoteObjects._opened_in not in (None, os.getpid()):
            # A forked child has no such threads, and would wait for them forever.
            raise StoreError(
                f"cannot open {uri} in a process forked from one that used an object store; start processes with "
                "`spawn` or `forkserver` (multiprocessing.set_start_method)"
            )
        RemoteObjects._opened_in = os.getpid()
        try:
            self._store: Any = _open(uri, options)
        except (exceptions.BaseError, ValueError, TypeError) as error:
            raise StoreError(f"cannot open {uri}: {first_line(error)}; check root and storage_options") from error

    def read(self, path: str) -> bytes:
        with self._store_errors("read", path):
            data = bytes(obstore.get(self._store, path).bytes())
        record_read(self.uri(path), len(data))
        return data

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        """Write an object.

        With `create`, raise ObjectExistsError if the object exists. `private` has no effect.
        """
        with self._store_errors("write", path):
            obstore.put(self._store, path, data, mode="create" if create else "overwrite")
        record_write(self.uri(path), len(data))

    def scan(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._store_errors("list", prefix):
            for chunk in obstore.list(self._store, prefix or None, chunk_size=_LISTED_AT_ONCE):
                for info in chunk:
                    yield ObjectInfo(info["path"], info["size"], info["last_modified"])

    def info(self, path: str) -> ObjectInfo | None:
        try:
            with self._store_errors("read", path):
                info = obstore.head(self._store, path)
        except ObjectNotFoundError:
            return None
        return ObjectInfo(path, info["size"], info["last_modified"])

    def folders(self) -> tuple[str, ...]:
        with self._store_errors("list", ""):
            prefixes = obstore.list_with_delimiter(self._store)["common_prefixes"]
            return tuple(prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, up to 1,000 per request.

        Missing objects are ignored.
        """
        for batch in batched(paths, 1000):
            try:
                with self._store_errors("delete", batch[0]):
                    obstore.delete(self._store, batch)
            except ObjectNotFoundError:
                # S3 ignores missing objects. Other stores stop at the first, so they get one request per object.
                self._delete_each(batch)

    def delete_folder(self, prefix: str) -> None:
        self.delete([info.path for info in self.scan(prefix)])

    def refuse_links(self, prefix: str) -> None:
        """Do nothing: object stores have no links."""

    def open_input(
        self, path: str, *, use_cached_tail: bool = False, tail_bytes: int = 0, data_bytes: int = 0
    ) -> Input:
        cached_tail = self.cached_tail(path) if use_cached_tail else None
        if data_bytes and cached_tail is None:
            cached_tail = data_bytes, b""
        ranged_input = _RangedInput(self, path, cached_tail, tail_bytes)
        return Input(pa.PythonFile(ranged_input, mode="r"), ranged_input.fetched_ranges, ranged_input.tail)

    @contextmanager
    def create_output(self, path: str) -> Iterator[Output]:
        with self._store_errors("write", path):
            output = _RemoteOutput(self, path, obstore.open_writer(self._store, path))
        yield output
        # An error in the block leaves the upload incomplete, and therefore invisible.
        output.complete()
        record_write(self.uri(path), output.tell())

    def remove_unfinished(self, before: datetime) -> int:
        """Do nothing: a life-cycle rule of the bucket aborts incomplete uploads."""
        return 0

    def read_tail(self, path: str, tail_bytes: int = 0) -> tuple[int, bytes]:
        """Return (size of an object, its last bytes).

        The last bytes are at least `tail_bytes` bytes, or the complete object. If `tail_bytes` is at least
        `_EXACT_TAIL`, they are not more than `tail_bytes` bytes.
        """
        length = tail_bytes if tail_bytes >= _EXACT_TAIL else _TAIL
        with self._store_errors("read", path):
            try:
                result = obstore.get(self._store, path, options={"range": {"suffix": length}})
                return result.meta["size"], bytes(result.bytes())
            except exceptions.BaseError as error:
                if not _refuses_suffix(error):
                    raise
            size = obstore.head(self._store, path)["size"]
            start = max(0, size - length)
            return size, bytes(obstore.get_range(self._store, path, start=start, end=size)) if size else b""

    def cached_tail(self, path: str) -> tuple[int, bytes] | None:
        """Return (size, last bytes) of an immutable object; None if they are not cached."""
        return self._tails.get(path)

    def cache_tail(self, path: str, size: int, tail: bytes) -> None:
        """Cache the size and last bytes of an object, in place of those of an earlier read."""
        self._tails.put(path, (size, tail))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with self._store_errors("read", path):
            try:
                data = bytes(obstore.get_range(self._store, path, start=start, end=end))
            except exceptions.BaseError as error:
                if "416 Range Not Satisfiable" not in str(error):
                    raise
                data = b""  # The object ends before `start`.
        record_read(self.uri(path), len(data))
        return data

    def _delete_each(self, paths: Sequence[str]) -> None:
        """Delete objects one by one.

        Missing objects are ignored.
        """
        for path in paths:
            try:
                with self._store_errors("delete", path):
                    obstore.delete(self._store, path)
            except ObjectNotFoundError:
                continue

    @contextmanager
    def _store_errors(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            raise _store_error(verb, self.uri(path), error) from error

    def uri(self, path: str) -> str:
        """Return the URI of an object, for messages."""
        return f"{self._uri}/{path}" if path else self._uri


class _ObjectBytes:
    """The bytes of an object.

    The last ones, with the Parquet footer, are in memory.
    """

    def __init__(self, objects: RemoteObjects, path: str, size: int, tail: bytes) -> None:
        self._objects = objects
        self._path = path
        self._tail_start = size - len(tail)
        self._tail = tail

    def locate(self, start: int, end: int) -> ByteRange | None:
        """Return the byte range to request; None if the bytes are in memory."""
        return None if start >= self._tail_start else (self._path, start, end)

    def read(self, start: int, end: int) -> bytes:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._objects.read_range(self._path, start, end)


class _RangedInput(RangedFile):
    """A remote object that is read like a file.

    Its last bytes, with the Parquet footer, are read in one request or come from the cache.
    """

    def __init__(
        self, objects: RemoteObjects, path: str, cached_tail: tuple[int, bytes] | None, tail_bytes: int
    ) -> None:
        size, tail = objects.read_tail(path, tail_bytes) if cached_tail is None else cached_tail
        super().__init__(size)
        if cached_tail is None:
            record_read(objects.uri(path), len(tail))
            objects.cache_tail(path, size, tail)
        self.tail = tail
        # Without a method of this object: a reference cycle would keep the fetched ranges in memory for long.
        object_bytes = _ObjectBytes(objects, path, size, tail)
        self._read = object_bytes.read
        self.fetched_ranges = FetchedRanges(self._read, object_bytes.locate)

    def fetch(self, start: int, end: int) -> bytes:
        fetched_bytes = self.fetched_ranges.find(start, end)
        return self._read(start, end) if fetched_bytes is None else fetched_bytes


class _RemoteOutput(io.RawIOBase):
    def __init__(self, objects: RemoteObjects, path: str, writer: Any) -> None:
        self._objects = objects
        self._path = path
        self._writer = writer
        self._position = 0
        self._pending = bytearray()
        """Bytes that are not passed to the writer yet, because Arrow writes a small file in hundreds of pieces."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pending += data
        self._position += len(data)
        if len(self._pending) >= _WRITE_BYTES:
            self._write_pending()
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: `complete` makes the object visible."""

    def _write_pending(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        with self._objects._store_errors("write", self._path):
            self._writer.write(data)

    def complete(self) -> None:
        if self._pending:
            self._write_pending()
        with self._objects._store_errors("write", self._path):
            self._writer.close()


def _open(uri: str, options: Mapping[str, str]) -> Any:
    # The prefix of a root is literal, but obstore parses a URL.
    scheme, rest = uri.split("://", 1)
    return from_url(f"{scheme}://{quote(rest)}", **obstore_arguments(scheme, options.items()))


def _store_error(verb: str, uri: str, error: Exception) -> StoreError:
    """Return the error for a failed request.

    It is an ObjectNotFoundError, an ObjectExistsError, or another StoreError.

    Args:
        verb: What was tried, for the message, such as `read`.
        uri: URI of the object.
        error: The exception of obstore.
    """
    text = str(error)
    cannot = f"cannot {verb} {uri}"
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return ObjectExistsError(f"{uri} exists already")
    if "NoSuchBucket" in text or "ContainerNotFound" in text or "bucket does not exist" in text:
        return StoreError(f"{cannot}: there is no such bucket; create it, or set another root")
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{uri} does not exist")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return StoreError(f"{cannot}: access denied; check the credentials and the bucket's policy")
    return StoreError(f"{cannot}: {explain_connection_error(error) or first_line(error)}")


def _refuses_suffix(error: exceptions.BaseError) -> bool:
    """Return whether an error means that the store refuses a request for the last bytes of an object.

    Azure refuses all such requests (suffix ranges). Other stores refuse them for empty objects.
    """
    text = str(error)
    return isinstance(error, exceptions.NotSupportedError) or "416" in text or "non-partial response" in text
