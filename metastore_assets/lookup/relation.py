"""The interface of tables and their filtered views: statistics, values and distributions of rows.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one. A version has the
statistics of one snapshot of the table. Value counts are the distinct values of a column with their frequencies. The
policy of a column decides which of its statistics and values are stored. A guarantee says how precise an answer is, for
example `exact` or `estimate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import pyarrow as pa

from metastore_assets.errors import CorruptionError, NotStoredError, ObjectNotFoundError, VersionNotFoundError
from metastore_assets.lookup.column_values import Number
from metastore_assets.lookup.histograms import Bin, Histograms
from metastore_assets.lookup.quantiles import Method
from metastore_assets.lookup.results import (
    AsOf,
    Count,
    Mode,
    PartitionFrequency,
    Quantile,
    ResultSet,
    Spread,
    TableRows,
    ValueFrequency,
)
from metastore_assets.lookup.value_counts import ValueCounts
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies, SpreadCounts
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.store.version import PartitionEntry, Version

if TYPE_CHECKING:
    from metastore_assets.value_counts import Built

_SPREAD_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        *((name, pa.int64()) for name in ("distinct_count", "duplicate_count", "singleton_count")),
        ("entropy", pa.float64()),
    ]
)
PARTITION_SCHEMA = pa.schema(
    [("key", pa.string()), *((name, pa.int64()) for name in ("row_count", "bytes", "fragments", "version"))]
)
"""The Arrow schema of the answer of `Relation.partitions`."""
F = TypeVar("F", bound=Callable[..., Any])


class MissingFileError(ObjectNotFoundError):
    """An error about a missing file of a version.

    Usually the version has expired after it was opened.
    """


def explain_missing_files(method: F) -> F:
    """Decorate a method so that it raises MissingFileError if a file of a version is missing.

    Without the decorator, the method raises other errors, such as ObjectNotFoundError. The method's object must
    have the attribute `version`.
    """

    @wraps(method)
    def explained(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except MissingFileError:
            raise
        except (ObjectNotFoundError, VersionNotFoundError, CorruptionError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, ObjectNotFoundError) else error
            if isinstance(cause, CorruptionError):
                raise
            version: Version = self.version
            raise MissingFileError(
                f"table {version.table!r}, version {version.number}: {cause}: its version may have expired; open the "
                f"table again, or rebuild its files with `metastore refresh {version.table} --full`"
            ) from error

    return cast(F, explained)


class Relation(ABC):
    """Rows of one version, with their statistics, values and distributions.

    The rows are those of a table, or of a filtered view of it. Every answer has its guarantee and the version that it
    is true for. Threads can share an object.
    """

    value_counts: ValueCounts
    histograms: Histograms

    @property
    @abstractmethod
    def version(self) -> Version:
        """The version that all answers of this object are about."""

    @property
    def as_of(self) -> AsOf:
        """The number and the snapshot of the version.

        Every answer has both.
        """
        return AsOf.of(self.version)

    @abstractmethod
    def partitions(self) -> ResultSet[PartitionEntry]:
        """Return the partitions that may have rows, by ascending key."""

    @abstractmethod
    def resolve_partition(self, partition: str) -> str:
        """Return the key of the only partition that a key or a pattern, such as `day=2024-01-0?`, selects.

        The module `expressions.partition_patterns` describes keys and patterns. Each argument `partition` accepts them.

        Raises PartitionNotFoundError if the text selects no partition or several.
        """

    def _partition_key(self, partition: str | None) -> str | None:
        return None if partition is None else self.resolve_partition(partition)

    @abstractmethod
    def count(self, *, partition: str | None = None) -> Count:
        """Return the exact number of rows, in all partitions or in one.

        Raises PartitionNotFoundError.
        """

    @abstractmethod
    def statistics(
        self, columns: Iterable[str] | None = None, *, partition: str | Iterable[str] | None = None
    ) -> ResultSet[ColumnStatistics]:
        """Return the statistics of columns: one row per column, or per partition and column.

        Args:
            columns: Dotted paths of columns or nested fields, in the order of the result; None for all, in table order.
            partition: One or several keys or patterns of partitions; None for all rows.

        Raises ColumnNotFoundError, PartitionNotFoundError.
        """

    @explain_missing_files
    def top(self, column: str, n: int = 10, *, partition: str | None = None) -> ResultSet[ValueFrequency]:
        """Return the n most frequent values of a column; fewer if the column has fewer.

        A column's policy can limit this: with `top(5)`, at most 5 values are returned. With `repeated`, values that
        occur only once are omitted.

        Args:
            column: The dotted path of a column or nested field.
            n: The maximum number of values to return, at least 0.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            NotStoredError: The version has no value counts of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
            ValueError: `n` is negative, or no whole number.
        """
        return self.value_counts.top(column, n, self._partition_key(partition))

    @overload
    def quantile(
        self, column: str, q: Number, *, partition: str | None = None, method: Method = "discrete"
    ) -> Quantile: ...

    @overload
    def quantile(
        self, column: str, q: Sequence[Number], *, partition: str | None = None, method: Method = "discrete"
    ) -> ResultSet[Quantile]: ...

    @explain_missing_files
    def quantile(
        self, column: str, q: Number | Sequence[Number], *, partition: str | None = None, method: Method = "discrete"
    ) -> Quantile | ResultSet[Quantile]:
        """Return the quantile of a fraction, or one row per fraction for a sequence.

        NaN is ignored.

        A quantile is exact if the version has value counts of the column. Otherwise it is an estimate from a sketch,
        which only numbers, dates and times have.

        Args:
            column: The dotted path of a column or nested field.
            q: A fraction from 0 to 1, both inclusive, or a sequence of them.
            partition: The key of a partition, or a pattern that selects one; None for all rows.
            method: `discrete` returns the least value v for which at least this fraction of the values is at most v, as
                SQL's `percentile_disc`. `continuous` interpolates between the two nearest values, as SQL's
                `percentile_cont`; it returns a float64 for numbers and a timestamp for dates.

        Raises:
            LiteralError: `q` is no fraction, or the column's values cannot be interpolated.
            NotStoredError: The version stores neither value counts nor a sketch of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
            ValueError: `method` is neither of its values.
        """
        return self.value_counts.quantile(column, q, self._partition_key(partition), method)

    @explain_missing_files
    def rank(self, column: str, value: object, *, partition: str | None = None) -> Count:
        """Return the number of values of a column that are less than a value.

        NaN is the greatest value.

        The number is exact if the version has value counts of the column. Otherwise it is an estimate from a sketch,
        which only numbers, dates and times have.

        Args:
            column: The dotted path of a column or nested field.
            value: A Python or Arrow value of the column's type, or a `TextValue`. The value need not occur.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            LiteralError: The value is not of the column's type.
            NotStoredError: The version stores neither value counts nor a sketch of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        return self.value_counts.rank(column, value, self._partition_key(partition))

    @explain_missing_files
    def frequency_between(self, column: str, low: object, high: object, *, partition: str | None = None) -> Count:
        """Return the number of rows with a value from `low` to `high`, both inclusive.

        Guarantee and errors are those of `rank`. For other predicates, use `Table.estimate`, or `Table.count`, which
        reads the table.

        Args:
            column: The dotted path of a column or nested field.
            low: The least value, as in `rank`.
            high: The greatest value, as in `rank`.
            partition: The key of a partition, or a pattern that selects one; None for all rows.
        """
        return self.value_counts.frequency_between(column, low, high, self._partition_key(partition))

    @explain_missing_files
    def frequency(self, column: str, value: object, *, partition: str | None = None) -> Count:
        """Return the number of rows with a value; 0 if it does not occur.

        With the policy `frequencies: repeated`, the result may be the estimate 1 for a value that occurs once or not at
        all.

        Args:
            column: The dotted path of a column or nested field.
            value: A Python or Arrow value of the column's type, or a `TextValue`.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            NotStoredError: The version has no value counts of the column, and the column's minimum and maximum do not
                exclude the value.
            LiteralError: The value is not of the column's type.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        return self.value_counts.frequency(column, value, self._partition_key(partition))

    @explain_missing_files
    def locate(self, column: str, value: object) -> ResultSet[PartitionFrequency]:
        """Return the partitions in which a value occurs, each with the frequency of the value.

        The result has the order in which the version lists its partitions.

        With the policy `by_partition: on`, this is one small read. Otherwise the value counts of partitions are read,
        one partition after the other, until all rows with the value are found. Partitions whose bounds exclude the
        value are skipped. Errors are those of `frequency`.

        Args:
            column: The dotted path of a column or nested field.
            value: The value, as in `rank`.
        """
        return self.value_counts.locate(column, value)

    @overload
    def spread(self, column: str, *, partition: str | None = None) -> Spread: ...

    @overload
    def spread(self, column: None = None) -> ResultSet[Spread]: ...

    @explain_missing_files
    def spread(self, column: str | None = None, *, partition: str | None = None) -> Spread | ResultSet[Spread]:
        """Return the exact numbers of distinct, repeated and unique values of a column, and its entropy.

        Args:
            column: The dotted path of a column or nested field; None for one row per column that has value counts.
            partition: The key of a partition, or a pattern that selects one; None for all rows. Only
                together with `column`.

        Raises:
            NotStoredError: The version has no value counts of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
            ValueError: `partition` is given without `column`.
        """
        if column is not None:
            return self._spread(column, self.value_counts.spread(column, self._partition_key(partition)))
        if partition is not None:
            raise ValueError("give a column with the partition: the value counts of all columns would be read")
        spreads = [self._spread(name, counts) for name, counts in self._spreads().items()]
        return ResultSet(spreads, self.as_of, _SPREAD_SCHEMA)

    def _spread(self, column: str, counts: SpreadCounts) -> Spread:
        return Spread(column, **vars(counts), guarantee="exact", as_of=self.as_of)

    @abstractmethod
    def _spreads(self) -> Mapping[str, SpreadCounts]:
        """Return distinct counts and entropy of every column that has value counts, by column name."""

    @explain_missing_files
    def built(self) -> dict[str, Built]:
        """Return how the value counts of each column were last built from scratch.

        For example, `Built.where` tells whether Spark did it. The keys are dotted paths of columns. Columns without
        such a record are missing.
        """
        return self.value_counts.built(self.statistics())

    @explain_missing_files
    def mode(self, column: str, *, partition: str | None = None) -> Mode:
        """Return the most frequent value and its frequency; None and 0 if the column has no values.

        Args:
            column: The dotted path of a column or nested field.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            NotStoredError: The version has no value counts of the column. Or the column has values, but none is
                frequent enough for its policy to report.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        top = self.top(column, 1, partition=partition)
        if not top and self.value_counts.column(column, self._partition_key(partition)).has_values:
            raise NotStoredError(f"no value of column {column!r} occurs as often as those that its policy reports")
        value, frequency = top[0] if top else (None, 0)
        return Mode(value, frequency, "exact", self.as_of)

    def value_files(self, column: str) -> list[str]:
        """Return the paths of the Parquet files with the values of a column, relative to the table's folder.

        A row has `column` (the column's `field_id`), `value` and `frequency`. If there are several files, the frequency
        of a value is the sum over all of them; values with the sum 0 no longer occur. Errors are those of `top`.
        """
        return self.value_counts.files(column)

    def literal(self, column: str, value: object) -> pa.Scalar:
        """Convert a value to an Arrow scalar of the column's canonical type.

        Args:
            column: The dotted path of a column or nested field.
            value: A Python or Arrow value of the column's type, or a `TextValue`.

        Raises:
            LiteralError: The value is not of the column's type.
            ColumnNotFoundError: There is no such column.
        """
        return self.value_counts.literal(column, value)

    @explain_missing_files
    def values(self, column: str, *, partition: str | None = None) -> ResultSet[ValueFrequency]:
        """Return all values of a column with their frequencies, by increasing value, without null.

        All values are in memory: for columns with very many values, use `value_batches`. With the policy `frequencies:
        repeated`, values that occur once may be missing. Errors are those of `top`.

        Args:
            column: The dotted path of a column or nested field.
            partition: The key of a partition, or a pattern that selects one; None for all rows.
        """
        batches = [batch for batch in self.value_batches(column, partition=partition) if len(batch)]
        values = pa.chunked_array([batch.values for batch in batches], None if batches else pa.null())
        counts = pa.chunked_array([batch.counts for batch in batches], pa.int64())
        table = pa.table({"value": values, "frequency": counts})
        return ResultSet(TableRows(table, _parse_frequencies), self.as_of, lambda: table)

    def value_batches(self, column: str, *, partition: str | None = None) -> Iterator[Frequencies]:
        """Yield all values of a column with their frequencies, by increasing value, in bounded batches.

        With the policy `frequencies: repeated`, values that occur once may be missing.

        Args:
            column: The dotted path of a column or nested field.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            NotStoredError: The version has no value counts of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        return self.value_counts.pieces(column, self._partition_key(partition))

    @explain_missing_files
    def histogram(
        self,
        column: str,
        *,
        bins: int | None = None,
        partition: str | None = None,
        lower: object = None,
        upper: object = None,
    ) -> ResultSet[Bin]:
        """Return the bins of a column's histogram by increasing minimum, without gaps.

        No bin has NaN or infinities.

        Args:
            column: The dotted path of a column or nested field.
            bins: The maximum number of bins to return, at least 1. Neighbouring bins are merged. None for all bins.
            partition: The key of a partition, or a pattern that selects one; None for all rows.
            lower: A value of the column's type. Bins that lie entirely below it are omitted. None for no limit.
            upper: A value of the column's type. Bins that lie entirely above it are omitted. None for no limit.

        Returns:
            The bins. There are none if the column has no finite values, or if `lower` and `upper` omit all bins.

        Raises:
            NotStoredError: The version has no histogram of the column.
            LiteralError: A bound is not of the column's type.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
            ValueError: `bins` is less than 1, or no whole number.
        """
        return self.histograms.bins(column, bins, self._partition_key(partition), lower=lower, upper=upper)

    @explain_missing_files
    def dyadic_histogram(self, column: str, *, partition: str | None = None) -> Histogram | None:
        """Return the histogram with its stored bins, whose width is a power of two.

        Returns None if there are no finite values. Two such histograms of one type class can be merged exactly.

        Args:
            column: The dotted path of a column or nested field.
            partition: The key of a partition, or a pattern that selects one; None for all rows.

        Raises:
            NotStoredError: The version has no histogram of the column.
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        return self.histograms.dyadic(column, self._partition_key(partition))


def _parse_frequencies(table: pa.Table) -> Iterator[ValueFrequency]:
    return (ValueFrequency(*pair) for pair in zip(table["value"], table["frequency"].to_pylist(), strict=True))
