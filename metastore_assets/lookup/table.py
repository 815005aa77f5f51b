"""What is known of one table as of one published version: statistics, most frequent values, histograms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from threading import RLock

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import ColumnNotFoundError, PartitionNotFoundError
from metastore_assets.lookup.answers import AsOf, Statistics, names_of
from metastore_assets.lookup.distributed import HistogramAnswers
from metastore_assets.lookup.filtered import FilteredAnswers
from metastore_assets.lookup.listed import ListedAnswers
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.of_partitions import ALL, PartitionStatistics, chosen_keys
from metastore_assets.lookup.past import PastAnswers
from metastore_assets.lookup.profile_files import ProfileReader
from metastore_assets.lookup.values import ColumnValues
from metastore_assets.messages import close_names, near_names
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.manifest import OwnStatistics, PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.stored_entries import find_partition
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves

_OPEN_PROFILES = 32
_FEW = 4
"""Partitions that are rather read one by one, each in its own file."""
_KEPT_ROWS = 20_000
"""Rows of statistics of all partitions that are kept for who asks again."""


class Table(ListedAnswers, HistogramAnswers, FilteredAnswers, PastAnswers):
    """Answers from one version of one table. Reads no more of its files than an answer needs; safe to share."""

    def __init__(
        self,
        objects: ObjectStore,
        version: Version,
        user_statistics: Sequence[str] = (),
        table_locations: Sequence[str] = (),
    ) -> None:
        self._objects = objects
        self._version = version
        self.user_statistics = tuple(user_statistics)
        """The classes of user-defined statistics, as `module:Class`, that may be imported to answer."""
        self.table_locations = tuple(table_locations)
        """Where files of the table may be read if the version says that they are there: folders and prefixes."""
        self._leaves = [leaf for leaves in schema_leaves(version.schema) for leaf in leaves]
        self._paths = frozenset(leaf.path for leaf in self._leaves)
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

        Of the table, of one `partition`, or of several `partitions`, one after the other: keys, or patterns such as
        `"day=2024-01-*"`, and `"all"` (or `"*"`) for all of them, by key. One column of all partitions is read in one
        slice. The mergeable states are left out (None); `to_arrow()` of the answer is a table.

        Raises ColumnNotFoundError, PartitionNotFoundError.
        """
        wanted = None if columns is None else names_of(columns)
        for column in wanted or ():
            self._check(column)
        if partitions is None:
            rows = self._profile(partition).statistics(wanted)
            return Statistics(rows, None if partition is None else [partition] * len(rows), self.as_of)
        if partition is not None:
            raise ValueError("either one partition or several partitions, not both")
        return self._statistics_of(wanted, partitions)

    def _statistics_of(self, columns: list[str] | None, partitions: Iterable[str] | str) -> Statistics:
        if partitions in ALL:
            asked = None if columns is None else tuple(columns)
            kept = self._everywhere.get(asked)
            if kept is None:
                kept = self._statistics_at(columns, None)
                if len(kept) <= _KEPT_ROWS:
                    with self._lock:
                        self._everywhere[asked] = kept
                        if len(self._everywhere) > _OPEN_PROFILES:
                            self._everywhere.popitem(last=False)
            return kept
        texts = list(dict.fromkeys([partitions] if isinstance(partitions, str) else partitions))
        if len(texts) <= _FEW and all(self.find_partition(text) is not None for text in texts):
            return self._statistics_at(columns, texts)
        keys = chosen_keys(texts, {entry.key: None for entry in self._version.partitions})
        return self._statistics_at(columns, [self._partition(keys).key] if isinstance(keys, str) else keys)

    def _statistics_at(self, columns: list[str] | None, keys: list[str] | None) -> Statistics:
        """Of all partitions, by key, or of some, in the order given."""
        if self._version.partition_files is not None and (keys is None or len(keys) > _FEW):
            leaves = {leaf.path: (at, leaf) for at, leaf in enumerate(self._leaves)}
            wanted = list(leaves.values()) if columns is None else [leaves[name] for name in columns]
            return Statistics(*self._rows_by_column(wanted, keys), self.as_of)
        # Not among those kept open: many would drive out what is asked for again.
        entries = self._version.partitions if keys is None else [self._partition(key) for key in keys]
        found = [(own.key, self._reader(own.files, own.row_count).statistics(columns)) for own in entries]
        return Statistics(
            [row for _, rows in found for row in rows], [key for key, rows in found for _ in rows], self.as_of
        )

    @files_there
    def _rows_by_column(
        self, columns: list[tuple[int, LeafColumn]], keys: list[str] | None
    ) -> tuple[pa.Table, list[str]]:
        return self._by_column.table(columns, keys)

    @lock_free_cached_property
    def _by_column(self) -> PartitionStatistics:
        files = self._version.partition_files
        assert files is not None
        return PartitionStatistics(self._objects, files, self._own_statistics, self._all_null)

    def _own_statistics(self, own: OwnStatistics) -> ProfileReader:
        return self._reader(ProfileFiles(own.path, "", ()), own.row_count)

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

    @files_there
    def histogram_columns(self) -> list[str]:
        """The columns of the table that have a histogram, in table order."""
        return self._profile(None).columns_with_histograms()

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
        if column not in self._paths:
            names = [leaf.path for leaf in self._leaves]
            raise ColumnNotFoundError(
                f"table {self._version.table!r} has no column {column!r}"
                + close_names(column, names, "; its columns are: {}")
            )

    def _named(self, column: str) -> str:
        return f"column {column!r} of table {self._version.table!r}"
