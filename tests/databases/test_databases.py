"""A configuration of whole databases follows their tables, and never confuses two tables.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state.
"""

import json
import re
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import CatalogConfig, DatabaseConfig, MetastoreConfig, load_config
from metastore_assets.databases import DatabaseListing, expand_databases, list_databases, recorded_listings
from metastore_assets.databases.table_listings import load_listings, read_record, write_record
from metastore_assets.errors import ConfigError
from metastore_assets.formats.catalogs import client
from metastore_assets.formats.catalogs.base import ListedTable
from metastore_assets.store.objects import ObjectStore
from tests.databases.iceberg_lake import Lake

_SQL = {"type": "sql", "uri": "sqlite:///nowhere.db"}


def _config(*databases: dict[str, object], tables: tuple[dict[str, object], ...] = ()) -> MetastoreConfig:
    return MetastoreConfig.model_validate(
        {"root": "r", "catalogs": {"prod": _SQL, "test": _SQL}, "tables": tables, "databases": databases}
    )


def _expanded(config: MetastoreConfig, *members: DatabaseListing) -> tuple[dict[str, str], dict[str, str]]:
    expanded_config, skipped_tables = expand_databases(config, members)
    return {table.name: table.uri for table in expanded_config.tables}, {one.name: one.reason for one in skipped_tables}


def test_tables_are_named_by_database_and_name() -> None:
    """A table of a database is named after both, such as `sales_dim`.

    The patterns that select tables ignore case. A table that is also configured separately has the name given there.
    """
    config = _config(
        {"catalog": "prod", "database": "sales", "only": ["fact_*", "dim"], "except": "*_OLD", "columns": {"x": {}}},
        tables=({"name": "mine", "catalog": "prod", "table": "sales.fact_b"},),
    )
    names = ("fact_a", "FACT_b2", "fact_b", "fact_old", "dim", "dim2")
    tables, skipped_reasons = _expanded(config, DatabaseListing("prod.sales", dict.fromkeys(names, "delta")))
    assert tables == {
        "mine": "catalog://prod/sales.fact_b",
        "sales_FACT_b2": "catalog://prod/sales.FACT_b2",
        "sales_dim": "catalog://prod/sales.dim",
        "sales_fact_a": "catalog://prod/sales.fact_a",
    }
    assert skipped_reasons == {}
    table = expand_databases(config, [DatabaseListing("prod.sales", {"dim": "delta"})])[0].table("sales_dim")
    assert (table.declared_format, table.format, list(table.columns)) == ("delta", None, ["x"])
    assert table.unknown_policy_columns({"y"}) == []


@pytest.mark.parametrize("type_", ["glue", "hive"])
def test_hive_and_glue_ignore_case(type_: str) -> None:
    catalog = {"type": type_} | ({"uri": "thrift://nowhere:1"} if type_ == "hive" else {})
    entries = {
        "tables": [{"name": "mine", "catalog": "prod", "table": "Sales.Orders"}],
        "databases": [{"catalog": "prod", "database": "sales"}, {"catalog": "prod", "database": "SALES"}],
    }
    config = MetastoreConfig.model_validate({"root": "r", "catalogs": {"prod": catalog}} | entries).resolve()
    names = dict.fromkeys(("orders", "items"), "delta")
    tables, skipped_reasons = _expanded(
        config, DatabaseListing("prod.sales", names), DatabaseListing("prod.SALES", names)
    )
    assert list(tables) == ["mine", "sales_items"]
    assert skipped_reasons == {}


def test_checks_of_a_database_may_have_an_escaped_reference() -> None:
    """In a check of a database, `$${` becomes a literal `${`.

    The tables of the database have the same checks as the database, with this literal `${`.
    """
    database = DatabaseConfig(catalog="default", database="b", checks=({"row_count": 1, "partitions": "x=$${y}"},))
    assert database.table("t").checks == database.checks == ({"row_count": 1, "partitions": "x=${y}"},)


def test_two_tables_with_the_same_name_are_both_skipped() -> None:
    """Two tables of databases are both skipped if their names differ at most in case or punctuation.

    Other tables are not affected. A table that is configured separately is used, even if a table of a database has the
    same name.
    """
    config = _config(
        {"catalog": "prod", "database": "sales", "name": "{table}"},
        {"catalog": "prod", "database": "shop", "name": "{table}"},
        tables=({"name": "Own", "uri": "x"},),
    )
    tables, skipped_reasons = _expanded(
        config,
        DatabaseListing("prod.sales", dict.fromkeys(("orders", "a_b", "a-b", "own", "rest"), "files")),
        DatabaseListing("prod.shop", dict.fromkeys(("orders", "more"), "files")),
    )
    assert list(tables) == ["Own", "rest", "more"]
    assert sorted(skipped_reasons) == [
        "prod.sales.a-b",
        "prod.sales.a_b",
        "prod.sales.orders",
        "prod.sales.own",
        "prod.shop.orders",
    ]
    assert re.search("'orders'.*catalog://prod/shop.orders", skipped_reasons["prod.sales.orders"])
    assert re.search(r"`name`.*'\{database\}_\{table\}'", skipped_reasons["prod.sales.own"])


def test_a_table_whose_folder_for_statistics_has_a_table_is_skipped() -> None:
    config = _config({"catalog": "prod", "database": "sales"}, tables=({"name": "mine", "uri": "r/sales_a/x"},))
    tables, skipped_reasons = _expanded(config, DatabaseListing("prod.sales", dict.fromkeys(("a", "b"), "files")))
    assert list(tables) == ["mine", "sales_b"]
    assert re.search(r"'sales_a'.*'mine'.*\br/sales_a\b.*`root`", skipped_reasons["prod.sales.a"])


def test_a_table_whose_location_overlaps_stored_files_is_refused(lake: Lake) -> None:
    """A table in the folder of another table's statistics, or in a folder around the root, is refused.

    The message names the table and the folder. A table in a new folder of the root is refreshed.
    """
    lake.add("a")
    schema = pa.schema([("id", pa.int64())])
    for name, location in (("b", "root/sales_a/b"), ("c", "."), ("d", "root/d")):
        lake.catalog.create_table(f"sales.{name}", schema, location=str(lake.folder / location)).append(
            pa.table([[1]], schema)
        )
    lake.publish("sales_a")
    with pytest.raises(ConfigError, match=r"'sales_b'.*/sales_a\b.*'sales_a'"):
        lake.publish("sales_b")
    with pytest.raises(ConfigError, match=r"/root\b.*'sales_c'"):
        lake.publish("sales_c")
    lake.publish("sales_d")


def test_tables_with_invalid_names_are_skipped() -> None:
    tables, skipped_reasons = _expanded(
        _config({"catalog": "prod", "database": "sales", "name": "{table}"}),
        DatabaseListing(
            "prod.sales", {"2024": "files", "größe": "files", "a.b": "files"}, skipped={"v": "'v' is a view"}
        ),
    )
    assert tables == {"gr__e": "catalog://prod/sales.größe"}
    assert skipped_reasons["prod.sales.v"] == "'v' is a view"
    assert "'a.b'" in skipped_reasons["prod.sales.a.b"]
    assert re.search(r"'sales\.2024'.*'2024'.*\b99\b", skipped_reasons["prod.sales.2024"])


@given(st.lists(st.tuples(st.sampled_from(("a", "b", "a_b")), st.text("ab_-1", min_size=1, max_size=4)), max_size=12))
@settings(max_examples=max(20, settings().max_examples // 5))
def test_no_two_tables_have_one_name(locations: list[tuple[str, str]]) -> None:
    """The names of tables of several databases differ, also without regard to case and punctuation.

    A name follows from its table alone, not from other tables.
    """
    config = _config(*({"catalog": "prod", "database": name} for name in ("a", "b", "a_b")))
    members = [
        DatabaseListing(f"prod.{name}", {table: "files" for database, table in locations if database == name})
        for name in ("a", "b", "a_b")
    ]
    expanded_config, skipped_tables = expand_databases(config, members)
    folded_names = [table.name.lower().replace("-", "_") for table in expanded_config.tables]
    assert len(set(folded_names)) == len(folded_names)
    assert len(expanded_config.tables) + len(skipped_tables) == len(set(locations))
    # Adding a table renames no other.
    for table in expanded_config.tables:
        assert table.name == f"{table.identifier}".replace(".", "_")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[{catalog: prod, database: sales, onyl: x}]",
            r"'sales': onyl = 'x': .*\bcatalog\b",
        ),
        ("[{catalog: prod, database: sales, only: []}]", r"database 'sales': only = \[\]: "),
        ("[{catalog: prod, database: sales, name: x}]", r"name = 'x':.*{table}"),
        ("[{catalog: prod, database: sales, name: '{table}{x}'}]", r"{table}"),
        (
            "[{catalog: prd, database: sales}]",
            r"'sales'.*'prd'.*'prod'",
        ),
        ("[{database: sales}]", r"'sales': catalog\b"),
        ("[{catalog: prod, database: sales, uri: x}]", "uri = 'x':"),
        (
            "[{catalog: prod, database: sales, columns: {a: {ranks: x}}}]",
            r"database 'sales': columns\.a\.ranks = 'x'",
        ),
        ("[{catalog: prod, database: '${NOT_THERE}'}]", r"\bNOT_THERE\b"),
    ],
)
def test_invalid_entries_are_reported(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "metastore.yaml"
    file.write_text(f"{{root: r, catalogs: {{prod: {json.dumps(_SQL)}}}, tables: {text}}}")
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_an_invalid_record_is_treated_as_empty(tmp_path: Path) -> None:
    root = ObjectStore(str(tmp_path))
    assert read_record(root, "a/b.c") is None
    write_record(root, "a/b.c", {"x", "ü"})
    assert read_record(root, "a/b.c") == {"x", "ü"}
    (path,) = (tmp_path / "_databases").iterdir()
    for damaged_text in ("", "{}", "[]", '{"format": 2, "tables": ["x"]}', '{"format": 1, "tables": 3}'):
        path.write_text(damaged_text)
        assert read_record(root, "a/b.c") is None


def test_tables_may_be_added_and_removed(lake: Lake) -> None:
    """A listing of a database follows tables that are added, dropped and created again.

    A dropped table with a version stays in the listing, and is marked as dropped. A dropped table without a version
    disappears from the listing.
    """
    lake.add("orders")
    lake.add("people")
    config = lake.config()
    assert [dict(one.tables) for one in list_databases(config)] == [{"orders": "iceberg", "people": "iceberg"}]
    assert {table.name for table in expand_databases(config, recorded_listings(config))[0].tables} == {
        "sales_orders",
        "sales_people",
    }
    lake.publish("sales_orders")
    lake.drop("orders")
    lake.drop("people")
    lake.add("more")
    (member,) = list_databases(config)
    assert dict(member.tables) == {"more": "iceberg"}
    assert list(member.dropped) == ["orders"]
    by_name = {table.name: table.dropped_reason for table in expand_databases(config, [member])[0].tables}
    assert by_name["sales_more"] is None
    assert re.search("'lake'.*'sales.orders'", by_name["sales_orders"] or "")
    lake.add("orders")
    assert (list(list_databases(config)[0].tables), list_databases(config)[0].dropped) == (["more", "orders"], {})


def test_entries_of_one_database_share_its_record(lake: Lake) -> None:
    """Several entries of a configuration for one database share the stored listing of the database.

    The stored listing is the record in the test's name. The entries are listed in parallel. Afterwards, the record has
    the tables of all entries, whichever entry was the last to write the record.
    """
    names = {f"t{number}" for number in range(4)}
    for name in names:
        lake.add(name)
    document = {
        "catalogs": {"lake": {"type": "sql", "uri": f"sqlite:///{lake.database}"}},
        "databases": [{"catalog": "lake", "database": "sales", "only": name} for name in sorted(names)],
    }
    for attempt in range(5):
        config = MetastoreConfig.model_validate({**document, "root": f"{lake.folder}/root{attempt}"}).resolve()
        list_databases(config)
        assert {name for listing in recorded_listings(config) for name in listing.tables} == names
    config = MetastoreConfig.model_validate({**document, "root": f"{lake.folder}/root"}).resolve()
    lake.publish("sales_t0")
    lake.drop("t0")
    for _ in range(3):
        assert [list(listing.dropped) for listing in list_databases(config)] == [["t0"], [], [], []]


def test_patterns_may_change_after_a_listing(lake: Lake) -> None:
    """The stored listing also has tables that matched no pattern.

    After a change of the patterns, definitions have these tables without another listing.
    """
    lake.add("fact_sales")
    lake.add("dim_shop")
    list_databases(lake.config(only="fact_*"))
    (listing,) = load_listings(lake.config(only=["fact_*", "dim_*"]), 10, {})
    assert set(listing.tables) == {"dim_shop", "fact_sales"}
    assert set(load_listings(lake.config(only="fact_*"), 10, {})[0].tables) == {"fact_sales"}
    lake.drop("dim_shop")
    config = lake.config(only="fact_*")
    list_databases(config)
    assert read_record(ObjectStore(config.root), "lake.sales") == {"fact_sales"}


def test_a_database_that_does_not_answer_has_its_last_tables(lake: Lake) -> None:
    lake.add("orders")
    config = lake.config()
    list_databases(config)
    lake.database.rename(lake.database.with_suffix(".away"))
    lake.database.write_text("no database")
    (member,) = list_databases(config)
    assert dict(member.tables) == {"orders": None}
    assert re.search(r"'lake'.*'sales'", member.failure)
    expanded_config, skipped_tables = expand_databases(config, [member])
    assert [table.name for table in expanded_config.tables] == ["sales_orders"]
    assert [one.name for one in skipped_tables] == ["lake.sales"]


def test_a_missing_database_is_distinguished_from_a_dropped_one(lake: Lake) -> None:
    lake.add("orders")
    wrong = lake.config(database="sale")
    assert re.search(r"'lake'.*'sale'.*'sales'", list_databases(wrong)[0].failure)
    config = lake.config()
    list_databases(config)
    lake.publish("sales_orders")
    lake.drop("orders")
    lake.catalog.drop_namespace("sales")
    (member,) = list_databases(config)
    assert (dict(member.tables), member.failure) == ({}, "")
    assert "'sales'" in member.dropped["orders"]


def test_a_catalog_that_does_not_answer_times_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the listing of one of two databases does not end, it has an error after the timeout.

    The listing of the other database in the same catalog is complete.
    """
    never = threading.Event()
    lake.add("orders")
    config = lake.config(databases=("sales", "slow"))

    def list_tables(catalog: CatalogConfig, database: str) -> list[ListedTable]:
        if database == "slow":
            never.wait()
            return []
        return client.list_tables(catalog, database)

    monkeypatch.setattr("metastore_assets.databases.table_listings.list_tables", list_tables)
    for timeout in (0.3, 3, 30):
        sales, slow = list_databases(config, timeout=timeout)
        assert re.search(rf"'lake'.*\b{timeout} seconds", slow.failure)
        if not sales.failure:  # On a busy machine, the catalog of the other database may take longer, too.
            break
    never.set()
    assert (list(sales.tables), sales.failure) == (["orders"], "")


def test_a_database_configured_in_python() -> None:
    database = DatabaseConfig(catalog="prod", database="sales", only="fact_*")  # type: ignore[arg-type]
    config = MetastoreConfig.model_validate({"root": "r", "catalogs": {"prod": _SQL}, "databases": [database]})
    assert config.resolve().databases[0].key == "prod.sales"
    mixed_config = _config(tables=({"catalog": "prod", "database": "sales"}, {"name": "own", "uri": "x"}))
    assert ([one.key for one in mixed_config.databases], [one.name for one in mixed_config.tables]) == (
        ["prod.sales"],
        ["own"],
    )
