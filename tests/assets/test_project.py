"""The public functions in somebody's own project: real tables, real runs, without Spark, for the tables are small."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import (
    AllPartitionMapping,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    AssetsDefinition,
    AutomationCondition,
    DagsterInstance,
    DailyPartitionsDefinition,
    DefaultSensorStatus,
    Definitions,
    EnvVar,
    ExecuteInProcessResult,
    MaterializeResult,
    MonthlyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionMapping,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TableSchema,
    TimeWindowPartitionMapping,
    TimeWindowPartitionsDefinition,
    asset,
    build_sensor_context,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from deltalake import DeltaTable, write_deltalake

from metastore_assets import (
    MetastoreAsset,
    MetastoreConfig,
    MetastoreTranslator,
    TableConfig,
    TablePartitions,
    build_commit_sensor,
    build_metastore_assets,
    build_metastore_definitions,
    fetch_column_statistics,
    load_config,
    open_table,
)
from metastore_assets.assets.secrets import telling_no_secrets
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import remember_secret

DAYS = DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
RAW = AssetKey(["raw", "sales"])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    (tmp_path / "home").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "home")) as made:
        yield made


def config(folder: Path, root: str = "metastore") -> MetastoreConfig:
    table = TableConfig(name="sales", uri=str(folder / "sales"))
    return MetastoreConfig(root=str(folder / root), engine="auto", tables=[table])


def write(folder: Path, day: str, rows: int, part: str = "day") -> None:
    """The rows of one day, in place of what there was of it."""
    days = pa.array([date.fromisoformat(day)] * rows, pa.date32())
    table = pa.table({part: days, "amount": list(range(rows))})
    write_deltalake(folder / "sales", table, mode="overwrite", partition_by=[part], predicate=f"{part} = '{day}'")


def raw_sales(folder: Path, rows: Mapping[str, int]) -> AssetsDefinition:
    """The asset of a project that writes the table, a day at a time; of days without rows nothing."""

    @asset(key=RAW, partitions_def=DAYS)
    def sales(context: AssetExecutionContext) -> MaterializeResult:  # type: ignore[type-arg]
        if rows.get(context.partition_key):
            write(folder, context.partition_key, rows[context.partition_key])
        return MaterializeResult()

    return sales


class ByDay(MetastoreTranslator):
    """The table's partitions are those of the asset that writes it."""

    def get_upstream(self, table: TableConfig) -> AssetKey:
        return RAW

    def get_partitions(self, table: TableConfig) -> TablePartitions:
        return TablePartitions(DAYS)


def materialize(
    definitions: Definitions, instance: DagsterInstance, *keys: AssetKey, partition: str | None = None
) -> ExecuteInProcessResult:
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=set(keys))
    return job.execute_in_process(instance=instance, partition_key=partition)


def commit(definitions: Definitions, instance: DagsterInstance, name: str = "sales") -> ExecuteInProcessResult | None:
    """What the daemon does after a commit: a tick, and the run that it asks for."""
    with build_sensor_context(instance, sensor_name=f"{name}_commits", definitions=definitions) as context:
        tick = definitions.resolve_sensor_def(f"{name}_commits").evaluate_tick(context)
    requests = tick.run_requests or []
    if not requests:
        return None
    job = definitions.resolve_job_def(f"{name}_refresh")
    return job.execute_in_process(instance=instance, tags=dict(requests[0].tags))


def told(instance: DagsterInstance, result: ExecuteInProcessResult | None, key: AssetKey) -> dict[str | None, int]:
    """Rows by partition that a run told of an asset; the table's are those of None."""
    assert result is not None
    events = [entry.dagster_event for entry in instance.all_logs(result.run_id) if entry.dagster_event]
    found = [event.step_materialization_data.materialization for event in events if event.is_step_materialization]
    return {event.partition: rows_of(event) for event in found if event.asset_key == key}


def rows_of(event: AssetMaterialization) -> int:
    name = "dagster/row_count" if event.partition is None else "dagster/partition_row_count"
    value = event.metadata[name].value
    assert isinstance(value, int)
    return value


PARTITIONS, STATISTICS = AssetKey(["sales", "partitions"]), AssetKey(["sales", "statistics"])


def test_statistics_hang_below_the_asset_that_writes_the_table(tmp_path: Path, instance: DagsterInstance) -> None:
    """Partition by partition: in the run of the writer, after a commit, and when rows are gone or were never there."""
    rows = {"2024-01-01": 3, "2024-01-02": 5}
    definitions = Definitions.merge(
        Definitions(assets=[raw_sales(tmp_path, rows)]),
        build_metastore_definitions(config(tmp_path), translator=ByDay()),
    )
    graph = definitions.resolve_asset_graph()
    assert graph.get(PARTITIONS).parent_keys == {RAW}
    assert graph.get(PARTITIONS).partitions_def == DAYS
    assert not graph.has(AssetKey(["sales", "source"]))

    for day, count in rows.items():
        result = materialize(definitions, instance, RAW, PARTITIONS, partition=day)
        assert told(instance, result, PARTITIONS) == {day: count}
    assert told(instance, result, STATISTICS) == {None: 8}

    # Of a day that was never written it is known that it has no rows.
    result = materialize(definitions, instance, RAW, PARTITIONS, partition="2024-01-07")
    assert told(instance, result, PARTITIONS) == {"2024-01-07": 0}

    DeltaTable(tmp_path / "sales").delete("day = '2024-01-01'")
    write(tmp_path, "2024-01-03", 7)
    write(tmp_path, "2025-01-01", 1)
    result = commit(definitions, instance)
    assert told(instance, result, PARTITIONS) == {"2024-01-01": 0, "2024-01-03": 7}, "and no day beyond the definition"
    assert told(instance, result, STATISTICS) == {None: 13}
    assert commit(definitions, instance) is None
    (seen,) = instance.fetch_observations(RAW, limit=1).records
    assert seen.asset_observation is not None
    assert seen.asset_observation.metadata["dagster/row_count"].value == 13

    # Written again by hand: what it was before is told again when it is asked for.
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-02")
    assert told(instance, result, PARTITIONS) == {"2024-01-02": 5}
    assert open_table(str(tmp_path / "metastore"), "sales").version.row_count == 13


def test_what_was_made_of_the_writers_newest_rows_is_not_outdated(tmp_path: Path, instance: DagsterInstance) -> None:
    """And what was not, is."""
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
    assert told(instance, commit(definitions, instance), PARTITIONS) == {"2024-01-01": 3}
    assert status() == StaleStatus.FRESH


def test_a_key_that_no_partition_has_is_said(tmp_path: Path, instance: DagsterInstance) -> None:
    """The run fails with the table's keys and what to do, and the statistics stay published."""

    class Wrong(ByDay):
        def get_partitions(self, table: TableConfig) -> TablePartitions:
            return TablePartitions(DAYS, "date={:%Y-%m-%d}")

    write(tmp_path, "2024-01-02", 2)
    definitions = build_metastore_definitions(config(tmp_path), translator=Wrong())
    with pytest.raises(Exception, match="none of the table's 1 partitions is one of DailyPartitionsDefinition"):
        commit(definitions, instance)
    assert open_table(str(tmp_path / "metastore"), "sales").version.row_count == 2


def test_of_two_dimensions(tmp_path: Path, instance: DagsterInstance) -> None:
    """A partition of the table is one of a day and a country; Dagster knows it by both."""
    both = MultiPartitionsDefinition({"day": DAYS, "land": StaticPartitionsDefinition(["FR", "DE"])})

    class ByBoth(MetastoreTranslator):
        def get_partitions(self, table: TableConfig) -> TablePartitions:
            return TablePartitions(both)

    days = ["2024-01-01", "2024-01-02", "2024-01-02"]
    rows = pa.table({"land": ["FR", "FR", "DE"], "day": days, "amount": [1, 2, 3]})
    write_deltalake(tmp_path / "sales", rows, partition_by=["land", "day"])
    definitions = build_metastore_definitions(config(tmp_path), translator=ByBoth())
    result = commit(definitions, instance)
    assert told(instance, result, PARTITIONS) == {"2024-01-01|FR": 1, "2024-01-02|FR": 1, "2024-01-02|DE": 1}
    assert instance.get_materialized_partitions(PARTITIONS) == set(told(instance, result, PARTITIONS))
    (event,) = instance.fetch_materializations(
        AssetRecordsFilter(PARTITIONS, asset_partitions=["2024-01-01|FR"]), limit=2
    ).records
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    assert event.asset_materialization.tags["dagster/partition/land"] == "FR"
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-02|DE")
    assert told(instance, result, PARTITIONS) == {"2024-01-02|DE": 1}
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-01|DE")
    assert told(instance, result, PARTITIONS) == {"2024-01-01|DE": 0}


class House(MetastoreTranslator):
    """What a project says of all its assets."""

    def get_group_name(self, asset: MetastoreAsset) -> str:
        return "quality"

    def get_owners(self, asset: MetastoreAsset) -> list[str]:
        return ["team:lake"] if asset.kind != "source" else []

    def get_tags(self, asset: MetastoreAsset) -> dict[str, str]:
        return {"domain": asset.table.name}

    def get_kinds(self, asset: MetastoreAsset) -> set[str]:
        return {*super().get_kinds(asset), asset.format or "unknown"}

    def get_automation_condition(self, asset: MetastoreAsset) -> AutomationCondition | None:  # type: ignore[type-arg]
        return AutomationCondition.eager() if asset.kind == "statistics" else None

    def get_description(self, asset: MetastoreAsset) -> str:
        return f"{asset.kind} of {asset.table.uri}"


def test_two_metastores_share_an_instance(tmp_path: Path, instance: DagsterInstance) -> None:
    """With tables of one name, in one code location: neither takes the other's runs, keys or partitions for its own."""
    for place in ("eu", "us"):
        (tmp_path / place).mkdir()
        write(tmp_path / place, "2024-01-01" if place == "eu" else "2024-01-02", 4 if place == "eu" else 6)
    definitions = Definitions.merge(
        *(build_metastore_definitions(config(tmp_path / place), translator=House(place)) for place in ("eu", "us"))
    )
    for place, rows, day in (("eu", 4, "day=2024-01-01"), ("us", 6, "day=2024-01-02")):
        result = commit(definitions, instance, f"{place}_sales")
        assert told(instance, result, AssetKey([place, "sales", "partitions"])) == {day: rows}
        assert instance.get_dynamic_partitions(f"{place}.sales_partitions") == [day]
        run = instance.get_run_by_id(result.run_id) if result else None
        assert run is not None
        assert run.tags["metastore/table"] == f"{place}.sales"
    assert commit(definitions, instance, "eu_sales") is None
    nodes = {node.key: node for node in definitions.resolve_asset_graph().asset_nodes}
    statistics, source = (nodes[AssetKey(["eu", "sales", kind])] for kind in ("statistics", "source"))
    assert (statistics.group_name, source.group_name) == ("quality", "quality")
    assert (statistics.owners, source.owners) == (["team:lake"], [])
    assert {"domain": "sales", "metastore/table": "eu.sales", "metastore/kind": "statistics"}.items() <= (
        statistics.tags.items()
    )
    assert source.kinds == {"table", "unknown"}, "before the first version nobody knows"
    assert source.description == f"source of {tmp_path / 'eu' / 'sales'}"
    assert statistics.automation_condition is not None
    assert pools(definitions) == {"metastore_eu_sales", "metastore_us_sales"}


def pools(definitions: Definitions) -> set[str]:
    return {
        pool
        for own in definitions.resolve_asset_graph().assets_defs
        if own.is_executable
        for pool in own.node_def.pools
    }


@pytest.mark.parametrize("own", [None, TablePartitions(DAYS)], ids=["keys of the table", "days"])
@pytest.mark.parametrize(
    "above",
    [None, DAYS, MonthlyPartitionsDefinition("2024-01-01"), StaticPartitionsDefinition(["a", "b"])],
    ids=["none", "days", "months", "names"],
)
def test_the_asset_above_has_any_partitions(
    tmp_path: Path, above: PartitionsDefinition | None, own: TablePartitions | None
) -> None:
    """Or none; names and times say what follows from what, or the translator does."""

    class Ours(ByDay):
        def get_partitions(self, table: TableConfig) -> TablePartitions | None:
            return own

        def get_partition_mapping(self, table: TableConfig) -> PartitionMapping | None:
            return AllPartitionMapping() if isinstance(above, StaticPartitionsDefinition) else None

    @asset(key=RAW, partitions_def=above)
    def sales() -> None: ...

    definitions = Definitions.merge(
        Definitions(assets=[sales]), build_metastore_definitions(config(tmp_path), translator=Ours())
    )
    Definitions.validate_loadable(definitions)
    mapping = definitions.resolve_asset_graph().get_partition_mapping(PARTITIONS, RAW)
    by_time = isinstance(above, TimeWindowPartitionsDefinition) and own is not None
    assert isinstance(mapping, TimeWindowPartitionMapping if by_time else AllPartitionMapping)


def test_the_parts_are_the_whole(tmp_path: Path) -> None:
    """Assets and sensors one by one are what all definitions are; of some tables only, what is named."""
    two = config(tmp_path)
    two = two.model_copy(update={"tables": [*two.tables, TableConfig(name="other", uri="o")]})
    parts = Definitions(
        assets=build_metastore_assets(two, tables=["sales"]), sensors=[build_commit_sensor("sales", two)]
    ).get_repository_def()
    whole = build_metastore_definitions(two, tables=["sales"]).get_repository_def()
    stopped = build_commit_sensor("sales", two, default_status=DefaultSensorStatus.STOPPED)
    assert (stopped.default_status, stopped.name) == (DefaultSensorStatus.STOPPED, "sales_commits")
    assert parts.asset_graph.get_all_asset_keys() == whole.asset_graph.get_all_asset_keys()
    assert [sensor.name for sensor in parts.sensor_defs] == [sensor.name for sensor in whole.sensor_defs]
    assert parts.has_job("sales_refresh")
    assert whole.has_job("sales_refresh")
    with pytest.raises(ConfigError, match="no table named 'sails'"):
        build_metastore_assets(two, tables=["sails"])


def test_long_names_are_no_problem(tmp_path: Path) -> None:
    """Though a tag of Dagster has 63 characters at most; and a prefix that names cannot have is refused."""
    names = ["a" * 99 + "b", "a" * 99 + "c"]
    tables = [TableConfig(name=name, uri="u") for name in names]
    graph = build_metastore_definitions(MetastoreConfig(root=str(tmp_path), tables=tables)).resolve_asset_graph()
    tags = {graph.get(AssetKey([name, "statistics"])).tags["metastore/table"] for name in names}
    assert len(tags) == 2
    for prefix in ("eu/west", "", "über", "a.b"):
        with pytest.raises(ConfigError, match="is to be of letters"):
            MetastoreTranslator(prefix)


def test_two_assets_of_a_table_need_two_keys(tmp_path: Path) -> None:
    class Same(MetastoreTranslator):
        def get_asset_key(self, asset: MetastoreAsset) -> AssetKey:
            return AssetKey([asset.table.name])

    with pytest.raises(ConfigError, match="table 'sales': source and partitions both have the asset key 'sales'"):
        build_metastore_assets(config(tmp_path), translator=Same())


def test_definitions_load_where_only_runs_have_the_environment(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference stays one in all that is shown; a run without the variable says which one it is."""
    write(tmp_path, "2024-01-01", 2)
    lake = MetastoreConfig(
        root=str(tmp_path / "metastore"),
        engine="auto",
        storage_options={"aws_secret_access_key": EnvVar("SECRET_OF_ROOT")},
        tables=[TableConfig(name="sales", uri="${LAKE_OF_TESTS}/sales")],
    )
    for name in ("SECRET_OF_ROOT", "LAKE_OF_TESTS"):
        monkeypatch.delenv(name, raising=False)
    definitions = build_metastore_definitions(lake)
    source = definitions.resolve_asset_graph().get(AssetKey(["sales", "source"]))
    assert source.metadata["dagster/uri"] == "${LAKE_OF_TESTS}/sales"
    with pytest.raises(Exception, match="the environment has no variable SECRET_OF_ROOT"):
        commit(definitions, instance)
    monkeypatch.setenv("SECRET_OF_ROOT", "not to be told")
    monkeypatch.setenv("LAKE_OF_TESTS", str(tmp_path))
    assert told(instance, commit(definitions, instance), STATISTICS) == {None: 2}


def attached(result: MaterializeResult) -> dict[str, object]:  # type: ignore[type-arg]
    return {name: getattr(value, "value", value) for name, value in (result.metadata or {}).items()}


def test_the_writer_has_the_newest_statistics_itself(tmp_path: Path) -> None:
    """Of the snapshot that it wrote, or none; its own metadata stay."""
    own = config(tmp_path)
    write(tmp_path, "2024-01-01", 3)
    write(tmp_path, "2024-01-02", 5)
    found = attached(fetch_column_statistics(MaterializeResult(metadata={"mine": 1}), "sales", own))
    assert (found["mine"], found["dagster/row_count"], found["metastore/version"]) == (1, 8, 1)
    schema = found["dagster/column_schema"]
    assert isinstance(schema, TableSchema)
    assert {column.name: column.type for column in schema.columns} == {"day": "date32[day]", "amount": "int64"}
    described = {column.name: column.description or "" for column in schema.columns}
    assert "5 distinct" in described["amount"]

    part = attached(fetch_column_statistics(MaterializeResult(), "sales", own, partition="day=2024-01-02"))
    assert (part["dagster/partition_row_count"], "dagster/row_count" in part) == (5, False)
    event = fetch_column_statistics(AssetMaterialization("x", metadata={"dagster/row_count": 9}), "sales", own)
    assert event.metadata["dagster/row_count"].value == 9, "what the asset says itself wins"

    # What is not so: nothing of it, but why.
    gone = attached(fetch_column_statistics(MaterializeResult(), "sales", own, partition="day=2024-01-09"))
    assert "dagster/partition_row_count" not in gone
    assert "2024-01-09" in str(gone["metastore/statistics"])
    write(tmp_path, "2024-01-03", 1)
    late = attached(fetch_column_statistics(MaterializeResult(), "sales", own, refresh=False))
    assert list(late) == ["metastore/statistics"]
    assert "version 1 is of snapshot 1, and the table at 2" in str(late["metastore/statistics"])
    for file in (tmp_path / "sales").rglob("*.parquet"):
        file.write_bytes(b"PAR1 no more")
    broken = attached(fetch_column_statistics(MaterializeResult(), "sales", own))
    assert list(broken) == ["metastore/statistics"]
    assert str(broken["metastore/statistics"]).startswith("not known: ")
    with pytest.raises(ConfigError, match="no table named 'sails'"):
        fetch_column_statistics(MaterializeResult(), "sails", own)


def test_errors_that_are_stored_have_no_secrets() -> None:
    """Nor have their causes; those without are as they were."""
    remember_secret("abracadabra", "${SPELL}")
    error = ConfigError("it is refused")
    error.__cause__ = ValueError("abracadabra")
    with pytest.raises(MetastoreError) as raised, telling_no_secrets():
        raise error
    assert (type(raised.value), str(raised.value)) == (ConfigError, "it is refused")
    assert raised.value.__cause__ is None
    with pytest.raises(MetastoreError, match=r"RuntimeError: said \$\{SPELL\}"), telling_no_secrets():
        raise RuntimeError("said abracadabra")
    with pytest.raises(ZeroDivisionError), telling_no_secrets():
        _ = 1 / 0


def test_a_file_is_the_same_configuration(tmp_path: Path) -> None:
    """And paths in it are relative to it."""
    file = tmp_path / "metastore.yaml"
    file.write_text("root: ./metastore\nengine: auto\ntables: [{name: sales, uri: ./sales}]", encoding="utf-8")
    assert load_config(file) == config(tmp_path).resolved()
    graph = build_metastore_definitions(file).resolve_asset_graph()
    assert (
        graph.get_all_asset_keys()
        == build_metastore_definitions(config(tmp_path)).resolve_asset_graph().get_all_asset_keys()
    )
