"""Detection of Iceberg tables, and the search for a table's current metadata file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.metadata_json import as_integer, parse_json_file
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, metadata_errors, unreadable_error
from metastore_assets.storage.listing import StoredFile
from metastore_assets.storage.location import Location

METADATA = "metadata"
"""Name of the folder with the metadata files of a table."""
_SUFFIX = ".metadata.json"
"""Part of the names of all metadata files. Searching for it takes a tenth of the time of `_NAME`."""
_NAME = re.compile(r"(?P<stem>.+?)(\.gz)?\.metadata\.json(\.gz)?")
_MARKS = frozenset({"format-version", "table-uuid", "schema", "schemas"})
"""A metadata file has at least one of these keys besides `location`."""
_NUMBER = re.compile(r"v(\d+)|(\d+)(?:-.*)?")
_TEMPORARY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Matches the names of files that commits without a catalog write and then rename. Interrupted commits leave them."""
_HINTS = ("version-hint.text", "version-hint.txt")
_VERSIONED = ("v", "w")
"""Bounds of the names `v1…`, `v2…` that metadata files have without a catalog."""
_PROBED = 10_000
"""Maximum number of file names that are searched for metadata files."""
_TRIED = 3
"""Maximum number of files that are read to check whether they are metadata files."""


def is_metadata_file(path: str) -> bool:
    """Return True if a path or URI has the name of a metadata file."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def is_iceberg_table(location: Location) -> bool:
    """Return True if a location is a metadata file, or the folder of a table with metadata files.

    A location that has the name of a metadata file is not read. In a folder, a file whose name has a version, such as
    `v3.metadata.json`, is not read either. Metadata files whose names have no version are read and checked.
    """
    if is_metadata_file(location.uri):
        return True
    names = filter(is_metadata_file, location.names(METADATA))
    return any(_version(name) is not None or _is_metadata(location, f"{METADATA}/{name}") for name in names)


def has_iceberg_metadata(location: Location) -> bool:
    """Return True if a folder has Iceberg metadata.

    Unlike `is_iceberg_table`, this checks also the content of files with names such as `v3.metadata.json`. It reads at
    most three files.
    """
    # Catalogs number metadata files, so that their names sort early.
    names = list(islice(location.names(METADATA), _PROBED))
    if len(names) == _PROBED:
        names += islice(location.names(METADATA, *_VERSIONED), _TRIED)
    candidates = sorted(islice(filter(is_metadata_file, names), _TRIED), key=lambda name: _version(name) is None)
    return any(_is_metadata(location, f"{METADATA}/{name}") for name in candidates)


def newest_metadata(folder: Location) -> StoredFile:
    """Return the current metadata file in a table's folder.

    The candidates are the files with the highest version, and the files without a version in their name. Among several
    candidates, the file that the version hint names is the current one. If it names none of them, the file with the
    latest update time is. Files of unfinished commits are considered only if there are no others.

    Raises TableNotFoundError if there is no metadata file.
    """
    # Most files in the folder are manifests.
    listed_files = folder.files(METADATA, select=lambda name: _SUFFIX in name)
    files = {file.path.rpartition("/")[2]: file for file in listed_files}
    names = [name for name in files if _NAME.fullmatch(name)]
    names = [name for name in names if not _TEMPORARY.fullmatch(_stem(name))] or names
    if not names:
        raise TableNotFoundError(f"{folder.uri} holds no Iceberg table: there is no {METADATA}/*.metadata.json")
    numbers = {name: _version(name) for name in names}
    highest = max((number for number in numbers.values() if number is not None), default=None)
    candidates = sorted(name for name, number in numbers.items() if number in (None, highest))
    if len(candidates) > 1:
        # Two writers without a catalog wrote the same version, or names lack a version.
        hint = _read_version_hint(folder)
        hinted_names = [name for name in candidates if hint in (_stem(name), name)]
        candidates = hinted_names or sorted(candidates, key=lambda name: _update_order(folder, name))
    return files[candidates[-1]]


def read_metadata_json(location: Location, path: str) -> Mapping[str, Any]:
    """Return a metadata file as parsed JSON.

    Raises TableNotFoundError if it does not exist, or TableFormatError if it is not a metadata file.
    """
    full_path = location.full_path(path)
    raw = _read_json(location, path)
    if not isinstance(raw, dict) or not isinstance(raw.get("location"), str):
        raise TableFormatError(f"{full_path} is no metadata file of an Iceberg table")
    return raw


def _stem(name: str) -> str:
    match = _NAME.fullmatch(name)
    return match["stem"] if match else name


def _version(name: str) -> int | None:
    stem = _stem(name)
    match = None if _TEMPORARY.fullmatch(stem) else _NUMBER.fullmatch(stem)
    return int(match[1] or match[2]) if match else None


def _read_version_hint(folder: Location) -> str | None:
    """Return the name or stem of the metadata file that the version hint names; None without a hint.

    A hint that is a number, such as 3, means the stem `v3`. Other hints are returned without their folders.
    """
    for name in _HINTS:
        try:
            text = folder.read(f"{METADATA}/{name}").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            continue
        if text:
            return f"v{text}" if text.isdecimal() else text.rpartition("/")[2]
    return None


def _update_order(folder: Location, name: str) -> tuple[int, int, str]:
    """Return a sort key that orders metadata files from the oldest update to the newest."""
    path = f"{METADATA}/{name}"
    raw = read_metadata_json(folder, path)
    with metadata_errors(folder.full_path(path)):
        updated_ms, sequence = (
            as_integer(raw.get(key) or 0, key) for key in ("last-updated-ms", "last-sequence-number")
        )
    return updated_ms, sequence, name


def _is_metadata(location: Location, path: str) -> bool:
    """Return True if the content of a file is that of a metadata file.

    The result is also True for a corrupt file whose name has a version. It is False for a missing file.
    """
    try:
        raw = _read_json(location, path)
    except TableFormatError:
        # For a corrupt file the name decides.
        return _version(path.rpartition("/")[2]) is not None
    except TableNotFoundError:
        return False
    return isinstance(raw, dict) and "location" in raw and not _MARKS.isdisjoint(raw)


def _read_json(location: Location, path: str) -> Any:
    full_path = location.full_path(path)
    try:
        return parse_json_file(location.read(path))
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{full_path} does not exist") from error
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{full_path} cannot be read as a metadata file", error) from error
