"""Rows that are sorted in temporary files equal rows that are sorted in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.store import sorted_runs
from metastore_assets.store.sorted_runs import SortedRuns, subtract

KEYS = st.text(st.characters(codec="utf-8"), max_size=3)
ROWS = pa.schema([("key", pa.string()), ("number", pa.int64())])
ONLY_KEYS = pa.schema([("key", pa.string())])


@pytest.fixture(autouse=True, scope="module")
def small_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "_RUN_BYTES", 60)
        patch.setattr(sorted_runs, "_BATCH_ROWS", 2)
        yield


def rows_of(parts: list[list[tuple[str, int]]]) -> Iterator[pa.Table]:
    for part in parts:
        yield pa.table([[key for key, _ in part], [number for _, number in part]], schema=ROWS)


@given(st.lists(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=6), max_size=8))
def test_the_last_row_of_each_key_is_streamed_in_order(parts: list[list[tuple[str, int]]]) -> None:
    with SortedRuns(ROWS) as runs:
        for rows in rows_of(parts):
            runs.add(rows)
        for _ in range(2):
            streamed_rows = [row for rows in runs.stream() for row in rows.to_pylist()]
            expected = dict(pair for part in parts for pair in part)
            assert [(row["key"], row["number"]) for row in streamed_rows] == sorted(
                expected.items(), key=lambda item: item[0].encode()
            )


@given(st.lists(st.lists(KEYS, max_size=6), max_size=6), st.lists(st.lists(st.none() | KEYS, max_size=6), max_size=6))
def test_a_difference_has_the_rows_that_are_not_removed(
    parts: list[list[str]], removed_parts: list[list[str | None]]
) -> None:
    with SortedRuns(ROWS) as rows, SortedRuns(ONLY_KEYS) as keys:
        for table in rows_of([[(key, len(key)) for key in part] for part in parts]):
            rows.add(table)
        for part in removed_parts:
            keys.add_keys(pa.array(part, pa.string()))
        remaining = [key for table in subtract(rows, keys) for key in table["key"].to_pylist()]
    expected = {key for part in parts for key in part} - {key for part in removed_parts for key in part}
    assert remaining == sorted(expected, key=str.encode)


def test_memory_depends_on_the_size_of_a_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "_RUN_BYTES", 20_000)
    monkeypatch.setattr(sorted_runs, "_BATCH_ROWS", 20)

    def peak(count: int) -> tuple[int, int]:
        """Return the peak bytes of Arrow and of Python while `count` rows were sorted and compared."""
        before, most = pa.total_allocated_bytes(), 0
        tracemalloc.start()
        with SortedRuns(ROWS) as rows, SortedRuns(ONLY_KEYS) as removed_keys:
            for start in range(0, count, 1000):
                numbers = [(7919 * number) % count for number in range(start, start + 1000)]
                rows.add(pa.table([[f"key {number:08}" for number in numbers], numbers], schema=ROWS))
                removed_keys.add_keys(pa.array([f"key {number:08}" for number in numbers if number % 10]))
                most = max(most, pa.total_allocated_bytes() - before)
            remaining = 0
            for table in subtract(rows, removed_keys):
                remaining += len(table)
                most = max(most, pa.total_allocated_bytes() - before)
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert remaining == count // 10
        return most, python

    peak(1000)  # Modules are imported.
    small, large = peak(2000), peak(12_000)
    assert large[0] < 2 * small[0], "six times as many rows"
    assert large[1] < 2 * small[1]
