"""The table of differences between two versions, which describes a commit in Dagster.

The value counts of a column are its distinct values with the frequency of each.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.assets.commit import commit_metadata
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.value_counts import graph
from tests.pipeline.test_fingerprints import RUNS, Lake
from tests.robustness.refresh_assertions import versions


def test_a_compaction_changes_no_value_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata of a version that only compacts value counts report no change of them.

    Version 2 changes value counts, and version 3 compacts them.
    """
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    lake = Lake(tmp_path, {"frequencies": "all"})
    for codes in ("aabbccdd", "e"):
        nulls = {"number": pa.nulls(len(codes), pa.float64()), "parts": pa.nulls(len(codes), pa.list_(pa.int64()))}
        lake.put(pa.table({"code": list(codes), **nulls}))
        lake.refresh()
    store = versions(lake.config)
    assert compact(store, lake.config.tables[0]).published
    table = Metastore(lake.config.root).table("t")
    changes = []
    for number in (2, 3):
        metadata = commit_metadata(store.objects, store.read(number - 1), table.at(number), [])
        rows = {record.data["what"]: record.data["change"] for record in metadata["changes"].value.records}  # type: ignore[union-attr]
        changes.append(rows["value counts"])
    assert changes == ["1 added, 1 changed", "none"]
