"""What every table format answers: the snapshot of a table now, its fragments, and how to read one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

FIELD_ID = b"metastore.field_id"
"""Metadata key of an Arrow field, at every depth, that holds the field's stable identity as text.

It is the physical name or field id where the format has one, else the key is absent and the name is the identity.
"""

INITIAL_DEFAULT = b"metastore.initial_default"
"""Metadata key of an Arrow field, at every depth, that holds what the field is in files that were written before it.

Absent: null. See `cast_to_schema.set_default`.
"""


class FragmentReader(Protocol):
    """One opened fragment in one process. Use as a context manager. Every read sees live rows only."""

    @property
    def row_count(self) -> int:
        """Number of live rows (deletes applied)."""

    @property
    def stored_columns(self) -> frozenset[str]:
        """Identities of the top-level columns that this fragment can answer for without inventing nulls.

        Includes partition columns and columns that the table's current schema no longer has.
        """

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """The live rows of one top-level column, in chunks of bounded size, each of `field.type`.

        With `encoded` a chunk of texts or bytes that the file keeps as a dictionary may be a dictionary array of that
        type, with less than half as many entries as rows; entries may repeat, or occur in no row. A column that the
        fragment was written without is all null (or its declared default). The lengths of the chunks add up to
        `row_count`. Raises FragmentError when the file cannot be read.
        """

    def __enter__(self) -> FragmentReader: ...

    def __exit__(self, *exception: object) -> None: ...


class FragmentSource(Protocol):
    """A small picklable value with all that a worker process needs to open a fragment."""

    def open(self) -> FragmentReader:
        """Open the fragment. Raises FragmentError (`missing=True` when the file is gone)."""


@runtime_checkable
class ClaimedSource(FragmentSource, Protocol):
    """A source whose file's size is what the table's metadata claim, and may be any number."""

    def stored_size(self) -> int:
        """Return the size of the data file where it is stored, in bytes. Raises OSError or MetastoreError."""


@dataclass(frozen=True)
class Fragment:
    """The smallest unit of live rows with an identity of its own: a data file with the deletes that apply to it."""

    id: str
    """Hex digest of what determines the rows: same id, same rows."""
    partition_key: str
    path: str
    """Path or URI of the data file, for messages and for people."""
    bytes: int
    """Stored size of the data file."""
    row_count: int | None
    """Live rows as the format's metadata knows them, or None when it does not."""
    source: FragmentSource


@dataclass(frozen=True)
class SnapshotReference:
    """Which snapshot is meant: `Snapshot.id` and `Snapshot.committed_at`.

    The id alone does not tell: a Delta table that is dropped and made again counts its versions anew.
    """

    id: str
    committed_at: datetime | None


HistoryChange = Literal["recreated", "rolled back", "metadata changed"] | None
"""How a table came from one state to another, where that was not by further commits.

`made anew`: dropped and created again, and so another table. `rolled back`: to a state of before, or to one beside it.
`other metadata`: the same rows, under other properties, another schema, or fewer former snapshots.
"""


def history_change_by_time(former: SnapshotReference, now: SnapshotReference) -> HistoryChange:
    """What the times of two commits tell, where a format has no more: earlier is rolled back."""
    if former.committed_at is None or now.committed_at is None:
        return None
    return "rolled back" if now.committed_at < former.committed_at else None


@dataclass(frozen=True)
class TypeReason:
    """Why a column of plain files is not of a type that it might have been of."""

    column: str
    type: pa.DataType
    found: str
    """What is in which file: a value and its line, or another type."""


@dataclass(frozen=True)
class DerivedColumn:
    """A column or a partition field whose values are computed from other columns, and so reveal theirs."""

    name: str
    sources: tuple[tuple[str, str], ...]
    """Field id and dotted path of each column that it is computed from. Empty: the table does not say from which."""
    how: str
    """How it is computed, for messages: `truncate[4]`, `identity`, `the record key`."""
    partitions: bool
    """Whether the table is partitioned by it, so that its values are the keys of partitions."""


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table: schema and fragments."""

    format: str
    id: str
    """What the format calls this state (Delta: the version number); plain files: a digest of the fragment ids."""
    committed_at: datetime | None
    """UTC, when the format records it."""
    schema: pa.Schema
    """Columns in table order with logical names and types; identities under FIELD_ID, at every depth."""
    partition_columns: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    """Sorted by (partition_key, id); ids are distinct."""
    type_reasons: tuple[TypeReason, ...] = ()
    """Where the files' contents decide the types of columns; at most one for a column and a type."""
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Hidden partitions by hash, as Iceberg hashes: partition column, identity of the column, number of buckets."""
    partition_types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of partition columns whose values are not those of the schema's column of that name, or that have none."""
    derived: tuple[DerivedColumn, ...] = ()
    """Columns and partition fields that are computed from other columns. Of a partition field that is named here, its
    name says nothing of the column that it is of."""
    bytes_read: int = field(default=0, compare=False)
    """Of data files that had to be read as a whole to make it: CSV and JSON that nothing was known of."""

    def partition_type(self, column: str) -> pa.DataType:
        """The type of a partition column's values. What nothing says the type of is text."""
        types = dict(self.partition_types)
        index = self.schema.get_field_index(column)
        return types.get(column, self.schema.field(index).type if index >= 0 else pa.string())

    @property
    def reference(self) -> SnapshotReference:
        """What tells this snapshot from any other of the table."""
        return SnapshotReference(self.id, self.committed_at)


class TableFormat(Protocol):
    """A table at a location, in one format, in the state that its configuration's `at` names (the newest without)."""

    def snapshot_id(self) -> str:
        """The id that `snapshot()` would have now, at the least cost: what a sensor polls."""

    def current(self) -> SnapshotReference:
        """The reference of the snapshot that `snapshot()` would return now, at the least cost."""

    def history_change(self, former: SnapshotReference, now: SnapshotReference) -> HistoryChange:
        """How the table came from a former state to `now`, another one, as far as its metadata tell: for people.

        None also where they do not tell.
        """

    def snapshot(self) -> Snapshot:
        """That snapshot, from metadata only, with the partitions that the configuration leaves.

        Raises TableNotFoundError, SnapshotNotFoundError (of `at`), or TableFormatError.
        """

    def partition_columns(self) -> tuple[str, ...]:
        """Those that `snapshot()` would have now, without reading a data file. Raises what that does."""

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """What the format's own metadata say of one leaf column: BOUNDS_SCHEMA, one row per fragment in its order.

        `column` is a dotted leaf path; `minimum` and `maximum` have the leaf's type. Raises KeyError for no such leaf.
        """
