"""One asset per table (`outputs: table`) has the events of the partitions and those of the table."""

from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, Definitions, DynamicPartitionsDefinition
from dagster._core.definitions.data_version import StaleStatus
from dagster._utils.test.data_versions import get_stale_status_resolver
from deltalake import write_deltalake

from metastore_assets import MetastoreConfig, MetastoreTranslator, TableConfig, build_metastore_definitions
from metastore_assets.assets.reported_state import reported_version
from metastore_assets.assets.translator import names_of
from tests.assets.user_project import (
    DAYS,
    RAW,
    STATISTICS,
    ByDay,
    commit,
    materialize,
    raw_sales,
    reported_row_counts,
    write,
)

SOURCE = AssetKey(["sales", "sales_source"])
FIRST, SECOND, THIRD = "day=2024-01-01", "day=2024-01-02", "day=2024-01-03"


def single(folder: Path) -> MetastoreConfig:
    """Return a configuration of a table with `outputs: table`.

    The column `amount` has `ranks: on` and a check.
    """
    table = TableConfig.model_validate(
        {
            "name": "sales",
            "uri": str(folder / "sales"),
            "outputs": "table",
            "columns": {"amount": {"ranks": "on", "checks": ["not_null"]}},
        }
    )
    return MetastoreConfig(root=str(folder / "metastore"), engine="auto", tables=[table])


def outdated(definitions: Definitions, instance: DagsterInstance, *partitions: str | None) -> list[str | None]:
    resolver = get_stale_status_resolver(instance, definitions.resolve_asset_graph().assets_defs)
    return [key for key in partitions if resolver.get_status(STATISTICS, key) != StaleStatus.FRESH]


def test_one_asset_has_the_partitions_and_the_table(tmp_path: Path, instance: DagsterInstance) -> None:
    """With one asset per table, a run reports each partition on this asset, and then the table.

    The metadata are those that the separate assets would have.
    """
    write(tmp_path, "2024-01-01", 3)
    write(tmp_path, "2024-01-02", 4)
    definitions = build_metastore_definitions(single(tmp_path))
    graph = definitions.resolve_asset_graph()
    assert graph.get_all_asset_keys() == {SOURCE, STATISTICS}
    assert graph.get(SOURCE).is_external
    assert isinstance(graph.get(STATISTICS).partitions_def, DynamicPartitionsDefinition)
    result = commit(definitions, instance)
    assert reported_row_counts(instance, result, STATISTICS) == {FIRST: 3, SECOND: 4, None: 7}
    assert outdated(definitions, instance, FIRST, SECOND) == []
    assert result is not None
    assert {
        evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()
    } == dict.fromkeys(("amount_not_null", "consistent", "current"), True)
    (record,) = instance.fetch_materializations(STATISTICS, limit=1).records
    assert record.asset_materialization is not None
    metadata = {name: value.value for name, value in record.asset_materialization.metadata.items()}
    assert metadata["guarantee"] == "exact"
    assert metadata["frequencies"] == "exact: 2 of 2 columns are enumerated"
    assert metadata["ranks"] == "exact ranks and quantiles: amount"
    assert list(metadata)[:2] == ["summary", "picture"]
    assert str(metadata["picture"]).startswith("![summary of statistics]")


def test_unchanged_partitions_are_not_reported_again(tmp_path: Path, instance: DagsterInstance) -> None:
    """After a reload of the definitions, no run is requested.

    After a commit to one partition, a run reports only this partition and the table.

    A manual run of one partition reports only this partition and the table.
    """
    write(tmp_path, "2024-01-01", 3)
    write(tmp_path, "2024-01-02", 4)
    definitions = build_metastore_definitions(single(tmp_path))
    commit(definitions, instance)
    definitions = build_metastore_definitions(single(tmp_path))
    assert commit(definitions, instance) is None
    write(tmp_path, "2024-01-02", 5)
    assert reported_row_counts(instance, commit(definitions, instance), STATISTICS) == {SECOND: 5, None: 8}
    by_hand = materialize(definitions, instance, STATISTICS, partition=FIRST)
    assert reported_row_counts(instance, by_hand, STATISTICS) == {FIRST: 3, None: 8}
    assert outdated(definitions, instance, FIRST, SECOND) == []
    assert commit(definitions, instance) is None


def test_an_interrupted_report_is_completed(tmp_path: Path, instance: DagsterInstance) -> None:
    """A report that ended before the event of the table is completed by the run of the next commit.

    The test reports only some partitions, as an interrupted run does. The next run reports the new partition and the
    table.
    """
    write(tmp_path, "2024-01-01", 3)
    definitions = build_metastore_definitions(single(tmp_path))
    commit(definitions, instance)
    names = names_of(single(tmp_path).tables[0], MetastoreTranslator())
    last_report = reported_version(instance, names)
    assert last_report is not None
    for number in range(3):
        instance.report_runless_asset_event(
            AssetMaterialization(STATISTICS, partition=f"p{number}", metadata={"version": 9})
        )
    assert reported_version(instance, names) == last_report
    write(tmp_path, "2024-01-02", 4)
    assert reported_row_counts(instance, commit(definitions, instance), STATISTICS) == {SECOND: 4, None: 7}


def test_a_table_without_partitions_has_an_asset_without_any(tmp_path: Path, instance: DagsterInstance) -> None:
    write_deltalake(tmp_path / "sales", pa.table({"amount": [1, 2]}))
    definitions = build_metastore_definitions(single(tmp_path))
    assert definitions.resolve_asset_graph().get(STATISTICS).partitions_def is None
    assert reported_row_counts(instance, commit(definitions, instance), STATISTICS) == {None: 2}
    assert outdated(definitions, instance, None) == []
    assert reported_row_counts(instance, materialize(definitions, instance, STATISTICS), STATISTICS) == {None: 2}


def test_the_asset_depends_on_the_asset_that_writes_the_table(tmp_path: Path, instance: DagsterInstance) -> None:
    """The asset of statistics has the partitions of the asset that writes the table, and depends on it.

    A run of both reports the day and the table.
    """
    definitions = Definitions.merge(
        Definitions(assets=[raw_sales(tmp_path, {"2024-01-01": 3, "2024-01-02": 4})]),
        build_metastore_definitions(single(tmp_path), translator=ByDay()),
    )
    node = definitions.resolve_asset_graph().get(STATISTICS)
    assert (node.parent_keys, node.partitions_def) == ({RAW}, DAYS)
    for day, rows, total in (("2024-01-01", 3, 3), ("2024-01-02", 4, 7)):
        both = materialize(definitions, instance, RAW, STATISTICS, partition=day)
        assert reported_row_counts(instance, both, STATISTICS) == {day: rows, None: total}
    assert outdated(definitions, instance, "2024-01-01", "2024-01-02") == []


@pytest.mark.parametrize("kinds", [("kinds", "table"), ("table", "kinds")])
def test_the_mode_can_be_changed(kinds: tuple[str, str], tmp_path: Path, instance: DagsterInstance) -> None:
    """After a change of `outputs`, the next run reports partition and table on the new mode's assets."""
    write(tmp_path, "2024-01-01", 3)
    config = single(tmp_path)
    for outputs in kinds:
        table = config.tables[0].model_copy(update={"outputs": outputs})
        definitions = build_metastore_definitions(config.model_copy(update={"tables": [table]}))
        result = definitions.resolve_job_def("sales_refresh").execute_in_process(instance=instance)
        partitions = STATISTICS if outputs == "table" else AssetKey(["sales", "sales_partitions"])
        assert reported_row_counts(instance, result, partitions)[FIRST] == 3
        assert reported_row_counts(instance, result, STATISTICS)[None] == 3
