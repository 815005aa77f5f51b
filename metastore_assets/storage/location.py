"""Where a table lies: a folder on local disk or a prefix in an object store, listed and opened the same way.

Whatever goes wrong below is an OSError, FileNotFoundError when something is not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.messages import remember_password
from metastore_assets.storage.io_counters import record_read
from metastore_assets.storage.listing import StoredFile as StoredFile
from metastore_assets.storage.listing import (
    checked_path,
    files_on_disk,
    local_stored_file,
    object_key,
    objects_at_once,
    objects_by_folder,
    remote_stored_file,
)
from metastore_assets.storage.local_files import check_size, open_local, read_local
from metastore_assets.storage.object_store import (
    ObjectFile,
    OverwrittenError,
    is_e_tag,
    object_errors,
    objects_in,
    open_object_store,
)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = re.compile(r"^file:(//[^/]*)?(?=/)", re.IGNORECASE)


@dataclass(frozen=True)
class Location:
    """A folder, a prefix, or a single file. Small and picklable: connections are made where they are used."""

    uri: str
    """An absolute local path, or `scheme://bucket/prefix`; without a trailing slash."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Object-store settings, ordered by key. Not shown: some are secret."""
    confined: bool = False
    """Whether links on local disk that lead out of the folder are refused."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str] | None = None, *, confined: bool = False) -> Location:
        """The location a configuration names: a path, a `file:` URI, or an object store's URI."""
        if uri[:5].lower() == "file:":
            uri = unquote(_FILE.sub("", uri))
        if not _SCHEME.match(uri):
            uri = os.path.abspath(uri)
        remember_password(uri)
        return cls(uri.rstrip("/") or "/", tuple(sorted((options or {}).items())), confined)

    def below(self, folder: str) -> Location:
        """A folder in this one."""
        return replace(self, uri=self.full_path(folder))

    @property
    def parent(self) -> Location | None:
        """The folder that this one or the file is in; None above a root or bucket. What is there is not confined."""
        head, _, name = self.uri.rpartition("/")
        if not name or head.endswith(":/"):
            return None
        return replace(self, uri=head or "/", confined=False)

    @property
    def folder(self) -> Location:
        """The folder that a file is in, with all that holds for the file."""
        return replace(self, uri=self.uri.rpartition("/")[0] or "/")

    @property
    def resolved(self) -> Location:
        """The same without symbolic links on the way."""
        return replace(self, uri=os.path.realpath(self.uri)) if self.is_local else self

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.uri)

    def full_path(self, path: str) -> str:
        """Path or URI of a file, for messages and for people."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def list(
        self,
        keep: Callable[[str], bool] = lambda path: True,
        descend: Callable[[str], bool] = lambda path: True,
        *,
        by_folder: bool = False,
    ) -> Iterator[StoredFile]:
        """Files below, at any depth, in no order; or the file itself when the location is one.

        `descend` is asked once for the path of each folder below that is come to, `keep` for that of each file in
        those that are wanted. `by_folder`, an object store is listed folder by folder, and only those that are wanted;
        else as a whole. Nothing when nothing is there.
        """
        if self.is_local:
            return self._list_local(keep, descend)
        return self._list_remote(keep, descend, by_folder)

    def names(self, folder: str, after: str = "", before: str = "") -> Iterator[str]:
        """Names of the files directly in a folder that sort behind `after` and before `before`, where these are given.

        Nothing when there is no such folder. In an object store other names are not even listed, nor is what is in
        large subfolders.
        """
        if self.is_local:
            yield from (entry.name for entry in self._entries(folder, after, before))
        else:
            yield from (name for name, _ in self._objects(folder, after, before))

    def files(self, folder: str, after: str = "", before: str = "") -> Iterator[StoredFile]:
        """The files that have those names."""
        if self.is_local:
            for entry in self._entries(folder, after, before):
                with suppress(FileNotFoundError):  # Removed since the folder was opened.
                    yield local_stored_file(f"{folder}/{entry.name}", entry.stat())
        else:
            yield from (
                remote_stored_file(f"{folder}/{name}", info) for name, info in self._objects(folder, after, before)
            )

    def identities(self, folder: str, after: str = "", before: str = "") -> Iterator[tuple[str, Sequence[str]]]:
        """Those names, and what `identity` says of each file, from the listing itself."""
        if self.is_local:
            stored = self.files(folder, after, before)
            yield from ((one.path.rpartition("/")[2], [str(one.size), one.version]) for one in stored)
        else:
            yield from ((name, _identity(info)) for name, info in self._objects(folder, after, before))

    def has_any(self, folder: str) -> bool:
        """Whether there is anything below a folder."""
        if self.is_local:
            return os.path.isdir(self._on_disk(folder))
        store, prefix = self._store()
        with object_errors(self.full_path(folder)):
            return any(len(chunk) for chunk in store.list(object_key(prefix, folder), chunk_size=1))

    def stat(self, path: str) -> StoredFile:
        """Size and version of a file now."""
        if self.is_local:
            return local_stored_file(path, os.stat(self._on_disk(path)))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            return remote_stored_file(path, store.head(object_key(prefix, path)))

    def identity(self, path: str) -> Sequence[str]:
        """What tells a file now from any other that was or will be at its path: size, version, when it was written."""
        if self.is_local:
            stored = self.stat(path)
            return [str(stored.size), stored.version]
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            return _identity(store.head(object_key(prefix, path)))

    def modified(self, path: str) -> datetime:
        """When a file was written, in UTC, as the file system or the object store says."""
        if self.is_local:
            return datetime.fromtimestamp(os.stat(self._on_disk(path)).st_mtime, UTC)
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            written: datetime = store.head(object_key(prefix, path))["last_modified"]
            return written

    def read(self, path: str) -> bytes:
        """The whole of a small file. Raises OSError for one that is too large to be metadata."""
        if self.is_local:
            return read_local(self._on_disk(path))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            found = store.get(object_key(prefix, path))
            check_size(self.full_path(path), found.meta["size"])
            data = bytes(found.bytes())
        record_read(self.full_path(path), len(data))
        return data

    def open(self, path: str) -> pa.NativeFile:
        """The file for random access, as it is now."""
        return open_local(self._on_disk(path)) if self.is_local else self._open_object(self.stat(path))

    def open_stored(self, stored: StoredFile) -> pa.NativeFile:
        """The file for random access, of the content that was listed, else OverwrittenError.

        Call `check` when done: only then it is certain that all was of that content.
        """
        self.check(stored)
        return self.open_listed(stored)

    def open_listed(self, stored: StoredFile) -> pa.NativeFile:
        """The same for who reads little and calls `check` anyway, which tells it as well."""
        return open_local(self._on_disk(stored.path)) if self.is_local else self._open_object(stored)

    def check(self, stored: StoredFile) -> None:
        """Raise OverwrittenError when the file is no longer the one that was listed."""
        if not self.is_local and is_e_tag(stored.version):
            return  # Every read asks for the ETag.
        if self.stat(stored.path) != stored:
            raise OverwrittenError(f"{self.full_path(stored.path)} has been overwritten since it was listed")

    def _entries(self, folder: str, after: str, before: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._on_disk(folder)) as entries:
                for entry in entries:
                    if after < entry.name and not (before and entry.name >= before) and not entry.is_dir():
                        yield entry
        except (FileNotFoundError, NotADirectoryError):
            return

    def _objects(self, folder: str, after: str, before: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        store, prefix = self._store()
        with object_errors(self.full_path(folder)):
            yield from objects_in(store, object_key(prefix, folder), after, before)

    def _open_object(self, stored: StoredFile) -> pa.NativeFile:
        store, prefix = self._store()
        file = ObjectFile(
            store, object_key(prefix, stored.path), stored.size, stored.version, self.full_path(stored.path)
        )
        return pa.PythonFile(file, mode="r")

    def _store(self) -> tuple[Any, str]:
        scheme, _, rest = self.uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        root = f"{scheme}://{bucket}"
        with object_errors(root):
            return _open_store(root, self.options), prefix

    def _on_disk(self, path: str) -> str:
        """The path of a file of a folder on disk. Raises OSError for one that leads out of the folder."""
        full_path = self.full_path(checked_path(path))
        if self.confined and path:
            root, real = os.path.realpath(self.uri), os.path.realpath(full_path)
            if os.path.commonpath([root, real]) != root:
                raise OSError(
                    f"{full_path} is a link that leads out of the table, which `restrict_to_table_root: true` refuses"
                )
        return full_path

    def _list_local(self, keep: Callable[[str], bool], descend: Callable[[str], bool]) -> Iterator[StoredFile]:
        if os.path.isdir(self.uri):
            yield from files_on_disk(self.uri, self._on_disk, keep, descend)
        elif os.path.exists(self.uri):
            yield self.stat("")

    def _list_remote(
        self, keep: Callable[[str], bool], descend: Callable[[str], bool], by_folder: bool
    ) -> Iterator[StoredFile]:
        store, prefix = self._store()
        listing = objects_by_folder if by_folder else objects_at_once
        found = yield from listing(store, prefix, self.uri, keep, descend)
        if found or not prefix:
            return
        try:
            yield self.stat("")  # The location itself may be an object.
        except FileNotFoundError:
            return


def _identity(info: Mapping[str, Any]) -> Sequence[str]:
    return [str(info["size"]), str(info["e_tag"]), info["last_modified"].isoformat()]


@lru_cache(maxsize=64)
def _open_store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    return open_object_store(root, options)
