"""Definitions load from the stored state of tables and databases.

The state of a table says whether the table has partitions. The state of a database is the list of its tables. A table
or database without a stored state is read once.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, Definitions, build_sensor_context
from dagster.components.testing import create_defs_folder_sandbox
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets import MetastoreComponent, build_metastore_definitions
from metastore_assets.assets.table_info import TableInfo, load_table_info, store_table_info
from metastore_assets.config import load_config
from metastore_assets.databases import table_listings
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.databases.iceberg_lake import Lake
from tests.sensors.test_databases import _Origin

ROWS = pa.table({"x": [1, 2], "day": ["a", "b"]})


def write_config(folder: Path, tables: str = "[{name: sales, uri: ./sales}]") -> Path:
    file = folder / "metastore.yaml"
    file.write_text(f"root: ./root\nengine: auto\ntables: {tables}\n", encoding="utf-8")
    return file


def has_partitions(definitions: Definitions, table: str = "sales") -> bool:
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    return AssetKey([table, f"{table}_partitions"]) in keys


def test_a_table_is_opened_at_the_first_load_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(tmp_path / "sales", ROWS)
    file = write_config(tmp_path)
    assert not has_partitions(build_metastore_definitions(file))
    shutil.rmtree(tmp_path / "sales")
    monkeypatch.setattr(VersionStore, "latest", lambda self: pytest.fail("a known table was looked up"))
    assert not has_partitions(build_metastore_definitions(file))


def test_a_table_that_could_not_be_read_is_looked_up_again(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    assert has_partitions(build_metastore_definitions(file)), "unknown counts as partitioned"
    write_deltalake(tmp_path / "sales", ROWS)
    assert not has_partitions(build_metastore_definitions(file))


def test_a_database_is_listed_at_the_first_load_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metastore.yaml").write_text(
        "root: ./root\nengine: auto\ncatalogs: {lake: {type: sql, uri: 'sqlite:///lake.db'}}\n"
        "tables: [{catalog: lake, database: sales}]\n"
    )
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'lake.db'}", warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        Lake(tmp_path, catalog).add("orders")
    first = build_metastore_definitions(tmp_path / "metastore.yaml")
    assert not has_partitions(first, "sales_orders")
    monkeypatch.setattr(table_listings, "list_tables", lambda *_: pytest.fail("a known database was listed"))
    again = build_metastore_definitions(tmp_path / "metastore.yaml")
    assert again.resolve_asset_graph().get_all_asset_keys() == first.resolve_asset_graph().get_all_asset_keys()


def test_a_root_that_hangs_delays_a_load_by_the_timeout_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        options = f"{{endpoint: '{endpoint}', allow_http: 'true', access_key_id: a, secret_access_key: b}}"
        file = write_config(tmp_path)
        file.write_text(
            f"root: s3://bucket/root\nstorage_options: {options}\ntables: [{{name: sales, uri: ./sales}}]\n"
        )
        start = time.monotonic()
        assert load_table_info(Configuration.of(file), ["sales"], 0.2) == {}
        assert time.monotonic() - start < 30


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "tables": {"sales": 7}}', "\x00"])
def test_a_damaged_file_is_treated_as_missing(tmp_path: Path, content: str) -> None:
    write_deltalake(tmp_path / "sales", ROWS)
    config = load_config(write_config(tmp_path))
    path = tmp_path / "root" / "_dagster" / "tables.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    stored_info = load_table_info(Configuration.of(tmp_path / "metastore.yaml"), ["sales"])
    assert stored_info == {"sales": TableInfo(None, False)}
    store_table_info(config, {"other": TableInfo("delta", True)})
    assert json.loads(path.read_text())["tables"] == {
        "other": {"format": "delta", "partitioned": True},
        "sales": {"format": None, "partitioned": False},
    }


def test_facts_that_another_process_replaced_are_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(write_config(tmp_path))
    write = ObjectStore.write
    others = [b'{"format": 1, "tables": {"other": {"format": "delta"}}}']

    def write_before_other(store: ObjectStore, path: str, data: bytes, **options: bool) -> None:
        write(store, path, data, **options)
        if others:
            write(store, path, others.pop())

    monkeypatch.setattr(ObjectStore, "write", write_before_other)
    store_table_info(config, {"sales": TableInfo("delta", True)})
    stored_info = json.loads((tmp_path / "root" / "_dagster" / "tables.json").read_text())["tables"]
    assert {name: info["partitioned"] for name, info in stored_info.items()} == {"other": None, "sales": True}


def no_spark() -> Any:
    raise AssertionError("small tables are read without Spark")


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    with DagsterInstance.ephemeral() as new_instance:
        yield new_instance


def test_the_sensor_stores_other_partition_columns_and_reloads(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a tick finds other partition columns than the definitions have, it requests a reload.

    The definitions are loaded before the table exists, so they give it partitions. Then the table is written without
    partitions. The next load uses what the tick stored, and the tick after this load requests no reload.
    """
    monkeypatch.setattr("metastore_assets.sensors.reload._DELAY", 0.0)
    file = write_config(tmp_path)
    definitions = build_metastore_definitions(file)
    assert has_partitions(definitions)
    write_deltalake(tmp_path / "sales", ROWS)
    config = load_config(file)
    refresh(config, config.table("sales"), no_spark)

    def tick(definitions: Definitions) -> int:
        origin, repository = _Origin(), definitions.get_repository_def()
        with build_sensor_context(instance, repository_def=repository) as context:
            context._code_location_origin = origin  # type: ignore[assignment]
            definitions.resolve_sensor_def("sales_commits").evaluate_tick(context)
        for thread in threading.enumerate():
            if "_reload_soon" in thread.name:
                thread.join(60)
        return origin.reloads

    assert tick(definitions) == 1
    monkeypatch.setattr(VersionStore, "latest", lambda self: pytest.fail("a known table was looked up"))
    reloaded_definitions = build_metastore_definitions(file)
    assert not has_partitions(reloaded_definitions)
    monkeypatch.undo()
    assert tick(reloaded_definitions) == 0


@pytest.mark.filterwarnings(
    "ignore:`parse_obj_as`",
    "ignore::dagster_shared.utils.warnings.BetaWarning",
    "ignore:Function `ComponentLoadContext.build_defs_at_path`:DeprecationWarning",
)
def test_a_component_loads_from_its_state(tmp_path: Path) -> None:
    """A component whose state is stored loads without the table and without the root.

    `dg utils refresh-defs-state` stores the state, which says whether the table is partitioned. Without the state, the
    table counts as partitioned.
    """
    write_deltalake(tmp_path / "sales", ROWS)
    with create_defs_folder_sandbox() as sandbox:
        attributes = {"root": str(tmp_path / "root"), "tables": [{"name": "sales", "uri": str(tmp_path / "sales")}]}
        contents = {"type": "metastore_assets.MetastoreComponent", "attributes": attributes}
        path = sandbox.scaffold_component(MetastoreComponent, defs_yaml_contents=contents)
        with sandbox.load_component_and_build_defs(path) as (component, definitions):
            assert isinstance(component, MetastoreComponent)
            assert component.defs_state_config.key == f"MetastoreComponent[{path.name}]"
            asyncio.run(component.refresh_state(sandbox.project_root))
        (state,) = sandbox.project_root.rglob("state")
        assert json.loads(state.read_text()) == {
            "databases": {},
            "tables": {"sales": {"format": None, "partitioned": False}},
        }
        shutil.rmtree(tmp_path / "sales")
        shutil.rmtree(tmp_path / "root")
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            assert not has_partitions(definitions)
        state.unlink()
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            assert has_partitions(definitions), "without the state, the table counts as partitioned"
