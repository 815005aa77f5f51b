"""Where a table lies: a folder on local disk or a prefix in an object store, listed and opened the same way."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.errors import TableFormatError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CLIENT_FLAGS = {"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"}
_CLIENT_KEYS = _CLIENT_FLAGS | {
    "connect_timeout",
    "pool_idle_timeout",
    "proxy_url",
    "proxy_excludes",
    "read_timeout",
    "timeout",
    "user_agent",
}


@dataclass(frozen=True)
class StoredFile:
    """One file below a location, as a listing shows it."""

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
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str] | None = None) -> Location:
        """The location a configuration names: a path, a `file:` URI, or an object store's URI."""
        if uri.startswith("file:"):
            uri = unquote(re.sub(r"^file:(//[^/]*)?(?=/)", "", uri))
        if not _SCHEME.match(uri):
            uri = os.path.abspath(uri)
        trimmed = uri.rstrip("/") or "/"
        return cls(trimmed, tuple(sorted((options or {}).items())))

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.uri)

    def full_path(self, path: str) -> str:
        """Path or URI of a file, for messages and for people."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def list(self, skip: Callable[[str], bool] = lambda name: False) -> Iterator[StoredFile]:
        """All files below, at any depth, in no order; or the file itself when the location is one.

        `skip` is asked for the name of each folder and file below the location. Nothing when nothing is there.
        """
        return self._list_local(skip) if self.is_local else self._list_remote(skip)

    def names(self, folder: str) -> Iterator[str]:
        """Names of the files directly in a folder, in no order; nothing when there is no such folder."""
        if self.is_local:
            try:
                with os.scandir(self.full_path(folder)) as entries:
                    yield from (entry.name for entry in entries)
            except (FileNotFoundError, NotADirectoryError):
                return
        else:
            store, prefix = self._store()
            found = store.list_with_delimiter(f"{prefix}/{folder}".strip("/"))
            yield from (info["path"].rpartition("/")[2] for info in found["objects"])

    def has_any(self, folder: str) -> bool:
        """Whether there is anything below a folder."""
        if self.is_local:
            return os.path.isdir(self.full_path(folder))
        store, prefix = self._store()
        return any(chunk for chunk in store.list(f"{prefix}/{folder}".strip("/"), chunk_size=1))

    def stat(self, path: str) -> StoredFile:
        """Size and version of a file now. Raises FileNotFoundError."""
        if self.is_local:
            return _local_file(path, os.stat(self.full_path(path)))
        store, prefix = self._store()
        return _remote_file(path, store.head(_join(prefix, path)))

    def read(self, path: str) -> bytes:
        """The whole of a small file. Raises FileNotFoundError."""
        if self.is_local:
            with open(self.full_path(path), "rb") as file:
                return file.read()
        store, prefix = self._store()
        return bytes(store.get(_join(prefix, path)).bytes())

    def open(self, path: str, version: StoredFile | None = None) -> pa.NativeFile:
        """The file for random access. Raises FileNotFoundError.

        In an object store every later read is of the same content (If-Match on the ETag), and fails with
        `obstore.exceptions.PreconditionError` when the object has been overwritten.
        """
        if self.is_local:
            return pa.OSFile(self.full_path(path), "rb")
        from metastore_assets.formats.object_file import ObjectFile

        store, prefix = self._store()
        key = _join(prefix, path)
        stat = version or _remote_file(path, store.head(key))
        return pa.PythonFile(ObjectFile(store, key, stat.size, stat.version), mode="r")

    def _store(self) -> tuple[Any, str]:
        scheme, _, rest = self.uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        return _open_store(f"{scheme}://{bucket}", self.options), prefix

    def _list_local(self, skip: Callable[[str], bool]) -> Iterator[StoredFile]:
        if os.path.isfile(self.uri):
            yield self.stat("")
        elif os.path.isdir(self.uri):
            yield from _walk(self.uri, "", skip, frozenset())

    def _list_remote(self, skip: Callable[[str], bool]) -> Iterator[StoredFile]:
        store, prefix = self._store()
        found = False
        for chunk in store.list(prefix or None):
            for info in chunk:
                found = True
                # A key that ends with a slash is a folder that some console made.
                path = info["path"][len(prefix) :].strip("/") if prefix else info["path"]
                if not any(map(skip, path.split("/"))):
                    yield _remote_file(path, info)
        if not found and prefix:
            try:
                yield self.stat("")
            except FileNotFoundError:
                return


def _join(prefix: str, path: str) -> str:
    return f"{prefix}/{path}".strip("/")


def _local_file(path: str, stat: os.stat_result) -> StoredFile:
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns))


def _remote_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    return StoredFile(path, info["size"], info["e_tag"] or info["last_modified"].isoformat())


def _walk(
    folder: str, prefix: str, skip: Callable[[str], bool], above: frozenset[tuple[int, int]]
) -> Iterator[StoredFile]:
    stat = os.stat(folder)
    identity = (stat.st_dev, stat.st_ino)
    if identity in above:
        raise TableFormatError(f"{folder} is a symbolic link to a folder that contains it")
    with os.scandir(folder) as entries:
        for entry in entries:
            if skip(entry.name):
                continue
            path = prefix + entry.name
            if entry.is_dir():
                yield from _walk(entry.path, f"{path}/", skip, above | {identity})
            else:
                yield _local_file(path, entry.stat())


@lru_cache(maxsize=64)
def _open_store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    from obstore.store import from_url

    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for key, value in options:
        bare = re.sub(r"^(aws|google|azure)_", "", key.lower())
        if bare in _CLIENT_FLAGS:
            client[bare] = value.strip().lower() in ("true", "1", "yes", "on")
        elif bare in _CLIENT_KEYS:
            client[bare] = value
        elif bare not in _WRITER_KEYS:
            config[key] = value
    return from_url(root, config=cast(Any, config), client_options=cast(Any, client or None))


_WRITER_KEYS = {
    "s3_allow_unsafe_rename",
    "s3_locking_provider",
    "conditional_put",
    "copy_if_not_exists",
}
"""Settings that deltalake takes and that only matter to who writes the table."""
