"""`metastore init` writes a configuration that loads, and with which `metastore refresh` works.

A root is the folder with all stored state.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets.cli import starting_config
from metastore_assets.config import TableConfig, load_config
from metastore_assets.config.file import CONFIG_VARIABLE
from metastore_assets.pipeline import engine
from tests.cli.run_command import error_of, run, run_json
from tests.databases.iceberg_lake import Lake
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.iceberg.tables import ICEBERG_TABLES
from tests.formats.lance.tables import LANCE_TABLES
from tests.formats.table_writers import TABLES, Table

_ROWS = [(number, f"text {number % 3}", f"2024-01-0{1 + number % 2}") for number in range(40)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _rows(count: int = 100) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "order_id": pa.array(numbers),
            "email": [f"{number}@example.org" for number in numbers],
            "note": [f"{number} " * 100 for number in numbers],
            "country": [("FR", "DE")[number % 2] for number in numbers],
            "default": pa.array(numbers),
            "null": pa.array(numbers),
        }
    )


@pytest.mark.parametrize(
    "kind", [*TABLES, *ICEBERG_TABLES, *HUDI_TABLES, *LANCE_TABLES], ids=lambda kind: kind.__name__
)
def test_a_table_of_every_format(folder: Path, kind: type[Table]) -> None:
    (folder / "lake").mkdir()
    table = kind(folder / "lake" / "t")
    table.append(_ROWS)
    (description,) = run_json("init", "lake/t")["tables"]
    assert description["format"] == kind.kind
    assert f"format: {kind.kind}\n" in (folder / "metastore.yaml").read_text()
    assert "uri: ./lake/t\n" in (folder / "metastore.yaml").read_text()
    result = run_json("refresh", "--all")
    assert (result["table"], result["version"]) == ("t", 1)
    assert run_json("show", "t")["row_count"] == len(_ROWS)


@pytest.mark.parametrize("kind", ["delta", "files"])
@pytest.mark.parametrize("uri", [".", "file://{folder}", "{link}"])
def test_a_file_in_the_folder_of_a_table_is_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, kind: str, uri: str
) -> None:
    """`init` does not write its configuration file into the folder of a table.

    The error names the file, the table's folder and the option `--config`. Nothing is written.
    """
    table = next(each for each in TABLES if each.kind == kind)
    table(folder).append(_ROWS)
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(folder)
    error = error_of(run("init", uri.format(folder=folder, link=link)))
    assert all(part in error for part in ("metastore.yaml", "the folder of table", "--config"))
    assert not (folder / "metastore.yaml").exists()


def test_a_file_in_the_folder_of_a_table_with_a_named_metadata_file_is_refused(folder: Path) -> None:
    """`init` does not write a configuration into a table's folder if it gets the table's metadata file.

    The error names the configuration file and the option `--config`, and nothing is written.
    """
    table = ICEBERG_TABLES[0](folder / "orders")
    table.append(_ROWS)
    (metadata, *_) = sorted((folder / "orders" / "metadata").glob("*.metadata.json"), reverse=True)
    file = folder / "orders" / "metastore.yaml"
    error = error_of(run("init", "--root", str(folder / "metastore"), str(metadata), config=file))
    assert f"{file} would be in" in error
    assert "--config" in error
    assert not file.exists()


def test_a_file_in_a_folder_that_readers_of_the_table_ignore(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` writes into the folder `orders/_configuration`, and the table is the folder `orders`.

    The table is named after its own folder. The root is in `_configuration` as well. A second refresh finds no change,
    because readers of plain files ignore folders whose names begin with `_`.
    """
    lake = folder / "orders"
    (lake / "_configuration").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), lake / "x.parquet")
    monkeypatch.chdir(lake / "_configuration")
    (table,) = run_json("init", "..")["tables"]
    assert table["table"] == "orders"
    results = [run_json("refresh", "--all") for _ in range(2)]
    assert [answer["published"] for answer in results] == [True, False]


def test_several_tables_and_what_is_suggested(folder: Path) -> None:
    for name in ("a/orders", "b/orders", "c ${HOME}"):
        (folder / name).mkdir(parents=True)
        pq.write_table(_rows(), folder / name / "1.parquet")
    done = run("init", "a/orders", "b/orders", "c ${HOME}", "a/orders", "--root", "./statistics")
    assert done.exit_code == 0, done.output
    config = load_config()
    assert [table.name for table in config.tables] == ["orders", "orders_2", "c_HOME_"]
    assert config.tables[2].uri == str(folder / "c ${HOME}")
    assert (config.root, config.engine) == (str(folder / "statistics"), "auto")
    policies = config.tables[0].columns
    assert set(policies) == {"order_id", "note", "null"}, "a column named `default` would change all others"
    assert (policies["order_id"].value_filter, policies["note"].frequencies) == ("on", "off")
    text = (folder / "metastore.yaml").read_text()
    (folder / "metastore.yaml").write_text(re.sub(r"^      # (\w+: \{)", r"      \1", text, flags=re.MULTILINE))
    assert load_config().tables[0].columns["email"].values == "hidden", "commented lines are valid, too"


def test_a_large_table_is_judged_by_its_schema(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SMALL_BYTES", 1)
    pq.write_table(_rows(), folder / "orders.parquet")
    (table,) = run_json("init", "orders.parquet")["tables"]
    assert (table["table"], table["profiled"]) == ("orders", False)
    assert {item["column"]: item["active"] for item in table["suggestions"]} == dict.fromkeys(
        ("order_id", "email", "note"), False
    )
    assert load_config().tables[0].columns == {}


@pytest.mark.parametrize("small", [True, False])
def test_no_value_filter_inside_lists_and_maps(folder: Path, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    """`init` suggests a value filter for a field of a struct, but for no column in a list or map.

    A value filter helps to find the files that have a value. Predicates cannot refer to elements of lists, or to keys
    and values of maps.
    """
    if not small:
        monkeypatch.setattr(engine, "_SMALL_BYTES", 1)
    numbers = range(100)
    data = {
        "s": [{"id": number} for number in numbers],
        "items": [[{"id": number}] for number in numbers],
        "m": pa.array([[(str(number), number)] for number in numbers], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(data), folder / "t.parquet")
    (table,) = run_json("init", "t.parquet")["tables"]
    assert table["profiled"] == small
    assert [item["column"] for item in table["suggestions"] if "value_filter" in item["policy"]] == ["s.id"]


def test_names_that_differ_only_in_case_or_punctuation_are_numbered(folder: Path) -> None:
    """Tables whose names differ only in case or punctuation get a number in the written configuration.

    Without the number, the configuration would be refused.
    """
    for name in ("Day-Orders", "day_orders"):
        (folder / name).mkdir()
        pq.write_table(_rows(), folder / name / "a.parquet")
    tables = run_json("init", "Day-Orders", "day_orders")["tables"]
    assert [table["table"] for table in tables] == ["Day-Orders", "day_orders_2"]
    assert [table.name for table in load_config().tables] == ["Day-Orders", "day_orders_2"]


def test_an_existing_file_stays(folder: Path) -> None:
    pq.write_table(_rows(), folder / "t.parquet")
    (folder / "metastore.yaml").write_text("mine")
    assert re.search(r"metastore\.yaml\b.*--force", error_of(run("init", "t.parquet")))
    assert (folder / "metastore.yaml").read_text() == "mine"
    (folder / "link.yaml").symlink_to("nowhere")
    assert "link.yaml" in error_of(run("init", "t.parquet", "--config", "link.yaml"))
    assert run("init", "t.parquet", "--force").exit_code == 0
    assert load_config().tables[0].name == "t"


def test_nothing_is_written_if_a_table_cannot_be_read(folder: Path) -> None:
    pq.write_table(_rows(), folder / "t.parquet")
    done = run("init", "nowhere", "t.parquet", "elsewhere")
    assert done.exit_code == 3
    assert [re.findall("nowhere|elsewhere", line) for line in done.stderr.splitlines()] == [["nowhere"], ["elsewhere"]]
    assert [path.name for path in folder.iterdir()] == ["t.parquet"]


def test_options_of_readers_are_written(folder: Path) -> None:
    (folder / "t.csv").write_text("1;x\n2;${HOME}\n")
    arguments = ["--option", "header=false", "--option", "delimiter=;", "--schema", "f0=string"]
    arguments += ["--option", 'null_values=["${HOME}"]']
    assert run_json("init", "t.csv", *arguments)["tables"][0]["columns"] == 2
    assert run_json("refresh", "t")["version"] == 1
    columns = run_json("show", "t")["columns"]
    assert [(column["type"], column["null_count"]) for column in columns] == [("string", 0), ("string", 1)]


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
@example("~", ".inf")
@example("${x}", "${x}")
def test_any_location_and_column_can_be_read_again(name: str, column: str) -> None:
    """A written configuration, read again, has the location and the column name that were given.

    Both may have any characters.
    """
    uri = f"s3://bucket/{name}"
    item = starting_config.Suggestion(column, "{value_filter: on}", "reason", active=True)
    result = starting_config.TableProposal(
        TableConfig(name="t", uri="s3://b/t"), "delta", 1, 1, 1, (name,), True, (item,)
    )
    object.__setattr__(result, "config", result.config.model_copy(update={"uri": uri}))
    text = starting_config.format_config(name, [result], Path("/lake/metastore.yaml"))
    raw = yaml.safe_load(text)
    assert raw["root"].replace("$${", "${") == name
    (table,) = raw["tables"]
    assert table["uri"].replace("$${", "${") == uri
    assert list(table["columns"]) == [column]
    assert json.dumps(raw)


def test_many_columns_are_suggested_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of many columns is not profiled, because their statistics would be merged with Spark.

    `init` does not start Spark, so suggestions follow from the names of the columns alone.
    """
    monkeypatch.setattr(engine, "_SMALL_MERGE", 3)
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({f"c{at}": [1] for at in range(5)} | {"email": ["a"]}), tmp_path / "t" / "1.parquet")
    result = starting_config.find_table(TableConfig(name="t", uri=str(tmp_path / "t")), str(tmp_path))
    assert (result.is_profiled, [one.column for one in result.suggestions]) == (False, ["email"])


def test_a_table_in_a_catalog(folder: Path) -> None:
    """For a table in a catalog, `init` writes the catalog's settings as they were entered.

    References to environment variables are not replaced.
    """
    with SqlCatalog("lake", uri=f"sqlite:///{folder / 'lake.db'}", warehouse=str(folder / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        Lake(folder, catalog).add("orders")
    settings = "lake={type: sql, uri: 'sqlite:///${LAKE:-lake.db}'}"
    (description,) = run_json("init", "catalog://lake/sales.orders", "--catalog", settings)["tables"]
    assert (description["table"], description["format"]) == ("sales_orders", "iceberg")
    written_config = yaml.safe_load((folder / "metastore.yaml").read_text())
    assert written_config["catalogs"] == {"lake": {"type": "sql", "uri": "sqlite:///${LAKE:-lake.db}"}}
    assert written_config["tables"] == [{"name": "sales_orders", "catalog": "lake", "table": "sales.orders"}]
    assert run_json("refresh", "--all")["version"] == 1


def test_all_tables_of_a_database(folder: Path) -> None:
    """The configuration that `init` writes for a database includes all of its tables.

    A refresh includes tables that are created after `init`.
    """
    settings = "lake={type: sql, uri: 'sqlite:///lake.db'}"
    with SqlCatalog("lake", uri=f"sqlite:///{folder / 'lake.db'}", warehouse=str(folder / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        lake = Lake(folder, catalog)
        lake.add("orders")
        result = run_json("init", "catalog://lake/sales.*", "--catalog", settings)
        assert result["databases"] == [{"catalog": "lake", "database": "sales", "tables": ["orders"], "skipped": []}]
        text = (folder / "metastore.yaml").read_text()
        assert yaml.safe_load(text)["tables"] == [{"catalog": "lake", "database": "sales"}]
        assert "metastore show sales_orders " in text
        lake.add("people")
    done = run("refresh", "--all", "--json")
    assert [json.loads(line)["table"] for line in done.stdout.splitlines()] == ["sales_orders", "sales_people"]


def test_a_missing_database_is_an_error(folder: Path) -> None:
    with SqlCatalog("lake", uri=f"sqlite:///{folder / 'lake.db'}", warehouse=str(folder / "warehouse")):
        pass
    result = run("init", "catalog://lake/sales.*", "--catalog", "lake={type: sql, uri: 'sqlite:///lake.db'}")
    assert result.exit_code == 3
    assert "sales" in result.stderr
    assert not (folder / "metastore.yaml").exists()


def test_settings_of_a_catalog_may_look_like_dates(folder: Path) -> None:
    pq.write_table(_rows(), folder / "t.parquet")
    assert run("init", "t.parquet", "--catalog", "lake={type: rest, since: 2024-01-05}").exit_code == 0
    assert load_config().catalogs["lake"].properties == {"since": "2024-01-05"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["catalog://lake/sales.orders"], "the catalog 'lake' has no settings: add --catalog 'lake={type: …}'"),
        (
            ["catalog://lake", "--catalog", "lake={type: sql}"],
            "names no table: write catalog://CATALOG/DATABASE.TABLE, or",
        ),
        (["catalog://lake/a.b", "--catalog", "lake=3"], "error: catalog://lake/a.b: catalogs.lake = 3: must be"),
        (["catalog://lake/a.b", "--catalog", "lake={"], "'{' is no YAML"),
        (["catalog://lake/a.b", "--catalog", "lake={type: sql, x: 2024-02-30}"], "2024-02-30}' is no YAML"),
        (["catalog://lake/a.b", "--catalog", "lake"], "has no `=`"),
    ],
)
def test_errors_about_catalogs_say_what_to_write(folder: Path, arguments: list[str], message: str) -> None:
    result = run("init", *arguments)
    assert message in " ".join(result.stderr.split())
    assert not (folder / "metastore.yaml").exists()
