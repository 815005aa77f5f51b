"""Counts of requests and bytes, for a root as in an object store and for tables on local disk.

A root is the place of stored statistics. Here, it has the URI of a bucket, and its objects are below a local folder, so
that the code for object stores runs.
Requests to other folders are not counted, because a thread that another test left behind may make them. Each counted
request is logged at the level DEBUG.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import obstore
from obstore.store import LocalStore

from metastore_assets.pipeline import refresh
from metastore_assets.storage.io_counters import FileCount, IoCounter, count_io
from metastore_assets.storage.location import Location
from metastore_assets.store import objects, remote

_log = logging.getLogger(__name__)
ROOT = "s3://bench/root"
_PAGE = 1000
"""Number of objects that one request lists."""
_FILE_REQUESTS = ("stat", "identity", "modified")
_LISTINGS = ("names", "files", "list")
"""The methods of `Location` whose calls count as listings. `identities` is not among them, because it calls `files`."""


class Requests:
    """Counts what is requested of a root and of tables while `installed` is active."""

    def __init__(self, folder: Path, latency: float = 0.0) -> None:
        """Create a counter, which counts during the block of `installed`.

        Args:
            folder: The local folder of the bucket.
            latency: How many seconds each request to the root takes in addition.
        """
        self._folder = folder.absolute()
        self._latency = latency
        self._counts: Counter[str] = Counter()
        self._counter = IoCounter()
        self._stores: list[LocalStore] = []
        """The stores of the root. Requests to other stores are not counted."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Patch the package during the block, so that requests are counted.

        Roots at `ROOT` that are opened in the block have their objects below the local folder.
        """
        replaced_functions: list[tuple[Any, str, Any]] = [
            (remote, "obstore", self._obstore()),
            (remote, "_open", self._open),
            # The counter of reads is for the table alone.
            (remote, "record_read", lambda location, size: None),
            (remote, "record_write", lambda location, size: None),
            *((Location, name, self._counted(getattr(Location, name))) for name in _FILE_REQUESTS),
            *((Location, name, self._counted_listing(getattr(Location, name))) for name in _LISTINGS),
        ]
        objects._backend.cache_clear()
        with ExitStack() as stack:
            self._counter = stack.enter_context(count_io())
            # A refresh counts its reads for this counter, too.
            stack.enter_context(patch.object(refresh, "count_io", lambda: nullcontext(self._counter)))
            for target, name, function in replaced_functions:
                stack.enter_context(patch.object(target, name, function))
            yield
        objects._backend.cache_clear()

    def reset(self) -> None:
        """Start to count from zero."""
        self._counts.clear()
        self._counter._steps.clear()

    def counts(self) -> dict[str, int]:
        """Return the numbers of requests and bytes since the last `reset`, by name, such as `root read`.

        A file of the table that is read counts as one request. Reads in child processes are counted, too.
        """
        read_counts = sum((self._counter.counts(step).read for step in list(self._counter._steps)), FileCount())
        return {
            "root requests": self._counts["requests"],
            "table requests": self._counts["table requests"] + read_counts.files,
            "root read": self._counts["read"],
            "table read": read_counts.bytes,
            "written": self._counts["written"],
        }

    def _count_table(self, name: str, location: Location, path: str) -> None:
        if location.is_local and Path(location.uri).is_relative_to(self._folder):
            _log.debug("table: %s %s", name, location.full_path(path))
            self._counts["table requests"] += 1

    def _count(
        self, store: LocalStore, name: str, path: object, *, read_bytes: int = 0, written_bytes: int = 0
    ) -> None:
        if store not in self._stores:
            return
        _log.debug("root: %s %s, %d bytes read, %d written", name, path, read_bytes, written_bytes)
        self._counts.update(requests=name != "write", read=read_bytes, written=written_bytes)
        if self._latency and name != "write":
            time.sleep(self._latency)

    def _open(self, uri: str, options: Mapping[str, str]) -> LocalStore:
        store = LocalStore(prefix=self._folder / uri.partition("://")[2], mkdir=True)
        if uri.startswith(ROOT):
            self._stores.append(store)
        return store

    def _obstore(self) -> SimpleNamespace:
        """Return a replacement of the module `obstore`, whose functions count requests and bytes."""

        count = self._count

        def get(store: LocalStore, path: str, **options: Any) -> Any:
            result = obstore.get(store, path, **options)
            start, end = result.range
            count(store, "get", path, read_bytes=end - start)
            return result

        def get_range(store: LocalStore, path: str, *, start: int, end: int) -> Any:
            count(store, "get_range", f"{path} at {start}", read_bytes=end - start)
            return obstore.get_range(store, path, start=start, end=end)

        def list_all(store: LocalStore, prefix: str | None = None, chunk_size: int = _PAGE) -> Any:
            infos = obstore.list(store, prefix).collect()
            for _ in range(1 + len(infos) // _PAGE):
                count(store, "list", prefix)
            return [infos[start : start + chunk_size] for start in range(0, len(infos), chunk_size)]

        def put(store: LocalStore, path: str, data: bytes, **options: Any) -> Any:
            count(store, "put", path, written_bytes=len(data))
            return obstore.put(store, path, data, **options)

        def open_writer(store: LocalStore, path: str) -> Any:
            count(store, "open_writer", path)
            writer = obstore.open_writer(store, path)

            def write(data: Any) -> Any:
                count(store, "write", path, written_bytes=len(data))
                return writer.write(data)

            return SimpleNamespace(write=write, close=writer.close)

        def counted(name: str) -> Callable[..., Any]:
            def call(store: LocalStore, *arguments: Any, **options: Any) -> Any:
                count(store, name, arguments)
                return getattr(obstore, name)(store, *arguments, **options)

            return call

        return SimpleNamespace(
            get=get,
            get_range=get_range,
            list=list_all,
            put=put,
            open_writer=open_writer,
            **{name: counted(name) for name in ("head", "delete", "list_with_delimiter")},
        )

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(location: Location, path: str) -> Any:
            self._count_table(function.__name__, location, path)
            return function(location, path)

        return call

    def _counted_listing(self, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def call(location: Location, *arguments: Any, **options: Any) -> Iterator[Any]:
            for number, item in enumerate(function(location, *arguments, **options)):
                if number % _PAGE == 0:
                    self._count_table(function.__name__, location, "")
                yield item

        return call
