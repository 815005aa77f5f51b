"""Where the files of an Iceberg table lie: recorded locations are absolute, and tables get moved and copied."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.iceberg_metadata import METADATA, IcebergSnapshot, TableMetadata
from metastore_assets.formats.location import Location
from metastore_assets.formats.relocation import Relocation, path_of

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]+)/")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_HADOOP_S3 = re.compile(r"s3[an]://")


def plain_path(recorded: str) -> str:
    """What names the same file whichever of Hadoop's ways a writer spells it: no scheme, no authority, no `./`."""
    return path_of(recorded).removeprefix("./")


@dataclass(frozen=True)
class TableFiles:
    """Finds recorded files, of which some may have moved."""

    name: str
    """Of the table, for messages."""
    folder: Location
    """The table's folder as it was found: what holds `metadata/`."""
    relocation: Relocation
    moved_roots: tuple[str, ...] = ()
    """Recorded locations whose files lie in `folder` now."""

    def locate(self, recorded: str) -> tuple[Location, str]:
        """The location of a recorded file, and its path below. A given relocation wins over what is found out.

        Raises TableFormatError for a relative path that nothing explains: it was relative to a process of the past.
        """
        relocated = self.relocation(recorded)
        if relocated == recorded:
            for root in self.moved_roots:
                if (path := _below(recorded, root)) is not None:
                    return self.folder, path
            if not _ABSOLUTE.match(recorded):
                raise TableFormatError(
                    f"{self.name} records the relative location {recorded!r}; say with relocate where that is now"
                )
        uri = recorded_uri(relocated)
        if (path := _below(uri, self.folder.uri)) is not None:
            return self.folder, path
        return Location.of(uri, dict(self.folder.options)), ""


def table_files(
    name: str, folder: Location, relocation: Relocation, metadata: TableMetadata, snapshot: IcebergSnapshot | None
) -> TableFiles:
    """The files of a table whose metadata file was found in a folder that may be another than the recorded location.

    A table that was moved or copied as a whole is read where it was found: when the folder holds the snapshot's
    manifest list at its place below the recorded location, then all that was recorded there is in the folder. The
    original is not read even if it still exists: a copy stays what it is when the original changes.
    """
    files = TableFiles(name, folder, relocation)
    first = None if snapshot is None else snapshot.manifest_list or next(iter(snapshot.manifests), None)
    if first is None or relocation(first) != first:
        return files
    roots = {metadata.location.rstrip("/")}
    if (cut := first.rfind(f"/{METADATA}/")) > 0:
        # Where the table lay when the snapshot was written: the recorded location may be newer, or spelt otherwise.
        roots.add(first[:cut])
    moved = [root for root in roots if not _ABSOLUTE.match(root) or Location.of(recorded_uri(root)).uri != folder.uri]
    found = [path for root in moved if (path := _below(first, root)) is not None]
    if not found or not _exists(folder, found[0]):
        return files
    return TableFiles(name, folder, relocation, tuple(sorted(moved, key=len, reverse=True)))


def _below(recorded: str, root: str) -> str | None:
    """The path of a file below a root, None when it is not there. Schemes do not count, nor a missing authority."""
    ours, theirs = _AUTHORITY.match(recorded), _AUTHORITY.match(f"{root}/")
    if ours and theirs and ours[1] != theirs[1]:
        return None
    path, start = plain_path(recorded), f"{plain_path(root).rstrip('/')}/"
    return path[len(start) :] if path.startswith(start) else None


def recorded_uri(recorded: str) -> str:
    """A recorded location as it is opened. A recorded path is never percent-encoded, whatever its scheme."""
    if recorded.startswith("file:"):
        return path_of(recorded)
    return _HADOOP_S3.sub("s3://", recorded)


def _exists(folder: Location, path: str) -> bool:
    try:
        folder.stat(path)
    except FileNotFoundError:
        return False
    return True
