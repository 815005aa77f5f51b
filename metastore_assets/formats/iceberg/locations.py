"""Where the files of an Iceberg table lie: recorded locations are absolute, and tables get moved and copied."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.metadata_files import METADATA
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, StorageAddress, path_without_origin

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")


def plain_path(recorded: str) -> str:
    """What names the same file whichever of Hadoop's ways a writer spells it: no scheme, no authority, no `./`."""
    return path_without_origin(recorded).removeprefix("./")


@dataclass(frozen=True)
class TableFiles:
    """Finds recorded files, of which some may have moved."""

    location_policy: LocationPolicy
    folder: Location
    """The table's folder as it was found: what holds `metadata/`."""
    moved_roots: tuple[str, ...] = ()
    """Recorded locations whose files lie in `folder` now."""

    @property
    def name(self) -> str:
        """Of the table, for messages."""
        return self.location_policy.name

    def locate(self, recorded: str) -> tuple[Location, str]:
        """The location of a recorded file, and its path below. A given relocation wins over what is found out.

        Raises TableFormatError for what the table does not reach, and for a relative path that nothing explains.
        """
        if self.location_policy.path_mapping(recorded) == recorded:
            for root in (*self.moved_roots, self.folder.uri):
                if (path := _below(recorded, root)) is not None:
                    return self.location_policy.resolve_relative(self.folder, path)
        return self.location_policy.resolve(recorded)


def table_files(
    location_policy: LocationPolicy, folder: Location, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """The files of a table whose metadata file was found in a folder that may be another than the recorded location.

    A table that was moved or copied as a whole is read where it was found: when the folder holds the snapshot's
    manifest list at its place below the recorded location, then all that was recorded there is in the folder. The
    original is not read even if it still exists: a copy stays what it is when the original changes.
    """
    files = TableFiles(location_policy, folder)
    first = None if snapshot is None else snapshot.manifest_list or next(iter(snapshot.manifests), None)
    if first is None or location_policy.path_mapping(first) != first:
        return files
    roots = {metadata.location.rstrip("/")}
    if (cut := first.rfind(f"/{METADATA}/")) > 0:
        # Where the table lay when the snapshot was written: the recorded location may be newer, or spelt otherwise.
        roots.add(first[:cut])
    moved = [root for root in roots if StorageAddress.of(root) != StorageAddress.of(folder.uri)]
    found = [path for root in moved if (path := _below(first, root)) is not None]
    if not found or not _exists(*location_policy.resolve_relative(folder, found[0])):
        return files
    return TableFiles(location_policy, folder, tuple(sorted(moved, key=len, reverse=True)))


def _below(recorded: str, root: str) -> str | None:
    """The path of a file below a root, None when it is not there. Schemes do not count, nor a missing authority."""
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
