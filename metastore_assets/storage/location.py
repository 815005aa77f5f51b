"""The location of a table, with the same operations for local folders and object store prefixes.

Operations raise OSError; for a missing file its subclass FileNotFoundError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from stat import S_ISBLK, S_ISCHR, S_ISFIFO, S_ISSOCK
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.messages import remember_password
from metastore_assets.storage.io_counters import counting_input, record_read
from metastore_assets.storage.limits import METADATA_BYTES
from metastore_assets.storage.listing import (
    PathFilters,
    checked_path,
    files_on_disk,
    local_modified,
    local_stored_file,
    object_key,
    objects_at_once,
    objects_by_folder,
    remote_stored_file,
)
from metastore_assets.storage.listing import StoredFile as StoredFile
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
    """A folder on disk, a prefix in an object store, or a single file in either.

    A location is picklable, because it contains no connections.
    """

    uri: str
    """An absolute local path, or `scheme://bucket/prefix`; without a trailing slash."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Storage options, ordered by key. `repr` omits them, because some are secret."""
    confined: bool = False
    """Whether symbolic links on local disk that lead out of the folder are refused."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str] | None = None, *, confined: bool = False) -> Location:
        """Return the location of a path, a `file:` URI, or the URI of an object store.

        Args:
            uri: The path or URI. A relative path is relative to the working folder.
            options: Storage options of the object store.
            confined: Whether symbolic links on local disk that lead out of the folder are refused.
        """
        if uri[:5].lower() == "file:":
            uri = unquote(_FILE.sub("", uri))
        if not _SCHEME.match(uri):
            uri = os.path.abspath(uri)
        remember_password(uri)
        return cls(uri.rstrip("/") or "/", tuple(sorted((options or {}).items())), confined)

    def below(self, folder: str) -> Location:
        """Return the location of a subfolder, given its path below this location."""
        return replace(self, uri=self.full_path(folder))

    @property
    def parent(self) -> Location | None:
        """The parent folder; None for the root of a disk or a bucket.

        The parent folder is not `confined`, even if this location is.
        """
        head, _, name = self.uri.rpartition("/")
        if not name or head.endswith(":/"):
            return None
        return replace(self, uri=head or "/", confined=False)

    @property
    def folder(self) -> Location:
        """The folder that contains the file at this location.

        Its `confined` is that of this location.
        """
        return replace(self, uri=self.uri.rpartition("/")[0] or "/")

    @property
    def resolved(self) -> Location:
        """The location without symbolic links in its path; in an object store, the location itself."""
        return replace(self, uri=os.path.realpath(self.uri)) if self.is_local else self

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.uri)

    def full_path(self, path: str) -> str:
        """Return the absolute path or URI of a file below the location.

        An empty path means the location itself.
        """
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def list(
        self,
        select: Callable[[str], bool] = lambda path: True,
        descend: Callable[[str], bool] = lambda path: True,
        *,
        by_folder: bool = False,
    ) -> Iterator[StoredFile]:
        """Yield the files below the location, at any depth, in no order.

        If the location is a file, yield that file.

        Nothing is yielded if the location does not exist. A missing bucket is an error.

        Args:
            select: Selects files by their path below the location.
            descend: Selects folders by their path below the location; called once per folder.
            by_folder: Whether to list an object store folder by folder, instead of all objects at once.
        """
        filters = PathFilters(select, descend)
        return self._list_local(filters) if self.is_local else self._list_remote(filters, by_folder)

    def names(self, folder: str, after: str = "", before: str = "") -> Iterator[str]:
        """Yield the names of the files directly in a folder, between two bounds.

        Yields nothing if the folder does not exist.

        Args:
            folder: Path of the folder below the location; empty for the location itself.
            after: Exclusive lower bound of the names.
            before: Exclusive upper bound of the names; empty for none.
        """
        if self.is_local:
            yield from (entry.name for entry in self._entries(folder, after, before))
        else:
            yield from (name for name, _ in self._objects(folder, after, before))

    def files(
        self, folder: str, after: str = "", before: str = "", *, select: Callable[[str], object] = lambda name: True
    ) -> Iterator[StoredFile]:
        """Yield the files directly in a folder; nothing if the folder does not exist.

        Args:
            folder: Path of the folder below the location; empty for the location itself.
            after: Exclusive lower bound of the names.
            before: Exclusive upper bound of the names; empty for none.
            select: Selects files by name. On local disk, only the size and the version of selected files are read.

        Raises:
            FileNotFoundError: A symbolic link has a target that does not exist.
        """
        prefix = f"{folder}/" if folder else ""
        if self.is_local:
            for entry in self._entries(folder, after, before, select):
                try:
                    stored_file = local_stored_file(f"{prefix}{entry.name}", entry.stat())
                except FileNotFoundError:
                    # A file that was deleted since the folder was read is not part of the listing.
                    if entry.is_symlink():
                        raise
                    continue
                yield stored_file
        else:
            yield from (
                remote_stored_file(f"{prefix}{name}", info)
                for name, info in self._objects(folder, after, before)
                if select(name)
            )

    def identities(self, folder: str, after: str = "", before: str = "") -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the name and the identity of each file directly in a folder, without a request for each file.

        The identity is the result of the method `identity`: texts of which at least one changes if the file is
        replaced.

        Args:
            folder: Path of the folder below the location; empty for the location itself.
            after: Exclusive lower bound of the names.
            before: Exclusive upper bound of the names; empty for none.
        """
        if self.is_local:
            files = self.files(folder, after, before)
            yield from ((file.path.rpartition("/")[2], [str(file.size), file.version]) for file in files)
        else:
            yield from ((name, _identity(info)) for name, info in self._objects(folder, after, before))

    def has_any(self, folder: str) -> bool:
        """Return True if a folder on disk exists, or if an object store has an object below the folder."""
        if self.is_local:
            return os.path.isdir(self._on_disk(folder))
        store, prefix = self._store()
        with object_errors(self.full_path(folder)):
            return any(len(chunk) for chunk in store.list(object_key(prefix, folder), chunk_size=1))

    def stat(self, path: str) -> StoredFile:
        """Return the current size and version of the file at a path.

        In an object store, the version is the ETag, or the modification time if there is no ETag. On disk, it is the
        modification time.
        """
        if self.is_local:
            return local_stored_file(path, os.stat(self._on_disk(path)))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            return remote_stored_file(path, store.head(object_key(prefix, path)))

    def identity(self, path: str) -> Sequence[str]:
        """Return texts that identify the content of a file.

        At least one of them changes if the file is replaced.

        They are the size and the modification time; in an object store, also the ETag.
        """
        if self.is_local:
            stored_file = self.stat(path)
            return [str(stored_file.size), stored_file.version]
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            return _identity(store.head(object_key(prefix, path)))

    def modified(self, path: str) -> datetime:
        """Return the modification time of a file, in UTC."""
        if self.is_local:
            return local_modified(os.stat(self._on_disk(path)))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            modified_at: datetime = store.head(object_key(prefix, path))["last_modified"]
            return modified_at

    def read(self, path: str) -> bytes:
        """Return the content of a metadata file.

        Raises OSError if the file is larger than `limits.METADATA_BYTES`.
        """
        if self.is_local:
            return _read_local(self._on_disk(path))
        store, prefix = self._store()
        with object_errors(self.full_path(path)):
            response = store.get(object_key(prefix, path))
            _check_size(self.full_path(path), response.meta["size"])
            data = bytes(response.bytes())
        record_read(self.full_path(path), len(data))
        return data

    def validate_file(self, path: str) -> str:
        """Return the full path of a file on local disk, for libraries that open files themselves.

        Raises OSError for a path with `..`, for a link that leads out of a confined location, and for a pipe or device.
        """
        full_path = self._on_disk(path)
        _check_regular_file(full_path)
        return full_path

    def open(self, path: str) -> pa.NativeFile:
        """Open the current content of a file for random access."""
        return _open_local(self._on_disk(path)) if self.is_local else self._open_object(self.stat(path))

    def open_stored(self, stored_file: StoredFile) -> pa.NativeFile:
        """Open a listed file for random access.

        Raises OverwrittenError if it has changed since the listing.

        Call `check` after reading, because the file may also change while it is read.
        """
        self.check(stored_file)
        return self.open_listed(stored_file)

    def open_listed(self, stored_file: StoredFile) -> pa.NativeFile:
        """Open a listed file for random access, even if it may have changed since the listing.

        If the file has changed, reading raises OverwrittenError for a file with an ETag. For other files, call `check`
        after reading: it raises the error.
        """
        return _open_local(self._on_disk(stored_file.path)) if self.is_local else self._open_object(stored_file)

    def check(self, stored_file: StoredFile) -> None:
        """Raise OverwrittenError if a file has changed since it was listed.

        A file with an ETag is not checked here, because each of its reads requires the ETag.
        """
        if not self.is_local and is_e_tag(stored_file.version):
            return  # Every read requires the ETag.
        if self.stat(stored_file.path) != stored_file:
            raise OverwrittenError(f"{self.full_path(stored_file.path)} has been overwritten since it was listed")

    def _entries(
        self, folder: str, after: str, before: str, select: Callable[[str], object] | None = None
    ) -> Iterator[os.DirEntry[str]]:
        """Yield the files in a local folder with names between the bounds, which are exclusive.

        Yields nothing if there is no folder. If `select` is given, only names for which it returns true are yielded.
        """
        try:
            with os.scandir(self._on_disk(folder)) as entries:
                for entry in entries:
                    name = entry.name
                    is_between = after < name and not (before and name >= before)
                    if is_between and (select is None or select(name)) and not entry.is_dir():
                        yield entry
        except (FileNotFoundError, NotADirectoryError):
            return

    def _objects(self, folder: str, after: str, before: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the name and obstore's metadata of each object directly in a folder.

        Args:
            folder: Path of the folder below the location; empty for the location itself.
            after: Exclusive lower bound of the names.
            before: Exclusive upper bound of the names; empty for none.
        """
        store, prefix = self._store()
        with object_errors(self.full_path(folder)):
            yield from objects_in(store, object_key(prefix, folder), after, before)

    def _open_object(self, stored_file: StoredFile) -> pa.NativeFile:
        store, prefix = self._store()
        file = ObjectFile(
            store,
            object_key(prefix, stored_file.path),
            stored_file.size,
            stored_file.version,
            self.full_path(stored_file.path),
        )
        return pa.PythonFile(file, mode="r")

    def _store(self) -> tuple[Any, str]:
        """Return the opened store of the bucket, and the location's prefix in the bucket."""
        scheme, _, rest = self.uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        root = f"{scheme}://{bucket}"
        with object_errors(root):
            return _open_store(root, self.options), prefix

    def _on_disk(self, path: str) -> str:
        """Return the full path of a file on disk.

        Raises OSError for a path with `..`, and in a confined location for a link that leads out of it.
        """
        full_path = self.full_path(checked_path(path))
        if self.confined and path:
            root, real = os.path.realpath(self.uri), os.path.realpath(full_path)
            if os.path.commonpath([root, real]) != root:
                raise OSError(
                    f"{full_path} is a link that leads out of the table, which `restrict_to_table_root: true` refuses"
                )
        return full_path

    def _list_local(self, filters: PathFilters) -> Iterator[StoredFile]:
        if os.path.isdir(self.uri):
            yield from files_on_disk(self.uri, self._on_disk, filters)
        elif os.path.exists(self.uri):
            yield self.stat("")

    def _list_remote(self, filters: PathFilters, by_folder: bool) -> Iterator[StoredFile]:
        """Yield the objects below the location that the filters select.

        If there are no objects below the location at all, yield the object at the location itself, if it exists.

        Args:
            filters: Select objects and folders.
            by_folder: As for `list`.
        """
        store, prefix = self._store()
        listing = objects_by_folder if by_folder else objects_at_once
        has_objects = yield from listing(store, prefix, self.uri, filters)
        if has_objects or not prefix:
            return
        try:
            yield self.stat("")  # The location may be an object itself.
        except FileNotFoundError:
            return


def _identity(info: Mapping[str, Any]) -> Sequence[str]:
    """Return size, ETag and modification time of an object, from the metadata that obstore reports."""
    return [str(info["size"]), str(info["e_tag"]), info["last_modified"].isoformat()]


@lru_cache(maxsize=64)
def _open_store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    return open_object_store(root, options)


def _read_local(path: str) -> bytes:
    """Return the content of a file.

    Raises OSError if the file is larger than `limits.METADATA_BYTES`, or is a pipe or device.
    """
    _check_regular_file(path)
    with open(path, "rb") as file:
        _check_size(path, os.fstat(file.fileno()).st_size)
        data = file.read()
    record_read(path, len(data))
    return data


def _open_local(path: str) -> pa.NativeFile:
    """Open a file for random access.

    Raises OSError for a pipe or device, whose reads may never end.
    """
    _check_regular_file(path)
    return counting_input(pa.OSFile(path, "rb"), path)


def _check_size(path: str, size: int) -> None:
    if size > METADATA_BYTES:
        raise OSError(f"{path} has {size:,} bytes; of a file of metadata at most {METADATA_BYTES:,} are read")


def _check_regular_file(path: str) -> None:
    if "\0" in path:
        # Arrow would open the path up to the NUL.
        raise OSError(f"{path!r} is not the path of a file: it contains a NUL character")
    mode = os.stat(path).st_mode
    if S_ISFIFO(mode) or S_ISCHR(mode) or S_ISBLK(mode) or S_ISSOCK(mode):
        raise OSError(f"{path} is a device or a pipe, no file")
