"""Untrusted SQL queries can read the views, and nothing else that the process can access."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from metastore_assets import profile_query
from metastore_assets.errors import QueryError
from metastore_assets.metastore import Metastore
from metastore_assets.sql import VIEWS, query
from metastore_assets.sql.view_columns import histogram_batch
from metastore_assets.statistics.histogram import build_histogram_of_values
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import type_class
from tests.cli.conftest import _published_folder, config_file
from tests.cli.run_command import error_of, run
from tests.lookup.publishing import publish

__all__ = ["_published_folder", "config_file"]

SECRET = "a-line-of-another-file"
_SECRET_FILE = "secret.csv"
VARIABLE = pa.table({"variable": [SECRET]})

ATTACKS = [
    "with x as (copy (select 'evil') to 'x.csv') select 1",
    "with x as (copy (select 'evil') to 'x.parquet') select * from x",
    "with x as (insert into statistics values (1) returning *) select 1",
    "select * from (with x as (copy (select 'evil') to 'x.csv') select 1)",
    "from read_text('secret.csv')",
    "from read_blob('secret.csv')",
    "from read_csv('secret.csv')",
    "from read_csv_auto('secret.csv')",
    "from read_json('secret.csv')",
    "from read_parquet('secret.csv')",
    "from parquet_metadata('secret.csv')",
    "from sniff_csv('secret.csv')",
    "from glob('*')",
    "from 'secret.csv'",
    'select * from "secret.csv"',
    "from query('from read_text(''secret.csv'')')",
    "from query_table('secret.csv')",
    "from json_execute_serialized_sql(json_serialize_sql('from read_text(''secret.csv'')'))",
    "from 's3://bucket/secret.csv'",
    "from read_text('https://127.0.0.1:9/secret.csv')",
    "from VARIABLE",
    "from duckdb_extensions()",
    "select getenv('HOME')",
    "set enable_external_access = true",
    "set lock_configuration = false",
    "reset lock_configuration",
    "pragma enable_profiling",
    "pragma database_list",
    "attach 'x.db'",
    "install httpfs",
    "load httpfs",
    "load 'secret.csv'",
    "export database 'x'",
    "import database 'x'",
    "call enable_logging()",
    "from enable_logging()",
    "from enable_profiling()",
    "copy (select 'evil') to 'x.csv'",
    "create table x as select 1",
    "explain analyze select 1",
    "select 1; copy (select 'evil') to 'x.csv'; select 2",
]


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "working"
    folder.mkdir()
    (folder / _SECRET_FILE).write_text(f"line\n{SECRET}\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("text", ATTACKS)
def test_a_query_reads_no_file_and_writes_none(working_folder: Path, tmp_path: Path, text: str) -> None:
    store = ObjectStore(str(tmp_path / "root"))
    publish(store, pa.table({"i": [1, 2]}))
    with pytest.raises(QueryError) as of_query:
        query(Metastore(store.uri()), text)
    assert SECRET not in str(of_query.value)
    with pytest.raises(QueryError) as of_profile:
        profile_query(text)
    assert SECRET not in str(of_profile.value)
    assert os.listdir(working_folder) == [_SECRET_FILE]


def test_settings_stay_locked_while_a_query_runs(tmp_path: Path) -> None:
    result = query(Metastore(str(tmp_path)), "select name, value from duckdb_settings()").to_pylist()
    settings = {row["name"]: row["value"] for row in result}
    assert settings["enable_external_access"] == "false"
    assert settings["lock_configuration"] == "true"
    assert settings["temp_directory"] != ".tmp"


def test_spilled_data_is_in_a_temporary_folder_that_is_removed(working_folder: Path, tmp_path: Path) -> None:
    text = "select distinct value from duckdb_settings() where name = 'temp_directory'"
    ((folder,),) = [row.values() for row in query(Metastore(str(tmp_path)), text).to_pylist()]
    assert not Path(folder).exists()
    assert Path(folder).parent != working_folder


def test_an_unrestricted_query_reads_files(working_folder: Path, config_file: Path) -> None:
    text = f"select s.column_name, f.line from orders.statistics s, '{working_folder}/secret.csv' f limit 1"
    message = error_of(run("sql", text, config=config_file))
    assert "--unrestricted" in message
    done = run("sql", "--unrestricted", text, "--json", config=config_file)
    assert json.loads(done.stdout)[0]["line"] == SECRET
    ((value, count),) = profile_query(f"from '{working_folder}/secret.csv'", unrestricted=True).top("line")
    assert (str(value), count) == (SECRET, 1)
    with pytest.raises(QueryError, match="one query"):
        profile_query("select 1; select 2", unrestricted=True)


def test_the_message_names_the_switch(working_folder: Path, config_file: Path) -> None:
    for text in ["from read_csv('secret.csv')", "from 'secret.csv'"]:
        assert "--unrestricted" in error_of(run("sql", text, config=config_file)), text
        with pytest.raises(QueryError, match="unrestricted=True"):
            profile_query(text)


_LARGEST = 2**63 - 1
EXTREMES = {
    "nanoseconds": pa.array([-(2**63), _LARGEST, 0, -1, None], pa.timestamp("ns")),
    "zoned": pa.array([-(2**63), _LARGEST, 0, 1, None], pa.timestamp("ns", "UTC")),
    "microseconds": pa.array([-(2**63), _LARGEST, 0, 1, None], pa.timestamp("us")),
    "seconds": pa.array([-(2**63), _LARGEST, 0, 1, None], pa.timestamp("s")),
    "days": pa.array([-(2**31), 2**31 - 1, 0, 1, None], pa.int32()).cast(pa.date32()),
    "doubles": pa.array([1.7976931348623157e308, -1.7976931348623157e308, 5e-324, float("inf"), None]),
    "durations": pa.array([-(2**63), _LARGEST, 0, 1, None], pa.duration("us")),
    "unsigned": pa.array([2**64 - 1, 0, 1, 2, None], pa.uint64()),
}
ABSENT = ("seconds", "durations")
"""Columns whose types or values are not profiled."""


@pytest.mark.parametrize("bins", [1000, 10_000])
def test_no_stored_value_breaks_a_view(tmp_path: Path, bins: int) -> None:
    """All views are readable even if DuckDB's type cannot represent a value.

    The bounds of bins are finite and ordered, and each value has a text.
    """
    store = ObjectStore(str(tmp_path / "root"))
    publish(store, pa.table(EXTREMES), columns={column: {"histogram": bins} for column in EXTREMES})
    (tmp_path / "metastore.yaml").write_text("root: root\ntables: [{name: orders, uri: x}]")
    for view in VIEWS:
        done = run("sql", f"select * from {view}", "--json", config=tmp_path / "metastore.yaml")
        assert done.exit_code == 0, (view, done.stderr)
    metastore = Metastore(store.uri())
    shown_columns = EXTREMES.keys() - {*ABSENT}
    bounds = "column_name, bool_and(lower <= upper and isfinite(lower)) from histograms group by column_name"
    assert _pairs(metastore, bounds) == dict.fromkeys(shown_columns, True)
    values = "column_name, count(value) from frequencies group by column_name"
    assert _pairs(metastore, values) == dict.fromkeys(shown_columns, 4)


def _pairs(metastore: Metastore, selection: str) -> dict[str, object]:
    """Return the first two columns of a query as a dictionary."""
    return dict(tuple(row.values()) for row in query(metastore, f"select {selection}").to_pylist())


def test_bounds_of_a_bin_as_wide_as_all_doubles() -> None:
    ends = np.array([-1.7976931348623157e308, 1.7976931348623157e308])
    histogram = build_histogram_of_values(ends, np.ones(2, np.int64), type_class(pa.float64()), 2)
    assert histogram is not None
    assert histogram.exponent == 1024
    assert histogram_batch("x", histogram).to_pydict()["lower"] == [ends[0], 0.0]
    assert histogram_batch("x", histogram).to_pydict()["upper"] == [0.0, ends[1]]


def test_nanoseconds_are_cut_towards_the_past(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "root"))
    publish(store, pa.table({"at": EXTREMES["nanoseconds"]}))
    text = "select epoch_us(time) as us from frequencies order by rank"
    result = [row["us"] for row in query(Metastore(store.uri()), text).to_pylist()]
    assert result == [-(2**63) // 1000, -1, 0, _LARGEST // 1000]
