"""Locations of the files of an Iceberg table.

Recorded paths are usually absolute. Paths of a moved table are resolved in the table's current folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.metadata_files import METADATA
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, StorageAddress, path_without_origin

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")


def plain_path(recorded_path: str) -> str:
    """Return a path without scheme, authority and leading `./`."""
    return path_without_origin(recorded_path).removeprefix("./")


def is_same_file(recorded_path: str, other_path: str) -> bool:
    """Return True if two recorded paths name the same file.

    Schemes are ignored. Authorities are compared only if both paths have one.
    """
    if recorded_path == other_path:
        return True
    if plain_path(recorded_path) != plain_path(other_path):
        return False
    # Some writers record paths in delete files with another scheme and authority than in manifests.
    ours, theirs = _AUTHORITY.match(recorded_path), _AUTHORITY.match(other_path)
    return not (ours and theirs) or ours[1] == theirs[1]


@dataclass(frozen=True)
class TableFiles:
    """A resolver of the recorded paths of a table's files, also after the table was moved."""

    location_policy: LocationPolicy
    folder: Location
    """The table's current folder, which contains `metadata/`."""
    previous_roots: tuple[str, ...] = ()
    """Recorded locations of the table before it was moved to `folder`."""

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.location_policy.name

    def locate(self, recorded_path: str) -> tuple[Location, str]:
        """Return (location, path below the location) of the file with a recorded path.

        A configured path mapping takes precedence over a detected move of the table.

        Raises TableFormatError if the table may not refer to the file, or if a relative path cannot be resolved.
        """
        if self.location_policy.path_mapping.apply(recorded_path) == recorded_path:
            for root in (*self.previous_roots, self.folder.uri):
                if (path := _below(recorded_path, root)) is not None:
                    return self.location_policy.resolve_relative(self.folder, path)
        return self.location_policy.resolve(recorded_path)


def table_files(
    location_policy: LocationPolicy, folder: Location, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """Detect whether a table was moved, and return a resolver of its recorded paths.

    The table counts as moved if its metadata record another folder, but the snapshot's manifest list exists in the
    current folder. Then nothing is read from the recorded folder.

    Args:
        location_policy: decides which files the table may refer to.
        folder: the table's current folder.
        metadata: the table's metadata.
        snapshot: the snapshot to read; None for a table without snapshots.
    """
    files = TableFiles(location_policy, folder)
    first = None if snapshot is None else snapshot.manifest_list or next(iter(snapshot.manifests), None)
    if first is None or location_policy.path_mapping.apply(first) != first:
        return files
    roots = {metadata.location.rstrip("/")}
    if (cut := first.rfind(f"/{METADATA}/")) > 0:
        # The location when the snapshot was written. The recorded location may be newer, or spelled differently.
        roots.add(first[:cut])
    other_roots = [root for root in roots if StorageAddress.of(root) != StorageAddress.of(folder.uri)]
    matching_paths = [path for root in other_roots if (path := _below(first, root)) is not None]
    if not matching_paths or not _exists(*location_policy.resolve_relative(folder, matching_paths[0])):
        return files
    # The files in the recorded folder may be those of the original table, which may change.
    return TableFiles(location_policy, folder, tuple(sorted(other_roots, key=len, reverse=True)))


def _below(recorded_path: str, root: str) -> str | None:
    """Return the path of a file relative to `root`; None if the file is not below it.

    Schemes and authorities are compared as in `is_same_file`.
    """
    ours, theirs = _AUTHORITY.match(recorded_path), _AUTHORITY.match(f"{root}/")
    if ours and theirs and ours[1] != theirs[1]:
        return None
    path, start = plain_path(recorded_path), f"{plain_path(root).rstrip('/')}/"
    return path[len(start) :] if path.startswith(start) else None


def _exists(folder: Location, path: str) -> bool:
    try:
        folder.stat(path)
    except FileNotFoundError:
        return False
    return True
