"""Published versions: listing them, resolving a number, a snapshot or a time to one, and their leaf columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from metastore_assets.errors import ColumnNotFoundError, VersionNotFoundError
from metastore_assets.iso8601 import parse_timestamp
from metastore_assets.messages import close_names, join_names
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves

VersionSelector: TypeAlias = int | str | datetime
"""What selects a version: its number, the id of its snapshot, or a time. A text may be an id or a time in ISO 8601. A
time without a zone is in UTC."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class VersionColumns:
    """The leaf columns of one version, in table order."""

    def __init__(self, version: Version) -> None:
        self._table = version.table
        self.leaves: tuple[LeafColumn, ...] = tuple(leaf for leaves in schema_leaves(version.schema) for leaf in leaves)
        self._by_path = {leaf.path: leaf for leaf in self.leaves}

    def leaf(self, column: str) -> LeafColumn:
        """Return the column with a dotted path. Raises ColumnNotFoundError."""
        leaf = self._by_path.get(column)
        if leaf is None:
            raise ColumnNotFoundError(
                f"table {self._table!r} has no column {column!r}"
                + close_names(column, list(self._by_path), "; its columns are: {}")
            )
        return leaf

    def resolve(self, columns: str | Iterable[str] | None) -> list[str] | None:
        """Return column names as a list, after a check that the columns exist.

        None stands for all columns and is returned unchanged. A single text is one name. Raises ColumnNotFoundError.
        """
        if columns is None:
            return None
        names = [columns] if isinstance(columns, str) else list(columns)
        for name in names:
            self.leaf(name)
        return names

    def subject(self, column: str) -> str:
        """Return the text by which messages refer to a column: its name and its table."""
        return f"column {column!r} of table {self._table!r}"


def list_tables(store: ObjectStore) -> list[str]:
    """Return the names of the tables with a published version below a root, sorted."""
    return [name for name in store.folders() if VersionStore(store, name).newest()]


def list_versions(store: ObjectStore, name: str) -> list[int]:
    """Return the numbers of a table's published versions, ascending; none for an unknown table."""
    return VersionStore(store, name).numbers() if _is_folder_name(name) else []


def open_version(
    store: ObjectStore, name: str, selector: VersionSelector | None = None
) -> tuple[VersionStore, Version]:
    """Return the versions of a table, and the selected version.

    Args:
        store: The root.
        name: The table's name.
        selector: A number, the id of a snapshot, or a time (see `resolve_version`); None for the newest version.

    Raises:
        VersionNotFoundError: The table has no published version, or none that is selected.
    """
    if _is_folder_name(name):
        versions = VersionStore(store, name)
        version = versions.latest() if selector is None else resolve_version(versions, selector)
        if version is not None:
            return versions, version
    raise VersionNotFoundError(
        f"table {name!r} has no published version below {store.uri()}; run `metastore refresh {name}`"
        + close_names(name, list_tables(store), "; published are: {}")
    )


def resolve_version(versions: VersionStore, selector: VersionSelector) -> Version:
    """Return the version with a number, or the newest version of a snapshot or up to a time.

    The time of a version is when its snapshot was committed, or when the version was published if the table's format
    does not record commits. Reads the documents of versions from the newest on.

    Args:
        versions: The versions of the table.
        selector: A number, the id of a snapshot, or a time.

    Raises:
        VersionNotFoundError: No version is selected.
    """
    if isinstance(selector, int):
        return versions.read(selector)
    time = _parse_time(selector)
    snapshots: list[str] = []
    for version in _from_newest(versions):
        if version.snapshot == selector:
            return version
        snapshots.append(version.snapshot)
    if time is not None:
        for version in _from_newest(versions):
            if (version.committed_at or version.published_at) <= time:
                return version
        raise VersionNotFoundError(f"table {versions.table!r} has no published version of {time.isoformat()} or before")
    raise VersionNotFoundError(
        f"table {versions.table!r} has no published version of snapshot {selector!r}; there are versions of the "
        f"snapshots {join_names(list(dict.fromkeys(snapshots)))}. Versions by number are integers, times are in "
        "ISO 8601"
    )


def _is_folder_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", "\0"}


def _from_newest(versions: VersionStore) -> Iterator[Version]:
    for number in reversed(versions.numbers()):
        try:
            yield versions.read(number)
        except VersionNotFoundError:
            continue  # it expired after it was listed


def _parse_time(selector: str | datetime) -> datetime | None:
    """Return a time with a zone, which is UTC by default; None for a text that is no time."""
    if isinstance(selector, datetime):
        return selector if selector.tzinfo is not None else selector.replace(tzinfo=UTC)
    try:
        ticks, _ = parse_timestamp(selector, "us")
        return _EPOCH + timedelta(microseconds=ticks)
    except (ValueError, OverflowError):
        return None
