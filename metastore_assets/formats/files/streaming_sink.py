"""The log of Spark's streaming file sink: the folder `_spark_metadata`, which lists committed files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.metadata_json import as_object, as_text, parse_json
from metastore_assets.formats.registration import FormatDetector
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy

LOG = "_spark_metadata"
_BATCH = re.compile(r"(\d+)(\.compact)?")
_VERSION = "v1"


def holds_sink(location: Location) -> bool:
    """Return whether a folder has a log of Spark's streaming with at least one batch."""
    return any(_BATCH.fullmatch(name) for name in location.names(LOG, "0", ":"))


SINK = FormatDetector(LOG, holds_sink, is_plain=True)


def committed_paths(location: Location, location_policy: LocationPolicy) -> list[str] | None:
    """Return the paths of the committed files, relative to the folder.

    Args:
        location: the folder.
        location_policy: resolves the paths in the log.

    Returns:
        The paths; None if the folder `_spark_metadata` has files, but none of them is a batch of the log.

    Raises:
        TableNotFoundError: no batch was committed yet, so `_spark_metadata` is missing or has only hidden files.
        TableFormatError: the log is corrupt or incomplete.
        OSError: the log cannot be read.
    """
    names = [name for name in location.names(LOG) if not name.startswith(".")]
    batches = {int(match[1]): name for name in sorted(names) if (match := _BATCH.fullmatch(name))}
    if not batches:
        if names:
            return None
        raise TableNotFoundError(f"{location.uri} holds no table: Spark's streaming has not committed a batch there")
    newest = max(batches)
    first = max((number for number, name in batches.items() if name.endswith(".compact")), default=0)
    paths: dict[str, None] = {}
    for number in range(first, newest + 1):
        path = f"{LOG}/{batches.get(number, number)}"
        if number not in batches:
            raise TableFormatError(
                f"{location.full_path(path)} is missing: which files that batch committed is not known; restore the "
                f"file, or remove the folder {LOG} to read all files that are there"
            )
        for recorded_path, is_added in _actions(location, path):
            if is_added:
                paths[_relative(location, location_policy, recorded_path)] = None
            else:
                paths.pop(_relative(location, location_policy, recorded_path), None)
    return list(paths)


def _actions(location: Location, path: str) -> Iterator[tuple[str, bool]]:
    """Yield the URI of each file that a batch of the log adds (True) or deletes (False).

    Raises TableFormatError if the batch is corrupt, or of an unknown version.
    """
    with metadata_errors(location.full_path(path)):
        version, *lines = location.read(path).decode().splitlines()
        if version.strip() != _VERSION:
            raise ValueError(f"its version is {version[:20]!r}; {_VERSION} is read")
        for line in filter(str.strip, lines):
            file = as_object(parse_json(line), "a file")
            action = as_text(file.get("action"), "action")
            if action not in ("add", "delete"):
                raise ValueError(f"the action {action[:20]!r} is not known")
            yield unquote(as_text(file.get("path"), "path")), action == "add"


def _relative(location: Location, location_policy: LocationPolicy, recorded_path: str) -> str:
    """Return the path of a file below the table's folder, given its absolute path in the log.

    If the log has a path outside of the folder, the table was moved after the log was written. The result is then the
    file name with the `column=value` folders directly above it.
    """
    try:
        target, path = location_policy.resolve(recorded_path)
    except TableFormatError:
        target, path = None, ""
    if target == location and path:
        return path
    *folders, name = recorded_path.split("/")
    first = len(folders)
    while first and "=" in folders[first - 1]:
        first -= 1
    return "/".join([*folders[first:], name])
