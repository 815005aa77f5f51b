"""Power sums are exact for any magnitudes and counts, and states survive serialisation.

A state is the form of a statistic that can be stored and merged. Here it consists of power sums and central moments.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.moments import (
    Moments,
    compute_moment_results,
    decode_moments,
    encode_moments,
    merge_moments,
    moments_of,
    root,
    rounded_ratio,
)
from metastore_assets.statistics.power_sums import float_power_sums, integer_power_sums
from tests.statistics import oracle
from tests.statistics.random_columns import FINITE, integers

COUNTS = st.one_of(st.integers(1, 5), st.integers(1, 2**40), st.sampled_from([2**31 - 1, 2**31, 2**53 + 1]))


@given(
    pairs=st.dictionaries(st.one_of(integers(64), integers(33), integers(24)), COUNTS, min_size=1, max_size=20),
    small=st.booleans(),
)
def test_sums_of_integers(pairs: dict[int, int], small: bool) -> None:
    """Sums and sums of squares of integers are exact.

    They are computed in 64 bits, in two halves of 32 bits, or as Python integers.
    """
    if small:
        pairs = {value: min(count, 1000) for value, count in pairs.items()}
    values = np.array(sorted(pairs), np.int64)
    counts = np.array([pairs[value] for value in sorted(pairs)], np.int64)
    expected = sum(v * n for v, n in pairs.items()), sum(v * v * n for v, n in pairs.items())
    assert integer_power_sums(values, counts) == expected
    assert integer_power_sums(values.astype(object), counts) == expected


@given(pairs=st.dictionaries(integers(64, signed=False), st.integers(1, 1000), min_size=1, max_size=20))
def test_sums_of_unsigned_integers(pairs: dict[int, int]) -> None:
    """Sums and sums of squares of values up to 2**64 - 1 are exact."""
    values = np.array(sorted(pairs), np.uint64)
    counts = np.array([pairs[value] for value in sorted(pairs)], np.int64)
    expected = sum(v * n for v, n in pairs.items()), sum(v * v * n for v, n in pairs.items())
    assert integer_power_sums(values, counts) == expected


@given(pairs=st.dictionaries(FINITE, COUNTS, min_size=1, max_size=20), small=st.booleans())
def test_sums_of_floats(pairs: dict[float, int], small: bool) -> None:
    """Sums and sums of squares of floats are exact, from the least subnormal to the greatest double."""
    if small:
        pairs = {value: min(count, 1000) for value, count in pairs.items()}
    values = np.array(sorted(pairs))
    counts = np.array([pairs[value] for value in sorted(pairs)], np.int64)
    base, s1, s2 = float_power_sums(values, counts)
    assert Fraction(2) ** base * s1 == sum(Fraction(v) * n for v, n in pairs.items())
    assert Fraction(4) ** base * s2 == sum(Fraction(v) ** 2 * n for v, n in pairs.items())


def test_the_empty_state_is_the_identity_of_merging() -> None:
    nothing = moments_of(np.array([], np.float64), np.array([], np.int64))
    assert merge_moments([]) == nothing
    some = moments_of(np.array([1.0, 2.0]), np.array([1, 1]))
    assert merge_moments([nothing, some, nothing]) == some
    assert set(vars(compute_moment_results(nothing, scale=None)).values()) == {None}
    assert integer_power_sums(np.array([], np.int64), np.array([], np.int64)) == (0, 0)


@given(values=st.lists(FINITE, max_size=8))
def test_states_survive_serialisation(values: list[float]) -> None:
    """A decoded state equals the original, and equal states have equal bytes."""
    array = np.unique(np.array(values))
    state = moments_of(array, np.ones(len(array), np.int64))
    assert decode_moments(encode_moments(state)) == state
    assert encode_moments(decode_moments(encode_moments(state))) == encode_moments(state)


def test_huge_states_survive_serialisation() -> None:
    """A decoded state equals the original if sums have thousands of bits and values include infinities."""
    state = Moments(5, 1, 2, -1126, -(3**2000), 7**2500, -40, -0.5, 1e300)
    assert decode_moments(encode_moments(state)) == state


@given(numerator=st.integers(-(10**40), 10**40), denominator=st.integers(1, 10**40), shift=st.integers(-1200, 1200))
def test_quotients_are_rounded_once(numerator: int, denominator: int, shift: int) -> None:
    """`rounded_ratio` returns the double nearest to numerator / denominator * 2**shift.

    The result is infinite beyond the range of doubles.
    """
    assert rounded_ratio(numerator, denominator, shift) == oracle.rounded(
        Fraction(numerator, denominator) * Fraction(2) ** shift
    )


@given(numerator=st.integers(0, 10**80), denominator=st.integers(1, 10**80))
def test_square_roots_are_within_one_unit_in_the_last_place(numerator: int, denominator: int) -> None:
    assert root(numerator, denominator) == pytest.approx(
        oracle.root(Fraction(numerator, denominator)), rel=3e-16, abs=0
    )


def test_sums_are_formatted_as_decimals() -> None:
    """The text of a sum has `scale` digits after the point, and at least one digit before it.

    It has no exponent.
    """

    def text(unscaled_sum: int, scale: int | None) -> str | None:
        return compute_moment_results(Moments(1, 0, 0, 0, unscaled_sum, unscaled_sum**2, 0, 0.0, 0.0), scale=scale).sum

    assert [text(n, 2) for n in (5, -5, 123, -100, 0)] == ["0.05", "-0.05", "1.23", "-1.00", "0.00"]
    assert text(-(10**45), 0) == "-1" + "0" * 45
    assert text(3, None) == "3.0"


@pytest.mark.parametrize(
    ("below", "above", "total"), [(1, 0, -math.inf), (0, 2, math.inf), (1, 1, math.nan)], ids=["-inf", "inf", "nan"]
)
def test_infinities_follow_ieee(below: int, above: int, total: float) -> None:
    """Sum and mean of values with infinities follow IEEE addition.

    Such values have no standard deviation, skewness or kurtosis.
    """
    facts = compute_moment_results(Moments(3, below, above, 0, 5, 9, 0, 0.0, 0.0), scale=None)
    assert (facts.sum, repr(facts.mean)) == (repr(total), repr(total))
    assert facts.standard_deviation is facts.skewness is facts.kurtosis is None
