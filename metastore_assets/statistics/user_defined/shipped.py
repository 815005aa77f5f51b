"""User-defined statistics that are ready to use, or to derive classes from.

A configuration names them as `metastore_assets.statistics.user_defined.shipped:Benford`. A *state* is a statistic of a
set of rows in mergeable form.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.statistics.frequencies import Frequencies, count_nan
from metastore_assets.statistics.user_defined.interface import FrequencyStatistic, MergeableStatistic

_DIGITS = 9
_BENFORD = tuple(math.log10(1 + 1 / digit) for digit in range(1, _DIGITS + 1))


class _CaseCounts(MergeableStatistic):
    """Base of statistics whose state is a list of counts, one for each of several cases."""

    state = pa.list_(pa.int64())

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        """Return the sum of the two counts of each case."""
        return [a + b for a, b in zip(one, other, strict=True)]

    def retract(self, total: list[int], part: list[int]) -> list[int]:
        """Return total - part for each case."""
        return [a - b for a, b in zip(total, part, strict=True)]

    def _add_cases(self, state: list[int], cases: pa.Array, counts: pa.Int64Array) -> list[int]:
        """Return `state` with more values counted.

        A case is a position in `state`, such as a first digit minus 1.

        Args:
            state: The number of values of each case so far.
            cases: The case of each value; null for a value that is not counted.
            counts: How often each value occurs.
        """
        has_case = cases.is_valid()
        total = np.array(state, np.int64)
        np.add.at(total, cases.filter(has_case).to_numpy(), counts.filter(has_case).to_numpy())
        return total.tolist()


class Benford(_CaseCounts):
    """The distance of first digits from Benford's law: the mean absolute deviation of nine shares.

    0 means perfect agreement, more than 0.015 no conformity (Nigrini, Benford's Law, 2012). Zero, NaN and infinities
    have no first digit. The result is null if no value has one.
    """

    name = "benford_distance"
    revision = "1"
    types = ("numeric",)
    result = pa.float64()

    def initial(self) -> list[int]:
        return [0] * _DIGITS

    def update(self, state: list[int], values: pa.Array, counts: pa.Int64Array) -> list[int]:
        """Return `state`, the number of values by first digit, with these values added.

        The first digit is the first one that is not 0: that of -0.052 is 5.
        """
        text = pc.utf8_slice_codeunits(pc.utf8_ltrim(values.cast(pa.string()), "-0."), 0, 1)
        cases = pc.index_in(text, pa.array([str(digit) for digit in range(1, _DIGITS + 1)]))
        return self._add_cases(state, cases, counts)

    def finalize(self, state: list[int]) -> float | None:
        """Return how far the shares of the first digits are from Benford's law: the mean absolute difference.

        The result is None if no value has a first digit.
        """
        total = sum(state)
        if not total:
            return None
        return sum(abs(count / total - law) for count, law in zip(state, _BENFORD, strict=True)) / _DIGITS


class StringPatterns(_CaseCounts):
    """The share of each form among a column's strings, by decreasing share.

    Forms are `integer`, `date`, `e-mail`, ….

    The form of a string is the first of `patterns` that matches it.
    """

    name = "string_patterns"
    revision = "1"
    types = ("string",)
    result = pa.list_(pa.struct([("pattern", pa.string()), ("share", pa.float64())]))
    patterns: ClassVar[Mapping[str, str]] = {
        "empty": r"^$",
        "blank": r"^\s+$",
        "integer": r"^[+-]?\d+$",
        "number": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
        "date": r"^\d{4}-\d{2}-\d{2}$",
        "timestamp": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$",
        "uuid": r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        "e-mail": r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
        "url": r"^[a-zA-Z][a-zA-Z0-9+.-]*://\S+$",
        "word": r"^\pL+$",
    }
    """Regular expressions of RE2 by name of the form. A string that matches none of them has the form `other`."""

    def initial(self) -> list[int]:
        return [0] * (len(self.patterns) + 1)

    def update(self, state: list[int], values: pa.Array, counts: pa.Int64Array) -> list[int]:
        """Return `state` with these strings counted.

        A state has a count for each item of `patterns`, and a last one for all other strings.
        """
        fits = [pc.match_substring_regex(values, pattern) for pattern in self.patterns.values()]
        numbers = [pa.scalar(number) for number in range(len(fits) + 1)]
        return self._add_cases(state, pc.case_when(pc.make_struct(*fits), *numbers), counts)

    def finalize(self, state: list[int]) -> list[dict[str, Any]] | None:
        """Return the shares of the patterns that occur, by decreasing share; None without strings."""
        total = sum(state)
        shares = sorted(zip(state, [*self.patterns, "other"], strict=True), key=lambda pair: -pair[0])
        return [{"pattern": name, "share": count / total} for count, name in shares if count] if total else None


class LongestCommonPrefix(MergeableStatistic):
    """The longest text with which all strings of a column begin; null for a column without strings."""

    name = "common_prefix"
    revision = "1"
    types = ("string",)
    state = pa.string()
    result = pa.string()

    def initial(self) -> None:
        """Return None, because there is no longest prefix without strings."""

    def update(self, state: str | None, values: pa.Array, counts: pa.Int64Array) -> str:
        """Return the longest prefix that the state and all values have in common.

        A state of None, which means no strings so far, is ignored. Only the least and the greatest value are compared:
        all values between them begin with their common prefix.
        """
        ends = pc.min_max(values).as_py()
        prefix = _common(ends["min"], ends["max"])
        return prefix if state is None else _common(state, prefix)

    def merge(self, one: str | None, other: str | None) -> str | None:
        """Return the common prefix of both prefixes.

        None, the state of no strings, is ignored.
        """
        return other if one is None else one if other is None else _common(one, other)

    def finalize(self, state: str | None) -> str | None:
        return state


class OutsideFences(FrequencyStatistic):
    """The share of numbers outside Tukey's fences.

    The fences are 1.5 interquartile ranges below the lower quartile and above the upper one. Quartiles are by nearest
    rank, as in `percentiles`. NaN is ignored. The share is null if there are no numbers or a quartile is infinite.
    """

    name = "share_outside_fences"
    revision = "1"
    types = ("numeric",)
    result = pa.float64()

    def compute(self, values: pa.Array, counts: pa.Int64Array) -> float | None:
        """Return the share of numbers outside the fences; None without numbers or with an infinite quartile."""
        if count_nan(Frequencies(values, counts)):
            values, counts = values[:-1], counts[:-1]  # Values are ascending, NaN last.
        # The values up to index i make up the ranks up to ends[i].
        ends = np.cumsum(counts.to_numpy())
        if not len(ends):
            return None
        total = int(ends[-1])
        low, high = (_exact(values[int(np.searchsorted(ends, -(-share * total // 4)))]) for share in (1, 3))
        if math.isinf(low) or math.isinf(high):
            return None
        fence_distance = (high - low) * Fraction(3, 2)
        indices = range(len(values))
        first = bisect_left(indices, low - fence_distance, key=lambda at: _exact(values[at]))
        last = bisect_right(indices, high + fence_distance, key=lambda at: _exact(values[at]))
        inside = int(ends[last - 1]) - (int(ends[first - 1]) if first else 0)
        return (total - inside) / total


def _common(one: str, other: str) -> str:
    end = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:end]


def _exact(value: pa.Scalar) -> Fraction | float:
    number = value.as_py()
    return number if isinstance(number, float) and math.isinf(number) else Fraction(number)
