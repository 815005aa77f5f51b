"""Queries of the values of columns: most frequent values, quantiles, ranks, frequencies.

The methods of `Relation` with the same names document these queries. A version has the statistics of one snapshot of
the table. Value counts are the distinct values of a column with their frequencies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.lookup.arguments import integer_argument
from metastore_assets.lookup.column_values import ColumnValues, Number, ValueSource, parse_fraction
from metastore_assets.lookup.profiles import Profile
from metastore_assets.lookup.quantiles import Method
from metastore_assets.lookup.results import AsOf, Count, PartitionFrequency, Quantile, ResultSet, ValueFrequency
from metastore_assets.lookup.version_references import VersionColumns
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies, SpreadCounts, measure_spread
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry, Version

if TYPE_CHECKING:
    from metastore_assets.value_counts import Built, ValueCountReader

_OPEN_COLUMNS = 32


def open_value_count_reader(objects: ObjectStore, version: Version) -> ValueCountReader:
    """Return a reader of the value counts of a version."""
    # Answers about the statistics of columns need no value counts, and must not pay for the import.
    from metastore_assets.value_counts import ValueCountReader, read_value_counts

    return ValueCountReader(objects, read_value_counts(objects, version.value_counts))


class RelationProfiles(Protocol):
    """The profiles of a table or filtered view: of all its rows, and of each partition.

    A profile has the statistics and the values of some rows. In all methods, the partition None stands for all rows.
    """

    def profile(self, partition: str | None) -> Profile:
        """Return the profile of a partition, or of all rows.

        Raises PartitionNotFoundError for an unknown partition.
        """

    def stores_value_counts(self, partition: str | None) -> bool:
        """Return whether `profile(partition)` itself may have value counts.

        This is false for the stored profile of a whole table, whose value counts are in separate files.
        """

    def is_table(self, partition: str | None) -> bool:
        """Return whether `profile(partition)` describes all rows of the table.

        True for None, and for the table's only partition. For a filtered view, true only if the filter also selects
        all rows of the table.
        """

    def partitions(self) -> Sequence[PartitionEntry]:
        """Return the partitions that may have rows of the table or filtered view, in ascending order of keys."""


class ValueCounts:
    """Queries of the values of columns of a table or a filtered view.

    Threads can share the object.
    """

    def __init__(
        self,
        version: Version,
        columns: VersionColumns,
        profiles: RelationProfiles,
        open_reader: Callable[[], ValueCountReader],
    ) -> None:
        """Prepare to answer queries.

        Nothing is read yet.

        Queries are answered from profiles. A query of all rows of the table also uses the table's value counts.

        Args:
            version: The version that the answers are about.
            columns: The columns of the version.
            profiles: The profiles of the table or filtered view.
            open_reader: Returns a reader of the table's value counts in the version. Each thread calls it at most once.
        """
        self._version = version
        self._names = columns
        self._profiles = profiles
        self._open_reader = open_reader
        self._as_of = AsOf.of(version)
        self._lock = RLock()
        self._columns: OrderedDict[tuple[str, str | None], ColumnValues] = OrderedDict()

    @lock_free_cached_property
    def reader(self) -> ValueCountReader:
        """The reader of the table's value counts in the version."""
        return self._open_reader()

    def column(self, column: str, partition: str | None = None) -> ColumnValues:
        """Return the values of a column, in all rows or in one partition.

        Raises ColumnNotFoundError, PartitionNotFoundError.
        """
        self._names.column(column)
        key = column, partition
        values = self._columns.get(key)
        if values is None:
            # Resolved once: other threads may evict the profile from the cache meanwhile.
            source = ValueSource(
                self._profiles.profile(partition),
                self._profiles.stores_value_counts(partition),
                self._profiles.is_table(partition),
                lambda: self.reader,
            )
            (row,) = source.profile.statistics([column])
            decision = self._version.decisions.get(row.field_id)
            reason = None if decision is None else decision.reason
            values = ColumnValues(row, self._names.subject(column), source, reason, self._as_of)
        with self._lock:  # protects the order of the cache; nothing is read while it is held
            self._columns[key] = values
            self._columns.move_to_end(key)
            if len(self._columns) > _OPEN_COLUMNS:
                self._columns.popitem(last=False)
        return values

    def top(self, column: str, n: int, partition: str | None = None) -> ResultSet[ValueFrequency]:
        """Return the n most frequent values of a column.

        Raises as `Relation.top`.
        """
        n = integer_argument("n", n, 0)
        values = self.column(column, partition)
        rows = [ValueFrequency(*pair) for pair in values.top(n)]
        schema = pa.schema([("value", values.arrow_type), ("frequency", pa.int64())])
        return ResultSet(rows, self._as_of, schema)

    def quantile(
        self, column: str, q: Number | Sequence[Number], partition: str | None = None, method: Method = "discrete"
    ) -> Quantile | ResultSet[Quantile]:
        """Return the quantile of a fraction, or one row per fraction for a sequence.

        See `Relation.quantile`.
        """
        if method not in ("discrete", "continuous"):
            raise ValueError(f"method must be 'discrete' or 'continuous', not {method!r}")
        several = q if isinstance(q, Sequence) and not isinstance(q, str) else None
        fractions = [parse_fraction(number) for number in ([q] if several is None else several)]
        values = self.column(column, partition)
        quantiles = values.quantiles(fractions, method)
        if several is None:
            return quantiles[0]
        schema = pa.schema([("q", pa.float64()), ("value", values.arrow_type), ("guarantee", pa.string())])
        return ResultSet(quantiles, self._as_of, schema, guarantee=quantiles[0].guarantee if quantiles else "exact")

    def rank(self, column: str, value: object, partition: str | None = None) -> Count:
        """Return the number of values of a column that are less than a value.

        Raises as `Relation.rank`.
        """
        values = self.column(column, partition)
        return values.rank(values.literal(value))

    def frequency_between(self, column: str, low: object, high: object, partition: str | None = None) -> Count:
        """Return the number of rows with a value from `low` to `high`, both inclusive.

        Raises as `Relation.rank`.
        """
        values = self.column(column, partition)
        return values.count_between(values.literal(low), values.literal(high))

    def frequency(self, column: str, value: object, partition: str | None = None) -> Count:
        """Return the number of rows that have the value `value`.

        Raises as `Relation.frequency`.
        """
        values = self.column(column, partition)
        return values.frequency(values.literal(value))

    def locate(self, column: str, value: object) -> ResultSet[PartitionFrequency]:
        """Return the partitions that have a value, with its frequency in each.

        See `Relation.locate`.
        """
        values = self.column(column)
        scalar = values.literal(value)
        stored_partitions = values.partitions_of(scalar)
        if stored_partitions is not None:
            return self._partition_rows(stored_partitions)
        remaining = values.frequency(scalar).value
        partitions = []
        for entry in self._profiles.partitions():
            if not remaining:
                break
            if count := self.column(column, entry.key).frequency(scalar).value:
                partitions.append((entry.key, count))
                remaining -= count
        return self._partition_rows(partitions)

    def _partition_rows(self, pairs: Sequence[tuple[str, int]]) -> ResultSet[PartitionFrequency]:
        schema = pa.schema([("partition", pa.string()), ("frequency", pa.int64())])
        return ResultSet([PartitionFrequency(*pair) for pair in pairs], self._as_of, schema)

    def spread(self, column: str, partition: str | None = None) -> SpreadCounts:
        """Return the numbers of distinct, repeated and unique values of a column, and its entropy.

        The numbers are those of a partition, or of all rows if `partition` is None. Raises NotStoredError if the
        version has no value counts of the column.
        """
        return self.column(column, partition).spread()

    def table_spreads(self, statistics: Iterable[ColumnStatistics]) -> dict[str, SpreadCounts]:
        """Return {dotted path: result of `spread`} of each column that has value counts of the whole table.

        Args:
            statistics: The statistics of the columns over the whole table. They show which columns have value counts.
        """
        rows = [
            row for row in statistics if row.frequencies in ("enumerated", "repeated") and row.type_class is not None
        ]
        rows = [row for row in rows if not row.value_count or row.field_id in self.reader.columns]
        classes = {row.type_class for row in rows if row.type_class is not None and row.value_count}
        counts = {name: self.reader.counts_of_class(name) for name in classes}
        return {row.column: measure_spread(counts.get(row.type_class or "", {}).get(row.field_id, ())) for row in rows}

    def built(self, statistics: Iterable[ColumnStatistics]) -> dict[str, Built]:
        """Return {dotted path of a column: how its value counts were last computed from scratch}.

        Columns for which this is not recorded are left out.
        """
        builds = self.reader.built
        return {row.column: builds[row.field_id] for row in statistics if row.field_id in builds}

    def files(self, column: str) -> list[str]:
        """Return the paths of the Parquet files with the values of a column.

        See `Relation.value_files`.
        """
        return self.column(column).files()

    def literal(self, column: str, value: object) -> pa.Scalar:
        """Return a value as an Arrow scalar of the column's canonical type.

        Raises as `Relation.rank`.
        """
        return self.column(column).literal(value)

    def pieces(self, column: str, partition: str | None = None) -> Iterator[Frequencies]:
        """Yield all values with their frequencies, ascending, in parts of limited size.

        See `Relation.values`.
        """
        yield from self.column(column, partition).pieces()
