"""The interface that every table format implements: tables, snapshots, and fragments.

A fragment is the smallest unit of rows that a format adds or removes: a data file with the deletes that apply to it.
Live rows are those that no delete removes. A partition key is a text such as `day=2024-01-01`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import pyarrow as pa

from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.storage.location import Location

T = TypeVar("T")
_ATTEMPTS = 3
INITIAL_DEFAULT = b"metastore.initial_default"
"""Metadata key of an Arrow field, at every depth. Its value is the field's default in files that lack the field.

Without the key the default is null. `schema_casting.set_default` encodes the value.
"""


CONVERSION = b"metastore.conversion"
"""Metadata key of a top-level Arrow field. Its value is a text that identifies how stored values are converted.

If the text changes, a file that is read again may have other values, although the type class is the same. Without the
key, values are converted without loss.
"""


UNMAPPED_COLUMNS = "(unmapped)"
"""Item of `FragmentReader.stored_columns` that stands for columns of the file without an identity yet.

Files without field ids have such columns: a later name mapping may assign a name in the file to a new column of the
table.
"""


class FragmentReader(Protocol):
    """A reader of one opened fragment.

    It reads one column at a time, without the deleted rows.

    It is a context manager, and cannot be sent to another process.
    """

    @property
    def row_count(self) -> int:
        """Number of rows that are not deleted."""

    @property
    def stored_columns(self) -> frozenset[str]:
        """Identities of the fragment's top-level columns: field ids, or names in formats without ids.

        Partition columns and dropped columns are included. If the file has columns without an identity, the text
        UNMAPPED_COLUMNS is included. A later name mapping of the table may assign an identity to these columns.
        """

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """Return the values of one top-level column in the live rows, as chunks of bounded size.

        Args:
            field: a field of the table's schema. If the fragment lacks it, all values are the field's default, or
                null.
            encoded: whether chunks of text or bytes may be dictionary arrays, with repeated or unused entries.

        Returns:
            Arrays of `field.type`, or with `encoded` also dictionary arrays of these values. Their lengths sum to
                `row_count`.

        Raises:
            FragmentError: the file cannot be read.
        """

    def __enter__(self) -> FragmentReader: ...

    def __exit__(self, *exception: object) -> None: ...


class FragmentSource(Protocol):
    """A small value that can be pickled, and from which any process can open a fragment."""

    def open(self) -> FragmentReader:
        """Open the fragment.

        Raises FragmentError, with `missing=True` if a file of the fragment was removed.
        """


@runtime_checkable
class SizedSource(FragmentSource, Protocol):
    """A source that can request the real size of a fragment's data file.

    The size in the metadata may be wrong.
    """

    def stored_size(self) -> int:
        """Return the size in bytes of the data file in the storage.

        Raises OSError or MetastoreError.
        """


@dataclass(frozen=True)
class ArrowFile:
    """A Parquet file that Arrow can read without the reader of the format.

    No row of the file is deleted. The columns of the file are matched with those of the table by name or, if
    `constant_ids` is not None, by field id.
    """

    location: Location
    path: str
    """The path below the location."""
    constants: tuple[tuple[str, pa.Array], ...]
    """Name and value of each column that is constant in the file's partition, as an array of one value."""
    ignores_case: bool = False
    """Whether the format matches column names without regard to case. Arrow matches them exactly."""
    widens_text: bool = False
    """Whether the format widens a 32-bit float to the double with the same decimal text, so that 0.1 stays 0.1. Arrow
    keeps the exact value instead, about 0.10000000149. Arrow also converts floats to other texts than the format."""
    constant_ids: frozenset[str] | None = None
    """For a format that matches columns by Parquet field id: the ids of the columns that are constant in the partition.
    Arrow can read the file only if the file stores these columns. None for a format that matches columns by name."""


@runtime_checkable
class ArrowReadable(FragmentSource, Protocol):
    """The source of a fragment whose rows Arrow may be able to read without the format's reader."""

    def arrow_file(self) -> ArrowFile | str:
        """Return the data file.

        If Arrow alone cannot read its rows, return the reason as text.
        """


@dataclass(frozen=True, slots=True)
class Fragment:
    """The smallest unit of rows that a format adds or removes: a data file and the deletes on it."""

    id: str
    """Hex digest of everything that determines the rows. Equal ids mean equal rows."""
    partition_key: str
    path: str
    """Path or URI of the data file."""
    bytes: int
    """Size of the data file and its log files in bytes, from a listing or from the table's metadata."""
    row_count: int | None
    """Number of live rows according to the table's metadata; None if they do not record it."""
    source: FragmentSource


def fragment_order(fragment: Fragment) -> tuple[str, str]:
    """Return the key by which fragments are sorted: the partition key, then the id."""
    return fragment.partition_key, fragment.id


@dataclass(frozen=True)
class SnapshotReference:
    """The id and the commit time of a snapshot, which together identify it.

    The id alone is ambiguous: a Delta table that is dropped and recreated starts again with version 0.
    """

    id: str
    committed_at: datetime | None


HistoryChange = Literal["recreated", "rolled back", "metadata changed"] | None
"""How a table got from one snapshot to another. None: by ordinary commits only, or unknown.

`recreated`: the table was dropped and created again. `rolled back`: it returned to an earlier snapshot or moved to
another branch of its history. `metadata changed`: the rows are the same, but properties, the schema or the list of
snapshots changed.
"""


def history_change_by_time(previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
    """Return "rolled back" if the current snapshot was committed before the previous one; otherwise None.

    If a commit time is not recorded, the result is None.
    """
    if previous.committed_at is None or current.committed_at is None:
        return None
    return "rolled back" if current.committed_at < previous.committed_at else None


def history_change_by_number(
    numbers: tuple[int, int], previous: SnapshotReference, current: SnapshotReference
) -> HistoryChange:
    """Return "recreated", "rolled back" or None, judged by version numbers and commit times.

    - None: the number increased. Or the number is the same, and the commit times are equal or one is not recorded.
    - "recreated": the number did not increase, and the commit time did.
    - "rolled back": all other cases.

    Args:
        numbers: the version numbers of both snapshots, the previous one first.
        previous: a snapshot that was current before.
        current: a later current snapshot.
    """
    before, now = numbers
    if now > before or (now == before and previous.committed_at == current.committed_at):
        return None
    if previous.committed_at is None or current.committed_at is None:
        return "rolled back" if now < before else None
    return "recreated" if current.committed_at > previous.committed_at else "rolled back"


@dataclass(frozen=True)
class TypeReason:
    """A reason why a column of plain files does not have a certain type.

    A value contradicts the type, or the column has a wider type in another file.
    """

    column: str
    type: pa.DataType
    """The type that does not fit the column's values."""
    counterexample: str
    """What contradicts the type, for messages: a value with its file and line, or another type with its file."""


@dataclass(frozen=True)
class DerivedColumn:
    """A column or a partition field that is computed from other columns.

    It reveals the values of these columns, even if the configuration hides them.
    """

    name: str
    sources: tuple[tuple[str, str], ...]
    """Field id and dotted path of each column that the value is computed from. Empty if the table does not record these
    columns."""
    transform: str
    """How the value is computed, for messages: `truncate[4]`, `identity`, `the record key`."""
    is_partition_field: bool
    """Whether it is a partition field, so that partition keys contain its values."""


@dataclass(frozen=True)
class SnapshotMetadata:
    """The identity and the description of one committed state of a table, without its fragments."""

    format: str
    id: str
    """The format's id of the snapshot, such as a version number. Plain files: a digest of the fragment ids."""
    committed_at: datetime | None
    """Time of the commit in UTC; None if the format does not record it."""
    schema: pa.Schema
    """Columns in table order with logical names and types. Every field, nested ones too, has a FIELD_ID unless its name
    identifies it."""
    partition_columns: tuple[str, ...]
    type_reasons: tuple[TypeReason, ...] = ()
    """For columns of plain files, each type that a value or a file ruled out.

    There is at most one reason for a column and a type.
    """
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Partition columns that use Iceberg's bucket hash, each as (partition column, identity of the source column,
    number of buckets)."""
    partition_types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of partition columns that are not in the schema, or that the schema has with another type."""
    derived: tuple[DerivedColumn, ...] = ()
    """Columns and partition fields that are computed from other columns."""
    bytes_read: int = field(default=0, compare=False)
    """Bytes of data files that were read completely to build this snapshot. Only new CSV and JSON files are read
    completely."""

    def partition_type(self, column: str) -> pa.DataType:
        """Return the type of a partition column's values.

        It is text if neither `partition_types` nor the schema has the column.
        """
        types = dict(self.partition_types)
        index = self.schema.get_field_index(column)
        return types.get(column, self.schema.field(index).type if index >= 0 else pa.string())

    @property
    def reference(self) -> SnapshotReference:
        """The identity of this snapshot."""
        return SnapshotReference(self.id, self.committed_at)


@dataclass(frozen=True)
class Snapshot(SnapshotMetadata):
    """One committed state of a table: schema, partitions and fragments."""

    fragments: tuple[Fragment, ...] = field(kw_only=True)
    """Sorted by (partition_key, id). Ids are distinct, and so are pairs of partition key and path."""


class UnstreamableError(TableFormatError):
    """Raised while fragments are streamed, if a format cannot yield them one by one.

    For example, a snapshot lists a data file twice. Call `TableFormat.snapshot` instead, which reads all fragments
    together. It returns the snapshot, or raises the error to report to the user.
    """


@dataclass(frozen=True)
class SortedFragments:
    """The fragments of a snapshot in encoded form, sorted by partition key and path.

    Each fragment is encoded as one row, and `decode` converts a row back to its fragment. These rows can be read
    several times, and are not all in memory.
    """

    count: int
    """Number of fragments."""
    rows: Callable[[], Iterator[tuple[str, str, Any]]]
    """Yields key, id and encoded fragment, by ascending key. The key is `store.version.fragment_key` of the partition
    key and the path."""
    decode: Callable[[Any], Fragment]
    """Returns the fragment that a row encodes."""


@dataclass(frozen=True)
class SnapshotStream:
    """One committed state of a table.

    Its fragments are read one after the other.
    """

    metadata: SnapshotMetadata
    fragments: Iterator[Fragment]
    """The fragments of the snapshot, in any order. They can be iterated once. The iteration raises the errors of
    `TableFormat.snapshot`, and UnstreamableError."""
    snapshot: Snapshot | None = None
    """The snapshot with all of its fragments, if the format has read them all before it can yield the first one."""
    sorted_fragments: SortedFragments | None = None
    """The same fragments as sorted rows, if the format sorts them."""

    def read_all(self) -> Snapshot:
        """Return the snapshot with all of its fragments in memory.

        If they are not in memory yet, this consumes the iterator `fragments`.
        """
        if self.snapshot is not None:
            return self.snapshot
        sorted_fragments = sorted(self.fragments, key=fragment_order)
        return Snapshot(**vars(self.metadata), fragments=tuple(sorted_fragments))

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotStream:
        """Return the stream of a snapshot that is in memory."""
        metadata = SnapshotMetadata(
            **{attribute.name: getattr(snapshot, attribute.name) for attribute in fields(SnapshotMetadata)}
        )
        return cls(metadata, iter(snapshot.fragments), snapshot)


FragmentPath: TypeAlias = tuple[str, str]
"""Partition key and path of a fragment. A snapshot has at most one fragment with the same pair."""


@dataclass(frozen=True)
class SnapshotDiff:
    """The difference between two snapshots of one table, in fragments.

    If the data file, deletes or partition of a fragment change, another fragment replaces it. Both snapshots have the
    same schema, partition columns and selection of partitions.
    """

    since: SnapshotReference
    """The older snapshot."""
    current: SnapshotMetadata
    """The newer snapshot, without its fragments."""
    added: tuple[Fragment, ...]
    """Fragments of the newer snapshot that commits in between added, sorted by (partition_key, id).

    The older snapshot has some of them, too, if a commit added them again.
    """
    removed: frozenset[FragmentPath]
    """Fragments that only the older snapshot has. An added fragment also replaces an older one with the same partition
    key and path, whether it is listed here or not."""
    possibly_removed: frozenset[FragmentPath] = frozenset()
    """Fragments that the commits in between both added and removed. The newer snapshot does not have them. The older
    one has them only if a commit added them again."""
    replaced: frozenset[FragmentPath] | None = None
    """Fragments of the older snapshot with the partition key and path of an added one; None if the format does not
    report them. If the older snapshot has further such fragments, the table lists a file twice, and the difference may
    be wrong."""


@dataclass(frozen=True)
class NoDiff:
    """The reason why a format cannot report the changes since a snapshot.

    The caller then compares complete snapshots.
    """

    reason: str
    """For people, such as `the log no longer has version 12`. It completes the sentence "All fragments are compared,
    because …", and quotes no values of rows."""


class NoDiffError(Exception):
    """Raised if the difference of two snapshots cannot be determined.

    The message becomes `NoDiff.reason`.
    """


class TableFormat(Protocol):
    """A table of one format.

    The configuration's `at` selects the state of the table; without `at`, it is the newest state.
    """

    @abstractmethod
    def snapshot_id(self) -> str:
        """Return the id of the snapshot that `snapshot()` would return now.

        Little is read, because sensors call this method often.
        """

    @abstractmethod
    def current(self) -> SnapshotReference:
        """Return the id and commit time of the snapshot that `snapshot()` would return now.

        Little is read, because sensors call this method often.
        """

    @abstractmethod
    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return how the table got from one snapshot to another: "recreated" or "rolled back", for example.

        The result is None if there were only ordinary commits, or if the kind of change is not known.

        Args:
            previous: the snapshot that was current at an earlier time.
            current: the snapshot that was current at a later time. After a rollback, it may be older than `previous`.
        """

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the table's snapshot, with the partitions that the configuration selects.

        Only metadata are read. CSV and JSON files, which have none, may be read completely.

        Raises:
            TableNotFoundError: there is no table.
            SnapshotNotFoundError: the table does not have the state that the configuration's `at` names.
            TableFormatError: the metadata cannot be read.
        """

    def stream(self) -> SnapshotStream:
        """Return the table's snapshot as a stream of fragments.

        This implementation calls `snapshot`, which holds all fragments in memory. Formats may override it.

        Raises the errors of `snapshot`.
        """
        return SnapshotStream.of(self.snapshot())

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        """Return the difference between an earlier snapshot and the one that `snapshot()` would return now.

        The work depends on the commits in between, not on the size of the table. The result of a format that does not
        override this method is a `NoDiff`. If `current()` was called just before, the difference may end at the
        snapshot that `current()` returned.

        Args:
            since: a snapshot that was current before.

        Raises:
            TableNotFoundError: there is no table.
            SnapshotNotFoundError: the table does not have the state that the configuration's `at` names.
            TableFormatError: the metadata cannot be read.
        """
        return NoDiff("this format records no differences")

    def find_fragments(self, paths: Collection[FragmentPath]) -> list[Fragment]:
        """Return the fragments of the current snapshot with these partition keys and paths, in any order.

        Paths that the snapshot does not have are omitted. This implementation reads the stream of all fragments, and
        keeps only those that match.

        Raises the errors of `snapshot`.
        """
        try:
            return _select_fragments(self.stream().fragments, paths)
        except UnstreamableError:
            return _select_fragments(self.snapshot().fragments, paths)

    @abstractmethod
    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the partition columns, without reading data files.

        Raises the errors of `snapshot`.
        """

    @abstractmethod
    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return the null count, minimum and maximum of a leaf column in each fragment.

        They come from the format's metadata; data files are not read.

        Args:
            snapshot: a snapshot of this table.
            column: dotted path of a leaf column, which is a column without children.

        Returns:
            One row per fragment of the snapshot, in its order; see `bounds.bounds_table`.

        Raises:
            KeyError: the snapshot has no such leaf column.
        """


def _select_fragments(fragments: Iterable[Fragment], paths: Collection[FragmentPath]) -> list[Fragment]:
    requested_paths = frozenset(paths)
    return [fragment for fragment in fragments if (fragment.partition_key, fragment.path) in requested_paths]


def retry_while_files_are_removed(read: Callable[[], T]) -> T:
    """Return the result of a function that lists files of metadata and then reads them.

    If a writer removes a listed file meanwhile, such as an old checkpoint, the function raises FileNotFoundError. Then
    the function is called again. There are at most three calls; if the third one fails too, its error is raised.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()


def state_not_found(table: str, at: str, choices: str, examples: Iterable[object]) -> SnapshotNotFoundError:
    """Return the error for an option `at` that names no state of the table.

    Args:
        table: URI of the table.
        at: the requested state.
        choices: a text that precedes the examples in the message, such as `its stored versions are later`.
        examples: states that the table has. The message shows all of them if there are at most 20; otherwise, the
            first and the last ten.
    """
    texts = [str(example) for example in examples]
    shown_choices = ", ".join(texts if len(texts) <= 20 else [*texts[:10], "…", *texts[-10:]]) or "none"
    return SnapshotNotFoundError(f"{table} has no state {at!r}; {choices}: {shown_choices}")
