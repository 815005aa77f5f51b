"""Distances of two distributions, which are counts over the same bins in the same order.

All distances compare shares, so the numbers of values do not matter. Two distributions with the same shares have
distance 0, even if they differ within the bins. Finer bins reveal more differences, so a distance is meaningful only
together with the number of bins. Sources:

- Population stability index: the symmetric divergence of S. Kullback, R. A. Leibler, "On information and sufficiency"
  (1951).
- Kolmogorov–Smirnov: N. Smirnov, "Table for estimating the goodness of fit" (1948).
- Jensen–Shannon: J. Lin, "Divergence measures based on the Shannon entropy" (1991). The square root is a metric
  (D. Endres, J. Schindelin, "A new metric for probability distributions", 2003).

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.histogram import Histogram

Counts = Sequence[int] | Sequence[float] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""A count per bin: finite, 0 or more, and not all 0."""

LEAST_SHARE = 0.0001
"""The share that the population stability index uses for an empty bin, because 0 has no logarithm."""

_ROUNDING = 1e-9
"""Tolerance of sums of shares."""


@dataclass(frozen=True, eq=False)
class AlignedBins:
    """Two histograms over the same bins.

    Bin i of both starts at `(first + i) * 2**exponent`. Bins may be empty.
    """

    exponent: int
    first: int
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.left)


def align_bins(left: Histogram, right: Histogram, max_bins: int | None = None) -> AlignedBins:
    """Convert two histograms of one type class to the same bins, which cover the values of both.

    The bins are as wide as those of the coarser histogram, or wider if there would be more than `max_bins`. The counts
    are exact, because each wide bin consists of complete narrow bins.

    Args:
        left: A histogram.
        right: A histogram of the same type class.
        max_bins: Maximum number of bins of the result, at least 2. None for the greater `capacity` (maximum
            number of bins) of the two histograms.

    Raises:
        ValueError: The type classes differ (the bins then have different units), or `max_bins` < 2.
    """
    if left.type_class != right.type_class:
        raise ValueError(
            f"histograms of {left.type_class.name} and of {right.type_class.name} cannot be compared: their bins have "
            "different units"
        )
    max_bins = max(left.capacity, right.capacity) if max_bins is None else max_bins
    if max_bins < 2:
        raise ValueError(
            f"max_bins must be at least 2, because no bin contains both negative and positive values; it is {max_bins}"
        )
    exponent = max(left.exponent, right.exponent)
    while True:
        spans = [_span(histogram, exponent) for histogram in (left, right)]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        if last - first < max_bins:
            break
        exponent += 1
    return AlignedBins(exponent, first, *(_counts(histogram, exponent, first, last) for histogram in (left, right)))


def group_bins(baseline: Counts, other: Counts, groups: int) -> tuple[npt.NDArray[np.float64], ...]:
    """Merge neighbouring bins of two distributions into groups with about equal shares of the baseline.

    Values of the other distribution below or above the range of the baseline form up to two additional groups, in
    which the baseline has no values. The population stability index is usually computed with `groups` = 10.

    Args:
        baseline: The counts of the first distribution by bin.
        other: The counts of the second distribution over the same bins.
        groups: Maximum number of groups within the range of the baseline, at least 1.

    Returns:
        (counts of the baseline, counts of the other distribution), with an item per group.

    Raises:
        ValueError: `groups` < 1, or counts are invalid as in `population_stability_index`.
    """
    if groups < 1:
        raise ValueError(f"there must be at least 1 group, not {groups}")
    p, q = _shares(baseline, other)
    group_numbers = np.clip(np.ceil(np.cumsum(p) * groups - _ROUNDING), 1, groups).astype(np.intp)
    occupied_bins = np.flatnonzero(p)
    if q[: occupied_bins[0]].any():
        group_numbers[: occupied_bins[0]] = 0
    if q[occupied_bins[-1] + 1 :].any():
        group_numbers[occupied_bins[-1] + 1 :] = groups + 1
    _, starts = np.unique(group_numbers, return_index=True)
    return tuple(np.add.reduceat(np.asarray(counts, np.float64), starts) for counts in (baseline, other))


def population_stability_index(a: Counts, b: Counts) -> float:
    """Return `Σ (p − q) · ln(p / q)` over the shares p, q of the bins: 0 or more, symmetric, unbounded.

    By convention, less than 0.1 is stable and more than 0.25 has shifted, with about 10 bins (`group_bins`). A share
    below `LEAST_SHARE` counts as `LEAST_SHARE`.

    Args:
        a: The counts of one distribution by bin.
        b: The counts of the other distribution over the same bins.

    Raises:
        ValueError: Counts have different lengths, no bins, or are negative, not finite or all zero.
    """
    p, q = (np.maximum(share, LEAST_SHARE) for share in _shares(a, b))
    return float(np.sum((p - q) * np.log(p / q)))


def kolmogorov_smirnov(a: Counts, b: Counts) -> float:
    """Return the Kolmogorov–Smirnov distance: the greatest difference of cumulated shares.

    The shares are compared at the upper edges of bins. The distance is from 0 to 1, and symmetric. The distance of the
    values themselves, without bins, is at least as large, and equal if each bin has only one distinct value.

    Raises:
        ValueError: Counts have different lengths, no bins, or are negative, not finite or all zero.
    """
    p, q = _shares(a, b)
    return float(min(1.0, np.max(np.abs(np.cumsum(p) - np.cumsum(q)))))


def jensen_shannon(a: Counts, b: Counts) -> float:
    """Return the Jensen–Shannon distance, from 0 to 1: the square root of the divergence in bits.

    The distance of the values themselves, without bins, is at least as large.

    Raises:
        ValueError: Counts have different lengths, no bins, or are negative, not finite or all zero.
    """
    p, q = _shares(a, b)
    mean = (p + q) / 2
    divergence = (_relative_entropy(p, mean) + _relative_entropy(q, mean)) / 2
    return float(min(1.0, max(0.0, divergence) ** 0.5))


def _shares(a: Counts, b: Counts) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if len(a) != len(b):
        raise ValueError(f"the counts have {len(a)} and {len(b)} bins: they must be over the same bins")
    return _share(a, "first"), _share(b, "second")


def _share(counts: Counts, which: str) -> npt.NDArray[np.float64]:
    """Return counts as shares that add up to 1.

    Raises ValueError if the counts are empty, invalid or all 0.

    `which` names the counts in the message: `first` or `second`.
    """
    values = np.asarray(counts, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"the {which} counts have no bin")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"the {which} counts are not all finite and 0 or more")
    greatest = values.max()
    if greatest == 0:
        raise ValueError(f"the {which} counts are all 0, so that they have no distribution")
    values = values / greatest
    return values / values.sum()


def _relative_entropy(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    is_occupied = p > 0
    return float(np.sum(p[is_occupied] * np.log2(p[is_occupied] / q[is_occupied])))


def _span(histogram: Histogram, exponent: int) -> tuple[int, int]:
    """Return the numbers of a histogram's first and last bin after bins are widened to 2**exponent.

    Bin n starts at n * 2**exponent.

    Args:
        histogram: The histogram.
        exponent: The exponent of the new width, at least that of the histogram.
    """
    shift = exponent - histogram.exponent
    return histogram.first >> shift, (histogram.first + len(histogram) - 1) >> shift


def _counts(histogram: Histogram, exponent: int, first: int, last: int) -> npt.NDArray[np.int64]:
    coarse = histogram.coarsened(exponent)
    counts = np.zeros(last - first + 1, np.int64)
    counts[coarse.first - first : coarse.first - first + len(coarse)] = coarse.counts
    return counts
