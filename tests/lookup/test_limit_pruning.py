"""Pruning with a limit returns the fewest fragments that certainly have enough matching rows.

If no fragments are certain to have enough, the pruning returns all fragments that may have matching rows.

A fragment is a data file together with the deletes that apply to it.
"""

from __future__ import annotations

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from metastore_assets.expressions.row_bounds import RowBounds
from metastore_assets.lookup.pruning import select_fragments_for_limit

SETS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 9)).map(
        lambda bounds: (min(bounds[:2]), max(bounds[:2]), bounds[2])
    ),
    max_size=6,
)


@given(SETS, st.integers(0, 20))
def test_the_fewest_fully_matching_fragments_are_returned(sets: list[tuple[int, int, int]], limit: int) -> None:
    least, most, sizes = (np.array([fragment[at] for fragment in sets], np.int64) for at in range(3))
    result = np.flatnonzero(select_fragments_for_limit(RowBounds(least, most), sizes, limit)).tolist()
    may = [at for at, fragment in enumerate(sets) if fragment[1]]
    every = [combination for count in range(len(may) + 1) for combination in combinations(may, count)]
    sure = [fragment for fragment in every if sum(sets[at][0] for at in fragment) >= limit]
    if not sure:
        assert result == may
        return
    assert sum(sets[at][0] for at in result) >= limit
    assert len(result) == len(min(sure, key=len))
