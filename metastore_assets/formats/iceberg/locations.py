"""Where the files of an Iceberg table lie: recorded locations are absolute, and tables get moved and copied."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.metadata_files import METADATA
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import Place, Reach
from metastore_assets.storage.path_mapping import path_of

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")


def plain_path(recorded: str) -> str:
    """What names the same file whichever of Hadoop's ways a writer spells it: no scheme, no authority, no `./`."""
    return path_of(recorded).removeprefix("./")


@dataclass(frozen=True)
class TableFiles:
    """Finds recorded files, of which some may have moved."""

    reach: Reach
    folder: Location
    """The table's folder as it was found: what holds `metadata/`."""
    moved_roots: tuple[str, ...] = ()
    """Recorded locations whose files lie in `folder` now."""

    @property
    def name(self) -> str:
        """Of the table, for messages."""
        return self.reach.name

    def locate(self, recorded: str) -> tuple[Location, str]:
        """The location of a recorded file, and its path below. A given relocation wins over what is found out.

        Raises TableFormatError for what the table does not reach, and for a relative path that nothing explains.
        """
        if self.reach.relocation(recorded) == recorded:
            for root in (*self.moved_roots, self.folder.uri):
                if (path := _below(recorded, root)) is not None:
                    return self.reach.below(self.folder, path)
        return self.reach.to(recorded)


def table_files(
    reach: Reach, folder: Location, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """The files of a table whose metadata file was found in a folder that may be another than the recorded location.

    A table that was moved or copied as a whole is read where it was found: when the folder holds the snapshot's
    manifest list at its place below the recorded location, then all that was recorded there is in the folder. The
    original is not read even if it still exists: a copy stays what it is when the original changes.
    """
    files = TableFiles(reach, folder)
    first = None if snapshot is None else snapshot.manifest_list or next(iter(snapshot.manifests), None)
    if first is None or reach.relocation(first) != first:
        return files
    roots = {metadata.location.rstrip("/")}
    if (cut := first.rfind(f"/{METADATA}/")) > 0:
        # Where the table lay when the snapshot was written: the recorded location may be newer, or spelt otherwise.
        roots.add(first[:cut])
    moved = [root for root in roots if Place.of(root) != Place.of(folder.uri)]
    found = [path for root in moved if (path := _below(first, root)) is not None]
    if not found or not _exists(*reach.below(folder, found[0])):
        return files
    return TableFiles(reach, folder, tuple(sorted(moved, key=len, reverse=True)))


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
