"""The Dagster component loads as scaffolded, and its YAML settings equal those of a translator."""

import re
import tomllib
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import AssetKey, AssetSpec, Definitions
from dagster.components.core.package_entry import get_package_objects_in_module
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError

import metastore_assets
from metastore_assets import MetastoreAsset, MetastoreComponent, MetastoreTranslator
from metastore_assets.assets.component import ScaffoldOptions

REPOSITORY = Path(__file__).parents[2]
# Dagster reads YAML with a function that Pydantic deprecates, and its component loader is in beta. Its test tools for
# components call a function that Dagster 1.12 deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as`",
    "ignore::dagster_shared.utils.warnings.BetaWarning",
    "ignore:Function `ComponentLoadContext.build_defs_at_path`:DeprecationWarning",
)


class ProjectTranslator(MetastoreTranslator):
    """A translator that the YAML of a component names."""

    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        return super().get_asset_spec(asset).replace_attributes(group_name=f"of_{asset.kind}")


def loaded(attributes: dict[str, Any], tables: str | None = "[{name: sales, uri: ../lake/sales}]") -> Definitions:
    with create_defs_folder_sandbox() as sandbox:
        contents = {"type": "metastore_assets.MetastoreComponent", "attributes": attributes}
        path = sandbox.scaffold_component(MetastoreComponent, defs_yaml_contents=contents)
        if tables is not None:
            (path / "metastore.yaml").write_text(f"root: ./metastore\ntables: {tables}\n", encoding="utf-8")
        with sandbox.load_component_and_build_defs(path) as (component, definitions):
            assert isinstance(component, MetastoreComponent)
            return definitions


def test_the_scaffolded_component_loads() -> None:
    """A scaffolded component loads, and its configuration has the given table.

    The path of the table is relative to the project. The component has one sensor.
    """
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            MetastoreComponent,
            scaffold_params={"table": "orders", "uri": "data/orders", "root": "s3://bucket/metastore"},
        )
        assert yaml.safe_load((path / "defs.yaml").read_text())["attributes"] == {"config": "metastore.yaml"}
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            source = definitions.resolve_asset_graph().get(AssetKey(["orders", "orders_source"]))
            assert source.metadata["dagster/uri"] == str(sandbox.project_root.resolve() / "data" / "orders")
            (sensor,) = definitions.get_repository_def().sensor_defs
            assert sensor.name == "orders_commits"
            assert "the table 'orders'" in str(sensor.description), "the UI shows no Markdown there"


def test_a_location_in_the_home_folder_is_not_relative_to_the_project() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(MetastoreComponent, scaffold_params={"uri": "~/orders"})
        assert yaml.safe_load((path / "metastore.yaml").read_text())["tables"][0]["uri"] == "~/orders"


@pytest.mark.parametrize("name", ["bad name!", "1st", "", "a.b"])
def test_an_invalid_table_name_is_not_scaffolded(name: str, tmp_path: Path) -> None:
    """A component with an invalid table name is not scaffolded, and no file is written.

    The error says which names are allowed.
    """
    with pytest.raises(ValidationError, match=r"\b99\b.*`_`.*`-`"):
        ScaffoldOptions(table=name)
    with create_defs_folder_sandbox() as sandbox:
        before = set(sandbox.defs_folder_path.rglob("*"))
        with pytest.raises(ValidationError, match=rf"name = {re.escape(repr(name))}: .*\b99\b"):
            sandbox.scaffold_component(MetastoreComponent, scaffold_params={"table": name})
        assert set(sandbox.defs_folder_path.rglob("*")) == before


def test_yaml_settings_equal_those_of_a_translator() -> None:
    """Settings in the component's YAML have the effects of a translator's methods.

    The settings are the key prefix, the asset that writes a table, and attributes by table and kind of asset.
    """
    definitions = loaded(
        {
            "prefix": ["lake"],
            "tables": ["sales"],
            "upstream": {"sales": "raw/sales"},
            "translation": {"group_name": "quality", "owners": ["team:lake"], "tags": {"of": "{{ table }}-{{ kind }}"}},
        },
        "[{name: sales, uri: s}, {name: other, uri: o}]",
    )
    graph = definitions.resolve_asset_graph()
    asset_keys = {key.to_user_string() for key in graph.materializable_asset_keys}
    assert asset_keys == {
        f"lake/sales/sales_{kind}" for kind in ("partitions", "statistics", "frequencies", "histograms")
    }
    node = graph.get(AssetKey(["lake", "sales", "sales_partitions"]))
    assert node.parent_keys == {AssetKey(["raw", "sales"])}
    assert (node.group_name, node.owners) == ("quality", ["team:lake"])
    assert {"of": "sales-partitions", "metastore/table": "lake.sales"}.items() <= node.tags.items()


def test_yaml_may_set_other_keys() -> None:
    """The YAML of a component may set other keys for the assets.

    The dependencies between the assets and the selection of the job use these keys.
    """
    definitions = loaded({"translation": {"key": "quality/{{ kind }}_of_{{ table }}"}})
    graph = definitions.resolve_asset_graph()
    node = graph.get(AssetKey(["quality", "statistics_of_sales"]))
    assert node.parent_keys == {AssetKey(["quality", "partitions_of_sales"])}
    selected_keys = definitions.resolve_job_def("sales_refresh").asset_layer.selected_asset_keys
    assert AssetKey(["quality", "statistics_of_sales"]) in selected_keys


def tables_of(definitions: Definitions) -> set[str]:
    return {key.path[0] for key in definitions.resolve_asset_graph().materializable_asset_keys}


def test_tables_are_inline() -> None:
    """The component's YAML may define tables, with the settings of a configuration file.

    Tables of a file are added to them. If the YAML has only names, these select tables of the file.
    """
    policies = {"columns": {"id": {"frequencies": "off"}}, "checks": [{"row_count": 1}]}
    orders = {"name": "orders", "uri": "../lake/{{ env.METASTORE_TEST_FOLDER }}", **policies}
    statistics = AssetKey(["orders", "orders_statistics"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METASTORE_TEST_FOLDER", "orders")
        definitions = loaded({"root": "./metastore", "tables": [orders]}, None)
        without_spark = loaded({"root": "./metastore", "engine": "auto", "tables": [orders]}, None)
    graph = definitions.resolve_asset_graph()
    assert tables_of(definitions) == {"orders"}
    assert graph.get(statistics).kinds == {"spark", "parquet"}
    assert without_spark.resolve_asset_graph().get(statistics).kinds == {"parquet"}
    assert "row_count" in {key.name for key in graph.asset_check_keys}
    source = graph.get(AssetKey(["orders", "orders_source"])).metadata["dagster/uri"]
    assert source.endswith("/defs/lake/orders")
    assert tables_of(loaded({"tables": [orders]})) == {"orders", "sales"}
    assert tables_of(loaded({"tables": ["sales"]}, "[{name: sales, uri: s}, {name: other, uri: o}]")) == {"sales"}


def test_yaml_names_a_translator() -> None:
    """The YAML of a component may name a translator, whose attributes are applied to the assets.

    The component's own settings, here the prefix, are applied, too.
    """
    translator_name = f"{__name__}:ProjectTranslator"
    node = (
        loaded({"translator": translator_name, "prefix": ["a"]})
        .resolve_asset_graph()
        .get(AssetKey(["a", "sales", "sales_statistics"]))
    )
    assert node.group_name == "of_statistics"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"upstream": {"sails": "raw/sales"}}, "no table named 'sails'"),
        ({"tables": ["sails"]}, "no table named 'sails'"),
        ({"translator": "nowhere:ProjectTranslator"}, "'nowhere:ProjectTranslator'"),
        ({"translator": "pathlib:Path"}, "MetastoreTranslator"),
        ({"config": "other.yaml"}, r"other\.yaml"),
        ({"prefixes": ["a"]}, "prefixes"),
        ({"tables": ["sales", {"name": "a", "uri": "b"}]}, "'sales'"),
        ({"tables": [{"name": "sales", "uri": "b"}]}, "sales"),
        ({"tables": [{"name": "a", "urj": "b"}]}, "urj"),
        ({"root": "r"}, "`root`"),
        ({"engine": "auto"}, "`engine`.*`root`"),
        ({"root": "r", "config": "metastore.yaml", "tables": [{"name": "a", "uri": "b"}]}, "`config`"),
    ],
)
def test_errors_name_invalid_settings(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=r"defs\.yaml") as error_info:
        loaded(attributes)
    assert re.search(message, "".join(traceback.format_exception(error_info.value)))


def test_dg_finds_the_component() -> None:
    """The package's entry point for `dg` names the package, in which `dg` finds the component."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["dagster_dg_cli.registry_modules"].values()
    point = metadata.EntryPoint("metastore_assets", module, "dagster_dg_cli.registry_modules")
    assert point.load() is metastore_assets
    assert ("MetastoreComponent", MetastoreComponent) in get_package_objects_in_module(metastore_assets)
