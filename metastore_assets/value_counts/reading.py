"""Reading of value counts: the most frequent values, all values, and summaries.

An enumerated column stores all its distinct values. A fingerprinted column stores a hash (fingerprint) of every value,
and only those values whose fingerprint occurs at least twice. Each value that it does not store occurs once. A version
has the value counts of one snapshot of the table: the distinct values of its columns with their frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby, takewhile
from threading import local

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.produce import Rows, View
from metastore_assets.produce.ranks import Ranks
from metastore_assets.statistics.fingerprints import Numbers, fingerprint_values
from metastore_assets.statistics.frequencies import (
    EMPTY,
    PERCENTS,
    Frequencies,
    FrequencySummary,
    nearest_ranks,
    run_to_frequencies,
    summarize_frequencies,
)
from metastore_assets.statistics.value_runs import sum_counts
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import (
    FINGERPRINTS,
    add_singletons,
    fingerprint_dataflow,
    fingerprinted_rows,
)
from metastore_assets.value_counts.graph import BY_PARTITION, FREQUENCIES, FREQUENCY_COUNTS, VALUES, rows_of, stage_name
from metastore_assets.value_counts.state import TableValueCounts
from metastore_assets.values.physical import identity_key, physical_series
from metastore_assets.values.types import class_named

_MAX_SCANNED_VALUES = 1_000_000
"""Percentiles of at most this many values are computed from all of them. For more values, only those at the ranks are
read."""
_MAX_FREQUENCY = np.iinfo(np.int64).max


class ValueCountReader:
    """A reader of the value counts of one version.

    It reads only the row groups that an answer needs.

    An enumerated column has all distinct values. A fingerprinted column has only repeated values, and counts of the
    fingerprints (hashes) of all values.

    The argument `column` is a field id. `type_class` is the name of the column's type class, which is a group of column
    types whose values are stored as one type.
    """

    def __init__(self, store: ObjectStore, value_counts: TableValueCounts) -> None:
        self.columns = {**value_counts.columns, **value_counts.fingerprinted.columns}
        """The name of the type class of each enumerated or fingerprinted column, by field id."""
        self.built = value_counts.built
        """How the value counts of each column were built from scratch, by field id."""
        self.top_limits = value_counts.top_limits
        """The limits on the reported most frequent values, by field id. Columns without limits are missing."""
        self._classes = frozenset(value_counts.columns.values())
        self.by_partition = value_counts.by_partition
        """The name of the type class of each column that is also counted by partition, by field id."""
        self._view = value_counts.dataflow(store).view(value_counts.flow)
        self._fingerprinted = value_counts.fingerprinted
        self.fingerprint_bits = value_counts.fingerprinted.bits
        """Width of the fingerprints in bits."""
        self._fingerprint_view = fingerprint_dataflow(store, value_counts.fingerprinted.columns.values()).view(
            value_counts.fingerprinted.flow
        )
        self._ranks = local()

    def files(self, column: str, type_class: str) -> list[str]:
        """Return the paths of the files with the values of a column, relative to the table's folder."""
        view = self._view_of(column, type_class)
        return [] if view is None else [run.path for run in view.runs(stage_name(VALUES, type_class))]

    def frequencies_of(self, column: str, type_class: str, values: pa.Array) -> list[int]:
        """Return the stored frequency of each value; 0 for a value that is not stored.

        Each row group that may have some of the values is read once.
        """
        view = self._view_of(column, type_class)
        if view is None:
            return [0] * len(values)
        fingerprints = {"fingerprint": self._fingerprints(values)} if self.is_fingerprinted(column) else {}
        keys = pa.table({"column": pa.repeat(pa.scalar(column), len(values)), **fingerprints, "value": values})
        rows = view.groups(stage_name(VALUES, type_class), keys)
        by_key = dict(zip(map(identity_key, rows["value"]), rows["frequency"].to_pylist(), strict=True))
        return [by_key.get(identity_key(value), 0) for value in values]

    def fingerprint_frequencies(self, column: str, values: pa.Array) -> list[int]:
        """Return how many rows of a fingerprinted column have the fingerprint of each of `values`."""
        fingerprints = self._fingerprints(values)
        keys = pa.table({"column": pa.repeat(pa.scalar(column), len(values)), "fingerprint": fingerprints})
        rows = self._fingerprint_view.groups(FINGERPRINTS, keys)
        by_fingerprint = dict(zip(rows["fingerprint"].to_pylist(), rows["frequency"].to_pylist(), strict=True))
        return [by_fingerprint.get(fingerprint, 0) for fingerprint in fingerprints.tolist()]

    def top(self, column: str, type_class: str, limit: int, least: int = 1) -> pa.Table:
        """Return the most frequent stored values as a table of `value` and `frequency`.

        Rows are sorted by decreasing frequency.

        Args:
            column: The field id of the column.
            type_class: The name of its type class.
            limit: The maximum number of values.
            least: The minimum frequency, inclusive.
        """
        schema = pa.schema({"value": rows_of(type_class).key.field("value").type, "frequency": pa.int64()})
        tables = [schema.empty_table()]
        for table in self.by_frequency(column, type_class, least) if limit else ():
            frequent = table.filter(pc.greater_equal(table["frequency"], least))
            tables.append(frequent.slice(0, min(limit, frequent.num_rows)))  # Arrow refuses lengths beyond 64 bits.
            limit -= tables[-1].num_rows
            if limit <= 0 or (table.num_rows and tables[-1].num_rows < table.num_rows):
                break
        return pa.concat_tables(tables)

    def by_frequency(self, column: str, type_class: str, least: int = 1) -> Iterator[pa.Table]:
        """Yield the stored values by decreasing frequency, as tables of `value` and `frequency`.

        Values of the same frequency are sorted by increasing value. A fingerprinted column stores only a few of its
        values that occur once. These few come last, in the order of their fingerprints.

        Args:
            column: The field id of the column.
            type_class: The name of its type class.
            least: The minimum frequency that the caller needs. Values that occur less often may be included.
        """
        start = pa.table(
            {
                "column": pa.array([column]),
                "frequency": pa.array([_MAX_FREQUENCY]),
                "value": pa.nulls(1, rows_of(type_class).key.field("value").type),
            }
        )
        repeated_rows = self._column_rows(FREQUENCIES, type_class, column, start)
        single = (table.filter(pc.equal(table["frequency"], 1)) for table in self._values(column, type_class))
        for table in chain(repeated_rows, single if least <= 1 else ()):
            yield table.select(["value", "frequency"])

    def frequencies(self, column: str, type_class: str) -> Frequencies:
        """Return all stored values of a column with their frequencies."""
        tables = list(self._values(column, type_class))
        if tables and self.is_fingerprinted(column):
            return _frequencies_of_rows(pa.concat_tables(tables), type_class)
        return _concatenate_rows(tables) if tables else EMPTY

    def all_frequencies(self, type_class: str) -> Iterator[tuple[str, Frequencies]]:
        """Yield (field id, values with frequencies) of each enumerated column of a type class.

        The columns are in ascending order of field id, and read in one pass. Columns without values are left out.
        """
        if type_class in self._classes:
            for column, tables in self._columns_of_class(type_class):
                yield column, _concatenate_rows(tables)

    def pieces(self, column: str, type_class: str) -> Iterator[Frequencies]:
        """Yield the stored values of a column with their frequencies, by ascending value.

        The values of an enumerated column are yielded in batches, those of a fingerprinted column in a single piece.
        """
        if self.is_fingerprinted(column):
            yield self.frequencies(column, type_class)
            return
        for batch in self.batches(column, type_class):
            yield Frequencies(batch.column("value"), batch.column("frequency"))

    def batches(self, column: str, type_class: str) -> Iterator[pa.RecordBatch]:
        """Yield batches of `column`, `value` and `frequency` in stored order.

        The order is by value, or by fingerprint in a fingerprinted column.
        """
        for table in self._values(column, type_class):
            yield from table.select(rows_of(type_class).schema.names).to_batches()

    def rows(self, column: str, type_class: str) -> Iterator[pa.Table]:
        """Yield tables of `column`, `value` and `frequency`, in the stored order.

        For a fingerprinted column, they also have the column `fingerprint`, between `column` and `value`.
        """
        return self._values(column, type_class)

    def values_of_fingerprints(self, column: str, type_class: str, fingerprints: Numbers) -> Frequencies:
        """Return the stored values of a fingerprinted column that have one of the (sorted) fingerprints."""
        keys = pa.table({"column": pa.repeat(pa.scalar(column), len(fingerprints)), "fingerprint": fingerprints})
        return _frequencies_of_rows(
            self._fingerprint_view.rows_with_prefixes(stage_name(VALUES, type_class), keys), type_class
        )

    def partitions_of(self, column: str, value: pa.Scalar) -> list[tuple[str, int]]:
        """Return (partition key, frequency) of each partition that contains a value, sorted by key.

        If few partitions contain the value, one or two row groups of each file are read.

        Raises KeyError if the column is not counted by partition: the attribute `by_partition` lacks it.
        """
        key = rows_of(self.by_partition[column], by_partition=True).key
        start = [pa.array([column]), pa.repeat(value, 1), pa.nulls(1, pa.string())]
        partitions: list[tuple[str, int]] = []
        for table in self._by_partition(column, pa.table(start, names=key.names)):
            matching = table.filter(_equals(table["value"], value))
            partitions += zip(matching["partition"].to_pylist(), matching["frequency"].to_pylist(), strict=True)
            if matching.num_rows < table.num_rows:
                break
        return partitions

    def table_by_partition(self, column: str) -> pa.Table:
        """Return the value counts of a column by partition, sorted by value, then partition key.

        The columns of the result are `column`, `value`, `partition` and `frequency`. Raises KeyError if the column is
        not in `by_partition`.
        """
        rows = rows_of(self.by_partition[column], by_partition=True)
        tables = self._by_partition(column, _first_key(rows, column))
        return pa.concat_tables([rows.schema.empty_table(), *tables])

    def counts(self, column: str, type_class: str) -> list[tuple[int, int]]:
        """Return (frequency, number of distinct values with this frequency) pairs, by increasing frequency.

        In a fingerprinted column, the values that are not stored are counted with frequency 1.
        """
        pairs = self._stored_counts(column, type_class)
        return (
            add_singletons(pairs, self._fingerprinted.value_counts[column]) if self.is_fingerprinted(column) else pairs
        )

    def _stored_counts(self, column: str, type_class: str) -> list[tuple[int, int]]:
        """Return (frequency, number of stored values with this frequency) pairs, by increasing frequency."""
        start = pa.table({"column": pa.array([column]), "frequency": pa.nulls(1, pa.int64())})
        return [
            pair
            for table in self._column_rows(FREQUENCY_COUNTS, type_class, column, start)
            for pair in zip(table["frequency"].to_pylist(), table["values"].to_pylist(), strict=True)
        ]

    def counts_of_class(self, type_class: str) -> dict[str, list[tuple[int, int]]]:
        """Return what `counts` returns for each column of a type class, by field id.

        An enumerated column without values is missing from the result.
        """
        fingerprinted_columns = [column for column, name in self._fingerprinted.columns.items() if name == type_class]
        counts_by_column = {column: self.counts(column, type_class) for column in fingerprinted_columns}
        if type_class not in self._classes:
            return counts_by_column
        for batch in self._view.content_batches(stage_name(FREQUENCY_COUNTS, type_class)):
            columns, *pairs = (batch[name].to_pylist() for name in ("column", "frequency", "values"))
            for column, *pair in zip(columns, *pairs, strict=True):
                counts_by_column.setdefault(column, []).append((pair[0], pair[1]))
        return counts_by_column

    def summaries(self, type_class: str, columns: Sequence[str]) -> dict[str, FrequencySummary]:
        """Return {field id: frequency summary} for columns of one type class."""
        summaries = {
            column: self._summarize_fingerprinted(column, type_class)
            if self.is_fingerprinted(column)
            else summarize_frequencies(EMPTY)
            for column in columns
        }
        enumerated_columns = {column for column in columns if not self.is_fingerprinted(column)}
        if not enumerated_columns or type_class not in self._classes:
            return summaries
        rows = sum(run.rows for run in self._view.runs(stage_name(VALUES, type_class)))
        distinct_counts = self._distinct_counts(type_class) if rows > _MAX_SCANNED_VALUES else {}
        large_columns = {column for column, distinct in distinct_counts.items() if distinct > _MAX_SCANNED_VALUES}
        for column in enumerated_columns & large_columns:
            summaries[column] = self._summarize_large(column, type_class)
        # Columns without a large one between them are read in one pass: to search each of thousands of columns takes
        # most of the CPU time of a small commit.
        firsts: list[str | None] = [*distinct_counts] or [None]
        for is_large, group in groupby(firsts, key=large_columns.__contains__):
            if not is_large:
                for column, tables in self._columns_of_class(type_class, next(group), large_columns):
                    if column in enumerated_columns:
                        summaries[column] = summarize_frequencies(_concatenate_rows(tables))
        return summaries

    def ranks(self, type_class: str) -> Ranks:
        """Return a reader of the ranks of the values in the enumerated columns of one type class.

        Each thread gets another reader.

        Ranks begin at 0 in each column. A value has as many ranks as its frequency: if `a` occurs twice and `b` once,
        the ranks of `a` are 0 and 1, and that of `b` is 2.
        """
        cache: dict[str, Ranks] = self._ranks.__dict__
        if type_class not in cache:
            cache[type_class] = self._view.ranks(stage_name(VALUES, type_class), "frequency")
        return cache[type_class]

    def _distinct_counts(self, type_class: str) -> dict[str, int]:
        """Return the number of distinct values of each enumerated column of a type class.

        The columns are in ascending order of field id. Columns without values are left out.
        """
        distinct_counts: dict[str, int] = {}
        for column, table in _split_by_column(self._view.content_batches(stage_name(FREQUENCY_COUNTS, type_class))):
            distinct_counts[column] = distinct_counts.get(column, 0) + pc.sum(table["values"]).as_py()
        return distinct_counts

    def _summarize_large(self, column: str, type_class: str) -> FrequencySummary:
        """Return the summary of a column with many distinct values.

        Only the values of the percentiles are read.
        """
        counts = self.counts(column, type_class)
        ranked_count = sum(frequency * values for frequency, values in counts) - self._nans(column, type_class)
        percentile_ranks = (nearest_ranks(ranked_count) - 1).tolist() if ranked_count else []
        prefix = pa.table({"column": pa.array([column])})
        key = rows_of(type_class).key
        rows = [self.ranks(type_class).at_rank(prefix, rank).select(key.names) for rank in percentile_ranks]
        values = pa.concat_tables([key.empty_table(), *rows])
        assert len(values) in (0, len(PERCENTS))
        repeated_count = sum(number for frequency, number in counts if frequency > 1)
        return FrequencySummary(sum(number for _, number in counts), repeated_count, values["value"].combine_chunks())

    def is_fingerprinted(self, column: str) -> bool:
        """Return whether a column is fingerprinted, so that only its repeated values are stored."""
        return column in self._fingerprinted.columns

    def _summarize_fingerprinted(self, column: str, type_class: str) -> FrequencySummary:
        counts = self.counts(column, type_class)
        repeated_count = sum(number for frequency, number in counts if frequency > 1)
        return FrequencySummary(sum(number for _, number in counts), repeated_count, None)

    def _view_of(self, column: str, type_class: str) -> View | None:
        if self.is_fingerprinted(column):
            return self._fingerprint_view
        return self._view if type_class in self._classes else None

    def _nans(self, column: str, type_class: str) -> int:
        if type_class != "float64":
            return 0
        nan = pa.table({"column": pa.array([column]), "value": pa.array([float("nan")])})
        return self.ranks(type_class).amount_between(nan, nan)

    def _values(self, column: str, type_class: str) -> Iterator[pa.Table]:
        rows = fingerprinted_rows(type_class) if self.is_fingerprinted(column) else rows_of(type_class)
        return self._column_rows(VALUES, type_class, column, _first_key(rows, column))

    def _fingerprints(self, values: pa.Array) -> Numbers:
        return fingerprint_values(Frequencies(values, pa.array([1] * len(values))), self._fingerprinted.bits)

    def _by_partition(self, column: str, start: pa.Table) -> Iterator[pa.Table]:
        return self._column_rows(BY_PARTITION, self.by_partition[column], column, start)

    def _columns_of_class(
        self, type_class: str, first: str | None = None, ends: Collection[str] = ()
    ) -> Iterator[tuple[str, list[pa.Table]]]:
        """Yield (field id, tables of values) for each column of a type class that has values.

        The columns are in ascending order of field id.

        Args:
            type_class: The name of the type class.
            first: The field id to begin with; None for all columns.
            ends: Field ids. The first column among them ends the iteration, and is not yielded.
        """
        stage = stage_name(VALUES, type_class)
        batches = (
            self._view.content_batches(stage)
            if first is None
            else self._view.batches_from(stage, _first_key(rows_of(type_class), first))
        )
        wanted_pieces = takewhile(lambda piece: piece[0] not in ends, _split_by_column(batches))
        for column, group in groupby(wanted_pieces, key=lambda piece: piece[0]):
            yield column, [table for _, table in group]

    def _column_rows(self, kind: str, type_class: str, column: str, start: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of a column from the stored files of one kind, such as `values`.

        Args:
            kind: The kind of the files, such as `values`: the argument `kind` of `stage_name`.
            type_class: The type class of the column.
            column: The field id of the column.
            start: One row, the least key to return.
        """
        view = self._view_of(column, type_class)
        if view is None:
            return
        for batch in view.batches_from(stage_name(kind, type_class), start):
            table = pa.Table.from_batches([batch])
            rows = table.filter(pc.equal(table["column"], column))
            if rows.num_rows:
                yield rows
            if rows.num_rows < table.num_rows:
                return


def _first_key(rows: Rows, column: str) -> pa.Table:
    """Return the least possible key of a column's rows, as a table of one row."""
    first = [pa.array([column]), *(pa.nulls(1, field.type) for field in list(rows.key)[1:])]
    return pa.table(first, names=rows.key.names)


def _frequencies_of_rows(rows: pa.Table, type_class: str) -> Frequencies:
    """Return the distinct values, ascending, with their summed frequencies.

    The rows may be in any order.

    Args:
        rows: Rows with the columns `value` and `frequency`.
        type_class: The name of the type class of all values.
    """
    if not rows.num_rows:
        return EMPTY
    cls = class_named(type_class)
    values, counts = physical_series(rows["value"].combine_chunks(), cls), rows["frequency"].to_numpy()
    return run_to_frequencies(sum_counts(values, counts), cls)


def _equals(values: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    """Return a mask of the values that equal `value`; NaN equals NaN."""
    if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
        return pc.is_nan(values)
    if isinstance(value, pa.ExtensionScalar):
        return pc.equal(values.cast(value.type.storage_type), value.value)
    return pc.equal(values, value)


def _split_by_column(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Yield (column, its rows) for each column in each batch.

    The batches are sorted by column.
    """
    for batch in batches:
        table = pa.Table.from_batches([batch])
        runs = pc.run_end_encode(table["column"].combine_chunks())
        start = 0
        for column, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield column, table.slice(start, end - start)
            start = end


def _concatenate_rows(tables: list[pa.Table]) -> Frequencies:
    """Return the rows of all tables, in the given order, as frequencies.

    The first table must have the least values, and so on, because the values of `Frequencies` are ascending. This is
    not checked.
    """
    table = pa.concat_tables(tables).combine_chunks()
    values, counts = table["value"].combine_chunks(), table["frequency"].combine_chunks()
    return Frequencies(values, counts)
