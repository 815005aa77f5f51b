"""Most commands of the command line: their output as JSON and as text, their errors, and `--help`.

A root is the folder with all stored state. A policy says which statistics and values of a column are stored.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import re
from datetime import date
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from metastore_assets.cli.commands.histogram import _draw as draw_histogram
from metastore_assets.cli.commands.refresh import draw_refresh
from metastore_assets.cli.options import parse_column_names
from metastore_assets.cli.output import GridColumn, Page
from metastore_assets.cli.statistics_table import draw_statistics
from metastore_assets.config import CONFIG_VARIABLE
from metastore_assets.report import text
from tests.cli.conftest import COUNT
from tests.cli.run_command import all_commands, error_of, run, run_json


def test_show_has_the_shape_of_the_specification(config_file: Path) -> None:
    answer = run_json("show", "orders", config=config_file)
    assert {key: answer[key] for key in ("table", "version", "snapshot", "current", "row_count")} == {
        "table": "orders",
        "version": 2,
        "snapshot": "snapshot 2",
        "current": False,
        "row_count": COUNT,
    }
    columns = {row["column"]: row for row in answer["columns"]}
    assert list(columns) == ["id", "price", "ratio", "state", "day", "at", "big", "blob", "tags", "tags.element"]
    state = columns["state"]
    assert (state["type"], state["value_count"], state["null_count"]) == ("string", 360, 40)
    assert (state["minimum"], state["maximum"]) == ("done\n\x1b[31m", "new")
    assert (state["minimum_exact"], state["distinct_count"], state["distinct_count_guarantee"]) == (True, 2, "exact")
    assert columns["id"]["sum"] == COUNT * (COUNT - 1) // 2
    assert columns["id"]["mean"] == (COUNT - 1) / 2
    assert columns["id"]["standard_deviation"] == pytest.approx(115.614, abs=1e-3)
    assert (columns["ratio"]["nan_count"], columns["ratio"]["value_count"]) == (8, COUNT)
    assert (columns["price"]["minimum"], columns["price"]["maximum"]) == ("0.00", "8.90")
    assert (columns["day"]["minimum"], columns["day"]["maximum"]) == ("2024-01-01", "2024-01-28")
    assert columns["at"]["maximum"] == "2024-01-01T00:00:59Z"
    assert columns["big"]["minimum"] == str(2**62)
    assert columns["blob"]["maximum"] == "03"
    assert columns["tags"]["reason"]


def test_quoted_names_of_columns_are_literal() -> None:
    """In a list of column names, a name in double quotes may be empty, and have outer blanks and commas.

    A doubled quote in such a name is one quote. Other names are stripped.
    """
    assert parse_column_names('" a", "b ","","c,""d"""') == [" a", "b ", "", 'c,"d"']
    assert parse_column_names(' a ,b"c , "d" ,') == ["a", 'b"c', "d"]


def test_show_some_columns_of_a_partition(config_file: Path) -> None:
    answer = run_json("show", "orders", "--columns", "state, id", "--partition", "half=2", config=config_file)
    assert [row["column"] for row in answer["columns"]] == ["state", "id"]
    assert (answer["partition"], answer["row_count"], answer["columns"][1]["minimum"]) == ("half=2", COUNT - 200, 200)


def test_show_an_older_version(config_file: Path) -> None:
    assert run_json("show", "orders", "--version", "1", config=config_file)["row_count"] == 100


def test_show_partitions(config_file: Path) -> None:
    rows = run_json("show", "orders", "--partitions", config=config_file)
    assert [(row["partition"], row["row_count"], row["version"]) for row in rows] == [
        ("half=1", 200, 2),
        ("half=2", COUNT - 200, 2),
    ]
    output = run("show", "orders", "--partitions", config=config_file).stdout.splitlines()
    assert [line.split()[:2] for line in output[2:]] == [["half=1", "200"], ["half=2", "200"]]


def test_a_table_that_cannot_be_read_is_shown(config_file: Path) -> None:
    result = run("show", "gone", "--json", config=config_file)
    assert result.exit_code == 0
    assert '"current": null' in result.stdout
    assert result.stderr.startswith("note: ")
    assert all(part in result.stderr for part in ("version 1 ", str(config_file.parent / "gone")))
    assert len(result.stderr.splitlines()) == 1
    assert "perhaps outdated" in run("show", "gone", config=config_file).stdout


def test_a_root_in_the_folder_of_a_table_of_plain_files(tmp_path: Path) -> None:
    """A root in the folder of a table is no part of the table, so a second refresh publishes nothing.

    The name of the root begins with `_`, and the listing of the table's files ignores such folders.
    """
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "lake" / "a.parquet")
    config = tmp_path / "metastore.yaml"
    config.write_text("root: lake/_metastore\nengine: auto\ntables: [{name: t, uri: lake}]")
    assert run_json("refresh", "t", config=config)["published"] is True
    assert run_json("refresh", "t", config=config)["published"] is False
    assert run_json("show", "t", config=config)["row_count"] == 2


@pytest.mark.parametrize(
    ("change", "date_note"),
    [
        ("partitions: {half: ['1']}", ""),
        ("partitions: half = '1'", ""),
        ("partitions: day < Current_Date", "the date in its condition on partitions, "),
        ("columns: {id: {frequencies: off}}", ""),
    ],
)
def test_show_says_that_the_configuration_changed(tmp_path: Path, change: str, date_note: str) -> None:
    """After a change of the configuration, `show` reports the version as outdated until a refresh.

    The setting `partitions` or the policy of a column is changed. If the new `partitions` is a condition with
    `current_date`, the printed note names the date as another possible cause.
    """
    config = tmp_path / "metastore.yaml"
    rows = pa.table({"id": [1, 2], "half": ["1", "2"], "day": [date(2024, 1, 1), date(2024, 1, 2)]})
    write_deltalake(tmp_path / "orders", rows, partition_by=["half", "day"])

    def configure(keys: str) -> None:
        config.write_text(f"root: ./root\nengine: auto\ntables: [{{name: orders, uri: ./orders, {keys}}}]")

    configure("")
    assert run("refresh", "orders", config=config).exit_code == 0
    assert run_json("show", "orders", config=config)["current"] is True
    assert "version 1 is current" in run("doctor", config=config).stdout
    configure(change)
    result = run("show", "orders", "--json", config=config)
    assert json.loads(result.stdout)["current"] is False
    note = f"the configuration of the table, {date_note}or the release of this package, has changed since version 1"
    assert result.stderr == f"note: {note}: run `metastore refresh orders` to apply it\n"
    assert "version 1 is outdated: run `metastore refresh orders`" in run("doctor", config=config).stdout
    assert run("refresh", "orders", config=config).exit_code == 0
    assert run_json("show", "orders", config=config)["current"] is True


def test_top(config_file: Path) -> None:
    assert run_json("top", "orders", "state", config=config_file) == [
        {"value": "new", "frequency": 240},
        {"value": "done\n\x1b[31m", "frequency": 120},
    ]
    assert len(run_json("top", "orders", "day", "-n", "3", config=config_file)) == 3
    half = run_json("top", "orders", "state", "--partition", "half=1", config=config_file)
    assert [row["frequency"] for row in half] == [120, 60]


def test_top_escapes_control_characters(config_file: Path) -> None:
    """`top` escapes control characters in values, so they cannot break lines or reach the terminal.

    One line counts the values that are not listed.
    """
    lines = run("top", "orders", "state", "-n", "1", config=config_file).stdout.splitlines()
    assert lines[0] == "state string  360 values, 2 distinct, 40 nulls"
    assert [line.split("  ")[0] for line in lines[1:]] == ["value", "new", "other values", "null"]
    both = run("top", "orders", "state", config=config_file).stdout
    assert r"done\n\x1b[31m" in both
    assert "\x1b" not in both


def test_histogram(config_file: Path) -> None:
    every = run_json("histogram", "orders", "id", config=config_file)
    assert sum(row["frequency"] for row in every) == COUNT
    few = run_json("histogram", "orders", "id", "--bins", "8", config=config_file)
    assert 1 < len(few) <= 8
    assert [set(row) for row in few] == [{"minimum", "maximum", "frequency"}] * len(few)
    assert all(left["maximum"] == right["minimum"] for left, right in pairwise(few))
    assert all(row["frequency"] == min(row["maximum"], COUNT) - row["minimum"] for row in few)


def test_histogram_as_text_lists_every_bin(config_file: Path) -> None:
    """Without a terminal, `histogram` prints one line for each bin.

    There are at most twenty bins unless more are requested.
    """
    few = run("histogram", "orders", "id", "--bins", "8", config=config_file).stdout.splitlines()
    bins = run_json("histogram", "orders", "id", "--bins", "8", config=config_file)
    assert [line.split()[:3] for line in few[2:]] == [
        [str(row["minimum"]), str(row["maximum"]), str(row["frequency"])] for row in bins
    ]
    assert len(run("histogram", "orders", "id", config=config_file).stdout.splitlines()) <= 22


def test_tables(config_file: Path) -> None:
    orders, missing, fresh = run_json("tables", config=config_file)
    assert (orders["table"], orders["version"], orders["row_count"], orders["partitions"]) == ("orders", 2, COUNT, 2)
    assert (missing["version"], missing["uri"]) == (1, str(config_file.parent / "gone"))
    assert (fresh["version"], fresh["snapshot"], fresh["format"]) == (None, None, "files")
    assert orders["published_at"].endswith("Z")
    assert fresh["published_at"] is None
    assert "never refreshed" in run("tables", config=config_file).stdout


def test_versions(config_file: Path) -> None:
    newest, oldest = run_json("versions", "orders", config=config_file)
    assert (newest["version"], newest["row_count"], newest["partitions"]) == (2, COUNT, 2)
    assert (oldest["version"], oldest["row_count"], oldest["snapshot"]) == (1, 100, "snapshot 1")
    assert newest["published_at"] > oldest["published_at"]
    for arguments in ((), ("day",), ("--statistic", "row_count")):
        assert all(
            row["published_at"].endswith("Z") for row in run_json("history", "orders", *arguments, config=config_file)
        )
    assert run("versions", "orders", config=config_file).stdout.splitlines()[1].split()[:3] == ["2", "snapshot", "2"]


def test_expire(config_file: Path) -> None:
    """A version that is younger than `--grace` is not removed.

    The newest version is never removed.
    """
    result = run_json("expire", "orders", "--keep", "1", config=config_file)
    assert (result["versions"], result["files"]) == (0, 0)
    done = run_json("expire", "orders", "--keep", "1", "--grace", "0", config=config_file)
    assert done["versions"] == 1
    assert done["files"] > 0
    assert [row["version"] for row in run_json("versions", "orders", config=config_file)] == [2]
    assert "removed 0 versions" in run("expire", "orders", "--grace", "0", config=config_file).stdout


def test_text_without_a_terminal_is_complete_and_plain(config_file: Path) -> None:
    """Without a terminal, the text of `show` has no colours and no trailing blanks.

    No value is truncated, and no statistic is omitted.
    """
    output = run("show", "orders", config=config_file).stdout
    assert "\x1b" not in output
    assert "…" not in output
    assert [line for line in output.splitlines() if line != line.rstrip()] == []
    headings = " ".join(output.splitlines()[1].split())
    assert headings == "column type nulls NaN distinct minimum 5 % median 95 % maximum mean std dev distribution"
    assert "40  10.0%" in output


def test_a_long_text_is_truncated_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, a value of 1 MB is truncated in a printed table.

    So the other rows are not padded to 1 MB. A value of 1,000 characters is not truncated.
    """
    page = Page()
    page.fitting_grid([GridColumn("value"), GridColumn("n")], [["x" * 1_000_000, "1"], ["y", "2"], ["z" * 1_000, "3"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("x" * 400)
    assert "…" in lines[1]
    assert lines[3] == "z" * 1_000 + "  3"
    assert max(map(len, lines)) < 1_100


def test_percentiles(config_file: Path) -> None:
    """The text of `show` has the 5th, 50th and 95th percentile of each column.

    The JSON has all that are stored.
    """
    answer = run_json("show", "orders", config=config_file)
    lines = {line.split()[0]: line for line in run("show", "orders", config=config_file).stdout.splitlines()[2:]}
    for row in answer["columns"]:
        if row["percentiles"] is None:
            assert row["column"] in ("tags",)
            continue
        percentiles = {one["fraction"]: one["value"] for one in row["percentiles"]}
        assert list(percentiles) == [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]
        bounds = [row["minimum"], percentiles[0.05], percentiles[0.5], percentiles[0.95], row["maximum"]]
        cells = [text.format_typed_value(value, row["type"]) for value in bounds]
        about = "~" if row["percentiles_guarantee"] == "estimate" else ""
        cells[1:4] = [about + cell for cell in cells[1:4]]
        assert re.search(r"\s+".join(map(re.escape, cells)), lines[row["column"]]), (cells, lines[row["column"]])


def test_a_long_plan_names_the_first_and_the_last_partition(capsys: pytest.CaptureFixture[str]) -> None:
    """The printed plan of a refresh names only the first and the last of many changed partitions.

    With `-v`, the plan names all changed partitions.
    """
    counts = {"added": 60, "removed": 0, "unchanged": 0, "profiled": 60}
    plan = {
        "table": "t", "version": 1, "snapshot": "1", "dry_run": True, "published": True, "bytes_to_read": 60,
        "fragments": counts, "partitions": {"changed": 60, "removed": 1, "total": 60},
        "changed_partitions": [f"n={number:02}" for number in range(60)], "removed_partitions": ["n=99"],
    }  # fmt: skip
    page = Page()
    draw_refresh(page, plan, verbose=True)
    assert capsys.readouterr().out.splitlines()[1:] == [*(f"  * n={number:02}" for number in range(60)), "  - n=99"]
    for width in (80, None):
        page.width = width
        draw_refresh(page, plan)
        printed_lines = capsys.readouterr().out.splitlines()[1:]
        assert printed_lines == ["  * n=00", "    … 58 more (-v names all)", "  * n=59", "  - n=99"]


def test_estimates_are_marked(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = run_json("show", "orders", "--columns", "id", config=config_file)["columns"]
    draw_statistics(Page(), [{**row, "percentiles_guarantee": "estimate"}], {})
    assert re.search(r" 0 +~19 +~199 +~379 +399 ", capsys.readouterr().out)


def test_the_configuration_file_is_resolved(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option, a variable or the working folder determines the configuration file.

    The option `--config` stands before or after the command.
    """
    elsewhere = config_file.parent / "root"
    monkeypatch.chdir(elsewhere)
    assert run("tables", "--config", str(config_file)).exit_code == 0
    assert run("tables", config=config_file).exit_code == 0
    error_of(run("tables"))
    monkeypatch.setenv(CONFIG_VARIABLE, str(config_file))
    assert run("tables").exit_code == 0
    monkeypatch.delenv(CONFIG_VARIABLE)
    monkeypatch.chdir(config_file.parent)
    assert run("tables").exit_code == 0


@pytest.mark.parametrize("command", sorted(all_commands().keys() - {"spark-server", "schema"}))
def test_every_command_has_help_and_json(command: str) -> None:
    output = run(command, "--help").stdout
    assert "--json" in output
    assert "--debug" in output


def test_a_histogram_counts_infinities_and_its_last_bin_may_include_the_edge(
    capsys: pytest.CaptureFixture[str],
) -> None:
    column = {
        "column": "x", "type": "double", "value_count": 105, "nan_count": 1, "null_count": 0, "distinct_count": None,
        "maximum": "8",
    }  # fmt: skip
    draw_histogram(Page(), column, [{"minimum": 0, "maximum": 8, "frequency": 2}])
    output = capsys.readouterr().out
    assert "102 infinite values are in no bin" in output
    assert "up to 8" in output
    draw_histogram(Page(), {**column, "maximum": "7"}, [{"minimum": 0, "maximum": 8, "frequency": 104}])
    output = capsys.readouterr().out
    assert "infinite" not in output
    assert "up to" not in output


def test_a_refresh_says_that_value_counts_were_built(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "table": "t", "version": 2, "snapshot": "2", "published": True, "seconds": 1.0, "value_counts": None,
        "fragments": {"added": 1, "removed": 0, "unchanged": 0, "profiled": 1},
        "partitions": {"changed": 1, "removed": 0, "total": 1},
    }  # fmt: skip
    draw_refresh(Page(), result)
    assert "value counts" in capsys.readouterr().out
    draw_refresh(Page(), {**result, "version": 1})
    assert "value counts" not in capsys.readouterr().out


def test_accepted_integers_have_no_grouped_digits() -> None:
    from metastore_assets.checks.column_checks import AcceptedValues

    check = AcceptedValues.model_validate({"values": [1000, 90210, "a  b"]})
    assert check.describe() == "only 1000, 90210, a  b"


def test_bounds_of_values_are_shown_as_written() -> None:
    """Digits are not grouped in the bounds of the check `range`, because a bound may be a year.

    In the bounds of the check `row_count`, digits are grouped, as in all counts.
    """
    from metastore_assets.checks.column_checks import Range
    from metastore_assets.checks.table_checks import RowCount

    assert Range.model_validate({"minimum": 1990, "maximum": 12345.0625}).describe() == "values from 1990 to 12345.0625"
    assert RowCount.model_validate({"minimum": 1990}).describe() == "at least 1,990 rows"


@pytest.mark.parametrize("query", ["select * from fresh", "select * from fresh.statistics"])
def test_sql_says_that_a_configured_table_has_no_version(query: str, config_file: Path) -> None:
    result = run("sql", query, config=config_file)
    assert result.exit_code == 3
    assert "`metastore refresh fresh`" in result.stderr
    assert "refresh" not in run("sql", "select * from nowhere", config=config_file).stderr


def test_sql_suggests_tables_and_views(config_file: Path) -> None:
    misspelt = run("sql", "select * from statistcs", config=config_file)
    message = error_of(misspelt)
    assert all(name in message for name in ("'statistcs'", "'statistics'"))


@pytest.mark.parametrize("table_reference", ["Fresh", "fresh", "FRESH"])
def test_sql_names_a_configured_table_with_capitals(table_reference: str, tmp_path: Path) -> None:
    (tmp_path / "metastore.yaml").write_text("root: root\ntables: [{name: Fresh, uri: fresh}]\n")
    result = run("sql", f"select * from {table_reference}", config=tmp_path / "metastore.yaml")
    assert "`metastore refresh Fresh`" in result.stderr
