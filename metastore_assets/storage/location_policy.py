"""The policy for references in a table's metadata to files outside of the table's folder.

Only this module converts paths in metadata to locations. An attacker who can write metadata could name any readable
file, or a server that would receive the table's credentials. Therefore files outside of the table's disk or bucket are
read only if the configuration allows it.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from metastore_assets.errors import TableFormatError
from metastore_assets.storage.location import Location

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_KINDS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""The scheme that replaces each alias."""
_AZURE = ("az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs")
_AZURE_URL = re.compile(r"(https://([^./]+)\.(?:blob|dfs)\.[^/]+/([^/]+))(/.*)?", re.IGNORECASE | re.DOTALL)
"""Matches the URL of a file in Azure. Its groups are the URL of the container, the account, the container and the
path."""
_READABLE = ("file", "s3", "gs", "azure", "http", "https")
_OPTIONS = {"s3": "aws_", "gs": "google_", "azure": "azure_"}
"""The prefix of the names of storage options, by kind of address."""
_AZURE_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
_PARTITION_FOLDER = re.compile(r"[^/]*=[^/]*|[01]{4,}")
"""Matches folders of partitions, such as `day=1`, and the folders `0110` over which Iceberg distributes files."""
_TABLE_SUBFOLDERS = ("data", "metadata", "_delta_log")


class ConfiguredLocation(Protocol):
    """The settings of a table that determine its location and the locations that its metadata may name."""

    @property
    def uri(self) -> str:
        """The table's path or URI."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Options of object stores, such as credentials."""

    @property
    def path_mapping(self) -> Mapping[str, str]:
        """Replacements of prefixes of the locations in the table's metadata: {old prefix: new prefix}."""

    @property
    def allow(self) -> Sequence[str]:
        """Locations below which files of the table may be, besides the table's own store."""

    @property
    def restrict_to_table_root(self) -> bool:
        """Whether only files in the table's folder are allowed."""


@dataclass(frozen=True)
class StorageAddress:
    """A path or URI, split into normalized parts: `s3a://b/x` and `s3://b/x/` have equal parts."""

    kind: str
    """`file`, `s3`, `gs`, `azure`, or another scheme."""
    bucket: str
    """The bucket, container or host; empty for local disk."""
    account: str
    """The storage account of Azure; empty if it is unknown, or for other kinds."""
    path: str
    """Absolute, without `..`; empty for the root."""
    root: str
    """Scheme and bucket of the URI, without the path."""

    @classmethod
    def of(cls, uri: str, account: str = "") -> StorageAddress | None:
        """Parse a path or URI; None for a relative path.

        Args:
            uri: A path, or a URI without percent-encoding.
            account: The storage account for Azure URIs that name none.
        """
        match = _URI.fullmatch(uri)
        scheme, authority, path = (match[1].lower(), match[2] or "", match[3]) if match else ("file", "", uri)
        if not path.startswith("/") and (scheme == "file" or path):
            return None
        if scheme == "file" or {".", ".."} & set(path.split("/")):
            path = "/" + posixpath.normpath(path).lstrip("/")
        path = path.rstrip("/")
        if scheme == "file":
            return cls("file", "", "", path, "")
        if (url := _AZURE_URL.fullmatch(f"{scheme}://{authority}{path}")) is not None:
            return cls("azure", url[3], url[2].lower(), url[4] or "", url[1])
        if scheme in _AZURE:
            container, _, host = authority.rpartition("@") if "@" in authority else (authority, "", "")
            uri_account = host.partition(".")[0].lower()
            return cls("azure", container, uri_account or account, path, f"{scheme}://{authority}")
        kind = _KINDS.get(scheme, scheme)
        bucket = authority if kind in _OPTIONS else authority.lower()
        return cls(kind, bucket, "", path, f"{kind}://{authority}")

    @property
    def store(self) -> tuple[str, str, str]:
        """Kind, bucket and account: the part of an address that determines the credentials."""
        return self.kind, self.bucket, self.account

    @property
    def uri(self) -> str:
        """The path or URI by which the address is opened."""
        return self.root + self.path or "/"

    def contains(self, other: StorageAddress) -> bool:
        """Return True if another address equals this one or lies below it."""
        return self.store == other.store and f"{other.path}/".startswith(f"{self.path}/")


@dataclass(frozen=True)
class LocationPolicy:
    """The rules that decide which locations in a table's metadata may be read."""

    name: str
    """The table's URI, for messages."""
    table_root: Location
    """Folder of the table."""
    path_mapping: PathMapping
    allowed: tuple[StorageAddress, ...]
    restrict_to_table_root: bool

    @classmethod
    def of(cls, table: ConfiguredLocation, folder: Location) -> LocationPolicy:
        """Create the policy of a configured table.

        It allows files in the table's store (such as its bucket), below the locations under `allow`, and below the
        targets of `path_mapping`. With `restrict_to_table_root`, it allows only files in the table's folder.

        Args:
            table: The configuration of the table.
            folder: The folder of the table.
        """
        path_mapping = _path_mapping(table)
        uris = [Location.of(uri).uri for uri in (*table.allow, *(new for _, new in path_mapping.pairs))]
        account = location_address(folder).account
        allowed_addresses = tuple(address for uri in uris if (address := StorageAddress.of(uri, account)))
        return cls(table.uri, folder, path_mapping, allowed_addresses, table.restrict_to_table_root)

    def resolve(self, recorded_path: str) -> tuple[Location, str]:
        """Return (location, path below the location) of a file that is recorded in the metadata.

        For a file outside of the table's folder, the location is the file itself, and the path is empty. With
        `restrict_to_table_root`, the location is always the folder: a file counts as inside if it is inside after
        resolving symbolic links.

        Args:
            recorded_path: A path or URI in the metadata, without percent-encoding.

        Raises:
            TableFormatError: The policy does not allow the file, or no mapping resolves a relative path.
        """
        current = self.path_mapping.apply(recorded_path)
        address = StorageAddress.of(current, location_address(self.table_root).account)
        if address is None:
            raise TableFormatError(
                f"{self.name} records the relative location {recorded_path!r}; map it with "
                "path_mapping to its current location"
            )
        return self._resolve_address(address, recorded_path)

    def resolve_relative(self, folder: Location, path: str) -> tuple[Location, str]:
        """Return (location, path below the location) of a file, given its path below a folder of the table.

        Raises TableFormatError if the path leaves the folder by `..`, and the policy does not allow the file.
        """
        if ".." not in path.split("/"):
            return folder, path
        address = StorageAddress.of(folder.full_path(path), location_address(self.table_root).account)
        assert address is not None
        return self._resolve_address(address, path)

    def _resolve_address(self, address: StorageAddress, recorded_path: str) -> tuple[Location, str]:
        """Return (location, path below the location) of a file.

        For a file below the table's folder, the location is that folder. For any other file, the location is the file
        itself, and the path is empty.

        Args:
            address: The address of the file.
            recorded_path: The path or URI of the file in the metadata, for the message.

        Raises:
            TableFormatError: The policy does not allow the file.
        """
        table_address = location_address(self.table_root)
        if table_address.contains(address):
            return self.table_root, address.path[len(table_address.path) + 1 :]
        if self.restrict_to_table_root:
            return self.table_root, self._path_below_root(table_address, address, recorded_path)
        if address.store == table_address.store:
            return replace(self.table_root, uri=table_address.root + address.path), ""
        if any(prefix.contains(address) for prefix in self.allowed):
            return Location(address.uri, self._options(table_address, address)), ""
        raise self._refusal_error(address, recorded_path)

    def _path_below_root(self, table_address: StorageAddress, address: StorageAddress, recorded_path: str) -> str:
        """Return a file's path below the table's folder, after resolving symbolic links.

        Raises TableFormatError if the file is not below the folder.
        """
        if table_address.kind == address.kind == "file":
            root, real = os.path.realpath(self.table_root.uri), os.path.realpath(address.uri)
            if os.path.commonpath([root, real]) == root:
                return os.path.relpath(real, root)
        raise TableFormatError(
            f"{self.name}: its metadata name {recorded_path}, which is not below {self.table_root.uri}: "
            "`restrict_to_table_root: true` refuses other files"
        )

    def _options(self, table_address: StorageAddress, address: StorageAddress) -> tuple[tuple[str, str], ...]:
        """Return the table's storage options that apply to an address.

        The options of a table on local disk may apply to any object store. Those of any other table apply only to
        stores of the same kind and account. Options for another kind of store, such as `aws_…` for Azure, are omitted.
        """
        if address.kind not in _OPTIONS or (
            table_address.kind != "file" and table_address.store[::2] != address.store[::2]
        ):
            return ()
        foreign = tuple(prefix for kind, prefix in _OPTIONS.items() if kind != address.kind)
        return tuple(option for option in self.table_root.options if not option[0].lower().startswith(foreign))

    def _refusal_error(self, address: StorageAddress, recorded_path: str) -> TableFormatError:
        where = "on local disk" if address.kind == "file" else f"in {address.root}"
        problem = f"{self.name}: its metadata name {recorded_path}, which is {where} and not in the table's own store"
        if address.kind not in _READABLE:
            return TableFormatError(
                f"{problem}, and has no reader; map it with path_mapping to the current location of the files"
            )
        prefix = _suggest_prefix(address)
        return TableFormatError(
            f"{problem}; if it may be read there, add to the table in metastore.yaml: "
            f"allow: [{json.dumps(prefix, ensure_ascii=False)}] (`--allow {prefix}` for metastore profile), "
            "else map it with path_mapping to the current location of the files"
        )


def table_location(table: ConfiguredLocation) -> Location:
    """Return the location of a table from its configured URI and options."""
    return Location.of(table.uri, table.storage_options, confined=table.restrict_to_table_root)


def catalog_location(table: ConfiguredLocation, recorded_path: str, options: Mapping[str, str]) -> Location:
    """Return the location that a catalog records for a table or for the table's metadata file.

    Args:
        table: The configured table. Its path mapping and storage options apply.
        recorded_path: Path or URI from the catalog.
        options: Storage options from the catalog. Options of the table override them.
    """
    address = StorageAddress.of(_path_mapping(table).apply(recorded_path))
    return Location.of(
        address.uri if address else recorded_path,
        {**options, **table.storage_options},
        confined=table.restrict_to_table_root,
    )


def _path_mapping(table: ConfiguredLocation) -> PathMapping:
    return PathMapping.of({old: Location.of(new).uri for old, new in table.path_mapping.items()})


def location_address(location: Location) -> StorageAddress:
    """Return the address of a location, such as the folder of a table.

    An Azure account that the URI does not name comes from the storage options or the environment.
    """
    options = {key.lower(): value for key, value in location.options}
    account = next((value for key, value in options.items() if key.endswith("account_name")), "")
    address = StorageAddress.of(location.uri, (account or os.environ.get(_AZURE_ACCOUNT, "")).lower())
    assert address is not None
    if address.kind == "file" or _AZURE_URL.fullmatch(location.uri):
        return address
    scheme, _, rest = location.uri.partition("://")
    return replace(address, root=f"{scheme}://{rest.partition('/')[0]}")  # The spelling with which the location opens.


def _suggest_prefix(address: StorageAddress) -> str:
    """Return a prefix for the option `allow`: the folder of the table to which a file probably belongs."""
    folders = address.path.split("/")[1:-1]
    while folders and _PARTITION_FOLDER.fullmatch(folders[-1]):
        folders.pop()
    if len(folders) > 1 and folders[-1] in _TABLE_SUBFOLDERS:
        folders.pop()
    if not folders and address.kind == "file":
        return address.path
    return "/".join([address.root, *folders, ""])


_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)")
"""Matches scheme and authority before an absolute path."""


def path_without_origin(uri: str) -> str:
    """Return the path of a URI, such as `/a/b` for `hdfs://host:20500/a/b` and `file:/a/b`.

    `file:///a/b` and `/a/b` have the same path.
    """
    return _ORIGIN.sub("", uri, count=1)


@dataclass(frozen=True)
class PathMapping:
    """A mapping from path prefixes in metadata to current prefixes, for tables that were moved or copied.

    `pairs` are (prefix in metadata, current prefix) without trailing slashes, the longest prefix in metadata first.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> PathMapping:
        """Create the path mapping from the configured mapping of old to new prefixes.

        Trailing slashes are ignored.
        """
        pairs = [(old.rstrip("/"), new.rstrip("/")) for old, new in mapping.items()]
        return cls(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))

    def apply(self, uri: str) -> str:
        """Replace the longest matching prefix of a path or URI.

        Without a match, return it unchanged.

        A prefix ends at a `/`: `/a/b` matches `/a/b/c` and not `/a/bc`. The prefix `/a` also matches `hdfs://host/a`.
        """
        for old, new in self.pairs:
            for recorded_path in (uri, path_without_origin(uri)):
                if recorded_path == old or recorded_path.startswith(f"{old}/"):
                    return new + recorded_path[len(old) :]
        return uri
