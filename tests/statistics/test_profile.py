"""A profile of values of any type has the statistics that follow from their definitions.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table. A policy says
which statistics of a column are computed and stored. A column is enumerated if all distinct values are stored with
their frequencies (value counts), and estimated if they are too many for that.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.statistics import profile as profile_module
from metastore_assets.statistics.column import ColumnStatistics, format_sum
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.values.columns import field_columns
from metastore_assets.values.types import class_named
from tests.statistics.oracle import FRACTIONS, Facts, plain, root, rounded, shape
from tests.statistics.random_columns import FINITE, KINDS, TICKS, Kind, profile, profile_one, rows, share


@pytest.mark.parametrize("name", KINDS)
@share(40)
@given(data=st.data())
def test_profile_of_every_type(name: str, data: st.DataObject) -> None:
    """Statistics of each type and encoding equal those computed from definitions in Python.

    The values are in two chunks.
    """
    kind = KINDS[name]
    values = data.draw(rows(kind))
    split_position = data.draw(st.integers(0, len(values)))
    array = kind.array(values)
    result = profile_one([array.slice(0, split_position), array.slice(split_position)])
    expected = Facts([None if value is None else widened(name, value) for value in values])
    row = result.statistics

    assert row.type == ("uuid" if name == "uuid" else str(kind.type))
    assert row.type_class == kind.type_class
    assert (row.value_count, row.null_count) == (expected.value_count, expected.null_count)
    assert row.nan_count == (expected.nan_count if kind.type_class == "float64" else None)
    assert (plain(row.minimum), plain(row.maximum)) == (expected.minimum, expected.maximum)
    assert row.minimum_exact
    assert row.maximum_exact
    assert all(
        bound is None or bound.type == class_named(kind.type_class).arrow for bound in (row.minimum, row.maximum)
    )
    assert (row.distinct_count, row.distinct_count_guarantee) == (expected.distinct_count, "exact")
    assert row.duplicate_count == expected.duplicate_count
    assert row.percentiles is not None
    assert row.percentiles_guarantee == "exact"
    assert [(q, plain(value)) for q, value in row.percentiles] == list(zip(FRACTIONS, expected.percentiles))  # noqa: B905
    assert row.frequencies == "enumerated"
    assert result.frequencies is not None
    assert [plain(value) for value in result.frequencies.values] == expected.ascending
    assert result.frequencies.counts.to_pylist() == [expected.counts[value] for value in expected.ascending]
    assert row.reason is None
    check_lengths(row, kind, values)
    check_moments(row, kind, expected)
    check_histogram(result.histogram, kind, expected)


def widened(name: str, value: Any) -> Any:
    return value * TICKS[name] if name in TICKS else value


def check_lengths(row: ColumnStatistics, kind: Kind, values: list[Any]) -> None:
    """Compare the size and the lengths of a column with those of its values."""
    non_null = [value for value in values if value is not None]
    assert row.true_count == (sum(non_null) if kind.type_class == "boolean" else None)
    if kind.type_class not in ("string", "binary"):
        assert row.total_bytes == len(non_null) * (kind.width or 0)
        assert (row.minimum_length, row.maximum_length, row.mean_length, row.total_length) == (None,) * 4
        return
    lengths = [len(value) for value in non_null]
    assert row.total_bytes == sum(len(value.encode() if isinstance(value, str) else value) for value in non_null)
    assert (row.minimum_length, row.maximum_length) == (min(lengths, default=None), max(lengths, default=None))
    assert row.total_length == sum(lengths)
    assert row.mean_length == (sum(lengths) / len(lengths) if lengths else None)


def check_moments(row: ColumnStatistics, kind: Kind, expected: Facts) -> None:
    """Compare sum, mean, standard deviation, skewness and kurtosis of a column with exact ones."""
    result = (row.sum, row.mean, row.standard_deviation, row.skewness, row.kurtosis)
    n = len(expected.numbers)
    if not kind.numeric or not n:
        assert result == (None,) * 5
        return
    assert row.sum is not None
    assert row.mean is not None
    infinite = [value for value in expected.numbers if isinstance(value, float) and math.isinf(value)]
    if infinite:
        total = sum(infinite)
        assert (repr(row.sum), repr(row.mean)) == (repr(total), repr(total))
        assert result[2:] == (None,) * 3
        return
    if kind.type_class == "float64":
        assert float(row.sum) == rounded(expected.exact_sum)
    else:
        assert Fraction(row.sum) == expected.exact_sum
        digits = (format_sum(row.sum) or "").partition(".")[2]
        assert len(digits) == class_named(kind.type_class).scale
    assert row.mean == rounded(expected.mean)
    assert row.standard_deviation == (
        pytest.approx(root(expected.central(2) / (n - 1)), rel=1e-15, abs=0) if n > 1 else None
    )
    expected_shape = shape(expected)
    if expected_shape is None:
        assert result[3:] == (None, None)
    else:
        assert result[3:] == pytest.approx(expected_shape, rel=1e-9, abs=1e-9 * math.sqrt(n))


def check_histogram(histogram: Any, kind: Kind, expected: Facts) -> None:
    """Assert that numbers, dates and times have a histogram of all finite values within its capacity."""
    line = kind.numeric or kind.type_class.startswith(("date", "time"))
    finite = [v for v in expected.numbers if not (isinstance(v, float) and math.isinf(v))]
    assert (histogram is not None) == bool(line and finite)
    if histogram is not None:
        assert histogram.counts.sum() == len(finite)
        assert len(histogram) <= histogram.capacity == 2048


@given(values=st.lists(FINITE, min_size=1, max_size=60))
def test_sums_of_floats_are_rounded_once(values: list[float]) -> None:
    """Sum and mean of floats are the exact ones, rounded once, even if large terms cancel."""
    expected = Facts(values)
    row = profile_one(pa.array(values, pa.float64())).statistics
    assert row.sum is not None
    assert float(row.sum) == rounded(expected.exact_sum)
    assert row.mean == rounded(expected.mean)


@pytest.mark.parametrize(
    ("values", "skewness"),
    [
        ([1.0, 1.0 + 2**-52], 0.0),
        ([1e300, 2e300, 4e300], 0.381801774160606),
        ([1e-300, 2e-300, 4e-300], 0.381801774160606),
        ([1.7e308, -1.7e308], 0.0),
        ([1e15 + 1, 1e15 + 2, 1e15 + 4], 0.381801774160606),
        ([0.0, 5e-324], 0.0),
    ],
)
def test_skewness_and_deviation_are_correct_for_extreme_magnitudes(values: list[float], skewness: float) -> None:
    """Skewness and standard deviation are correct for extreme magnitudes.

    Powers of the values overflow or underflow, or the mean is far from zero.
    """
    row = profile_one(pa.array(values)).statistics
    assert row.skewness == pytest.approx(skewness, abs=1e-12)
    assert row.standard_deviation == pytest.approx(root(Facts(values).central(2) / (len(values) - 1)), rel=1e-15)


def test_sums_exceed_64_bits_and_38_digits() -> None:
    integers = profile_one(pa.array([2**63 - 1] * 5 + [-(2**63)] * 2, pa.int64())).statistics
    assert integers.sum == 5 * (2**63 - 1) - 2 * 2**63
    unsigned = profile_one(pa.array([2**64 - 1] * 3, pa.uint64())).statistics
    assert unsigned.sum == 3 * (2**64 - 1)
    most = 10**38 - 1
    decimals = pa.array([f"{most}", f"{most}"]).cast(pa.decimal128(38, 0))
    assert profile_one(decimals).statistics.sum == 2 * most


def test_long_and_unusual_text_is_profiled() -> None:
    """Length and size of a text of a megabyte are exact, and its truncated maximum is marked as inexact.

    Characters beyond 16 bits have the order of UTF-8, which differs from that of UTF-16.
    """
    long = "\U0001f600" * 262_144
    values = ["\uffee", "\U00010000", "", long, None]
    row = profile_one(pa.array(values, pa.string_view())).statistics
    assert plain(row.minimum) == ""
    assert row.maximum_exact is False
    assert plain(row.maximum) > "\U0001f600" * 1000
    assert (row.maximum_length, row.total_bytes) == (262_144, 1_048_576 + 3 + 4)
    short = profile_one(pa.array(values[:3])).statistics
    assert plain(short.maximum) == "\U00010000"


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([None, 1], pa.duration("us")), "duration[us]"),
        (pa.array([None, (1, 2, 3)], pa.month_day_nano_interval()), "month_day_nano_interval"),
        (pa.nulls(1, pa.decimal128(5, -2)), "decimal128(5, -2)"),
        (pa.array([None, 1], pa.decimal256(39, 0)), "38 digits"),
        (pa.array([2**62, None], pa.timestamp("s")), "timestamp_ms"),
        (pa.array([b"\xff", None, b"ok"]).view(pa.string()), "UTF-8"),
    ],
)
def test_unprofiled_columns_are_listed_with_a_reason(array: pa.Array, reason: str) -> None:
    """Columns that cannot be profiled have counts, the guarantee `absent`, and the reason."""
    result = profile_one(array)
    row = result.statistics
    assert (row.value_count, row.null_count) == (len(array) - array.null_count, array.null_count)
    assert row.reason is not None
    assert reason in row.reason
    assert (row.type_class, row.distinct_count_guarantee, row.frequencies) == (None, "absent", "absent")
    assert (row.minimum, row.minimum_exact, row.maximum, row.maximum_exact) == (None, False, None, False)
    assert result.frequencies is result.histogram is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_beyond_its_precision_is_absent(sign: int) -> None:
    """128 bits can store more than 38 digits.

    If a damaged file has such a value, the column's statistics are absent.
    """
    for unscaled_value, fits in ((10**38 - 1, True), (10**38, False), (2**127 - 1, False)):
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in (sign * unscaled_value, 5))
        array = pa.Array.from_buffers(pa.decimal128(38, 2), 2, [None, pa.py_buffer(data)])
        row = profile_one(array).statistics
        assert row.value_count == 2
        assert (row.distinct_count == 2) == fits
        assert ("38 digits" in (row.reason or "")) != fits


def test_dates_in_milliseconds_off_midnight_count_as_their_day() -> None:
    """A value of date64 that is no multiple of a day counts as the day in which it lies.

    Arrow's cast refuses it.
    """
    array = pa.array([5, 86_400_000 + 1, -1], pa.int64()).view(pa.date64())
    result = profile_one(array)
    assert result.frequencies is not None
    assert [plain(value) for value in result.frequencies.values] == [-1, 0, 1]


def test_unions_count_their_nulls() -> None:
    """Nulls of a union are those of its children."""
    kinds, offsets = pa.array([0, 1, 1], pa.int8()), pa.array([0, 0, 1], pa.int32())
    union = pa.UnionArray.from_dense(kinds, offsets, [pa.array([1]), pa.array(["x", None])])
    row = profile_one(union).statistics
    assert (row.value_count, row.null_count, row.frequencies) == (2, 1, "absent")


def test_column_of_nulls() -> None:
    """A column of the type null has an exact null count, and no values."""
    result = profile_one(pa.nulls(3))
    row = result.statistics
    assert (row.type_class, row.value_count, row.null_count, row.distinct_count) == ("null", 0, 3, 0)
    assert (row.minimum, row.minimum_exact, row.distinct_count_guarantee) == (None, True, "exact")


def test_policy_off() -> None:
    """Outputs that the policy switches off are not stored.

    Without value counts, the distinct count is an estimate.
    """
    policy = ColumnPolicy(frequencies="off", histogram="off", quantiles="off")
    result = profile_one(pa.array([1, 1, 2]), policy)
    assert result.frequencies is result.histogram is result.statistics.quantile_sketch is None
    row = result.statistics
    assert (row.frequencies, row.distinct_count, row.distinct_count_guarantee) == ("off", 2, "estimate")
    assert (row.duplicate_count, row.percentiles) == (None, None)


def test_policy_auto_lists_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of a column with more distinct values than the limit are estimated.

    With the policy `frequencies: all`, all values are counted nevertheless.
    """
    monkeypatch.setattr(profile_module, "FREQUENCY_LIMIT", 3)
    at, beyond = pa.array([1, 2, 3, 3]), pa.array([1, 2, 3, 4, 4])
    assert profile_one(at).statistics.frequencies == "enumerated"
    result = profile_one(beyond)
    assert result.frequencies is None
    row = result.statistics
    assert (row.frequencies, row.distinct_count, row.distinct_count_guarantee) == ("estimated", 4, "estimate")
    assert (row.duplicate_count, row.percentiles_guarantee) == (None, "estimate")
    assert profile_one(beyond, ColumnPolicy(frequencies="all")).statistics.frequencies == "enumerated"


def _hashes(count: int, distinct: int) -> pa.Array:
    return pa.array([f"{(at % distinct) * 2654435761 % 2**32:08x}" for at in range(count)])


def test_values_that_hardly_repeat_are_neither_listed_nor_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of over 65,536 values, more than half of them distinct, is estimated without sorting.

    Statistics that need no sorted values are equal to those of an enumerated column.
    """
    unique = _hashes(70_000, 70_000)
    exact = profile_one(unique, ColumnPolicy(frequencies="all")).statistics

    def sorting(*_: object) -> None:
        raise AssertionError("sorted")

    monkeypatch.setattr("metastore_assets.statistics.counting.count_values", sorting)
    monkeypatch.setattr("metastore_assets.statistics.counting.count_sorted", sorting)
    result = profile_one(unique)
    row = result.statistics
    assert (row.frequencies, result.frequencies, row.duplicate_count, row.percentiles) == (
        "estimated",
        None,
        None,
        None,
    )
    assert row.distinct_count == pytest.approx(70_000, rel=0.06)
    same = ("minimum", "maximum", "multiset_hash", "distinct_sketch", "mean_length", "total_bytes", "value_count")
    assert [getattr(row, name) for name in same] == [getattr(exact, name) for name in same]


def test_nearly_unique_values_are_enumerated_by_decision_or_if_few() -> None:
    unique = _hashes(70_000, 70_000)
    assert profile_one(unique.slice(0, 65_536)).statistics.frequencies == "enumerated"
    assert profile_one(unique, ColumnPolicy().resolve("enumerated")).statistics.distinct_count == 70_000
    assert profile_one(_hashes(70_000, 30_000)).statistics.distinct_count == 30_000
    # But not more than any table lists.
    many = pa.array(range(200_000))
    assert profile_one(many, ColumnPolicy().resolve("enumerated")).statistics.frequencies == "estimated"


def test_unsorted_statistics_equal_sorted_ones() -> None:
    """An estimated column has the moments, bounds, histogram and hashes of an enumerated one.

    The values of the estimated column are not sorted.
    """
    random_values = np.random.default_rng(1).normal(size=300_000)
    random_values[::1000], random_values[1::1000], random_values[2::1000] = np.nan, np.inf, -0.0
    for array in (pa.array(random_values), pa.array((np.nan_to_num(random_values, posinf=9) * 1e6).astype(np.int64))):
        exact = profile_one(array, ColumnPolicy(frequencies="all"))
        result = profile_one([array.slice(0, 10), array.slice(10)])
        left, right = exact.statistics, result.statistics
        assert (right.frequencies, result.histogram) == ("estimated", exact.histogram)
        same = ("minimum", "maximum", "sum", "mean", "standard_deviation", "nan_count", "multiset_hash")
        assert [getattr(right, name) for name in same] == [getattr(left, name) for name in same]
        ranks = np.sort(array.to_numpy())
        for fraction, value in right.percentiles or ():
            finite = right.value_count - (right.nan_count or 0)
            assert np.searchsorted(ranks, value.as_py()) / finite == pytest.approx(fraction, abs=0.005)


def test_policies_are_requested_by_leaf_path() -> None:
    """The profiler requests the policy of each nested column by its path.

    It applies the policy to that column only.
    """
    array = pa.array([{"a": 1, "b": [1, 2]}])
    requested_paths = []

    def policy(path: str) -> ColumnPolicy:
        requested_paths.append(path)
        return ColumnPolicy(frequencies="off" if path == "s.b.element" else "all")

    result = profile_module.profile_field(pa.field("s", array.type), [array], policy)
    assert requested_paths == ["s", "s.a", "s.b", "s.b.element"]
    assert [each.statistics.frequencies for each in result] == ["absent", "enumerated", "absent", "off"]


@pytest.mark.parametrize("type", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_view(pa.int32())])
def test_lists_have_lengths(type: pa.DataType) -> None:
    """Lengths are those of lists that are not null.

    Only elements of the array's slice are counted.
    """
    array = pa.array([[9], [1, None], None, [], [3, 3, 3]], type).slice(1)
    row, elements = (each.statistics for each in profile(array))
    assert (row.value_count, row.null_count) == (3, 1)
    assert (row.minimum_length, row.maximum_length, row.total_length, row.mean_length) == (0, 3, 5, 5 / 3)
    assert (row.frequencies, row.type_class) == ("absent", None)
    assert (elements.column, elements.value_count, elements.null_count, elements.sum) == ("c.element", 4, 1, 10)


def test_maps_have_lengths() -> None:
    """The length of a map is its number of entries.

    Keys and values have separate statistics. Slices are respected.
    """
    array = pa.array([[("z", 9)], [("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int8())).slice(1)
    row, keys, values = (each.statistics for each in profile([array, array.slice(1, 1)]))
    assert (row.value_count, row.null_count, row.minimum_length, row.maximum_length) == (2, 2, 0, 2)
    assert (keys.column, keys.value_count, plain(keys.maximum)) == ("c.key", 2, "b")
    assert (values.column, values.value_count, values.null_count, values.sum) == ("c.value", 1, 1, 1)


def test_no_rows_at_all() -> None:
    """A column without chunks has the statistics of a column with zero rows."""
    (result,) = profile_module.profile_field(pa.field("c", pa.float64()), [], lambda _: ColumnPolicy())
    row = result.statistics
    assert (row.value_count, row.null_count, row.nan_count, row.distinct_count, row.sum) == (0, 0, 0, 0, None)
    assert (row.minimum, row.minimum_exact, row.percentiles, row.total_bytes) == (None, True, (), 0)


@pytest.mark.parametrize("name", KINDS)
def test_absent_column_is_all_null(name: str) -> None:
    """A column that a file lacks has the statistics of a column with only nulls."""
    type = KINDS[name].type
    (column,) = field_columns(pa.field("c", type))
    nulls = pa.nulls(7, type) if not pa.types.is_run_end_encoded(type) else KINDS[name].array([None] * 7)
    assert profile_all_null(column, 7, ColumnPolicy()) == profile_one(nulls).statistics


def test_absent_list_has_no_elements() -> None:
    """A null list has no elements, not even null ones.

    The fields of a null struct are null.
    """
    type = pa.struct([("x", pa.list_(pa.struct([("y", pa.int8())])))])
    columns = field_columns(pa.field("s", type))
    result = [profile_all_null(column, 7, ColumnPolicy()) for column in columns]
    assert result == [each.statistics for each in profile(pa.nulls(7, type), name="s")]
    assert [row.null_count for row in result] == [7, 7, 0, 0]
