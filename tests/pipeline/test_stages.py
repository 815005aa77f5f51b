"""The stages of a dry run are those that a refresh executes.

This holds even if values decide what the stages do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import StoreError
from metastore_assets.pipeline import auto_policies
from metastore_assets.pipeline.execution import _EXECUTORS
from metastore_assets.pipeline.plan import Plan, RefreshRequest
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.stages import (
    MergePartitions,
    PlanStage,
    ProfileFragments,
    ResolveAutoPolicies,
    SkipRewrites,
    stages_to_json,
    stages_to_text,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore, versions_of
from tests.pipeline.file_lake import Lake, latest
from tests.robustness.refresh_assertions import no_spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    for partition in (0, 0, 1):
        lake.append(partition)
    return lake


def config_of(lake: Lake) -> MetastoreConfig:
    return lake.config().model_copy(update={"engine": "auto"})


def refresh_as_planned(config: MetastoreConfig, full: bool = False) -> Plan:
    """Refresh, and assert that its stages equal those of a dry run just before.

    Returns the plan of the dry run.
    """
    table = config.tables[0]
    plan = plan_refresh(config, table, request=RefreshRequest(full=full))
    result = refresh(config, table, no_spark, request=RefreshRequest(full=full))
    assert stages_to_json(result.stages) == plan.to_json()["stages"]
    assert plan.to_json()["fragments"] == result.to_json()["fragments"]
    assert stages_to_text(stages_to_json(result.stages)) == stages_to_text(stages_to_json(plan.stages))
    (merging,) = (stage for stage in plan.stages if isinstance(stage, MergePartitions))
    if not merging.changed_by:
        assert result.partitions_changed == merging.partitions
    return plan


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


def test_a_refresh_executes_the_stages_of_the_dry_run(lake: Lake) -> None:
    config = config_of(lake)
    first = refresh_as_planned(config)
    assert names(first)[0] == "profile_fragments"
    assert names(first)[-6:] == [
        "merge_partitions", "merge_table", "update_value_counts", "compact_segments", "write_indexes", "publish",
    ]  # fmt: skip
    lake.append(1)
    second = refresh_as_planned(config)
    (reading,) = (stage for stage in second.stages if isinstance(stage, ProfileFragments))
    assert (reading.fragments, reading.reused) == (1, 3)
    assert len(refresh_as_planned(config, full=True).to_profile) == 4


def test_a_table_that_is_up_to_date_has_no_stages(lake: Lake) -> None:
    config = config_of(lake)
    first_result = refresh(config, config.tables[0], no_spark)
    plan = plan_refresh(config, config.tables[0])
    result = refresh(config, config.tables[0], no_spark)
    assert plan.stages == result.stages == ()
    assert plan.to_json()["fragments"] == result.to_json()["fragments"]
    assert plan.to_json()["partitions"] == result.to_json()["partitions"] == {"changed": 0, "removed": 0, "total": 2}
    assert (result.published, result.version, result.refresh_stats) == (False, first_result.version, None)


@pytest.mark.parametrize("has_new_file", [False, True])
def test_a_retry_executes_the_stages_of_a_dry_run_after_the_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, has_new_file: bool
) -> None:
    """If another refresh publishes first, a refresh plans again, as a dry run does at that moment.

    With `has_new_file`, a file is added before the second plan, and the retry reads only this file.
    """
    config = config_of(lake)
    refresh(config, config.tables[0], no_spark)
    lake.append(0)
    publish = VersionStore.publish
    plans: list[Plan] = []

    def after_rival(self: VersionStore, *arguments: Any, **options: Any) -> None:
        if not plans:
            monkeypatch.setattr(VersionStore, "publish", publish)
            assert refresh(config, config.tables[0], no_spark).version == 2
            if has_new_file:
                lake.append(1)
            plans.append(plan_refresh(config, config.tables[0]))
        publish(self, *arguments, **options)

    monkeypatch.setattr(VersionStore, "publish", after_rival)
    result = refresh(config, config.tables[0], no_spark)
    assert stages_to_json(result.stages) == plans[0].to_json()["stages"]
    assert [stage.fragments for stage in result.stages if isinstance(stage, ProfileFragments)] == [1] * has_new_file
    assert result.version == 2 + has_new_file


def test_auto_policies_are_marked_and_resolved_by_the_marked_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run lists the columns whose `auto` policies depend on values yet to be read.

    The dry run says that these values may change which partitions are merged.
    """
    monkeypatch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", 2000)
    lake = Lake(tmp_path)
    config = config_of(lake)
    for number in range(12):
        folder = lake.uri / f"part={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        texts = [f"text {value * 7919 % 100_003:06}" for value in range(number * 200, (number + 1) * 200)]
        pq.write_table(pa.table({"text": texts, "few": np.arange(200) % 10}), folder / f"{number}.parquet")
        if number in (5, 7):
            plan = refresh_as_planned(config)
    plan = refresh_as_planned(config)
    (resolving,) = (stage for stage in plan.stages if isinstance(stage, ResolveAutoPolicies))
    assert {"text", "few"} <= set(resolving.columns)
    assert "distinct values" in resolving.rule
    (merging,) = (stage for stage in plan.stages if isinstance(stage, MergePartitions))
    assert merging.changed_by == ("resolve_auto_policies",)
    assert merging.summary() == "2 partitions ('part=0', 'part=1') of 2"
    assert (
        replace(merging, total=3).summary()
        == "2 partitions ('part=0', 'part=1') of 3; resolve auto policies may add some"
    )
    states = {decision.frequencies for decision in latest(config).decisions.values()}
    assert states == {"estimated"}


def test_a_rewrite_is_marked_and_skipped(lake: Lake) -> None:
    """The files of a partition are replaced by one with the same rows.

    The dry run marks the partition as a possible rewrite. The refresh merges nothing.
    """
    config = config_of(lake)
    refresh_as_planned(config)
    paths = sorted((lake.uri / "part=0").glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    for path in paths:
        path.unlink()
    pq.write_table(table, lake.uri / "part=0" / "compacted.parquet")
    plan = plan_refresh(config, config.tables[0])
    (merging,) = (stage for stage in plan.stages if isinstance(stage, MergePartitions))
    assert merging.summary().endswith("; resolve auto policies may add some, skip rewrites may remove some")
    (skipping,) = (stage for stage in plan.stages if isinstance(stage, SkipRewrites))
    assert skipping.partitions == plan.changed_partitions == ("part=0",)
    result = refresh(config, config.tables[0], no_spark)
    assert stages_to_json(result.stages) == plan.to_json()["stages"]
    assert result.partitions_changed == ()


def test_a_refresh_succeeds_once_the_version_is_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh succeeds even if removing saved profiles after publication fails.

    The profiles were saved for another attempt. The next refresh removes them.
    """
    write, config = ObjectStore.write, config_of(lake)

    def refuse_markers(self: ObjectStore, path: str, data: bytes, **options: bool) -> None:
        if path.endswith(".cleared"):
            raise StoreError(f"cannot write {path}")
        write(self, path, data, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "write", refuse_markers)
        assert refresh(config, config.tables[0], no_spark).version == 1
    lake.append(1)
    assert refresh(config, config.tables[0], no_spark).fragments_profiled == 1
    assert not versions_of(config, "t").pending(), "the second refresh has cleared all"


def test_an_interruption_is_reported_even_if_nothing_can_be_saved(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    def refuse(*arguments: object) -> None:
        raise StoreError("no space left")

    config = config_of(lake)
    monkeypatch.setitem(_EXECUTORS, ProfileFragments, interrupt)  # type: ignore[misc]
    monkeypatch.setattr(VersionStore, "save_pending", refuse)
    with pytest.raises(KeyboardInterrupt):
        refresh(config, config.tables[0], no_spark)


def test_each_stage_has_one_executor_and_a_rendering() -> None:
    stages = set(PlanStage.__subclasses__())
    assert set(_EXECUTORS) == stages
    assert len({stage.name for stage in stages}) == len(stages)
    (line,) = stages_to_text(stages_to_json([SkipRewrites(("a=1",))]), with_rules=True)
    assert line.startswith("1. skip rewrites: 1 partition ('a=1') (partitions whose")
