"""Locate the files of an Iceberg table. Recorded locations are absolute, and tables are moved and copied."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.metadata_files import METADATA
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, StorageAddress, path_without_origin

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")


def plain_path(recorded: str) -> str:
    """Normalize a path: without scheme, authority and `./`, as Hadoop's writers spell it in several ways."""
    return path_without_origin(recorded).removeprefix("./")


@dataclass(frozen=True)
class TableFiles:
    """Resolves recorded files of a table that may have moved."""

    location_policy: LocationPolicy
    folder: Location
    """The table's current folder, which contains `metadata/`."""
    previous_roots: tuple[str, ...] = ()
    """Recorded locations whose files are now in `folder`."""

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.location_policy.name

    def locate(self, recorded: str) -> tuple[Location, str]:
        """Return the location of a recorded file, and its path below that location.

        A configured path mapping wins over a detected move. Raises TableFormatError for a file outside of what the
        table may read, and for a relative path that cannot be resolved.
        """
        if self.location_policy.path_mapping.apply(recorded) == recorded:
            for root in (*self.previous_roots, self.folder.uri):
                if (path := _below(recorded, root)) is not None:
                    return self.location_policy.resolve_relative(self.folder, path)
        return self.location_policy.resolve(recorded)


def table_files(
    location_policy: LocationPolicy, folder: Location, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """Return the files of a table whose folder may differ from the recorded location.

    A table that was moved or copied as a whole is read in its current folder: if the folder holds the snapshot's
    manifest list at its recorded relative path, all recorded files are expected there. The original is not read even if
    it still exists, because it may change.
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
    """Return the path of a file below a root, or None. Schemes and missing authorities are ignored."""
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
