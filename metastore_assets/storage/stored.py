"""A file as a listing shows it, and the paths of such files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class StoredFile(NamedTuple):
    """One file below a location, as a listing shows it. A named tuple, for there are many, and they travel."""

    path: str
    """Relative to the location, with `/` between segments. Empty when the location is the file itself."""
    size: int
    version: str
    """Changes whenever the content does: ETag in an object store, modification time in nanoseconds on disk."""


def key_of(prefix: str, path: str) -> str:
    """The key of a file below a prefix. Raises OSError for a path that leads out of it."""
    return f"{prefix}/{checked(path)}".strip("/")


def checked(path: str) -> str:
    """A path that stays below. Raises OSError for another: only `reach` decides how far a table may."""
    if ".." in path.split("/"):
        raise OSError(f"the path {path!r} leads out of its folder")
    return path


def local_file(path: str, stat: os.stat_result) -> StoredFile:
    """A file on local disk."""
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns))


def remote_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    """An object, of what the store says of it."""
    return StoredFile(path, info["size"], info["e_tag"] or info["last_modified"].isoformat())
