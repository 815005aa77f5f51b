"""What a code server loads: names, keys and dependencies, and what it says when it cannot."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DefaultSensorStatus, Definitions, DynamicPartitionsDefinition

from metastore_assets.config import CONFIG_VARIABLE
from metastore_assets.errors import ConfigError

REPOSITORY = Path(__file__).parents[1]
CONFIG = """
root: ./metastore
tables:
  - {name: sales, uri: ./sales, format: delta, sensor: {interval: 7}}
  - {name: visits-eu, uri: "s3://bucket/visits", storage_options: {secret: hush}}
spark: {spark.some.password: hush}
"""


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = CONFIG) -> Definitions:
    """The definitions of a configuration. Needs neither the tables nor the root to be there."""
    (folder / "metastore.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(CONFIG_VARIABLE, str(folder / "metastore.yaml"))
    found: Definitions = runpy.run_module("metastore_assets.definitions")["defs"]
    return found


def test_every_table_has_the_same_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, what they depend on, their group, kinds, and partitions."""
    graph = load(tmp_path, monkeypatch).resolve_asset_graph()
    found = {
        node.key.to_user_string(): (
            sorted(key.to_user_string() for key in node.parent_keys),
            node.group_name,
            sorted(node.kinds),
            node.partitions_def.name if isinstance(node.partitions_def, DynamicPartitionsDefinition) else None,
            node.is_external,
        )
        for node in graph.asset_nodes
    }
    expected: dict[str, object] = {}
    for table, group, kind in (("sales", "sales", "delta"), ("visits-eu", "visits_eu", "table")):
        expected[f"{table}/source"] = ([], group, [kind], None, True)
        for file in ("statistics", "frequencies", "histograms"):
            made = ["parquet", "spark"]
            expected[f"{table}/partition/{file}"] = ([f"{table}/source"], group, made, f"{table}_partitions", False)
            expected[f"{table}/table/{file}"] = ([f"{table}/partition/{file}"], group, made, None, False)
    assert found == expected


def test_every_table_has_one_job_and_one_sensor_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody switching anything on."""
    repository = load(tmp_path, monkeypatch).get_repository_def()
    sensors = {sensor.name: sensor for sensor in repository.sensor_defs}
    assert {name: (s.job.name, s.minimum_interval_seconds) for name, s in sensors.items()} == {
        "sales_commits": ("sales_refresh", 7),
        "visits_eu_commits": ("visits_eu_refresh", 30),
    }
    assert {sensor.default_status for sensor in sensors.values()} == {DefaultSensorStatus.RUNNING}
    job = repository.get_job("sales_refresh")
    assert [node.name for node in job.nodes] == ["sales_profile"]
    assert sorted(key.to_user_string() for key in job.asset_layer.selected_asset_keys) == [
        *(f"sales/table/{kind}" for kind in ("frequencies", "histograms", "statistics"))
    ]


def test_names_that_dagster_reserves_are_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may be called as an argument, a keyword, or another table's job."""
    names = ("context", "class", "type", "a", "a_refresh", "a_profile", "a_commits", "A-b")
    text = f"root: r\ntables: [{', '.join(f'{{name: {name}, uri: u}}' for name in names)}]"
    repository = load(tmp_path, monkeypatch, text).get_repository_def()
    assert len({sensor.name for sensor in repository.sensor_defs}) == len(names)
    assert len(repository.asset_graph.materializable_asset_keys) == 6 * len(names)


def test_no_tables_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(load(tmp_path, monkeypatch, "root: r").resolve_asset_graph().asset_nodes) == []


def test_resources_show_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster shows the configuration of resources and assets to everyone who can open its pages."""
    definitions = load(tmp_path, monkeypatch)
    shown = repr(definitions.resources) + repr(list(definitions.resolve_asset_graph().assets_defs))
    assert "metastore.yaml" in shown
    assert "hush" not in shown


def test_a_configuration_that_is_not_there_or_wrong_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code location does not load, and the message is the one that the command line gives."""
    with pytest.raises(ConfigError, match=r"table '.*': sensor\.interval = 0.*1 or more"):
        load(tmp_path, monkeypatch, "root: r\ntables: [{name: a, uri: u, sensor: {interval: 0}}]")
    environment = {**os.environ, CONFIG_VARIABLE: str(tmp_path / "missing.yaml"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "metastore_assets.definitions"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"no configuration at {tmp_path / 'missing.yaml'}" in done.stdout + done.stderr
