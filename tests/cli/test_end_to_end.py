"""The command on a real lakehouse with Spark, with results compared to DuckDB's.

Commands that start Spark, write to a terminal, are interrupted, or must not import a module run in a subprocess; others
run in this process.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pyarrow.parquet as pq
import pytest

from metastore_assets.formats import encode_partition_key
from tests.cli.lakehouse import TABLES, Lakehouse, build
from tests.cli.run_command import PROGRAM, documents, error_of, execute, run
from tests.cli.test_startup import imported
from tests.cli.test_terminal import on_terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """The lakehouse, refreshed once by the command."""
    new_lakehouse = build(tmp_path_factory.mktemp("lakehouse"))
    done = execute("refresh", "--all", "--json", folder=new_lakehouse.folder)
    # No output of Spark's JVM at its start is passed on.
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row["table"], row["version"], row["published"]) for row in documents(done)] == [
        (table, 1, True) for table in (*TABLES, "instants")
    ]
    assert documents(done)[0]["partitions"] == {"changed": 3, "removed": 0, "total": 3}
    return new_lakehouse


def answer_of(lakehouse: Lakehouse, *arguments: str) -> Any:
    done = run(*arguments, "--json", config=lakehouse.folder / "metastore.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    [document] = documents(done)
    return document


@pytest.mark.parametrize("table", TABLES)
def test_statistics_equal_duckdbs(lakehouse: Lakehouse, table: str) -> None:
    answer = answer_of(lakehouse, "show", table)
    rows = lakehouse.rows(table)
    assert (answer["row_count"], answer["current"]) == (rows.num_rows, True)
    columns = {row["column"]: row for row in answer["columns"]}
    assert set(rows.column_names) <= set(columns)
    for name in rows.column_names:
        statistics, quoted_name = columns[name], f'"{name}"'
        [(values, distinct)] = lakehouse.query_duckdb(
            table, f"SELECT count({quoted_name}), count(DISTINCT {quoted_name}) FROM t"
        )
        assert (statistics["value_count"], statistics["null_count"]) == (values, rows.num_rows - values)
        # Value counts of `note` are not stored, so its distinct count is merged from sketches: an estimate.
        exact = name != "note"
        assert statistics["distinct_count_guarantee"] == ("exact" if exact else "estimate")
        assert statistics["distinct_count"] == (distinct if exact else pytest.approx(distinct, rel=0.05))
        finite = "WHERE NOT isnan(ratio)" if name == "ratio" else ""
        [bounds] = lakehouse.query_duckdb(
            table, f"SELECT min({quoted_name})::VARCHAR, max({quoted_name})::VARCHAR FROM t {finite}"
        )
        if statistics["type"].startswith("double"):
            assert (statistics["minimum"], statistics["maximum"]) == tuple(map(float, bounds))
            assert (
                statistics["nan_count"]
                == rows.num_rows - lakehouse.query_duckdb(table, f"SELECT count(*) FROM t {finite}")[0][0]
            )
        elif statistics["type"] != "bool":
            assert (str(statistics["minimum"]), str(statistics["maximum"])) == bounds
        if statistics["mean"] is not None:
            [(total,)] = lakehouse.query_duckdb(table, f"SELECT sum({quoted_name})::VARCHAR FROM t {finite}")
            assert float(statistics["sum"]) == pytest.approx(float(total), rel=1e-12)
            # Python computes exact fractions; DuckDB loses digits of great numbers that are close together.
            numbers = [value for value in rows.column(name).to_pylist() if value is not None and value == value]
            assert statistics["mean"] == pytest.approx(float(fmean(numbers)), rel=1e-12)
            assert statistics["standard_deviation"] == pytest.approx(float(stdev(numbers)), rel=1e-12)


def test_top_values_equal_duckdbs(lakehouse: Lakehouse) -> None:
    expected = lakehouse.query_duckdb(
        "events", "SELECT kind, count(*) FROM t WHERE kind IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, encode(1::VARCHAR)"
    )
    values_found = answer_of(lakehouse, "top", "events", "kind")
    assert {(row["value"], row["frequency"]) for row in values_found} == set(expected)
    assert [row["frequency"] for row in values_found] == [count for _, count in expected]
    day = lakehouse.query_duckdb("events", "SELECT kind, count(kind) FROM t WHERE day = '2024-01-02' GROUP BY 1")
    values_found = answer_of(lakehouse, "top", "events", "kind", "--partition", "day=2024-01-02")
    assert {(row["value"], row["frequency"]) for row in values_found} == {row for row in day if row[0] is not None}


def test_nanoseconds_and_far_years_without_pandas(lakehouse: Lakehouse) -> None:
    """`show` and `top` print nanoseconds and years beyond 9999 correctly, which pandas does not support.

    The statistics are merged from those of two files.
    """
    expected_values: list[Any] = [
        documents(execute(*arguments, "--json", folder=lakehouse.folder))[0]
        for arguments in (["show", "instants"], ["top", "instants", "at", "-n", "2"])
    ]
    statistics, top = expected_values
    columns = {row["column"]: row for row in statistics["columns"]}
    expected = {
        "time": ("00:00:00.000000001", "00:00:00.000000007", "00:00:00.000001001"),
        "at": ("1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000007", "1970-01-01T00:00:00.000001001"),
        "day": ("+10000-01-01", "+10000-01-07", "+10002-09-27"),
    }
    for name, (least, median, greatest) in expected.items():
        row = columns[name]
        percentiles = {one["fraction"]: one["value"] for one in row["percentiles"]}
        assert (row["minimum"], percentiles[0.5], row["maximum"]) == (least, median, greatest)
        assert (percentiles[0.01], percentiles[0.99], row["percentiles_guarantee"]) == (least, greatest, "exact")
    assert columns["lasted"]["reason"] == "duration[ns] is not a type that values are profiled of"
    output = execute("show", "instants", folder=lakehouse.folder).stdout
    assert all(least.replace("T", " ") in output for least, _, _ in expected.values())
    assert [one["value"] for one in top] == [
        "1970-01-01T00:00:00.000000001",
        "1970-01-01T00:00:00.000000005",
    ]


@pytest.mark.parametrize("bins", [None, "7"])
def test_histograms_equal_duckdbs(lakehouse: Lakehouse, bins: str | None) -> None:
    """The frequency of each bin of a printed histogram equals DuckDB's count of the values in the bin.

    A bin has the values from its minimum (inclusive) to its maximum (exclusive).
    """
    values_found = answer_of(lakehouse, "histogram", "events", "price", *([] if bins is None else ["--bins", bins]))
    assert bins is None or len(values_found) <= 7
    for row in values_found if bins else values_found[:: len(values_found) // 20]:
        query = f"SELECT count(*) FROM t WHERE price >= {row['minimum']} AND price < {row['maximum']}"
        assert lakehouse.query_duckdb("events", query) == [(row["frequency"],)]
    assert sum(row["frequency"] for row in values_found) == lakehouse.rows("events").num_rows


def test_partition_keys_of_any_text(lakehouse: Lakehouse) -> None:
    """Partition values may be any text.

    A printed key is accepted as an argument of `--partition`.
    """
    keys = {row["partition"]: row["row_count"] for row in answer_of(lakehouse, "show", "orders", "--partitions")}
    assert keys == {
        encode_partition_key([("country", country)]): count
        for country, count in (("FR", 300), ("a b/c", 50), ("日本", 1))
    }
    for key, count in keys.items():
        assert answer_of(lakehouse, "show", "orders", "--partition", key)["row_count"] == count


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tables"], ["events", "delta", "810"]),
        (["show", "events"], ["events", "810 rows", "version 1", "current", "decimal(12,2)"]),
        (["top", "people", "name", "-n", "2"], ["p0", "other values"]),
        (["histogram", "people", "age", "--bins", "10"], ["from", "below", "frequency", "█"]),
        (["versions", "events"], ["version", "snapshot", "published"]),
        (["expire", "events"], ["removed 0 versions"]),
        (["refresh", "events"], ["up to date", "version 1"]),
        (["refresh", "events", "--dry-run"], ["up to date", "version 1"]),
        (["refresh", "events", "--dry-run", "--full"], ["version 2", "would read 3 fragments", "* day=2024-01-01"]),
        (["refresh", "events", "--dry-run", "--partition", "day=2024-01-01"], ["read 1 fragment", "1 of 3 partitions"]),
        (
            ["refresh", "events", "--dry-run", "--partition", "day=2024-01-0[12]"],
            ["2 of 3 partitions", "* day=2024-01-02"],
        ),
        (
            ["refresh", "orders", "--dry-run", "--partition", "country=a b/c"],
            ["1 of 3 partitions", "* country=a b%2Fc"],
        ),
        (
            ["refresh", "orders", "--dry-run", "--partition", "country=a%20b*"],
            ["1 of 3 partitions", "* country=a b%2Fc"],
        ),
    ],
)
def test_text_output(lakehouse: Lakehouse, arguments: list[str], expected: list[str]) -> None:
    done = run(*arguments, config=lakehouse.folder / "metastore.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(part in done.stdout for part in expected), done.stdout


def test_statistics_on_a_terminal_of_usual_width(lakehouse: Lakehouse) -> None:
    """A terminal of 100 characters per line shows the most important statistics of an ordinary table."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("show", "events", folder=lakehouse.folder, width=100))
    assert "nulls NaN distinct minimum    median     maximum        mean distribution" in output
    assert "not shown: 5 %, 95 %, std dev (see --columns A,B or --json)" in output


def test_an_unchanged_table_is_refreshed_without_spark(lakehouse: Lakehouse) -> None:
    """A refresh of an unchanged table takes less than a second, and does not import Spark."""
    [result] = documents(execute("refresh", "events", "--json", folder=lakehouse.folder))
    assert (result["version"], result["published"]) == (1, False)
    assert result["fragments"] == {"added": 0, "removed": 0, "unchanged": 3, "profiled": 0}
    assert result["seconds"] < 1
    modules = imported("refresh", "--all", folder=lakehouse.folder)
    assert modules & {"pyspark", "py4j", "pandas"} == set()


def test_progress_is_shown_on_a_terminal(lakehouse: Lakehouse) -> None:
    """On a terminal, `refresh` shows its stage, a spinner, counts and the elapsed time in one line.

    The spinner and the time change during a long stage. The line is cleared before the result is printed.
    """
    output = on_terminal("refresh", "events", "--full", folder=lakehouse.folder, width=120)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    frames = [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip()]
    assert any("events: reducing" in frame for frame in frames)
    for stage in ("starting Spark", "events: profiling"):
        # While a stage takes long, the spinner (first character) turns and the time advances.
        assert len({frame[0] for frame in frames if stage in frame}) > 1, stage
    seconds = [60 * int(frame[-5:-3]) + int(frame[-2:]) for frame in frames if re.search(r"\d:\d\d:\d\d$", frame)]
    assert seconds == sorted(seconds)
    assert seconds[-1] >= seconds[0] + 1
    assert re.search(r"0 of 3 fragments(?! ·)", plain)
    assert re.search(r"\d of \d tasks", plain)
    # The last control sequence before the result clears the line.
    before, _, result = output.rpartition("\x1b[2K")
    assert re.sub(r"\x1b\[[0-9;]*m", "", result).startswith("events version 2 of snapshot")
    assert "events" in before


def test_profile_equals_show(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """`profile` prints the statistics that `show` prints, and needs no configuration.

    With `--json`, each URI has a line. A URI without a table does not affect the others. No temporary files are left.
    """
    (tmp_path / "empty").mkdir()
    uris = [str(lakehouse.folder / table) for table in TABLES]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = execute("profile", *uris, "empty", "--json", folder=tmp_path, environment={"TMPDIR": str(scratch)})
    assert done.returncode == 3
    *profiles, failure = documents(done)
    assert failure.keys() == {"uri", "error"}
    assert failure["uri"] == "empty"
    assert "no data files" in failure["error"]
    assert done.stderr == f"error: empty: {failure['error']}\n"
    for uri, table, profile in zip(uris, TABLES, profiles, strict=True):
        answer = answer_of(lakehouse, "show", table)
        assert profile["uri"] == uri
        assert profile["current"] is True
        assert {"table", "version"}.isdisjoint(profile)
        # The policy of `note` differs from the default.
        assert [row for row in profile["columns"] if row["column"] != "note"] == [
            row for row in answer["columns"] if row["column"] != "note"
        ]
    # Spark removes its folders a moment after the command has ended.
    wait_until(lambda: not any(scratch.glob("metastore-*")))


def test_a_failed_start_of_spark_is_one_line(tmp_path: Path) -> None:
    """If Spark does not start, the error has Spark's message and the path of the complete log.

    Secrets in the settings of Spark are not in the error.
    """
    build(tmp_path)
    config = tmp_path / "metastore.yaml"
    config.write_text(config.read_text().replace("local[2]", "nonsense"))
    message = error_of(execute("refresh", "people", folder=tmp_path, environment={"TMPDIR": str(tmp_path)}))
    assert "Master must" in message
    [log] = tmp_path.glob("metastore-spark-*.log")
    assert str(log) in message
    assert "SparkException" in log.read_text()
    log.unlink()
    settings = "spark.driver.memory: lots, spark.hadoop.fs.s3a.secret.key: hush"
    config.write_text(config.read_text().replace("spark.driver.memory: 1g", settings))
    message = error_of(execute("refresh", "people", folder=tmp_path, environment={"TMPDIR": str(tmp_path)}))
    assert "Invalid maximum heap size" in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("moment", "number", "explanation"),
    [
        ("Spark starts", signal.SIGINT, "interrupted\n"),
        ("fragments are profiled", signal.SIGINT, "interrupted\n"),
        ("fragments are profiled", signal.SIGTERM, ""),
    ],
)
def test_an_interrupted_refresh_leaves_no_version(
    tmp_path: Path, moment: str, number: signal.Signals, explanation: str
) -> None:
    """An interrupted refresh has the usual exit status of the signal, and prints at most one line.

    The interrupt is Ctrl-C or SIGTERM. There is no traceback, and no version and no temporary file are left.
    """
    lakehouse = build(tmp_path)
    orders = lakehouse.rows("orders")  # once: the query below would also read it
    for copy in range(120):
        pq.write_table(orders, tmp_path / "orders" / "country=FR" / f"part-{copy}.parquet")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [*PROGRAM, "refresh", "orders"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        find_files = scratch.glob if moment == "Spark starts" else (tmp_path / "root").rglob
        pattern = "metastore-spark-*" if moment == "Spark starts" else "*.parquet"
        wait_until(lambda: any(find_files(pattern)) or process.poll() is not None)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: to all processes of the command
        else:
            process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    # An interrupt while Python creates a class from text ends the process by the signal, even if it is caught.
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    assert (status, stdout, stderr) == (128 + number, "", explanation)
    assert list(scratch.glob("metastore-*")) == []
    assert not (tmp_path / "root" / "orders" / "versions").exists()


def test_a_closed_pipe_is_silent(lakehouse: Lakehouse) -> None:
    """A command prints no error if the reader of its output has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "show", "events"], cwd=lakehouse.folder, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
