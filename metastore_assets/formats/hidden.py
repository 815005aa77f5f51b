"""A table with hidden columns, whose errors quote no values: neither those of planning nor those of reading rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from metastore_assets.errors import FragmentError, MetastoreError, TableFormatError
from metastore_assets.formats.base import (
    Fragment,
    FragmentReader,
    FragmentSource,
    HistoryChange,
    Snapshot,
    SnapshotReference,
    TableFormat,
)

_MORE = "; values of a column are hidden, so that no more is reported"


class HidingFormat:
    """A table of any format whose configuration hides values."""

    def __init__(self, table: TableFormat, uri: str) -> None:
        self._table = table
        self._uri = uri

    def snapshot_id(self) -> str:
        """As the table itself."""
        with quoting_nothing(self._uri):
            return self._table.snapshot_id()

    def current(self) -> SnapshotReference:
        """As the table itself."""
        with quoting_nothing(self._uri):
            return self._table.current()

    def history_change(self, former: SnapshotReference, now: SnapshotReference) -> HistoryChange:
        """As the table itself."""
        with quoting_nothing(self._uri):
            return self._table.history_change(former, now)

    def snapshot(self) -> Snapshot:
        """As the table itself. Errors of its fragments quote nothing either, in whatever process they are read."""
        with quoting_nothing(self._uri):
            snapshot = self._table.snapshot()
        return replace(snapshot, fragments=tuple(map(_hiding, snapshot.fragments)))

    def partition_columns(self) -> tuple[str, ...]:
        """As the table itself."""
        with quoting_nothing(self._uri):
            return self._table.partition_columns()

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """As the table itself."""
        with quoting_nothing(self._uri):
            return self._table.bounds(replace(snapshot, fragments=tuple(map(_plain, snapshot.fragments))), column)


@dataclass(frozen=True)
class HidingSource:
    """A fragment of a table with hidden columns."""

    source: FragmentSource
    path: str

    def open(self) -> HidingReader:
        """Open the fragment. Raises FragmentError."""
        with quoting_nothing(self.path, self.path):
            return HidingReader(self.source.open(), self.path)


class HidingReader:
    """An opened fragment of a table with hidden columns."""

    def __init__(self, reader: FragmentReader, path: str) -> None:
        self._reader = reader
        self._path = path

    @property
    def row_count(self) -> int:
        """As the fragment itself."""
        with quoting_nothing(self._path, self._path):
            return self._reader.row_count

    @property
    def stored_columns(self) -> frozenset[str]:
        """As the fragment itself."""
        with quoting_nothing(self._path, self._path):
            return self._reader.stored_columns

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """As the fragment itself."""
        with quoting_nothing(self._path, self._path):
            yield from self._reader.read(field, encoded=encoded)

    def __enter__(self) -> HidingReader:
        with quoting_nothing(self._path, self._path):
            self._reader.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._reader.__exit__(*exception)


@contextmanager
def quoting_nothing(what: str, path: str | None = None) -> Iterator[None]:
    """Replace errors that may quote values by errors of the same kind that do not, and that have no cause to print.

    `what` is read, for errors that are none of this package; `path` is the data file, where it is one.
    """
    try:
        yield
    except MetastoreError as error:
        found: Exception = without_values(error)
    except Exception as error:  # noqa: BLE001 whatever a reader throws may quote what it stumbled over
        text = f"{what} cannot be read ({type(error).__name__}){_MORE}"
        is_missing = isinstance(error, FileNotFoundError)
        found = TableFormatError(text) if path is None else FragmentError(text, path=path, missing=is_missing)
    else:
        return
    raise found from None  # tracebacks with a cause or context quote what is left out


def without_values(error: MetastoreError) -> MetastoreError:
    """Return the error without what may quote values, and without its causes."""
    if error.without_values is None:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    text = f"{error.without_values}{_MORE}"
    if isinstance(error, FragmentError):
        return type(error)(text, path=error.path, missing=error.missing, unsupported=error.unsupported)
    return type(error)(text)


def _hiding(fragment: Fragment) -> Fragment:
    return replace(fragment, source=HidingSource(fragment.source, fragment.path))


def _plain(fragment: Fragment) -> Fragment:
    source = fragment.source
    return replace(fragment, source=source.source) if isinstance(source, HidingSource) else fragment
