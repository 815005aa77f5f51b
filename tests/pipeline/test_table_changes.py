"""Differences that formats report, as changes of a published version."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.pipeline.test_refresh import no_spark


def test_files_that_are_possibly_removed(tmp_path: Path) -> None:
    """One that was only added again is removed; one that the version never had is not missed."""
    folder = tmp_path / "t"
    adds = [add_file(folder, pa.table({"a": [number]}), f"{number}.parquet") for number in range(3)]
    removes = [{"remove": {"path": add["add"]["path"], "dataChange": True}} for add in adds]
    commit(folder, protocol(), metadata([field("a", "long")]), adds[0], adds[1])
    table = TableConfig(name="t", uri=str(folder))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    for number in (1, 2):
        commit(folder, adds[number])
        commit(folder, removes[number])
    plan = plan_refresh(config, table)
    assert plan.to_json()["compared"] is None
    assert [Path(entry.path).name for entry in plan.removed] == ["1.parquet"]
    assert (plan.added, plan.unchanged) == ((), 1)
