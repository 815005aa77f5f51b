"""Exact sums of numbers and of their squares, weighted by counts.

They are vectorized if 64 bits suffice.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from metastore_assets.values.physical import Numbers

Counts = npt.NDArray[np.int64]

FLOAT_BASE = -1126
"""Every finite double is an integer times 2**FLOAT_BASE. The integer has 53 significant bits."""
_LOW_32 = np.uint64(2**32 - 1)
_HALF = np.uint64(27)
_LOW_27 = np.uint64(2**27 - 1)


def integer_power_sums(values: Numbers, counts: Counts) -> tuple[int, int]:
    """Return (sum, sum of squares) of values, where each value is added as often as it occurs.

    Both sums are exact.

    Args:
        values: Values of dtype int64, uint64 or object (Python integers).
        counts: How often each value occurs.
    """
    if len(values) == 0:
        return 0, 0
    if values.dtype == object:
        weights = counts.tolist()
        numbers = values.tolist()
        terms = [value * weight for value, weight in zip(numbers, weights, strict=True)]
        return sum(terms), sum(term * value for term, value in zip(terms, numbers, strict=True))
    # The cases differ in what fits into 64 bits: everything; nothing (too many values); squares; or halves of values.
    n, greatest = int(counts.sum()), max(abs(int(values.min())), abs(int(values.max())))
    if greatest * greatest * n < 2**63:
        signed = values.astype(np.int64, copy=False)
        products = signed * counts
        return int(products.sum()), int(np.dot(products, signed))
    if n >= 2**31:
        return integer_power_sums(values.astype(object), counts)
    if greatest < 2**31:
        signed = values.astype(np.int64, copy=False)
        squares = (signed * signed).view(np.uint64)
        return int((signed * counts).sum()), _weighted_sums(squares, counts, np.zeros(1, np.intp))[0]
    negative = values < 0
    magnitudes = np.where(negative, -values.view(np.int64), values.view(np.int64)).view(np.uint64)
    starts = np.zeros(1, np.intp)
    signs = np.where(negative, -counts, counts)
    s1 = _weighted_sums(magnitudes, signs, starts)[0]
    high, low = magnitudes >> np.uint64(32), magnitudes & _LOW_32
    # (high * 2**32 + low)**2 = high**2 * 2**64 + high * low * 2**33 + low**2
    square = [_weighted_sums(product, counts, starts)[0] for product in (high * high, high * low, low * low)]
    return s1, (square[0] << 64) + (square[1] << 33) + square[2]


def float_power_sums(values: npt.NDArray[np.float64], counts: Counts) -> tuple[int, int, int]:
    """Return (base, s1, s2): the exact sum is s1 * 2**base, the exact sum of squares s2 * 2**(2 * base).

    Args:
        values: Finite values in ascending order.
        counts: How often each value occurs.
    """
    if len(values) == 0:
        return 0, 0, 0
    fractions, exponents = np.frexp(values)
    mantissas = (fractions * 2.0**53).astype(np.int64)
    if int(counts.sum()) >= 2**31:
        return _float_power_sums_slowly(mantissas, exponents, counts)
    # Neighbours in ascending order mostly share the exponent. Each such group has one exact integer sum.
    starts = np.flatnonzero(np.diff(exponents, prepend=exponents[0] - 1))
    shifts = (exponents[starts] - 53 - FLOAT_BASE).tolist()
    magnitudes = np.abs(mantissas).view(np.uint64)
    sums = _weighted_sums(magnitudes, np.where(mantissas < 0, -counts, counts), starts)
    high, low = magnitudes >> _HALF, magnitudes & _LOW_27
    squares = [_weighted_sums(product, counts, starts) for product in (high * high, high * low, low * low)]
    s1 = sum(value << shift for value, shift in zip(sums, shifts, strict=True))
    s2 = 0
    for hh, hl, ll, shift in zip(*squares, shifts, strict=True):
        s2 += ((hh << 54) + (hl << 28) + ll) << (2 * shift)
    return FLOAT_BASE, s1, s2


def magnitude(ascending: npt.NDArray[np.float64]) -> int:
    """Return the least exponent e such that all values are less than 2**e in magnitude.

    The result is 0 if all values are 0.

    Args:
        ascending: The values in ascending order, at least one.
    """
    return math.frexp(max(abs(ascending[0]), abs(ascending[-1])))[1]


def scale_by_power_of_two(values: npt.NDArray[np.float64], exponent: int) -> npt.NDArray[np.float64]:
    """Return values * 2**exponent.

    A result is exact if it is a normal double.
    """
    # Multiplication is vectorized and gives the same, as long as the power of two is a normal double.
    return values * 2.0**exponent if abs(exponent) < 1022 else np.ldexp(values, exponent)


def _weighted_sums(values: npt.NDArray[np.uint64], weights: Counts, starts: npt.NDArray[np.intp]) -> list[int]:
    """Return the exact sum of value * weight in each group.

    Each value is split into its lower and upper 32 bits, which are summed separately as 64-bit integers. So that no sum
    overflows, the absolute weights of all values must add up to less than 2**31. This is not checked.

    Args:
        values: The values.
        weights: The weight of each value.
        starts: The position of the first value of each group, ascending. A group ends before the next one starts.
    """
    low = np.add.reduceat((values & _LOW_32).view(np.int64) * weights, starts).tolist()
    high = np.add.reduceat((values >> np.uint64(32)).view(np.int64) * weights, starts).tolist()
    return [(h << 32) + x for h, x in zip(high, low, strict=True)]


def _float_power_sums_slowly(
    mantissas: npt.NDArray[np.int64], exponents: npt.NDArray[np.int32], counts: Counts
) -> tuple[int, int, int]:
    """Compute `float_power_sums` one value at a time, for any counts.

    The values are mantissa * 2**(exponent - 53).
    """
    s1 = s2 = 0
    for mantissa, exponent, count in zip(mantissas.tolist(), exponents.tolist(), counts.tolist(), strict=True):
        shift = exponent - 53 - FLOAT_BASE
        s1 += (mantissa * count) << shift
        s2 += (mantissa * mantissa * count) << (2 * shift)
    return FLOAT_BASE, s1, s2
