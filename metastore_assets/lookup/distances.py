"""Distances between the distributions of two columns, from their histograms or value counts.

The value counts of a column are its distinct values with their frequencies. The policy of a column decides which of its
statistics and values are stored. The stability index is the population stability index (PSI).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup.results import explain_no_values
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.statistics.distances import (
    align_bins,
    group_bins,
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
"""The usual number of groups of the population stability index."""
MAX_VALUES = 1_000_000
"""Maximum number of distinct values of a column for a comparison value by value, which replaces missing histograms."""
_Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Distances:
    """Distances between two distributions.

    Nulls, NaN and infinities are not compared.
    """

    stability_index: float
    """The population stability index. By custom, less than 0.1 is stable and more than 0.25 has shifted."""
    kolmogorov_smirnov: float
    """The greatest difference of the cumulated shares, from 0 to 1."""
    jensen_shannon: float
    """The Jensen–Shannon distance, from 0 to 1."""
    over: str
    """What was compared, such as `812 bins` or `5 values`."""
    guarantee: Guarantee
    """`exact` if values were compared. `bound` if bins were compared: the `kolmogorov_smirnov` and `jensen_shannon` of
    the values themselves are equal or greater."""

    def __str__(self) -> str:
        """Return the three distances as `metastore diff` prints them: `PSI 0.120, KS 0.045, JS 0.031`."""
        return f"PSI {self.stability_index:.3f}, KS {self.kolmogorov_smirnov:.3f}, JS {self.jensen_shannon:.3f}"


@dataclass(frozen=True)
class ComparedColumn:
    """One side of a comparison: a column of a version, in the whole table or in one partition."""

    table: Table
    row: ColumnStatistics
    """The statistics of the column in that table or partition."""
    partition: str | None = None
    """The key of the partition; None for the table."""

    def dyadic_histogram(self) -> Histogram | None:
        """Return the histogram with its stored bins, whose width is a power of two.

        Returns None without finite values. Raises NotStoredError if the histogram is missing for another reason, such
        as the policy `histogram: off` or a type that is neither numeric nor temporal.
        """
        return self.table.dyadic_histogram(self.row.column, partition=self.partition)

    def values(self) -> Iterator[Frequencies]:
        """Yield the values of the column with their frequencies, ascending, in pieces.

        Raises NotStoredError if the version has no value counts of the column.
        """
        return self.table.value_batches(self.row.column, partition=self.partition)


def measure_distances(before: ComparedColumn, after: ComparedColumn, groups: int = GROUPS) -> Distances | str:
    """Return the distances between the distributions of two columns, or why they cannot be compared.

    Args:
        before: The column of the earlier version.
        after: The column of the later version.
        groups: The number of groups into which bins or values are merged for the stability index, at least 1. Few bins
            or values lead to fewer groups. Numbers, dates and times below the minimum or above the maximum of `before`
            form up to two more groups.
    """
    old, new = before.row, after.row
    if old.type_class is None or new.type_class is None:
        side = old if old.type_class is None else new
        return explain_no_values(side)
    if old.type_class != new.type_class:
        return f"values of {old.type} and of {new.type} are not compared"
    if not old.value_count or not new.value_count:
        return "there are no values before" if not old.value_count else "there are no values after"
    if has_equal_values(old, new):
        return Distances(0.0, 0.0, 0.0, "the same values", "exact")
    try:
        if class_named(new.type_class).is_ordinal and (by_bins := _compare_bins(before, after, groups)) is not None:
            return by_bins
        return _compare_values(before, after, groups)
    except NotStoredError as error:
        return str(error)


def has_equal_values(old: ColumnStatistics, new: ColumnStatistics) -> bool:
    """Return whether two columns certainly have the same values, equally often.

    The order of the rows does not matter.

    False means that the values differ or may differ.
    """
    counts = (old.type_class, old.value_count, old.null_count) == (new.type_class, new.value_count, new.null_count)
    return counts and old.multiset_hash is not None and old.multiset_hash == new.multiset_hash


def _compare_bins(before: ComparedColumn, after: ComparedColumn, groups: int) -> Distances | None:
    """Return the distances between the histograms of two columns; None if one of them has no histogram.

    The arguments are those of `measure_distances`.
    """
    try:
        first, second = before.dyadic_histogram(), after.dyadic_histogram()
    except NotStoredError:
        return None
    if first is None or second is None:
        return None
    bins = align_bins(first, second)
    over = f"{len(bins):,} bins" if len(bins) > 1 else "1 bin"
    return _measure((bins.left, bins.right), group_bins(bins.left, bins.right, groups), over, "bound")


def _compare_values(before: ComparedColumn, after: ComparedColumn, groups: int) -> Distances:
    """Return the distances between the value counts of two columns, value by value.

    The arguments are those of `measure_distances`.

    Raises:
        NotStoredError: A column has no value counts, or has them only for repeated values. Or it has more than
            `MAX_VALUES` distinct values, or no values except NaN and infinities.
    """
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
    joined_counts = pl.concat(sides, how="vertical_relaxed").group_by("value").sum().sort("value")
    if cls.kind == "float":
        joined_counts = joined_counts.filter(pl.col("value").is_finite())
    over = f"{joined_counts.height:,} values" if joined_counts.height != 1 else "1 value"
    counts = joined_counts["before"].to_numpy(), joined_counts["after"].to_numpy()
    if not all(count.any() for count in counts):
        raise NotStoredError("one of the two has no values except NaN and infinities")
    grouped_counts = group_bins(*counts, groups) if cls.is_ordinal else _group_by_frequency(*counts, groups)
    return _measure(counts, grouped_counts, over, "exact")


def _group_by_frequency(before: _Counts, after: _Counts, max_groups: int) -> tuple[_Counts, _Counts]:
    """Group values for the stability index.

    The `max_groups - 1` values that were most frequent before are groups of their own. All other values are one group.
    A group that has no rows before and none after is omitted.

    Args:
        before: The frequency of each value before.
        after: The frequency of each value after.
        max_groups: The maximum number of groups.

    Returns:
        (frequencies before, frequencies after), with an item per group.
    """
    order = np.argsort(-before, kind="stable")
    head, others = order[: max_groups - 1], order[max_groups - 1 :]
    sides = [np.append(counts[head], counts[others].sum()) for counts in (before, after)]
    is_used = (sides[0] + sides[1]) > 0
    return sides[0][is_used], sides[1][is_used]


def _measure(
    counts: tuple[_Counts, _Counts], groups: Sequence[npt.NDArray[Any]], over: str, guarantee: Guarantee
) -> Distances:
    """Return the distances between two distributions.

    Args:
        counts: (before, after): the frequencies of the same values or bins.
        groups: (before, after): the frequencies of groups of these values or bins, for the stability index.
        over: What is compared, such as `5 values`.
        guarantee: The guarantee of the distances.
    """
    return Distances(
        population_stability_index(*groups), kolmogorov_smirnov(*counts), jensen_shannon(*counts), over, guarantee
    )
