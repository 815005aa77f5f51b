"""Questions about the rows that a predicate is true of: a part of `Table`."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import ConfigError
from metastore_assets.lookup.answers import Count, ExactCount
from metastore_assets.lookup.missing import files_there
from metastore_assets.startup import pc
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from metastore_assets.config import TableConfig
    from metastore_assets.expressions.predicates import Column, Leaf, Predicate
    from metastore_assets.index import IndexReader
    from metastore_assets.index.membership import MembershipReader
    from metastore_assets.lookup.clustering import ColumnClustering
    from metastore_assets.lookup.estimate import ColumnKnowledge, Estimate
    from metastore_assets.lookup.prune import Pruning
    from metastore_assets.lookup.scoped import FilteredView
    from metastore_assets.lookup.table import Table


_IN_CATALOG = "catalog://"
_SCAN = "metastore_assets.scan"
_RECORDED = "metastore_assets.scan.recorded_location"
"""What reads tables stands above lookups, and is not imported before it is asked for."""
_MOST_LOOKED_FOR = 128
"""Values of one `in` that are looked for in filters: of so many, 63 % of those that have none take one for there."""


class _Knowledge:
    """What a version has of a column."""

    def __init__(self, table: FilteredAnswers, column: str) -> None:
        self._table = cast("Table", table)
        self._values = self._table._values(column, None)
        (self.row,) = self._table.statistics([column])

    def before(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        return self._values.before(value, inclusive=inclusive)

    def frequency(self, value: pa.Scalar) -> Count:
        return self._values.frequency(value)

    def histogram(self) -> Histogram | None:
        return self._table._profile(None).histogram(self.row.column)


class FilteredAnswers:
    """Answers about the rows that a predicate is true of, which is SQL text or a pyarrow expression."""

    _objects: ObjectStore
    _version: Version
    _leaves: Sequence[LeafColumn]
    _lock: RLock
    table_locations: tuple[str, ...]

    def predicate(self, where: str | pc.Expression) -> Predicate:
        """A predicate on rows of this table, typed and without negations.

        Raises PredicateError, ColumnNotFoundError, LiteralError.
        """
        from metastore_assets.expressions.binding import parse_predicate  # the statistics of columns do without

        return parse_predicate(where, self._version.table, self._leaves)

    def prune(self, where: str | pc.Expression, limit: int | None = None) -> Pruning:
        """Which fragments of the version may hold rows that a predicate is true of. Reads the index, a slice a column.

        A fragment is left out only where its statistics rule out that any row of it is meant, or, with `limit`, where
        others are sure to have so many rows. Raises as `predicate`; ValueError for a negative limit.
        """
        return self.pruned(self.predicate(where), limit=limit)

    @files_there
    def pruned(self, predicate: Predicate, unknown: Collection[str] = (), limit: int | None = None) -> Pruning:
        """The same of a typed predicate. Of columns with the field ids `unknown` the version knows nothing."""
        from metastore_assets.lookup.prune import Pruning, index_of

        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative, not {limit}")
        index = index_of(self._version, lambda: self._index)
        return Pruning(self._version, index, predicate, unknown, self._by_partition, limit, self._may_hold)

    @files_there
    def estimate(self, where: str | pc.Expression) -> Estimate:
        """How many rows of the version a predicate is true of: no fewer than `lower`, no more than `upper`.

        Exact for one comparison, `in` or prefix of a listed column; otherwise what the statistics leave open. Reads the
        index, and of each column its lists or its histogram. Raises as `predicate`.
        """
        from metastore_assets.lookup.estimate import estimate_rows

        found = self.prune(where)
        return estimate_rows(found.predicate, self._version.row_count, self._knowledge, found.rows)

    @files_there
    def clustering(self, columns: Iterable[str] | None = None) -> list[ColumnClustering]:
        """How well columns skip: in how many fragments a value may lie, of all leaf columns or of those named.

        Reads the index, a slice a column. Raises ColumnNotFoundError.
        """
        from metastore_assets.lookup.clustering import clustering
        from metastore_assets.lookup.prune import index_of

        rows = cast("Table", self).statistics(columns)
        return clustering(index_of(self._version, lambda: self._index), rows)

    @files_there
    def filter(
        self,
        where: str | pc.Expression,
        *,
        read: bool = False,
        table: str | TableConfig | None = None,
        spark: SparkSession | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> FilteredView:
        """The rows that a predicate is true of, to be asked as the table is: its statistics, most frequent values, …

        Whole partitions and fragments are answered for from what is kept, merged as the table is. Of those that the
        predicate cuts nothing is known; with `read` their rows are read when something is asked, by Spark where a
        session is given and there is much to read. `table` and `storage_options`, as of `count`, say where they are,
        and imply `read`, as `spark` does. Raises as `predicate`. Answers that take reading what may not be read raise
        NotKeptError.
        """
        scan = import_module(_SCAN)
        given = None if spark is None else lambda: spark
        may = read or any(one is not None for one in (table, spark, storage_options))
        own = self.table_config(table, storage_options) if may else None
        return cast("FilteredView", scan.filter_table(self, self.predicate(where), own, given))

    def count(
        self,
        where: str | pc.Expression,
        table: str | TableConfig | None = None,
        spark: SparkSession | None = None,
        snapshot: Literal["now", "version"] = "now",
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> ExactCount:
        """How many rows a predicate is true of, exactly, of the table as it is now, or of the version's snapshot.

        `table` is where the table lies: its URI, or its configuration; without it, where it was when the version was
        made, if that is among the `table_locations` given to `open_table`. `storage_options` are those of the table,
        which versions do not have. Reads only fragments that the version leaves open, with Spark where a session is
        given and there is much to read. Errors as of `scan.count`.
        """
        scan = import_module(_SCAN)
        given = None if spark is None else lambda: spark
        return cast(
            "ExactCount", scan.count(self, self.table_config(table, storage_options), where, given, snapshot=snapshot)
        )

    def scan(
        self,
        spark: SparkSession,
        where: str | pc.Expression,
        table: str | TableConfig | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        snapshot: Literal["now", "version"] = "now",
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The rows that a predicate is true of, as a Spark DataFrame that opens only fragments that may have any.

        `table` and `storage_options` as of `count`; `columns` are of the top level. Errors as of `scan.scan`.
        """
        scan = import_module(_SCAN)
        own = self.table_config(table, storage_options)
        found = scan.scan(self, own, spark, where, columns, limit=limit, snapshot=snapshot)
        return cast("DataFrame", found)

    def table_config(
        self, table: str | TableConfig | None = None, storage_options: Mapping[str, str] | None = None
    ) -> TableConfig:
        """Return where the table is: at that URI, or as configured; without either, where its version says it was.

        What the version says counts only where the caller confirms it: every location that it names lies at or below
        the URI given, or one of the `table_locations` that the table was opened with.

        Raises:
            ConfigError: The version does not say where the table is, or the caller does not confirm it.
            CorruptionError: What the version says makes no configuration.
        """
        from metastore_assets.config import TableConfig  # which lookups that read no table do without

        if isinstance(table, TableConfig):
            return table
        name, recorded = self._version.table, {} if self._version.place is None else dict(self._version.place)
        uri = str(recorded.get("uri", "")) if table is None else table
        if not uri or uri.startswith(_IN_CATALOG):
            where = f"is in a catalog, {uri}" if uri else "is at a place that its version does not tell"
            raise ConfigError(
                f"table {name!r} {where}: give its configuration, as in `table=load_config().table({name!r})`"
            )
        recorded_table = import_module(_RECORDED).recorded_table_config
        confirmed = (*self.table_locations, *(() if table is None else (table,)))
        return cast("TableConfig", recorded_table(self._version, uri, confirmed, storage_options or {}))

    def _knowledge(self, column: Column) -> ColumnKnowledge:
        return _Knowledge(self, column.path)

    def _by_partition(self, leaf: Leaf) -> Mapping[str, int] | None:
        """How many rows of each partition a leaf is true of, of columns with values by partition."""
        from metastore_assets.expressions.predicates import equal_values

        values = equal_values(leaf)
        if not values or leaf.column.field_id not in self._kept_by_partition:
            return None
        found: Counter[str] = Counter()
        table = cast("Table", self)
        own = table._values(leaf.column.path, None)
        for value in values:
            counts = own.partitions_of(value)
            if counts is None:
                return None
            found.update(dict(counts))
        return found

    def _may_hold(self, leaf: Leaf) -> npt.NDArray[np.bool_] | None:
        """Which fragments, in the order of the index, may hold a value of a leaf, of columns with filters."""
        from metastore_assets.expressions.predicates import array_of, equal_values
        from metastore_assets.statistics.hashing import hash_values

        kept = self._version.membership
        values, cls = equal_values(leaf, _MOST_LOOKED_FOR), leaf.column.cls
        if kept is None or not values or cls is None or leaf.column.field_id not in kept.columns:
            return None
        hashes = hash_values(array_of(values), cls)[0]
        found = self._membership.may_hold(leaf.column.field_id, cls, hashes.tolist())
        # What there is no filter of may hold anything.
        return np.append(found, True)[self._filter_places]

    @lock_free_cached_property
    def _filter_places(self) -> npt.NDArray[np.int64]:
        """Of each fragment of the index the place of its filter; -1 for none."""
        names = pa.array(self._membership.names, pa.string())
        places = pc.index_in(self._index.fragments(("name",))["name"], value_set=names)
        found: npt.NDArray[np.int64] = places.fill_null(-1).to_numpy().astype(np.int64)
        return found

    @lock_free_cached_property
    def _membership(self) -> MembershipReader:
        from metastore_assets.index.membership import MembershipReader

        assert self._version.membership is not None
        return MembershipReader(self._objects, self._version.membership.files)

    @lock_free_cached_property
    def _kept_by_partition(self) -> frozenset[str]:
        """Field ids of the columns of which it is kept which partitions hold which values."""
        lists = self._version.lists
        from metastore_assets.value_counts import read_lists  # the statistics of columns do without

        return frozenset() if lists is None else frozenset(read_lists(self._objects, lists).by_partition)

    @lock_free_cached_property
    def _index(self) -> IndexReader:
        from metastore_assets.index import IndexReader

        assert self._version.index is not None
        return IndexReader(self._objects, self._version.index)
