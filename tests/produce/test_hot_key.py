"""Memory is bounded even if one target key has all rows.

Streams of rows are cut within a key that is too large. A stage maps the rows of source keys to rows of target keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from metastore_assets.produce.order import Order
from metastore_assets.produce.streams import regroup_steps

PROJECT = Path(__file__).parents[2]


@pytest.mark.long
def test_three_million_rows_of_one_key_take_little_memory(tmp_path: Path) -> None:
    """During a build, an update and a compaction, peak memory grows by less than 400 MiB.

    The rows are as expected.

    The rows take 70 MB. A key that is held completely would take several times as much in each step.
    """
    rows = 3_000_000
    command = [sys.executable, "-m", "tests.produce.hot_key_program", str(tmp_path), str(rows), "hot"]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    process = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    *results, peak = [json.loads(line) for line in process.stdout.splitlines()]
    total = rows // 1_000 * 499_500
    # Rows, sum of amounts, distinct ids, and number of `add` rows.
    first, later = [rows, total, 1], [rows, total + 10, 1]
    assert results == [[*first, 1], [*first, 0], [*later, 0], [*later, 0], [*later, 0]]
    assert peak < 400


@given(st.lists(st.integers(0, 4), max_size=30), st.data(), st.integers(1, 6))
@examples(max_examples=100)
def test_pieces_are_cut_where_keys_end(keys: list[int], data: st.DataObject, most: int) -> None:
    """A stream of sorted rows is divided into pieces without loss.

    The rows of a key are in one piece, unless there are more than `most`. The pieces of such a key have no rows of
    other keys.
    """
    rows = [(key, number) for number, key in enumerate(sorted(keys))]
    sides = [data.draw(st.booleans()) for _ in rows]
    steps: list[Any] = []
    start = 0
    while start < len(rows):
        stop = start + data.draw(st.integers(1, 8))
        steps.append([_frame(rows[start:stop], sides[start:stop], side) for side in (False, True)])
        start = stop
    retained_rows: list[list[tuple[int, int]]] = [[], []]
    for piece in regroup_steps(iter(steps), Order.of(["k"]), most):
        here = [frame.rows() for frame in piece.frames]
        row_side = {key for frame in here for key, _ in frame}
        assert row_side
        assert not row_side & {key for frame in retained_rows for key, _ in frame} or (
            piece.split and len(row_side) == 1
        )
        if piece.split:
            (key,) = row_side
            assert sum(other == key for other in keys) > most
        for one, more in zip(retained_rows, here, strict=True):
            one += more
    assert retained_rows == [
        [row for row, row_side in zip(rows, sides, strict=True) if row_side is side] for side in (False, True)
    ]


def _frame(rows: list[tuple[int, int]], sides: list[bool], side: bool) -> pl.DataFrame:
    side_rows = [row for row, row_side in zip(rows, sides, strict=True) if row_side is side]
    table = pa.table(
        {"k": pa.array([k for k, _ in side_rows], pa.int64()), "n": pa.array([n for _, n in side_rows], pa.int64())}
    )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
