"""Statistics of Python values by definition, in exact arithmetic; it shares no code with the package."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

NAN = object()  # stands for every NaN, which does not equal itself
FRACTIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def plain(scalar: pa.Scalar | None) -> Any:
    """Convert a scalar to the Python value that the strategies draw.

    Temporal types have integers, and uuid has bytes.
    """
    if scalar is None:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        return scalar.value.as_py()
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    value = scalar.as_py()
    return NAN if isinstance(value, float) and math.isnan(value) else value


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


class Facts:
    """Statistics of a list of values of one type, computed from their definitions.

    Nulls are None.
    """

    def __init__(self, values: list[Any]) -> None:
        non_null = [value for value in values if value is not None]
        self.value_count = len(non_null)
        self.null_count = len(values) - len(non_null)
        self.nan_count = sum(map(is_nan, non_null))
        self.counts = Counter(NAN if is_nan(value) else value for value in non_null)
        self.distinct_count = len(self.counts)
        self.duplicate_count = sum(count > 1 for count in self.counts.values())
        numbers = sorted((value for value in non_null if not is_nan(value)), key=_order)
        self.numbers = numbers
        self.minimum = numbers[0] if numbers else None
        self.maximum = numbers[-1] if numbers else None
        self.percentiles = [numbers[_rank(q, len(numbers)) - 1] for q in FRACTIONS] if numbers else []
        self.ascending = sorted(self.counts, key=lambda v: (v is NAN, 0 if v is NAN else _order(v)))

    @property
    def exact_sum(self) -> Fraction:
        return sum((Fraction(value) for value in self.numbers), Fraction(0))

    @property
    def mean(self) -> Fraction:
        return self.exact_sum / len(self.numbers)

    def central(self, power: int) -> Fraction:
        mean = self.mean
        return sum(((Fraction(value) - mean) ** power for value in self.numbers), Fraction(0))


def root(value: Fraction) -> float:
    """Return the square root of a fraction, computed to 30 digits and then rounded to a float."""
    if not value:
        return 0.0
    shift = 2 * ((value.denominator.bit_length() - value.numerator.bit_length()) // 2 + 110)
    scaled_root = math.isqrt(int(value * Fraction(2) ** shift))
    try:
        return float(Fraction(scaled_root) / Fraction(2) ** (shift // 2))
    except OverflowError:
        return math.inf


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def shape(facts: Facts) -> tuple[float, float] | None:
    """Return the population's skewness and excess kurtosis, or None if all values are equal."""
    n, m2 = len(facts.numbers), facts.central(2)
    if not m2:
        return None
    m3 = facts.central(3)
    skewness = root(n * m3**2 / m2**3)
    return skewness if m3 > 0 else -skewness, float(n * facts.central(4) / m2**2 - 3)


def _rank(fraction: float, n: int) -> int:
    return math.ceil(Fraction(str(fraction)) * n)


def _order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return Fraction(value) if isinstance(value, Decimal) else value
