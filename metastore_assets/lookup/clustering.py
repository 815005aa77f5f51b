"""Measures of clustering: how many fragments may contain one value.

A fragment is a data file of the table, together with the deletes that apply to it. It may contain a value that lies
between its minimum and maximum. A fragment without stored bounds may contain any value. A version has the statistics of
one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.predicates import BoundColumn
from metastore_assets.expressions.row_bounds import order_comparable
from metastore_assets.index import IndexReader
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.types import class_named

Clustered = Literal["clustered", "partly", "scattered", "few values", "unknown"]
_FEWEST = 4
"""For fewer fragments, the verdict is `unknown`."""
_WELL, _PARTLY = 2.0, 8.0
"""Maximum ratio of depth to possible depth for the verdicts `clustered` and `partly`."""


@dataclass(frozen=True)
class ColumnClustering:
    """Measures of how the values of a column are distributed over the fragments of a version.

    All numbers are None if the column has no values, or if no fragment has a minimum and maximum of the column.
    """

    column: str
    depth: float | None
    """The average number of fragments that may have the same value. It is measured at the minimum and the maximum of
    every fragment. Fragments with more rows have more weight."""
    deepest: int | None
    """The greatest number of fragments that may have the same value."""
    skipped: float | None
    """The average share of all fragments that a query for one value need not read."""
    possible_depth: float | None
    """The approximate depth if the table were sorted by the column. It is high if the column has few distinct values.
    """
    verdict: Clustered
    """The first of these that is true:

    - `unknown`: there are too few fragments, no bounds, or no values.
    - `few values`: even in a sorted table, a query for one value could not skip half of the fragments.
    - `clustered`: the depth is at most twice the possible depth, and a query for one value skips at least half of the
      fragments that it could skip in a sorted table.
    - `partly`: the depth is at most eight times the possible depth, and at most half of all fragments.
    - `scattered`: all others.
    """


CLUSTERING_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("depth", pa.float64()),
        ("deepest", pa.int64()),
        ("skipped", pa.float64()),
        ("possible_depth", pa.float64()),
        ("verdict", pa.string()),
    ]
)
"""The Arrow schema of `ColumnClustering`."""


def measure_clustering(index: IndexReader, rows: Sequence[ColumnStatistics]) -> list[ColumnClustering]:
    """Return one `ColumnClustering` per row of statistics, in the order of the rows."""
    counts = index.all.bounds([]).row_counts
    return [_column_clustering(index, row, counts) for row in rows]


def _column_clustering(index: IndexReader, row: ColumnStatistics, counts: npt.NDArray[np.int64]) -> ColumnClustering:
    """Return the clustering of one column.

    `counts` are the row counts of all fragments.
    """
    unknown = ColumnClustering(row.column, None, None, None, None, "unknown")
    total = int((counts > 0).sum())
    if row.type_class is None or row.type_class == "null" or not row.value_count or not total:
        return unknown
    cls = class_named(row.type_class)
    bounds = index.all.bounds([BoundColumn(row.column, row.field_id, cls)]).columns[row.field_id]
    has_bounds = pc.and_(bounds.minimum.is_valid(), bounds.maximum.is_valid()).to_numpy(zero_copy_only=False)
    has_bounds &= counts > 0
    # A fragment that may have values and has no bounds may have any value.
    unbounded_fragments = int((~has_bounds & (bounds.numbers.most > 0)).sum())
    if not has_bounds.any():
        return unknown
    mask = pa.array(has_bounds)
    sides = [order_comparable(side.filter(mask), cls) for side in (bounds.minimum, bounds.maximum)]
    ranks = pc.rank(pa.concat_arrays(sides), tiebreaker="dense").to_numpy().astype(np.int64)
    starts, ends = np.split(ranks, 2)
    first, last = np.sort(starts), np.sort(ends)
    # For each bound: the ranges that begin at or before it, minus those that end before it.
    depths = np.searchsorted(first, ranks, "right") - np.searchsorted(last, ranks, "left") + unbounded_fragments
    weights = np.tile(counts[has_bounds], 2)
    depth = float(np.average(depths, weights=weights))
    distinct = row.distinct_count or row.value_count
    possible = max(1.0, total / distinct)
    return ColumnClustering(
        row.column, depth, int(depths.max()), 1 - depth / total, possible, _verdict(total, depth, possible)
    )


def _verdict(total: int, depth: float, possible: float) -> Clustered:
    """Return the verdict on how well a column is clustered.

    `total` is the number of fragments with rows. `depth` is the average number of fragments whose range contains a
    value, and `possible` is the smallest depth that the column can have.
    """
    if total < _FEWEST:
        return "unknown"
    if possible > total / 2:
        return "few values"
    ratio = depth / possible
    # With few values the possible depth is large already, and twice as much may be every fragment.
    if ratio <= _WELL and 2 * (total - depth) >= total - possible:
        return "clustered"
    return "partly" if ratio <= _PARTLY and depth <= total / 2 else "scattered"
