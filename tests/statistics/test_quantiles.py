"""Quantile sketches: merged sketches have small rank errors, and Apache DataSketches reads them."""

from __future__ import annotations

from decimal import Decimal

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.quantiles import (
    COMPRESSION,
    build_quantile_sketch,
    decode_digest,
    estimate_rank,
    estimate_values,
    merge_quantile_sketches,
)
from metastore_assets.values.types import class_named, type_class
from tests.statistics.random_columns import FINITE, merge_statistics, profile_one

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "lognormal": lambda rng, n: rng.lognormal(sigma=3, size=n),
    "uniform": lambda rng, n: rng.random(n) * 1e6,
    "integers": lambda rng, n: rng.integers(0, 5000, n).astype(float),
    "ends": lambda rng, n: rng.choice([-1.7e308, 1.7e308, 1e-300], n) * rng.random(n),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_merged_percentiles_have_small_rank_errors(shape: str) -> None:
    """The rank errors of percentiles of 40 merged parts are below 0.05 % of the rows.

    They are below 1 % if the density of the values changes extremely.
    """
    parts = [SHAPES[shape](np.random.default_rng([seed]), 5_000) for seed in range(40)]
    rows = [profile_one(pa.array(part)).statistics for part in parts]
    at_once = merge_statistics(rows)
    while len(rows) > 1:
        rows = [merge_statistics(rows[at : at + 3]) for at in range(0, len(rows), 3)]
    everything = np.sort(np.concatenate(parts))
    for merged_statistics in (at_once, rows[0]):
        assert merged_statistics.percentiles is not None
        for fraction, value in merged_statistics.percentiles:
            low, high = (np.searchsorted(everything, value.as_py(), side=side) for side in ("left", "right"))
            error = max(low / len(everything) - fraction, fraction - high / len(everything), 0)
            assert error < (0.01 if shape == "ends" else 0.0005), (fraction, error)


@given(values=st.lists(FINITE, min_size=1, max_size=400))
def test_datasketches_reads_digests(values: list[float]) -> None:
    """A quantile sketch is a t-digest that Apache DataSketches reads and merges.

    DataSketches finds the weight, the minimum and the maximum of the values. The means in the bytes ascend.
    """
    array = np.sort(np.array(values)) + 0.0
    sketch = build_quantile_sketch(array, np.ones(len(array), np.int64))
    assert sketch is not None
    digest = datasketches.tdigest_double.deserialize(sketch)
    assert digest.get_total_weight() == len(values)
    assert (digest.get_min_value(), digest.get_max_value()) == (array[0], array[-1])
    means = np.frombuffer(sketch, np.float64, offset=32)[::2]
    assert (np.diff(means) >= 0).all()
    assert len(means) <= COMPRESSION
    other = datasketches.tdigest_double(COMPRESSION)
    other.merge(digest)
    assert other.get_total_weight() == len(values)


def test_datasketches_computes_the_same_ranks() -> None:
    """Ranks that DataSketches computes from a digest of this package err by less than 0.1 % of the rows."""
    values = np.sort(np.random.default_rng([5]).lognormal(size=20_000))
    sketch = build_quantile_sketch(values, np.ones(len(values), np.int64))
    assert sketch is not None
    digest = datasketches.tdigest_double.deserialize(sketch)
    for fraction in (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999):
        assert abs(digest.get_rank(float(values[int(fraction * len(values))])) - fraction) < 0.001


@given(data=st.data())
def test_digests_do_not_depend_on_order_or_repeats(data: st.DataObject) -> None:
    """The digest of values with counts equals the merged digests of the single values.

    Merging does not depend on the order of the digests.
    """
    values = sorted(data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, 1e9, -7.0]), min_size=1, max_size=80)))
    unique, counts = np.unique(np.array(values), return_counts=True)
    sketch = build_quantile_sketch(unique, counts)
    rows = [build_quantile_sketch(np.array([value]), np.array([1])) for value in values]
    shuffled_sketches = data.draw(st.permutations([row for row in rows if row is not None]))
    assert merge_quantile_sketches(shuffled_sketches) == sketch


def test_few_distinct_values_have_exact_weights() -> None:
    """A sketch of 150 distinct values, merged from merged sketches, has the exact weight of each value."""
    rows = [profile_one(pa.array(np.arange(150) + 0.0)).statistics for _ in range(30)]
    merged_statistics = merge_statistics([merge_statistics(rows[:11]), *rows[11:]])
    assert merged_statistics.quantile_sketch is not None
    centroids = np.frombuffer(merged_statistics.quantile_sketch, [("mean", "<f8"), ("weight", "<u8")], offset=32)
    assert centroids["mean"].tolist() == list(range(150))
    assert set(centroids["weight"].tolist()) == {30}


def test_percentiles_have_the_type_of_the_column() -> None:
    """Percentiles are values of the column's type: whole days, whole units of a decimal."""
    days = [pa.array(range(start, start + 900), pa.int32()).view(pa.date32()) for start in (0, 900)]
    merged_statistics = merge_statistics([profile_one(each).statistics for each in days])
    result = dict(merged_statistics.percentiles or ())
    assert result[0.5].type == pa.date32()
    assert abs(result[0.5].value - 900) <= 4
    prices = [pa.array([f"{n}.25" for n in range(s, s + 500)]).cast(pa.decimal128(12, 2)) for s in (0, 500)]
    result = dict(merge_statistics([profile_one(each).statistics for each in prices]).percentiles or ())
    assert result[0.25].type == pa.decimal128(38, 2)
    assert abs(float(result[0.25].as_py()) - 250) < 4


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(0, 3000), st.integers(1, 40))
def test_ranks_have_small_errors_among_frequent_values(counts: list[int], others: int, parts: int) -> None:
    """Estimated percentiles, and an estimated rank, err by at most 2.5 % of the rows plus 2.

    Some values are frequent. The rank is the number of rows below the most frequent value.
    """
    frequent = np.repeat(np.arange(len(counts)) * 7.5, np.array(counts) * 10)
    values = np.concatenate([frequent, np.random.default_rng(others).uniform(-5, 500, others)])
    np.random.default_rng(parts).shuffle(values)
    digests = [
        sketch
        for part in np.array_split(values, parts)
        if (sketch := build_quantile_sketch(*np.unique(part, return_counts=True))) is not None
    ]
    digest = decode_digest(merge_quantile_sketches(digests))
    exact, percents = np.sort(values), np.arange(1, 100) / 100
    ranks = np.maximum(1, np.ceil(percents * len(values))).astype(np.int64)
    bounds = pa.scalar(exact[0]), pa.scalar(exact[-1])
    estimates = [value.as_py() for value in estimate_values(digest, class_named("float64"), (0, 0), bounds, ranks)]
    first, last = np.searchsorted(exact, estimates, "left") + 1, np.searchsorted(exact, estimates, "right")
    error = np.maximum(0, np.maximum(first - ranks, ranks - last)) / len(values)
    assert error.max() <= 0.025 + 2 / len(values)
    value = float(np.argmax(counts) * 7.5)
    begins = np.searchsorted(exact, value, "left")
    assert abs(estimate_rank(digest, (0, 0), value) - begins) <= 0.025 * len(values) + 2


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**63 - 1, 2**63], pa.uint64()),
        pa.array([-(2**53) - 1, 0, 2**53 + 1], pa.int64()),
        pa.array([Decimal("-" + "9" * 38), Decimal("9" * 38)], pa.decimal128(38, 0)),
    ],
)
def test_the_first_and_the_last_percentile_are_bounds_that_no_double_represents(values: pa.Array) -> None:
    sketch = profile_one(values).statistics.quantile_sketch
    cls = type_class(values.type)
    bounds = (pa.scalar(values[0].as_py(), cls.arrow), pa.scalar(values[-1].as_py(), cls.arrow))
    ranks = np.array([1, len(values)])
    estimated_values = estimate_values(decode_digest(sketch), cls, (0, 0), bounds, ranks)
    assert [value.as_py() for value in estimated_values] == [values[0].as_py(), values[-1].as_py()]
