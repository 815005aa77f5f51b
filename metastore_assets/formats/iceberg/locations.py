"""Locations of the files of an Iceberg table.

The table's metadata record absolute paths. If the table was moved, they are resolved in its current folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.metadata_files import METADATA
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, StorageAddress, path_without_origin

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")


def plain_path(recorded: str) -> str:
    """Return a path without scheme, authority and a leading `./`, which writers spell in several ways."""
    return path_without_origin(recorded).removeprefix("./")


def is_same_file(recorded: str, other: str) -> bool:
    """Return True if two recorded paths name the same file.

    Schemes are ignored. The authority is ignored unless both paths have one, because some writers record paths in
    delete files with another scheme and authority than in manifests.
    """
    if recorded == other:
        return True
    if plain_path(recorded) != plain_path(other):
        return False
    ours, theirs = _AUTHORITY.match(recorded), _AUTHORITY.match(other)
    return not (ours and theirs) or ours[1] == theirs[1]


@dataclass(frozen=True)
class TableFiles:
    """A resolver of the recorded paths of a table's files, given the current location of the table."""

    location_policy: LocationPolicy
    folder: Location
    """The table's current folder, which contains `metadata/`."""
    previous_roots: tuple[str, ...] = ()
    """Earlier locations of the table, as recorded, whose files are now in `folder`."""

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.location_policy.name

    def locate(self, recorded: str) -> tuple[Location, str]:
        """Return where the file with a recorded path is now: a location, and the path of the file below it.

        A path mapping in the configuration takes precedence over a detected move of the table.

        Raises TableFormatError for a file outside the locations that the table may refer to, and for a relative path
        that cannot be resolved.
        """
        if self.location_policy.path_mapping.apply(recorded) == recorded:
            for root in (*self.previous_roots, self.folder.uri):
                if (path := _below(recorded, root)) is not None:
                    return self.location_policy.resolve_relative(self.folder, path)
        return self.location_policy.resolve(recorded)


def table_files(
    location_policy: LocationPolicy, folder: Location, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """Detect whether a table was moved, and return a resolver of the recorded paths of its files.

    The whole table counts as moved or copied if its metadata record another folder, and the snapshot's manifest list
    exists at the same relative path in the current folder. Then all files of the table are read in the current folder.
    The original table is not read, even if it still exists, because it may change.

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
    matching = [path for root in other_roots if (path := _below(first, root)) is not None]
    if not matching or not _exists(*location_policy.resolve_relative(folder, matching[0])):
        return files
    return TableFiles(location_policy, folder, tuple(sorted(other_roots, key=len, reverse=True)))


def _below(recorded: str, root: str) -> str | None:
    """Return the path of a file below a root folder; None if it is not below the root.

    Schemes are ignored. The authority is ignored unless both have one.
    """
    ours, theirs = _AUTHORITY.match(recorded), _AUTHORITY.match(f"{root}/")
    if ours and theirs and ours[1] != theirs[1]:
        return None
    path, start = plain_path(recorded), f"{plain_path(root).rstrip('/')}/"
    return path[len(start) :] if path.startswith(start) else None


def _exists(folder: Location, path: str) -> bool:
    try:
        folder.stat(path)
    except FileNotFoundError:
        return False
    return True
