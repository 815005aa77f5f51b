"""Published versions: listing them, resolving references to them, and their columns.

A version reference selects a version, as `version=` in Python or as an option of a command:

- a number of up to nine digits: `3` or `"3"`;
- a snapshot: `"snapshot:12"`, with the id of the snapshot in the table's format. Without the prefix, a text of up to
  nine digits is a version number, and an ISO 8601 text is a time. So Delta's ids need the prefix, and Iceberg's
  `7263012345678901234` (a text or an int) does not;
- a time: a `datetime`, or a text in ISO 8601 such as `"2024-01-31"` or `"2024-01-31T12:00+01:00"`. Times without a zone
  are in UTC.

A snapshot selects its newest version. A time selects the newest version whose snapshot was committed by then or, if
the table's format records no times of commits, the newest version that was published by then.

The root is the folder with all stored state. A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from metastore_assets.errors import ColumnNotFoundError, VersionNotFoundError
from metastore_assets.iso8601 import parse_moment
from metastore_assets.lookup.arguments import check_text, text_tuple
from metastore_assets.messages import close_names, join_names
from metastore_assets.store.objects import ObjectStore, is_path_text
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.columns import Column, schema_columns

VersionReference: TypeAlias = int | str | datetime
"""A version number, a time, or a text with a number, a snapshot or a time (see the module)."""
_SNAPSHOT = "snapshot:"
_NUMBER_DIGITS = 9
"""Maximum number of digits of a version number. Ids of Iceberg's and Hudi's snapshots have more."""


class VersionColumns:
    """The columns of one version and the fields nested in them, in table order."""

    def __init__(self, version: Version) -> None:
        self._table = version.table
        self.all: tuple[Column, ...] = tuple(schema_columns(version.schema))
        self._by_path = {column.path: column for column in self.all}

    def column(self, path: str) -> Column:
        """Return the column with a dotted path.

        Raises ColumnNotFoundError.
        """
        if not isinstance(path, str):
            raise TypeError(f"a column is named by a text, such as 'address.city', not by {path!r}")
        column = self._by_path.get(path)
        if column is None:
            raise ColumnNotFoundError(
                f"table {self._table!r} has no column {path!r}"
                + close_names(path, list(self._by_path), "; its columns are: {}")
            )
        return column

    def resolve(self, columns: str | Iterable[str] | None) -> list[str] | None:
        """Check that columns exist, and return their names as a list.

        A text is one name. None (all columns) is returned unchanged. Raises ColumnNotFoundError.
        """
        if columns is None:
            return None
        names = list(text_tuple("columns", columns, "names of columns"))
        for name in names:
            self.column(name)
        return names

    def subject(self, column: str) -> str:
        """Return the column for messages: `column 'day' of table 'orders'`."""
        return f"column {column!r} of table {self._table!r}"


def list_tables(store: ObjectStore) -> list[str]:
    """Return the names of the tables below a root that have a published version, sorted."""
    return [name for name in store.folders() if VersionStore(store, name).newest()]


def list_versions(store: ObjectStore, name: str) -> list[int]:
    """Return the numbers of a table's published versions, ascending; an empty list for an unknown table."""
    check_text("name", name, "the name of a table")
    return VersionStore(store, name).numbers() if _is_folder_name(name) else []


def open_version(
    store: ObjectStore, name: str, reference: VersionReference | None = None
) -> tuple[VersionStore, Version]:
    """Return (all versions of a table, the selected version).

    Args:
        store: The root.
        name: The table's name.
        reference: A number, a snapshot or a time; None for the newest version.

    Raises:
        VersionNotFoundError: The table has no published version, or the reference selects none.
    """
    check_text("name", name, "the name of a table")
    if _is_folder_name(name):
        versions = VersionStore(store, name)
        version = versions.latest() if reference is None else resolve_version(versions, reference)
        if version is not None:
            return versions, version
    raise VersionNotFoundError(
        f"table {name!r} has no published version below {store.uri()}; run `metastore refresh {name}`"
        + close_names(name, list_tables(store), "; published are: {}")
    )


@dataclass(frozen=True)
class SnapshotId:
    """The id of a snapshot in the table's format, as part of a version reference."""

    text: str


def parse_version_reference(reference: VersionReference) -> int | SnapshotId | datetime:
    """Parse a version reference to a version number, a snapshot, or a time with a zone.

    Raises ValueError if the reference is no int, text or datetime.
    """
    if isinstance(reference, datetime):
        return reference if reference.tzinfo is not None else reference.replace(tzinfo=UTC)
    if not isinstance(reference, int | str) or isinstance(reference, bool):
        raise ValueError(f"{reference!r} is no version: give a number, a time or a text")
    text = str(reference)
    if text.startswith(_SNAPSHOT):
        return SnapshotId(text.removeprefix(_SNAPSHOT))
    if isinstance(reference, int) or (text.isascii() and text.isdigit()):
        return int(text) if len(text) <= _NUMBER_DIGITS else SnapshotId(text)
    return parse_moment(text) or SnapshotId(text)


def resolve_version(versions: VersionStore, reference: VersionReference) -> Version:
    """Return the version that a reference selects.

    A snapshot selects its newest version. A time selects the newest version that is not later. The time of a version
    is that of the commit of its snapshot or, if the table's format records none, that of its publication.

    Args:
        versions: The versions of the table.
        reference: A number, a snapshot or a time.

    Raises:
        VersionNotFoundError: There is no such version.
        ValueError: The reference is no int, text or datetime.
    """
    parsed_reference = parse_version_reference(reference)
    if isinstance(parsed_reference, int):
        return _read_number(versions, parsed_reference)
    if isinstance(parsed_reference, datetime):
        oldest = ""
        for version in _from_newest(versions):
            time = version.committed_at or version.published_at
            if time <= parsed_reference:
                return version
            oldest = f"; its oldest version, {version.number}, is of {time.isoformat(timespec='seconds')}"
        raise VersionNotFoundError(
            f"table {versions.table!r} has no published version of {parsed_reference.isoformat()} or before{oldest}"
        )
    snapshots: list[str] = []
    for version in _from_newest(versions):
        if version.snapshot == parsed_reference.text:
            return version
        snapshots.append(version.snapshot)
    raise VersionNotFoundError(
        f"table {versions.table!r} has no published version of snapshot {parsed_reference.text!r}; its snapshots: "
        f"{join_names(list(dict.fromkeys(snapshots)))}. A version is a number, `snapshot:ID`, or a time in ISO 8601"
    )


def _read_number(versions: VersionStore, number: int) -> Version:
    """Return the version with a number.

    Raises VersionNotFoundError. If a snapshot has the number as its id, the message tells how to select the snapshot.
    """
    try:
        return versions.read(number)
    except VersionNotFoundError as error:
        if any(version.snapshot == str(number) for version in _from_newest(versions)):
            raise VersionNotFoundError(f"{error}; {_SNAPSHOT}{number} selects the snapshot with this id") from error
        raise


def _is_folder_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and is_path_text(name)


def _from_newest(versions: VersionStore) -> Iterator[Version]:
    for number in reversed(versions.numbers()):
        try:
            yield versions.read(number)
        except VersionNotFoundError:
            continue  # it expired after it was listed
