"""SQL views have the values of lookups, for every type, in DuckDB and Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from metastore_assets.errors import QueryError
from metastore_assets.history import append_versions
from metastore_assets.lookup.json import scalar_json
from metastore_assets.metastore import Metastore
from metastore_assets.sql import VIEWS, query, read_view, spark_views
from metastore_assets.store.objects import ObjectStore
from tests.cli.run_command import error_of, execute, run, run_json
from tests.lookup.publishing import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table(
    {
        "i": pa.array([3, 1, 1, None], pa.int32()),
        "f": [math.nan, math.inf, -0.5, -0.5],
        "d": pa.array([Decimal("1.50"), Decimal("-7.25"), None, None], pa.decimal128(9, 2)),
        "day": pa.array([date(2024, 2, 29), date(1582, 10, 4), None, None]),
        "far": pa.array([2**31 - 1, -(2**31), 0, 0], pa.int32()).cast(pa.date32()),
        "at": pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)] * 4, pa.timestamp("ms", "UTC")),
        "ns": pa.array([1, -1, 1_500, 2**62], pa.timestamp("ns")),
        "s": ["it's", "", 'a "b"', "é"],
        "b": pa.array([b"\x00", b"\xff", b"", None]),
        "flag": [True, False, None, True],
        "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([n] * 16) for n in range(4)], pa.binary(16))),
        "big": pa.array([2**64 - 1, 0, 0, 1], pa.uint64()),
        "list": [[1], [], None, [2, 2]],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Metastore:
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    publish(store, ROWS.slice(0, 2), name="orders")
    table = publish(store, ROWS, name="orders", partitions={"p=1": ROWS.slice(0, 1), "p=2": ROWS.slice(1)})
    publish(store, ROWS.select(["i"]), name="my-table")
    append_versions(table.versions)
    return Metastore(store.uri())


def test_value_counts_equal_those_of_lookups(metastore: Metastore) -> None:
    table = metastore.table("orders")
    result = query(metastore, "select * from orders.frequencies").to_pylist()
    for row in table.statistics():
        records = [record for record in result if record["column_name"] == row.column]
        if row.frequencies != "enumerated":
            assert records == [], row.column
            continue
        values = {str(scalar_json(value)).lower(): (value, n) for value, n in table.top(row.column, 100)}
        assert {record["value"].lower(): record["frequency"] for record in records} == {
            key: n for key, (_, n) in values.items()
        }
        for record in records:
            value, _ = values[record["value"].lower()]
            assert record["rank"] == table.rank(row.column, value).value, (row.column, record)
            assert (record["number"] is not None) == (row.column in ("i", "f", "d", "big", "list.element"))
    moments = {record["value"]: record["time"] for record in result if record["column_name"] in ("day", "at")}
    assert moments["1582-10-04"] == datetime(1582, 10, 4)
    assert moments["2024-01-01T12:00:00Z"] == datetime(2024, 1, 1, 12)
    nanoseconds = sorted((record["time"] for record in result if record["column_name"] == "ns"), key=lambda time: time)
    assert nanoseconds[0] < datetime(1970, 1, 1), "truncated towards the past"
    assert [record["time"] for record in result if record["column_name"] == "far"][1] == datetime(1970, 1, 1)


def test_statistics_views_equal_lookups(metastore: Metastore) -> None:
    def rows(text: str) -> list[tuple[object, ...]]:
        return [tuple(value.values()) for value in query(metastore, text).to_pylist()]

    assert rows("select table_name, version, row_count from versions order by all") == [
        ("my-table", 1, 4), ("orders", 1, 2), ("orders", 2, 4)]  # fmt: skip
    assert rows("select column_name, null_count, minimum, mean from orders.statistics where position < 3") == [
        ("i", 1, "1", 5 / 3), ("f", 0, "-0.5", math.inf), ("d", 2, "-7.25", -2.875)]  # fmt: skip
    assert rows('select partition, value_count from "my-table".partition_statistics') == [("all", 3)]
    upper = "select partition, value_count from ORDERS.Partition_Statistics where column_name = 'i'"
    assert rows(upper) == [("p=1", 1), ("p=2", 2)]
    assert rows("select version, value_count from orders.history where column_name = 'i'") == [(1, 2), (2, 3)]
    assert rows("select partition, row_count, version from orders.partitions") == [("p=1", 1, 2), ("p=2", 3, 2)]
    assert rows("select count(*) from fragments") == [(0,)]
    table = metastore.table("orders")
    bins = rows("select minimum, maximum, lower, upper, frequency from orders.histograms where column_name = 'd'")
    histogram_rows = [(str(bin_.minimum), str(bin_.maximum), bin_.frequency) for bin_ in table.histogram("d")]
    assert [(bin_[0], bin_[1], bin_[4]) for bin_ in bins] == histogram_rows
    assert (bins[0][2], bins[0][0]) == (float(str(bins[0][0])), bins[0][0])
    twice = "with v as (select 1 as x) select a.x + b.row_count as n from v a, versions b, versions c order by n"
    assert rows(twice) == [(3,)] * 3 + [(5,)] * 6
    for name in VIEWS:
        assert query(metastore, f"select * from {name}").schema.names[0] == "table_name"


def test_only_views_named_in_the_query_are_read(metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is not read if its name is only a column, a word in a text, or a word in a comment."""
    import metastore_assets.sql.engines as engines

    read_views: list[str] = []

    def noted(name: str, *rest: object) -> pa.RecordBatchReader:
        read_views.append(name)
        return read_view(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(engines, "read_view", noted)
    query(metastore, "select frequencies, 'from histograms' from statistics -- fragments")
    assert read_views == ["statistics"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select", "SELECT clause without selection list"),
        ("", "query"),
        ("select 1; select 2", "query"),
        ("drop table statistics", "DROP"),
        ("copy (select 1) to '/tmp/nowhere'", "query"),
        ("pivot (select 1 as x, 2 as y) on x using sum(y)", r"PIVOT.*on column in"),
        ("select nix from statistics", '"nix" not found'),
        ("select * from nix", "nix"),
        ("select * from order.statistics", "syntax error"),
        ("select * from oders.statistics", r"'oders'.*'orders'"),
        ("select * from shop.orders", r"'shop.orders': tables are named without a schema.*'orders'"),
    ],
)
def test_bad_queries_are_errors(metastore: Metastore, text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as error_info:
        query(metastore, text)
    assert "\n" not in str(error_info.value)


def test_a_root_may_have_any_name(tmp_path: Path) -> None:
    name = 'a"; drop table x; --'
    publish(ObjectStore(str(tmp_path)), ROWS.select(["i"]))
    (tmp_path / "orders").rename(tmp_path / name)
    text = 'select count(*) as n from "a""; drop table x; --".statistics'
    assert query(Metastore(str(tmp_path)), text).to_pylist() == [{"n": 1}]


def test_an_empty_root_has_empty_views(tmp_path: Path) -> None:
    empty = Metastore(str(tmp_path / "none"))
    assert query(empty, "select count(*) as n from statistics").to_pylist() == [{"n": 0}]
    assert query(empty, "select * from frequencies").num_rows == 0


def test_the_command_prints_rows(config_file: Path) -> None:
    text = "select column_name, null_count from orders.statistics where null_count > 0"
    assert run_json("sql", text, config=config_file) == [{"column_name": "state", "null_count": 40}]
    odd = "select 1 a, 2 a, 'x\ny' b, 1e400::double c, date '2024-01-31' d, null e, 12345678901234567890 f"
    assert run_json("sql", odd, config=config_file) == [
        {"a": 1, "a_1": 2, "b": "x\ny", "c": "Infinity", "d": "2024-01-31", "e": None, "f": "12345678901234567890"}
    ]
    names = "select 1 a, 2 a, 3 a_1, 4 a"
    assert run_json("sql", names, config=config_file) == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]
    intervals = "select interval 1 day a, interval (-90) second b, interval 14 month c, interval 0 day d, age(now()) e"
    (row,) = run_json("sql", intervals, config=config_file)
    assert row.pop("e").startswith("P")
    assert row == {"a": "P1D", "b": "PT-90S", "c": "P14M", "d": "PT0S"}
    output = run("sql", odd, config=config_file)
    assert output.exit_code == 0
    assert "x\\ny" in output.stdout
    assert "query" in error_of(run("sql", "drop table x", config=config_file))
    process = execute("--config", str(config_file), "sql", text, folder=config_file.parent)
    assert (process.returncode, process.stderr) == (0, "")  # DuckDB must not report leaks at exit, either


@pytest.mark.spark
def test_spark_has_the_same_views(metastore: Metastore, spark: SparkSession) -> None:
    view_names = spark_views(spark, metastore)
    assert view_names == [f"metastore_{name}" for name in VIEWS]
    for name in VIEWS:
        theirs = spark.table(f"metastore_{name}").toArrow()
        ours = read_view(name, metastore, metastore.table_names()).read_all()
        assert theirs.num_rows == ours.num_rows, name
        assert theirs.column_names == ours.column_names, name
    condition = "table_name = 'orders' and column_name = 's'"
    text = f"select value, frequency from metastore_frequencies where {condition} order by 1"
    assert [tuple(row) for row in spark.sql(text).collect()] == [("", 1), ('a "b"', 1), ("it's", 1), ("é", 1)]
    with pytest.raises(ValueError, match="'statistic'"):
        spark_views(spark, metastore, ["statistic"])
