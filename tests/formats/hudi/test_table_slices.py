"""File slices planned partition by partition equal those planned from all files at once.

A file slice is a base file and its log files.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from metastore_assets.formats.hudi.commits import read_commits
from metastore_assets.formats.hudi.slices import GroupFile, parse_data_file_name, plan_group_slices
from metastore_assets.formats.hudi.table_slices import TableSlices
from metastore_assets.formats.hudi.timeline import load_timeline
from metastore_assets.storage.location import Location
from metastore_assets.store import sorted_runs
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.table_writers import Table

_DAYS = ["2024-01-01", "2024-01-02", "a", "a-b", "a/b"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", HUDI_TABLES, ids=lambda kind: kind.__name__)
def test_slices_by_partition_equal_slices_of_all_files(
    kind: type[Table], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slices of a random table, planned partition by partition, equal those planned from all files.

    A filter excludes one partition. Files are sorted in temporary files, and some partition paths are prefixes of
    others.
    """
    monkeypatch.setattr(sorted_runs, "_BATCH_ROWS", 2)
    monkeypatch.setattr(sorted_runs, "_RUN_BYTES", 200)
    draw, table = random.Random(seed), kind(tmp_path / "t")
    for step in range(8):
        if step < 3 or draw.random() < 0.5:
            table.append([(table.next_id + number, "text", day) for number, day in enumerate(draw.sample(_DAYS, 3))])
        elif draw.random() < 0.6:
            table.delete(set(draw.sample(range(table.next_id), 3)))
        else:
            table.compact(draw.choice(_DAYS))
    location = Location.of(str(table.folder))
    timeline = load_timeline(location)
    commits = read_commits(location, timeline.completed)
    files: list[GroupFile] = []
    for stored_file in location.list(descend=lambda path: not path.endswith(".hoodie")):
        folder, _, name = stored_file.path.rpartition("/")
        if name_parts := parse_data_file_name(name):
            files.append(((folder, name_parts.file_id), name_parts, stored_file))
    state = timeline.state(None)
    slices = TableSlices(timeline, state, commits, lambda path: path != "day=a")
    expected = plan_group_slices(timeline, state, commits, files)
    expected_slices = [expected[group] for group in sorted(expected) if group[0] != "day=a"]
    for _ in range(2):
        by_partition = list(slices)
        assert [file_slice for some in by_partition for file_slice in some] == expected_slices
        assert all(len({file_slice.partition for file_slice in some}) == 1 for some in by_partition)
