"""Definitions whose sensors are stopped or absent, and automation conditions as their replacement."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import (
    AssetKey,
    AssetSpec,
    AutomationCondition,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    evaluate_automation_conditions,
)

from metastore_assets import MetastoreAsset, MetastoreTranslator
from metastore_assets.assets.project import build_commit_sensor, build_metastore_definitions
from metastore_assets.errors import ConfigError
from tests.assets.user_project import ByDay, config, materialize, raw_sales, reported_row_counts

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
RUNNING, STOPPED = DefaultSensorStatus.RUNNING, DefaultSensorStatus.STOPPED


def written(folder: Path, **settings: Any) -> Path:
    tables = [
        {"name": "a", "uri": "a", "format": "delta"},
        {"name": "b", "uri": "b", "format": "delta", "sensor": {"status": "running"}},
        {"name": "c", "uri": "c", "format": "delta", "sensor": {"status": "${C_SENSOR:-absent}"}},
    ]
    file = folder / "metastore.yaml"
    file.write_text(yaml.safe_dump({"root": "m", "engine": "auto", "tables": tables, **settings}), encoding="utf-8")
    return file


def statuses(definitions: Definitions) -> dict[str, DefaultSensorStatus]:
    repository = definitions.get_repository_def()
    assert {f"{name}_refresh" for name in "abc"} <= {job.name for job in repository.get_all_jobs()}, "always"
    return {sensor.name.removesuffix("_commits"): sensor.default_status for sensor in repository.sensor_defs}


def test_the_configuration_sets_the_status_of_sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting of a table for its sensor overrides that of the file, and an argument overrides both.

    The setting is `running`, `stopped` or `absent`. Other values are errors.
    """
    file = written(tmp_path)
    assert statuses(build_metastore_definitions(file)) == {"a": RUNNING, "b": RUNNING}
    assert statuses(build_metastore_definitions(file, sensors="stopped")) == dict.fromkeys("abc", STOPPED)
    assert statuses(build_metastore_definitions(file, sensors="absent")) == {}
    monkeypatch.setenv("C_SENSOR", "stopped")
    file = written(tmp_path, sensors="stopped")
    assert statuses(build_metastore_definitions(file)) == {"a": STOPPED, "b": RUNNING, "c": STOPPED}
    assert build_commit_sensor("a", file).default_status == STOPPED
    assert build_commit_sensor("a", file, default_status=RUNNING).default_status == RUNNING
    assert statuses(build_metastore_definitions(written(tmp_path, sensors="absent"))) == {"b": RUNNING, "c": STOPPED}
    with pytest.raises(ConfigError, match=r"sensors = 'off'.*'running'.*'stopped'.*'absent'"):
        build_metastore_definitions(file, sensors="off")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sensors = 'of+'.*'running'.*'stopped'.*'absent'"):
        build_metastore_definitions(written(tmp_path, sensors="off"))


class EveryTenMinutes(MetastoreTranslator):
    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        spec = super().get_asset_spec(asset)
        if asset.kind != "statistics":
            return spec
        condition = AutomationCondition.cron_tick_passed("*/10 * * * *") & ~AutomationCondition.in_progress()
        return spec.replace_attributes(automation_condition=condition)


class OnWriterUpdates(ByDay):
    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        spec = super().get_asset_spec(asset)
        eager = AutomationCondition.eager().without(AutomationCondition.in_latest_time_window())
        return spec.replace_attributes(automation_condition=eager) if asset.kind == "partitions" else spec


def test_a_scheduled_automation_condition(tmp_path: Path) -> None:
    """The example in docs/how-to/dagster.md works: the statistics are requested every ten minutes."""
    definitions = build_metastore_definitions(written(tmp_path), translator=EveryTenMinutes(), sensors="absent")
    start = datetime(2024, 1, 1, 12, 1)
    with DagsterInstance.ephemeral() as instance:
        first = evaluate_automation_conditions(definitions, instance, evaluation_time=start)
        assert first.total_requested == 0
        for minutes, requested_count in ((5, 0), (10, 3), (12, 0), (21, 3)):
            first = evaluate_automation_conditions(
                definitions, instance, evaluation_time=start + timedelta(minutes=minutes), cursor=first.cursor
            )
            assert first.total_requested == requested_count, minutes


def test_an_automation_condition_on_updates_of_the_writer(tmp_path: Path) -> None:
    """The example in docs/how-to/dagster.md works.

    An update of a partition of the writing asset requests the same partition of the statistics, and the run reports it.
    """
    rows = {"2024-01-02": 3, "2024-01-05": 4}
    writer = raw_sales(tmp_path, rows)
    with DagsterInstance.ephemeral() as instance:
        alone = Definitions(assets=[writer])
        materialize(alone, instance, writer.key, partition="2024-01-02")
        definitions = build_metastore_definitions(config(tmp_path), translator=OnWriterUpdates(), sensors="absent")
        merged_definitions = Definitions.merge(alone, definitions)
        partitions = AssetKey(["sales", "sales_partitions"])
        result = evaluate_automation_conditions(merged_definitions, instance)
        materialize(merged_definitions, instance, writer.key, partition="2024-01-05")
        result = evaluate_automation_conditions(merged_definitions, instance, cursor=result.cursor)
        assert result.get_requested_partitions(partitions) == {"2024-01-05"}
        done = materialize(merged_definitions, instance, partitions, partition="2024-01-05")
        assert reported_row_counts(instance, done, partitions)["2024-01-05"] == 4
        result = evaluate_automation_conditions(merged_definitions, instance, cursor=result.cursor)
        assert result.total_requested == 0
