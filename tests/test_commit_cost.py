"""The requests and bytes of a commit are bounded, whatever the size of the table. Time is not measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import scale_run, scale_tables
from benchmarks.scale_tables import SyntheticTable

SIZES = (10_000, 100_000)
"""Numbers of files of the tables."""
REQUESTS = 48
"""Maximum number of requests of a commit that adds a file, to a table with deltas of earlier commits."""
REQUESTS_PER_PARTITION = 10
BYTES = 700_000
"""Maximum number of bytes that a commit of a file reads and writes. The document of the version takes 20,000."""
BYTES_PER_PARTITION = 250_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Folders with a Delta table of each of the SIZES and its first version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale_run, "MAX_REFRESHED", min(SIZES))
        patch.setattr(scale_run, "_warm_up", lambda folder, kind: None)
        patch.setattr(scale_tables, "COMMITS", dict(scale_tables.COMMITS))
        folders = {count: tmp_path_factory.mktemp(f"files{count}") for count in SIZES}
        for count, folder in folders.items():
            scale_run.build(folder, "delta", count)
        yield folders


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(places=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True))
def test_a_commit_costs_the_same_in_a_table_of_any_size(folders: dict[int, Path], places: list[int]) -> None:
    """Each example is one more commit, so that the entries have deltas of several commits."""

    def append(table: SyntheticTable) -> None:
        touched = sorted(table.touched)
        table.append([touched[place] for place in places])

    scale_tables.COMMITS["append"] = append  # type: ignore[index]
    for folder in folders.values():
        numbers = scale_run.measure(folder, "append")
        assert numbers["added"] == len(places)
        others = len(places) - 1
        requests = sum(
            numbers[f"{step} {place} requests"] for step in ("plan", "publish") for place in ("root", "table")
        )
        assert requests <= REQUESTS + REQUESTS_PER_PARTITION * others
        transferred = sum(
            numbers[f"{step} {what}"] for step in ("plan", "publish") for what in ("root read", "written")
        )
        assert transferred <= BYTES + BYTES_PER_PARTITION * others
