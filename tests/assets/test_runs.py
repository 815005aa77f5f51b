"""One commit is one run, which publishes one version and reports exactly what changed.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state. A policy
says which statistics and values of a column are stored.
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    ExecuteInProcessResult,
    Failure,
    serialize_value,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from deltalake import write_deltalake

from metastore_assets.assets import run
from metastore_assets.assets.events import store_materializations
from metastore_assets.config import load_config
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.pipeline.refresh import refresh
from tests.assets.lab import KINDS, Lab, all_of, key_of, kind_of, rows
from tests.robustness.crashing_files import negative_lengths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def partitions(instance: DagsterInstance, table: str) -> list[str]:
    return list(instance.get_dynamic_partitions(f"{table}_partitions"))


def stale(lab: Lab, table: str) -> set[str]:
    """Return the assets and partitions that Dagster would show as outdated or missing."""
    graph = lab.definitions().resolve_asset_graph()
    resolver = CachingStaleStatusResolver(lab.instance, graph, LoadingContextForTest(lab.instance))
    by_kind = {}
    for kind in KINDS:
        by_kind[kind] = resolver.get_status(AssetKey([table, f"{table}_{kind}"]))
    for key in partitions(lab.instance, table):
        by_kind[f"partitions/{key}"] = resolver.get_status(AssetKey([table, f"{table}_partitions"]), key)
    return {name for name, status in by_kind.items() if status != StaleStatus.FRESH}


def observed(result: ExecuteInProcessResult) -> list[tuple[Any, Any]]:
    """Return snapshot and row count of each observation of the source table."""
    observations = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type_value == "ASSET_OBSERVATION"
    ]
    return [(each.metadata["snapshot"].value, each.metadata["dagster/row_count"].value) for each in observations]


def test_scattered_changes_of_a_commit_are_one_run(lab: Lab) -> None:
    """The changes of scattered partitions are published by one run, which reports each of them once.

    One partition gets more rows, two are added, one is dropped, and one stays. Then no asset is stale.
    """
    first = lab.refresh("sales")
    assert lab.reported_events(first) == all_of(1, 2, 3)
    assert partitions(lab.instance, "sales") == [key_of(1), key_of(2), key_of(3)]
    assert observed(first) == [("0", 600)]

    lab.append(1, 7, 5, seed=1)
    lab.delete("day = '2024-01-03'")
    result = lab.refresh("sales")

    assert observed(result) == [("2", 1000)]
    assert lab.reported_events(result) == all_of(1, 5, 7)
    assert partitions(lab.instance, "sales") == [key_of(1), key_of(2), key_of(5), key_of(7)]
    assert lab.latest("sales").number == 2
    assert [step.step_key for step in result.get_step_success_events()] == ["sales_profile"]
    assert stale(lab, "sales") == set()
    assert lab.tick("sales").run_requests == []


def test_plain_files_are_refreshed_in_the_same_way(lab: Lab) -> None:
    assert lab.reported_events(lab.refresh("visits-eu")) == all_of(1, 2, 3)
    lab.write_file(2, seed=1)
    assert lab.reported_events(lab.refresh("visits-eu")) == all_of(2)
    assert stale(lab, "visits-eu") == set()


def test_metadata_contains_guarantees(lab: Lab) -> None:
    """Events of the table have row count, schema, file, guarantee, snapshot, duration, and a picture.

    Events of partitions have row count, file, guarantee and a picture, and no schema.
    """
    reported_of = {kind_of(event.asset_key): event for event in lab.events(lab.refresh("sales").run_id)}
    version = lab.latest("sales")
    for asset, event in reported_of.items():
        values = {name: value.value for name, value in event.metadata.items()}
        assert values["version"] == 1
        assert values["guarantee"].startswith("exact")
        assert event.tags is not None
        assert event.tags["dagster/code_version"] == PROFILE_VERSION
        kind = "statistics" if asset == "partitions" else asset
        assert list(values)[:2] == ["summary", "picture"]
        assert values["picture"].startswith(f"![summary of {kind}](data:image/svg+xml;base64,")
        assert values["summary"].startswith(f"![{kind}](<data:image/svg+xml,")
        assert len(values["summary"]) < 1000
        if asset == "partitions":
            assert values["dagster/partition_row_count"] == 200
            assert "dagster/column_schema" not in values  # Dagster would show it as the table's.
            assert list(values)[-1] == "files", "a path in an object store takes two lines"
            assert Path(values["files"]).is_relative_to(lab.folder)
            assert Path(values["files"]).is_file()
            continue
        assert values["snapshot"] == version.snapshot == "0"
        assert values["duration_seconds"] > 0
        assert values["dagster/row_count"] == 600
        assert values["dagster/uri"].startswith(str(lab.folder))
        assert values["dagster/uri"].endswith(".parquet" if asset == "frequencies" else f".{asset}.parquet")
        names = [column.name for column in values["dagster/column_schema"].columns]
        assert names == (["id", "price", "at"] if asset == "histograms" else version.schema.names)
    table = reported_of["statistics"]
    assert table.tags is not None
    assert table.tags["dagster/data_version"] == version.content_id
    descriptions = {c.name: c.description for c in table.metadata["dagster/column_schema"].value.columns}
    assert descriptions["shop"] == "5 distinct · no nulls · length 0 to 6 · '' to Zürich"


def test_manually_selected_partitions_are_read_again_and_published(lab: Lab) -> None:
    """A run of one partition, or of a range, publishes one version and reports no other partition."""
    lab.refresh("sales")
    assert lab.reported_events(lab.by_hand("sales", "partitions", first=key_of(2), last=key_of(3))) == all_of(2, 3)
    assert lab.reported_events(lab.by_hand("sales", "partitions", first=key_of(1))) == all_of(1)
    assert lab.reported_events(lab.by_hand("sales", "partitions", first=key_of(3))) == all_of(3)
    assert lab.latest("sales").number == 4
    assert stale(lab, "sales") == set()


def test_a_manual_run_before_the_first_sensor_tick(lab: Lab) -> None:
    """Materializing the table's assets reports everything, partitions included."""
    assert lab.reported_events(lab.by_hand("sales", *KINDS)) == all_of(1, 2, 3)
    assert lab.tick("sales").run_requests == []


def test_a_manual_run_of_one_kind_reports_other_changed_kinds(lab: Lab) -> None:
    """A manual run of only the histograms publishes a complete version, and reports all that changed.

    A second run, after no commit, reports only the histograms and publishes no version.
    """
    lab.by_hand("sales", *KINDS)
    lab.append(2, seed=1)
    result = lab.by_hand("sales", "histograms")
    assert lab.reported_events(result) == all_of(2)
    assert {output.step_output_data.output_name for output in result.all_events if output.is_successful_output} == {
        "sales__sales_histograms"
    }
    # Nothing changed: only the selected assets are reported; the snapshot was observed already.
    again = lab.by_hand("sales", "histograms")
    assert lab.reported_events(again) == {("histograms", None)}
    assert observed(again) == []
    assert lab.latest("sales").number == 2


def test_a_removed_partition_is_reported(lab: Lab) -> None:
    """A manual run of a range with a removed partition succeeds for the other partitions.

    A run of the removed partition alone fails and names it.
    """
    lab.by_hand("sales", *KINDS)
    lab.delete("day = '2024-01-02'")
    with pytest.raises(Failure, match=r"'sales'.*'day=2024-01-02'"):
        lab.by_hand("sales", "partitions", first=key_of(2))
    assert lab.reported_events(lab.by_hand("sales", "partitions", first=key_of(1), last=key_of(3))) == all_of(1, 3)
    assert partitions(lab.instance, "sales") == [key_of(1), key_of(3)]


def test_a_version_published_elsewhere_is_reported_by_the_next_run(lab: Lab, spark: "SparkSession") -> None:
    """If a version was published without Dagster, the sensor requests a run.

    The run reports this version and publishes no other.
    """
    lab.refresh("sales")
    lab.append(3, 4, seed=1)
    config = load_config(lab.config_file)
    refresh(config, config.table("sales"), lambda: spark)
    tick = lab.tick("sales")
    (request,) = tick.run_requests or []
    assert lab.reported_events(lab.run("sales", request)) == all_of(3, 4)
    assert lab.latest("sales").number == 2
    assert lab.tick("sales", tick.cursor).run_requests == []


def test_a_failed_run_is_retried_on_the_next_tick(lab: Lab) -> None:
    """After a failed run, the next tick requests another one with another run key, which succeeds.

    A data file is missing only during the first attempt. The sensor's cursor has the number of the attempt.
    """
    file = next((lab.folder / "sales").rglob("*.parquet"))
    hidden_file = file.rename(file.with_suffix(".hidden"))
    first = lab.tick("sales")
    (request,) = first.run_requests or []
    result = lab.run("sales", request, raise_on_error=False)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert failure.step_failure_data.user_failure_data is not None
    assert file.name in str(failure.step_failure_data.user_failure_data.description)
    assert lab.reported_events(result) == set()

    second = lab.tick("sales", first.cursor)
    (again,) = second.run_requests or []
    assert again.run_key != request.run_key
    assert (again.run_key or "").endswith(":2")
    hidden_file.rename(file)
    assert lab.reported_events(lab.run("sales", again)) == all_of(1, 2, 3)
    assert lab.tick("sales", second.cursor).run_requests == []


@pytest.mark.long
def test_a_file_that_crashes_its_reader_fails_the_run_with_its_name(lab: Lab) -> None:
    with lab.config_file.open("a") as file:
        file.write("  - {name: maps, uri: ./maps, sensor: {interval: 5}}\n")
    folder = lab.folder / "maps"
    folder.mkdir()
    maps = pa.array([[(7, 1)]] * 20, pa.map_(pa.int32(), pa.int32()))
    orc.write_table(pa.table({"id": pa.array(range(20), pa.int64()), "m": maps}), folder / "good.orc")
    (folder / "killer.orc").write_bytes(negative_lengths())
    (request,) = lab.tick("maps").run_requests or []
    result = lab.run("maps", request, raise_on_error=False)
    (failure,) = result.get_step_failure_events()
    assert failure.step_failure_data.user_failure_data is not None
    reason = f"reading {folder}/killer.orc (column 'm') ended the process that read it (signal 11"
    assert reason in str(failure.step_failure_data.user_failure_data.description)
    (folder / "killer.orc").unlink()
    assert lab.refresh("maps").success


def test_the_report_of_a_killed_run_is_completed(lab: Lab) -> None:
    """A run completes the report of a version whose own run was killed during the report.

    Here, the event of the table's statistics is missing. The new run reports the assets of the table, and publishes no
    version.
    """
    lab.refresh("sales")
    lab.instance.wipe_assets([AssetKey(["sales", "sales_statistics"])])
    assert lab.reported_events(lab.refresh("sales")) == all_of()
    assert lab.latest("sales").number == 1


def test_an_interrupted_report_continues(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run continues the report of a run that was interrupted after two of four partitions.

    It reports the other two and the table, and publishes no version.
    """

    def dying(context: AssetExecutionContext, events: Iterable[AssetMaterialization]) -> None:
        store_materializations(context, islice(events, 2))
        raise KeyboardInterrupt

    lab.append(4)
    (request,) = lab.tick("sales").run_requests or []
    with monkeypatch.context() as patch:
        patch.setattr(run, "store_materializations", dying)
        with pytest.raises(KeyboardInterrupt):
            lab.run("sales", request)
    assert lab.reported_events(lab.refresh("sales")) == all_of(3, 4)
    assert lab.latest("sales").number == 1


def test_the_public_method_stores_the_same_events(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Dagster's fast, private functions for storing events, a run reports the same partitions."""
    monkeypatch.setattr("metastore_assets.assets.events.HAS_EVENT_LOG", False)
    lab.append(4)
    assert lab.reported_events(lab.refresh("sales")) == all_of(1, 2, 3, 4)
    assert stale(lab, "sales") == set()


def test_the_job_takes_partitions(lab: Lab) -> None:
    """The configuration of the refresh job selects partitions by keys and patterns.

    A run reports the selected partitions. A pattern that matches none is an error. A manual run in the UI could not
    select several separate partitions.
    """
    lab.refresh("sales")

    def take(*partitions: str) -> ExecuteInProcessResult:
        config = {"ops": {"sales_profile": {"config": {"partitions": list(partitions)}}}}
        job = lab.definitions().resolve_job_def("sales_refresh")
        return job.execute_in_process(instance=lab.instance, run_config=config)

    assert lab.reported_events(take(key_of(1), "day=*-03")) == all_of(1, 3)
    assert lab.latest("sales").number == 2
    with pytest.raises(Failure, match=r"'day=2024-02-\*'.*'day=2024-01-01'"):
        take("day=2024-02-*")


def test_a_table_without_partitions_has_only_table_level_events(lab: Lab) -> None:
    """A table without partitions has no asset for partitions, and its runs report only the table.

    The events include one for ranks, because a column has `ranks: on`.
    """
    with lab.config_file.open("a") as file:
        file.write("  - {name: flat, uri: ./flat, columns: {shop: {ranks: on}}}\n")
    write_deltalake(str(lab.folder / "flat"), rows(1, 100))
    result = lab.refresh("flat")
    assert lab.reported_events(result) == {("ranks", None), *((kind, None) for kind in KINDS)}
    assert partitions(lab.instance, "flat") == []
    ranks = next(event for event in lab.events(result.run_id) if kind_of(event.asset_key) == "ranks")
    assert ranks.metadata["guarantee"].value == "exact ranks and quantiles: shop"
    assert str(ranks.metadata["dagster/uri"].value).startswith(str(lab.folder))
    graph = lab.definitions().resolve_asset_graph()
    assert not graph.has(AssetKey(["flat", "flat_partitions"]))
    assert graph.get(AssetKey(["flat", "flat_source"])).kinds == {"delta"}
    write_deltalake(str(lab.folder / "flat"), rows(2, 100), mode="append")
    assert lab.reported_events(lab.refresh("flat")) == {("ranks", None), *((kind, None) for kind in KINDS)}
    assert stale(lab, "flat") == set()


def test_a_replaced_root_is_reported_completely(lab: Lab) -> None:
    """After the root was moved away, the next run reports all partitions and the table.

    The numbers of versions start over.
    """
    lab.refresh("sales")
    lab.append(1, seed=1)
    lab.refresh("sales")
    (lab.folder / "metastore").rename(lab.folder / "old")
    assert lab.reported_events(lab.refresh("sales")) == all_of(1, 2, 3)


def test_a_recreated_table_is_observed_again(lab: Lab) -> None:
    """After a Delta table was recreated, the next run observes its snapshot 0 and reports all partitions.

    The recreated table counts its snapshots from 0 again.
    """
    lab.refresh("sales")
    rmtree(lab.folder / "sales")
    lab.append(2, 9, seed=1)
    result = lab.refresh("sales")
    assert lab.reported_events(result) == all_of(2, 9)
    assert observed(result) == [("0", 400)]
    assert partitions(lab.instance, "sales") == [key_of(2), key_of(9)]


def test_a_corrected_policy_needs_no_commit(lab: Lab) -> None:
    """After a change of a column's policy, a run recomputes and reports everything without a new commit."""
    lab.refresh("sales")
    text = lab.config_file.read_text(encoding="utf-8")
    lab.config_file.write_text(
        text.replace("uri: ./sales,", "uri: ./sales, columns: {note: {frequencies: off}},"), encoding="utf-8"
    )
    result = lab.refresh("sales")
    assert lab.reported_events(result) == all_of(1, 2, 3)
    guarantees = {
        event.metadata["guarantee"].value
        for event in lab.events(result.run_id)
        if kind_of(event.asset_key) == "frequencies"
    }
    assert guarantees == {"exact: 6 of 7 columns are enumerated; off: note"}


def test_events_stay_small(lab: Lab) -> None:
    """Each event is below 50 KB, even for a table of 150 columns with long names and values."""
    wide = {
        f"column_{'n' * 60}_{i}": [f"{'ü' * 3000}{k}" for k in range(3)] if i % 2 else [k * 10**9 for k in range(3)]
        for i in range(150)
    }
    write_deltalake(
        str(lab.folder / "sales"),
        pa.table({**wide, "day": ["2024-01-01"] * 3}),
        mode="overwrite",
        schema_mode="overwrite",
    )
    result = lab.refresh("sales")
    events = [entry.dagster_event for entry in lab.instance.all_logs(result.run_id) if entry.dagster_event]
    event_types = {"ASSET_OBSERVATION", "ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION"}
    sizes = [len(serialize_value(e)) for e in events if e.event_type_value in event_types]
    assert len(sizes) == 7
    assert max(sizes) < 50_000
