"""The rows of a version that a predicate is true of, asked as the table is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Protocol

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import NotKeptError
from metastore_assets.lookup.answers import AsOf, Statistics, names_of
from metastore_assets.lookup.distributed import HistogramAnswers
from metastore_assets.lookup.listed import ListedAnswers
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.lookup.values import ColumnValues
from metastore_assets.statistics.spread import Spread
from metastore_assets.store.manifest import PartitionEntry, Version

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import Predicate
    from metastore_assets.lookup.scope import Scope
    from metastore_assets.lookup.table import Table
    from metastore_assets.value_counts import ListReader

_OPEN_PROFILES = 32


class ScopeReader(Protocol):
    """Reads what is in a scope: stored profiles, and of the table the fragments that are cut."""

    def profile(self, scope: Scope, partition: str | None) -> Profile:
        """The profile of a scope, or of its part in a partition, which `scope` is then. Raises NotKeptError."""

    def cut_rows(self, scope: Scope, partition: str | None) -> int:
        """How many rows are meant in the fragments that are cut. Raises NotKeptError."""

    def cost(self) -> tuple[int, int]:
        """How many fragments of the table were read so far, and how many bytes of them."""


@dataclass(frozen=True)
class ReadCost:
    """What was read of the table for the answers so far."""

    fragments_read: int
    bytes_read: int
    """Of the table's data files."""
    fragments_total: int
    """Of the version."""


class FilteredView(ListedAnswers, HistogramAnswers):
    """Answers about the rows of a version that a predicate is true of. Safe to share.

    Answers say by themselves what they are worth: exact where values are listed, of others estimates, as those of a
    table; so do user-defined statistics, which are absent where their class was not named to `open_table`, with that as
    the reason. With `partition` they are of that partition's part of the rows.
    """

    def __init__(self, lookup: Table, predicate: Predicate, scope: Scope, reader: ScopeReader) -> None:
        self.predicate = predicate
        self.scope = scope
        self._lookup = lookup
        self._objects = lookup._objects
        self._version = lookup.version
        self._reader = reader
        self._lock = RLock()
        self._columns = OrderedDict()
        self._profiles: OrderedDict[str | None, Profile] = OrderedDict()

    @property
    def version(self) -> Version:
        """The version that all answers are of."""
        return self._version

    @property
    def as_of(self) -> AsOf:
        """The same, as every answer carries it."""
        return self._lookup.as_of

    @property
    def rows(self) -> tuple[int, int]:
        """At least and at most so many rows, both inclusive. Reads nothing."""
        return self.scope.rows

    @property
    def cost(self) -> ReadCost:
        """What was read of the table for the answers so far."""
        read, size = self._reader.cost()
        return ReadCost(read, size, self.scope.fragments_total)

    def partitions(self) -> list[PartitionEntry]:
        """The partitions that such rows may be in, in the order of the version."""
        both = (*self.scope.partitions, *self.scope.cut_partitions)
        return sorted(both, key=lambda entry: entry.key)

    @files_there
    def row_count(self, partition: str | None = None) -> int:
        """How many rows there are, exactly. Raises NotKeptError, PartitionNotFoundError."""
        scope = self._within(partition)
        if not scope.cut:
            return scope.row_count
        if partition is None and scope.rows[0] == scope.rows[1]:
            return scope.rows[0]
        return scope.row_count + self._reader.cut_rows(scope, partition)

    @files_there
    def statistics(self, columns: Iterable[str] | None = None, partition: str | None = None) -> Statistics:
        """Statistics of all leaf columns in table order, or of those named in the order given.

        Raises NotKeptError, ColumnNotFoundError, PartitionNotFoundError, FragmentError.
        """
        wanted = None if columns is None else names_of(columns)
        for column in wanted or ():
            self._check(column)
        rows = self._profile(partition).statistics(wanted)
        return Statistics(rows, None if partition is None else [partition] * len(rows), self.as_of)

    @files_there
    def spreads(self) -> dict[str, Spread]:
        """How the values of all columns spread of which that is known, by name."""
        rows = [row for row in self.statistics() if row.frequencies in ("enumerated", "repeated")]
        return {row.column: self.spread(row.column) for row in rows if row.duplicate_count is not None}

    def value_files(self, column: str) -> list[str]:
        """Raises NotKeptError: there are files of the whole table only."""
        raise NotKeptError(f"the values of {self._named(column)} are in files of the whole table only")

    @lock_free_cached_property
    def _lists(self) -> ListReader:
        return self._lookup._lists

    def _places(self) -> Sequence[PartitionEntry]:
        return self.partitions()

    def _named(self, column: str) -> str:
        return self._lookup._named(column)

    def _check(self, column: str) -> None:
        self._lookup._check(column)

    def _lists_of(self, partition: str | None) -> tuple[bool, bool]:
        return True, False

    def _values(self, column: str, partition: str | None) -> ColumnValues:
        if self.scope.is_everything:
            return self._lookup._values(column, partition)
        return super()._values(column, partition)

    def _profile(self, partition: str | None) -> Profile:
        if self.scope.is_everything:
            return self._lookup._profile(partition)
        with self._lock:
            if partition not in self._profiles:
                self._profiles[partition] = self._reader.profile(self._within(partition), partition)
                if len(self._profiles) > _OPEN_PROFILES:
                    self._profiles.popitem(last=False)
            self._profiles.move_to_end(partition)
            return self._profiles[partition]

    def _within(self, partition: str | None) -> Scope:
        if partition is None:
            return self.scope
        self._lookup._partition(partition)
        return self.scope.within(partition)
