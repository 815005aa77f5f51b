"""Readers of stored profiles of tables and partitions: statistics, values and histograms of columns.

The files of a profile have the names and the order of columns as of the time when they were written. Readers find
columns by field id, and return them under their current names. A column that is not in the files was added to the table
later, and is null in all rows of the profile.

A state is the stored form of a statistic that can be merged with that of other rows. Examples are sketches, and the
moments, from which mean and standard deviation are computed. A version has the statistics of one snapshot of the table.
The policy of a column decides which of its statistics and values are stored. Value counts are the distinct values of a
column with their frequencies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from threading import RLock
from typing import Protocol

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import PartitionNotFoundError
from metastore_assets.expressions.partition_keys import ALL_PARTITIONS
from metastore_assets.lookup.arguments import check_partition, partition_texts
from metastore_assets.lookup.partition_statistics import PartitionStatistics
from metastore_assets.lookup.results import AsOf, ResultSet
from metastore_assets.lookup.statistics_rows import statistics_rows, stored_statistics_rows
from metastore_assets.lookup.version_references import VersionColumns
from metastore_assets.messages import nearest_names
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.moments import decode_moments
from metastore_assets.statistics.profile_tables import (
    COLUMNS,
    decode_columns,
    parse_frequencies,
    parse_histograms,
    parse_statistics_rows,
    with_partition,
)
from metastore_assets.statistics.quantiles import Digest, decode_digests
from metastore_assets.statistics.typed_union import unpack_scalars
from metastore_assets.store.entries import find_partition
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import SharedParquet, parquet_errors
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.version import Decision, PartitionEntry, ProfileFiles, UnindexedPartition, Version
from metastore_assets.values.columns import Column

_OPEN_PROFILES = 32
_READ_SINGLY = 4
"""Statistics of at most this many partitions are read from their profiles; of more, from the partition index."""
_CACHED_ROWS = 20_000
"""Statistics of all partitions are cached if they have at most this many rows."""
_VALUES = ("value", "frequency")
_SKETCH = ("moments", "quantile_minimum", "quantile_maximum", "quantile_means", "quantile_weights")


class Profile(Protocol):
    """The statistics, values, sketches and histograms of a set of rows, read column by column.

    The argument `field_id` is the field id of a column. `column` and `columns` are dotted paths.
    """

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """Return the statistics of the named columns, or of all columns.

        Raises KeyError for an unknown name.
        """

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """Return the n most frequent values of a column with their frequencies.

        Returns None if there are no value counts.
        """

    def frequencies(self, field_id: str) -> Frequencies | None:
        """Return all values of a column with their frequencies; None if there are no value counts."""

    def repeated(self, field_id: str) -> Frequencies | None:
        """Return the values of a column that occur at least twice, with their frequencies.

        The result is None if the profile has all values of the column (see `frequencies`), or none of them.
        """

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """Return (quantile sketch, (number of -inf, number of +inf)) of a column; None without a sketch.

        The quantile sketch in the result is None if all values are infinite.
        """

    def histogram(self, column: str) -> Histogram | None:
        """Return the histogram of a column; None if none is stored.

        Raises KeyError for an unknown column.
        """


def with_infinities(digest: Digest | None, moments: bytes | None) -> tuple[Digest | None, tuple[int, int]] | None:
    """Return (quantile sketch, (number of -inf, number of +inf)) of a column's values.

    Without a stored sketch, the result is None, except if the moments count infinities and no finite values: then it is
    (None, numbers of infinities).

    Args:
        digest: The quantile sketch of the finite values; None if none is stored.
        moments: The encoded moments, which also count infinities. None if no moments are stored: the numbers of
            infinities are then 0.
    """
    if moments is None:
        return None if digest is None else (digest, (0, 0))
    state = decode_moments(moments)
    # Without a digest there must be no finite values, so that the infinities are all values.
    is_described = any(state.infinities) and not state.n if digest is None else True
    return (digest, state.infinities) if is_described else None


class ProfileReader:
    """A reader of the files of one profile.

    Each file is opened once, on first use. Threads can share the object.
    """

    def __init__(
        self,
        objects: ObjectStore,
        files: ProfileFiles,
        columns: Sequence[Column],
        missing: Callable[[Column], ColumnStatistics],
    ) -> None:
        """Create a reader of one profile.

        Args:
            objects: The table's folder.
            files: The files of the profile.
            columns: The current columns of the table, in table order.
            missing: A function that returns the statistics of a column that is not in the files.
        """
        self._objects = objects
        self._files = files
        self._table_columns = columns
        self._missing = missing
        self._groups: dict[int, pa.Table] = {}
        self._frequency_files: dict[int, SectionReader] = {}
        self.columns = {column.path: position for position, column in enumerate(columns)}
        """The position of each column in the table, by its dotted path."""

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """Return the statistics of the named columns, or of all columns.

        States are in another file. The fields for them, such as `moments`, are None.

        Each row group is read once. Raises KeyError for an unknown name.
        """
        positions = range(len(self._table_columns)) if columns is None else [self.columns[name] for name in columns]
        requested_columns = [(position, self._table_columns[position]) for position in positions]
        rows = [
            self._positions[column.field_id] for _, column in requested_columns if column.field_id in self._positions
        ]
        stored_rows = {row.field_id: row for row in self._rows(rows)}
        return [
            apply_schema(
                stored_rows[column.field_id] if column.field_id in stored_rows else self._missing(column),
                position,
                column,
            )
            for position, column in requested_columns
        ]

    def repeated(self, field_id: str) -> Frequencies | None:
        """Return None, because a stored profile has either all values of a column or none.

        The table's value counts, which are separate files, may have only the values that occur at least twice.
        """
        return None

    def _rows(self, rows: Sequence[int]) -> list[ColumnStatistics]:
        """Return the statistics in the given rows of the file `statistics`, in the order of `rows`.

        Only the row groups with these rows are read.
        """
        if not rows:
            return []
        starts = self._group_starts
        groups = sorted({bisect_right(starts, row) - 1 for row in rows})
        offsets = dict(zip(groups, accumulate((starts[i + 1] - starts[i] for i in groups), initial=0), strict=False))
        table = pa.concat_tables([self._group(i) for i in groups])
        positions = [offsets[i] + row - starts[i] for row in rows for i in (bisect_right(starts, row) - 1,)]
        if positions == list(range(positions[0], positions[0] + len(positions))):
            return parse_statistics_rows(table.slice(positions[0], len(positions)))
        return parse_statistics_rows(table.take(pa.array(positions)))

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """Return the n most frequent values of a column with their frequencies.

        Returns None if there are no value counts. The list is empty for a column that is not in the files, because it
        is null in all rows.
        """
        if field_id not in self._positions:
            return []
        tables: list[pa.Table] = []
        for file in self._frequency_files_with(field_id):
            tables.append(file.read_section(field_id, n, _VALUES))
            n -= tables[-1].num_rows
            if n <= 0:
                break
        if not tables:
            return None
        table = pa.concat_tables(tables).combine_chunks()
        if not table.num_rows:
            return []
        values = unpack_scalars(table.column("value").combine_chunks())
        return list(zip(values, table.column("frequency").to_pylist(), strict=True))

    def frequencies(self, field_id: str) -> Frequencies | None:
        """Return all values of a column with their frequencies.

        Returns None if the profile has no value counts of the column. The result is empty for a column that the profile
        does not have, because that column is null in all rows.
        """
        if field_id not in self._positions:
            return EMPTY
        tables = [file.read_section(field_id, columns=_VALUES) for file in self._frequency_files_with(field_id)]
        return parse_frequencies(pa.concat_tables(tables).combine_chunks()) if tables else None

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """Return (quantile sketch, (number of -inf, number of +inf)) of a column; None without a sketch.

        The quantile sketch in the result is None if all values are infinite.
        """
        if not self._files.states:
            return None
        with self._reading(self._files.states):
            file = self._objects.open_parquet(self._files.states)
            for group in range(file.metadata.num_row_groups):
                names = file.read_row_group(group, columns=["section", "field_id"]).to_pylist()
                name = {"section": self._files.section, "field_id": field_id}
                if name in names:
                    sketches = file.read_row_group(group, columns=list(_SKETCH))
                    row = sketches.slice(names.index(name), 1)
                    (digest,) = decode_digests(row.combine_chunks())
                    return with_infinities(digest, row["moments"][0].as_py())
        return None

    def user_states(self) -> dict[str, bytes]:
        """Return the encoded states of user-defined statistics, by field id.

        Columns without stored states are missing.

        The profile of a table has the states of all columns. Other profiles may lack the states of a column if they
        store all values of the column.
        """
        if not self._files.states:
            return {}
        with self._reading(self._files.states):
            rows = self._objects.read_parquet(self._files.states, ("section", "field_id", "user_states")).to_pylist()
        return {
            row["field_id"]: row["user_states"]
            for row in rows
            if row["section"] == self._files.section and row["user_states"] is not None
        }

    def histogram(self, column: str) -> Histogram | None:
        """Return the histogram of a column; None if there is none.

        Raises KeyError for an unknown path.
        """
        written_name = self._written_name(self._table_columns[self.columns[column]])
        if written_name not in self._histogram_columns:
            return None
        with self._reading(self._files.histograms):
            # The reader returns every column whose dotted path begins with the name.
            with self._histograms.acquire() as file:
                table = file.read(columns=[written_name])
            return parse_histograms(table.select([written_name]))[written_name]

    def columns_with_histograms(self) -> list[str]:
        """Return the dotted paths of the columns that have a histogram, in table order."""
        return [column.path for column in self._table_columns if self._written_name(column) in self._histogram_columns]

    def _written_name(self, column: Column) -> str | None:
        """Return the dotted path of a column in the profile's files, or None if they lack the column.

        It differs from `column.path` if the column was renamed after the files were written.
        """
        row = self._positions.get(column.field_id)
        return None if row is None else self._names[row][0]

    @lock_free_cached_property
    def _positions(self) -> dict[str, int]:
        return {field_id: row for row, (_, field_id) in enumerate(self._names)}

    @lock_free_cached_property
    def _names(self) -> list[tuple[str, str]]:
        """(dotted path, field id) of each row of the file `statistics`.

        Raises CorruptionError if the file has no valid list of its columns.
        """
        with self._reading(self._files.statistics):
            return decode_columns((self._statistics.metadata.metadata or {})[COLUMNS.encode()])

    @lock_free_cached_property
    def _statistics(self) -> SharedParquet:
        return SharedParquet(self._objects, self._files.statistics)

    @lock_free_cached_property
    def _histograms(self) -> SharedParquet:
        return SharedParquet(self._objects, self._files.histograms)

    @lock_free_cached_property
    def _histogram_columns(self) -> frozenset[str]:
        if not self._files.histograms:
            return frozenset()
        with self._reading(self._files.histograms):
            return frozenset(self._histograms.metadata.schema.to_arrow_schema().names)

    @lock_free_cached_property
    def _group_starts(self) -> list[int]:
        with self._reading(self._files.statistics):
            metadata = self._statistics.metadata
            rows = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            return list(accumulate(rows, initial=0))

    def _group(self, index: int) -> pa.Table:
        group = self._groups.get(index)
        if group is None:
            with self._reading(self._files.statistics), self._statistics.acquire() as file:
                group = self._groups.setdefault(index, file.read_row_group(index))
        return group

    def _frequency_files_with(self, field_id: str) -> Iterator[SectionReader]:
        """Yield the files of value counts that have values of a column.

        A file has one or more columns. Files are in column order, so the first one is found by binary search.
        """
        target = self._positions.get(field_id, -1)
        low, high = 0, len(self._files.frequencies)
        while high - low > 1:
            middle = (low + high) // 2
            first = self._first_position(middle)
            if first < 0:
                low = 0  # a file without columns gives no direction: read all files from the first
                break
            low, high = (middle, high) if first < target else (low, middle)
        for index in range(low, len(self._files.frequencies)):
            if field_id in self._frequency_file(index).sections:
                yield self._frequency_file(index)
            elif self._first_position(index) > target:
                return

    def _first_position(self, index: int) -> int:
        """Return the position, in the file `statistics`, of the first column of a file of value counts.

        The result is -1 if the file of value counts has no columns, or if its first column has no row in the file
        `statistics`.

        Args:
            index: The position of the file of value counts in `ProfileFiles.frequencies`, from 0.
        """
        first = next(iter(self._frequency_file(index).sections), None)
        return -1 if first is None else self._positions.get(first, -1)

    def _frequency_file(self, index: int) -> SectionReader:
        """Return a file of value counts, which is opened at most once."""
        file = self._frequency_files.get(index)
        if file is None:
            path = self._files.frequencies[index]
            with self._reading(path):
                file = self._frequency_files.setdefault(index, SectionReader(self._objects, path))
        return file

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        with parquet_errors(self._objects.uri(path)):
            yield


class TableProfiles:
    """The stored profiles of a version: of the table and of its partitions.

    Threads can share the object.
    """

    def __init__(self, objects: ObjectStore, version: Version, columns: VersionColumns) -> None:
        """Prepare to read profiles of a version.

        A reader is created when a profile is first used.

        Args:
            objects: The table's folder.
            version: The version.
            columns: The columns of the version.
        """
        self._objects = objects
        self._version = version
        self._columns = columns
        self._lock = RLock()
        self._entries: dict[str, PartitionEntry | None] = {}
        self._open: OrderedDict[str | None, ProfileReader] = OrderedDict()
        self._partition_statistics: OrderedDict[tuple[str, ...] | None, ResultSet[ColumnStatistics]] = OrderedDict()

    def profile(self, partition: str | None) -> ProfileReader:
        """Return the profile of a partition, or of the table for None.

        Raises PartitionNotFoundError.
        """
        entry = None if partition is None else self.partition(partition)
        files, rows = (
            (self._version.files, self._version.row_count) if entry is None else (entry.files, entry.row_count)
        )
        with self._lock:
            if partition not in self._open:
                self._open[partition] = self.open(files, rows)
                if len(self._open) > _OPEN_PROFILES:
                    self._open.popitem(last=False)
            self._open.move_to_end(partition)
            return self._open[partition]

    def open(self, files: ProfileFiles, rows: int) -> ProfileReader:
        """Return a new reader of a profile.

        This object does not keep the reader.

        Args:
            files: The files of the profile.
            rows: The number of rows that the profile describes.
        """
        return ProfileReader(self._objects, files, self._columns.all, partial(self._all_null, rows))

    def stores_value_counts(self, partition: str | None) -> bool:
        """Return whether a profile itself may have value counts.

        The result is true for a partition, and false for the table (None). The value counts of the table are in
        separate files.
        """
        return partition is not None

    def is_table(self, partition: str | None) -> bool:
        """Return whether `profile(partition)` describes all rows of the table.

        It does for None, and for the table's only partition.
        """
        return partition is None or len(self._version.partitions) == 1

    def partitions(self) -> Sequence[PartitionEntry]:
        """Return the partitions of the version, in the order in which the version lists them."""
        return self._version.partitions

    def find_partition(self, key: str) -> PartitionEntry | None:
        """Return the partition with a key; None if there is none.

        Only a few entries are read.
        """
        check_partition(key)
        if key not in self._entries:
            self._entries[key] = find_partition(self._version, key)
        return self._entries[key]

    def partition(self, key: str) -> PartitionEntry:
        """Return the partition with a key.

        Raises PartitionNotFoundError if there is none.
        """
        entry = self.find_partition(key)
        if entry is None:
            name = self._version.table
            raise PartitionNotFoundError(
                f"table {name!r} has no partition {key!r} in version {self._version.number}"
                + nearest_names(key, [entry.key for entry in self._version.partitions])
                + f"; list them with `metastore show {name} --partitions`"
            )
        return entry

    def resolve_partition(self, text: str) -> str:
        """Return the key of the partition that a key or a pattern selects.

        Raises PartitionNotFoundError if the text selects no partition or several.
        """
        check_partition(text)
        if self.find_partition(text) is not None:
            return text
        # Most lookups name partitions by key, and need no patterns.
        from metastore_assets.expressions.partition_patterns import resolve_partition

        try:
            return resolve_partition(self._version.table, text, [entry.key for entry in self._version.partitions])
        except PartitionNotFoundError as error:
            raise PartitionNotFoundError(f"version {self._version.number}: {error}") from None

    def partition_statistics(
        self, columns: list[str] | None, partitions: Iterable[str] | str
    ) -> ResultSet[ColumnStatistics]:
        """Return the statistics of several partitions, one after the other.

        Each partition occurs once.

        Args:
            columns: Dotted paths of existing columns; None for all.
            partitions: One or several texts that select partitions (see `expressions.partition_patterns`). The result
                has the order of the texts. Partitions that one text selects are sorted by key. If any text is `*`, the
                result has all partitions, sorted by key.

        Raises:
            PartitionNotFoundError: A text selects no partition, and none of the texts is `*`.
        """
        texts = list(dict.fromkeys(partition_texts(partitions)))
        if ALL_PARTITIONS in texts:
            names = None if columns is None else tuple(columns)
            statistics = self._partition_statistics.get(names)
            if statistics is None:
                statistics = self._statistics_at(columns, None)
                if len(statistics) <= _CACHED_ROWS:
                    with self._lock:
                        self._partition_statistics[names] = statistics
                        if len(self._partition_statistics) > _OPEN_PROFILES:
                            self._partition_statistics.popitem(last=False)
            return statistics
        if len(texts) <= _READ_SINGLY and all(self.find_partition(text) is not None for text in texts):
            return self._statistics_at(columns, texts)
        return self._statistics_at(columns, self.matching_keys(texts))

    def matching_keys(self, partitions: Iterable[str] | str) -> list[str]:
        """Return the keys of the partitions that the given texts select, each key once.

        Keys are in the order of the texts that select them. The keys that one pattern selects are sorted. If any text
        is `*`, the result is all keys of the version, sorted.

        Args:
            partitions: One text or several. Each is a key such as `day=2024-01-01`, or a pattern such as `day=2024-*`;
                see `partition_patterns`.

        Raises:
            PartitionNotFoundError: A text selects no partition, and none of the texts is `*`.
        """
        texts = partition_texts(partitions)
        if ALL_PARTITIONS in texts:
            return sorted(entry.key for entry in self._version.partitions)
        if all(self.find_partition(text) is not None for text in texts):
            return list(dict.fromkeys(texts))
        # Most lookups name partitions by key, and need no patterns.
        from metastore_assets.expressions.partition_patterns import match_partitions

        keys = {entry.key for entry in self._version.partitions}
        selected_keys: dict[str, None] = {}
        for text in texts:
            matches = [text] if text in keys else sorted(match_partitions(self._version.table, [text], keys))
            selected_keys.update(dict.fromkeys(matches))
        return list(selected_keys)

    def _statistics_at(self, columns: list[str] | None, keys: list[str] | None) -> ResultSet[ColumnStatistics]:
        """Return the statistics of the partitions `keys`, in this order.

        If `keys` is None, return those of all partitions, sorted by key.
        """
        as_of = AsOf.of(self._version)
        if self._version.partition_index is not None and (keys is None or len(keys) > _READ_SINGLY):
            by_path = {column.path: (position, column) for position, column in enumerate(self._columns.all)}
            requested_columns = list(by_path.values()) if columns is None else [by_path[name] for name in columns]
            return stored_statistics_rows(*self._by_column.table(requested_columns, keys), as_of)
        # These readers are not cached: many partitions would evict the profiles that are read repeatedly.
        entries = self._version.partitions if keys is None else [self.partition(key) for key in keys]
        rows = [
            with_partition(row, entry.key)
            for entry in entries
            for row in self.open(entry.files, entry.row_count).statistics(columns)
        ]
        return statistics_rows(rows, as_of)

    @lock_free_cached_property
    def _by_column(self) -> PartitionStatistics:
        files = self._version.partition_index
        assert files is not None
        return PartitionStatistics(self._objects, files, self._open_statistics, self._all_null)

    def _open_statistics(self, entry: UnindexedPartition) -> ProfileReader:
        return self.open(ProfileFiles(entry.path, "", ()), entry.row_count)

    def _all_null(self, rows: int, column: Column) -> ColumnStatistics:
        (table_row,) = self.profile(None).statistics([column.path])
        return _null_column(column, rows, table_row, self._version.decisions.get(column.field_id))


def _null_column(column: Column, rows: int, table_row: ColumnStatistics, decision: Decision | None) -> ColumnStatistics:
    """Return the statistics of a column that is null in all rows.

    Args:
        column: The column.
        rows: The number of rows.
        table_row: The statistics of the column in the whole table. They show the policy of the column.
        decision: How the version decided to store the frequencies of a column with the policy `auto` or `repeated`;
            None if it recorded no decision.
    """
    # Both import the configuration models, which most lookups do not need.
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.profile import HIDDEN_REASON, profile_all_null

    policy = ResolvedPolicy()
    if table_row.reason == HIDDEN_REASON:
        # Any key will do, because there are no values to hash.
        policy = ResolvedPolicy(values="hidden").with_hash_key(bytes(32))
    elif table_row.frequencies == "off":
        policy = ResolvedPolicy(frequencies="off")
    elif table_row.frequencies == "repeated":
        policy = ResolvedPolicy(frequencies="repeated", algorithm="fingerprints")
    elif table_row.frequencies == "estimated" or (decision is not None and decision.frequencies == "estimated"):
        policy = ResolvedPolicy(frequencies="estimated")
    row = profile_all_null(column, rows, policy)
    return replace(row, moments=None, quantile_sketch=None, distinct_sketch=None, user_states=None)
