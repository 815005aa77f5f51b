"""Dagster considers nothing outdated after a run, even if definitions are reloaded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance, Definitions
from dagster._core.definitions.data_version import StaleStatus
from dagster._utils.test.data_versions import get_stale_status_resolver

from metastore_assets.assets.project import build_metastore_definitions


def _outdated(instance: DagsterInstance, definitions: Definitions) -> set[str]:
    graph = definitions.resolve_asset_graph()
    resolver = get_stale_status_resolver(instance, graph.assets_defs)
    complete = [key for key in graph.get_all_asset_keys() if key.path[-1] != "t_partitions"]
    return {key.to_user_string() for key in complete if resolver.get_status(key) != StaleStatus.FRESH}


@pytest.mark.parametrize(
    "folder", ["", pytest.param("day=2024-01-01", marks=pytest.mark.long)], ids=["unpartitioned", "partitioned"]
)
def test_nothing_is_outdated_after_a_run(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No asset is outdated after a run, a reload of the definitions, or a run after the next commit."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    file = tmp_path / "metastore.yaml"
    file.write_text("{root: root, engine: auto, tables: [{name: t, uri: t}]}")
    (tmp_path / "t" / folder).mkdir(parents=True)
    with DagsterInstance.ephemeral() as instance:
        definitions = build_metastore_definitions(file)
        for number in range(2):
            pq.write_table(pa.table({"id": [number]}), tmp_path / "t" / folder / f"{number}.parquet")
            if not number:
                definitions = build_metastore_definitions(file)
            assert definitions.resolve_job_def("t_refresh").execute_in_process(instance=instance).success
            assert _outdated(instance, definitions) == set()
            definitions = build_metastore_definitions(file)
            assert _outdated(instance, definitions) == set()
