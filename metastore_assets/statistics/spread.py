"""How the values of a column spread: what follows from how many of them there are of each frequency."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Exact counts of distinct values, and their entropy. NaN is one value, null is none."""

    distinct_count: int
    duplicate_count: int
    """Distinct values that occur more than once."""
    singleton_count: int
    """Values that occur once."""
    entropy: float
    """Shannon's, in bits: 0 where all values are the same or there is none, log2(n) where all n are different."""


def spread(counts: Iterable[tuple[int, int]]) -> Spread:
    """The spread of (frequency, number of values that occur so often), in any order, each frequency once."""
    held = list(counts)
    distinct = sum(number for _, number in held)
    singletons = sum(number for frequency, number in held if frequency == 1)
    rows = sum(frequency * number for frequency, number in held)
    if not rows:
        return Spread(0, 0, 0, 0.0)
    # Summed exactly, so that it is the same whatever led to these counts.
    information = math.fsum(number * frequency * math.log2(frequency) for frequency, number in held)
    return Spread(distinct, distinct - singletons, singletons, max(0.0, math.log2(rows) - information / rows))
