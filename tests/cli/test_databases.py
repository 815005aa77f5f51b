"""Commands on all tables of a database.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.cli.run_command import run
from tests.databases.iceberg_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A catalog with the tables `orders` and `people`, and a configuration beside it."""
    (tmp_path / "metastore.yaml").write_text(
        "{root: root, engine: auto, catalogs: {lake: {type: sql, uri: 'sqlite:///lake.db'}}, "
        "tables: [{catalog: lake, database: sales}]}"
    )
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'lake.db'}", warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        new_lake = Lake(tmp_path, catalog)
        new_lake.add("orders", 1, 2, 3)
        new_lake.add("people", 1)
        yield new_lake


def test_commands_follow_the_tables_of_a_database(lake: Lake) -> None:
    """Commands follow tables that are created and dropped between two refreshes.

    The stored version of a dropped table stays readable, and the table is marked as dropped.
    """
    config = lake.folder / "metastore.yaml"
    first = run("refresh", "--all", "--json", config=config)
    assert first.exit_code == 0
    assert [json.loads(line)["table"] for line in first.stdout.splitlines()] == ["sales_orders", "sales_people"]
    lake.drop("people")
    lake.add("more")
    second = run("refresh", "--all", "--json", config=config)
    assert [json.loads(line)["table"] for line in second.stdout.splitlines()] == ["sales_more", "sales_orders"]
    assert "'sales_people'" in second.stderr
    rows_by_table = {row["table"]: row for row in json.loads(run("tables", "--json", config=config).stdout)}
    assert {name: (row["catalog"], row["row_count"], bool(row["dropped"])) for name, row in rows_by_table.items()} == {
        "sales_more": ("lake", 2, False),
        "sales_orders": ("lake", 3, False),
        "sales_people": ("lake", 1, True),
    }
    result = run("show", "sales_people", "--json", config=config)
    assert (result.exit_code, json.loads(result.stdout)["row_count"]) == (0, 1)
    assert "'sales.people'" in result.stderr
    failed_refresh = run("refresh", "sales_people", config=config)
    assert failed_refresh.exit_code == 3
    assert re.search(r"\bversion 1\b.*'sales_people'", failed_refresh.stderr)
    near = run("show", "sales_order", config=config)
    assert near.exit_code == 3
    assert "'sales_orders'" in near.stderr


def test_stored_versions_are_readable_without_the_catalog(lake: Lake) -> None:
    """If the catalog cannot be read, the tables of its last listing stay readable.

    Whether they were dropped is unknown.
    """
    config = lake.folder / "metastore.yaml"
    run("refresh", "sales_orders", config=config)
    lake.database.write_text("no database")
    tables = run("tables", "--json", config=config)
    assert tables.exit_code == 0
    assert [(row["table"], row["dropped"]) for row in json.loads(tables.stdout)] == [
        ("sales_orders", None),
        ("sales_people", None),
    ]
    assert tables.stderr.startswith("note: lake.sales ")
    result = run("show", "sales_orders", "--json", config=config)
    assert (result.exit_code, json.loads(result.stdout)["current"]) == (0, None)
    assert run("refresh", "--all", config=config).exit_code == 3
