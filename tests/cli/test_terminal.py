"""Output on a real terminal fits the terminal's width and has colours; other output has no colours."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.cli.commands.refresh import draw_refresh
from metastore_assets.cli.drawing import short_snapshot
from metastore_assets.cli.output import GridColumn, Page
from metastore_assets.report.text import count_cells
from tests.cli.run_command import PROGRAM, run

REPOSITORY = Path(__file__).parents[2]
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


_IMPORTED = (
    "metastore_assets.cli.commands",
    "metastore_assets.metastore",
    "metastore_assets.pipeline.refresh",
    "rich.live",
)
"""Modules that the server below imports once for all commands."""


@cache
def _server() -> subprocess.Popen[str]:
    """Start the program that runs commands on terminals, until this process ends."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.terminal_server", *_IMPORTED],
        cwd=REPOSITORY,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server


def on_terminal(*arguments: str, folder: Path, width: int = 80, status: int = 0, **environment: str) -> str:
    """Return what a command writes to a terminal of `width` columns.

    The command must end with the exit status `status`.

    The process is forked from one that has imported most modules. It is started without a fork if a variable of the
    environment is one that Python itself reads.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    inherited_variables = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    variables = {**inherited_variables, "TERM": "xterm-256color", **environment}
    wait_for_end: Callable[[], int]
    if any(name.startswith("PYTHON") for name in environment):
        wait_for_end = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
        ).wait
    else:
        wait_for_end = partial(
            _run_forked, {"arguments": arguments, "folder": str(folder), "environment": variables}, theirs
        )
    with ThreadPoolExecutor(1) as pool:
        output_future = pool.submit(_read_all, ours)
        try:
            result = wait_for_end()
        finally:
            os.close(theirs)
    os.close(ours)
    assert result == status, output_future.result()
    return output_future.result().decode().replace("\r\n", "\n")


def _run_forked(request: dict[str, Any], terminal: int) -> int:
    """Let the server run a command on a terminal.

    Returns the exit status, negative for a signal.
    """
    stdin, stdout = _server().stdin, _server().stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(json.dumps({**request, "terminal": os.ttyname(terminal)}) + "\n")
    stdin.flush()
    return int(stdout.readline())


def _read_all(terminal: int) -> bytes:
    """Read what is written to a terminal, until all processes have closed its other end."""
    output = bytearray()
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # On Linux, this error means that the other end is closed.
            return bytes(output)
        if not chunk:
            return bytes(output)
        output += chunk


ALWAYS = ["column", "type", "nulls", "distinct", "minimum", "median", "maximum"]
EVERYTHING = [*ALWAYS, "NaN", "5 %", "95 %", "mean", "std dev", "distribution"]


def headings(line: str) -> set[str]:
    """Return which of the columns' headings a line contains.

    A heading may have a blank, or be the end of another one, as `5 %` of `95 %`.
    """
    return {heading for heading in EVERYTHING if re.search(rf"(?<![\d\w]){heading}(?!\w)", line)}


@pytest.mark.parametrize(
    ("width", "additional_headings"),
    [
        (80, []),
        (100, ["distribution"]),
        (120, ["mean", "distribution"]),
        (160, ["mean", "distribution", "5 %", "95 %", "std dev", "NaN"]),
    ],
)
def test_statistics_fit_the_terminal(config_file: Path, width: int, additional_headings: list[str]) -> None:
    """No line that `show` prints is wider than the terminal.

    A line names the omitted statistics and the options that show them.
    """
    plain = _STYLE.sub("", on_terminal("show", "orders", folder=config_file.parent, width=width))
    lines = plain.splitlines()
    assert max(map(len, lines)) <= width
    shown_headings = headings(lines[1])
    assert {*ALWAYS, *additional_headings} <= shown_headings
    missing = " ".join(plain.partition("not shown: ")[2].split()).partition(" (see --columns A,B or --json)")[0]
    assert set(filter(None, missing.split(", "))) == set(EVERYTHING) - shown_headings


@pytest.mark.parametrize("command", ["show orders", "tables", "history orders", "history orders id"])
def test_a_narrow_terminal_wraps_no_line(config_file: Path, command: str) -> None:
    output = _STYLE.sub("", on_terminal(*command.split(), folder=config_file.parent, width=60))
    assert max(map(len, output.splitlines())) <= 60
    assert "not shown: " in output


def test_named_columns_are_shown_completely(config_file: Path) -> None:
    """The columns named with `--columns` are shown with all statistics, in several tables if necessary."""
    columns, width = "id,price,ratio,state,day,at,blob", 80
    output = _STYLE.sub("", on_terminal("show", "orders", "--columns", columns, folder=config_file.parent, width=width))
    assert "not shown" not in output
    assert max(map(len, output.splitlines())) <= width
    heads = [line for line in output.splitlines() if line.startswith("column")]
    assert set().union(*map(headings, heads)) == set(EVERYTHING)
    assert sum(line.startswith("price") for line in output.splitlines()) == len(heads)


@pytest.mark.parametrize(
    ("arguments", "columns_shown"),
    [
        (["tables"], {"table", "rows", "version", "published", "uri"}),
        (["versions", "orders"], {"version", "snapshot", "published", "rows"}),
    ],
)
def test_lists_fit_the_terminal(config_file: Path, arguments: list[str], columns_shown: set[str]) -> None:
    width = 76
    lines = _STYLE.sub("", on_terminal(*arguments, folder=config_file.parent, width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert columns_shown <= set(lines[0].split())
    *_, note = lines
    assert re.fullmatch(r"  not shown: [a-z, ]+ \(see --json\)", note)
    assert set(lines[0].split()).isdisjoint(note.split(": ")[1].split(" (")[0].split(", "))
    everything = run(*arguments, config=config_file).stdout.splitlines()[0].split()
    assert set(everything) == {*lines[0].split(), *note.split(": ")[1].split(" (")[0].split(", ")}


def test_colours_are_for_terminals_that_want_them(config_file: Path) -> None:
    assert "\x1b[1m" in on_terminal("show", "orders", folder=config_file.parent)
    assert "\x1b" not in on_terminal("show", "orders", folder=config_file.parent, NO_COLOR="1")
    assert "\x1b" not in on_terminal("show", "orders", folder=config_file.parent, TERM="dumb")
    assert "\x1b[1m" in on_terminal("show", "orders", folder=config_file.parent, NO_COLOR=""), (
        "an empty variable counts as unset"
    )


def test_errors_are_coloured_only_for_terminals(config_file: Path) -> None:
    assert "\x1b[31merror: \x1b[0m" in on_terminal("show", "nothing", folder=config_file.parent, status=3)
    assert "\x1b" not in on_terminal("show", "nothing", folder=config_file.parent, status=3, NO_COLOR="1")


_CELLS = st.builds(lambda text, length: (text * 60)[:length], st.sampled_from(["a", "日", "b c é"]), st.integers(0, 60))
_COLUMNS = st.lists(
    st.tuples(st.sampled_from(["", "name", "count", "a long heading"]), st.booleans()), min_size=1, max_size=6
)


@given(_COLUMNS, st.data(), st.integers(20, 120))
def test_any_grid_fits(columns: list[tuple[str, bool]], data: st.DataObject, width: int) -> None:
    """No line is wider than the terminal, except if its numbers or its only column do not fit.

    `fitting_grid` hides only columns that are given as less important, and returns their headings.
    """
    cells = [st.integers(0, 10**9).map(str) if right else _CELLS for _, right in columns]
    rows = data.draw(st.lists(st.tuples(*cells), max_size=4))
    less_important = data.draw(st.lists(st.sampled_from([heading for heading, _ in columns]), max_size=6))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        page = Page()
        page.width = width
        hidden_headings = page.fitting_grid([GridColumn(*column) for column in columns], rows, less_important)
    lines = output.getvalue().splitlines()
    assert len(lines) == len(rows) + 1
    assert Counter(hidden_headings) <= Counter(less_important)
    retained_columns = [column for column in columns if column[0]]
    for heading in hidden_headings:
        retained_columns.remove(next(column for column in reversed(retained_columns) if column[0] == heading))
    assert all(heading in lines[0] for heading, _ in retained_columns), "a column is hidden and reported, or shown"
    narrowest = sum(max(20, len(heading)) for heading, _ in retained_columns) + 2 * len(retained_columns)
    assert max(map(count_cells, lines)) <= max(width, narrowest)


@pytest.mark.parametrize("width", [80, 120])
def test_many_bins_make_a_chart(config_file: Path, width: int) -> None:
    """A histogram of many bins is drawn as a chart that fills most of the terminal's width.

    The greatest frequency is at the axis, and the edges of bins are below.
    """
    output = _STYLE.sub(
        "", on_terminal("histogram", "orders", "id", "--bins", "60", folder=config_file.parent, width=width)
    )
    heading, *chart, axis, edges = output.splitlines()
    assert heading.startswith("id int64  400 values")
    assert len(chart) == 12
    assert re.match(r" *\d+ ┤.*█", chart[0])
    assert 0.5 * width < len(axis) <= width
    assert all(len(line) <= width for line in [*chart, edges])
    assert edges.split()[0] == "0"


def test_top_values_are_cut_to_fit(config_file: Path) -> None:
    output = _STYLE.sub("", on_terminal("top", "orders", "state", folder=config_file.parent, width=60))
    assert max(map(len, output.splitlines())) <= 60


def test_text_is_readable_without_utf_8(config_file: Path) -> None:
    """Characters that the terminal cannot encode are replaced; JSON is escaped."""
    output = on_terminal("show", "orders", folder=config_file.parent, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "orders" in output
    assert on_terminal("show", "orders", "--json", folder=config_file.parent, PYTHONIOENCODING="ascii").isascii()


def test_a_plan_names_columns_whose_types_change(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan has both types of a column whose type changes, and the value and file that cause it.

    If the cause is not known, the plan has only the types. If fields of a struct change, the plan says only that the
    fields differ.
    """
    fragments, partitions = (
        {"added": 1, "removed": 0, "unchanged": 0, "profiled": 1},
        {"changed": 1, "removed": 0, "total": 1},
    )
    plan = {
        "table": "t",
        "version": 2,
        "snapshot": "s",
        "published": True,
        "dry_run": True,
        "bytes_to_read": 10,
        "fragments": fragments,
        "partitions": partitions,
        "changed_partitions": ["all"],
        "removed_partitions": [],
        "type_changes": [
            {"column": "zip", "before": "int64", "now": "string", "reason": "'01234' in /t/b.csv, line 2"},
            {"column": "n", "before": "null", "now": "decimal128(10, 2)", "reason": None},
            {"column": "st", "before": "struct<a: int32>", "now": "struct<b: int32>", "reason": None},
            {"column": "d", "before": "date32[day]", "now": "date64[ms]", "reason": None},
        ],
    }
    draw_refresh(Page(), plan)
    output = capsys.readouterr().out
    assert "zip: int64 → string, because of '01234' in /t/b.csv, line 2\n" in output
    assert "n: null → decimal(10,2)\n" in output
    assert "st: struct, with other fields\n" in output
    assert "d: date32[day] → date64[ms]\n" in output


def test_an_iceberg_table_without_snapshots_has_no_snapshot_id() -> None:
    """A dash stands for the missing snapshot id of a table without snapshots.

    With an empty text, a line would be "of snapshot in 1.84 s".
    """
    assert short_snapshot("") == "–"


@pytest.mark.parametrize(
    "command",
    [
        "show orders --partitions",
        "locate orders state new",
        "clustering orders",
        "diff orders --all",
        "changes orders --since 1",
        "prune orders --where id>3",
    ],
)
def test_every_table_fits(config_file: Path, command: str) -> None:
    lines = _STYLE.sub("", on_terminal(*command.split(), folder=config_file.parent, width=60)).splitlines()
    tables = [line for line in lines if not line.startswith("  ")]
    assert max(map(len, tables[1:])) <= 60, tables


@pytest.mark.parametrize(
    ("command", "stage"),
    [
        ("report orders", "orders: reading columns"),
        ("expire orders", "orders: removing versions"),
        ("purge orders --before 2", "orders: removing versions"),
        ("compact orders", "orders: merging value counts"),
        ("count orders --where id<0", "orders: counting rows"),
        ("refresh fresh --engine auto", "fresh: planning"),
        ("backfill fresh --engine auto --yes", "fresh: planning"),
        ("doctor orders", "checking tables"),
        ("init orders --config other.yaml", "orders: planning"),
    ],
)
def test_long_work_shows_its_stage(config_file: Path, command: str, stage: str) -> None:
    output = on_terminal(*command.split(), folder=config_file.parent, width=100)
    assert stage in _CONTROL.sub("", output)
