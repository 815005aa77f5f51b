"""How far a table reaches: the only place where a location that somebody recorded becomes one that is read.

Metadata are data: whoever writes them could name any file that the reader has a way to, and have its rows or the
table's credentials brought to where they should not be. So what they name is read within the table's own store; beyond
it, only where the configuration names the place as well.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metastore_assets.errors import TableFormatError
from metastore_assets.storage.location import Location

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_KINDS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Other names of schemes."""
_AZURE = ("az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs")
_READABLE = ("file", "s3", "gs", "azure", "http", "https")
_OPTIONS = {"s3": "aws_", "gs": "google_", "azure": "azure_"}
"""What storage options of a service start with."""
_AZURE_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
_OF_A_PARTITION = re.compile(r"[^/]*=[^/]*|[01]{4,}")
"""Folders that a table makes for partitions, or to spread its files."""
_OF_A_TABLE = ("data", "metadata", "_delta_log")


@dataclass(frozen=True)
class StorageAddress:
    """A path or URI in parts that can be compared, however it is spelt."""

    kind: str
    """`file`, `s3`, `gs`, `azure`, or another scheme."""
    bucket: str
    """Or container, or host."""
    account: str
    """Of Azure; empty when not known, and of others."""
    path: str
    """Absolute, without `..`; empty for the root."""
    root: str
    """What stands before the path."""

    @classmethod
    def of(cls, uri: str, account: str = "") -> StorageAddress | None:
        """`account` is that of an Azure URI that names none. None for a relative path."""
        match = _URI.fullmatch(uri)
        scheme, authority, path = (match[1].lower(), match[2] or "", match[3]) if match else ("file", "", uri)
        if not path.startswith("/") and (scheme == "file" or path):
            return None
        if scheme == "file" or {".", ".."} & set(path.split("/")):
            path = "/" + posixpath.normpath(path).lstrip("/")
        path = path.rstrip("/")
        if scheme == "file":
            return cls("file", "", "", path, "")
        if scheme in _AZURE:
            container, _, host = authority.rpartition("@") if "@" in authority else (authority, "", "")
            named = host.partition(".")[0].lower()
            return cls("azure", container, named or account, path, f"{scheme}://{authority}")
        kind = _KINDS.get(scheme, scheme)
        bucket = authority if kind in _OPTIONS else authority.lower()
        return cls(kind, bucket, "", path, f"{kind}://{authority}")

    @property
    def store(self) -> tuple[str, str, str]:
        """Equal for two places that one set of credentials opens."""
        return self.kind, self.bucket, self.account

    @property
    def uri(self) -> str:
        """As it is opened."""
        return self.root + self.path or "/"

    def holds(self, other: StorageAddress) -> bool:
        """Whether the other is this or below it."""
        return self.store == other.store and f"{other.path}/".startswith(f"{self.path}/")


@dataclass(frozen=True)
class LocationPolicy:
    """What a table may read beyond the files that a listing of it shows. Small and picklable."""

    name: str
    """Of the table, for messages."""
    table: Location
    """Its own folder."""
    path_mapping: PathMapping
    allowed: tuple[StorageAddress, ...]
    restrict_to_table_root: bool

    @classmethod
    def of(cls, table: TableConfig, folder: Location) -> LocationPolicy:
        """As a configuration says. Where it says that files lie now may be read, too."""
        path_mapping = _path_mapping(table)
        named = [Location.of(uri).uri for uri in (*table.allow, *(new for _, new in path_mapping.pairs))]
        account = _table_address(folder).account
        allowed = tuple(place for uri in named if (place := StorageAddress.of(uri, account)))
        return cls(table.uri, folder, path_mapping, allowed, table.restrict_to_table_root)

    def resolve(self, recorded: str) -> tuple[Location, str]:
        """The location of a file by its recorded path or URI, not encoded, and the path below it.

        Raises TableFormatError for what is out of reach, and for a relative path: it was relative to a process of the
        past.
        """
        moved = self.path_mapping(recorded)
        place = StorageAddress.of(moved, _table_address(self.table).account)
        if place is None:
            raise TableFormatError(
                f"{self.name} records the relative location {recorded!r}; say with path_mapping where that is now"
            )
        return self._opened(place, recorded)

    def resolve_relative(self, folder: Location, path: str) -> tuple[Location, str]:
        """The same for a path relative to a folder of the table, which may lead out of it by `..`."""
        if ".." not in path.split("/"):
            return folder, path
        place = StorageAddress.of(folder.full_path(path), _table_address(self.table).account)
        assert place is not None
        return self._opened(place, path)

    def _opened(self, place: StorageAddress, recorded: str) -> tuple[Location, str]:
        own = _table_address(self.table)
        if own.holds(place):
            return self.table, place.path[len(own.path) + 1 :]
        if self.restrict_to_table_root:
            return self.table, self._confined(own, place, recorded)
        if place.store == own.store:
            return replace(self.table, uri=own.root + place.path), ""
        if any(prefix.holds(place) for prefix in self.allowed):
            return Location(place.uri, self._options(own, place)), ""
        raise self._refused(place, recorded)

    def _confined(self, own: StorageAddress, place: StorageAddress, recorded: str) -> str:
        """The path below the table of what is there under another name, by links on the way to the table."""
        if own.kind == place.kind == "file":
            root, real = os.path.realpath(self.table.uri), os.path.realpath(place.uri)
            if os.path.commonpath([root, real]) == root:
                return os.path.relpath(real, root)
        raise TableFormatError(
            f"{self.name}: its metadata name {recorded}, which is not below {self.table.uri}, to which "
            "`restrict_to_table_root: true` keeps the table"
        )

    def _options(self, own: StorageAddress, place: StorageAddress) -> tuple[tuple[str, str], ...]:
        """The table's storage options for a place of the same service; elsewhere those of the environment count."""
        if place.kind not in _OPTIONS or (own.kind != "file" and own.store[::2] != place.store[::2]):
            return ()
        foreign = tuple(prefix for kind, prefix in _OPTIONS.items() if kind != place.kind)
        return tuple(option for option in self.table.options if not option[0].lower().startswith(foreign))

    def _refused(self, place: StorageAddress, recorded: str) -> TableFormatError:
        home = "on local disk" if place.kind == "file" else f"in {place.root}"
        said = f"{self.name}: its metadata name {recorded}, which is {home} and not in the table's own store"
        if place.kind not in _READABLE:
            return TableFormatError(f"{said}, and has no reader; say with path_mapping where the files lie now")
        prefix = _suggested(place)
        return TableFormatError(
            f"{said}; if it may be read there, add to the table in metastore.yaml: "
            f"allow: [{json.dumps(prefix, ensure_ascii=False)}] (`--allow {prefix}` for metastore profile), "
            "else say with path_mapping where the files lie now"
        )


def table_location(table: TableConfig) -> Location:
    """Where a table lies as its configuration says."""
    return Location.of(table.uri, table.storage_options, confined=table.restrict_to_table_root)


def catalog_location(table: TableConfig, recorded: str, options: Mapping[str, str]) -> Location:
    """Where a table or its metadata file lies as its catalog says, with the storage options that the catalog gives."""
    place = StorageAddress.of(_path_mapping(table)(recorded))
    return Location.of(
        place.uri if place else recorded, {**options, **table.storage_options}, confined=table.restrict_to_table_root
    )


def _path_mapping(table: TableConfig) -> PathMapping:
    return PathMapping.of({old: Location.of(new).uri for old, new in table.path_mapping.items()})


def _table_address(table: Location) -> StorageAddress:
    options = {key.lower(): value for key, value in table.options}
    named = next((value for key, value in options.items() if key.endswith("account_name")), "")
    place = StorageAddress.of(table.uri, (named or os.environ.get(_AZURE_ACCOUNT, "")).lower())
    assert place is not None
    if place.kind == "file":
        return place
    scheme, _, rest = table.uri.partition("://")
    return replace(place, root=f"{scheme}://{rest.partition('/')[0]}")  # as the table itself is opened


def _suggested(place: StorageAddress) -> str:
    """The folder that is probably that of the table which a file is of."""
    folders = place.path.split("/")[1:-1]
    while folders and _OF_A_PARTITION.fullmatch(folders[-1]):
        folders.pop()
    if len(folders) > 1 and folders[-1] in _OF_A_TABLE:
        folders.pop()
    if not folders and place.kind == "file":
        return place.path
    return "/".join([place.root, *folders, ""])


_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)")
"""Scheme and authority in front of an absolute path."""


def path_without_origin(uri: str) -> str:
    """The path alone: `hdfs://host:20500/a/b`, `file:/a/b`, `file:///a/b` and `/a/b` are all `/a/b`."""
    return _ORIGIN.sub("", uri, count=1)


@dataclass(frozen=True)
class PathMapping:
    """Ordered pairs (recorded prefix, prefix now), the longest recorded prefix first."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> PathMapping:
        """From what a configuration or a command line says; trailing slashes do not count."""
        pairs = [(old.rstrip("/"), new.rstrip("/")) for old, new in mapping.items()]
        return cls(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))

    def __call__(self, uri: str) -> str:
        """Where a recorded path or URI lies now: itself, when no prefix of it was given.

        A prefix ends at a path segment. One that is given as a path alone fits whatever scheme and authority.
        """
        for old, new in self.pairs:
            for recorded in (uri, path_without_origin(uri)):
                if recorded == old or recorded.startswith(f"{old}/"):
                    return new + recorded[len(old) :]
        return uri
