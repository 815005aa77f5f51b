"""Assets with a project's own partitions, tested with real runs on small tables without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from dagster import (
    AllPartitionMapping,
    AssetKey,
    AssetRecordsFilter,
    DagsterInstance,
    Definitions,
    Failure,
    MonthlyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionMapping,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    TimeWindowPartitionsDefinition,
    asset,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from deltalake import DeltaTable, write_deltalake

from metastore_assets import (
    MetastoreTranslator,
    TableConfig,
    TablePartitions,
    build_metastore_definitions,
    open_table,
)
from tests.assets.user_project import (
    DAYS,
    PARTITIONS,
    RAW,
    STATISTICS,
    ByDay,
    commit,
    config,
    materialize,
    raw_sales,
    reported_row_counts,
    write,
)


def test_statistics_depend_on_the_asset_that_writes_the_table(tmp_path: Path, instance: DagsterInstance) -> None:
    """Each partition of the statistics depends on the same partition of the asset that writes the table.

    This holds if one run materializes both, after a commit, and for partitions without rows (deleted or never written).
    """
    rows = {"2024-01-01": 3, "2024-01-02": 5}
    definitions = Definitions.merge(
        Definitions(assets=[raw_sales(tmp_path, rows)]),
        build_metastore_definitions(config(tmp_path), translator=ByDay()),
    )
    graph = definitions.resolve_asset_graph()
    assert graph.get(PARTITIONS).parent_keys == {RAW}
    assert graph.get(PARTITIONS).partitions_def == DAYS
    assert not graph.has(AssetKey(["sales", "sales_source"]))

    for day, count in rows.items():
        result = materialize(definitions, instance, RAW, PARTITIONS, partition=day)
        assert reported_row_counts(instance, result, PARTITIONS) == {day: count}
    assert reported_row_counts(instance, result, STATISTICS) == {None: 8}

    # A day that was never written is known to have no rows.
    result = materialize(definitions, instance, RAW, PARTITIONS, partition="2024-01-07")
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-07": 0}

    DeltaTable(tmp_path / "sales").delete("day = '2024-01-01'")
    write(tmp_path, "2024-01-03", 7)
    write(tmp_path, "2025-01-01", 1)
    result = commit(definitions, instance)
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-01": 0, "2024-01-03": 7}, (
        "and no day beyond the definition"
    )
    assert reported_row_counts(instance, result, STATISTICS) == {None: 13}
    assert commit(definitions, instance) is None
    (observation,) = instance.fetch_observations(RAW, limit=1).records
    assert observation.asset_observation is not None
    assert observation.asset_observation.metadata["dagster/row_count"].value == 13

    # Rewritten by hand: the earlier content is reported again on request.
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-02")
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-02": 5}
    assert open_table(str(tmp_path / "metastore"), "sales").version.row_count == 13


def test_statistics_of_the_writers_newest_rows_are_not_outdated(tmp_path: Path, instance: DagsterInstance) -> None:
    """Statistics computed after the writing asset's newest run are fresh.

    They are outdated after another run of that asset, until a commit of the table is reported.
    """
    definitions = Definitions.merge(
        Definitions(assets=[raw_sales(tmp_path, {"2024-01-01": 3})]),
        build_metastore_definitions(config(tmp_path), translator=ByDay()),
    )

    def status() -> StaleStatus:
        graph = definitions.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return resolver.get_status(PARTITIONS, "2024-01-01")

    assert status() == StaleStatus.MISSING
    materialize(definitions, instance, RAW, PARTITIONS, partition="2024-01-01")
    assert status() == StaleStatus.FRESH
    materialize(definitions, instance, RAW, partition="2024-01-01")
    assert status() == StaleStatus.STALE
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {"2024-01-01": 3}
    assert status() == StaleStatus.FRESH


def test_a_mapping_that_fits_no_key_fails_the_run(tmp_path: Path, instance: DagsterInstance) -> None:
    """A run fails if the template that maps partition keys fits no key of the table.

    The error names a key and the type of the partitions definition. The version that the run published stays.
    """

    class MonthlyPartitions(ByDay):
        def get_partitions_def(self, table: TableConfig) -> TablePartitions:
            return TablePartitions(DAYS, "date={:%Y-%m-%d}")

    write(tmp_path, "2024-01-02", 2)
    definitions = build_metastore_definitions(config(tmp_path), translator=MonthlyPartitions())
    with pytest.raises(Failure, match=r"'day=2024-01-02'.*DailyPartitionsDefinition"):
        commit(definitions, instance)
    assert open_table(str(tmp_path / "metastore"), "sales").version.row_count == 2


def test_partitions_of_two_dimensions(tmp_path: Path, instance: DagsterInstance) -> None:
    """Partitions of a table by day and country are partitions of a definition with two dimensions.

    This holds for a commit and for a run of one partition. A partition without rows is reported with 0 rows.
    """
    both = MultiPartitionsDefinition({"day": DAYS, "land": StaticPartitionsDefinition(["FR", "DE"])})

    class ByBoth(MetastoreTranslator):
        def get_partitions_def(self, table: TableConfig) -> TablePartitions:
            return TablePartitions(both)

    days = ["2024-01-01", "2024-01-02", "2024-01-02"]
    rows = pa.table({"land": ["FR", "FR", "DE"], "day": days, "amount": [1, 2, 3]})
    write_deltalake(tmp_path / "sales", rows, partition_by=["land", "day"])
    definitions = build_metastore_definitions(config(tmp_path), translator=ByBoth())
    result = commit(definitions, instance)
    assert reported_row_counts(instance, result, PARTITIONS) == {
        "2024-01-01|FR": 1,
        "2024-01-02|FR": 1,
        "2024-01-02|DE": 1,
    }
    assert instance.get_materialized_partitions(PARTITIONS) == set(reported_row_counts(instance, result, PARTITIONS))
    (event,) = instance.fetch_materializations(
        AssetRecordsFilter(PARTITIONS, asset_partitions=["2024-01-01|FR"]), limit=2
    ).records
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    assert event.asset_materialization.tags["dagster/partition/land"] == "FR"
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-02|DE")
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-02|DE": 1}
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-01|DE")
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-01|DE": 0}


@pytest.mark.parametrize("table_partitions", [None, TablePartitions(DAYS)], ids=["keys of the table", "days"])
@pytest.mark.parametrize(
    "above",
    [None, DAYS, MonthlyPartitionsDefinition("2024-01-01"), StaticPartitionsDefinition(["a", "b"])],
    ids=["none", "days", "months", "names"],
)
def test_the_writing_asset_may_have_other_partitions(
    tmp_path: Path, above: PartitionsDefinition | None, table_partitions: TablePartitions | None
) -> None:
    """The asset that writes the table may have other partitions than the table, or none.

    Dagster or the translator maps the asset's partitions to the table's.
    """

    class ProjectPartitions(ByDay):
        def get_partitions_def(self, table: TableConfig) -> TablePartitions | None:
            return table_partitions

        def get_partition_mapping(self, table: TableConfig) -> PartitionMapping | None:
            return AllPartitionMapping() if isinstance(above, StaticPartitionsDefinition) else None

    @asset(key=RAW, partitions_def=above)
    def sales() -> None: ...

    definitions = Definitions.merge(
        Definitions(assets=[sales]), build_metastore_definitions(config(tmp_path), translator=ProjectPartitions())
    )
    Definitions.validate_loadable(definitions)
    mapping = definitions.resolve_asset_graph().get_partition_mapping(PARTITIONS, RAW)
    by_time = isinstance(above, TimeWindowPartitionsDefinition) and table_partitions is not None
    assert isinstance(mapping, TimeWindowPartitionMapping if by_time else AllPartitionMapping)
