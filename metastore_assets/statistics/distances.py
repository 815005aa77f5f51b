"""How far two distributions lie apart: counts of two sets of values over the same bins, in the same order.

All of them compare shares, so that it does not matter how many values there are; and two distributions that are the
same over the bins have distance 0, whatever they are like within them: finer bins see more, and a distance is told with
how many there were. Sources: S. Kullback, R. A. Leibler, "On information and sufficiency" (1951), whose symmetric
divergence the population stability index is; N. Smirnov, "Table for estimating the goodness of fit" (1948); J. Lin,
"Divergence measures based on the Shannon entropy" (1991), whose square root is a metric (D. Endres, J. Schindelin, "A
new metric for probability distributions", 2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.histogram import Histogram

Counts = Sequence[int] | Sequence[float] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Finite numbers, 0 or more, of which one at least is greater; one for each bin."""

LEAST_SHARE = 0.0001
"""What the population stability index takes for the share of an empty bin, as is the custom: 0 has no logarithm."""

_ROUNDING = 1e-9
"""What sums of shares may be off by."""


@dataclass(frozen=True, eq=False)
class AlignedBins:
    """Two histograms over the same bins, empty ones included: bin i of both starts at `(first + i) * 2**exponent`."""

    exponent: int
    first: int
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.left)


def aligned_bins(left: Histogram, right: Histogram, most: int | None = None) -> AlignedBins:
    """Two histograms of one type class over the bins of the coarser lattice, from the first bin of either to the last.

    Exact: bins of the finer one are added up. With `most` >= 2 bins are doubled in width until there are no more than
    that; without, until there are no more than the larger capacity of the two, for ranges may lie far apart.
    Raises ValueError for histograms of different classes, whose lattices have different units.
    """
    if left.type_class != right.type_class:
        raise ValueError(
            f"a histogram of {left.type_class.name} and one of {right.type_class.name} have no bins in common"
        )
    most = max(left.capacity, right.capacity) if most is None else most
    if most < 2:
        raise ValueError(f"there are at least 2 bins, for none reaches across zero, not {most}")
    exponent = max(left.exponent, right.exponent)
    while True:
        spans = [_span(histogram, exponent) for histogram in (left, right)]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        if last - first < most:
            break
        exponent += 1
    return AlignedBins(exponent, first, *(_counts(histogram, exponent, first, last) for histogram in (left, right)))


def equal_shares(baseline: Counts, other: Counts, groups: int) -> tuple[npt.NDArray[np.float64], ...]:
    """Both counts with neighbouring bins added up to at most `groups` groups of about the same share of the baseline.

    What the population stability index is usually taken of, with 10 groups. A bin is in the group that the baseline's
    cumulated share falls in with it, the bin that comes to a multiple of 1 / groups still in that one. What lies below
    or beyond the baseline is a group each, if there is any: added to one of its own, it would hide there where that is
    large. Raises ValueError as the distances, and for `groups` < 1.
    """
    if groups < 1:
        raise ValueError(f"there must be at least 1 group, not {groups}")
    p, q = _shares(baseline, other)
    at = np.clip(np.ceil(np.cumsum(p) * groups - _ROUNDING), 1, groups).astype(np.intp)
    known = np.flatnonzero(p)
    if q[: known[0]].any():
        at[: known[0]] = 0
    if q[known[-1] + 1 :].any():
        at[known[-1] + 1 :] = groups + 1
    _, starts = np.unique(at, return_index=True)
    return tuple(np.add.reduceat(np.asarray(counts, np.float64), starts) for counts in (baseline, other))


def population_stability_index(a: Counts, b: Counts) -> float:
    """`Σ (p − q) · ln(p / q)` over the shares p, q of the bins: 0 or more, symmetric, without a greatest value.

    By custom less than 0.1 is stable and more than 0.25 has shifted, of 10 bins or so (`equal_shares`). Shares below
    `LEAST_SHARE` count as that. Raises ValueError for counts of different length, without a bin, negative, not finite,
    or all zero: says which.
    """
    p, q = (np.maximum(share, LEAST_SHARE) for share in _shares(a, b))
    return float(np.sum((p - q) * np.log(p / q)))


def kolmogorov_smirnov(a: Counts, b: Counts) -> float:
    """The greatest difference of the two cumulated shares at an upper edge of a bin: from 0 to 1, symmetric.

    Of the values themselves the statistic is no less; and equal where each bin holds one value. Raises as
    `population_stability_index`.
    """
    p, q = _shares(a, b)
    return float(min(1.0, np.max(np.abs(np.cumsum(p) - np.cumsum(q)))))


def jensen_shannon(a: Counts, b: Counts) -> float:
    """The Jensen–Shannon distance: the square root of the divergence in bits, so from 0 to 1, symmetric, and a metric.

    The divergence is the mean of the Kullback–Leibler divergences of both from their mean. Of the values themselves it
    is no less. Raises as `population_stability_index`.
    """
    p, q = _shares(a, b)
    mean = (p + q) / 2
    divergence = (_relative_entropy(p, mean) + _relative_entropy(q, mean)) / 2
    return float(min(1.0, max(0.0, divergence) ** 0.5))


def _shares(a: Counts, b: Counts) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if len(a) != len(b):
        raise ValueError(f"counts over the same bins are as many: there are {len(a)} and {len(b)}")
    return _share(a, "first"), _share(b, "second")


def _share(counts: Counts, which: str) -> npt.NDArray[np.float64]:
    own = np.asarray(counts, np.float64)
    if own.ndim != 1 or not len(own):
        raise ValueError(f"the {which} counts have no bin")
    if not np.isfinite(own).all() or (own < 0).any():
        raise ValueError(f"the {which} counts are not all finite and 0 or more")
    greatest = own.max()
    if greatest == 0:
        raise ValueError(f"the {which} counts are all 0: nothing has no distribution")
    own = own / greatest
    return own / own.sum()


def _relative_entropy(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    some = p > 0
    return float(np.sum(p[some] * np.log2(p[some] / q[some])))


def _span(histogram: Histogram, exponent: int) -> tuple[int, int]:
    """The first and the last bin on the coarser lattice."""
    shift = exponent - histogram.exponent
    return histogram.first >> shift, (histogram.first + len(histogram) - 1) >> shift


def _counts(histogram: Histogram, exponent: int, first: int, last: int) -> npt.NDArray[np.int64]:
    own = histogram.coarsened(exponent)
    counts = np.zeros(last - first + 1, np.int64)
    counts[own.first - first : own.first - first + len(own)] = own.counts
    return counts
