"""A file as a listing shows it, and the paths of such files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from metastore_assets.storage.object_store import object_errors


class StoredFile(NamedTuple):
    """One file below a location, as a listing shows it. A named tuple, for there are many, and they travel."""

    path: str
    """Relative to the location, with `/` between segments. Empty when the location is the file itself."""
    size: int
    version: str
    """Changes whenever the content does: ETag in an object store, modification time in nanoseconds on disk."""


def object_key(prefix: str, path: str) -> str:
    """The key of a file below a prefix. Raises OSError for a path that leads out of it."""
    return f"{prefix}/{checked_path(path)}".strip("/")


def checked_path(path: str) -> str:
    """A path that stays below. Raises OSError for another: only `reach` decides how far a table may."""
    if ".." in path.split("/"):
        raise OSError(f"the path {path!r} leads out of its folder")
    return path


def local_stored_file(path: str, stat: os.stat_result) -> StoredFile:
    """A file on local disk."""
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns))


def remote_stored_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    """An object, of what the store says of it."""
    return StoredFile(path, info["size"], info["e_tag"] or info["last_modified"].isoformat())


_LISTINGS = 16
"""Folders of an object store listed at a time."""

Wanted = Callable[[str], bool]


def files_on_disk(
    root: str,
    on_disk: Callable[[str], str],
    keep: Wanted,
    descend: Wanted,
    folder: str = "",
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[StoredFile]:
    """The files in a folder below `root`, at any depth. `on_disk` refuses links that lead where nothing may be read.

    Raises OSError for links in a circle and for those that lead nowhere.
    """
    full_path = f"{root.rstrip('/')}/{folder}" if folder else root
    stat = os.stat(full_path)
    identity = (stat.st_dev, stat.st_ino)
    if identity in above:
        raise OSError(f"{full_path} is a symbolic link to a folder that contains it")
    with os.scandir(full_path) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                is_folder = entry.is_dir()
                if not (descend if is_folder else keep)(path):
                    continue
                if entry.is_symlink():
                    on_disk(path)
                if is_folder:
                    yield from files_on_disk(root, on_disk, keep, descend, path, above | {identity})
                else:
                    yield local_stored_file(path, entry.stat())
            except FileNotFoundError:
                # Removed since the folder was opened: then it is no part of the listing. A dangling link is.
                if entry.is_symlink():
                    raise


def objects_at_once(
    store: Any, prefix: str, uri: str, keep: Wanted, descend: Wanted
) -> Generator[StoredFile, None, bool]:
    """The objects below a prefix, by listing it as a whole; returns whether there is any, wanted or not."""
    found = False
    wanted = {"": True}

    def is_wanted(folder: str) -> bool:
        if folder not in wanted:
            wanted[folder] = is_wanted(folder.rpartition("/")[0]) and descend(folder)
        return wanted[folder]

    with object_errors(uri):
        for chunk in store.list(prefix or None):
            for info in chunk:
                found = True
                path = info["path"][len(prefix) :].lstrip("/")
                # An object with the folder's own name is the marker that some console made for it.
                if path and is_wanted(path.rpartition("/")[0]) and keep(path):
                    yield remote_stored_file(path, info)
    return found


def objects_by_folder(
    store: Any, prefix: str, uri: str, keep: Wanted, descend: Wanted
) -> Generator[StoredFile, None, bool]:
    """The same, by listing folder by folder, and only those that are wanted."""
    found = False

    def level(folder: str) -> Any:
        with object_errors(f"{uri.rstrip('/')}/{folder}" if folder else uri):
            return store.list_with_delimiter(object_key(prefix, folder) or None)

    folders = [""]
    with ThreadPoolExecutor(_LISTINGS) as pool:
        while folders:
            below: list[str] = []
            for listed in pool.map(level, folders):
                paths = [path[len(prefix) :].strip("/") for path in listed["common_prefixes"]]
                found = found or bool(paths or listed["objects"])
                below += filter(descend, paths)
                for info in listed["objects"]:
                    path = info["path"][len(prefix) :].lstrip("/")
                    if path and path not in folders and keep(path):
                        yield remote_stored_file(path, info)
            folders = below
    return found
