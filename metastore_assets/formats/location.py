"""Where a table lies: a folder on local disk or a prefix in an object store, listed and opened the same way.

Whatever goes wrong below is an OSError, FileNotFoundError when something is not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.formats.local_files import check_size, open_local, read_local
from metastore_assets.formats.object_store import (
    ObjectFile,
    OverwrittenError,
    is_e_tag,
    object_errors,
    open_object_store,
)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = re.compile(r"^file:(//[^/]*)?(?=/)")

_LISTINGS = 16
"""Folders of an object store listed at a time."""


class StoredFile(NamedTuple):
    """One file below a location, as a listing shows it. A named tuple, for there are many, and they travel."""

    path: str
    """Relative to the location, with `/` between segments. Empty when the location is the file itself."""
    size: int
    version: str
    """Changes whenever the content does: ETag in an object store, modification time in nanoseconds on disk."""


@dataclass(frozen=True)
class Location:
    """A folder, a prefix, or a single file. Small and picklable: connections are made where they are used."""

    uri: str
    """An absolute local path, or `scheme://bucket/prefix`; without a trailing slash."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Object-store settings, ordered by key. Not shown: some are secret."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str] | None = None) -> Location:
        """The location a configuration names: a path, a `file:` URI, or an object store's URI."""
        if uri.startswith("file:"):
            uri = unquote(_FILE.sub("", uri))
        if not _SCHEME.match(uri):
            uri = os.path.abspath(uri)
        return cls(uri.rstrip("/") or "/", tuple(sorted((options or {}).items())))

    @classmethod
    def of_encoded(
        cls, uri: str, options: Mapping[str, str], moved: Callable[[str], str] = lambda recorded: recorded
    ) -> Location:
        """The location that a table's metadata name: a percent-encoded URI, or an absolute path encoded like one.

        `moved` tells where a recorded location, decoded, lies now.
        """
        return cls.of(_FILE.sub("", moved(unquote(uri))), options)

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.uri)

    def full_path(self, path: str) -> str:
        """Path or URI of a file, for messages and for people."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def list(
        self, skip: Callable[[str], bool] = lambda name: False, descend: Callable[[str], bool] | None = None
    ) -> Iterator[StoredFile]:
        """All files below, at any depth, in no order; or the file itself when the location is one.

        `skip` is asked for the name of each folder and file below the location. `descend` is asked for the path of
        each folder that is left; given, an object store is listed folder by folder, and only those that are wanted.
        Nothing when nothing is there.
        """
        if self.is_local:
            return self._list_local(skip, descend or (lambda path: True))
        return self._list_remote(skip) if descend is None else self._list_levels(skip, descend)

    def names(self, folder: str, after: str = "") -> Iterator[str]:
        """Names of the files directly in a folder that sort behind `after`; nothing when there is no such folder.

        In an object store, names before `after` are not even listed, and those that sort behind its first
        subfolder may be missing: made for logs, whose names start with digits.
        """
        if self.is_local:
            try:
                with os.scandir(self.full_path(folder)) as entries:
                    yield from (entry.name for entry in entries if entry.name > after)
            except (FileNotFoundError, NotADirectoryError):
                return
            return
        store, prefix = self._store()
        start = _key(prefix, folder)
        with object_errors(self.full_path(folder)):
            for chunk in store.list(start, offset=f"{start}/{after}" if after else None):
                for info in chunk:
                    name = info["path"][len(start) + 1 :]
                    if "/" in name:
                        return
                    yield name

    def has_any(self, folder: str) -> bool:
        """Whether there is anything below a folder."""
        if self.is_local:
            return os.path.isdir(self.full_path(folder))
        store, prefix = self._store()
        with object_errors(self.full_path(folder)):
            return any(len(chunk) for chunk in store.list(_key(prefix, folder), chunk_size=1))

    def stat(self, path: str) -> StoredFile:
        """Size and version of a file now."""
        if self.is_local:
            return _local_file(path, os.stat(self.full_path(path)))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            return _remote_file(path, store.head(_key(prefix, path)))

    def modified(self, path: str) -> datetime:
        """When a file was written, in UTC, as the file system or the object store says."""
        if self.is_local:
            return datetime.fromtimestamp(os.stat(self.full_path(path)).st_mtime, UTC)
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            written: datetime = store.head(_key(prefix, path))["last_modified"]
            return written

    def read(self, path: str) -> bytes:
        """The whole of a small file. Raises OSError for one that is too large to be metadata."""
        if self.is_local:
            return read_local(self.full_path(path))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            found = store.get(_key(prefix, path))
            check_size(self.full_path(path), found.meta["size"])
            return bytes(found.bytes())

    def open(self, path: str) -> pa.NativeFile:
        """The file for random access, as it is now."""
        return open_local(self.full_path(path)) if self.is_local else self._open_object(self.stat(path))

    def open_stored(self, stored: StoredFile) -> pa.NativeFile:
        """The file for random access, of the content that was listed, else OverwrittenError.

        Call `check` when done: only then it is certain that all was of that content.
        """
        self.check(stored)
        return self.open_listed(stored)

    def open_listed(self, stored: StoredFile) -> pa.NativeFile:
        """The same for who reads little and calls `check` anyway, which tells it as well."""
        return open_local(self.full_path(stored.path)) if self.is_local else self._open_object(stored)

    def check(self, stored: StoredFile) -> None:
        """Raise OverwrittenError when the file is no longer the one that was listed."""
        if not self.is_local and is_e_tag(stored.version):
            return  # Every read asks for the ETag.
        if self.stat(stored.path) != stored:
            raise OverwrittenError(f"{self.full_path(stored.path)} has been overwritten since it was listed")

    def _open_object(self, stored: StoredFile) -> pa.NativeFile:
        store, prefix = self._store()
        file = ObjectFile(store, _key(prefix, stored.path), stored.size, stored.version, self.full_path(stored.path))
        return pa.PythonFile(file, mode="r")

    def _store(self) -> tuple[Any, str]:
        scheme, _, rest = self.uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        root = f"{scheme}://{bucket}"
        with object_errors(root):
            return _open_store(root, self.options), prefix

    def _list_local(self, skip: Callable[[str], bool], descend: Callable[[str], bool]) -> Iterator[StoredFile]:
        if os.path.isdir(self.uri):
            yield from _walk(self.uri, "", skip, descend, frozenset())
        elif os.path.exists(self.uri):
            yield self.stat("")

    def _list_remote(self, skip: Callable[[str], bool]) -> Iterator[StoredFile]:
        store, prefix = self._store()
        found = False
        with object_errors(self.uri):
            for chunk in store.list(prefix or None):
                for info in chunk:
                    found = True
                    path = info["path"][len(prefix) :].lstrip("/")
                    # An object with the folder's own name is the marker that some console made for it.
                    if path and not any(map(skip, path.split("/"))):
                        yield _remote_file(path, info)
        if not found and prefix:
            try:
                yield self.stat("")
            except FileNotFoundError:
                return

    def _list_levels(self, skip: Callable[[str], bool], descend: Callable[[str], bool]) -> Iterator[StoredFile]:
        store, prefix = self._store()
        found = False

        def level(folder: str) -> Any:
            with object_errors(self.full_path(folder)):
                return store.list_with_delimiter(_key(prefix, folder) or None)

        folders = [""]
        with ThreadPoolExecutor(_LISTINGS) as pool:
            while folders:
                below: list[str] = []
                for listed in pool.map(level, folders):
                    paths = [path[len(prefix) :].strip("/") for path in listed["common_prefixes"]]
                    found = found or bool(paths or listed["objects"])
                    below += [path for path in paths if not skip(path.rpartition("/")[2]) and descend(path)]
                    for info in listed["objects"]:
                        path = info["path"][len(prefix) :].lstrip("/")
                        if path and path not in folders and not skip(path.rpartition("/")[2]):
                            yield _remote_file(path, info)
                folders = below
        if not found and prefix:
            try:
                yield self.stat("")
            except FileNotFoundError:
                return


def _key(prefix: str, path: str) -> str:
    return f"{prefix}/{path}".strip("/")


def _local_file(path: str, stat: os.stat_result) -> StoredFile:
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns))


def _remote_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    return StoredFile(path, info["size"], info["e_tag"] or info["last_modified"].isoformat())


def _walk(
    folder: str,
    prefix: str,
    skip: Callable[[str], bool],
    descend: Callable[[str], bool],
    above: frozenset[tuple[int, int]],
) -> Iterator[StoredFile]:
    stat = os.stat(folder)
    identity = (stat.st_dev, stat.st_ino)
    if identity in above:
        raise OSError(f"{folder} is a symbolic link to a folder that contains it")
    with os.scandir(folder) as entries:
        for entry in entries:
            if skip(entry.name):
                continue
            path = prefix + entry.name
            try:
                if entry.is_dir():
                    if descend(path):
                        yield from _walk(entry.path, f"{path}/", skip, descend, above | {identity})
                else:
                    yield _local_file(path, entry.stat())
            except FileNotFoundError:
                # Removed since the folder was opened: then it is no part of the listing. A dangling link is.
                if entry.is_symlink():
                    raise


@lru_cache(maxsize=64)
def _open_store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    return open_object_store(root, options)
