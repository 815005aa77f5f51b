"""Definitions of whole databases, and the sensor that detects added and dropped tables."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions, SensorDefinition, build_sensor_context
from dagster._core.definitions.sensor_definition import SensorExecutionData
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets.assets.project import build_metastore_assets, build_metastore_definitions
from metastore_assets.errors import StoreError, TableFormatError
from metastore_assets.resources.configuration import Configuration
from tests.databases.iceberg_lake import Lake

_CONFIG = """
root: ./root
engine: auto
catalogs: {lake: {type: sql, uri: "sqlite:///lake.db", token: "${TOKEN}"}}
tables:
  - {catalog: lake, database: sales, sensor: {interval: 7}, columns: {id: {ranks: on}}}
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A catalog with the tables `orders` and `people` in the database `sales`, and its configuration."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("TOKEN", "not-to-be-told")
    (tmp_path / "metastore.yaml").write_text(_CONFIG)
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'lake.db'}", warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        new_lake = Lake(tmp_path, catalog)
        new_lake.add("orders")
        new_lake.add("people")
        yield new_lake


class _Origin:
    """A model of a code location's origin, which counts the reloads that a sensor requests."""

    def __init__(self) -> None:
        self.reloads = 0

    def create_client(self) -> _Origin:
        return self

    def reload_code(self, timeout: int) -> None:
        assert timeout > 0
        self.reloads += 1


def _loaded(lake: Lake) -> Definitions:
    return build_metastore_definitions(lake.folder / "metastore.yaml")


def _sensor(definitions: Definitions) -> SensorDefinition:
    return definitions.get_repository_def().get_sensor_def("lake_sales_tables")


def _tick(sensor: SensorDefinition, cursor: str | None = None, origin: Any = None) -> SensorExecutionData:
    with DagsterInstance.ephemeral() as instance, build_sensor_context(instance=instance, cursor=cursor) as context:
        context._code_location_origin = origin
        return sensor.evaluate_tick(context)


def test_a_database_has_the_definitions_of_its_tables(lake: Lake) -> None:
    """Each table of a database has assets and a sensor with its name and the settings of the database.

    The database itself has one sensor. No metadata contains the catalog's token.
    """
    definitions = _loaded(lake)
    repository = definitions.get_repository_def()
    assert sorted(sensor.name for sensor in repository.sensor_defs) == [
        "lake_sales_tables",
        "sales_orders_commits",
        "sales_people_commits",
    ]
    assert _sensor(definitions).minimum_interval_seconds == 7
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"sales_orders/sales_orders_source", "sales_orders/sales_orders_ranks"} <= keys
    assert "sales_people/sales_people_statistics" in keys
    text = repr([spec.metadata for spec in definitions.resolve_all_asset_specs()])
    assert "catalog://lake/sales.orders" in text
    assert "not-to-be-told" not in text


def test_no_reload_is_requested_while_the_tables_are_the_same(lake: Lake) -> None:
    origin = _Origin()
    tick = _tick(_sensor(_loaded(lake)), origin=origin)
    assert re.search(r"\b2\b", str(tick.skip_message))
    assert (tick.run_requests, origin.reloads) == ([], 0)


def test_an_added_table_reloads_the_code_location(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a table was added to the database, ticks request one reload of the code location.

    After the reload, the table has definitions.
    """
    monkeypatch.setattr("metastore_assets.sensors.reload._DELAY", 0.0)
    sensor, origin = _sensor(_loaded(lake)), _Origin()
    lake.add("invoices")
    first = _tick(sensor, origin=origin)
    assert re.search(r"\b1\b.*\(invoices\)", str(first.skip_message))
    second = _tick(sensor, first.cursor, origin)
    assert second.skip_message is not None
    assert second.skip_message != first.skip_message
    end = time.monotonic() + 60
    while not origin.reloads and time.monotonic() < end:
        time.sleep(0.01)
    assert origin.reloads == 1
    again = _loaded(lake)
    assert again.get_repository_def().get_sensor_def("sales_invoices_commits")
    assert re.search(r"\b3\b", str(_tick(_sensor(again), first.cursor, origin).skip_message))


def test_a_server_that_cannot_reload_names_one_that_can(lake: Lake) -> None:
    sensor = _sensor(_loaded(lake))
    lake.add("invoices")
    assert "reload the code location" in str(_tick(sensor).skip_message)
    assert "daemon reloads this code location within a minute" in str(_tick(sensor, origin=object()).skip_message)


def test_a_dropped_table_is_readable_and_reported(lake: Lake) -> None:
    """The assets of a dropped table with stored statistics stay, and its sensor reports the drop.

    The assets of a dropped table without stored statistics disappear. The sensor of the database reports both tables.
    """
    Lake(lake.folder, lake.catalog).publish("sales_orders")
    sensor = _sensor(_loaded(lake))
    lake.drop("orders")
    lake.drop("people")
    tick = _tick(sensor)
    assert tick.skip_message is not None
    assert tick.skip_message.startswith("1 table removed (people)")
    assert tick.skip_message.endswith("dropped tables, whose versions remain: orders")
    definitions = _loaded(lake)
    names = {one.name for one in definitions.get_repository_def().sensor_defs}
    assert names == {"lake_sales_tables", "sales_orders_commits"}
    tick_result = _tick(definitions.get_repository_def().get_sensor_def("sales_orders_commits"))
    (evaluation,) = tick_result.asset_events
    assert not evaluation.passed
    assert re.search(r"'lake'.*'sales\.orders'", evaluation.description)


def test_a_catalog_that_does_not_answer_fails_the_tick_and_loads_the_last_listing(lake: Lake) -> None:
    sensor = _sensor(_loaded(lake))
    lake.database.write_text("no database")
    with pytest.raises(TableFormatError, match=r"'lake'.*'sales'"):
        _tick(sensor)
    names = {one.name for one in _loaded(lake).get_repository_def().sensor_defs}
    assert names == {"lake_sales_tables", "sales_orders_commits", "sales_people_commits"}


def test_a_code_location_loads_without_the_variables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an environment variable of the catalog is missing, the database has its sensor, but no tables."""
    monkeypatch.delenv("TOKEN")
    assert [sensor.name for sensor in _loaded(lake).get_repository_def().sensor_defs] == ["lake_sales_tables"]


def test_named_tables_need_no_listing(lake: Lake) -> None:
    configuration = Configuration.of(lake.folder / "metastore.yaml").with_databases()
    definitions = build_metastore_definitions(configuration, tables=["sales_orders"])
    assert [sensor.name for sensor in definitions.get_repository_def().sensor_defs] == ["sales_orders_commits"]
    assert len(build_metastore_assets(configuration)) == 4


def test_a_catalog_that_never_answers_fails_the_tick_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the catalog never answers, a tick fails before Dagster's own timeout.

    The error names the catalog and the database. The next ticks fail in the same way, and their threads do not
    accumulate.
    """
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "0.3")
    monkeypatch.setattr("metastore_assets.resources.configuration.LOAD_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "metastore.yaml").write_text(
            f"{{root: root, catalogs: {{lake: {{type: rest, uri: '{uri}'}}}}, "
            "tables: [{catalog: lake, database: sales}]}"
        )
        sensor = _sensor(build_metastore_definitions(tmp_path / "metastore.yaml"))
        threads = None
        for _ in range(3):
            with pytest.raises(StoreError, match=r"lake\.sales.*\d+ seconds"):
                _tick(sensor)
            threads = threads or threading.active_count()
        assert threading.active_count() <= threads + 1
