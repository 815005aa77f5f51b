"""Recursive listings of local folders and object stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from metastore_assets.storage.object_store import object_errors


class StoredFile(NamedTuple):
    """One file below a location, as a listing shows it."""

    # A named tuple takes little memory and pickles fast. Listings are long, and processes exchange them.

    path: str
    """Path below the location, with `/` between segments. Empty if the location is the file itself."""
    size: int
    version: str
    """Changes whenever the content does: the ETag in an object store, the modification time in nanoseconds on disk."""


def object_key(prefix: str, path: str) -> str:
    """Return an object's key: the prefix, and the path below it.

    Raises OSError if the path has a segment `..`.
    """
    return f"{prefix}/{checked_path(path)}".strip("/")


def checked_path(path: str) -> str:
    """Return the path unchanged.

    Raises OSError if it has a segment `..`.
    """
    if ".." in path.split("/"):
        raise OSError(f"the path {path!r} leads out of its folder")
    return path


def local_stored_file(path: str, stat: os.stat_result) -> StoredFile:
    """Create the StoredFile of a file on local disk."""
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns))


def local_modified(stat: os.stat_result) -> datetime:
    """Return the modification time of a file on local disk, in UTC; at most the end of the year 9999."""
    return datetime.fromtimestamp(min(stat.st_mtime, datetime.max.replace(tzinfo=UTC).timestamp() - 1), UTC)


def remote_stored_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    """Create the StoredFile of an object from the metadata that obstore reports."""
    return StoredFile(path, info["size"], info["e_tag"] or info["last_modified"].isoformat())


_PARALLEL_LISTINGS = 16
"""Number of folders of an object store that are listed in parallel."""


class PathFilters(NamedTuple):
    """The predicates that restrict a listing.

    Their argument is a path below the listed location.
    """

    select: Callable[[str], bool]
    """Returns whether a file is listed."""
    descend: Callable[[str], bool]
    """Returns whether the files below a folder are listed. Called once per folder."""


def files_on_disk(
    root: str,
    check_link: Callable[[str], object],
    filters: PathFilters,
    folder: str = "",
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[StoredFile]:
    """Yield the selected files below a folder, at any depth.

    Args:
        root: Path of the listed location.
        check_link: Raises OSError for a symbolic link that must not be followed, given its path below `root`.
        filters: Select the files, and the folders to descend into.
        folder: Path below `root` of the folder to list; empty for `root` itself.
        above: Device and inode numbers of the folders above, to detect cycles of links.

    Raises:
        OSError: The folder `root` does not exist. Or a link leads nowhere or to a folder that contains it, or
            `check_link` refuses it.
    """
    full_path = f"{root.rstrip('/')}/{folder}" if folder else root
    try:
        stat = os.stat(full_path)
        scanned_folder = os.scandir(full_path)
    except FileNotFoundError:
        if not folder:
            raise
        return  # The folder was deleted meanwhile, and is not part of the listing.
    identity = (stat.st_dev, stat.st_ino)
    with scanned_folder as entries:
        if identity in above:
            raise OSError(f"{full_path} is a symbolic link to a folder that contains it")
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                is_folder = entry.is_dir()
                if not (filters.descend if is_folder else filters.select)(path):
                    continue
                if entry.is_symlink():
                    check_link(path)
                stored_file = None if is_folder else local_stored_file(path, entry.stat())
            except FileNotFoundError:
                # A file that was deleted meanwhile is not part of the listing. A dangling link is an error.
                if entry.is_symlink():
                    raise
                continue
            if stored_file is None:
                yield from files_on_disk(root, check_link, filters, path, above | {identity})
            else:
                yield stored_file


def objects_at_once(store: Any, prefix: str, uri: str, filters: PathFilters) -> Generator[StoredFile, None, bool]:
    """Yield the selected files below a key prefix, by listing all objects below it.

    Args:
        store: The object store, opened by obstore.
        prefix: The key prefix, without a slash at the end; empty for the whole bucket.
        uri: The URI of the prefix, for messages.
        filters: Select the files, and the folders whose files are listed.

    Returns:
        Whether any object was listed, selected or not. The caller gets this as the value of `yield from`.
    """
    has_objects = False
    is_selected = {"": True}

    def is_in_selected_folder(folder: str) -> bool:
        if folder not in is_selected:
            is_selected[folder] = is_in_selected_folder(folder.rpartition("/")[0]) and filters.descend(folder)
        return is_selected[folder]

    with object_errors(uri):
        for chunk in store.list(prefix or None):
            for info in chunk:
                has_objects = True
                path = info["path"][len(prefix) :].lstrip("/")
                # Web consoles create a marker for a folder: an object with the folder's name.
                if path and is_in_selected_folder(path.rpartition("/")[0]) and filters.select(path):
                    yield remote_stored_file(path, info)
    return has_objects


def objects_by_folder(store: Any, prefix: str, uri: str, filters: PathFilters) -> Generator[StoredFile, None, bool]:
    """Yield the selected files below a key prefix, by listing each selected folder separately.

    The arguments are those of `objects_at_once`.

    Returns:
        Whether any object or folder was listed, selected or not. The caller gets this as the value of `yield from`.
    """
    has_objects = False

    def list_folder(folder: str) -> Any:
        with object_errors(f"{uri.rstrip('/')}/{folder}" if folder else uri):
            return store.list_with_delimiter(object_key(prefix, folder) or None)

    folders = [""]
    with ThreadPoolExecutor(_PARALLEL_LISTINGS) as pool:
        while folders:
            subfolders: list[str] = []
            for listing in pool.map(list_folder, folders):
                paths = [path[len(prefix) :].strip("/") for path in listing["common_prefixes"]]
                has_objects = has_objects or bool(paths or listing["objects"])
                subfolders += filter(filters.descend, paths)
                for info in listing["objects"]:
                    path = info["path"][len(prefix) :].lstrip("/")
                    if path and path not in folders and filters.select(path):
                        yield remote_stored_file(path, info)
            folders = subfolders
    return has_objects
