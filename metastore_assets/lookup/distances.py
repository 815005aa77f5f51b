"""Distances between the distributions of two columns, from their histograms or value counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from metastore_assets.errors import NotStoredError
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.statistics.distances import (
    aligned_bins,
    equal_shares,
    jensen_shannon,
    kolmogorov_smirnov,
    population_stability_index,
)
from metastore_assets.values.types import class_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metastore_assets.lookup.table import Table
    from metastore_assets.statistics.frequencies import Frequencies
    from metastore_assets.statistics.histogram import Histogram

GROUPS = 10
"""The customary number of groups of the population stability index."""
MAX_VALUES = 1_000_000
"""Columns with more distinct values are not compared value by value."""


@dataclass(frozen=True)
class Distances:
    """Distances between two distributions. NaN, infinities and null of numbers and times are left out."""

    stability_index: float
    """The population stability index. By custom, less than 0.1 is stable and more than 0.25 has shifted."""
    kolmogorov_smirnov: float
    """From 0 to 1."""
    jensen_shannon: float
    """From 0 to 1."""
    over: str
    """The compared units, such as `812 bins` or `5 values`."""
    guarantee: Guarantee
    """`exact` where values were compared. `bound` where bins were compared: of the values, `kolmogorov_smirnov` and
    `jensen_shannon` are at least as great."""


def distances(
    before: Table,
    old: ColumnStatistics,
    after: Table,
    new: ColumnStatistics,
    *,
    partition: str | None = None,
    groups: int = GROUPS,
) -> Distances | str:
    """Return the distances between a column of one version and a column of another, or why there are none.

    Args:
        before: The earlier table.
        old: The statistics of its column, in the partition.
        after: The later table.
        new: The statistics of its column, in the partition.
        partition: The key of a partition of both; None for the tables.
        groups: The number of groups of the stability index, at least 1.
    """
    if old.type_class is None or new.type_class is None:
        side = old if old.type_class is None else new
        return side.reason or f"{side.type} has no values of its own"
    if old.type_class != new.type_class:
        return f"values of {old.type} and of {new.type} are not compared"
    if not old.value_count or not new.value_count:
        return "there are no values before" if not old.value_count else "there are no values after"
    if has_equal_values(old, new):
        return Distances(0.0, 0.0, 0.0, "the same values", "exact")
    sides = (_Side(before, old, partition), _Side(after, new, partition))
    try:
        if class_named(new.type_class).is_ordinal and (by_bins := _compare_bins(*sides, groups)) is not None:
            return by_bins
        return _compare_values(*sides, groups)
    except NotStoredError as error:
        return str(error)


def has_equal_values(old: ColumnStatistics, new: ColumnStatistics) -> bool:
    """Return whether two columns certainly have the same values. False means unknown or different."""
    counts = (old.type_class, old.value_count, old.null_count) == (new.type_class, new.value_count, new.null_count)
    return counts and old.multiset_hash is not None and old.multiset_hash == new.multiset_hash


@dataclass(frozen=True)
class _Side:
    """A column of one of the two tables."""

    table: Table
    row: ColumnStatistics
    partition: str | None

    def dyadic_histogram(self) -> Histogram | None:
        return self.table.dyadic_histogram(self.row.column, self.partition)

    def values(self) -> Iterator[Frequencies]:
        return self.table.values(self.row.column, self.partition)


def _compare_bins(before: _Side, after: _Side, groups: int) -> Distances | None:
    """Return the distances by bins; None where one of the two has no histogram."""
    try:
        first, second = before.dyadic_histogram(), after.dyadic_histogram()
    except NotStoredError:
        return None
    if first is None or second is None:
        return None
    bins = aligned_bins(first, second)
    over = f"{len(bins):,} bins" if len(bins) > 1 else "1 bin"
    return _measure(bins.left, bins.right, over, "bound", groups)


def _compare_values(before: _Side, after: _Side, groups: int) -> Distances:
    """Return the distances by values. Raises NotStoredError without value counts, or with too many values."""
    import polars as pl

    from metastore_assets.values.physical import physical_series

    cls = class_named(after.row.type_class or "null")
    sides = []
    for name, other, side in (("before", "after", before), ("after", "before", after)):
        row = side.row
        if (row.distinct_count or 0) > MAX_VALUES:
            raise NotStoredError(
                f"{row.distinct_count:,} distinct values are more than the {MAX_VALUES:,} that are compared"
            )
        pieces = [
            pl.DataFrame({"value": physical_series(piece.values, cls), name: piece.counts.to_numpy()})
            for piece in side.values()
            if len(piece)
        ]
        if sum(piece[name].sum() for piece in pieces) != row.value_count:
            raise NotStoredError("only values that occur at least twice have value counts")
        # Decimals have 64 bits where these suffice, and 128 bits in other pieces or on the other side.
        frequencies = pl.concat(pieces, how="vertical_relaxed").with_columns(pl.lit(0, pl.Int64).alias(other))
        sides.append(frequencies.select("value", "before", "after"))
    # Grouped instead of joined: Polars joins sorted floats by merging, in which NaN does not equal NaN.
    both = pl.concat(sides, how="vertical_relaxed").group_by("value").sum().sort("value")
    if cls.kind == "float":
        both = both.filter(pl.col("value").is_finite())
    over = f"{both.height:,} values" if both.height != 1 else "1 value"
    counts = both["before"].to_numpy(), both["after"].to_numpy()
    if not all(count.any() for count in counts):
        raise NotStoredError("one of the two has no values except NaN and infinities")
    return _measure(*counts, over, "exact", groups, by_frequency=not cls.is_ordinal)


def _measure(
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
    over: str,
    guarantee: Guarantee,
    max_groups: int,
    *,
    by_frequency: bool = False,
) -> Distances:
    """Return the distances between two aligned distributions.

    The stability index groups neighbouring units into equal shares; `by_frequency` it takes the most frequent values
    one by one and all others as one group.
    """
    if by_frequency:
        order = np.argsort(-before, kind="stable")
        head, rest = order[: max_groups - 1], order[max_groups - 1 :]
        sides = [np.append(counts[head], counts[rest].sum()) for counts in (before, after)]
        is_used = (sides[0] + sides[1]) > 0
        groups = tuple(counts[is_used] for counts in sides)
    else:
        groups = equal_shares(before, after, max_groups)
    return Distances(
        population_stability_index(*groups),
        kolmogorov_smirnov(before, after),
        jensen_shannon(before, after),
        over,
        guarantee,
    )
