"""The interface of table formats: snapshots, fragments, and the readers of fragments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from metastore_assets.errors import SnapshotNotFoundError

FIELD_ID = b"metastore.field_id"
"""Metadata key of an Arrow field, at every depth, that holds the stable identity of the field as text.

The identity is the physical name or field id where the format has one. Without the key it is the field's name.
"""

INITIAL_DEFAULT = b"metastore.initial_default"
"""Metadata key of an Arrow field, at every depth, that holds the field's value in files that were written before it.

Without the key the value is null. See `schema_casting.set_default`.
"""


class FragmentReader(Protocol):
    """An opened fragment, used by one process as a context manager. It returns live rows only: deletes are applied."""

    @property
    def row_count(self) -> int:
        """Number of live rows."""

    @property
    def stored_columns(self) -> frozenset[str]:
        """Identities of the top-level columns whose values the fragment stores.

        They include partition columns, and columns that the table's current schema no longer has.
        """

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """Return the live rows of one top-level column in chunks of bounded size, whose lengths sum to `row_count`.

        Args:
            field: a field of the table's schema. If the fragment was written without it, the values are its default,
                or null.
            encoded: whether a chunk of texts or bytes may be a dictionary array of that type, where the file stores a
                dictionary. It has less than half as many entries as rows. Entries may be repeated or unused.

        Returns:
            Arrays of `field.type`.

        Raises:
            FragmentError: the file cannot be read.
        """

    def __enter__(self) -> FragmentReader: ...

    def __exit__(self, *exception: object) -> None: ...


class FragmentSource(Protocol):
    """A small value that can be pickled, with which any process can open a fragment."""

    def open(self) -> FragmentReader:
        """Open the fragment. Raises FragmentError, with `missing=True` when the file was removed."""


@runtime_checkable
class ClaimedSource(FragmentSource, Protocol):
    """The source of a fragment whose `bytes` come from the table's metadata and may be wrong."""

    def stored_size(self) -> int:
        """Return the size of the data file from the storage, in bytes. Raises OSError or MetastoreError."""


@dataclass(frozen=True)
class Fragment:
    """The smallest unit of rows that a format adds or removes: a data file with the deletes that apply to it."""

    id: str
    """Hex digest of everything that determines the rows. Equal ids mean equal rows."""
    partition_key: str
    path: str
    """Path or URI of the data file, for messages."""
    bytes: int
    """Stored size of the data file."""
    row_count: int | None
    """Number of live rows by the format's metadata; None when they do not say."""
    source: FragmentSource


@dataclass(frozen=True)
class SnapshotReference:
    """The identity of a snapshot: `Snapshot.id` and `Snapshot.committed_at`.

    The id alone is ambiguous: a Delta table that is dropped and recreated starts again with version 0.
    """

    id: str
    committed_at: datetime | None


@dataclass(frozen=True)
class SnapshotDiff:
    """The difference between two snapshots of one table, in fragments and partitions.

    Fragments never change: one whose rows, deletes or partition changed is removed under its old id, and added under
    its new one. The newer snapshot has the fragments of the older one, less `removed_fragments`, plus
    `added_fragments`. Both snapshots have the same schema and partition columns, and the same partitions are selected.
    """

    since: SnapshotReference
    """The older snapshot."""
    current: SnapshotReference
    """The newer snapshot."""
    added_fragments: tuple[Fragment, ...]
    """Fragments that only the newer snapshot has, sorted by (partition_key, id)."""
    removed_fragments: Mapping[str, str]
    """Partition keys, by id, of the fragments that only the older snapshot has."""
    added_partitions: frozenset[str]
    """Keys of partitions that have fragments only in the newer snapshot."""
    removed_partitions: frozenset[str]
    """Keys of partitions that have fragments only in the older snapshot."""


HistoryChange = Literal["recreated", "rolled back", "metadata changed"] | None
"""How a table got from one snapshot to another, other than by further commits.

`recreated`: it was dropped and created again. `rolled back`: to an earlier snapshot, or to another branch of the
history. `metadata changed`: the rows are the same; properties, schema or the list of snapshots changed.
"""


def history_change_by_time(previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
    """Return the history change that the times of two commits show: an earlier commit is a rollback."""
    if previous.committed_at is None or current.committed_at is None:
        return None
    return "rolled back" if current.committed_at < previous.committed_at else None


@dataclass(frozen=True)
class TypeReason:
    """Why the values of a column in plain files do not fit a type."""

    column: str
    type: pa.DataType
    """The type that the values do not fit."""
    counterexample: str
    """What does not fit: a value, its file and line; or another type and its file."""


@dataclass(frozen=True)
class DerivedColumn:
    """A column or a partition field that is computed from other columns, and so reveals their values."""

    name: str
    sources: tuple[tuple[str, str], ...]
    """Field id and dotted path of each column that it is computed from. Empty when the table does not say."""
    transform: str
    """How it is computed, for messages: `truncate[4]`, `identity`, `the record key`."""
    is_partition_field: bool
    """Whether the table is partitioned by it, so that its values are partition keys."""


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table: schema, partitions and fragments."""

    format: str
    id: str
    """The format's name of the snapshot, such as a version number. Plain files: a digest of the fragment ids."""
    committed_at: datetime | None
    """UTC; None when the format does not record it."""
    schema: pa.Schema
    """Columns in table order with logical names and types. Every field, nested ones too, has its FIELD_ID."""
    partition_columns: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    """Sorted by (partition_key, id). Ids are distinct."""
    type_reasons: tuple[TypeReason, ...] = ()
    """Why columns are not of a narrower type, where contents of files decide; one at most for a column and a type."""
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Partition columns by Iceberg's bucket hash: partition column, identity of the source column, bucket count."""
    partition_types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of the partition columns that the schema lacks, or has with another type."""
    derived: tuple[DerivedColumn, ...] = ()
    """Columns and partition fields that are computed from other columns."""
    bytes_read: int = field(default=0, compare=False)
    """Bytes of whole data files that were read to build this snapshot: new CSV and JSON files."""

    def partition_type(self, column: str) -> pa.DataType:
        """Return the type of a partition column's values; text when neither the snapshot nor the schema has it."""
        types = dict(self.partition_types)
        index = self.schema.get_field_index(column)
        return types.get(column, self.schema.field(index).type if index >= 0 else pa.string())

    @property
    def reference(self) -> SnapshotReference:
        """The identity of this snapshot."""
        return SnapshotReference(self.id, self.committed_at)


class TableFormat(Protocol):
    """A table in one format, in the state that the configuration's `at` names; without `at`, the newest state.

    Formats inherit from this class, so that they have its defaults.
    """

    @abstractmethod
    def snapshot_id(self) -> str:
        """Return the id of the snapshot that `snapshot()` would return now. Sensors poll it: it reads little."""

    @abstractmethod
    def current(self) -> SnapshotReference:
        """Return the reference of the snapshot that `snapshot()` would return now. It reads little."""

    @abstractmethod
    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return how the table got from one snapshot to another; None for further commits, or when that is unknown.

        Args:
            previous: a snapshot that was current before.
            current: another snapshot of the table.
        """

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the snapshot, with the partitions that the configuration selects, from metadata only.

        Raises:
            TableNotFoundError: there is no table.
            SnapshotNotFoundError: the table does not have the state that `at` names.
            TableFormatError: the metadata cannot be read.
        """

    def changes(self, since: SnapshotReference) -> SnapshotDiff | None:
        """Return the difference between an earlier snapshot and the current one; None when only `snapshot()` can tell.

        A format returns a difference only when that reads less than a snapshot, and when the metadata show every commit
        in between. The default is None.

        Args:
            since: a snapshot that was current before.

        Raises:
            TableNotFoundError: there is no table.
            TableFormatError: the metadata cannot be read.
        """
        return None

    @abstractmethod
    def partition_columns(self) -> tuple[str, ...]:
        """Return `snapshot().partition_columns` without reading data files. Raises the errors of `snapshot()`."""

    @abstractmethod
    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return the null counts, minima and maxima that the format's metadata have of one leaf column.

        Args:
            snapshot: a snapshot of this table.
            column: dotted path of a leaf column.

        Returns:
            One row per fragment of the snapshot, in its order; see `bounds.bounds_table`.

        Raises:
            KeyError: the snapshot has no such leaf column.
        """


def parse_state_time(at: str) -> datetime | None:
    """Parse an `at` of the configuration that is a time: an ISO 8601 date or time with dashes, by default in UTC.

    Returns:
        The time in UTC; None for any other text. Digits alone are never a time: they are a version, a snapshot id or an
        instant.
    """
    if "-" not in at[1:]:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def state_not_found(table: str, at: str, choices: str, examples: Iterable[object]) -> SnapshotNotFoundError:
    """Return the error for an `at` of the configuration that names no state of the table.

    Args:
        table: URI of the table.
        at: the requested state.
        choices: what `at` may name, for the message.
        examples: states that the table has. The message shows all of up to 20, else the first and the last ten.
    """
    texts = [str(example) for example in examples]
    shown = ", ".join(texts if len(texts) <= 20 else [*texts[:10], "…", *texts[-10:]]) or "none"
    return SnapshotNotFoundError(f"{table} has no state {at!r}; {choices}: {shown}")
