"""Objects in S3, Google Cloud Storage or Azure, through obstore."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Any, ClassVar
from urllib.parse import quote

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url

from metastore_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.storage.io_counters import read_recorder, record_read, record_write
from metastore_assets.storage.object_store import RangedFile, obstore_arguments
from metastore_assets.store.backend import Input, ObjectInfo, Output
from metastore_assets.store.prefetch import FetchedRanges

_TAIL = 1 << 16
_KEPT_TAILS = 64
"""Of objects that were opened last: four megabytes."""
_INSTANCE_METADATA = ("/latest/api/token", "/latest/meta-data/", "/computeMetadata/", "/metadata/identity/")
"""Where clients ask a cloud's machine for credentials when there are no others."""


class RemoteObjects:
    """The objects below a URI such as `s3://bucket/prefix`, with its `storage_options`."""

    _opened_in: ClassVar[int | None] = None
    """The process that has obstore's threads."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri
        self._lock = Lock()
        self._tails: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        if RemoteObjects._opened_in not in (None, os.getpid()):
            # The threads are not in the child, and it would wait for them for ever.
            raise StoreError(
                f"cannot open {uri} in a process forked from one that used an object store; start processes with "
                "`spawn` or `forkserver` (multiprocessing.set_start_method)"
            )
        RemoteObjects._opened_in = os.getpid()
        try:
            self._store: Any = _open(uri, options)
        except (exceptions.BaseError, ValueError, TypeError) as error:
            raise StoreError(f"cannot open {uri}: {_first_line(error)}; check root and storage_options") from error

    def read(self, path: str) -> bytes:
        with self._explained("read", path):
            data = bytes(obstore.get(self._store, path).bytes())
        record_read(self.place(path), len(data))
        return data

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        with self._explained("write", path):
            obstore.put(self._store, path, data, mode="create" if create else "overwrite")
        record_write(self.place(path), len(data))

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self._explained("list", prefix):
            found = obstore.list(self._store, prefix or None).collect()
            return [ObjectInfo(info["path"], info["size"], info["last_modified"]) for info in found]

    def info(self, path: str) -> ObjectInfo | None:
        try:
            with self._explained("read", path):
                info = obstore.head(self._store, path)
        except ObjectNotFoundError:
            return None
        return ObjectInfo(path, info["size"], info["last_modified"])

    def folders(self) -> tuple[str, ...]:
        with self._explained("list", ""):
            found = obstore.list_with_delimiter(self._store)["common_prefixes"]
            return tuple(prefix.rstrip("/").rpartition("/")[2] for prefix in found)

    def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), 1000):
            batch = list(paths[start : start + 1000])
            try:
                with self._explained("delete", batch[0]):
                    obstore.delete(self._store, batch)
            except ObjectNotFoundError:
                # S3 does not mind; others stop at the first that is missing, so go one by one.
                self._delete_each(batch)

    def delete_folder(self, prefix: str) -> None:
        self.delete([info.path for info in self.list(prefix)])

    def refuse_links(self, prefix: str) -> None:
        """Nothing to refuse: object stores have no links."""

    def open_input(self, path: str, *, use_cached_tail: bool = False) -> Input:
        opened = _RangedInput(self, path, use_cached_tail=use_cached_tail)
        return Input(pa.PythonFile(opened, mode="r"), opened.fetched.fetch)

    @contextmanager
    def create_output(self, path: str) -> Iterator[Output]:
        with self._explained("write", path):
            output = _RemoteOutput(self, path, obstore.open_writer(self._store, path))
        yield output
        # Not closed when the block raises: an upload never completed is never visible.
        output.complete()
        record_write(self.place(path), output.tell())

    def remove_unfinished(self, before: datetime) -> int:
        """Nothing to remove by name: a bucket's life-cycle rule aborts incomplete uploads."""
        return 0

    def tail(self, path: str) -> tuple[int, bytes]:
        """Return the size of an object and its last bytes, which contain a Parquet footer."""
        with self._explained("read", path):
            try:
                result = obstore.get(self._store, path, options={"range": {"suffix": _TAIL}})
                return result.meta["size"], bytes(result.bytes())
            except exceptions.BaseError as error:
                if not _refuses_suffix(error):
                    raise
            size = obstore.head(self._store, path)["size"]
            return size, self.range(path, max(0, size - _TAIL), size) if size else b""

    def tail_again(self, path: str) -> tuple[int, bytes] | None:
        """Return the size and the last bytes of an immutable object from the cache, or None if they are not cached."""
        with self._lock:
            return self._tails.get(path)

    def keep_tail(self, path: str, size: int, tail: bytes) -> None:
        """Cache the size and the last bytes of an object for the next time that it is opened."""
        with self._lock:
            self._tails[path] = size, tail
            self._tails.move_to_end(path)
            if len(self._tails) > _KEPT_TAILS:
                self._tails.popitem(last=False)

    def range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` (inclusive) to `end` (exclusive)."""
        with self._explained("read", path):
            return bytes(obstore.get_range(self._store, path, start=start, end=end))

    def _delete_each(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                with self._explained("delete", path):
                    obstore.delete(self._store, path)
            except ObjectNotFoundError:
                continue

    @contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            raise _explain(verb, self.place(path), error) from error

    def place(self, path: str) -> str:
        """Return the URI of an object for messages."""
        return f"{self._uri}/{path}" if path else self._uri


class _RangedInput(RangedFile):
    """An object as a file whose tail is there already, where a Parquet footer is."""

    def __init__(self, objects: RemoteObjects, path: str, *, use_cached_tail: bool) -> None:
        kept = objects.tail_again(path) if use_cached_tail else None
        size, self._tail = objects.tail(path) if kept is None else kept
        super().__init__(size)
        self._note = read_recorder(objects.place(path))
        if kept is None:
            self._note(len(self._tail))
            objects.keep_tail(path, size, self._tail)
        self._objects = objects
        self._path = path
        self.fetched = FetchedRanges(self._range)

    def fetch(self, start: int, end: int) -> bytes:
        fetched = self.fetched.find(start, end)
        return self._range(start, end) if fetched is None else fetched

    def _range(self, start: int, end: int) -> bytes:
        tail_start = self.size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        self._note(end - start)
        return self._objects.range(self._path, start, end)


class _RemoteOutput(io.RawIOBase):
    def __init__(self, objects: RemoteObjects, path: str, writer: Any) -> None:
        self._objects = objects
        self._path = path
        self._writer = writer
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._objects._explained("write", self._path):
            self._writer.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing: `complete` is what makes the object visible, once."""

    def complete(self) -> None:
        with self._objects._explained("write", self._path):
            self._writer.close()


def _open(uri: str, options: Mapping[str, str]) -> Any:
    # The key prefix of a root is taken as it is; what obstore parses is a URL.
    scheme, rest = uri.split("://", 1)
    return from_url(f"{scheme}://{quote(rest)}", **obstore_arguments(scheme, options.items()))


def _explain(verb: str, uri: str, error: Exception) -> StoreError:
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
    if any(part in text for part in _INSTANCE_METADATA):
        return StoreError(
            f"{cannot}: no credentials found; set them in storage_options or in the environment (such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    if "builder error" in text and "http://" in text:
        return StoreError(f'{cannot}: the endpoint is plain http; add `aws_allow_http: "true"` to storage_options')
    if "error sending request" in text or "dns error" in text:
        return StoreError(f"{cannot}: the endpoint cannot be reached ({_first_line(error)}); check aws_endpoint")
    return StoreError(f"{cannot}: {_first_line(error)}")


def _refuses_suffix(error: exceptions.BaseError) -> bool:
    """Azure knows no suffix ranges, and no store has a range of an empty object."""
    text = str(error)
    return isinstance(error, exceptions.NotSupportedError) or "416" in text or "non-partial response" in text


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].strip()
