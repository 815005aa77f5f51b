"""How well columns skip: in how many fragments a value of a column may lie, as bounds tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.predicates import Column
from metastore_assets.expressions.row_bounds import order_comparable
from metastore_assets.index import IndexReader
from metastore_assets.lookup.pruning import column_bounds
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.types import class_named

Clustered = Literal["clustered", "partly", "scattered", "few values", "unknown"]
_FEWEST = 4
"""Fragments from which on it is said how a column lies in them."""
_WELL, _PARTLY = 2.0, 8.0
"""Up to so many times the depth that is possible a column is clustered, and partly."""


@dataclass(frozen=True)
class ColumnClustering:
    """How the values of a column lie in the fragments of a version."""

    column: str
    depth: float | None
    """In how many fragments a value lies by their bounds, on average over the least and greatest values of fragments,
    weighted by their rows. None where there are no bounds, or no values."""
    deepest: int | None
    """In how many such a value lies at most."""
    skipped: float | None
    """Share of all fragments that a query for one value need not read, on average."""
    possible_depth: float | None
    """About the least depth there can be, were the table ordered by the column: of few values each is in many files."""
    verdict: Clustered
    """`clustered` at up to twice the possible depth, if half of the files are skipped that could be, `partly` at up to
    eight times; `few values` where no order would let a query for one value skip half of the files."""


def clustering(index: IndexReader, rows: Sequence[ColumnStatistics]) -> list[ColumnClustering]:
    """Of some columns, in the order given."""
    counts = index.fragments()["row_count"].to_numpy()
    return [_column(index, row, counts) for row in rows]


def _column(index: IndexReader, row: ColumnStatistics, counts: npt.NDArray[np.int64]) -> ColumnClustering:
    unknown = ColumnClustering(row.column, None, None, None, None, "unknown")
    total = int((counts > 0).sum())
    if row.type_class is None or row.type_class == "null" or not row.value_count or not total:
        return unknown
    cls = class_named(row.type_class)
    own = column_bounds(index.column(row.field_id, cls), Column(row.column, row.field_id, cls), counts)
    known = pc.and_(own.minimum.is_valid(), own.maximum.is_valid()).to_numpy(zero_copy_only=False) & (counts > 0)
    # What may have values and has no bounds may have any.
    anywhere = int((~known & (own.numbers.most > 0)).sum())
    if not known.any():
        return unknown
    mask = pa.array(known)
    sides = [order_comparable(side.filter(mask), cls) for side in (own.minimum, own.maximum)]
    places = pc.rank(pa.concat_arrays(sides), tiebreaker="dense").to_numpy().astype(np.int64)
    starts, ends = np.split(places, 2)
    first, last = np.sort(starts), np.sort(ends)
    # Of each bound: ranges that begin at it or before, but for those that end before it.
    depths = np.searchsorted(first, places, "right") - np.searchsorted(last, places, "left") + anywhere
    weights = np.tile(counts[known], 2)
    depth = float(np.average(depths, weights=weights))
    distinct = row.distinct_count or row.value_count
    possible = max(1.0, total / distinct)
    return ColumnClustering(
        row.column, depth, int(depths.max()), 1 - depth / total, possible, _verdict(total, depth, possible)
    )


def _verdict(total: int, depth: float, possible: float) -> Clustered:
    if total < _FEWEST:
        return "unknown"
    if possible > total / 2:
        return "few values"
    times = depth / possible
    # Of few values files are many at best: in twice as many may be in all.
    if times <= _WELL and 2 * (total - depth) >= total - possible:
        return "clustered"
    return "partly" if times <= _PARTLY and depth <= total / 2 else "scattered"
