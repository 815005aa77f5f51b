"""Exports to a Hive metastore: what clients read, replaced statistics of others, and removal.

A version is the published statistics of a table at one snapshot. A hidden column has the policy `values: hidden`: new
versions have no values of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.exports.hive.metastore import HiveTable
from metastore_assets.exports.hive.target import HiveTarget
from tests.exports.hive_tables import HiveExportedTable, connect, create_database, register_table
from tests.exports.interrupted_exports import CatalogState, Interrupted
from tests.formats.catalogs.table_declarations import files, register_in_hive

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = pa.table(
    {
        "Id": pa.array([1, 2, 3, None], pa.int64()),
        "price": pa.array([Decimal("-1.28"), Decimal("2.00"), None, Decimal("300.00")], pa.decimal128(15, 2)),
        "ratio": pa.array([0.5, float("nan"), -3.25, None]),
        "name": pa.array(["a", "", "ccc", None]),
        "seen": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3 + [None], pa.timestamp("us", "UTC")),
        "born": pa.array([date(1969, 12, 31), date(2024, 1, 1), None, None]),
        "ok": pa.array([True, False, False, None]),
        "data": pa.array([b"\x00", b"", b"12345", None]),
    }
)
_NUMBERS = count()
_SCHEMA = ROWS.schema.append(pa.field("day", pa.date32()))


@pytest.fixture(scope="module", autouse=True)
def database(hive: str) -> Iterator[None]:
    """The database `h`."""
    create_database(hive, "h")
    return


def _flat(uri: str, folder: Path, rows: pa.Table = ROWS, **settings: Any) -> HiveExportedTable:
    """Write and register an unpartitioned table, and return it.

    By default, the table is exported to the target `hive`.
    """
    name, location = f"h.flat{next(_NUMBERS)}", folder / "flat"
    location.mkdir()
    pq.write_table(rows, location / "1.parquet")
    register_table(uri, name, location, rows.schema)
    return HiveExportedTable(uri, name, location, **{"exports": ["hive"], **settings})


def _partitioned(uri: str, folder: Path, **settings: Any) -> HiveExportedTable:
    """Write and register a table with the partitions `day=2024-01-01` and `day=2024-01-02`.

    Return the table.
    """
    name, location = f"h.parts{next(_NUMBERS)}", folder / "parts"
    for day in (1, 2):
        (location / f"day=2024-01-0{day}").mkdir(parents=True)
        pq.write_table(ROWS.slice(0, day + 1), location / f"day=2024-01-0{day}" / "1.parquet")
    days = {f"day=2024-01-0{day}": [f"2024-01-0{day}"] for day in (1, 2)}
    register_table(uri, name, location, _SCHEMA, days)
    return HiveExportedTable(uri, name, location, **{"exports": ["hive"], **settings})


def _partitions(table: HiveExportedTable) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """Return properties and column statistics of each partition by its name."""
    from hive_metastore.ttypes import PartitionsStatsRequest

    database, _, name = table.name.partition(".")
    columns = [column.lower() for column in ROWS.column_names]
    with connect(table.uri) as client:
        names = client.get_partition_names(database, name, -1)
        partitions = client.get_partitions_by_names(database, name, names)
        request = PartitionsStatsRequest(database, name, columns, names, engine="hive")
        statistics_by_partition = client.get_partitions_statistics_req(request).partStats
    return {
        f"day={partition.values[0]}": (
            partition.parameters,
            {column.colName: column for column in statistics_by_partition.get(f"day={partition.values[0]}", [])},
        )
        for partition in partitions
    }


def test_a_client_reads_the_statistics_of_every_type(hive: str, tmp_path: Path) -> None:
    """A client of the Hive metastore reads the exported statistics of columns of every type.

    Counts equal those of DuckDB. Numbers and dates have bounds, and texts and bytes have lengths. The table has its row
    count and size.
    """
    table = _flat(hive, tmp_path)
    result = table.export()
    assert (result.state, result.columns, result.notes, result.error) == ("written", 8, (), None)
    statistics = table.read_back()
    file = str(table.folder / "1.parquet")
    for name in ROWS.column_names:
        query = f'select count(distinct "{name}"), count(*) - count("{name}") from read_parquet(?)'
        (distinct, nulls), *_ = duckdb.execute(query, [file]).fetchall()
        numbers = statistics[name.lower()]
        assert numbers["numNulls"] == nulls
        if name not in ("ok", "data"):
            assert numbers["numDVs"] == distinct
    assert {name: statistics["id"][name] for name in ("lowValue", "highValue")} == {"lowValue": 1, "highValue": 3}
    assert (statistics["price"]["lowValue"], statistics["price"]["highValue"]) == (-1.28, 300.0)
    assert (statistics["ratio"]["lowValue"], statistics["ratio"]["highValue"]) == (-3.25, 0.5)
    assert (statistics["born"]["lowValue"], statistics["born"]["highValue"]) == (-1, 19723)
    assert (statistics["name"]["maxColLen"], statistics["name"]["avgColLen"]) == (3, pytest.approx(4 / 3))
    assert (statistics["data"]["maxColLen"], statistics["data"]["avgColLen"]) == (5, 2.0)
    assert (statistics["ok"]["numTrues"], statistics["ok"]["numFalses"]) == (1, 2)
    assert "lowValue" not in statistics["seen"]
    size = (table.folder / "1.parquet").stat().st_size
    assert statistics[""] == {"numRows": "4", "totalSize": str(size), "COLUMN_STATS_ACCURATE": None}


def test_the_metastore_does_not_replace_the_numbers(hive: str, tmp_path: Path) -> None:
    """An export writes the table's size at the exported version, even if a file was added since.

    By itself, the Hive metastore would replace this size by the size of all files in the folder.
    """
    table = _flat(hive, tmp_path)
    size = (table.folder / "1.parquet").stat().st_size
    table.export()
    pq.write_table(ROWS, table.folder / "2.parquet")
    table.remove()
    assert table.write().state == "written"
    assert table.properties()["totalSize"] == str(size)
    table.change_properties(anything="else")  # what a client does that is silent about statistics
    assert table.properties()["totalSize"] == str(2 * size)


def test_accurate_is_declared_on_request_of_columns_with_exact_bounds(hive: str, tmp_path: Path) -> None:
    """With the option `accurate`, the export declares statistics accurate, and Hive answers from them.

    The statistics declared accurate are the table's row count and those of its columns, except columns of timestamps
    and columns with NaN. Without the option, nothing is declared accurate.
    """
    table = _flat(hive, tmp_path)
    table.export(exports={"hive": {"accurate": True}})
    accurate = table.properties()["COLUMN_STATS_ACCURATE"]
    assert '"BASIC_STATS":"true"' in accurate
    assert {name for name in (column.lower() for column in ROWS.column_names) if f'"{name}"' in accurate} == {
        *("id", "price", "name", "born", "ok", "data")
    }
    table.export(exports={"hive": {"accurate": False}})
    assert "COLUMN_STATS_ACCURATE" not in table.properties()


def test_partitions_are_declared_accurate_only_on_request(hive: str, tmp_path: Path) -> None:
    """The metastore declares statistics of a partition accurate when it stores them.

    The export removes this declaration, unless the option `accurate` is set.
    """
    table = _partitioned(hive, tmp_path)
    for is_accurate in (False, True, False):
        table.export(exports={"hive": {"accurate": is_accurate}})
        for properties, _ in _partitions(table).values():
            accurate = properties.get("COLUMN_STATS_ACCURATE", "")
            assert ('"BASIC_STATS":"true"' in accurate, '"id":"true"' in accurate) == (is_accurate, is_accurate)
            assert '"ratio"' not in accurate, "a column with NaN"


def test_partitions_have_their_own_statistics_and_unchanged_ones_are_not_written(hive: str, tmp_path: Path) -> None:
    table = _partitioned(hive, tmp_path)
    table.export()
    before = _partitions(table)
    for day in (1, 2):
        properties, columns = before[f"day=2024-01-0{day}"]
        assert properties["numRows"] == str(day + 1)
        assert properties["totalSize"] == str((table.folder / f"day=2024-01-0{day}" / "1.parquet").stat().st_size)
        assert set(columns) == {name.lower() for name in ROWS.column_names}
        assert columns["id"].statsData.longStats.highValue == day + 1
    assert table.read_back()["id"]["highValue"] == 3
    assert "day" not in table.read_back()
    assert table.state().state == "current"
    pq.write_table(ROWS, table.folder / "day=2024-01-02" / "2.parquet")
    with connect(hive) as client:  # the statistics of an unchanged partition stay as somebody changed them
        client.delete_partition_column_statistics("h", table.name[2:], "day=2024-01-01", "id", "hive")
    table.export()
    after = _partitions(table)
    assert after["day=2024-01-02"][0]["numRows"] == "7"
    assert after["day=2024-01-02"][1]["id"].statsData.longStats.numNulls == 1
    assert "id" not in after["day=2024-01-01"][1]


def test_statistics_of_others_are_replaced_only_on_request(hive: str, tmp_path: Path) -> None:
    """Without `replace`, an export over statistics of others is an error and changes nothing."""
    table = _flat(hive, tmp_path)
    table.change_properties(numRows="17", DO_NOT_UPDATE_STATS="true")
    before = table.properties()
    failed_export = table.export()
    assert failed_export.state == "failed"
    assert failed_export.error is not None
    assert "replace: true" in failed_export.error
    assert table.properties() == before
    assert table.export(exports={"hive": {"replace": True}}).state == "written"
    table.export(exports=["hive"])
    assert table.properties()["numRows"] == "4"
    table.change_properties(numRows="18", DO_NOT_UPDATE_STATS="true")
    assert table.state().state == "absent"
    assert table.export().state == "failed"


def test_partitions_that_others_analysed_are_replaced_only_on_request(hive: str, tmp_path: Path) -> None:
    table = _partitioned(hive, tmp_path)
    with connect(hive) as client:
        partition = client.get_partition_by_name("h", table.name[2:], "day=2024-01-02")
        partition.parameters |= {"numRows": "9"}
        client.alter_partition("h", table.name[2:], partition)
    failed_export = table.export()
    assert failed_export.state == "failed"
    assert failed_export.error is not None
    assert "day=2024-01-02" in failed_export.error
    assert "numRows" not in _partitions(table)["day=2024-01-01"][0]
    assert table.export(exports={"hive": {"replace": True}}).state == "written"
    assert _partitions(table)["day=2024-01-02"][0]["numRows"] == "3"


def test_remove_undoes_the_export(hive: str, tmp_path: Path) -> None:
    """`remove` undoes the export for the table and its partitions.

    It removes statistics, counts and properties.
    """
    table = _partitioned(hive, tmp_path)
    before = table.properties()
    assert table.remove().state == "absent"
    table.export()
    assert table.remove().state == "removed"
    assert table.properties() == before
    assert set(table.read_back()) == {""}
    for properties, columns in _partitions(table).values():
        assert not columns
        assert not [name for name in properties if "metastore-assets" in name or name == "numRows"]
    assert table.remove().state == "absent"
    table.export()
    assert table.state().state == "current"


@pytest.mark.parametrize("kind", ["hive", "spark"])
def test_values_of_a_column_that_is_hidden_now_leave_the_metastore(hive: str, tmp_path: Path, kind: str) -> None:
    """After a column is hidden, the next export removes the column's values from the Hive metastore.

    It removes them from the statistics and properties of the table and of its partitions.
    """
    table = _partitioned(hive, tmp_path, exports=[kind])
    secrets = ROWS.set_column(0, "Id", pa.array([4711004711, 4711004712, None, None]))
    pq.write_table(secrets, table.folder / "day=2024-01-01" / "2.parquet")

    def everything() -> str:
        return repr((table.properties(), table.read_back(), _partitions(table)))

    table.export()
    assert "4711004712" in everything()
    assert table.export(columns={"Id": {"values": "hidden"}}).state == "written"
    assert "47110047" not in everything()


def test_partitions_that_are_exported_no_longer_lose_their_statistics(hive: str, tmp_path: Path) -> None:
    """An export with `partitions: false` removes statistics of partitions.

    Hive would assume that they are accurate.
    """
    table = _partitioned(hive, tmp_path)
    table.export(exports={"hive": {"accurate": True}})
    assert table.export(exports={"hive": {"partitions": False}}).state == "written"
    for properties, columns in _partitions(table).values():
        assert not columns
        assert not {"numRows", "COLUMN_STATS_ACCURATE", "metastore-assets.hive.content"} & set(properties)
    assert table.read_back()["id"]["numDVs"] == 3


def test_remove_leaves_no_statistics_of_ours_after_an_insert(hive: str, tmp_path: Path) -> None:
    """Hive's INSERT changes `numRows` and leaves the statistics of columns.

    A removal of the export then removes these statistics nevertheless, because a column may be hidden by now. The
    changed `numRows` stays.
    """
    table = _flat(hive, tmp_path)
    table.export()
    table.change_properties(numRows="18", DO_NOT_UPDATE_STATS="true")
    assert table.remove().state == "removed"
    assert set(table.read_back()) == {""}
    assert table.properties()["numRows"] == "18"
    assert not [name for name in table.properties() if "metastore-assets" in name]


def test_remove_leaves_only_the_columns_that_others_analysed(hive: str, tmp_path: Path) -> None:
    """Another client analysed one column after the export.

    Removing the export removes the statistics of all other columns, because some may be hidden by now.
    """
    table = _flat(hive, tmp_path)
    table.export()
    _analyse(table, "id")
    assert table.state().state == "absent"
    assert "replace: true" in str(table.export().error)
    assert table.remove().state == "removed"
    assert {name: numbers.get("numDVs") for name, numbers in table.read_back().items()} == {"": None, "id": 77}
    assert not [name for name in table.properties() if "metastore-assets" in name or name == "numRows"]


def test_an_interrupted_removal_leaves_the_columns_that_others_analysed(
    hive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first removal of an export fails when it deletes statistics.

    The second removal leaves only the statistics of the column that another client analysed.
    """
    table = _flat(hive, tmp_path)
    table.export()
    _analyse(table, "id")
    with monkeypatch.context() as patch:
        patch.setattr("metastore_assets.exports.hive.metastore.HiveTable.delete_statistics", _fail)
        assert "the server is gone" in str(table.remove().error)
    assert table.remove().state == "removed"
    assert set(table.read_back()) == {"", "id"}


def _analyse(table: HiveExportedTable, column: str) -> None:
    """Write statistics of one column of a table as another client does."""
    from hive_metastore import ttypes

    database, _, name = table.name.partition(".")
    data = ttypes.ColumnStatisticsData(longStats=ttypes.LongColumnStatsData(numNulls=0, numDVs=77))
    description = ttypes.ColumnStatisticsDesc(True, database, name)
    statistics = [ttypes.ColumnStatisticsObj(column, "bigint", data)]
    with connect(table.uri) as client:
        client.update_table_column_statistics(ttypes.ColumnStatistics(description, statistics, engine="hive"))


def test_properties_of_a_table_with_many_columns_are_split(hive: str, tmp_path: Path) -> None:
    """An export of 200 columns adds no property over 4,000 characters, the limit of metastores."""
    rows = pa.table({f"a_column_with_a_long_name_{index}": [index] for index in range(200)})
    table = _flat(hive, tmp_path, rows)
    before = table.properties()
    assert table.export().columns == 200
    added_properties = {name: text for name, text in table.properties().items() if name not in before}
    assert max(map(len, added_properties.values())) <= 4000
    assert table.state().state == "current"
    table.remove()
    assert not [name for name in table.properties() if "metastore-assets" in name]


@pytest.mark.long
def test_a_table_of_2000_columns(hive: str, tmp_path: Path) -> None:
    """The statistics of a table of 2,000 columns and of its partition are exported.

    The property that lists accurate columns would be too long, so it lists none.
    """
    rows = pa.table({f"a_column_with_a_long_name_{index}": [index] for index in range(2000)})
    location, name = tmp_path / "wide", f"h.wide{next(_NUMBERS)}"
    (location / "p=1").mkdir(parents=True)
    pq.write_table(rows, location / "p=1" / "1.parquet")
    declaration = files("x", str(location), columns=[(column, "bigint") for column in rows.column_names])
    partitioned_declaration = declaration.replaced(
        partition_columns=[("p", "int")], partitions=[(["1"], f"{location}/p=1")]
    )
    register_in_hive(hive, "h", [partitioned_declaration.replaced(name=name.removeprefix("h."))])
    table = HiveExportedTable(hive, name, location, exports={"hive": {"accurate": True}})
    result = table.export()
    assert (result.error, result.columns) == (None, 2000)
    assert table.read_back()["a_column_with_a_long_name_1999"]["highValue"] == 1999
    assert table.properties()["COLUMN_STATS_ACCURATE"] == '{"BASIC_STATS":"true"}'
    assert table.state().state == "current"


def test_remove_does_not_stop_at_a_partition_that_others_analysed(hive: str, tmp_path: Path) -> None:
    """`remove` removes the export even if another client changed the row count of a partition.

    The changed count stays, and all column statistics of partitions are removed.
    """
    table = _partitioned(hive, tmp_path)
    table.export()
    with connect(hive) as client:
        partition = client.get_partition_by_name("h", table.name[2:], "day=2024-01-02")
        partition.parameters |= {"numRows": "9"}
        client.alter_partition("h", table.name[2:], partition)
    table.settings["exports"] = {"hive": {"partitions": False}}
    assert table.remove().state == "removed"
    assert not any(columns for _, columns in _partitions(table).values())
    assert _partitions(table)["day=2024-01-02"][0]["numRows"] == "9"
    assert "numRows" not in _partitions(table)["day=2024-01-01"][0]


def test_an_interrupted_export_is_repeated(hive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted export marks no statistics as accurate, and can be repeated without `replace`."""
    table = _partitioned(hive, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("metastore_assets.exports.hive.metastore.HiveTable.write_statistics", _fail)
        assert "the server is gone" in str(table.export(exports={"hive": {"accurate": True}}).error)
    assert table.state().state == "absent"
    assert "COLUMN_STATS_ACCURATE" not in table.properties()
    assert table.export().state == "written"
    assert table.read_back()["id"]["numDVs"] == 3


@pytest.mark.long
def test_an_export_that_fails_at_any_request_claims_nothing_and_is_repeated(hive: str, tmp_path: Path) -> None:
    """A failed export does not leave statistics that are wrongly declared accurate.

    Exports of version 2 are interrupted at each of their requests. After each interruption, the next export succeeds.
    From version 1 to version 2, one partition changes, one is removed, one is added, and a column is hidden.
    """
    interrupted_export, _ = _interrupted(hive, tmp_path)
    assert interrupted_export.check_each_request("hive") > 10


@pytest.mark.long
def test_a_removal_that_fails_at_any_request_is_repeated(hive: str, tmp_path: Path) -> None:
    interrupted_export, before = _interrupted(hive, tmp_path)
    interrupted_export.check_each_request_of_a_removal(before)


def _interrupted(uri: str, folder: Path) -> tuple[Interrupted, CatalogState]:
    """Return a table with two versions, and the state of the metastore before any export.

    Between the versions, one partition changes, one is removed, one is added, and a column is hidden.
    """
    settings = {"exports": {"hive": {"accurate": True}}, "columns": {"price": {"values": "shown"}}}
    name, location = f"h.interrupted{next(_NUMBERS)}", folder / "interrupted"
    columns = ["Id", "price", "name"]
    for day in (1, 2):
        (location / f"day=2024-01-0{day}").mkdir(parents=True)
        pq.write_table(ROWS.slice(0, day + 1).select(columns), location / f"day=2024-01-0{day}" / "1.parquet")
    days = {f"day=2024-01-0{day}": [f"2024-01-0{day}"] for day in (1, 2, 3)}
    schema = pa.schema([ROWS.schema.field(column) for column in columns] + [pa.field("day", pa.date32())])
    register_table(uri, name, location, schema, days)
    table = HiveExportedTable(uri, name, location, **settings)

    def state() -> CatalogState:
        partitions = {
            key: (_without_times(properties), {column: repr(numbers) for column, numbers in statistics.items()})
            for key, (properties, statistics) in _partitions(table).items()
        }
        statistics = {column: numbers for column, numbers in table.read_back().items() if column}
        return CatalogState(_without_times(table.properties()), statistics, partitions)

    def write(number: int) -> Any:
        table.settings["columns"] = {"price": {"values": "hidden" if number == 2 else "shown"}}
        return table.write(number)

    before = state()
    table.export()
    pq.write_table(ROWS.select(columns), location / "day=2024-01-02" / "2.parquet")
    (location / "day=2024-01-01" / "1.parquet").unlink()
    pq.write_table(ROWS.select(columns), location / "day=2024-01-03" / "1.parquet")
    table.export(columns={"price": {"values": "hidden"}})
    return Interrupted(write, table.remove, table.state, state, HiveTable), before


def _without_times(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in properties.items() if key != "transient_lastDdlTime"}


def _fail(*_: Any) -> None:
    raise OSError("the server is gone")


def test_a_hidden_column_loses_its_statistics(hive: str, tmp_path: Path) -> None:
    """After a column is hidden, the next export removes its statistics from the table and all partitions.

    This includes partitions that did not change.
    """
    table = _partitioned(hive, tmp_path)
    table.export()
    result = table.export(columns={"Id": {"values": "hidden"}, "name": {"values": "hidden"}})
    assert result.state == "written"
    assert any("id" in note and "name" in note for note in result.notes)
    assert not {"id", "name"} & set(table.read_back())
    for properties, columns in _partitions(table).values():
        assert set(columns) == {"price", "ratio", "seen", "born", "ok", "data"}
        assert properties["numRows"] in ("2", "3")


def test_bounds_that_are_unknown_now_leave_the_metastore(hive: str, tmp_path: Path) -> None:
    """An export removes stored bounds from table and partitions if the new version has no bounds.

    If the export only wrote statistics without bounds, the metastore would retain the stored bounds.
    """
    table = _partitioned(hive, tmp_path)
    table.export()
    assert table.read_back()["id"]["lowValue"] == 1
    without = pa.table({"Id": pa.array([None], pa.int64()), "ratio": [float("inf")], "name": ["a"]})
    for day in (1, 2):
        pq.write_table(without, table.folder / f"day=2024-01-0{day}" / "1.parquet")
    table.export()
    assert table.read_back()["id"] == {"numNulls": 2, "numDVs": 0}
    assert table.read_back()["ratio"] == {"numNulls": 0, "numDVs": 1}
    for _, columns in _partitions(table).values():
        assert columns["id"].statsData.longStats.highValue is None
        assert columns["ratio"].statsData.doubleStats.highValue is None


@pytest.mark.parametrize("kind", ["hive", "spark"])
def test_columns_whose_names_differ_only_in_case_are_left_out(hive: str, tmp_path: Path, kind: str) -> None:
    """Columns of data files whose names differ only in case are not exported, and a note names them.

    The catalog has one column for both, and an engine may read either.
    """
    location, name = tmp_path / "twins", f"h.twins{next(_NUMBERS)}"
    location.mkdir()
    pq.write_table(pa.table({"Id": [1, 2], "ID": [7, 8], "other": [1, 2]}), location / "1.parquet")
    register_table(hive, name, location, pa.schema([("id", pa.int64()), ("other", pa.int64())]))
    table = HiveExportedTable(hive, name, location, exports=[kind])
    (note,) = table.export().notes
    assert note == "left out, because their names differ only in case: Id, ID"
    assert set(table.read_back()) == {"", "other"}


def test_columns_that_the_metastore_does_not_declare_are_named(hive: str, tmp_path: Path) -> None:
    location, name = tmp_path / "undeclared", f"h.undeclared{next(_NUMBERS)}"
    location.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "Extra": [7, 8]}), location / "1.parquet")
    register_table(hive, name, location, pa.schema([("id", pa.int64())]))
    table = HiveExportedTable(hive, name, location, exports=["hive"])
    (note,) = table.export().notes
    assert "Extra" in note
    assert set(table.read_back()) == {"", "id"}


def test_selected_columns(hive: str, tmp_path: Path) -> None:
    table = _flat(hive, tmp_path, exports={"hive": {"columns": ["Id", "pr*"]}})
    table.export()
    assert set(table.read_back()) == {"", "id", "price"}


def test_tables_that_have_no_metastore_are_refused(tmp_path: Path) -> None:
    """A table that is configured by its path cannot be exported to Hive.

    The error says to configure it by `catalog` and `table`.
    """
    from metastore_assets.config import TableConfig
    from metastore_assets.errors import ExportError

    config = TableConfig(name="t", uri=str(tmp_path))
    with pytest.raises(ExportError, match=r"'t'.*`catalog` and `table`"):
        HiveTarget(config, HiveTarget.options_model()).status()
