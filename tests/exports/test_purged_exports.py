"""After `metastore purge`, no export target has values of columns that are hidden now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from tests.cli.run_command import run_json
from tests.exports.exported_table import ExportedTable
from tests.exports.glue_statistics import ColumnStatisticsStore
from tests.exports.hive_tables import HiveExportedTable, connect, create_database, register_table
from tests.formats.catalogs.conftest import Glue, glue  # noqa: F401 (a fixture)
from tests.formats.catalogs.table_declarations import files
from tests.security.token_search import files_with

_TEXTS = [f"token-{4711004711 + number}" for number in range(4)]
_NUMBERS = [4711004711 + number for number in range(4)]
_ROWS = pa.table({"id": range(4), "secret": _TEXTS, "pin": pa.array(_NUMBERS, pa.int64())})
_TOKEN = "47110047"
"""What all hidden values contain as text."""


@dataclass
class _Lake:
    """An exported table of two partitions, and everything that its targets store about it."""

    table: ExportedTable
    change: Callable[[], None]
    """Appends rows to the table."""
    targets: Callable[[], str]
    """What the targets store, as text. Hashes of tokens are replaced by the tokens."""


@pytest.mark.slow
def test_no_target_has_values_of_hidden_columns_after_a_purge(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lake = {"hive": _hive, "glue": _glue, "iceberg": _iceberg}[kind](tmp_path, request)
    table = lake.table
    run_json("refresh", "t", config=table.configuration_file())
    lake.change()
    refresh_answer = run_json("refresh", "t", config=table.configuration_file())
    assert [export["state"] for export in refresh_answer["exports"]] == ["written"] * len(refresh_answer["exports"])
    assert _TOKEN in lake.targets()
    hidden_policy = {"values": "hidden"}
    table.settings["columns"] = {"secret": hidden_policy, "pin": hidden_policy}
    # The version still has the values, but the configuration hides them.
    purge_answer = run_json("purge", "t", "--before", "2", config=table.configuration_file())
    assert [export["state"] for export in purge_answer["exports"]] == ["written"] * len(refresh_answer["exports"])
    assert _TOKEN not in lake.targets()
    newest = run_json("refresh", "t", config=table.configuration_file())["version"]
    run_json("purge", "t", "--before", str(newest), config=table.configuration_file())
    assert _TOKEN not in lake.targets()
    assert files_with(table.root, *_TEXTS, *map(str, _NUMBERS), *(n.to_bytes(8, "little") for n in _NUMBERS)) == []
    assert run_json("export", "t", "--status", config=table.configuration_file())["targets"][0]["state"] == "current"


@pytest.fixture(
    params=[
        pytest.param("hive", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("glue", marks=pytest.mark.s3),
        "iceberg",
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The catalog of the table.

    Tables in a Hive metastore have the exports `hive` and `spark`.
    """
    return str(request.param)


def _write_files(folder: Path) -> Callable[[], None]:
    """Write the rows to the partitions `p=1` and `p=2`.

    Return a function that adds a file.
    """
    for part in (1, 2):
        (folder / f"p={part}").mkdir(parents=True)
        pq.write_table(_ROWS.slice(2 * part - 2, 2), folder / f"p={part}" / "1.parquet")
    return lambda: pq.write_table(_ROWS, folder / "p=1" / "2.parquet")


def _hive(folder: Path, request: pytest.FixtureRequest) -> _Lake:
    uri, location = request.getfixturevalue("hive"), folder / "lake"
    create_database(uri, "purged")
    change = _write_files(location)
    schema = _ROWS.schema.append(pa.field("p", pa.int32()))
    register_table(uri, "purged.t", location, schema, {f"p={part}": [str(part)] for part in (1, 2)})
    exports: dict[str, Any] = {"hive": {"accurate": True}, "spark": {}}
    table = HiveExportedTable(uri, "purged.t", location, exports=exports)

    def targets() -> str:
        from hive_metastore.ttypes import PartitionsStatsRequest, TableStatsRequest

        columns = _ROWS.column_names
        with connect(uri) as client:
            names = client.get_partition_names("purged", "t", -1)
            return repr(
                (
                    client.get_table("purged", "t"),
                    client.get_table_statistics_req(TableStatsRequest("purged", "t", columns, engine="hive")),
                    client.get_partitions_by_names("purged", "t", names),
                    client.get_partitions_statistics_req(
                        PartitionsStatsRequest("purged", "t", columns, names, engine="hive")
                    ),
                )
            )

    return _Lake(table, change, targets)


def _glue(folder: Path, request: pytest.FixtureRequest) -> _Lake:
    from metastore_assets.config import CatalogConfig
    from metastore_assets.formats.catalogs.client import open_catalog

    database: Glue = request.getfixturevalue("glue")
    location = folder / "lake"
    change = _write_files(location)
    columns = [("id", "bigint"), ("secret", "string"), ("pin", "bigint")]
    declaration = files("t", str(location), columns=columns, partition_columns=[("p", "int")])
    partitions = [([str(part)], str(location / f"p={part}")) for part in (1, 2)]
    database.register(declaration.replaced(partitions=partitions))
    catalog = {**database.properties, "lab": database.database}
    with open_catalog(CatalogConfig.model_validate({**catalog, "name": "hms"}), "open") as open_glue:
        store = ColumnStatisticsStore(open_glue.glue)  # type: ignore[attr-defined]

    def targets() -> str:
        key = {"DatabaseName": database.database}
        return repr(
            (
                database.client.get_table(**key, Name="t")["Table"],
                database.client.get_partitions(**key, TableName="t")["Partitions"],
                dict(store.statistics),
            )
        )

    name = f"{database.database}.t"
    return _Lake(ExportedTable(catalog, name, location, exports=["glue"]), change, targets)


def _iceberg(folder: Path, request: pytest.FixtureRequest) -> _Lake:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": str(folder / "lake")}
    catalog = load_catalog("hms", **properties)
    catalog.create_namespace("purged")
    (folder / "lake").mkdir()
    catalog.create_table("purged.t", _ROWS.schema).append(_ROWS.slice(0, 2))
    hashes = {mmh3.hash64(text.encode(), 9001, signed=False)[0] >> 1: text for text in _TEXTS}
    hashes |= {mmh3.hash64(n.to_bytes(8, "little"), 9001, signed=False)[0] >> 1: str(n) for n in _NUMBERS}

    def targets() -> str:
        metadata = list((folder / "lake").rglob("*.metadata.json"))
        ours = [*(folder / "lake").rglob("*.stats"), *(folder / "lake").rglob("metastore-assets-*")]
        contents = [path.read_text() for path in metadata]
        for content in (path.read_bytes() for path in ours):
            contents += [content.decode("latin-1")]
            contents += [token for each, token in hashes.items() if each.to_bytes(8, "little") in content]
        return "".join(contents)

    def change() -> None:
        catalog.load_table("purged.t").append(_ROWS.slice(2))

    exports: dict[str, Any] = {"iceberg": {"partition_statistics": True}}
    return _Lake(ExportedTable(properties, "purged.t", folder / "lake", exports=exports), change, targets)
