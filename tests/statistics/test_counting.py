"""Values are counted correctly by sorting, by dense counting, and by dictionary indices.

Dense counting uses an array with one counter for each integer between the minimum and the maximum.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.blocks import sorted_block, unsorted_block
from metastore_assets.statistics.counting import ValueCounter
from metastore_assets.statistics.frequencies import run_to_frequencies
from metastore_assets.statistics.value_runs import ValueRun, count_dense, count_values
from metastore_assets.values.types import type_class

_NEAR = st.integers(-3, 3)
_INTEGERS = {
    pl.Int64: st.sampled_from([0, -(2**63) + 3, 2**63 - 4, 10**9]),
    pl.UInt64: st.sampled_from([3, 2**63, 2**64 - 4]),
}


@given(data=st.data(), dtype=st.sampled_from(list(_INTEGERS)))
def test_integers_are_counted_in_wide_and_narrow_ranges(data: st.DataObject, dtype: type[pl.DataType]) -> None:
    """Integers are counted correctly and in ascending order in narrow and wide ranges.

    The values are near one or two numbers, so their range is narrow or up to 64 bits wide.
    """
    bases = data.draw(st.lists(_INTEGERS[dtype], min_size=1, max_size=2))
    values = [base + data.draw(_NEAR) for base in data.draw(st.lists(st.sampled_from(bases), max_size=30))]
    run = count_values(pl.Series(values, dtype=dtype))
    assert dict(zip(run.values.to_list(), run.counts.tolist(), strict=True)) == Counter(values)
    assert run.values.to_list() == sorted(set(values))
    assert run.values.dtype == dtype


def test_dense_counting_is_limited_by_the_number_of_values() -> None:
    """`count_dense` returns None if the range of the values is more than twice their number.

    It also returns None for no values, and for floats.
    """
    assert count_dense(pl.Series([0, 3])) is not None
    assert count_dense(pl.Series([0, 4])) is None
    assert count_dense(pl.Series([-(2**63), 2**63 - 1])) is None
    assert count_dense(pl.Series([], dtype=pl.Int64)) is None
    assert count_dense(pl.Series([1.0, 1.0])) is None


_TEXTS = st.sampled_from(["", "a", "b", "é", "a\0", "x" * 200])


@st.composite
def _dictionary(draw: st.DrawFn) -> pa.DictionaryArray:
    """Draw a dictionary array with repeated, null and unused entries."""
    entries = draw(st.lists(st.none() | _TEXTS, min_size=1, max_size=4))
    rows = draw(st.lists(st.none() | st.integers(0, len(entries) - 1), max_size=40))
    type_ = draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.uint64()]))
    start = draw(st.integers(0, 3))
    return pa.DictionaryArray.from_arrays(pa.array(rows, type_), pa.array(entries, pa.string())).slice(start)


@given(
    arrays=st.lists(_dictionary() | st.lists(st.none() | _TEXTS, max_size=9).map(lambda v: pa.array(v, pa.string())))
)
def test_dictionaries_and_plain_arrays_count_alike(arrays: list[pa.Array]) -> None:
    """Values are counted correctly in a column that consists of dictionary arrays and plain arrays.

    Parquet writers change to plain pages when a dictionary grows too large.
    """
    cls = type_class(pa.string())
    counter = ValueCounter(cls)
    for array in arrays:
        counter.add(array)
    blocks = [run_to_frequencies(run, cls) for run in counter.blocks()]
    pairs = [pair for block in blocks for pair in zip(block.values.to_pylist(), block.counts.to_pylist(), strict=True)]
    expected = Counter(value for array in arrays for value in array.to_pylist() if value is not None)
    assert pairs == sorted(expected.items(), key=lambda pair: pair[0].encode())


@given(
    values=st.lists(st.integers(-(10**20), 10**20) | st.integers(-5, 5), min_size=1, max_size=20),
    scale=st.integers(0, 2),
)
def test_an_unsorted_block_has_the_hashes_and_bounds_of_the_sorted_block(values: list[int], scale: int) -> None:
    """An unsorted block has the hashes and bounds of the sorted block of the same values.

    A block is some of a column's values. The values are decimals that fit into one 64-bit word, or that need two.
    """
    cls = type_class(pa.decimal128(38, scale))
    wide = any(not -(2**63) <= value < 2**63 for value in values)
    series = pl.Series(values, dtype=pl.Int128 if wide else pl.Int64)
    block = unsorted_block(ValueRun(series, None), cls)
    expected_block = sorted_block(run_to_frequencies(count_values(series), cls))
    assert [part.tolist() for part in block.hashes] == [part.tolist() for part in expected_block.hashes]
    assert block.min_max() == expected_block.min_max()
    assert [int(end.as_py().scaleb(scale)) for end in block.min_max()] == [min(values), max(values)]


def test_unsorted_floats_have_one_zero_and_separate_nan() -> None:
    values = pl.Series([float("nan"), -0.0, 1.5, 0.0, float("-inf"), float("nan")])
    with_nan = unsorted_block(ValueRun(values, None), type_class(pa.float64()))
    assert with_nan.nan_count == 2
    block = with_nan.without_nan
    assert block.numbers is not None
    assert block.numbers.tolist() == [float("-inf"), 0.0, 1.5]
    assert not np.signbit(block.numbers[1])
    assert block.counts.tolist() == [1, 2, 1]
