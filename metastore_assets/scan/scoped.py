"""The rows of a version that a predicate is true of, asked as the table is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from metastore_assets.config import KeptPolicy, TableConfig
from metastore_assets.errors import NotKeptError
from metastore_assets.lookup import AsOf, Statistics, TableLookup
from metastore_assets.lookup.distributed import HistogramAnswers
from metastore_assets.lookup.listed import ListedAnswers
from metastore_assets.lookup.predicates import Predicate
from metastore_assets.lookup.predicates.text import short_text
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.lookup.scope import Scope, scope_of
from metastore_assets.lookup.values import ColumnValues
from metastore_assets.scan.cutting import CutFragments
from metastore_assets.scan.merged import MergedProfile
from metastore_assets.scan.work import StartSpark
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.leaves import LeafColumn
from metastore_assets.statistics.profile import HIDDEN
from metastore_assets.statistics.spread import Spread
from metastore_assets.store.manifest import PartitionEntry, Version

if TYPE_CHECKING:
    from metastore_assets.lists import ListReader

_OPEN_PROFILES = 32


@dataclass(frozen=True)
class ScopeCost:
    """What was read of the table for the answers so far."""

    fragments_read: int
    bytes_read: int
    """Of the table's data files."""
    fragments_total: int
    """Of the version."""


class ScopedLookup(ListedAnswers, HistogramAnswers):
    """Answers about the rows of a version that a predicate is true of. Safe to share.

    Answers say by themselves what they are worth: exact where values are listed, of others estimates, as those of a
    table. User-defined statistics are not among them. With `partition` they are of that partition's part of the rows.
    """

    def __init__(
        self, lookup: TableLookup, predicate: Predicate, table: TableConfig | None, spark: StartSpark | None
    ) -> None:
        """`table`: where fragments are read that the predicate cuts; None where nothing may be read."""
        self.predicate = predicate
        self.scope = scope_of(lookup.pruned(predicate), lookup.find_partition)
        self._lookup = lookup
        self._objects = lookup._objects
        self._version = lookup.version
        self._table = table
        self._spark = spark
        self._lock = RLock()
        self._columns = OrderedDict()
        self._profiles: OrderedDict[str | None, Profile] = OrderedDict()
        self._cuts: OrderedDict[str | None, CutFragments] = OrderedDict()

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
    def cost(self) -> ScopeCost:
        """What was read of the table for the answers so far."""
        cuts = list(self._cuts.values())
        read = max((own.fragments_read for own in cuts), default=0)
        return ScopeCost(read, sum(own.bytes_read for own in cuts), self.scope.fragments_total)

    def partitions(self) -> list[PartitionEntry]:
        """The partitions that such rows may be in, in the order of the version."""
        both = (*self.scope.partitions, *self.scope.cut_partitions)
        return sorted(both, key=lambda entry: entry.key)

    def row_count(self, partition: str | None = None) -> int:
        """How many rows there are, exactly. Raises NotKeptError, PartitionNotFoundError."""
        scope = self._within(partition)
        if not scope.cut:
            return scope.row_count
        if partition is None and scope.rows[0] == scope.rows[1]:
            return scope.rows[0]
        return scope.row_count + self._cut(partition).row_count

    def statistics(self, columns: Iterable[str] | None = None, partition: str | None = None) -> Statistics:
        """Statistics of all leaf columns in table order, or of those named in the order given.

        Raises NotKeptError, ColumnNotFoundError, PartitionNotFoundError, FragmentError.
        """
        wanted = None if columns is None else list(columns)
        for column in wanted or ():
            self._check(column)
        rows = self._profile(partition).statistics(wanted)
        return Statistics(rows, None if partition is None else [partition] * len(rows), self.as_of)

    def spreads(self) -> dict[str, Spread]:
        """How the values of all listed columns spread, by name."""
        rows = self.statistics()
        return {row.column: self.spread(row.column) for row in rows if row.frequencies == "listed"}

    def value_files(self, column: str) -> list[str]:
        """Raises NotKeptError: there are files of the whole table only."""
        raise NotKeptError(f"the values of {self._named(column)} are in files of the whole table only")

    @cached_property
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
        is_stored, key = self._stored(partition)
        return self._lookup._values(column, key) if is_stored else super()._values(column, partition)

    def _profile(self, partition: str | None) -> Profile:
        is_stored, key = self._stored(partition)
        if is_stored:
            return self._lookup._profile(key)
        with self._lock:
            if partition not in self._profiles:
                self._profiles[partition] = self._merged(partition)
                if len(self._profiles) > _OPEN_PROFILES:
                    self._profiles.popitem(last=False)
            self._profiles.move_to_end(partition)
            return self._profiles[partition]

    def _stored(self, partition: str | None) -> tuple[bool, str | None]:
        """Whether there is a profile of just these rows, and of which partition; None: of the table."""
        scope = self._within(partition)
        if scope.is_everything:
            return True, None
        if len(scope.partitions) == 1 and not scope.cut_partitions:
            return True, scope.partitions[0].key
        return False, None

    def _within(self, partition: str | None) -> Scope:
        if partition is None:
            return self.scope
        self._lookup._partition(partition)
        return self.scope.within(partition)

    def _merged(self, partition: str | None) -> MergedProfile:
        scope = self._within(partition)
        files = [own.files for own in scope.partitions] + [own.files for own in scope.fragments]
        cut = self._cut(partition) if scope.cut else None
        return MergedProfile(self._objects, self._lookup._leaves, self._policies, files, cut)

    def _cut(self, partition: str | None) -> CutFragments:
        with self._lock:
            if partition not in self._cuts:
                scope = self._within(partition)
                if self._table is None:
                    raise NotKeptError(self._why_not(scope))
                own = CutFragments(self._lookup, self.predicate, scope, self._table, self._spark)
                self._cuts[partition] = own
            return self._cuts[partition]

    def _why_not(self, scope: Scope) -> str:
        by = " and ".join(map(repr, self._version.partition_columns))
        return (
            f"table {self._version.table!r}: {short_text(self.predicate)} may be true of some of the rows of "
            f"{len(scope.cut):,} of {scope.fragments_total:,} files, such as {scope.cut[0].path}, and what is "
            f"kept tells them not apart: choose whole partitions{f', by {by}' if by else ''}, or let these files be "
            "read, with `filter(…, read=True)`"
        )

    def _policies(self, leaves: Sequence[LeafColumn]) -> list[KeptPolicy]:
        """What is kept of columns, as far as it shows."""
        rows = self._lookup.statistics([leaf.path for leaf in leaves])
        return [self._policy(row) for row in rows]

    def _policy(self, row: ColumnStatistics) -> KeptPolicy:
        if row.reason == HIDDEN:
            return KeptPolicy(values="hidden")
        kept = self._lookup._profile(None).histogram(row.column)
        frequencies = {"listed": "all", "repeated": "repeated", "off": "off"}.get(row.frequencies, "estimated")
        return KeptPolicy(
            frequencies=frequencies,
            algorithm="fingerprints" if frequencies == "repeated" else "auto",
            histogram="off" if kept is None else kept.capacity // 2,
            quantiles="off" if row.percentiles is None else "sketch",
        )
