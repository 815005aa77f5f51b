"""The commands that query values: their output as JSON and as text.

The value counts of a column are its distinct values with the frequency of each. A policy says which values and
statistics of a column are stored.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.cli.conftest import COUNT
from tests.cli.run_command import error_of, run, run_json


def test_quantile(config_file: Path) -> None:
    quantiles = run_json("quantile", "orders", "day", "0", "0.5", "1", config=config_file)
    assert quantiles == [
        {"q": 0.0, "value": "2024-01-01", "guarantee": "exact"},
        {"q": 0.5, "value": "2024-01-14", "guarantee": "exact"},
        {"q": 1.0, "value": "2024-01-28", "guarantee": "exact"},
    ]
    half = run_json("quantile", "orders", "price", "1/2", "--partition", "half=2", config=config_file)
    assert half == [{"q": 0.5, "value": "3.90", "guarantee": "exact"}]
    between = run_json("quantile", "orders", "price", "0.5", "--continuous", config=config_file)
    assert between == [{"q": 0.5, "value": 3.95, "guarantee": "exact"}]
    answer = run_json("quantile", "orders", "id", "0.5", config=config_file)
    assert answer[0]["guarantee"] == "estimate"
    assert abs(answer[0]["value"] - COUNT / 2) < 5
    lines = run("quantile", "orders", "day", "0.25", config=config_file).stdout.splitlines()
    assert lines[0].startswith("day date")
    assert lines[2].split() == ["0.25", "2024-01-07"]


def test_rank(config_file: Path) -> None:
    assert run_json("rank", "orders", "big", str(2**62 + 5), config=config_file) == {
        "rank": 5,
        "frequency": 1,
        "row_count": COUNT,
        "guarantee": "exact",
    }
    assert run_json("rank", "orders", "price", "-1", config=config_file)["rank"] == 0, "a negative number is a value"
    assert run_json("rank", "orders", "state", "new", "--partition", "half=1", config=config_file) == {
        "rank": 60,
        "frequency": 120,
        "row_count": 200,
        "guarantee": "exact",
    }
    answer = run_json("rank", "orders", "id", "100", config=config_file)
    assert (answer["guarantee"], answer["frequency"]) == ("estimate", None)
    assert abs(answer["rank"] - 100) < 5
    assert (
        "120 of the values in 400 rows are less than new, which occurs 240 times"
        in run("rank", "orders", "state", "new", config=config_file).stdout
    )
    assert "frequency is not stored" in run("rank", "orders", "id", "100", config=config_file).stdout
    assert "are less than '', which occurs 0 times" in run("rank", "orders", "state", "", config=config_file).stdout


def test_where(config_file: Path) -> None:
    assert run_json("locate", "orders", "state", "new", config=config_file) == [
        {"partition": "half=1", "frequency": 120},
        {"partition": "half=2", "frequency": 120},
    ]
    assert run_json("locate", "orders", "big", str(2**62), config=config_file) == [
        {"partition": "half=1", "frequency": 1}
    ]
    assert run_json("locate", "orders", "state", "old", config=config_file) == []
    assert "no partition holds it" in run("locate", "orders", "state", "old", config=config_file).stdout
    assert "half=2" in run("locate", "orders", "state", "new", config=config_file).stdout


def test_show_has_singletons_and_entropy(config_file: Path) -> None:
    """`show` prints the entropy, and the number of values that occur once (singletons), for a table.

    For a partition, it prints both only for columns in `--columns`. A column without stored value counts has neither.
    """
    columns = {row["column"]: row for row in run_json("show", "orders", config=config_file)["columns"]}
    assert (columns["big"]["singleton_count"], columns["big"]["duplicate_count"]) == (COUNT, 0)
    assert columns["big"]["entropy"] == pytest.approx(8.6438561898)
    assert columns["state"]["entropy"] == pytest.approx(0.9182958341)
    assert (columns["id"]["singleton_count"], columns["id"]["entropy"]) == (None, None)
    of_partition = run_json("show", "orders", "--partition", "half=1", config=config_file)["columns"]
    assert {row["entropy"] for row in of_partition} == {None}
    (column,) = run_json("show", "orders", "--partition", "half=1", "--columns", "state", config=config_file)["columns"]
    assert column["singleton_count"] == 0
    expected_line = "state: 2 values occur more than once, 0 once; entropy 0.918296 bits"
    assert expected_line in run("show", "orders", "--columns", "state", config=config_file).stdout


def test_compact(config_file: Path) -> None:
    """`compact` publishes a version whose value counts are in one plain Parquet file.

    A second call finds nothing to do.
    """
    done = run_json("compact", "orders", config=config_file)
    assert (done["published"], done["version"], done["ranks"]) == (True, 3, None)
    assert done["files"] == done["files_before"]
    value_counts = pq.read_table(done["frequencies"].removeprefix("file://"))
    assert value_counts.column_names == ["column", "value", "frequency"]
    again = run("compact", "orders", config=config_file).stdout.splitlines()
    assert "has compact value counts at version 3" in again[0]
    assert again[1].split() == ["frequencies", done["frequencies"]]
    assert run_json("compact", "orders", config=config_file) == {**done, "published": False}
    versions = VersionStore(ObjectStore(str(config_file.parent / "root")), "orders")
    assert versions.newest() == 3


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["quantile", "orders", "day", "1.5"], ["'1.5'", "0 to 1"]),
        (["quantile", "orders", "day", "half"], ["'half'"]),
        (["quantile", "orders", "state", "0.5", "--continuous"], ["'state'", "discrete"]),
        (["quantile", "orders", "tags", "0.5"], ["'tags'", "elements"]),
        (["quantile", "orders", "nope", "0.5"], ["'nope'", "columns"]),
        (["quantile", "orders", "day", "0.5", "--partition", "x"], ["'x'", "half=1"]),
        (["rank", "orders", "day", "yesterday"], ["'yesterday'", "'day'", "2024-01-31"]),
        (["rank", "fresh", "day", "x"], ["'fresh'", "metastore refresh fresh"]),
        (["locate", "orders", "id", "5"], ["'id'", "frequencies: off"]),
        (["locate", "orders", "big", "x"], ["'x'", "'big'", "integer"]),
        (["compact", "fresh"], ["'fresh'", "metastore refresh fresh"]),
        (["compact", "nope"], ["'nope'"]),
    ],
)
def test_unanswerable_queries(config_file: Path, arguments: list[str], explanation: list[str]) -> None:
    for as_json in ([], ["--json"]):
        message = error_of(run(*arguments, *as_json, config=config_file))
        assert all(part in message for part in explanation), message


def test_a_quantile_needs_a_fraction(config_file: Path) -> None:
    result = run("quantile", "orders", "day", config=config_file)
    assert result.exit_code == 2


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The configuration of a table with a column for each policy that stores less than all.

    The table has one file, and is refreshed without Spark.
    """
    (tmp_path / "lake").mkdir()
    columns = {name: [1, 2, 2, 3] for name in ("kept", "hidden", "dropped", "cut")}
    pq.write_table(pa.table({**columns, "items": [[1]] * 4}), tmp_path / "lake" / "a.parquet")
    config = tmp_path / "metastore.yaml"
    config.write_text(
        "root: root\nengine: auto\ntables:\n  - name: t\n    uri: lake\n    columns:\n      hidden: {values: hidden}\n"
        "      dropped: {frequencies: 'off'}\n      cut: {frequencies: top(1)}\n"
    )
    assert run_json("refresh", "t", config=config)["steps"]["value_counts"]["written"]["files"] > 0
    return config


def test_errors_name_the_policy_that_stores_it(small: Path) -> None:
    for command in (["quantile", "t", "hidden", "0.5"], ["rank", "t", "hidden", "2"], ["locate", "t", "hidden", "2"]):
        message = error_of(run(*command, config=small))
        assert "column 'hidden' of table 't'" in message
        assert all(policy in message for policy in ("`values: hidden`", "`shown`"))
    message = error_of(run("locate", "t", "dropped", "2", config=small))
    assert "column 'dropped' of table 't'" in message
    assert all(policy in message for policy in ("`frequencies: off`", "`frequencies: all`"))
    assert run_json("rank", "t", "cut", "3", config=small) == run_json("rank", "t", "kept", "3", config=small)
    (column,) = run_json("show", "t", "--columns", "hidden", config=small)["columns"]
    # Values are hashed with a random key. In one of 800 runs, two of the three fall into the same register.
    assert (column["distinct_count"] in (2, 3), column["distinct_count_guarantee"]) == (True, "estimate")


def test_a_missing_run_is_named_and_rebuilt(small: Path) -> None:
    """If a run (a file of value counts) is missing, commands that need it say to run `refresh --full`.

    A refresh without `--full` fails, too, and publishes no version. After `refresh --full`, the commands work again.
    """
    for path in (small.parent / "root" / "t" / "value_counts").glob("*.parquet"):
        path.unlink()
    for command in (
        ["quantile", "t", "kept", "0.5"],
        ["rank", "t", "kept", "2"],
        ["top", "t", "kept"],
        ["show", "t", "--json"],
    ):
        message = error_of(run(*command, config=small))
        assert "table 't', version 1: " in message
        assert "refresh t --full" in message
    pq.write_table(pa.table({"kept": [3]}), small.parent / "lake" / "b.parquet")
    message = error_of(run("refresh", "t", config=small))
    assert message.startswith("table 't': ")
    assert "`metastore refresh t --full`" in message
    assert [one["version"] for one in run_json("versions", "t", config=small)] == [1]
    assert run_json("refresh", "t", "--full", config=small)["version"] == 2
    assert [one["value"] for one in run_json("quantile", "t", "kept", "0.9", config=small)] == [3]


def test_ranks_imply_all_values(tmp_path: Path) -> None:
    """`ranks: on` stores all values of a column for which the policy `auto` alone stores none.

    A policy that stores no values beside `ranks: on` is an error.
    """
    (tmp_path / "lake").mkdir()
    numbers = range(70_000)
    pq.write_table(pa.table({"ranked": numbers, "auto": numbers}), tmp_path / "lake" / "a.parquet")
    config = tmp_path / "metastore.yaml"
    start = "root: root\nengine: auto\ntables:\n  - name: t\n    uri: lake\n    columns:\n      ranked: {ranks: on"
    config.write_text(f"{start}}}\n")
    run_json("refresh", "t", config=config)
    rank = run_json("rank", "t", "ranked", "123", config=config)
    assert (rank["rank"], rank["frequency"], rank["guarantee"]) == (123, 1, "exact")
    assert run_json("rank", "t", "auto", "123", config=config)["guarantee"] == "estimate"
    for policy in ("frequencies: 'off'", "values: hidden"):
        config.write_text(f"{start}, {policy}}}\n")
        message = error_of(run("refresh", "t", config=config))
        assert "table 't'" in message
        assert "columns.ranked: `ranks: on`" in message


def test_a_statistic_of_value_counts_needs_value_counts(small: Path) -> None:
    """It is an error if a column without value counts requests a statistic that needs them.

    If the table requests the statistic for all columns, this column is no error.
    """
    text = small.read_text()
    shipped_statistic = "metastore_assets.statistics.user_defined.shipped:OutsideFences"
    small.write_text(
        text.replace("{frequencies: 'off'}", f"{{frequencies: 'off', statistics: ['{shipped_statistic}']}}")
    )
    message = error_of(run("refresh", "t", config=small))
    assert message.startswith("table 't': columns.dropped.statistics: ")
    assert "`frequencies: all`" in message
    assert [one["version"] for one in run_json("versions", "t", config=small)] == [1]
    small.write_text(f"{text}    statistics: ['{shipped_statistic}']\n")
    assert run_json("refresh", "t", config=small)["version"] == 2
