"""Wrappers of table formats for tables with hidden columns, whose values must not be shown.

Errors of the wrappers quote no values of rows. A fragment is a data file with its deletes. The source of a fragment is
an object that opens the fragment.
"""

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
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
)

_NOTE = "; values of a column are hidden, so that no more is reported"


class RedactedFormat(TableFormat):
    """A table of any format whose errors quote no values of rows.

    This includes errors in other processes that read its fragments.
    """

    def __init__(self, table_format: TableFormat, uri: str) -> None:
        self._table_format = table_format
        self._uri = uri

    def snapshot_id(self) -> str:
        with redact_errors(self._uri):
            return self._table_format.snapshot_id()

    def current(self) -> SnapshotReference:
        with redact_errors(self._uri):
            return self._table_format.current()

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        with redact_errors(self._uri):
            return self._table_format.history_change(previous, current)

    def snapshot(self) -> Snapshot:
        with redact_errors(self._uri):
            snapshot = self._table_format.snapshot()
        return replace(snapshot, fragments=tuple(map(_redact_fragment, snapshot.fragments)))

    def stream(self) -> SnapshotStream:
        with redact_errors(self._uri):
            stream = self._table_format.stream()

        def fragments() -> Iterator[Fragment]:
            with redact_errors(self._uri):
                yield from map(_redact_fragment, stream.fragments)

        if stream.snapshot is not None:
            redacted_fragments = tuple(map(_redact_fragment, stream.snapshot.fragments))
            return SnapshotStream.of(replace(stream.snapshot, fragments=redacted_fragments))
        rows = stream.sorted_fragments
        if rows is not None:
            decode = rows.decode
            rows = replace(rows, decode=lambda encoded_fragment: _redact_fragment(decode(encoded_fragment)))
        return SnapshotStream(stream.metadata, fragments(), sorted_fragments=rows)

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        with redact_errors(self._uri):
            diff = self._table_format.changes(since)
        if isinstance(diff, NoDiff):
            return diff
        return replace(diff, added=tuple(map(_redact_fragment, diff.added)))

    def partition_columns(self) -> tuple[str, ...]:
        with redact_errors(self._uri):
            return self._table_format.partition_columns()

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        with redact_errors(self._uri):
            original = replace(snapshot, fragments=tuple(map(_original_fragment, snapshot.fragments)))
            return self._table_format.bounds(original, column)


@dataclass(frozen=True)
class RedactedSource:
    """A wrapper of a fragment's source.

    Its errors, and those of the reader that it opens, quote no values of rows.
    """

    source: FragmentSource
    path: str

    def open(self) -> RedactedReader:
        """Open the fragment.

        Raises FragmentError.
        """
        with redact_errors(self.path, self.path):
            return RedactedReader(self.source.open(), self.path)


class RedactedReader:
    """A wrapper of the format's reader of a fragment, whose errors quote no values of rows."""

    def __init__(self, reader: FragmentReader, path: str) -> None:
        self._reader = reader
        self._path = path

    @property
    def row_count(self) -> int:
        with redact_errors(self._path, self._path):
            return self._reader.row_count

    @property
    def stored_columns(self) -> frozenset[str]:
        with redact_errors(self._path, self._path):
            return self._reader.stored_columns

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        with redact_errors(self._path, self._path):
            yield from self._reader.read(field, encoded=encoded)

    def __enter__(self) -> RedactedReader:
        with redact_errors(self._path, self._path):
            self._reader.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._reader.__exit__(*exception)


@contextmanager
def redact_errors(target: str, path: str | None = None) -> Iterator[None]:
    """Replace each error in the `with` block by an error without values of rows and without a cause.

    An error of this package keeps its class. Any other error becomes a FragmentError if `path` is given, else a
    TableFormatError.

    Args:
        target: the table or file that is read, for messages.
        path: the data file, if one is read.
    """
    try:
        yield
    except MetastoreError as error:
        redacted_exception: Exception = redacted_error(error)
    except Exception as error:  # noqa: BLE001 the error of any library may quote the value that it failed on
        text = f"{target} cannot be read ({type(error).__name__}){_NOTE}"
        is_missing = isinstance(error, FileNotFoundError)
        redacted_exception = (
            TableFormatError(text) if path is None else FragmentError(text, path=path, missing=is_missing)
        )
    else:
        return
    raise redacted_exception from None  # a traceback prints causes and contexts, which quote values


def redacted_error(error: MetastoreError) -> MetastoreError:
    """Return an error of the same class whose message quotes no values of rows, and which has no cause."""
    if error.without_values is None:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    text = f"{error.without_values}{_NOTE}"
    if isinstance(error, FragmentError):
        return type(error)(text, path=error.path, missing=error.missing, unsupported=error.unsupported)
    return type(error)(text)


def _redact_fragment(fragment: Fragment) -> Fragment:
    return replace(fragment, source=RedactedSource(fragment.source, fragment.path))


def _original_fragment(fragment: Fragment) -> Fragment:
    source = fragment.source
    return replace(fragment, source=source.source) if isinstance(source, RedactedSource) else fragment
