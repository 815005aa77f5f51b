"""The public functions in a user's project: names, translators, and the configuration."""

from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AssetSpec,
    AutomationCondition,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    EnvVar,
)

from metastore_assets import (
    MetastoreAsset,
    MetastoreConfig,
    MetastoreTranslator,
    TableConfig,
    build_commit_sensor,
    build_metastore_assets,
    build_metastore_definitions,
    load_config,
)
from metastore_assets.errors import ConfigError
from tests.assets.user_project import STATISTICS, commit, config, reported_row_counts, write


class ProjectTranslator(MetastoreTranslator):
    """A translator that sets groups, descriptions, owners and tags of a project's assets."""

    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        spec = super().get_asset_spec(asset)
        return spec.replace_attributes(
            group_name="quality",
            description=f"{asset.kind} of {asset.table.uri}",
            automation_condition=AutomationCondition.eager() if asset.kind == "statistics" else None,
            kinds={*spec.kinds, asset.format or "unknown"},
        ).merge_attributes(
            owners=["team:lake"] if asset.kind != "source" else [],
            tags={"domain": asset.table.name},
        )


def test_two_metastores_share_an_instance(tmp_path: Path, instance: DagsterInstance) -> None:
    """Two metastores in one code location have tables of the same name, and prefixes keep them separate.

    They share no runs, keys, partitions or pools. The translator's groups, owners and tags are applied.
    """
    for place in ("eu", "us"):
        (tmp_path / place).mkdir()
        write(tmp_path / place, "2024-01-01" if place == "eu" else "2024-01-02", 4 if place == "eu" else 6)
    definitions = Definitions.merge(
        *(
            build_metastore_definitions(config(tmp_path / place), translator=ProjectTranslator(place))
            for place in ("eu", "us")
        )
    )
    for place, rows, day in (("eu", 4, "day=2024-01-01"), ("us", 6, "day=2024-01-02")):
        result = commit(definitions, instance, f"{place}_sales")
        assert reported_row_counts(instance, result, AssetKey([place, "sales", "sales_partitions"])) == {day: rows}
        assert instance.get_dynamic_partitions(f"{place}.sales_partitions") == [day]
        run = instance.get_run_by_id(result.run_id) if result else None
        assert run is not None
        assert run.tags["metastore/table"] == f"{place}.sales"
    assert commit(definitions, instance, "eu_sales") is None
    nodes = {node.key: node for node in definitions.resolve_asset_graph().asset_nodes}
    statistics, source = (nodes[AssetKey(["eu", "sales", f"sales_{kind}"])] for kind in ("statistics", "source"))
    assert (statistics.group_name, source.group_name) == ("quality", "quality")
    assert (statistics.owners, source.owners) == (["team:lake"], [])
    assert {"domain": "sales", "metastore/table": "eu.sales", "metastore/kind": "statistics"}.items() <= (
        statistics.tags.items()
    )
    assert source.kinds == {"table", "unknown"}, "unknown before the first version"
    assert source.description == f"source of {tmp_path / 'eu' / 'sales'}"
    assert statistics.automation_condition is not None
    assert pools(definitions) == {"metastore_eu_sales", "metastore_us_sales"}


def pools(definitions: Definitions) -> set[str]:
    return {
        pool
        for asset in definitions.resolve_asset_graph().assets_defs
        if asset.is_executable
        for pool in asset.node_def.pools
    }


def test_separate_definitions_equal_the_combined_ones(tmp_path: Path) -> None:
    """Assets and sensors built separately for a table equal those of the combined definitions."""
    two = config(tmp_path)
    two = two.model_copy(update={"tables": [*two.tables, TableConfig(name="other", uri="o")]})
    parts = Definitions(
        assets=build_metastore_assets(two, tables=["sales"]), sensors=[build_commit_sensor("sales", two)]
    ).get_repository_def()
    complete = build_metastore_definitions(two, tables=["sales"]).get_repository_def()
    stopped_sensor = build_commit_sensor("sales", two, default_status=DefaultSensorStatus.STOPPED)
    assert (stopped_sensor.default_status, stopped_sensor.name) == (DefaultSensorStatus.STOPPED, "sales_commits")
    assert parts.asset_graph.get_all_asset_keys() == complete.asset_graph.get_all_asset_keys()
    assert [sensor.name for sensor in parts.sensor_defs] == [sensor.name for sensor in complete.sensor_defs]
    assert parts.has_job("sales_refresh")
    assert complete.has_job("sales_refresh")
    with pytest.raises(ConfigError, match="'sails'"):
        build_metastore_assets(two, tables=["sails"])
    for tables in ("sales", ["sales", "sales"]):  # one name, and a repeated one
        assert build_metastore_definitions(two, tables=tables).get_repository_def().job_names == complete.job_names


def test_long_names_are_shortened(tmp_path: Path) -> None:
    """Two tables whose long names differ only in the 100th character have different tags.

    A prefix that is invalid in names is refused.
    """
    names = ["a" * 99 + "b", "a" * 99 + "c"]
    tables = [TableConfig(name=name, uri="u") for name in names]
    graph = build_metastore_definitions(MetastoreConfig(root=str(tmp_path), tables=tables)).resolve_asset_graph()
    tags = {graph.get(AssetKey([name, f"{name}_statistics"])).tags["metastore/table"] for name in names}
    assert len(tags) == 2
    for prefix in ("eu/west", "", "über", "a.b"):
        with pytest.raises(ConfigError, match=f"'{prefix}'"):
            MetastoreTranslator(prefix)


def test_two_assets_of_a_table_need_different_keys(tmp_path: Path) -> None:
    class SameKeyTranslator(MetastoreTranslator):
        def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
            return super().get_asset_spec(asset).replace_attributes(key=AssetKey([asset.table.name]))

    with pytest.raises(ConfigError, match=r"'sales'.*'sales'"):
        build_metastore_assets(config(tmp_path), translator=SameKeyTranslator())


def test_definitions_load_where_only_runs_have_the_environment(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Definitions load without the environment variables that they reference, and show the references.

    A run without a variable fails with its name.
    """
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
    source = definitions.resolve_asset_graph().get(AssetKey(["sales", "sales_source"]))
    assert source.metadata["dagster/uri"] == "${LAKE_OF_TESTS}/sales"
    with pytest.raises(ConfigError, match="SECRET_OF_ROOT"):
        commit(definitions, instance)
    monkeypatch.setenv("SECRET_OF_ROOT", "not to be told")
    monkeypatch.setenv("LAKE_OF_TESTS", str(tmp_path))
    assert reported_row_counts(instance, commit(definitions, instance), STATISTICS) == {None: 2}


def test_a_path_and_a_configuration_object_give_equal_definitions(tmp_path: Path) -> None:
    """Definitions are equal whether they are built from a configuration file or from an object.

    The file has relative paths, and the object has the same paths as absolute ones.
    """
    file = tmp_path / "metastore.yaml"
    file.write_text("root: ./metastore\nengine: auto\ntables: [{name: sales, uri: ./sales}]", encoding="utf-8")
    assert load_config(file) == config(tmp_path).resolve()
    graph = build_metastore_definitions(file).resolve_asset_graph()
    assert (
        graph.get_all_asset_keys()
        == build_metastore_definitions(config(tmp_path)).resolve_asset_graph().get_all_asset_keys()
    )
