"""Filtered views: the rows of a version that match a predicate, with the same methods as the table.

A fragment is a data file of the table, together with the deletes that apply to it. A version has the statistics of one
snapshot of the table. A profile is the statistics and values of some rows. Value counts are the distinct values of a
column with their frequencies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Protocol

import numpy as np

from metastore_assets.errors import CorruptionError, NotStoredError
from metastore_assets.lookup.histograms import Histograms
from metastore_assets.lookup.profiles import Profile
from metastore_assets.lookup.relation import PARTITION_SCHEMA, Relation, explain_missing_files
from metastore_assets.lookup.results import AsOf, Count, ReadCost, ResultSet
from metastore_assets.lookup.statistics_rows import statistics_rows
from metastore_assets.lookup.value_counts import ValueCounts
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import SpreadCounts
from metastore_assets.statistics.profile_tables import with_partition
from metastore_assets.store.entries import find_fragments, find_partitions
from metastore_assets.store.version import FragmentEntry, PartitionEntry, Version

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import Predicate
    from metastore_assets.lookup.pruning import Pruning
    from metastore_assets.lookup.table import Table

_OPEN_PROFILES = 32


@dataclass(frozen=True)
class FilterMatch:
    """The partitions and fragments of a version that match a predicate.

    They match entirely (`full_…`) or partly (`partial_…`). Partitions and fragments that certainly have no matching row
    are missing.
    """

    full_partitions: tuple[PartitionEntry, ...]
    """Partitions whose rows all match, in ascending order of keys."""
    full_fragments: tuple[FragmentEntry, ...]
    """Fragments in `partial_partitions` whose rows all match, in ascending order of keys."""
    partial_fragments: tuple[FragmentEntry, ...]
    """Fragments in `partial_partitions` with rows that may match. Stored statistics do not show which rows."""
    partial_partitions: tuple[PartitionEntry, ...]
    """Partitions that match partly, in ascending order of keys."""
    row_bounds: tuple[int, int]
    """The least and the greatest possible number of matching rows, both inclusive."""
    is_table: bool
    """Whether all rows of the version match."""
    fragments_total: int
    """The number of fragments of the version."""

    @property
    def full_row_count(self) -> int:
        """The number of rows in the partitions and fragments that match entirely."""
        partition_rows = sum(entry.row_count for entry in self.full_partitions)
        return partition_rows + sum(entry.row_count for entry in self.full_fragments)

    def within(self, partition: str) -> FilterMatch:
        """Return the match restricted to one partition, with `is_table` false.

        `row_bounds` and `fragments_total` are still those of the whole version.
        """
        return replace(
            self,
            full_partitions=tuple(entry for entry in self.full_partitions if entry.key == partition),
            full_fragments=tuple(entry for entry in self.full_fragments if entry.partition_key == partition),
            partial_fragments=tuple(entry for entry in self.partial_fragments if entry.partition_key == partition),
            partial_partitions=tuple(entry for entry in self.partial_partitions if entry.key == partition),
            is_table=False,
        )


def match_filter(pruning: Pruning) -> FilterMatch:
    """Return which partitions and fragments match a predicate, entirely or partly.

    Args:
        pruning: The fragments that may match the predicate: a result of `Pruner.prune`. A limit that was given to
            `prune` has no effect.

    Raises:
        CorruptionError: The index has fragments that the version does not have.
    """
    version, keys = pruning.version, pruning.partition_keys()
    is_full, may_match = pruning.bounds.least == pruning.row_counts, pruning.bounds.most > 0
    names, codes = keys.dictionary.to_pylist(), keys.indices.to_numpy()
    # By partition: whether a fragment may match.
    has_matches = np.bincount(codes, may_match, len(names)) > 0
    # Not all fragments of a partition are selected, so its row count tells whether all of its rows match.
    full_rows = np.bincount(codes, np.where(is_full, pruning.row_counts, 0), len(names)).astype(np.int64)
    matching_rows = {names[at]: int(full_rows[at]) for at in np.flatnonzero(has_matches)}
    partitions = find_partitions(version, matching_rows.keys())
    partial_keys = {entry.key for entry in partitions if matching_rows[entry.key] != entry.row_count}
    fragments: tuple[FragmentEntry, ...] = ()
    full_by_id: dict[str, bool] = {}
    if partial_keys:
        mask = np.array([name in partial_keys for name in names], np.bool_)[codes] & may_match
        full_by_id = dict(zip(pruning.ids(mask), is_full[mask].tolist(), strict=True))
        fragments = tuple(entry for entry in find_fragments(version, partial_keys) if entry.id in full_by_id)
        if len(fragments) != len(full_by_id):
            raise CorruptionError(
                f"table {version.table!r}, version {version.number}: its index has fragments that the version lacks; "
                f"rebuild with `metastore refresh {version.table} --full`"
            )
    return FilterMatch(
        full_partitions=tuple(entry for entry in partitions if entry.key not in partial_keys),
        full_fragments=tuple(entry for entry in fragments if full_by_id[entry.id]),
        partial_fragments=tuple(entry for entry in fragments if not full_by_id[entry.id]),
        partial_partitions=tuple(entry for entry in partitions if entry.key in partial_keys),
        row_bounds=pruning.row_bounds,
        is_table=pruning.bounds.total[0] == version.row_count,
        fragments_total=pruning.fragments_total,
    )


class MatchReader(Protocol):
    """A reader of the profiles (statistics and values) of matching rows.

    It merges stored profiles and, if allowed, reads fragments that match partly.
    """

    def profile(self, match: FilterMatch, partition: str | None) -> Profile:
        """Return the profile of the matching rows.

        Args:
            match: The partitions and fragments whose matching rows are profiled. If `partition` is given, `match` must
                have only this partition and its fragments (see `FilterMatch.within`). This is not checked.
            partition: The key of a partition; None for all. Calls for the same partition may share what they read.

        Raises:
            NotStoredError: Fragments match partly, and this reader may not read files.
        """

    def count_partial_rows(self, match: FilterMatch, partition: str | None) -> int:
        """Read the fragments that match partly, and return the number of their matching rows.

        Raises NotStoredError if this reader may not read files.

        Args:
            match: The match, of which only `partial_fragments` are read. If `partition` is given, they must all be in
                this partition (see `FilterMatch.within`). This is not checked.
            partition: The key of a partition; None for all. Calls for the same partition may share what they read.
        """

    def cost(self) -> tuple[int, int]:
        """Return (number of fragments read, bytes read) so far."""


class _MatchProfiles:
    """The profiles of a filtered view: of all matching rows, and of the matching rows of each partition."""

    def __init__(self, table: Table, match: FilterMatch, reader: MatchReader) -> None:
        self._table = table
        self._match = match
        self._reader = reader
        self._lock = RLock()
        self._open: OrderedDict[str | None, Profile] = OrderedDict()

    def profile(self, partition: str | None) -> Profile:
        """Return the profile of the matching rows in a partition, or in all partitions for None.

        If all rows of the version match, this is the stored profile of the table or partition. The most recently used
        profiles are cached.

        Raises:
            NotStoredError: Data files would have to be read, but this view may not read them.
            PartitionNotFoundError: There is no such partition.
        """
        if self._match.is_table:
            return self._table.profiles.profile(partition)
        with self._lock:
            if partition not in self._open:
                self._open[partition] = self._reader.profile(self.within(partition), partition)
                if len(self._open) > _OPEN_PROFILES:
                    self._open.popitem(last=False)
            self._open.move_to_end(partition)
            return self._open[partition]

    def stores_value_counts(self, partition: str | None) -> bool:
        return self._table.profiles.stores_value_counts(partition) if self._match.is_table else True

    def is_table(self, partition: str | None) -> bool:
        return self._match.is_table and self._table.profiles.is_table(partition)

    def partitions(self) -> Sequence[PartitionEntry]:
        entries = (*self._match.full_partitions, *self._match.partial_partitions)
        return sorted(entries, key=lambda entry: entry.key)

    def within(self, partition: str | None) -> FilterMatch:
        return self._match if partition is None else self._match.within(self._table.profiles.partition(partition).key)


class FilteredView(Relation):
    """The rows of a version that match a predicate.

    With the argument `partition`, methods answer for the matching rows in that partition. As for a table, answers are
    exact if there are value counts, and otherwise estimates.

    A user-defined statistic is computed only if its class is of this package, or is named in the call of `open_table`
    or in the configuration. Otherwise, the statistic is absent, with a reason.
    """

    def __init__(self, table: Table, predicate: Predicate, match: FilterMatch, reader: MatchReader) -> None:
        """Create a view of the matching rows.

        Args:
            table: The table as of a version.
            predicate: The predicate, bound to the table's columns.
            match: The partitions and fragments that match the predicate.
            reader: The reader of the profiles of matching rows.
        """
        self.predicate = predicate
        self.match = match
        self._table = table
        self._version = table.version
        self._columns = table.columns
        self._reader = reader
        self._profiles = _MatchProfiles(table, match, reader)
        self.value_counts = ValueCounts(table.version, table.columns, self._profiles, lambda: table.value_counts.reader)
        self.histograms = Histograms(table.columns, self._profiles, self.value_counts, AsOf.of(table.version))

    def __repr__(self) -> str:
        """Return one line with the table, the predicate and bounds of the number of rows.

        No file is read.
        """
        least, most = self.row_bounds
        rows = f"{least:,} rows" if least == most else f"{least:,} to {most:,} rows"
        version = self._version
        predicate = self.predicate.to_short_sql()
        return f"<FilteredView of table {version.table!r}, version {version.number}: {predicate}, {rows}>"

    @property
    def version(self) -> Version:
        """The version whose rows are filtered."""
        return self._version

    @property
    def row_bounds(self) -> tuple[int, int]:
        """The least and the greatest possible number of matching rows, both inclusive.

        No file is read.
        """
        return self.match.row_bounds

    @property
    def cost(self) -> ReadCost:
        """What was read of the table's data files so far to answer calls of this view."""
        fragments, size = self._reader.cost()
        return ReadCost(fragments, size, self.match.fragments_total)

    def partitions(self) -> ResultSet[PartitionEntry]:
        """Return the partitions that may have matching rows, in ascending order of keys.

        Row counts and bytes are those of the complete partitions.
        """
        return ResultSet(self._profiles.partitions(), self.as_of, PARTITION_SCHEMA)

    def resolve_partition(self, partition: str) -> str:
        """Return the key of the only partition of the table that a text selects.

        See `Relation.resolve_partition`.
        """
        return self._table.resolve_partition(partition)

    @explain_missing_files
    def count(self, *, partition: str | None = None) -> Count:
        """Return the exact number of matching rows, in all partitions or in one.

        Reads data files that match partly, unless stored statistics give the number.

        Raises:
            NotStoredError: Data files would have to be read, but this view may not read them.
            PartitionNotFoundError: `partition` selects no partition, or several.
            FragmentError: A data file cannot be read.
        """
        partition = self._partition_key(partition)
        match = self._profiles.within(partition)
        if not match.partial_fragments:
            rows = match.full_row_count
        elif partition is None and match.row_bounds[0] == match.row_bounds[1]:
            rows = match.row_bounds[0]
        else:
            rows = match.full_row_count + self._reader.count_partial_rows(match, partition)
        return Count(rows, "exact", self.as_of, self.cost)

    @explain_missing_files
    def statistics(
        self, columns: Iterable[str] | None = None, *, partition: str | Iterable[str] | None = None
    ) -> ResultSet[ColumnStatistics]:
        """Return statistics over the matching rows, with one row per column or nested field.

        With `partition`, the result has one row per partition and column.

        Args:
            columns: Dotted paths of columns or nested fields, in the order of the result; None for all, in table order.
            partition: As for `Table.statistics`.

        Raises:
            NotStoredError: Data files would have to be read, but this view may not read them.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: `partition` selects no partition.
            FragmentError: A data file cannot be read.
        """
        names = self._columns.resolve(columns)
        if partition is None:
            return statistics_rows(self._profiles.profile(None).statistics(names), self.as_of)
        rows = [
            with_partition(row, key)
            for key in self._table.profiles.matching_keys(partition)
            for row in self._profiles.profile(key).statistics(names)
        ]
        return statistics_rows(rows, self.as_of)

    def _spreads(self) -> Mapping[str, SpreadCounts]:
        rows = [row for row in self.statistics() if row.frequencies in ("enumerated", "repeated")]
        return {row.column: self.value_counts.spread(row.column) for row in rows if row.duplicate_count is not None}

    def value_files(self, column: str) -> list[str]:
        """Raise NotStoredError, because files have only the values of the whole table."""
        raise NotStoredError(f"the values of {self._columns.subject(column)} are in files of the whole table only")
