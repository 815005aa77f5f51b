"""How far the distributions of two columns lie apart, from what is kept of each: histograms, or lists of values."""

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
"""What the stability index is taken of, as is the custom."""
MOST_VALUES = 1_000_000
"""Distinct values up to which two lists are compared."""


@dataclass(frozen=True)
class Distances:
    """Between two distributions; NaN, infinities and null have no part in those of numbers and times."""

    stability_index: float
    """The population stability index, of ten groups: by custom less than 0.1 is stable, more than 0.25 has shifted."""
    kolmogorov_smirnov: float
    """From 0 to 1."""
    jensen_shannon: float
    """From 0 to 1."""
    over: str
    """What was compared, such as `812 bins` or `5 values`."""
    guarantee: Guarantee
    """`exact` where values were compared; `bound` where bins were: of the values the last two are no less."""


def distances(
    before: Table,
    old: ColumnStatistics,
    after: Table,
    new: ColumnStatistics,
    *,
    partition: str | None = None,
    groups: int = GROUPS,
) -> Distances | str:
    """Between a column of one version and one of another, of which the statistics are given; or why there are none.

    Of one partition that both have, where it is given; then the statistics are of it. The stability index is of
    `groups` groups.
    """
    if old.type_class is None or new.type_class is None:
        side = old if old.type_class is None else new
        return side.reason or f"{side.type} has no values of its own"
    if old.type_class != new.type_class:
        return f"values of {old.type} and of {new.type} are not compared"
    if not old.value_count or not new.value_count:
        return "there are no values before" if not old.value_count else "there are no values after"
    if is_same(old, new):
        return Distances(0.0, 0.0, 0.0, "the same values", "exact")
    sides = (_Side(before, old, partition), _Side(after, new, partition))
    try:
        if class_named(new.type_class).is_ordinal and (found := _over_bins(*sides, groups)) is not None:
            return found
        return _over_values(*sides, groups)
    except NotStoredError as error:
        return str(error)


def is_same(old: ColumnStatistics, new: ColumnStatistics) -> bool:
    """Whether both columns have the same values, equally often; False also where that is not known."""
    counts = (old.type_class, old.value_count, old.null_count) == (new.type_class, new.value_count, new.null_count)
    return counts and old.multiset_hash is not None and old.multiset_hash == new.multiset_hash


@dataclass(frozen=True)
class _Side:
    """A column of a version."""

    table: Table
    row: ColumnStatistics
    partition: str | None

    def lattice(self) -> Histogram | None:
        return self.table.dyadic_histogram(self.row.column, self.partition)

    def values(self) -> Iterator[Frequencies]:
        return self.table.values(self.row.column, self.partition)


def _over_bins(before: _Side, after: _Side, groups: int) -> Distances | None:
    """None where one of the two has no histogram."""
    try:
        first, second = before.lattice(), after.lattice()
    except NotStoredError:
        return None
    if first is None or second is None:
        return None
    bins = aligned_bins(first, second)
    over = f"{len(bins):,} bins" if len(bins) > 1 else "1 bin"
    return _measured(bins.left, bins.right, over, "bound", groups)


def _over_values(before: _Side, after: _Side, groups: int) -> Distances:
    """Raises NotStoredError where not all values are listed, or too many to compare."""
    import polars as pl

    from metastore_assets.values.physical import physical_series

    cls = class_named(after.row.type_class or "null")
    sides = []
    for name, other, side in (("before", "after", before), ("after", "before", after)):
        row = side.row
        if (row.distinct_count or 0) > MOST_VALUES:
            raise NotStoredError(f"{row.distinct_count:,} distinct values are more than are compared")
        pieces = [
            pl.DataFrame({"value": physical_series(own.values, cls), name: own.counts.to_numpy()})
            for own in side.values()
            if len(own)
        ]
        if sum(piece[name].sum() for piece in pieces) != row.value_count:
            raise NotStoredError("only values that occur at least twice are listed")
        # Decimals are of 64 bits where they have room there, and of 128 in another piece, or on the other side.
        listed = pl.concat(pieces, how="vertical_relaxed").with_columns(pl.lit(0, pl.Int64).alias(other))
        sides.append(listed.select("value", "before", "after"))
    # Grouped, not joined: Polars joins sorted floats by merging, which takes NaN for unequal to NaN.
    both = pl.concat(sides, how="vertical_relaxed").group_by("value").sum().sort("value")
    if cls.kind == "float":
        both = both.filter(pl.col("value").is_finite())
    over = f"{both.height:,} values" if both.height != 1 else "1 value"
    frequencies = both["before"].to_numpy(), both["after"].to_numpy()
    if not all(own.any() for own in frequencies):
        raise NotStoredError("one of the two has no values but NaN and infinities")
    return _measured(*frequencies, over, "exact", groups, by_frequency=not cls.is_ordinal)


def _measured(
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
    over: str,
    guarantee: Guarantee,
    most: int,
    *,
    by_frequency: bool = False,
) -> Distances:
    """At most `most` groups: `by_frequency`, the most frequent values, and all others in one; else stretches of
    neighbours."""
    if by_frequency:
        order = np.argsort(-before, kind="stable")
        head, rest = order[: most - 1], order[most - 1 :]
        sides = [np.append(own[head], own[rest].sum()) for own in (before, after)]
        some = (sides[0] + sides[1]) > 0
        groups = tuple(own[some] for own in sides)
    else:
        groups = equal_shares(before, after, most)
    return Distances(
        population_stability_index(*groups),
        kolmogorov_smirnov(before, after),
        jensen_shannon(before, after),
        over,
        guarantee,
    )
