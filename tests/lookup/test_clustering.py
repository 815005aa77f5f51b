"""The number of fragments whose bounds include a value equals a count one by one in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from metastore_assets.config import ResolvedPolicy
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds
from metastore_assets.index import BoundedRows, IndexReader
from metastore_assets.lookup.clustering import ColumnClustering, measure_clustering
from metastore_assets.statistics.profile import profile_field

Fragment = tuple[int, int | None, int | None]
"""The number of rows, and the least and the greatest value."""


def column_clustering(fragments: Sequence[Fragment], distinct: int = 1000) -> ColumnClustering:
    """Return the measured clustering of a column: in how many fragments a value may be.

    Args:
        fragments: The (rows, minimum, maximum) of each fragment, which is a data file.
        distinct: The number of distinct values of the column.
    """
    rows, low, high = (list(column_values) for column_values in zip(*fragments, strict=True))
    counts, zeros = np.array(rows, np.int64), np.zeros(len(rows), np.int64)
    nulls = RowBounds(zeros, np.where([least is None for least in low], counts, 0))
    sides = [pa.array(side, pa.int64()) for side in (low, high)]
    bounds = ColumnBounds(counts, nulls, RowBounds(zeros, zeros), *sides)
    selection = SimpleNamespace(
        bounds=lambda columns: BoundedRows(counts, {column.field_id: bounds for column in columns})
    )
    index = SimpleNamespace(all=selection)
    (profile,) = profile_field(pa.field("x", pa.int64()), [pa.array([1, 2])], lambda path: ResolvedPolicy())
    (result,) = measure_clustering(cast("IndexReader", index), [replace(profile.statistics, distinct_count=distinct)])
    return result


FRAGMENTS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 20)).map(
            lambda item: (item[0], min(item[1:]), max(item[1:]))
        ),
        st.tuples(st.integers(0, 3), st.none(), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@given(FRAGMENTS)
def test_depths_equal_a_count_in_python(fragments: list[Any]) -> None:
    existing = [fragment for fragment in fragments if fragment[0] and fragment[1] is not None]
    total = sum(fragment[0] > 0 for fragment in fragments)
    result = column_clustering(fragments)
    if not existing:
        assert (result.depth, result.verdict) == (None, "unknown")
        return

    def depth(value: int) -> int:
        return sum(
            fragment[0] > 0 and (fragment[1] is None or fragment[1] <= value <= fragment[2]) for fragment in fragments
        )

    weighted_depths = [(rows, depth(value)) for rows, *ends in existing for value in ends]
    assert result.deepest == max(depth_at for _, depth_at in weighted_depths)
    expected_depth = sum(rows * depth_at for rows, depth_at in weighted_depths) / sum(
        rows for rows, _ in weighted_depths
    )
    assert result.depth == pytest.approx(expected_depth)
    assert result.skipped == pytest.approx(1 - expected_depth / total)


def test_verdicts_are_those_of_the_definition() -> None:
    sorted_files = [(10, at * 10, at * 10 + 9) for at in range(100)]
    assert column_clustering(sorted_files).verdict == "clustered"
    assert column_clustering(sorted_files).skipped == pytest.approx(0.99)
    assert column_clustering([(10, 0, 1000)] * 100).verdict == "scattered"
    assert column_clustering([(10, at // 5 * 50, at // 5 * 50 + 49) for at in range(100)]).verdict == "partly"
    assert column_clustering([(10, 0, 9)] * 100, distinct=10).verdict == "scattered"
    assert column_clustering([(10, 0, 0)] * 100, distinct=1).verdict == "few values"
    assert column_clustering(sorted_files[:3]).verdict == "unknown"
    # Two values: if sorted, each is in half of the files. By their bounds, both are in all files.
    assert column_clustering([(10, 0, 1)] * 10, distinct=2).verdict == "scattered"
    assert column_clustering([(10, at // 5, at // 5) for at in range(10)], distinct=2).verdict == "clustered"
