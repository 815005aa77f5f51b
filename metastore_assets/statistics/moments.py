"""Moments: sum, mean, deviation, skewness and kurtosis, from a mergeable state.

The state of n finite numbers x contains the power sums  S1 = sum x  and  S2 = sum x². Each is an exact integer times a
power of two. Therefore the sum and the mean  S1/n  are correctly rounded, and the sample deviation
sqrt((n S2 - S1²) / (n (n-1)))  is within one unit in the last place, in any order of rows and merges. The third and
fourth central moments  Mp = sum (x - mean)^p  are doubles, scaled by a power of two so that they do not overflow. They
merge about the common mean (Pébay, "Formulas for robust, one-pass parallel computation of covariances and
arbitrary-order statistical moments", Sandia 2008, eq. 2.1, over all parts at once). Part i has ni numbers, with the
mean mean_i. With  di = mean_i - mean  and  M2 = S2 - S1²/n:

    M3 = sum_i (M3_i + 3 di M2_i + ni di³)        M4 = sum_i (M4_i + 4 di M3_i + 6 di² M2_i + ni di⁴)

skewness = sqrt(n) M3 / M2^1.5 and kurtosis = n M4 / M2² - 3 are those of the population, as in Spark SQL.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics, parse_sum
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext, Fold
from metastore_assets.statistics.merge_rules import MergeParts
from metastore_assets.statistics.power_sums import (
    float_power_sums,
    integer_power_sums,
    magnitude,
    scale_by_power_of_two,
)
from metastore_assets.values.physical import Numbers
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.blocks import ValueBlock

_VERSION = 1
_HEADER = struct.Struct("<BqqqiiddIIII")
_NO_SPREAD = -(2**20)
"""Exponent of central moments that are all zero. It is less than all others, so that merges ignore it."""


@dataclass(frozen=True)
class Moments:
    """The mergeable state of the moments of a column's numbers, without NaN.

    There are `n` finite numbers. Their sum is `s1` * 2**base, and their sum of squares `s2` * 2**(2 * base). The sum of
    the third powers of their differences from the mean is `m3` * 2**(3 * exponent), and that of the fourth powers is
    `m4` * 2**(4 * exponent). Decimals are unscaled.
    """

    n: int
    negative_infinities: int
    positive_infinities: int
    base: int
    s1: int
    s2: int
    exponent: int
    m3: float
    m4: float

    @property
    def infinities(self) -> tuple[int, int]:
        """(number of -inf values, number of +inf values)."""
        return self.negative_infinities, self.positive_infinities

    def m2(self) -> float:
        """Return the sum of the squared differences from the mean, in units of 2**(2 * exponent)."""
        return rounded_ratio(self.n * self.s2 - self.s1**2, self.n, 2 * (self.base - self.exponent)) if self.n else 0.0


@dataclass(frozen=True)
class MomentResults:
    """The statistics that are computed from moments.

    None means undefined, as the skewness of a constant.
    """

    sum: str | None
    mean: float | None
    standard_deviation: float | None
    skewness: float | None
    kurtosis: float | None


def moments_of(values: Numbers, counts: npt.NDArray[np.int64]) -> Moments:
    """Compute the moments of numbers.

    Args:
        values: Ascending and distinct numbers without NaN, as they are stored: decimals unscaled.
        counts: How often each value occurs.
    """
    below = above = base = 0
    if values.dtype == np.float64:
        start = np.searchsorted(values, -math.inf, side="right")
        stop = np.searchsorted(values, math.inf, side="left")
        below, above = int(counts[:start].sum()), int(counts[stop:].sum())
        values, counts = values[start:stop], counts[start:stop]
        base, s1, s2 = float_power_sums(values, counts)
    else:
        s1, s2 = integer_power_sums(values, counts)
    n = int(counts.sum())
    exponent, m3, m4 = _central_moments(values, counts, n, s1, base)
    return Moments(n, below, above, base, s1, s2, exponent, m3, m4)


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """Merge the moments of disjoint sets of numbers.

    The order of parts does not matter. The grouping of merges changes only the rounding of `m3` and `m4`.
    """
    nonempty_parts = [part for part in parts if part.n]
    below = sum(part.negative_infinities for part in parts)
    above = sum(part.positive_infinities for part in parts)
    base = min((part.base for part in nonempty_parts), default=0)
    n = sum(part.n for part in nonempty_parts)
    s1 = sum(part.s1 << (part.base - base) for part in nonempty_parts)
    s2 = sum(part.s2 << 2 * (part.base - base) for part in nonempty_parts)
    if len(nonempty_parts) == 1:
        exponent, m3, m4 = nonempty_parts[0].exponent, nonempty_parts[0].m3, nonempty_parts[0].m4
        return Moments(n, below, above, base, s1, s2, exponent, m3, m4)
    # Differences of means, as exact ratios: (s1_i n - s1 n_i) / (n_i n).
    differences = [((p.s1 << (p.base - base)) * n - s1 * p.n, p.n * n) for p in nonempty_parts]
    exponents = [_bits(numerator, denominator) + base for numerator, denominator in differences if numerator]
    exponent = max([part.exponent for part in nonempty_parts] + exponents, default=_NO_SPREAD)
    third, fourth = [], []
    for part, (numerator, denominator) in zip(nonempty_parts, differences, strict=True):
        d, shift = rounded_ratio(numerator, denominator, base - exponent), part.exponent - exponent
        m2, m3, m4 = (math.ldexp(m, p * shift) for p, m in ((2, part.m2()), (3, part.m3), (4, part.m4)))
        third += [m3, 3 * d * m2, part.n * d**3]
        fourth += [m4, 4 * d * m3, 6 * d * d * m2, part.n * d**4]
    return Moments(n, below, above, base, s1, s2, exponent, math.fsum(third), math.fsum(fourth))


def compute_moment_results(moments: Moments, *, scale: int | None) -> MomentResults:
    """Compute sum, mean, standard deviation, skewness and kurtosis from moments.

    Args:
        moments: The moments.
        scale: The digits after the decimal point for decimals, 0 for integers, None for floats.
    """
    m, unit = moments, 10 ** (scale or 0)
    if m.n + sum(m.infinities) == 0:
        return MomentResults(None, None, None, None, None)
    if any(m.infinities):
        total = math.nan if all(m.infinities) else math.inf if m.positive_infinities else -math.inf
        return MomentResults(repr(total), total, None, None, None)
    total_text = repr(rounded_ratio(m.s1, 1, m.base)) if scale is None else _decimal_text(m.s1, scale)
    # The sums are exact integers, of values in units of 2**base (floats) or 1 / unit (decimals). Thus the variance is
    # spread * 4**base / (n * (n - 1) * unit**2).
    spread = m.n * m.s2 - m.s1**2
    up, down = max(2 * m.base, 0), max(-2 * m.base, 0)
    deviation = root(spread << up, (m.n * (m.n - 1) * unit**2) << down) if m.n > 1 else None
    skewness = kurtosis = None
    m2 = m.m2()
    if spread and m2:
        skewness, kurtosis = math.sqrt(m.n) * m.m3 / m2**1.5, m.n * m.m4 / m2**2 - 3
    return MomentResults(total_text, rounded_ratio(m.s1, m.n * unit, m.base), deviation, skewness, kurtosis)


def encode_moments(moments: Moments) -> bytes:
    """Return moments as bytes; equal moments have equal bytes."""
    m = moments
    numbers, sizes = [], []
    for value in (m.s1, m.s2):
        zeros = (value & -value).bit_length() - 1 if value else 0
        short = value >> zeros
        number = short.to_bytes(short.bit_length() // 8 + 1, "little", signed=True)
        numbers.append(number)
        sizes += [zeros, len(number)]
    counts = (m.n, m.negative_infinities, m.positive_infinities)
    return _HEADER.pack(_VERSION, *counts, m.base, m.exponent, m.m3, m.m4, *sizes) + b"".join(numbers)


def decode_moments(state: bytes) -> Moments:
    """Return the moments that `encode_moments` encoded."""
    _, n, below, above, base, exponent, m3, m4, zeros1, size1, zeros2, size2 = _HEADER.unpack_from(state)
    start = _HEADER.size
    s1 = int.from_bytes(state[start : start + size1], "little", signed=True) << zeros1
    s2 = int.from_bytes(state[start + size1 : start + size1 + size2], "little", signed=True) << zeros2
    return Moments(n, below, above, base, s1, s2, exponent, m3, m4)


def rounded_ratio(numerator: int, denominator: int, shift: int) -> float:
    """Return numerator / denominator * 2**shift, correctly rounded; infinite beyond the range of doubles."""
    if shift >= 0:
        numerator <<= shift
    else:
        denominator <<= -shift
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def root(numerator: int, denominator: int) -> float:
    """Return the square root of numerator / denominator >= 0.

    The error is at most one unit in the last place.
    """
    if numerator == 0:
        return 0.0
    shift = 128 - _bits(numerator, denominator)
    shift += shift % 2
    scaled_ratio = (numerator << shift) // denominator if shift >= 0 else numerator // (denominator << -shift)
    return rounded_ratio(math.isqrt(scaled_ratio), 1, -shift // 2)


def _bits(numerator: int, denominator: int) -> int:
    """Return an exponent e with |numerator / denominator| < 2**e.

    It is the least such e, or greater by one.
    """
    return numerator.bit_length() - denominator.bit_length() + 1


def _central_moments(
    values: Numbers, counts: npt.NDArray[np.int64], n: int, s1: int, base: int
) -> tuple[int, float, float]:
    """Return the fields (`exponent`, `m3`, `m4`) of the `Moments` of finite numbers.

    `values` are ascending, and `counts` says how often each occurs. `n`, `s1` and `base` are fields of the `Moments`.
    """
    if len(values) < 2:
        return _NO_SPREAD, 0.0, 0.0
    offset = 0
    if values.dtype == np.float64:
        # Scale into -1..1, subtract a double near the mean exactly, then subtract the rest of the mean.
        offset = magnitude(values) + 1
        near = rounded_ratio(s1, n, base - offset)
        top, bottom = near.as_integer_ratio()
        up, down = max(base - offset, 0), max(offset - base, 0)
        rest = rounded_ratio(((s1 << up) * bottom) - ((top * n) << down), (n * bottom) << down, 0)
        differences = (scale_by_power_of_two(values, -offset) - near) - rest
    else:
        # Subtracting an integer near the mean is exact, so that differences of large numbers are not rounded.
        pivot = s1 // n
        if int(values[-1]) - int(values[0]) >= 2**63:
            values = values.astype(object)
        typed_pivot = values.dtype.type(pivot) if values.dtype != object else pivot
        wide = (values - typed_pivot).view(np.int64) if values.dtype == np.uint64 else values - typed_pivot
        differences = wide.astype(np.float64) - rounded_ratio(s1 - pivot * n, n, 0)
    local = magnitude(differences)
    differences = scale_by_power_of_two(differences, -local)
    weighted_cubes = differences * differences * differences * counts
    # numpy sums in pairs, which rounds less than a dot product and starts no threads.
    return offset + local, float(weighted_cubes.sum()), float((weighted_cubes * differences).sum())


def _decimal_text(unscaled_value: int, scale: int) -> str:
    digits = str(abs(unscaled_value)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled_value < 0 else text


class MomentStatistics(BuiltinStatistic[Fold[Moments]]):
    """Sum, mean, standard deviation, skewness and kurtosis of numbers."""

    name = "moments"
    version = "1"
    columns = ("sum", "mean", "standard_deviation", "skewness", "kurtosis")
    state_schema = pa.schema([("moments", pa.binary())])

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        return cls.is_numeric

    def initial(self, context: ColumnContext) -> Fold[Moments]:
        return Fold(merge_moments)

    def update(self, state: Fold[Moments], block: ValueBlock) -> Fold[Moments]:
        values = block.without_nan
        if len(values) and values.numbers is not None:
            state.add(moments_of(values.numbers, values.counts))
        return state

    def to_fields(self, state: Fold[Moments], row: ColumnStatistics) -> Mapping[str, Any]:
        return {"moments": encode_moments(state.total() or merge_moments([]))}

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return the merged moments of each column; null if a part has values of the column and no moments."""
        moments = [
            None
            if not states or any(state is None for state in states)
            else encode_moments(merge_moments([decode_moments(cast("bytes", state)) for state in states]))
            for states in parts.states_by_column("moments", parts.typed)
        ]
        return {"moments": pa.array(moments, pa.binary())}

    def finalize(self, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return sum, mean, deviation, skewness and kurtosis; no fields if the row has no moments."""
        if row.moments is None or row.type_class is None:
            return {}
        cls = class_named(row.type_class)
        results = compute_moment_results(decode_moments(row.moments), scale=None if cls.kind == "float" else cls.scale)
        return {**vars(results), "sum": parse_sum(results.sum, row.type_class)}
