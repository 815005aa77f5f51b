"""Reading the value counts of several profiles opens each file once, for any order of the profiles.

A profile is the statistics of a fragment: a data file with its deletes. Several profiles share a file.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.pipeline import engine as engines
from metastore_assets.pipeline.profiles import states_reader
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import deltas
from metastore_assets.pipeline.value_counts.deltas import CountedProfile, read_deltas
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import graph
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.types import type_class
from tests.pipeline.file_lake import Lake, latest
from tests.robustness.refresh_assertions import no_spark


@pytest.mark.parametrize("few", [200_000, 0], ids=["at once", "when they are applied"])
def test_each_file_of_profiles_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(states_reader, "_OPEN_FILES", 1)
    monkeypatch.setattr(deltas, "_FEW_VALUES", few)
    lake = Lake(tmp_path, random.Random(1))
    for number in range(12):
        lake.append(number % 3)
    config = lake.config().model_copy(update={"engine": "auto"})
    refresh(config, lake.table, no_spark)
    version = latest(config)
    fragments = sorted(version.fragments, key=lambda entry: entry.path.rpartition("/")[2])
    profiles = [CountedProfile(entry.files) for entry in fragments]
    paths = [profile.files.states for profile in profiles]
    assert len(set(paths)) == 3
    assert sum(one != other for one, other in pairwise(paths)) > 3
    table_columns = schema_columns(version.schema)
    columns = {
        column.field_id: type_class(column.type).name for column in table_columns if not pa.types.is_nested(column.type)
    }
    opened_paths: list[str] = []
    original = ObjectStore.open_parquet

    def open_parquet(self: ObjectStore, path: str, *arguments: Any, **keywords: Any) -> Any:
        opened_paths.append(path)
        return original(self, path, *arguments, **keywords)

    monkeypatch.setattr(ObjectStore, "open_parquet", open_parquet)
    store = ObjectStore(config.root).child("t")
    by_class = read_deltas(store, profiles, columns, version.row_count, is_removed=False)
    assert by_class
    for parts in by_class.values():
        if not few:
            opened_paths.clear()
        for part in parts:
            assert sum(map(len, part.batches()))
        assert sorted(opened_paths) == sorted(set(paths))


@pytest.mark.parametrize("small_merge", [1_000, 60])
def test_many_small_profiles_are_read_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_merge: int
) -> None:
    """Value counts of 20 removed profiles are read on Spark if `small_merge` is 60, not if it is 1,000.

    `small_merge` limits the number of columns that are read without Spark. Reading a column takes time even if it has
    few values.
    """
    lake = Lake(tmp_path, random.Random(1))
    removed_files = [lake.append(1) for _ in range(20)]
    for _ in range(70):
        lake.append(2)
    config = lake.config().model_copy(update={"engine": "auto"})
    monkeypatch.setattr(engines, "_SMALL_FILES", 100)
    refresh(config, lake.table, no_spark)
    for path in removed_files:
        path.unlink()
    monkeypatch.setattr(engines, "_SMALL_MERGE", small_merge)
    monkeypatch.setattr(graph, "SETTINGS", replace(graph.SETTINGS, small_rows=0))
    if small_merge == 1_000:
        refresh(config, lake.table, no_spark)
        return
    with pytest.raises(AssertionError, match="Spark") as error:
        refresh(config, lake.table, no_spark)
    assert any("value_counts" in str(entry.path) for entry in error.traceback)
