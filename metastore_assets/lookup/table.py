"""One table as of one published version.

A version has the statistics of one snapshot of the table. A fragment is a data file with the deletes that apply to it.
A profile is the statistics of a fragment, a partition or the table. Value counts are the distinct values of a column
with their frequencies. The root is the folder with all stored state. The policy of a column decides which of its
statistics and values are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import ConfigError, NotStoredError
from metastore_assets.lookup.arguments import check_mapping, check_text
from metastore_assets.lookup.histograms import Histograms, merge_bin_frequencies
from metastore_assets.lookup.history import History
from metastore_assets.lookup.profiles import TableProfiles
from metastore_assets.lookup.relation import PARTITION_SCHEMA, Relation, explain_missing_files
from metastore_assets.lookup.results import AsOf, Count, ResultSet
from metastore_assets.lookup.statistics_rows import statistics_rows
from metastore_assets.lookup.value_counts import ValueCounts, open_value_count_reader
from metastore_assets.lookup.version_references import VersionColumns, VersionReference
from metastore_assets.startup import pc
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import SpreadCounts
from metastore_assets.store.objects import ObjectStore, is_path_text
from metastore_assets.store.version import PartitionEntry, Version
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from metastore_assets.config import TableConfig
    from metastore_assets.expressions.predicates import Predicate
    from metastore_assets.history import HistoryPoint
    from metastore_assets.history.history_row import HistoryRow
    from metastore_assets.lookup.clustering import ColumnClustering
    from metastore_assets.lookup.diff import TableDiff
    from metastore_assets.lookup.filtered_view import FilteredView
    from metastore_assets.lookup.pruning import Pruner, Pruning
    from metastore_assets.lookup.selectivity import Estimate
    from metastore_assets.lookup.value_count_changes import TableChanges

_IN_CATALOG = "catalog://"
MAX_SHAPES = 20
"""Maximum number of columns whose distributions a notebook shows."""
_SHAPE_BINS, _SHAPE_VALUES = 24, 8


SnapshotChoice: TypeAlias = Literal["now", "version"]
"""The snapshot to read: the table's current one, or the one that the version describes."""


@dataclass(frozen=True)
class ScanRequest:
    """The rows and columns that `Table.scan` returns."""

    where: str | pc.Expression
    """The predicate, as SQL text or a pyarrow expression."""
    columns: Sequence[str] | None = None
    """Names of top-level columns; None for all."""
    limit: int | None = None
    """The maximum number of rows to return; None for all."""
    snapshot: SnapshotChoice = "now"
    """`now` for the table's current snapshot, `version` for the snapshot of the version."""


class RowSource(Protocol):
    """The rows of one snapshot of a table.

    `reads.SnapshotRows` implements it.
    """

    schema: pa.Schema
    """The columns of the rows."""

    def list_shown_columns(self) -> list[str]:
        """Return the names of the top-level columns of the snapshot whose values may be shown.

        Columns with hidden values (policy `values: hidden`) are left out. So are columns that the version lacks.
        """

    def read(
        self, columns: Sequence[str] | None = None, where: str | pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows that match `where`, with some columns.

        None means all rows or all columns.
        """

    def lazy(self) -> pl.LazyFrame:
        """Return the rows as a lazy frame of Polars."""

    def dataset(self, where: str | pc.Expression | None = None) -> ds.Dataset:
        """Return a dataset of the data files that may have rows that match `where`.

        It has all data files if `where` is None.
        """


class Scanner(Protocol):
    """The interface by which a `Table` reads the table's data files.

    `scan.TableScanner` implements it.
    """

    def filter(
        self, lookup: Table, predicate: Predicate, table: TableConfig | None, spark: Callable[[], SparkSession] | None
    ) -> FilteredView:
        """Return a view of the rows that match a predicate.

        Args:
            lookup: The table as of a version.
            predicate: The predicate, bound to the table's columns.
            table: The table's location; None if no data file may be read.
            spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
                processes of this process read them.
        """

    def count(
        self,
        lookup: Table,
        table: TableConfig,
        where: str | pc.Expression,
        spark: Callable[[], SparkSession] | None,
        snapshot: SnapshotChoice,
    ) -> Count:
        """Return the exact number of matching rows.

        Args:
            lookup: The table as of a version.
            table: The table's configuration, with the location to read.
            where: The predicate, as SQL text or an Arrow expression.
            spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
                processes of this process read them.
            snapshot: The snapshot whose rows are counted.
        """

    def scan(
        self,
        lookup: Table,
        table: TableConfig,
        spark: SparkSession,
        request: ScanRequest,
    ) -> DataFrame:
        """Return the requested rows as a Spark DataFrame."""

    def open_rows(self, lookup: Table, table: TableConfig, snapshot: SnapshotChoice) -> RowSource:
        """Return the rows of a snapshot.

        No data file is read yet.
        """

    def recorded_table(
        self, version: Version, uri: str, confirmed_locations: Sequence[str], storage_options: Mapping[str, str]
    ) -> TableConfig:
        """Return the table configuration that `version` records, with another location and other options.

        Each of its locations, including `uri`, must be one that the caller trusts (`confirmed_locations`), or lie
        below one.

        Raises:
            ConfigError: A location is not confirmed.
            CorruptionError: The version records an invalid location, or a setting that versions never record.
        """


class Table(Relation):
    """One table as of one version.

    Each answer reads only those stored files of the version that it needs.

    Its methods delegate to the attributes `profiles`, `value_counts`, `histograms`, `pruner` and `past`, which callers
    may also use.
    """

    def __init__(
        self,
        objects: ObjectStore,
        version: Version,
        open_scanner: Callable[[], Scanner],
        user_statistics: Sequence[str] = (),
        table_locations: Sequence[str] = (),
    ) -> None:
        """Create a table that answers from a version.

        Args:
            objects: The table's folder below the root.
            version: The version.
            open_scanner: Returns the scanner. It is called when a method first needs the table's data files.
            user_statistics: Classes of custom statistics, as `module:Class`, that may be imported.
            table_locations: Folders and prefixes that the caller trusts. Locations that the version records must equal
                one of them or lie below it.
        """
        self.objects = objects
        self.user_statistics = tuple(user_statistics)
        self.table_locations = tuple(table_locations)
        self.columns = VersionColumns(version)
        self.profiles = TableProfiles(objects, version, self.columns)
        self.value_counts = ValueCounts(
            version, self.columns, self.profiles, lambda: open_value_count_reader(objects, version)
        )
        self.histograms = Histograms(self.columns, self.profiles, self.value_counts, AsOf.of(version))
        self._version = version
        self._open_scanner = open_scanner

    def __repr__(self) -> str:
        from metastore_assets.markup.elements import ABSENT

        version = self._version
        return (
            f"<Table {version.table!r}: version {version.number} of snapshot {version.snapshot or ABSENT}, "
            f"{version.row_count:,} rows, {len(version.schema):,} columns, {len(version.partitions):,} partitions>"
        )

    def _repr_html_(self) -> str:
        from metastore_assets.markup.elements import tag

        return f"{tag('p', repr(self)[1:-1]).html}{self.statistics()._repr_html_()}"

    @lock_free_cached_property
    def pruner(self) -> Pruner:
        """An object that prunes fragments and estimates row counts by predicates."""
        from metastore_assets.lookup.pruning import Pruner  # statistics are read without the index and predicates

        return Pruner(self.objects, self._version, self.columns, self.profiles, self.value_counts)

    @lock_free_cached_property
    def past(self) -> History:
        """The history of the table, and comparisons of its versions."""
        return History(self.versions, self.columns, self, self._at_version)

    @lock_free_cached_property
    def _scanner(self) -> Scanner:
        return self._open_scanner()

    @property
    def version(self) -> Version:
        """The version that all answers of this object are about."""
        return self._version

    @property
    def location(self) -> str | None:
        """The URI of the table that the version records; None if it records none.

        A table in a catalog has `catalog://…`. The Metastore's files about the table are in `metastore_folder`.
        """
        recorded_location = self._version.table_location
        return (
            None if recorded_location is None else str(recorded_location["uri"]) if "uri" in recorded_location else None
        )

    @property
    def metastore_folder(self) -> str:
        """The URI of the folder below the root that has the table's versions."""
        return self.objects.uri()

    @property
    def versions(self) -> VersionStore:
        """All versions of the table."""
        return VersionStore.of_folder(self._version.table, self.objects)

    def newer_version(self) -> int | None:
        """Return the number of the newest version; None if no version is newer than this one.

        The root is read.
        """
        newest = self.versions.newest()
        return newest if newest > self._version.number else None

    def partitions(self) -> ResultSet[PartitionEntry]:
        """Return the table's partitions, in ascending order of keys.

        A table without rows has none.
        """
        return ResultSet(self._version.partitions, self.as_of, PARTITION_SCHEMA)

    def find_partition(self, key: str) -> PartitionEntry | None:
        """Return the partition with a key; None if there is none.

        Only a few entries are read.
        """
        return self.profiles.find_partition(key)

    def resolve_partition(self, partition: str) -> str:
        """Return the key of the only partition that a text selects.

        See `Relation.resolve_partition`.
        """
        return self.profiles.resolve_partition(partition)

    @explain_missing_files
    def statistics(
        self, columns: Iterable[str] | None = None, *, partition: str | Iterable[str] | None = None
    ) -> ResultSet[ColumnStatistics]:
        """Return the statistics of columns: one row per column, or per partition and column.

        Fields with states, which are sketches and other data for merges, are None. For one column in all partitions,
        one read serves all partitions.

        Args:
            columns: Dotted paths of columns or nested fields, in the order of the result; None for all, in table order.
            partition: Keys of partitions, patterns such as `"day=2024-01-*"`, or `"*"` for all partitions. The result
                has the order of these keys and patterns. Partitions that match one pattern are sorted by key. None for
                the whole table.

        Raises:
            ColumnNotFoundError: There is no such column.
            PartitionNotFoundError: There is no such partition.
        """
        names = self.columns.resolve(columns)
        if partition is None:
            rows = self.profiles.profile(None).statistics(names)
            return statistics_rows(rows, self.as_of, lambda: self._shapes(rows[:MAX_SHAPES]))
        return self.profiles.partition_statistics(names, partition)

    def _shapes(self, rows: Iterable[ColumnStatistics]) -> list[list[int]]:
        """Return the bars of a small chart per column.

        The bars are the frequencies of a few bins, or of the most frequent values.
        """
        shapes = []
        for row in rows:
            try:
                histogram = self.histograms.dyadic(row.column)
                shapes.append([] if histogram is None else merge_bin_frequencies(histogram, _SHAPE_BINS))
            except NotStoredError:
                has_values = row.frequencies == "enumerated"
                shapes.append([frequency for _, frequency in self.top(row.column, _SHAPE_VALUES)] if has_values else [])
        return shapes

    def _spreads(self) -> Mapping[str, SpreadCounts]:
        return self.value_counts.table_spreads(self.statistics())

    @explain_missing_files
    def histogram_columns(self) -> list[str]:
        """Return the columns of the table that have a histogram, in table order."""
        return self.profiles.profile(None).columns_with_histograms()

    @property
    def frequencies_file(self) -> str | None:
        """The path of one Parquet file with all value counts by decreasing frequency.

        It is relative to `metastore_folder`. The file's columns are `column`, `value` and `frequency`. The command
        `compact` writes the file. The path is None if `compact` has not run yet, or if value counts or names of columns
        have changed since the last `compact`.
        """
        return (self._version.value_counts and self._version.value_counts.frequencies) or None

    @property
    def ranks_file(self) -> str | None:
        """The path, relative to `metastore_folder`, of a Parquet file with ranks by increasing value.

        The file's columns are `column`, `value`, `frequency` and `rank`, the number of rows with a smaller value. Only
        columns with the policy `ranks: on` are in it. The command `compact` writes the file. The path is None if
        `compact` has not run yet, if there are no such columns, or if value counts or names of columns have changed
        since the last `compact`.
        """
        return (self._version.value_counts and self._version.value_counts.ranks) or None

    def predicate(self, where: str | pc.Expression) -> Predicate:
        """Parse a predicate, and bind it to the table's columns and their types.

        Raises PredicateError, ColumnNotFoundError, LiteralError.
        """
        return self.pruner.predicate(where)

    @explain_missing_files
    def prune(self, where: str | pc.Expression, *, limit: int | None = None) -> Pruning:
        """Return the fragments that may have rows that match a predicate.

        In a large index, only the row groups that may have such fragments are read.

        Args:
            where: SQL text or a pyarrow expression.
            limit: The number of matching rows that are needed, at least 0. The result is then the fewest fragments
                that together certainly have this number. If all fragments together may have fewer, the result is every
                fragment that may match. With None, it is every fragment that may match.

        Raises:
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: The predicate names a column that does not exist.
            LiteralError: A literal of the predicate is not of its column's type.
        """
        return self.pruner.prune(self.predicate(where), limit=limit)

    @explain_missing_files
    def estimate(self, where: str | pc.Expression) -> Estimate:
        """Return bounds and an estimate of the number of rows that match a predicate.

        Data files are not read.

        The estimate is exact if the predicate is one comparison, `in` or `like 'a%'`, and its column has value counts.
        The index is read, and the value counts or the histogram of each column in the predicate. Errors are those of
        `prune`.
        """
        return self.pruner.estimate(self.predicate(where))

    @explain_missing_files
    def clustering(self, columns: Iterable[str] | None = None) -> ResultSet[ColumnClustering]:
        """Return measures of each column's clustering.

        An example is the number of fragments that may have the same value. The index is read. Raises
        ColumnNotFoundError.
        """
        return self.pruner.clustering(self.statistics(columns))

    @explain_missing_files
    def filter(
        self,
        where: str | pc.Expression,
        *,
        read: bool = False,
        table: str | TableConfig | None = None,
        spark: SparkSession | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> FilteredView:
        """Return a view of the rows that match a predicate, with the same methods as the table.

        Stored profiles answer for partitions and fragments that match entirely. They cannot answer for a fragment that
        matches only partly: if `read` is true, its rows are read when an answer needs them.

        Args:
            where: SQL text or a pyarrow expression.
            read: Whether files of the table may be read.
            table: The table's location, as in `count`. Implies `read`.
            spark: A session that reads if there is much to read. Implies `read`.
            storage_options: Options of the table's object store. Implies `read`.

        Raises:
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: The predicate names a column that does not exist.
            LiteralError: A literal of the predicate is not of its column's type.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).

        Answers of the view raise NotStoredError if they need rows that may not be read.
        """
        may_read = read or any(option is not None for option in (table, spark, storage_options))
        config = self.table_config(table, storage_options) if may_read else None
        start_spark = None if spark is None else lambda: spark
        return self._scanner.filter(self, self.predicate(where), config, start_spark)

    def count(
        self,
        where: str | pc.Expression | None = None,
        *,
        partition: str | None = None,
        table: str | TableConfig | None = None,
        spark: SparkSession | None = None,
        snapshot: SnapshotChoice = "now",
        storage_options: Mapping[str, str] | None = None,
    ) -> Count:
        """Return the exact number of rows, or of rows that match a predicate.

        Deleted rows do not count.

        Without a predicate, the number is that of the version, and no data file is read. With a predicate, fragments
        are read if the version cannot answer for them. `estimate` never reads data files.

        Args:
            where: SQL text or a pyarrow expression; None for all rows of the version.
            partition: The key of a partition, or a pattern that selects one. Only without a predicate.
            table: The table's URI or configuration. None for the location that the version records, which must equal
                or lie below one of the `table_locations` of `open_table`.
            spark: A Spark session that reads fragments if there is much to read. Without it, child processes read
                them.
            snapshot: Which rows a predicate counts: those of the table's current snapshot (`now`), or those of the
                version's snapshot (`version`).
            storage_options: Options of the table's object store, which versions do not record.

        Raises:
            PartitionNotFoundError: There is no such partition.
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: The predicate names a column that does not exist.
            LiteralError: A literal of the predicate is not of its column's type.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            FragmentError: A file cannot be read.
            MetastoreError: The snapshot of the version no longer exists.
            ValueError: There are both a predicate and a partition, or `snapshot` is neither of its values.
        """
        if where is None:
            rows = self._version.row_count
            if partition is not None:
                rows = self.profiles.partition(self.resolve_partition(partition)).row_count
            return Count(rows, "exact", self.as_of)
        if partition is not None:
            raise ValueError("give either a predicate or a partition: a predicate may name partition columns")
        if snapshot not in get_args(SnapshotChoice):
            raise ValueError(f"snapshot must be 'now' or 'version', not {snapshot!r}")
        config = self.table_config(table, storage_options)
        return self._scanner.count(self, config, where, None if spark is None else lambda: spark, snapshot)

    def scan(
        self,
        spark: SparkSession,
        request: ScanRequest | str | pc.Expression,
        *,
        table: str | TableConfig | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Return the rows that match a predicate as a Spark DataFrame.

        Only fragments that may match are opened.

        Args:
            spark: The session.
            request: The predicate, columns, limit and snapshot. A predicate alone, as SQL text or a pyarrow expression,
                requests all columns of all matching rows of the current snapshot.
            table: The table's location, as in `count`.
            storage_options: Options of the table's object store, as in `count`.

        Raises:
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: There is no such column.
            LiteralError: A literal of the predicate is not of its column's type.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            UnsupportedTypeError: Spark has no type for a column.
        """
        config = self.table_config(table, storage_options)
        request = request if isinstance(request, ScanRequest) else ScanRequest(request)
        return self._scanner.scan(self, config, spark, request)

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | pc.Expression | None = None,
        version: VersionReference | None = None,
        table: str | TableConfig | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the table's rows, or those that match a predicate, as a stream of Arrow batches.

        Rows are in no particular order. Only data files that may have matching rows are opened, in child processes that
        read a few batches ahead. Deletes are applied. Columns have their current names and types. The stream supports
        `read_all`, `read_pandas` and `__arrow_c_stream__`; closing it ends the children.

        Args:
            columns: Names of top-level columns; None for all.
            where: SQL text or a pyarrow expression; None for all rows.
            version: The version whose snapshot is read: a number, snapshot or time, as in `open_table`. None for the
                table's current snapshot.
            table: The table's location, as in `count`.
            storage_options: Options of the table's object store, as in `count`.

        Raises:
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: There is no such column.
            LiteralError: A literal of the predicate is not of its column's type.
            VersionNotFoundError: There is no such version.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            MetastoreError: The snapshot of the version no longer exists.

        Reading the stream raises FragmentError if a file cannot be read.
        """
        return self.open_rows(version, table, storage_options).read(columns, where)

    def lazy(
        self,
        *,
        version: VersionReference | None = None,
        table: str | TableConfig | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> pl.LazyFrame:
        """Return the table's rows as a lazy frame of Polars, in no particular order.

        Deletes are applied.

        Collecting a query opens only the files that may have matching rows, and reads only the columns that the query
        needs. The frame has the rows of one snapshot: later commits do not change it.

        Args:
            version: The version whose snapshot is read, as in `read`; None for the table's current snapshot.
            table: The table's location, as in `count`.
            storage_options: Options of the table's object store, as in `count`.

        Raises:
            UnsupportedTypeError: Polars has no type for a column.
            VersionNotFoundError: There is no such version.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            MetastoreError: The snapshot of the version no longer exists.
        """
        return self.open_rows(version, table, storage_options).lazy()

    def dataset(
        self,
        *,
        where: str | pc.Expression | None = None,
        version: VersionReference | None = None,
        table: str | TableConfig | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> ds.Dataset:
        """Return a pyarrow dataset of the table's data files.

        Each fragment of the dataset has a guarantee: an expression with bounds of columns that all of its rows satisfy.

        Arrow, and engines that read datasets, skip fragments whose guarantee contradicts a filter. Arrow itself reads
        the files, by the names of columns. Therefore all files must be Parquet files without deleted rows, in which
        columns have the same names as in the table. Days before 15 October 1582 in the calendar of Spark 2 are not
        supported. `read` and `lazy` support all tables.

        Do not compare with NaN in a filter (`x <= nan`): Arrow simplifies such a comparison by bounds, also by those in
        Parquet footers, as if NaN exceeded all numbers. `pyarrow.compute.is_nan` has correct results.

        Args:
            where: A predicate, as SQL text or a pyarrow expression. Files without matching rows are excluded. The rows
                of other files are not filtered, so use the predicate in the query, too.
            version: The version whose snapshot is read, as in `read`; None for the table's current snapshot.
            table: The table's location, as in `count`.
            storage_options: Options of the table's object store, as in `count`.

        Raises:
            PredicateError: The predicate cannot be parsed or bound.
            ColumnNotFoundError: The predicate names a column that does not exist.
            LiteralError: A literal of the predicate is not of its column's type.
            VersionNotFoundError: There is no such version.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            MetastoreError: Arrow alone cannot read the rows of a file, or the snapshot no longer exists.
        """
        return self.open_rows(version, table, storage_options).dataset(where)

    def open_rows(
        self,
        version: VersionReference | None = None,
        table: str | TableConfig | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> RowSource:
        """Return an object that can read the rows of one snapshot any number of times.

        Args:
            version: The version whose snapshot is read, as in `read`; None for the table's current snapshot.
            table: The table's location, as in `count`.
            storage_options: Options of the table's object store, as in `count`.

        Raises:
            VersionNotFoundError: There is no such version.
            ConfigError: The table's location is not known, or the caller did not confirm it (see `table_config`).
            MetastoreError: The snapshot of the version no longer exists.
        """
        lookup = self if version is None else self.at(version)
        config = lookup.table_config(table, storage_options)
        return self._scanner.open_rows(lookup, config, "now" if version is None else "version")

    def table_config(
        self, table: str | TableConfig | None = None, storage_options: Mapping[str, str] | None = None
    ) -> TableConfig:
        """Return a configuration with the table's location: `table`, or the location in the version.

        A user who can write the root can forge the locations that a version records. So the caller must confirm them:
        each must equal, or lie below, `table` or one of the `table_locations` of `open_table`.

        Args:
            table: The table's URI; None for the URI that the version records. A configuration is returned unchanged.
            storage_options: Options of the table's object store, which versions do not record.

        Raises:
            ConfigError: The version does not record the location, the table is in a catalog, or the caller does not
                confirm a location.
            CorruptionError: The version records an invalid location, or a setting that versions never record.
        """
        from metastore_assets.config import TableConfig  # lookups that read no table do not need it

        if isinstance(table, TableConfig):
            return table
        if table is not None:
            check_text("table", table, "a URI or a TableConfig")
            if not is_path_text(table):
                raise ConfigError(f"{table!r} is no path or URI: it has a null character or is no valid Unicode")
        check_mapping("storage_options", storage_options)
        name, recorded_location = (
            self._version.table,
            {} if self._version.table_location is None else dict(self._version.table_location),
        )
        uri = str(recorded_location.get("uri", "")) if table is None else table
        if not uri or uri.startswith(_IN_CATALOG):
            where = f"is in a catalog, {uri}" if uri else "has a location that its version does not record"
            raise ConfigError(
                f"table {name!r} {where}: pass its configuration, as in `table=load_config().table({name!r})`"
            )
        confirmed_locations = (*self.table_locations, *(() if table is None else (table,)))
        return self._scanner.recorded_table(self._version, uri, confirmed_locations, storage_options or {})

    @overload
    def history(self, column: str | None = None) -> ResultSet[HistoryRow]: ...

    @overload
    def history(self, column: str | None, statistic: str) -> ResultSet[HistoryPoint]: ...

    def history(
        self, column: str | None = None, statistic: str | None = None
    ) -> ResultSet[HistoryRow] | ResultSet[HistoryPoint]:
        """Return the statistics of every version up to this one, the oldest first.

        Expired versions are included.

        A column is identified by its `field_id`, so its rows under earlier names are included.

        Args:
            column: The current dotted path of a column; None for all columns, or for a statistic of the table.
            statistic: The name of a statistic in `metastore show --json`, such as `null_count`, a percentile such as
                `p50`, or the name of a custom statistic. Without a column: `row_count`, `bytes`, `partitions` or
                `fragments`. None for all statistics.

        Returns:
            With a `statistic`, one point per version. Without, one row per version and column; its fields are in
            `docs/reference/files.md`.

        Raises:
            ColumnNotFoundError: There is no such column.
            ValueError: There is no such statistic.
            MissingPackageError: A history is stored, and `deltalake` is not installed.
            StoreError: The root cannot be read.
        """
        return self.past.rows(column) if statistic is None else self.past.points(column, statistic)

    def diff(self, before: VersionReference | Table, after: VersionReference | Table | None = None) -> TableDiff:
        """Return the differences between two versions of the table, or between two tables.

        Example: `orders.diff(41, 57)`. Columns of one table are paired by field id, so renames do not matter; columns
        of two tables are paired by name. Distances are computed from histograms or value counts.

        Args:
            before: The number, snapshot or time of a version, as in `open_table`, or an opened table.
            after: As `before`; None for this version.

        Raises:
            VersionNotFoundError: There is no such version.
            StoreError: The root cannot be read.
        """
        return self.past.diff(before, after)

    def changes(self, since: VersionReference, columns: Iterable[str] | None = None) -> TableChanges:
        """Return the values that were added or deleted, or whose frequency changed, since an earlier version.

        Args:
            since: The earlier version: a number, snapshot or time.
            columns: Dotted paths of columns; None for all. For a column whose values cannot be compared, such as
                one without value counts, the result has the reason instead of values.

        Raises:
            VersionNotFoundError: There is no such version.
            ColumnNotFoundError: There is no such column.
            StoreError: The root cannot be read.
        """
        return self.past.changes(since, columns)

    def at(self, version: VersionReference | Version | Table) -> Table:
        """Return the same table as of another version.

        If `version` is a `Table`, that object itself is returned.

        Raises VersionNotFoundError if the reference selects no version.
        """
        return self.past.at(version)

    def _at_version(self, version: Version) -> Table:
        return Table(self.objects, version, self._open_scanner, self.user_statistics, self.table_locations)
