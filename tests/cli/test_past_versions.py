"""`history`, `diff` and `report`: the commands about a table's past versions.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from metastore_assets.cli.commands.history import _draw_statistic
from metastore_assets.cli.output import Page
from metastore_assets.history import HistoryPoint
from tests.cli.run_command import error_of, run, run_json


def test_history(config_file: Path) -> None:
    result = run_json("history", "orders", config=config_file)
    assert [(row["version"], row["row_count"], row["partitions"]) for row in result] == [(1, 100, 1), (2, 400, 2)]
    of_column = run_json("history", "orders", "state", config=config_file)
    assert [(row["version"], row["null_count"]) for row in of_column] == [(1, 10), (2, 40)]
    assert of_column[0]["minimum"] == "done\n\x1b[31m"
    points = run_json("history", "orders", "big", "--statistic", "maximum", config=config_file)
    assert [(row["value"], row["guarantee"]) for row in points] == [
        (str(2**62 + 99), "exact"),
        (str(2**62 + 399), "exact"),
    ]
    assert not (config_file.parent / "root" / "orders" / "history").exists(), "reading writes nothing"
    run_json("history", "orders", "--append", config=config_file)
    assert (config_file.parent / "root" / "orders" / "history" / "_delta_log").exists()
    assert run_json("history", "orders", config=config_file) == result


@pytest.mark.parametrize("arguments", [[], ["price"], ["state"], ["tags"], ["id", "--statistic", "distinct_count"]])
def test_history_as_text(config_file: Path, arguments: list[str]) -> None:
    done = run("history", "orders", *arguments, config=config_file)
    assert done.exit_code == 0, done.output
    assert "2 versions, 1 to 2" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("width", [14, 80])
@pytest.mark.parametrize("known_versions", [range(3), range(2, 5), range(97, 100)])
def test_a_chart_has_the_last_versions(
    known_versions: range, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal of 80 columns, `history` draws a chart of the last 66 of 100 versions.

    There is no chart if the statistic is unknown in all these versions, or if the terminal has only 14 columns.
    """
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    points = [
        HistoryPoint(number, "s", moment, float(number) if number in known_versions else None, "exact")
        for number in range(100)
    ]
    page = Page()
    monkeypatch.setattr(page, "width", width)
    _draw_statistic(page, "orders price mean", points)
    assert ("│" in capsys.readouterr().out) == (width == 80 and 99 in known_versions)


def test_history_outlives_expiry(config_file: Path) -> None:
    before = run_json("history", "orders", "price", config=config_file)
    assert run_json("expire", "orders", "--keep", "1", "--grace", "0", config=config_file)["versions"] == 1
    assert run_json("history", "orders", "price", config=config_file) == before
    assert len(run_json("versions", "orders", config=config_file)) == 1


def test_diff(config_file: Path) -> None:
    result = run_json("diff", "orders", "--since", "1", "--version", "2", config=config_file)
    assert (result["from"]["version"], result["to"]["version"], result["row_count"]) == (1, 2, [100, 400])
    columns = {row["column"]: row for row in result["columns"]}
    assert columns["state"]["jensen_shannon"] == 0
    assert columns["id"]["stability_index"] > 1
    assert columns["id"]["before"]["distinct_count"] == 100
    assert run_json("diff", "orders", config=config_file) == result
    assert run_json("diff", "orders", "--since", "snapshot:snapshot 1", config=config_file) == result
    other = run_json("diff", "orders", "--baseline", "gone", config=config_file)
    assert (other["from"]["table"], other["row_count"], other["partitions"]) == ("gone", [400, 400], None)
    assert {row["change"] for row in other["columns"]} == {"same"}
    output = run("diff", "orders", config=config_file).stdout
    assert "rows 100 → 400 (+300)" in output
    assert "10 columns the same" in run("diff", "orders", "--baseline", "gone", config=config_file).stdout
    assert run("diff", "orders", "--baseline", "gone", "--all", config=config_file).stdout.count("the same values") == 9


def test_report(config_file: Path, tmp_path: Path) -> None:
    result = run_json("report", "orders", "-o", str(tmp_path / "page.html"), config=config_file)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert result == {
        "table": "orders",
        "version": 2,
        "file": str(tmp_path / "page.html"),
        "bytes": len(page.encode()),
    }
    assert page.startswith("<!doctype html>")
    assert "Changes since version 1" in page
    assert "\x1b" not in page
    assert run("report", "orders", "-o", "-", "--since", "2", config=config_file).stdout.startswith("<!doctype html>")
    assert "Changes" not in run("report", "gone", "-o", "-", config=config_file).stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["history", "orders", "nix"], "has no column 'nix'"),
        (["history", "fresh"], "no published version"),
        (["diff", "gone"], "no version before 1 to compare with: give another table with --baseline"),
        (["diff", "orders", "--since", "9"], "no version 9; its versions: 1-2"),
        (["diff", "orders", "--version", "2031-13-01"], "no published version of snapshot '2031-13-01'"),
        (
            ["diff", "orders", "--since", "1999-01-01"],
            "of 1999-01-01T00:00:00+00:00 or before; its oldest version, 1, is of 20",
        ),
        (
            ["report", "orders", "-o", "/nowhere/page.html"],
            "cannot write /nowhere/page.html: No such file",
        ),
    ],
)
def test_bad_input_is_an_error(config_file: Path, arguments: list[str], message: str) -> None:
    assert message in error_of(run(*arguments, config=config_file))


def test_an_unknown_statistic_is_a_wrong_use(config_file: Path) -> None:
    result = error_of(run("history", "orders", "id", "--statistic", "nulls", config=config_file), 2)
    assert "'nulls'" in result
    assert "p50 (the median)" in result
    assert "row_count" in error_of(run("history", "orders", "--statistic", "rows", config=config_file), 2)
