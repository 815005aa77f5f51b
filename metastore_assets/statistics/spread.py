"""The spread of a column's values: distinct values, duplicates, singletons and entropy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Exact counts of distinct values and their entropy. NaN is a value, null is none."""

    distinct_count: int
    duplicate_count: int
    """Distinct values that occur more than once."""
    singleton_count: int
    """Values that occur once."""
    entropy: float
    """Shannon entropy in bits: 0 if all values are equal or there are none, log2(n) if all n values differ."""


def spread(counts: Iterable[tuple[int, int]]) -> Spread:
    """Return the spread of values, given pairs of a frequency and the number of values with that frequency."""
    pairs = list(counts)
    distinct = sum(number for _, number in pairs)
    singletons = sum(number for frequency, number in pairs if frequency == 1)
    rows = sum(frequency * number for frequency, number in pairs)
    if not rows:
        return Spread(0, 0, 0, 0.0)
    # An exact sum does not depend on the order of the counts.
    information = math.fsum(number * frequency * math.log2(frequency) for frequency, number in pairs)
    return Spread(distinct, distinct - singletons, singletons, max(0.0, math.log2(rows) - information / rows))
