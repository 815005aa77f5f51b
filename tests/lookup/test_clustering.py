"""In how many fragments a value lies is counted one by one, from bounds, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from metastore_assets.config import ResolvedPolicy
from metastore_assets.index import IndexColumn, IndexReader
from metastore_assets.lookup.clustering import ColumnClustering, clustering
from metastore_assets.statistics.profile import profile_field

Fragment = tuple[int, int | None, int | None]
"""Rows, least and greatest value."""


def told(fragments: Sequence[Fragment], distinct: int = 1000) -> ColumnClustering:
    rows, low, high = (list(own) for own in zip(*fragments, strict=True))
    counts = [0 if least is not None else None for least in low]
    arrays = [pa.array(own, pa.int64()) for own in (counts, counts, low, high)]
    column = IndexColumn(*(pa.chunked_array([own]) for own in arrays))
    index = SimpleNamespace(
        fragments=lambda: pa.table({"row_count": pa.array(rows, pa.int64())}), column=lambda field_id, cls: column
    )
    (profile,) = profile_field(pa.field("x", pa.int64()), [pa.array([1, 2])], lambda path: ResolvedPolicy())
    (found,) = clustering(cast("IndexReader", index), [replace(profile.statistics, distinct_count=distinct)])
    return found


FRAGMENTS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 20)).map(
            lambda own: (own[0], min(own[1:]), max(own[1:]))
        ),
        st.tuples(st.integers(0, 3), st.none(), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@given(FRAGMENTS)
def test_depths_are_counted(fragments: list[Any]) -> None:
    known = [own for own in fragments if own[0] and own[1] is not None]
    total = sum(own[0] > 0 for own in fragments)
    found = told(fragments)
    if not known:
        assert (found.depth, found.verdict) == (None, "unknown")
        return

    def depth(value: int) -> int:
        return sum(own[0] > 0 and (own[1] is None or own[1] <= value <= own[2]) for own in fragments)

    weighted = [(rows, depth(value)) for rows, *ends in known for value in ends]
    assert found.deepest == max(own for _, own in weighted)
    wanted = sum(rows * own for rows, own in weighted) / sum(rows for rows, _ in weighted)
    assert found.depth == pytest.approx(wanted)
    assert found.skipped == pytest.approx(1 - wanted / total)


def test_verdicts() -> None:
    ordered = [(10, at * 10, at * 10 + 9) for at in range(100)]
    assert told(ordered).verdict == "clustered"
    assert told(ordered).skipped == pytest.approx(0.99)
    assert told([(10, 0, 1000)] * 100).verdict == "scattered"
    assert told([(10, at // 5 * 50, at // 5 * 50 + 49) for at in range(100)]).verdict == "partly"
    assert told([(10, 0, 9)] * 100, distinct=10).verdict == "scattered"
    assert told([(10, 0, 0)] * 100, distinct=1).verdict == "few values"
    assert told(ordered[:3]).verdict == "unknown"
    # Two values: in order each would be in half of the files, and by their bounds both are in all.
    assert told([(10, 0, 1)] * 10, distinct=2).verdict == "scattered"
    assert told([(10, at // 5, at // 5) for at in range(10)], distinct=2).verdict == "clustered"
