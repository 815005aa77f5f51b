"""Definitions that a code server loads: names, keys and dependencies, and errors.

A root is the folder with all stored state. A version is the published statistics of a table at one snapshot.
"""

import os
import runpy
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetKey, DefaultSensorStatus, Definitions, DynamicPartitionsDefinition, serialize_value
from dagster._core.remote_representation.external_data import RepositorySnap

from metastore_assets.assets import table_info
from metastore_assets.config import CONFIG_VARIABLE, MetastoreConfig
from metastore_assets.errors import ConfigError
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.assets.lab import kind_of
from tests.lookup.publishing import publish

FILES = ("statistics", "frequencies", "histograms")
REPOSITORY = Path(__file__).parents[1]
CONFIG = """
root: ./metastore
tables:
  - {name: sales, uri: ./sales, format: delta, sensor: {interval: 7}}
  - {name: visits-eu, uri: "s3://bucket/visits", storage_options: {secret: hush}}
spark: {spark.some.password: hush}
"""


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = CONFIG) -> Definitions:
    """Return the definitions of a configuration.

    Neither the tables nor the root need exist.
    """
    (folder / "metastore.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(CONFIG_VARIABLE, str(folder / "metastore.yaml"))
    result: Definitions = runpy.run_module("metastore_assets.definitions")["defs"]
    return result


def test_every_table_has_the_same_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table has a source asset, a partition asset, and three assets of files.

    The partition asset depends on the source asset, and the assets of files depend on the partition asset. All have the
    expected keys, groups, kinds and partitions.
    """
    graph = load(tmp_path, monkeypatch).resolve_asset_graph()
    result = {
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
        expected[f"{table}/{table}_source"] = ([], group, [kind], None, True)
        kinds = ["parquet", "spark"]
        expected[f"{table}/{table}_partitions"] = (
            [f"{table}/{table}_source"],
            group,
            kinds,
            f"{table}_partitions",
            False,
        )
        for file in FILES:
            expected[f"{table}/{table}_{file}"] = ([f"{table}/{table}_partitions"], group, kinds, None, False)
    assert result == expected


def keys_of(definitions: Definitions, table: str = "sales") -> dict[str, list[str]]:
    """Return, by the kind of an asset of a table, the kinds of the assets on which it depends.

    The kind of an asset, such as `statistics`, is the last part of its key without the table's name.
    """
    nodes = [node for node in definitions.resolve_asset_graph().asset_nodes if node.key.path[0] == table]
    return {kind_of(node.key): sorted(kind_of(key) for key in node.parent_keys) for node in nodes}


@pytest.mark.parametrize("column", ["default", "price"])
def test_ranks_have_an_asset_where_a_column_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    text = CONFIG.replace("format: delta,", f"format: delta, columns: {{{column}: {{ranks: on}}}},")
    definitions = load(tmp_path, monkeypatch, text)
    assert keys_of(definitions)["ranks"] == ["partitions"]
    assert "ranks" not in keys_of(definitions, "visits-eu")
    assert (
        AssetKey(["sales", "sales_ranks"])
        in definitions.resolve_job_def("sales_refresh").asset_layer.selected_asset_keys
    )


def test_the_newest_version_decides_about_the_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has a partition asset unless its newest version has no partition columns.

    A table whose newest version cannot be read also has a partition asset. The kind of the source asset follows from
    the version's format.
    """
    text = "root: ./metastore\ntables: [{name: sales, uri: ./sales}, {name: flat, uri: ./flat}, {name: odd, uri: ./o}]"
    base = publish(ObjectStore(str(tmp_path / "metastore")), pa.table({"x": [1, 2]})).version
    for name, columns in (("sales", ("day",)), ("flat", ())):
        versions = VersionStore(ObjectStore(str(tmp_path / "metastore")), name)
        versions.publish(
            replace(
                base,
                table=name,
                number=1,
                format="files",
                partition_columns=columns,
                value_counts=None,
                metadata_cache={},
            )
        )
    odd = tmp_path / "metastore" / "odd" / "versions" / "1.json"
    odd.parent.mkdir(parents=True)
    odd.write_text("not JSON")
    definitions = load(tmp_path, monkeypatch, text)
    assert keys_of(definitions, "flat") == {"source": [], **{file: ["source"] for file in FILES}}
    assert "partitions" in keys_of(definitions, "sales")
    assert "partitions" in keys_of(definitions, "odd"), "an unreadable table counts as unknown"
    nodes = {node.key.to_user_string(): node for node in definitions.resolve_asset_graph().asset_nodes}
    assert nodes["flat/flat_source"].kinds == {"file"}
    is_merged = {name: "merged from its partitions" in (node.description or "") for name, node in nodes.items()}
    assert (is_merged["sales/sales_statistics"], is_merged["flat/flat_statistics"]) == (True, False)


@pytest.mark.parametrize(("engine", "kinds"), [("auto", {"parquet"}), ("spark", {"parquet", "spark"})])
def test_spark_is_named_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, kinds: set[str]
) -> None:
    """Assets have the kind `spark` only with `engine: spark`.

    The job's description never names Spark.
    """
    definitions = load(tmp_path, monkeypatch, f"engine: {engine}\n{CONFIG}")
    assert definitions.resolve_asset_graph().get(AssetKey(["sales", "sales_statistics"])).kinds == kinds
    assert "Spark" not in (definitions.resolve_job_def("sales_refresh").description or "")


def test_a_table_may_have_one_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `outputs: table`, a table has one asset for all statistics.

    An unknown value of `outputs` is an error.
    """
    text = CONFIG.replace("format: delta,", "format: delta, outputs: table, columns: {x: {ranks: on}},")
    definitions = load(tmp_path, monkeypatch, text)
    assert keys_of(definitions) == {"source": [], "statistics": ["source"]}
    description = definitions.resolve_asset_graph().get(AssetKey(["sales", "sales_statistics"])).description
    assert (description or "").startswith("Statistics, frequencies and histograms of `sales`, of each partition")
    with pytest.raises(ConfigError, match="'sales': outputs = 'one'"):
        load(tmp_path, monkeypatch, CONFIG.replace("format: delta,", "format: delta, outputs: one,"))


def test_loading_does_not_wait_for_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the root does not answer in time, no information about tables is loaded, and no error is raised.

    Every run loads the code location, so loading must not wait for the root.
    """
    stop = threading.Event()
    monkeypatch.setattr(VersionStore, "latest", lambda self: stop.wait(60))
    start_time = time.monotonic()
    config = MetastoreConfig.model_validate({"root": "r", "tables": [{"name": "a", "uri": "u"}]})
    assert table_info.load_table_info(Configuration.of(config), ["a"], 0.1) == {}
    assert time.monotonic() - start_time < 30
    stop.set()


def test_every_table_has_one_job_and_one_sensor_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sensor has the table's job and interval, and runs without being switched on.

    The job has one step, and selects the assets for statistics, frequencies and histograms.
    """
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
        *(f"sales/sales_{kind}" for kind in ("frequencies", "histograms", "statistics"))
    ]


def test_tables_may_have_names_that_dagster_reserves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may have the name of an argument, a keyword, or another table's job."""
    names = ("context", "class", "type", "a", "a_refresh", "a_profile", "a_commits", "A-b")
    text = f"root: r\ntables: [{', '.join(f'{{name: {name}, uri: u}}' for name in names)}]"
    repository = load(tmp_path, monkeypatch, text).get_repository_def()
    assert len({sensor.name for sensor in repository.sensor_defs}) == len(names)
    assert len(repository.asset_graph.materializable_asset_keys) == 4 * len(names)


def test_a_configuration_may_have_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(load(tmp_path, monkeypatch, "root: r").resolve_asset_graph().asset_nodes) == []


def test_resources_show_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Dagster's UI shows of the definitions does not contain the secret in the configuration."""
    definitions = load(tmp_path, monkeypatch)
    shown_text = repr(definitions) + repr(list(definitions.resolve_asset_graph().assets_defs))
    shown_text += serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
    assert "sales" in shown_text
    assert "hush" not in shown_text


def test_a_missing_or_invalid_configuration_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code location does not load if the configuration is missing or invalid.

    The error names the invalid key and value, or the missing file.
    """
    with pytest.raises(ConfigError, match=r"sensor\.interval = 0\b.*\b1\b"):
        load(tmp_path, monkeypatch, "root: r\ntables: [{name: a, uri: u, sensor: {interval: 0}}]")
    environment = {**os.environ, CONFIG_VARIABLE: str(tmp_path / "missing.yaml"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "metastore_assets.definitions"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert f"no configuration at {tmp_path / 'missing.yaml'}" in process.stdout + process.stderr
