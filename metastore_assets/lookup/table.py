"""What is known of one table as of one published version: statistics, most frequent values, histograms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING, overload

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ColumnNotFoundError, NotKeptError, PartitionNotFoundError
from metastore_assets.lookup.answers import Answers, AsOf, Count, Quantile, Statistics, TopValues
from metastore_assets.lookup.as_of import VersionChoice, find_version
from metastore_assets.lookup.filtered import FilteredAnswers
from metastore_assets.lookup.histograms import Bin, between, bins_of, why_no_histogram
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.ordered import Method
from metastore_assets.lookup.profile_files import ProfileReader
from metastore_assets.lookup.values import ColumnValues, Number, fraction_of
from metastore_assets.messages import close_names, near_names
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.leaves import LeafColumn, schema_leaves
from metastore_assets.statistics.spread import Spread, spread
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.stored_entries import find_partition
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    from metastore_assets.history import HistoryPoint
    from metastore_assets.lists import ListReader
    from metastore_assets.lookup.changes import Changes
    from metastore_assets.lookup.diff import TableDiff

_OPEN_PROFILES = 32
_KEPT_ROWS = 20_000
"""Rows of statistics of all partitions that are kept for who asks again."""


class TableLookup(FilteredAnswers):
    """Answers from one version of one table. Reads no more of its files than an answer needs; safe to share."""

    def __init__(self, objects: ObjectStore, version: Version) -> None:
        self._objects = objects
        self._version = version
        self._leaves = [leaf for leaves in schema_leaves(version.schema) for leaf in leaves]
        self._lock = RLock()
        self._found: dict[str, PartitionEntry | None] = {}
        self._profiles: OrderedDict[str | None, ProfileReader] = OrderedDict()
        self._everywhere: OrderedDict[tuple[str, ...] | None, Statistics] = OrderedDict()
        self._columns: OrderedDict[tuple[str, str | None], ColumnValues] = OrderedDict()

    @property
    def version(self) -> Version:
        """The version that all answers are of, and so the snapshot that they are true for."""
        return self._version

    @property
    def as_of(self) -> AsOf:
        """The same, as every answer carries it."""
        return AsOf(self._version.number, self._version.snapshot)

    @property
    def location(self) -> str:
        """Where the versions of the table are: its folder below the root."""
        return self._objects.uri()

    @property
    def versions(self) -> VersionStore:
        """The versions of the table, this one among them."""
        return VersionStore.of_folder(self._version.table, self._objects)

    def newer_version(self) -> int | None:
        """The number of the newest version, where one was published after this one; else None. Asks the store."""
        newest = self.versions.newest()
        return newest if newest > self._version.number else None

    def partitions(self) -> list[PartitionEntry]:
        """The table's partitions, in the order of the version. Empty for a table without rows."""
        return list(self._version.partitions)

    def row_count(self, partition: str | None = None) -> int:
        """Live rows of the table or of one partition. Raises PartitionNotFoundError."""
        return self._version.row_count if partition is None else self._partition(partition).row_count

    def statistics(
        self,
        columns: Iterable[str] | None = None,
        partition: str | None = None,
        *,
        partitions: Iterable[str] | str | None = None,
    ) -> Statistics:
        """Statistics of all leaf columns in table order, or of those named in the order given.

        Of the table, of one `partition`, or of several `partitions`, one after the other; `"*"` are all. The mergeable
        states are left out (None); `to_arrow()` of the answer is a table.

        Raises ColumnNotFoundError, PartitionNotFoundError.
        """
        wanted = None if columns is None else list(columns)
        for column in wanted or ():
            self._check(column)
        if partitions is None:
            rows = self._profile(partition).statistics(wanted)
            return Statistics(rows, None if partition is None else [partition] * len(rows), self.as_of)
        if partition is not None:
            raise ValueError("either one partition or several partitions, not both")
        return self._statistics_of(wanted, partitions)

    def _statistics_of(self, columns: list[str] | None, partitions: Iterable[str] | str) -> Statistics:
        if partitions == "*":
            asked = None if columns is None else tuple(columns)
            if asked not in self._everywhere:
                found = self._statistics_at(columns, self._version.partitions)
                if len(found) > _KEPT_ROWS:
                    return found
                self._everywhere[asked] = found
                if len(self._everywhere) > _OPEN_PROFILES:
                    self._everywhere.popitem(last=False)
            kept = self._everywhere[asked]
            return Statistics(kept, kept.partitions, self.as_of)
        keys = [partitions] if isinstance(partitions, str) else partitions
        return self._statistics_at(columns, [self._partition(key) for key in keys])

    def _statistics_at(self, columns: list[str] | None, entries: Iterable[PartitionEntry]) -> Statistics:
        rows: list[ColumnStatistics] = []
        of: list[str] = []
        for entry in entries:
            # Not among those kept open: many would drive out what is asked for again.
            own = self._reader(entry.files, entry.row_count).statistics(columns)
            rows += own
            of += [entry.key] * len(own)
        return Statistics(rows, of, self.as_of)

    @files_there
    def top(self, column: str, n: int = 10, partition: str | None = None) -> TopValues:
        """The n most frequent values of a column, fewer when there are fewer.

        Raises NotKeptError when the column's values are not listed, ColumnNotFoundError, PartitionNotFoundError.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        with self._lock:
            return TopValues(self._values(column, partition).top(n), "exact", self.as_of)

    @overload
    def quantile(
        self, column: str, q: Number, partition: str | None = None, method: Method = "discrete"
    ) -> Quantile: ...

    @overload
    def quantile(
        self, column: str, q: Sequence[Number], partition: str | None = None, method: Method = "discrete"
    ) -> list[Quantile]: ...

    @files_there
    def quantile(
        self, column: str, q: Number | Sequence[Number], partition: str | None = None, method: Method = "discrete"
    ) -> Quantile | list[Quantile]:
        """The quantile of a fraction from 0 to 1, or one for each of several, in that order. NaN is left out.

        `discrete`: the least value that at least this fraction of the values does not exceed, SQL's `percentile_disc`;
        of every type with values. `continuous`: between the two nearest values, SQL's `percentile_cont`; of numbers a
        float64, of dates a timestamp. Exact where the values are listed, else an estimate of numbers and times.

        Raises LiteralError for what is no fraction, NotKeptError, ColumnNotFoundError, PartitionNotFoundError.
        """
        if method not in ("discrete", "continuous"):
            raise ValueError(f"method must be 'discrete' or 'continuous', not {method!r}")
        fractions = [fraction_of(one) for one in (q if isinstance(q, Sequence) else [q])]
        with self._lock:
            found = self._values(column, partition).quantiles(fractions, method)
        return found if isinstance(q, Sequence) else found[0]

    @files_there
    def rank(self, column: str, value: object, partition: str | None = None) -> Count:
        """How many values are less than one, which need not occur: 0 for the least. NaN is the greatest.

        `value` is of the column's type, in Python or in Arrow; `lookup.literals` says how text is made one. Exact where
        the values are listed, else an estimate of numbers and times.

        Raises LiteralError for a value of another type, NotKeptError, ColumnNotFoundError, PartitionNotFoundError.
        """
        with self._lock:
            own = self._values(column, partition)
            return own.rank(own.literal(value))

    @files_there
    def count_between(self, column: str, low: object, high: object, partition: str | None = None) -> Count:
        """How many values lie from `low` to `high`, both inclusive; otherwise as `rank`."""
        with self._lock:
            own = self._values(column, partition)
            return own.count_between(own.literal(low), own.literal(high))

    @files_there
    def frequency(self, column: str, value: object, partition: str | None = None) -> Count:
        """How often a value occurs, exactly; 0 where it does not. Errors as of `rank`.

        NotKeptError where values are not listed, unless bounds tell that there is none.
        """
        with self._lock:
            own = self._values(column, partition)
            return own.frequency(own.literal(value))

    @files_there
    def where_is(self, column: str, value: object) -> Answers[tuple[str, int]]:
        """The partitions that hold a value, with its frequency in each, in the order of the version.

        One small read under the policy `by_partition: on`. Else reads the lists of partitions one by one, but for those
        whose bounds leave the value out, until all of its rows are found. Errors as of `frequency`.
        """
        with self._lock:
            own = self._values(column, None)
            wanted = own.literal(value)
            kept = own.partitions_of(wanted)
            if kept is not None:
                return Answers(kept, "exact", self.as_of)
            left = own.frequency(wanted).count
            found = []
            for entry in self._version.partitions:
                if not left:
                    break
                if count := self._values(column, entry.key).frequency(wanted).count:
                    found.append((entry.key, count))
                    left -= count
        return Answers(found, "exact", self.as_of)

    @files_there
    def spread(self, column: str, partition: str | None = None) -> Spread:
        """Distinct values, duplicates, singletons and entropy of a column, exact.

        Raises NotKeptError when its values are not listed, ColumnNotFoundError, PartitionNotFoundError.
        """
        with self._lock:
            return self._values(column, partition).spread()

    @files_there
    def spreads(self) -> dict[str, Spread]:
        """The same of all listed columns of the table, by name, read at once."""
        with self._lock:
            rows = [
                row
                for row in self.statistics()
                if row.frequencies in ("listed", "repeated") and row.type_class is not None
            ]
            known = [row for row in rows if not row.value_count or row.field_id in self._lists.columns]
            classes = {row.type_class for row in known if row.type_class is not None and row.value_count}
            counts = {name: self._lists.counts_of_class(name) for name in classes}
        return {row.column: spread(counts.get(row.type_class or "", {}).get(row.field_id, ())) for row in known}

    @files_there
    def mode(self, column: str, partition: str | None = None) -> tuple[pa.Scalar, int] | None:
        """The most frequent value and its frequency, the least one of several; None where there is no value.

        Raises as `top`.
        """
        return next(iter(self.top(column, 1, partition).values), None)

    def value_files(self, column: str) -> list[str]:
        """The Parquet files, below the table's folder, that list the values of a column of the table, for other tools.

        A row is `column` (the column's `field_id`), `value` and `frequency`; where there are several files, frequencies
        of a value add up, and a sum of 0 says that it is gone. Raises as `top`.
        """
        with self._lock:
            return self._values(column, None).files()

    def literal(self, column: str, value: object) -> pa.Scalar:
        """A value that is asked about, as one of a column's class; errors as of `rank`."""
        with self._lock:
            return self._values(column, None).literal(value)

    def values(self, column: str, partition: str | None = None) -> Iterator[Frequencies]:
        """All listed values of a column with their frequencies, in their order, in pieces of bounded size.

        Where `frequencies: repeated` lists those that occur at least twice, these. Raises as `top`.
        """
        with self._lock:
            pieces = self._values(column, partition).pieces()
        while True:
            with self._lock:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _values(self, column: str, partition: str | None) -> ColumnValues:
        if (column, partition) not in self._columns:
            row = self.statistics([column], partition)[0]
            decision = self._version.decisions.get(row.field_id)
            self._columns[column, partition] = ColumnValues(
                row,
                self._named(column),
                self._profile(partition),
                lambda: self._lists,
                None if decision is None else decision.reason,
                has_own_lists=partition is not None,
                # The only partition of a table has no lists but the table's.
                is_whole=partition is None or len(self._version.partitions) == 1,
                as_of=self.as_of,
            )
            if len(self._columns) > _OPEN_PROFILES:
                self._columns.popitem(last=False)
        self._columns.move_to_end((column, partition))
        return self._columns[column, partition]

    @cached_property
    def _lists(self) -> ListReader:
        from metastore_assets.lists import ListReader, read_lists  # the statistics of columns do without

        return ListReader(self._objects, read_lists(self._objects, self._version.lists))

    def histogram(
        self,
        column: str,
        bins: int | None = None,
        partition: str | None = None,
        *,
        lower: object = None,
        upper: object = None,
    ) -> Answers[Bin]:
        """The column's histogram, by increasing minimum, without gaps. NaN and infinities are in no bin.

        With `lower` or `upper`, which are values of the column, both inclusive, only the bins that have room for values
        between them: what is kept is not cut, so that the first and the last may reach further. With `bins`, at most so
        many: neighbouring bins are added up, the last one over fewer where it does not come out even. Empty for a
        column without a finite value.

        Raises NotKeptError when there is no histogram, LiteralError, ColumnNotFoundError, PartitionNotFoundError.
        """
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        histogram = self.lattice(column, partition)
        if histogram is not None and (lower is not None or upper is not None):
            own = self._values(column, partition)
            histogram = between(histogram, *(None if value is None else own.literal(value) for value in (lower, upper)))
        found = [] if histogram is None else bins_of(histogram, len(histogram) if bins is None else bins)
        return Answers(found, "exact", self.as_of)

    def lattice(self, column: str, partition: str | None = None) -> Histogram | None:
        """The histogram as it is kept, which others can be laid beside. Otherwise as `histogram`; None for no bin."""
        profile = self._profile(partition)
        self._check(column)
        histogram = profile.histogram(column)
        reason = why_no_histogram(profile.statistics([column])[0]) if histogram is None else None
        if reason is not None:
            raise NotKeptError(f"{self._named(column)} has no histogram: {reason}")
        return histogram

    @overload
    def history(self, column: str | None = None) -> pa.Table: ...

    @overload
    def history(self, column: str | None, statistic: str) -> list[HistoryPoint]: ...

    def history(self, column: str | None = None, statistic: str | None = None) -> pa.Table | list[HistoryPoint]:
        """What was known in every version up to this one, those that expired included.

        Of a `statistic` one point per version, the oldest first. It is a name of those in `metastore show --json`, such
        as `null_count`, a percentile (`p50`) or a user-defined one; without a column, `row_count`, `bytes`,
        `partitions` or `fragments`. Without it a table: a row per version and column, `docs/files.md` says of what. A
        column is followed through renames, by its `field_id`.

        Raises ColumnNotFoundError, ValueError for an unknown statistic, StoreError, MissingPackageError.
        """
        from metastore_assets.history import points, points_of_versions, read_history

        if column is not None:
            self._check(column)
        rows = read_history(self.versions, self._version.number)
        if column is not None:
            (field_id,) = (leaf.field_id for leaf in self._leaves if leaf.path == column)
            rows = rows.filter(pc.equal(rows["field_id"], field_id))
        if statistic is None:
            return rows
        return points(rows, statistic) if column is not None else points_of_versions(rows, statistic)

    def diff(self, before: VersionChoice | TableLookup, after: VersionChoice | TableLookup | None = None) -> TableDiff:
        """What is different between two versions of the table: `orders.diff(41, 57)`; without the second, this one.

        Either may be a version, a snapshot or a time, as `open_table` takes them, or another table as it was opened.
        Columns of one table are paired through renames, those of two by name. Distances are those of histograms, or of
        lists.

        Raises VersionNotFoundError, StoreError.
        """
        from metastore_assets.lookup.diff import diff

        return diff(self.at(before), self if after is None else self.at(after))

    def changes(self, since: VersionChoice, columns: Iterable[str] | None = None) -> Changes:
        """What changed value by value since an earlier version: of each listed column, or of those named, a table of
        values that were added, deleted, or occur otherwise often. Of other columns a reason why that is not known.

        Raises VersionNotFoundError, ColumnNotFoundError, StoreError.
        """
        from metastore_assets.lookup.changes import changes

        return changes(self.at(since), self, columns)

    def at(self, version: VersionChoice | TableLookup) -> TableLookup:
        """The same table as of another version; a table that was opened is that one. Raises VersionNotFoundError."""
        if isinstance(version, TableLookup):
            return version
        return TableLookup(self._objects, find_version(self.versions, version))

    def find_partition(self, key: str) -> PartitionEntry | None:
        """The partition with that key, if there is one. Reads little of a table that has many."""
        if key not in self._found:
            self._found[key] = find_partition(self._version, key)
        return self._found[key]

    def _partition(self, key: str) -> PartitionEntry:
        entry = self.find_partition(key)
        if entry is None:
            name = self._version.table
            raise PartitionNotFoundError(
                f"table {name!r} has no partition {key!r} in version {self._version.number}"
                + near_names(key, [entry.key for entry in self._version.partitions])
                + f"; list them with `metastore show {name} --partitions`"
            )
        return entry

    def _profile(self, partition: str | None) -> ProfileReader:
        files: ProfileFiles = self._version.files if partition is None else self._partition(partition).files
        with self._lock:
            if partition not in self._profiles:
                self._profiles[partition] = self._reader(files, self.row_count(partition))
                if len(self._profiles) > _OPEN_PROFILES:
                    self._profiles.popitem(last=False)
            self._profiles.move_to_end(partition)
            return self._profiles[partition]

    def _reader(self, files: ProfileFiles, rows: int) -> ProfileReader:
        return ProfileReader(self._objects, files, self._leaves, partial(self._all_null, rows))

    def _all_null(self, rows: int, leaf: LeafColumn) -> ColumnStatistics:
        """What is known of a column in a partition whose rows were written, and profiled, before there was one."""
        from metastore_assets.lookup.absent import row_of_nulls  # most lookups do without

        of_table = self._profile(None).statistics([leaf.path])[0]
        return row_of_nulls(leaf, rows, of_table, self._version.decisions.get(leaf.field_id))

    def _check(self, column: str) -> None:
        names = [leaf.path for leaf in self._leaves]
        if column not in names:
            raise ColumnNotFoundError(
                f"table {self._version.table!r} has no column {column!r}"
                + close_names(column, names, "; its columns are: {}")
            )

    def _named(self, column: str) -> str:
        return f"column {column!r} of table {self._version.table!r}"
