"""Exports to Glue: valid requests, the replacement of statistics of others, and removal.

A version is the published statistics of a table at one snapshot. A hidden column has the policy `values: hidden`: new
versions have no values of it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import CatalogConfig
from metastore_assets.exports.catalog_table import TableChangedError
from metastore_assets.exports.glue.catalog import GlueTable
from metastore_assets.exports.glue.target import GlueTarget
from metastore_assets.exports.writing import write_exports
from metastore_assets.formats.catalogs.client import open_catalog
from metastore_assets.store.versions import versions_of
from tests.exports.exported_table import ExportedTable
from tests.exports.glue_statistics import ColumnStatisticsStore
from tests.exports.interrupted_exports import CatalogState, Interrupted
from tests.formats.catalogs.conftest import Glue, glue  # noqa: F401 (a fixture)
from tests.formats.catalogs.table_declarations import files

pytestmark = pytest.mark.s3

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int64()),
        "price": pa.array([Decimal("-1.28"), Decimal("2.00"), None, Decimal("300.00")], pa.decimal128(15, 2)),
        "ratio": pa.array([0.5, float("inf"), -3.25, None]),
        "name": pa.array(["a", "", "ccc", None]),
        "seen": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3 + [None], pa.timestamp("us", "UTC")),
        "born": pa.array([date(1969, 12, 31), date(2024, 1, 1), None, None]),
        "ok": pa.array([True, False, False, None]),
        "data": pa.array([b"\x00", b"", b"12345", None]),
    }
)
_TYPES = ("bigint", "decimal(15,2)", "double", "string", "timestamp", "date", "boolean", "binary")
_LENGTHS = {"NumberOfDistinctValues": 9, "MaximumLength": 99, "AverageLength": 9.0}
_COLUMNS = tuple(zip(ROWS.column_names, _TYPES, strict=True))


class GlueLab:
    """Tables in Glue and their column statistics."""

    def __init__(self, database: Glue, folder: Path) -> None:
        self.glue = database
        self.folder = folder
        # A key that nothing reads gives each test a client of its own.
        self.catalog = {**database.properties, "lab": database.database}
        with open_catalog(CatalogConfig.model_validate({**self.catalog, "name": "hms"}), "open") as catalog:
            self.store = ColumnStatisticsStore(catalog.glue)  # type: ignore[attr-defined]

    def flat(self, **settings: Any) -> ExportedTable:
        """Write and register an unpartitioned table of one file, and return it."""
        location = self.folder / "flat"
        location.mkdir()
        pq.write_table(ROWS, location / "1.parquet")
        self.glue.register(files("flat", str(location), columns=_COLUMNS))
        return self._table("flat", location, settings)

    def partitioned(self, **settings: Any) -> ExportedTable:
        """Write and register a table with the partitions `p=1` and `p=2`, and return it.

        The partition `p=2` has the value `02` in Glue.
        """
        location = self.folder / "parts"
        for part in ("1", "02"):
            (location / f"p={part}").mkdir(parents=True)
            pq.write_table(ROWS.slice(0, int(part) + 1), location / f"p={part}" / "1.parquet")
        glue_partitions = [([part], str(location / f"p={part}")) for part in ("1", "02")]
        declaration = files("parts", str(location), columns=_COLUMNS, partition_columns=[("p", "int")])
        self.glue.register(declaration.replaced(partitions=glue_partitions))
        return self._table("parts", location, settings)

    def _table(self, name: str, location: Path, settings: dict[str, Any]) -> ExportedTable:
        identifier = f"{self.glue.database}.{name}"
        return ExportedTable(self.catalog, identifier, location, **{"exports": ["glue"], **settings})

    def properties(self, name: str) -> dict[str, str]:
        table = self.glue.client.get_table(DatabaseName=self.glue.database, Name=name)["Table"]
        return dict(table.get("Parameters", {}))

    def partitions(self, name: str = "parts") -> dict[str, dict[str, str]]:
        """Return the properties of each partition by its value."""
        glue_partitions = self.glue.client.get_partitions(DatabaseName=self.glue.database, TableName=name)["Partitions"]
        return {partition["Values"][0]: partition.get("Parameters", {}) for partition in glue_partitions}

    def analyse(self, name: str, column: str) -> None:
        """Change the statistics of a column as another tool does."""
        statistics = self.store.statistics[self.glue.database, name]
        changed_data = {"Type": "STRING", "StringColumnStatisticsData": {"NumberOfNulls": 77, **_LENGTHS}}
        statistics[column] = {**statistics[column], "StatisticsData": changed_data}

    def change_properties(self, name: str, **changes: str) -> None:
        GlueTable(self.glue.client, self.glue.database, name).change_properties(changes)


@pytest.fixture
def lab(glue: Glue, tmp_path: Path) -> GlueLab:  # noqa: F811
    return GlueLab(glue, tmp_path)


def test_requests_have_the_statistics_of_every_type(lab: GlueLab) -> None:
    """An export writes the statistics of columns of every type, and the row count and size of the table.

    Each request is valid by botocore's model of Glue. Infinite bounds are left out.
    """
    table = lab.flat()
    result = table.export()
    assert (result.state, result.columns, result.notes, result.error) == ("written", 8, (), None)
    assert lab.store.of(lab.glue.database, "flat") == {
        "id": ("LONG", _counts(1, 3) | {"MinimumValue": 1, "MaximumValue": 3}),
        "price": ("DECIMAL", _counts(1, 3) | {"MinimumValue": _decimal(-128), "MaximumValue": _decimal(30000)}),
        "ratio": ("DOUBLE", _counts(1, 3) | {"MinimumValue": -3.25}),
        "name": ("STRING", _counts(1, 3) | {"MaximumLength": 3, "AverageLength": pytest.approx(4 / 3)}),
        "seen": ("LONG", _counts(3 - 2, 1)),
        "born": ("DATE", _counts(2, 2) | {"MinimumValue": _day(1969, 12, 31), "MaximumValue": _day(2024, 1, 1)}),
        "ok": ("BOOLEAN", {"NumberOfNulls": 1, "NumberOfTrues": 1, "NumberOfFalses": 2}),
        "data": ("BINARY", {"NumberOfNulls": 1, "MaximumLength": 5, "AverageLength": 2.0}),
    }
    properties = lab.properties("flat")
    assert (properties["numRows"], int(properties["totalSize"])) == (
        "4",
        (table.folder / "1.parquet").stat().st_size,
    )
    assert table.state().state == "current"


def _counts(nulls: int, distinct: int) -> dict[str, Any]:
    return {"NumberOfNulls": nulls, "NumberOfDistinctValues": distinct}


def _decimal(unscaled_value: int) -> dict[str, Any]:
    size = 1 if -128 <= unscaled_value < 128 else 2
    return {"UnscaledValue": unscaled_value.to_bytes(size, "big", signed=True), "Scale": 2}


def _day(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


def test_a_request_has_at_most_25_columns(lab: GlueLab) -> None:
    rows = pa.table({f"c{index:02}": [index] for index in range(60)})
    location = lab.folder / "wide"
    location.mkdir()
    pq.write_table(rows, location / "1.parquet")
    lab.glue.register(files("wide", str(location), columns=[(name, "bigint") for name in rows.column_names]))
    table = ExportedTable(lab.catalog, f"{lab.glue.database}.wide", location, exports=["glue"])
    assert table.export().columns == 60
    updates = [params for name, params in lab.store.requests if name == "UpdateColumnStatisticsForTable"]
    assert [len(params["ColumnStatisticsList"]) for params in updates] == [25, 25, 10]
    assert len(lab.store.of(lab.glue.database, "wide")) == 60


def test_partitions_have_their_own_statistics_and_unchanged_ones_are_not_written(lab: GlueLab) -> None:
    table = lab.partitioned()
    table.export()
    assert {value: properties["numRows"] for value, properties in lab.partitions().items()} == {"1": "2", "02": "3"}
    assert lab.store.of(lab.glue.database, "parts", "1")["id"][1]["MaximumValue"] == 2
    assert lab.store.of(lab.glue.database, "parts", "02")["id"][1]["MaximumValue"] == 3
    lab.store.requests.clear()
    pq.write_table(ROWS, table.folder / "p=02" / "2.parquet")
    table.export()
    written_partitions = [
        params["PartitionValues"] for name, params in lab.store.requests if name == "UpdateColumnStatisticsForPartition"
    ]
    assert written_partitions == [["02"]]
    assert lab.partitions()["02"]["numRows"] == "7"


def test_partitions_that_glue_leaves_unprocessed_are_requested_again(lab: GlueLab) -> None:
    """`BatchGetPartition` may return some of the requested partitions, and the keys of the others.

    The others are then requested again. If a request returns no partition, the export fails.
    """

    def leave_all_but_first(parsed: dict[str, Any], **_: Any) -> None:
        rest = parsed["Partitions"][1:]
        parsed |= {
            "Partitions": parsed["Partitions"][:1],
            "UnprocessedKeys": [{"Values": partition["Values"]} for partition in rest],
        }

    def leave_all(parsed: dict[str, Any], **_: Any) -> None:
        keys = [{"Values": partition["Values"]} for partition in parsed["Partitions"]]
        parsed |= {"Partitions": [], "UnprocessedKeys": keys}

    table = lab.partitioned()
    events = lab.store.events
    events.register("after-call.glue.BatchGetPartition", leave_all_but_first)
    assert table.export().state == "written"
    assert {value: properties["numRows"] for value, properties in lab.partitions().items()} == {"1": "2", "02": "3"}
    events.unregister("after-call.glue.BatchGetPartition", leave_all_but_first)
    events.register("after-call.glue.BatchGetPartition", leave_all)
    pq.write_table(ROWS, table.folder / "p=02" / "2.parquet")
    failed_export = table.export()
    assert failed_export.state == "failed"
    assert re.search(r"\bGlue\b.*\b1 partitions\b", str(failed_export.error))


def test_statistics_of_others_are_replaced_only_on_request(lab: GlueLab) -> None:
    """Without `replace`, an export over statistics of other tools is an error and changes nothing."""
    table = lab.flat()
    lab.change_properties("flat", numRows="17")
    before = lab.properties("flat")
    failed_export = table.export()
    assert failed_export.state == "failed"
    assert "replace: true" in str(failed_export.error)
    assert (lab.properties("flat"), lab.store.of(lab.glue.database, "flat")) == (before, {})
    assert table.export(exports={"glue": {"replace": True}}).state == "written"
    assert lab.properties("flat")["numRows"] == "4"
    del lab.store.statistics[lab.glue.database, "flat"]["id"]
    assert table.state().state == "absent"
    assert table.export(exports=["glue"]).state == "failed"


def test_remove_undoes_the_export(lab: GlueLab) -> None:
    table = lab.partitioned()
    before = lab.properties("parts"), lab.partitions()
    assert table.remove().state == "absent"
    table.export()
    assert table.remove().state == "removed"
    assert (lab.properties("parts"), lab.partitions()) == before
    assert not any(lab.store.statistics.values())
    assert table.export().state == "written"


def test_values_of_a_column_that_is_hidden_now_leave_the_catalog(lab: GlueLab) -> None:
    """After a column is hidden, the next export removes the column's values from the catalog.

    It removes them from the statistics and properties of the table and of its partitions.
    """
    table = lab.partitioned()
    secrets = ROWS.set_column(0, "id", pa.array([4711004711, 4711004712, None, None]))
    pq.write_table(secrets, table.folder / "p=1" / "2.parquet")

    def everything() -> str:
        return repr((lab.properties("parts"), lab.partitions(), dict(lab.store.statistics)))

    table.export()
    assert "4711004712" in everything()
    assert table.export(columns={"id": {"values": "hidden"}}).state == "written"
    assert "47110047" not in everything()


def test_partitions_that_are_exported_no_longer_lose_their_statistics(lab: GlueLab) -> None:
    """An export with `partitions: false` removes statistics of partitions, which would become outdated."""
    table = lab.partitioned()
    before = lab.partitions()
    table.export()
    assert table.export(exports={"glue": {"partitions": False}}).state == "written"
    assert lab.partitions() == before
    assert not lab.store.of(lab.glue.database, "parts", "1")
    assert set(lab.store.of(lab.glue.database, "parts")) == set(ROWS.column_names)
    table.export(exports=["glue"])
    assert lab.partitions()["1"]["numRows"] == "2"


def test_remove_leaves_rows_of_partitions_that_others_counted(lab: GlueLab) -> None:
    table = lab.partitioned()
    table.export()
    client = GlueTable(lab.glue.client, lab.glue.database, "parts")
    client.change_partitions([("1",)], lambda _, properties: {**properties, "numRows": "9"})
    assert table.remove().state == "removed"
    assert not lab.store.of(lab.glue.database, "parts", "1")
    rows = {value: properties.get("numRows") for value, properties in lab.partitions().items()}
    assert rows == {"1": "9", "02": None}


def test_remove_leaves_only_the_columns_that_others_analysed(lab: GlueLab) -> None:
    """Another tool analysed one column after the export.

    Removing the export removes the statistics of all other columns, because some may be hidden by now.
    """
    table = lab.flat()
    table.export()
    lab.analyse("flat", "name")
    assert table.state().state == "absent"
    assert table.remove().state == "removed"
    assert set(lab.store.of(lab.glue.database, "flat")) == {"name"}
    assert not {name for name in lab.properties("flat") if "metastore-assets" in name or name == "numRows"}


def test_a_purge_removes_a_hidden_column_although_others_analysed_another(lab: GlueLab) -> None:
    table = lab.flat()
    table.export()
    lab.analyse("flat", "name")
    table.settings["columns"] = {"id": {"values": "hidden"}}
    assert "replace: true" in str(table.write(rewrite=True).error)
    assert set(lab.store.of(lab.glue.database, "flat")) == {"name"}


def test_properties_of_a_table_with_many_columns_are_split(lab: GlueLab) -> None:
    """An export of 200 columns stores no property over 4,000 characters, the limit of metastores."""
    rows = pa.table({f"a_column_with_a_long_name_{index}": [index] for index in range(200)})
    location = lab.folder / "many"
    location.mkdir()
    pq.write_table(rows, location / "1.parquet")
    lab.glue.register(files("many", str(location), columns=[(name, "bigint") for name in rows.column_names]))
    table = ExportedTable(lab.catalog, f"{lab.glue.database}.many", location, exports=["glue"])
    before = lab.properties("many")
    assert table.export().columns == 200
    assert max(map(len, lab.properties("many").values())) <= 4000
    assert table.state().state == "current"
    table.settings["exports"] = {"glue": {"columns": ["*_7"]}}
    assert table.export().columns == 1
    assert len(lab.store.of(lab.glue.database, "many")) == 1
    assert table.remove().state == "removed"
    assert lab.properties("many") == before
    assert not lab.store.of(lab.glue.database, "many")


def test_a_hidden_column_loses_its_statistics(lab: GlueLab) -> None:
    table = lab.partitioned()
    table.export()
    table.export(columns={"id": {"values": "hidden"}})
    for values in ((), ("1",), ("02",)):
        assert set(lab.store.of(lab.glue.database, "parts", *values)) == set(ROWS.column_names) - {"id"}


def test_an_interrupted_export_is_repeated(lab: GlueLab, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lab.partitioned()
    with monkeypatch.context() as patch:
        patch.setattr(GlueTable, "write_statistics", _fail)
        assert table.export().state == "failed"
    assert table.state().state == "absent"
    assert table.export().state == "written"
    assert table.state().state == "current"


def test_two_exports_at_once_end_with_the_newest_version(lab: GlueLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """During an export of version 1, another process exports version 2.

    The first export is repeated with version 2.
    """
    interrupted_export, _ = _interrupted(lab)
    expected_state = interrupted_export.state()
    table = lab._table("interrupted", lab.folder / "interrupted", {"columns": {"price": {"values": "hidden"}}})
    write_statistics, numbers = GlueTable.write_statistics, iter([1, 2])

    def write_while_another_exports(*arguments: Any) -> int:
        patch.setattr(GlueTable, "write_statistics", write_statistics)
        table.write(2)
        return write_statistics(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("metastore_assets.exports.writing._WAIT_SECONDS", 0)
        patch.setattr(GlueTable, "write_statistics", write_while_another_exports)
        table_config, objects, _ = table._version()
        versions = versions_of(table.config, "t")
        (result,) = write_exports(table_config, objects, lambda: versions.read(next(numbers)))
    assert (result.state, result.version) == ("written", 2)
    assert interrupted_export.state() == expected_state


def test_two_exports_at_once_claim_nothing_of_each_other(lab: GlueLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """During each attempt to export version 1, another process exports version 2.

    The export of version 1 fails, and the status of the table's export is then `absent`. The next export writes
    everything.
    """
    interrupted_export, _ = _interrupted(lab)
    interrupted_export.remove()
    interrupted_export.write(2)
    expected_state = interrupted_export.state()
    write_statistics = GlueTable.write_statistics
    with monkeypatch.context() as patch:

        def write_while_another_exports(*arguments: Any) -> int:
            patch.setattr(GlueTable, "write_statistics", write_statistics)
            assert interrupted_export.write(2).state == "written"
            patch.setattr(GlueTable, "write_statistics", write_while_another_exports)
            return write_statistics(*arguments)

        patch.setattr("metastore_assets.exports.writing._WAIT_SECONDS", 0)
        patch.setattr(GlueTable, "write_statistics", write_while_another_exports)
        assert interrupted_export.write(1).error == str(TableChangedError())
    assert interrupted_export.status().state == "absent"
    assert interrupted_export.write(2).state == "written"
    assert interrupted_export.state() == expected_state


@pytest.mark.long
def test_an_export_that_fails_at_any_request_claims_nothing_and_is_repeated(lab: GlueLab) -> None:
    """A failed export or removal does not leave statistics that are wrongly declared accurate.

    Exports and removals are interrupted at each of their requests. They are then repeated, and succeed. Between the two
    versions, one partition changes, one is removed, one is added, and a column is hidden.
    """
    interrupted_export, before = _interrupted(lab)
    assert interrupted_export.check_each_request("glue") > 10
    interrupted_export.check_each_request_of_a_removal(before)


def _interrupted(lab: GlueLab) -> tuple[Interrupted, CatalogState]:
    """Return an export to interrupt, and the state of the catalog before any export.

    The export is that of a table with two versions. Between the versions, one partition changes, one is removed, one is
    added, and a column is hidden.
    """
    location, columns = lab.folder / "interrupted", ["id", "price", "name"]
    for part in (1, 2):
        (location / f"p={part}").mkdir(parents=True)
        pq.write_table(ROWS.slice(0, part + 1).select(columns), location / f"p={part}" / "1.parquet")
    types = [pair for pair in _COLUMNS if pair[0] in columns]
    declaration = files("interrupted", str(location), columns=types, partition_columns=[("p", "int")])
    lab.glue.register(declaration.replaced(partitions=[([str(p)], str(location / f"p={p}")) for p in (1, 2, 3)]))
    table = lab._table("interrupted", location, {})

    def state() -> CatalogState:
        partitions = {
            value: (properties, lab.store.of(lab.glue.database, "interrupted", value))
            for value, properties in lab.partitions("interrupted").items()
        }
        return CatalogState(lab.properties("interrupted"), lab.store.of(lab.glue.database, "interrupted"), partitions)

    def write(number: int) -> Any:
        table.settings["columns"] = {"price": {"values": "hidden" if number == 2 else "shown"}}
        return table.write(number)

    before = state()
    table.export()
    pq.write_table(ROWS.select(columns), location / "p=2" / "2.parquet")
    (location / "p=1" / "1.parquet").unlink()
    (location / "p=3").mkdir()
    pq.write_table(ROWS.select(columns), location / "p=3" / "1.parquet")
    table.export(columns={"price": {"values": "hidden"}})
    return Interrupted(write, table.remove, table.state, state, GlueTable), before


def _fail(*_: Any) -> None:
    raise OSError("the server is gone")


def test_tables_that_are_not_in_glue_are_refused(tmp_path: Path) -> None:
    from metastore_assets.config import TableConfig
    from metastore_assets.errors import ExportError

    config = TableConfig(name="t", uri=str(tmp_path))
    with pytest.raises(ExportError, match=r"'t'.*`catalog` and `table`"):
        GlueTarget(config, GlueTarget.options_model()).status()
