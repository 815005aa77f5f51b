"""Pruning: the fragments of a version that may match a predicate, and why the others do not.

A fragment is a data file of the table, together with the deletes that apply to it. A conjunct is one of the conditions
that `and` joins in a predicate. A leaf is a condition on one column. A value filter has short hashes of a column's
values in one fragment, to exclude fragments that lack a value. Value counts are the distinct values of a column with
their frequencies, in the table or in each partition. A version has the statistics of one snapshot of the table. The
index of a version has bounds of columns for each fragment. A large index also has them for each zone, which is a group
of fragments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.elimination import eliminating_statistics, eliminating_value
from metastore_assets.expressions.predicates import (
    BoundColumn,
    Leaf,
    Predicate,
    referenced_columns,
)
from metastore_assets.expressions.row_bounds import (
    ColumnBounds,
    Mask,
    RowBounds,
    RowCounts,
    bound_conjunction,
)
from metastore_assets.index import BoundedRows, IndexReader, IndexSelection
from metastore_assets.index.fragment_index import join_keys
from metastore_assets.lookup.arguments import integer_argument
from metastore_assets.lookup.buckets import compute_buckets, match_buckets
from metastore_assets.lookup.profiles import TableProfiles
from metastore_assets.lookup.relation import explain_missing_files
from metastore_assets.lookup.results import AsOf, Count, ResultSet
from metastore_assets.lookup.value_counts import ValueCounts
from metastore_assets.lookup.version_references import VersionColumns
from metastore_assets.startup import pc
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.storage.io_counters import count_io
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.values.physical import array_of

if TYPE_CHECKING:
    from metastore_assets.index.value_filters import ValueFilterReader
    from metastore_assets.lookup.clustering import ColumnClustering
    from metastore_assets.lookup.selectivity import Estimate, HistogramBins

_MAX_ROWS = np.iinfo(np.int64).max
_CACHED_DISTRIBUTIONS = 16
"""Maximum number of columns whose distributions are cached."""
_FRAGMENT_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition_key", pa.string()),
        *((name, pa.int64()) for name in ("bytes", "row_count", "least", "most")),
    ]
)
_ELIMINATION_SCHEMA = pa.schema(
    [("conjunct", pa.string()), ("statistic", pa.string()), ("fragments", pa.int64()), ("bytes", pa.int64())]
)
_ELIMINATED_SCHEMA = pa.schema([(name, pa.string()) for name in ("path", "conjunct", "statistic", "value")])
_MAX_FILTERED_VALUES = 128
"""Maximum number of values of one `in` that are looked up in value filters. For so many values that do not occur, 63 %
of the filters report a match by chance."""


class Pruner:
    """A pruner of the fragments of one version.

    It also estimates numbers of matching rows. Threads may share it.
    """

    def __init__(
        self,
        objects: ObjectStore,
        version: Version,
        columns: VersionColumns,
        profiles: TableProfiles,
        value_counts: ValueCounts,
    ) -> None:
        """Create the pruner of a version; nothing is read yet.

        Args:
            objects: The table's folder.
            version: The version.
            columns: The columns of the version.
            profiles: The stored profiles, whose distributions `estimate` uses.
            value_counts: The value counts. `prune` uses them for `=` and `in`, `estimate` for all conditions.
        """
        self._objects = objects
        self.version = version
        self._columns = columns
        self._profiles = profiles
        self._value_counts = value_counts
        self._distributions: dict[str, _ColumnDistribution] = {}

    def predicate(self, where: str | pc.Expression) -> Predicate:
        """Parse a predicate, and bind it to the columns of the version.

        Errors are those of `Table.predicate`.
        """
        return parse_predicate(where, self.version.table, self._columns.all)

    @explain_missing_files
    def prune(self, predicate: Predicate, unknown_columns: Collection[str] = (), limit: int | None = None) -> Pruning:
        """Return the fragments that may have rows that match a predicate.

        Args:
            predicate: A predicate that is bound to columns and types.
            unknown_columns: Field ids of columns that were added since the version, or have another type now. Their
                statistics in this version are ignored.
            limit: The number of matching rows that are needed, at least 0; None for all. With a limit, the result is
                the fewest fragments that together certainly have so many matching rows. If even all fragments
                together might have fewer, the result is all fragments that may match.

        Raises:
            ValueError: The limit is negative, or no whole number.
            CorruptionError: The version has no index.
        """
        limit = None if limit is None else integer_argument("limit", limit, 0)
        return Pruning(self, predicate, unknown_columns, limit)

    def estimate(self, predicate: Predicate) -> Estimate:
        """Return bounds and an estimate of the number of rows that match a predicate."""
        from metastore_assets.lookup.selectivity import estimate_rows

        matching = self.index.exact_row_count(
            list(referenced_columns(predicate)), lambda rows: predicate.bound_rows(rows.row_counts, rows.columns)
        )
        row_bounds = self.prune(predicate).row_bounds if matching is None else (matching, matching)
        return estimate_rows(predicate, self.version, self._distribution, row_bounds)

    def clustering(self, statistics: Sequence[ColumnStatistics]) -> ResultSet[ColumnClustering]:
        """Return one `ColumnClustering` for each row of statistics."""
        from metastore_assets.lookup.clustering import CLUSTERING_SCHEMA, measure_clustering

        return ResultSet(measure_clustering(self.index, statistics), AsOf.of(self.version), CLUSTERING_SCHEMA)

    @lock_free_cached_property
    def index(self) -> IndexReader:
        """The index of the version: statistics by fragment.

        Raises CorruptionError if the version has none.
        """
        if self.version.index is None:
            name = self.version.table
            raise CorruptionError(
                f"version {self.version.number} of table {name!r} has no index; rebuild it with `metastore refresh "
                f"{name} --full`"
            )
        return IndexReader(self._objects, self.version.index)

    def rows_by_partition(self, leaf: Leaf) -> Mapping[str, int] | None:
        """Return {partition key: number of rows that match a leaf}, from value counts by partition.

        Partitions without such rows are missing. The result is None if the leaf is neither `=` nor an `in` with few
        values, or if the column has no value counts by partition.
        """
        values = leaf.equal_values()
        if not values or leaf.column.field_id not in self._columns_by_partition:
            return None
        rows: Counter[str] = Counter()
        column = self._value_counts.column(leaf.column.path)
        for value in values:
            counts = column.partitions_of(value)
            if counts is None:
                return None
            rows.update(dict(counts))
        return rows

    def has_value_filter(self, leaf: Leaf) -> bool:
        """Return whether a leaf is `=` or `in` with few values, and its column has value filters."""
        filters, column = self.version.value_filters, leaf.column
        if filters is None or column.cls is None or column.field_id not in filters.columns:
            return False
        return bool(leaf.equal_values(_MAX_FILTERED_VALUES))

    def fragment_mask(self, leaf: Leaf, selection: IndexSelection) -> Mask:
        """Return for each selected fragment whether its value filter may contain a value that matches a leaf.

        Args:
            leaf: A leaf for which `has_value_filter` is true.
            selection: The selected fragments.
        """
        values, cls = leaf.equal_values(_MAX_FILTERED_VALUES), leaf.column.type_class
        hashes = hash_values(array_of(values), cls)[0]
        keys = join_keys(selection.fragments(("partition_key", "path")))
        return self._value_filters.may_contain(leaf.column.field_id, cls, hashes.tolist(), keys)

    def _distribution(self, column: BoundColumn) -> _ColumnDistribution:
        """Return the distribution of a column, from a cache of bounded size."""
        distribution = self._distributions.get(column.path)
        if distribution is None:
            distribution = _ColumnDistribution(self._profiles, self._value_counts, column.path)
            if len(self._distributions) >= _CACHED_DISTRIBUTIONS:
                self._distributions.clear()
            self._distributions[column.path] = distribution
        return distribution

    @lock_free_cached_property
    def _value_filters(self) -> ValueFilterReader:
        from metastore_assets.index.value_filters import ValueFilterReader

        assert self.version.value_filters is not None
        return ValueFilterReader(self._objects, self.version.value_filters.files)

    @lock_free_cached_property
    def _columns_by_partition(self) -> frozenset[str]:
        """The field ids of the columns with value counts by partition."""
        from metastore_assets.value_counts import read_value_counts

        files = self.version.value_counts
        return frozenset() if files is None else frozenset(read_value_counts(self._objects, files).by_partition)


class _ColumnDistribution:
    """The stored distribution of one column over the whole table, to estimate numbers of matching rows."""

    def __init__(self, profiles: TableProfiles, value_counts: ValueCounts, column: str) -> None:
        self._profile = profiles.profile(None)
        self._values = value_counts.column(column)
        (self.row,) = self._profile.statistics([column])

    @lock_free_cached_property
    def has_exact_ranks(self) -> bool:
        return self._values.has_exact_ranks

    def count_below(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        return self._values.count_below(value, inclusive=inclusive)

    def frequencies(self, values: pa.Array) -> list[Count]:
        return self._values.frequencies(values)

    @lock_free_cached_property
    def bins(self) -> HistogramBins | None:
        from metastore_assets.lookup.selectivity import HistogramBins

        histogram = self._profile.histogram(self.row.column)
        return None if histogram is None or not histogram.type_class.is_ordinal else HistogramBins.of(histogram)


@dataclass(frozen=True)
class PrunedFragment:
    """A fragment that pruning does not eliminate, so that it must be read."""

    path: str
    """The path of the data file, as the version records it."""
    partition_key: str
    bytes: int
    row_count: int
    """The number of rows that are not deleted."""
    least: int
    """The least possible number of matching rows."""
    most: int
    """The greatest possible number of matching rows, at least 1."""


@dataclass(frozen=True)
class EliminatedFragment:
    """A fragment that need not be read."""

    path: str
    conjunct: str
    """The part of the predicate that no row of the fragment matches, as SQL text. If the fragment need not be read
    because of a limit: `limit 100`."""
    statistic: str
    """The statistic that proves it: `minimum`, `maximum`, `null_count`, `nan_count`, `partition` (the values of its
    partition) or `value_filter`. Several names, separated by commas, if only all of them together prove it. `row_count`
    for a fragment without rows, or because of a limit. `constant` for the predicate `false`."""
    value: str | None
    """The value of the statistic in the fragment, as SQL text; None if there is no single value."""


@dataclass(frozen=True)
class Elimination:
    """The number of fragments that one conjunct eliminates by one statistic.

    Fragments that an earlier conjunct eliminates do not count. For fragments that need not be read because of a limit,
    `conjunct` is `limit 100` and `statistic` is `row_count`.
    """

    conjunct: str
    statistic: str
    fragments: int
    bytes: int


@dataclass(frozen=True)
class PruningCost:
    """The numbers of stored files and bytes that a pruning has read.

    They include reads of the index, of value filters and of value counts, but none of data files.
    """

    files: int
    bytes: int


class Pruning:
    """The fragments of a version that may match a predicate, with an explanation of the others.

    The first step tests zones (groups of fragments in the version's index). The bounds of fragments are then read only
    in zones that may match. The result is the *selected* fragments: all that may match by these bounds, and perhaps
    others. If the index is too small for zones, all fragments are selected. The second step decides which selected
    fragments must be read, see `must_read`.

    Paths and explanations are read from the index when they are first accessed. An explanation needs the bounds of all
    fragments.
    """

    def __init__(
        self,
        pruner: Pruner,
        predicate: Predicate,
        unknown_columns: Collection[str] = (),
        limit: int | None = None,
        *,
        selects_all: bool = False,
    ) -> None:
        """Prune the fragments.

        Only the predicate's columns of the index are read, and by default only in zones (groups of fragments) that may
        match. For `=` and short `in`, value filters and value counts by partition are read, too, if several fragments
        may match by their bounds.

        Args:
            pruner: The pruner of the version, which reads the index, the value counts and the value filters.
            predicate: A predicate that is bound to columns and types.
            unknown_columns: Field ids of columns whose statistics in this version are ignored.
            limit: The number of matching rows that are needed, at least 0; None for all. With a limit, only the fewest
                fragments that together certainly have so many matching rows must be read. If all fragments together
                may have fewer, every fragment that may match must be read.
            selects_all: Whether to select all fragments, whatever their bounds are. Zones are then not tested.
        """
        self.version = pruner.version
        self.predicate = predicate
        self.limit = limit
        self._pruner = pruner
        self._unknown_columns = frozenset(unknown_columns)
        columns = [column for column in referenced_columns(predicate) if column.field_id not in unknown_columns]
        with count_io() as meter:
            index = pruner.index
            if selects_all:
                self._selection, rows = index.all, index.all.bounds(columns)
            else:
                self._selection, rows = index.select(columns, self._bound_rows)
            self._row_counts: RowCounts = rows.row_counts
            self._columns = self._with_unknown_columns(rows)
            described_leaves = [leaf for leaf in predicate.leaves() if leaf.column.field_id not in unknown_columns]
            self._caps = {leaf: cap for leaf in described_leaves if (cap := self._cap(leaf, pruner)) is not None}
            self._masks = {leaf: mask for leaf in described_leaves if (mask := self._mask(leaf, pruner)) is not None}
            caps = self._caps_with_masks()
            self._conjunct_bounds = [
                conjunct.bound_rows(self._row_counts, self._columns, caps) for conjunct in predicate.conjuncts()
            ]
        read = meter.counts().read
        self.cost = PruningCost(read.files, read.bytes)
        self.bounds: RowBounds = bound_conjunction(self._conjunct_bounds, self._row_counts)
        """The least and greatest possible number of matching rows of each selected fragment."""

    def __repr__(self) -> str:
        """Return one line with the table, the predicate, and the numbers of fragments and rows."""
        least, most = self.row_bounds
        rows = f"{least:,} rows" if least == most else f"{least:,} to {most:,} rows"
        fragments = f"{self.fragment_count:,} of {self.fragments_total:,} fragments"
        subject = f"table {self.version.table!r}, version {self.version.number}"
        return f"<Pruning of {subject}: {self.predicate.to_short_sql()}, {fragments}, {rows}>"

    @lock_free_cached_property
    def must_read(self) -> Mask:
        """For each selected fragment, whether it must be read.

        The class `Pruning` explains which fragments are selected. Without a limit, a selected fragment must be read if
        it may have matching rows. With a limit, only the fragments that `select_fragments_for_limit` returns must be
        read.
        """
        if self.limit is None:
            return self.bounds.most > 0
        return select_fragments_for_limit(self.bounds, self._sizes, self.limit)

    @property
    def fragments_total(self) -> int:
        """The number of fragments of the version."""
        return self._pruner.index.fragment_count

    @property
    def fragment_count(self) -> int:
        """The number of fragments that must be read."""
        return int(self.must_read.sum())

    @property
    def row_bounds(self) -> tuple[int, int]:
        """The least and the greatest possible number of matching rows in the version, both inclusive."""
        return self.bounds.total

    @property
    def bytes(self) -> int:
        """The total size in bytes of the data files that must be read."""
        return int(self._sizes[self.must_read].sum())

    @property
    def bytes_total(self) -> int:
        """The total size in bytes of all data files."""
        return int(self._complete._sizes.sum())

    def rows_by_id(self) -> dict[str, tuple[int, int, int]]:
        """Return the row count and the bounds on the number of matching rows of each fragment, by id.

        A value is (row count, least number of matching rows, greatest number of matching rows). The ids and bounds of
        all fragments are read.
        """
        complete = self._complete
        ids = complete._read(("id",))["id"].to_pylist()
        columns = (complete._row_counts, complete.bounds.least, complete.bounds.most)
        return dict(zip(ids, zip(*(column.tolist() for column in columns), strict=True), strict=True))

    @property
    def row_counts(self) -> RowCounts:
        """The number of rows of each selected fragment, without deleted rows."""
        return self._row_counts

    def partition_keys(self) -> pa.DictionaryArray:
        """Return the partition key of each selected fragment."""
        return self._read(("partition_key",))["partition_key"].combine_chunks().dictionary_encode()

    def ids(self, mask: Mask) -> list[str]:
        """Return the ids of the selected fragments for which a mask is true, in order.

        The mask has one item per selected fragment, like `must_read`.
        """
        ids: list[str] = self._read(("id",))["id"].filter(pa.array(mask)).to_pylist()
        return ids

    @lock_free_cached_property
    def paths(self) -> list[str]:
        """The paths of the data files that must be read, sorted by partition key, then path."""
        if self._selection.is_sorted:
            all_paths = self._read(("path",))["path"]
            sorted_paths: list[str] = all_paths.filter(pa.array(self.must_read)).to_pylist()
            return sorted_paths
        columns = ("partition_key", "path")
        fragments = self._read(columns).filter(pa.array(self.must_read))
        paths: list[str] = fragments.sort_by([(name, "ascending") for name in columns])["path"].to_pylist()
        return paths

    @lock_free_cached_property
    def fragments(self) -> ResultSet[PrunedFragment]:
        """The fragments that must be read, sorted by partition key, then path."""
        mask = self.must_read
        table = self._read(("path", "partition_key", "bytes", "row_count")).filter(pa.array(mask))
        columns = [column.to_pylist() for column in table.columns]
        bounds = [column[mask].tolist() for column in (self.bounds.least, self.bounds.most)]
        fragments = [PrunedFragment(*row) for row in zip(*columns, *bounds, strict=True)]
        fragments.sort(key=lambda fragment: (fragment.partition_key, fragment.path))
        return ResultSet(fragments, AsOf.of(self.version), _FRAGMENT_SCHEMA)

    @lock_free_cached_property
    def explanation(self) -> ResultSet[Elimination]:
        """The number of fragments that each conjunct eliminates by each statistic.

        Items are in the order of the conjuncts in the predicate, then by decreasing number of fragments. With a
        `limit`, some fragments may be unnecessary to find that many matching rows. If so, the last item counts them.
        """
        if self._complete is not self:
            return self._complete.explanation
        explanation = []
        for conjunct, positions, statistics in self._eliminated():
            names, name_indexes, counts = np.unique(statistics, return_inverse=True, return_counts=True)
            sizes = np.bincount(name_indexes, self._sizes[positions], len(names)).astype(np.int64)
            rows = zip(names.tolist(), counts.tolist(), sizes.tolist(), strict=True)
            eliminations = [Elimination(conjunct.to_short_sql(), *row) for row in rows]
            explanation += sorted(eliminations, key=lambda row: (-row.fragments, row.statistic))
        if len(spare := self._beyond_limit):
            size = int(self._sizes[spare].sum())
            explanation.append(Elimination(f"limit {self.limit}", "row_count", len(spare), size))
        return ResultSet(explanation, AsOf.of(self.version), _ELIMINATION_SCHEMA)

    def eliminated_fragments(self) -> ResultSet[EliminatedFragment]:
        """Return the fragments that need not be read.

        First come the fragments that conjuncts eliminate, then those that are not needed because of the limit.
        """
        if self._complete is not self:
            return self._complete.eliminated_fragments()
        eliminations = []
        paths = self._read(("path",))["path"].to_pylist()
        for conjunct, positions, statistics in self._eliminated():
            text = conjunct.to_short_sql()
            for at, statistic in zip(positions.tolist(), statistics.tolist(), strict=True):
                value = eliminating_value(conjunct, self._columns, statistic, at)
                eliminations.append(EliminatedFragment(paths[at], text, statistic, value))
        for at in self._beyond_limit.tolist():
            limit = f"limit {self.limit}"
            eliminations.append(EliminatedFragment(paths[at], limit, "row_count", str(self._row_counts[at])))
        return ResultSet(eliminations, AsOf.of(self.version), _ELIMINATED_SCHEMA)

    def to_json(self) -> dict[str, object]:
        """Return the JSON document of `prune --json`."""
        return {
            "version": self.version.number,
            "snapshot": self.version.snapshot,
            "predicate": self.predicate.to_sql(),
            **({} if self.limit is None else {"limit": self.limit}),
            "fragments": self.paths,
            "fragments_total": self.fragments_total,
            "rows_lower": self.row_bounds[0],
            "rows_upper": self.row_bounds[1],
            "bytes": self.bytes,
            "bytes_total": self.bytes_total,
            "explanation": [vars(elimination) for elimination in self.explanation],
            "read": vars(self.cost),
        }

    @lock_free_cached_property
    def _sizes(self) -> RowCounts:
        """The size in bytes of each selected fragment."""
        sizes: RowCounts = self._read(("bytes",))["bytes"].to_numpy()
        return sizes

    @explain_missing_files
    def _read(self, columns: Sequence[str]) -> pa.Table:
        """Return columns of the selected fragments (see `Pruning`), with one row per fragment.

        Raises MissingFileError if the version has expired.
        """
        return self._selection.fragments(columns)

    @lock_free_cached_property
    @explain_missing_files
    def _complete(self) -> Pruning:
        """A pruning with equal arguments that selects all fragments, even those in zones that cannot match.

        It is this object itself if it already selects all fragments.
        """
        if self._selection.fragment_count == self.fragments_total:
            return self
        return Pruning(self._pruner, self.predicate, self._unknown_columns, self.limit, selects_all=True)

    def _bound_rows(self, rows: BoundedRows) -> RowBounds:
        """Return bounds on the number of matching rows in each entry of `rows`.

        An entry is a fragment, or a zone of fragments.
        """
        return self.predicate.bound_rows(rows.row_counts, self._with_unknown_columns(rows))

    def _with_unknown_columns(self, rows: BoundedRows) -> dict[str, ColumnBounds]:
        columns = dict(rows.columns)
        for column in referenced_columns(self.predicate):
            if column.field_id in self._unknown_columns:
                columns[column.field_id] = bounds_without_statistics(column, rows.row_counts)
        return columns

    @property
    def _beyond_limit(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero((self.bounds.most > 0) & ~self.must_read)

    def _eliminated(self) -> Iterator[tuple[Predicate, RowCounts, npt.NDArray[np.str_]]]:
        """Yield the fragments that each conjunct eliminates, and the statistics by which it does.

        An item is (conjunct, positions of the fragments, name of the statistic for each of them). Positions count the
        selected fragments from 0. A fragment belongs to the first conjunct that eliminates it. Conjuncts without
        fragments are omitted.
        """
        remaining = self._row_counts >= 0
        for conjunct, bounds in zip(self.predicate.conjuncts(), self._conjunct_bounds, strict=True):
            positions = np.flatnonzero(remaining & (bounds.most == 0))
            if len(positions):
                remaining[positions] = False
                statistics = eliminating_statistics(conjunct, self._columns, self._row_counts, self._caps, self._masks)
                yield conjunct, positions, statistics[positions]

    def _cap(self, leaf: Leaf, pruner: Pruner) -> RowCounts | None:
        """Return, for each selected fragment, an upper bound on the number of its rows that match a leaf.

        The bound is the number of matching rows in the fragment's whole partition, but at most the fragment's number of
        rows. If the column has a bucket transform, the bound is 0 in partitions whose bucket cannot have matching rows.

        Returns:
            The bounds. None if the leaf is neither `=` nor a short `in`, or if the column's bounds leave at most one
            fragment that may match. Also None without value counts by partition and without a bucket transform.
        """
        if not leaf.equal_values():
            return None
        if (leaf.bound_column_rows(self._columns[leaf.column.field_id]).most > 0).sum() < 2:
            return None
        rows, buckets = pruner.rows_by_partition(leaf), self._buckets(leaf)
        if rows is None and not buckets:
            return None
        keys = self.partition_keys()
        names = keys.dictionary.to_pylist()
        most = np.array([_MAX_ROWS if rows is None else rows.get(key, 0) for key in names], np.int64)
        for name, numbers in buckets:
            most[~np.array(match_buckets(names, name, numbers), np.bool_)] = 0
        return np.minimum(most[keys.indices.to_numpy()], self._row_counts)

    def _mask(self, leaf: Leaf, pruner: Pruner) -> Mask | None:
        """Return for each selected fragment whether its value filter may contain a value that matches a leaf.

        The result is None if the column has no value filters, or if the leaf is neither `=` nor an `in` with few
        values. It is also None if the fragments' statistics leave at most one fragment that may match: value filters
        are then not read.
        """
        if not pruner.has_value_filter(leaf):
            return None
        most = leaf.bound_column_rows(self._columns[leaf.column.field_id]).most
        if leaf in self._caps:
            most = np.minimum(most, self._caps[leaf])
        return pruner.fragment_mask(leaf, self._selection) if (most > 0).sum() >= 2 else None

    def _caps_with_masks(self) -> dict[Leaf, RowCounts]:
        """Return {leaf: greatest possible number of its matching rows in each selected fragment}.

        The number of a fragment is 0 if its value filter contains no matching value. The result has only those leaves
        for which `_cap` or `_mask` has a result.
        """
        caps = dict(self._caps)
        for leaf, mask in self._masks.items():
            caps[leaf] = np.where(mask, caps.get(leaf, self._row_counts), 0)
        return caps

    def _buckets(self, leaf: Leaf) -> list[tuple[str, frozenset[str]]]:
        """Return (partition column, matching bucket numbers) for each bucket transform of a leaf's column."""
        values = leaf.equal_values()
        if not values or leaf.column.cls is None:
            return []
        cls = leaf.column.cls
        buckets = [
            (name, compute_buckets(values, cls, count))
            for name, field_id, count in self.version.buckets
            if field_id == leaf.column.field_id and name.isidentifier() and name.isascii()
        ]
        return [(name, numbers) for name, numbers in buckets if numbers is not None]


def select_fragments_for_limit(bounds: RowBounds, sizes: RowCounts, limit: int) -> Mask:
    """Return a mask of the fewest fragments that together certainly have `limit` matching rows.

    If it is uncertain whether all fragments together have `limit` matching rows, all fragments that may have any are
    selected. Smaller files are preferred among fragments with the same lower bound.

    Args:
        bounds: The least and greatest possible number of matching rows of each fragment.
        sizes: The size of each fragment in bytes.
        limit: A number of rows, at least 0.
    """
    may_match = bounds.most > 0
    order = np.lexsort((sizes, -bounds.least))
    order = order[may_match[order]]
    sure = np.cumsum(bounds.least[order])
    needed_fragments: npt.NDArray[np.intp] = order[: int(np.searchsorted(sure, limit)) + 1 if limit else 0]
    if limit and (not len(sure) or sure[-1] < limit):
        return may_match
    mask = np.zeros(len(may_match), np.bool_)
    mask[needed_fragments] = True
    return mask


def bounds_without_statistics(column: BoundColumn, rows: RowCounts) -> ColumnBounds:
    """Return the widest bounds, for a column without statistics.

    Args:
        column: The column.
        rows: The row count of each fragment or zone.
    """
    anything, nothing = RowBounds(np.zeros_like(rows), rows), pa.nulls(len(rows), _arrow_type(column))
    nans = anything if column.cls is not None and column.cls.kind == "float" else RowBounds(*(np.zeros_like(rows),) * 2)
    return ColumnBounds(rows, anything, nans, nothing, nothing)


def _arrow_type(column: BoundColumn) -> pa.DataType:
    return pa.null() if column.cls is None else column.cls.arrow
