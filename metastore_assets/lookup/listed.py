"""Questions about the values of a column and how often each occurs: a part of `Table`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.lookup.answers import Answers, AsOf, Count, Quantile, Statistics, TopValues
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.ordered import Method
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.lookup.values import ColumnValues, Number, fraction_of
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.spread import Spread, spread
from metastore_assets.store.manifest import PartitionEntry, Version
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from metastore_assets.value_counts import Built, ListReader

_OPEN_COLUMNS = 32


class ListedAnswers:
    """Answers from the lists of values; where a column has none, from what there is instead."""

    _objects: ObjectStore
    _version: Version
    _lock: RLock
    _columns: OrderedDict[tuple[str, str | None], ColumnValues]

    if TYPE_CHECKING:

        @property
        def as_of(self) -> AsOf: ...

        def statistics(self, columns: list[str] | None = None, partition: str | None = None) -> Statistics: ...

        def _profile(self, partition: str | None) -> Profile: ...

        def _named(self, column: str) -> str: ...

        def _check(self, column: str) -> None: ...

    @files_there
    def top(self, column: str, n: int = 10, partition: str | None = None) -> TopValues:
        """The n most frequent values of a column, fewer when there are fewer.

        Raises NotKeptError when the column's values are not listed, ColumnNotFoundError, PartitionNotFoundError.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
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
        several = q if isinstance(q, Sequence) and not isinstance(q, str) else None  # a text is no list of its letters
        fractions = [fraction_of(one) for one in ([q] if several is None else several)]
        found = self._values(column, partition).quantiles(fractions, method)
        return found[0] if several is None else found

    @files_there
    def rank(self, column: str, value: object, partition: str | None = None) -> Count:
        """How many values are less than one, which need not occur: 0 for the least. NaN is the greatest.

        `value` is of the column's type, in Python or in Arrow; `expressions.literals` says how text is made one.
        Exact where the values are listed, else an estimate of numbers and times.

        Raises LiteralError for a value of another type, NotKeptError, ColumnNotFoundError, PartitionNotFoundError.
        """
        own = self._values(column, partition)
        return own.rank(own.literal(value))

    @files_there
    def count_between(self, column: str, low: object, high: object, partition: str | None = None) -> Count:
        """How many values lie from `low` to `high`, both inclusive; otherwise as `rank`."""
        own = self._values(column, partition)
        return own.count_between(own.literal(low), own.literal(high))

    @files_there
    def frequency(self, column: str, value: object, partition: str | None = None) -> Count:
        """How often a value occurs, exactly; 0 where it does not. Errors as of `rank`.

        NotKeptError where values are not listed, unless bounds tell that there is none.
        """
        own = self._values(column, partition)
        return own.frequency(own.literal(value))

    @files_there
    def where_is(self, column: str, value: object) -> Answers[tuple[str, int]]:
        """The partitions that hold a value, with its frequency in each, in the order of the version.

        One small read under the policy `by_partition: on`. Else reads the lists of partitions one by one, but for those
        whose bounds leave the value out, until all of its rows are found. Errors as of `frequency`.
        """
        own = self._values(column, None)
        wanted = own.literal(value)
        kept = own.partitions_of(wanted)
        if kept is not None:
            return Answers(kept, "exact", self.as_of)
        left = own.frequency(wanted).count
        found = []
        for entry in self._places():
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
        return self._values(column, partition).spread()

    @files_there
    def spreads(self) -> dict[str, Spread]:
        """The same of all listed columns of the table, by name, read at once."""
        rows = [
            row
            for row in self.statistics()
            if row.frequencies in ("enumerated", "repeated") and row.type_class is not None
        ]
        known = [row for row in rows if not row.value_count or row.field_id in self._lists.columns]
        classes = {row.type_class for row in known if row.type_class is not None and row.value_count}
        counts = {name: self._lists.counts_of_class(name) for name in classes}
        return {row.column: spread(counts.get(row.type_class or "", {}).get(row.field_id, ())) for row in known}

    @files_there
    def built(self) -> dict[str, Built]:
        """How lists of the table were built from scratch, by column name: the algorithm, where, and what decided it.

        Lists that grew from what there was are not among them.
        """
        how = self._lists.built
        return {row.column: how[row.field_id] for row in self.statistics() if row.field_id in how}

    @files_there
    def mode(self, column: str, partition: str | None = None) -> tuple[pa.Scalar, int] | None:
        """The most frequent value and its frequency, the least one of several; None where there is no value.

        Raises as `top`.
        """
        return next(iter(self.top(column, 1, partition).values), None)

    def value_files(self, column: str) -> list[str]:
        """The Parquet files, below the table's folder, that list the values of a column of the table, for other tools.

        A row is `column` (the column's `field_id`), `value` and `frequency`; where there are several files, frequencies
        of a value add up, and a sum of 0 says that it is gone. See `frequencies_file`. Raises as `top`.
        """
        return self._values(column, None).files()

    @property
    def frequencies_file(self) -> str | None:
        """The Parquet file, below the table's folder, that has a row (`column`, `value`, `frequency`) for each listed
        value of the table, by decreasing frequency; None unless lists are compacted and have not changed since.
        """
        return (self._version.lists and self._version.lists.frequencies) or None

    @property
    def ranks_file(self) -> str | None:
        """The same with `rank`, by increasing value, of the columns with `ranks: on`; None where there are none."""
        return (self._version.lists and self._version.lists.ranks) or None

    def literal(self, column: str, value: object) -> pa.Scalar:
        """A value that is asked about, as one of a column's class; errors as of `rank`."""
        return self._values(column, None).literal(value)

    def values(self, column: str, partition: str | None = None) -> Iterator[Frequencies]:
        """All listed values of a column with their frequencies, in their order, in pieces of bounded size.

        Where `frequencies: repeated` lists those that occur at least twice, these. Raises as `top`.
        """
        yield from self._values(column, partition).pieces()

    def _places(self) -> Sequence[PartitionEntry]:
        """The partitions that values may be in."""
        return self._version.partitions

    def _lists_of(self, partition: str | None) -> tuple[bool, bool]:
        """Whether a profile has lists of its own, and whether the table's lists are of it."""
        # The only partition of a table has no lists but the table's.
        return partition is not None, partition is None or len(self._version.partitions) == 1

    def _values(self, column: str, partition: str | None) -> ColumnValues:
        key = column, partition
        kept = self._columns.get(key)
        if kept is None:
            self._check(column)
            profile = self._profile(partition)  # once: meanwhile other threads may have others opened
            row = profile.statistics([column])[0]
            decision = self._version.decisions.get(row.field_id)
            has_own_lists, is_whole = self._lists_of(partition)
            kept = ColumnValues(
                row,
                self._named(column),
                profile,
                lambda: self._lists,
                None if decision is None else decision.reason,
                has_own_lists=has_own_lists,
                is_whole=is_whole,
                as_of=self.as_of,
            )
        with self._lock:  # of the order in which they were asked for: nothing is read meanwhile
            self._columns[key] = kept
            self._columns.move_to_end(key)
            if len(self._columns) > _OPEN_COLUMNS:
                self._columns.popitem(last=False)
        return kept

    @lock_free_cached_property
    def _lists(self) -> ListReader:
        from metastore_assets.value_counts import ListReader, read_lists  # the statistics of columns do without

        return ListReader(self._objects, read_lists(self._objects, self._version.lists))
