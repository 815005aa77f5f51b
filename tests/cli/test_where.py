"""Commands with `--where` answer for the rows that match a predicate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median_low

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.run_command import error_of, run, run_json

ROWS = [{"day": f"2024-01-0{1 + entry // 20}", "x": entry, "shop": "abc"[entry % 3]} for entry in range(100)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a table of five days, with a file each."""
    folder = tmp_path_factory.mktemp("scoped")
    for day in sorted({row["day"] for row in ROWS}):
        part = folder / "lake" / f"day={day}"
        part.mkdir(parents=True)
        entry = [{"x": row["x"], "shop": row["shop"]} for row in ROWS if row["day"] == day]
        pq.write_table(pa.Table.from_pylist(entry), part / "0.parquet")
    config = folder / "metastore.yaml"
    config.write_text("root: ./root\nengine: auto\ntables:\n- {name: t, uri: ./lake}\n")
    assert run("refresh", "t", config=config).exit_code == 0
    return config


@pytest.mark.parametrize(("where", "read"), [("day >= '2024-01-04'", 0), ("x >= 65 and day > '2024-01-01'", 1)])
def test_answers_of_some_rows(lake: Path, where: str, read: int) -> None:
    rows = [row for row in ROWS if row["x"] >= (65 if read else 60)]
    counts = Counter(row["shop"] for row in rows)
    filter_options = ("--where", where)
    answer = run_json("show", "t", *filter_options, config=lake)
    assert (answer["row_count"], answer["where"], answer["current"]) == (len(rows), where, True)
    column = {row["column"]: row for row in answer["columns"]}["x"]
    assert (column["minimum"], column["maximum"]) == (min(row["x"] for row in rows), 99)
    assert (column["distinct_count"], column["distinct_count_guarantee"]) == (len(rows), "exact")
    assert column["singleton_count"] == len(rows)
    result = {
        entry["value"]: entry["frequency"] for entry in run_json("top", "t", "shop", *filter_options, config=lake)
    }
    assert result == counts
    assert sum(entry["frequency"] for entry in run_json("histogram", "t", "x", *filter_options, config=lake)) == len(
        rows
    )
    (half,) = run_json("quantile", "t", "x", "0.5", *filter_options, config=lake)
    assert (half["value"], half["guarantee"]) == (median_low(row["x"] for row in rows), "exact")
    rank = run_json("rank", "t", "x", "90", *filter_options, config=lake)
    assert (rank["rank"], rank["frequency"], rank["row_count"]) == (len(rows) - 10, 1, len(rows))
    of_a_day = run_json("top", "t", "shop", "--partition", "day=2024-01-05", *filter_options, config=lake)
    assert sum(entry["frequency"] for entry in of_a_day) == 20
    output = run("top", "t", "shop", *filter_options, config=lake)
    assert ("read 1 of 5 files" in output.stderr) == bool(read)
    assert f"t where {where}" in run("show", "t", *filter_options, config=lake).stdout


def test_clustering(lake: Path) -> None:
    document = run_json("clustering", "t", config=lake)
    columns = {column["column"]: column for column in document["columns"]}
    assert document["fragments"] == 5
    assert (columns["x"]["depth"], columns["x"]["verdict"]) == (1.0, "clustered")
    assert columns["x"]["skipped"] == pytest.approx(0.8)
    assert (columns["shop"]["depth"], columns["shop"]["verdict"]) == (5.0, "scattered")
    output = run("clustering", "t", config=lake).stdout
    assert "t version 1: 5 files" in output
    assert "cluster or partition the table by it: shop" in output
    assert "'shop'" in error_of(run("clustering", "t", "--columns", "shpo", config=lake))
    page = run("report", "t", "-o", str(lake.parent / "t.html"), config=lake)
    assert page.exit_code == 0
    assert "scattered" in (lake.parent / "t.html").read_text()


def test_invalid_predicates(lake: Path) -> None:
    assert "'shop'" in error_of(run("top", "t", "x", "--where", "shpo = 'a'", config=lake))
    assert "'x >'" in error_of(run("show", "t", "--where", "x >", config=lake))
    assert "--partition, --columns or --where" in error_of(
        run("show", "t", "--partitions", "--where", "x > 1", config=lake), 2
    )
    assert "'day=2025'" in error_of(run("show", "t", "--where", "x > 1", "--partition", "day=2025", config=lake))
