"""Which fragments of a version a predicate may be true in, and why it is not in the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.elimination import eliminating_statistics, eliminating_value
from metastore_assets.expressions.predicates import (
    Column,
    Leaf,
    Predicate,
    conjuncts,
    equal_values,
    leaves,
    referenced_columns,
)
from metastore_assets.expressions.row_bounds import (
    ColumnBounds,
    Int64Array,
    RowBounds,
    bound_conjunction,
    bound_leaf_rows,
    bound_matching_rows,
)
from metastore_assets.expressions.sql_text import to_short_sql, to_sql
from metastore_assets.index import IndexColumn, IndexReader
from metastore_assets.lookup.buckets import buckets_of, partitions_with
from metastore_assets.lookup.enough import enough
from metastore_assets.lookup.receipts import Cost, Elimination, PrunedFragment, Receipt
from metastore_assets.storage.io_counters import count_io
from metastore_assets.store.manifest import Version

_MOST = np.iinfo(np.int64).max
ByPartition: TypeAlias = Callable[[Leaf], Mapping[str, int] | None]
"""How many rows of each partition a leaf is true of, by key: none of others; None where that is not kept."""
MayHold: TypeAlias = Callable[[Leaf], npt.NDArray[np.bool_] | None]
"""Whether each fragment, in the order of the index, may hold a value of a leaf; None where that is not kept."""


class Pruning:
    """What a predicate leaves of the fragments of a version. Paths are read when they are asked for."""

    def __init__(
        self,
        version: Version,
        index: IndexReader,
        predicate: Predicate,
        unknown: Collection[str] = (),
        by_partition: ByPartition = lambda leaf: None,
        limit: int | None = None,
        may_hold: MayHold = lambda leaf: None,
    ) -> None:
        """`unknown` are field ids of columns that the version does not have as the predicate means them. With `limit`
        no more fragments are to be read than are needed for so many rows."""
        self.version = version
        self.predicate = predicate
        self.limit = limit
        self._index = index
        with count_io() as meter:
            self._fragments = index.fragments()
            self._row_counts: Int64Array = self._fragments["row_count"].to_numpy()
            self._sizes: Int64Array = self._fragments["bytes"].to_numpy()
            self._columns = {
                column.field_id: unknown_bounds(column, self._row_counts)
                if column.field_id in unknown
                else column_bounds(index.column(column.field_id, column.cls), column, self._row_counts)
                for column in referenced_columns(predicate)
            }
            known = [leaf for leaf in leaves(predicate) if leaf.column.field_id not in unknown]
            self._caps = {leaf: cap for leaf in known if (cap := self._cap(leaf, by_partition)) is not None}
            self._filters = {leaf: own for leaf in known if (own := self._filter(leaf, may_hold)) is not None}
            caps = self._with_filters()
            self._parts = [
                bound_matching_rows(part, self._row_counts, self._columns, caps) for part in conjuncts(predicate)
            ]
        read = meter.counts().read
        self.cost = Cost(len(read.files), read.bytes)
        self.bounds: RowBounds = bound_conjunction(self._parts, self._row_counts)
        """Of each fragment, in the order of the index, how many of its rows the predicate is true of."""

    @lock_free_cached_property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Whether each fragment, in the order of the index, has to be read. One without rows has not."""
        return self.bounds.most > 0 if self.limit is None else enough(self.bounds, self._sizes, self.limit)

    @property
    def fragments_total(self) -> int:
        """Fragments of the version."""
        return len(self._row_counts)

    @property
    def fragment_count(self) -> int:
        """Fragments that have to be read."""
        return int(self.kept.sum())

    @property
    def rows(self) -> tuple[int, int]:
        """At least and at most so many rows of the version the predicate is true of, both inclusive."""
        return self.bounds.total

    @property
    def bytes(self) -> int:
        """Of the data files that have to be read."""
        return int(self._sizes[self.kept].sum())

    @property
    def bytes_total(self) -> int:
        """Of all data files."""
        return int(self._sizes.sum())

    def known(self) -> dict[str, tuple[int, int, int]]:
        """By fragment's id: its rows, and at least and at most how many of them the predicate is true of."""
        ids = self._index.fragments(("id",))["id"].to_pylist()
        columns = (self._row_counts, self.bounds.least, self.bounds.most)
        return dict(zip(ids, zip(*(own.tolist() for own in columns), strict=True), strict=True))

    @property
    def row_counts(self) -> Int64Array:
        """Live rows of each fragment, in the order of the index."""
        return self._row_counts

    def partition_keys(self) -> pa.DictionaryArray:
        """Of each fragment, likewise."""
        return self._index.fragments(("partition_key",))["partition_key"].combine_chunks().dictionary_encode()

    def ids(self, mask: npt.NDArray[np.bool_]) -> list[str]:
        """The ids of some of the fragments, likewise."""
        ids: list[str] = self._index.fragments(("id",))["id"].filter(pa.array(mask)).to_pylist()
        return ids

    @lock_free_cached_property
    def paths(self) -> list[str]:
        """Of the data files that have to be read, in the order of partition keys, then of paths."""
        columns = ("partition_key", "path")
        kept = self._index.fragments(columns).filter(pa.array(self.kept))
        found: list[str] = kept.sort_by([(name, "ascending") for name in columns])["path"].to_pylist()
        return found

    @lock_free_cached_property
    def fragments(self) -> list[PrunedFragment]:
        """The fragments that have to be read, by partition key, then path."""
        kept = self.kept
        table = self._index.fragments(("path", "partition_key", "bytes", "row_count")).filter(pa.array(kept))
        columns = [own.to_pylist() for own in table.columns]
        bounds = [own[kept].tolist() for own in (self.bounds.least, self.bounds.most)]
        found = [PrunedFragment(*row) for row in zip(*columns, *bounds, strict=True)]
        return sorted(found, key=lambda own: (own.partition_key, own.path))

    @lock_free_cached_property
    def receipt(self) -> list[Receipt]:
        """What each conjunct has eliminated, by the order of the predicate, then by fragments, the most first."""
        found = []
        for part, out, statistics in self._eliminated():
            names, places, counts = np.unique(statistics, return_inverse=True, return_counts=True)
            sizes = np.bincount(places, self._sizes[out], len(names)).astype(np.int64)
            rows = zip(names.tolist(), counts.tolist(), sizes.tolist(), strict=True)
            own = [Receipt(to_short_sql(part), *row) for row in rows]
            found += sorted(own, key=lambda row: (-row.fragments, row.statistic))
        if len(spare := self._spare):
            found.append(Receipt(f"limit {self.limit}", "row_count", len(spare), int(self._sizes[spare].sum())))
        return found

    def eliminations(self) -> Iterator[Elimination]:
        """The fragments that need not be read, by conjunct, then in the order of the index."""
        paths = self._index.fragments(("path",))["path"].to_pylist()
        for part, out, statistics in self._eliminated():
            text = to_short_sql(part)
            for at, statistic in zip(out.tolist(), statistics.tolist(), strict=True):
                yield Elimination(paths[at], text, statistic, eliminating_value(part, self._columns, statistic, at))
        for at in self._spare.tolist():
            yield Elimination(paths[at], f"limit {self.limit}", "row_count", str(self._row_counts[at]))

    def to_json(self) -> dict[str, object]:
        """The shape of `prune --json`."""
        return {
            "version": self.version.number,
            "snapshot": self.version.snapshot,
            "predicate": to_sql(self.predicate),
            **({} if self.limit is None else {"limit": self.limit}),
            "fragments": self.paths,
            "fragments_total": self.fragments_total,
            "rows_lower": self.rows[0],
            "rows_upper": self.rows[1],
            "bytes": self.bytes,
            "bytes_total": self.bytes_total,
            "receipt": [vars(own) for own in self.receipt],
            "read": vars(self.cost),
        }

    @property
    def _spare(self) -> npt.NDArray[np.intp]:
        """The places of the fragments that may have rows and that the limit can do without."""
        return np.flatnonzero((self.bounds.most > 0) & ~self.kept)

    def _eliminated(self) -> Iterator[tuple[Predicate, Int64Array, npt.NDArray[np.str_]]]:
        """By conjunct: the places of the fragments that it is the first to eliminate, and by what statistic each."""
        left = self._row_counts >= 0
        for part, bounds in zip(conjuncts(self.predicate), self._parts, strict=True):
            out = np.flatnonzero(left & (bounds.most == 0))
            if len(out):
                left[out] = False
                yield (
                    part,
                    out,
                    eliminating_statistics(part, self._columns, self._row_counts, self._caps, self._filters)[out],
                )

    def _cap(self, leaf: Leaf, by_partition: ByPartition) -> Int64Array | None:
        """At most so many rows of each fragment a leaf is true of, as its partition tells, where bounds leave some."""
        if (bound_leaf_rows(leaf, self._columns[leaf.column.field_id]).most > 0).sum() < 2:
            return None
        found, buckets = by_partition(leaf), self._buckets(leaf)
        if found is None and not buckets:
            return None
        keys = self.partition_keys()
        names = keys.dictionary.to_pylist()
        most = np.array([_MOST if found is None else found.get(key, 0) for key in names], np.int64)
        for name, own in buckets:
            most[~np.array(partitions_with(names, name, own), np.bool_)] = 0
        return np.minimum(most[keys.indices.to_numpy()], self._row_counts)

    def _filter(self, leaf: Leaf, may_hold: MayHold) -> npt.NDArray[np.bool_] | None:
        """Which fragments may hold a leaf's values, where bounds and partitions leave some."""
        left = bound_leaf_rows(leaf, self._columns[leaf.column.field_id]).most
        if leaf in self._caps:
            left = np.minimum(left, self._caps[leaf])
        return may_hold(leaf) if (left > 0).sum() >= 2 else None

    def _with_filters(self) -> dict[Leaf, Int64Array]:
        """What caps the rows that a leaf is true of, by partitions and by filters."""
        caps = dict(self._caps)
        for leaf, own in self._filters.items():
            caps[leaf] = np.where(own, caps.get(leaf, self._row_counts), 0)
        return caps

    def _buckets(self, leaf: Leaf) -> list[tuple[str, frozenset[str]]]:
        """Of partition columns that are hashes of the leaf's column: the values that its rows can have there."""
        values = equal_values(leaf)
        if not values or leaf.column.cls is None:
            return []
        cls = leaf.column.cls
        found = [
            (name, buckets_of(values, cls, count))
            for name, field_id, count in self.version.buckets
            if field_id == leaf.column.field_id and name.isidentifier() and name.isascii()
        ]
        return [(name, own) for name, own in found if own is not None]


def column_bounds(own: IndexColumn, column: Column, rows: Int64Array) -> ColumnBounds:
    """What the index has of a column as bounds."""
    nulls = _known(own.null_count, rows)
    if column.cls is not None and column.cls.kind == "float":
        nans = _known(own.nan_count, np.maximum(rows - nulls.least, 0))
    else:
        nans = RowBounds(np.zeros_like(rows), np.zeros_like(rows))
    return ColumnBounds(rows, nulls, nans, _one(own.minimum), _one(own.maximum))


def unknown_bounds(column: Column, rows: Int64Array) -> ColumnBounds:
    """Of a column that nothing is known of."""
    anything, nothing = RowBounds(np.zeros_like(rows), rows), pa.nulls(len(rows), _arrow(column))
    nans = anything if column.cls is not None and column.cls.kind == "float" else RowBounds(*(np.zeros_like(rows),) * 2)
    return ColumnBounds(rows, anything, nans, nothing, nothing)


def _arrow(column: Column) -> pa.DataType:
    return pa.null() if column.cls is None else column.cls.arrow


def _known(counts: pa.ChunkedArray, most: Int64Array) -> RowBounds:
    known = counts.is_valid().to_numpy()
    exact = counts.fill_null(0).to_numpy()
    return RowBounds(np.where(known, exact, 0), np.where(known, exact, most))


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if isinstance(column.type, pa.BaseExtensionType):
        stored = [chunk.storage for chunk in column.chunks]
        whole = pa.concat_arrays(stored) if stored else pa.nulls(0, column.type.storage_type)
        return pa.ExtensionArray.from_storage(column.type, whole)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def index_of(version: Version, open_index: Callable[[], IndexReader]) -> IndexReader:
    """The index of a version. Raises CorruptionError where there is none, and there should be."""
    if version.index is None:
        raise CorruptionError(
            f"version {version.number} of table {version.table!r} has no index; make one with `metastore refresh "
            f"{version.table} --full`"
        )
    return open_index()
