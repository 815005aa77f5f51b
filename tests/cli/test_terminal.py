"""What is shown on a real terminal: as wide as it is, in colour, and only there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from metastore_assets.cli.terminal import TerminalOutput
from tests.cli.support import PROGRAM

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*arguments: str, folder: Path, width: int = 80, **environment: str) -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env={**inherited, "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        written = bytearray()
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other end is closed.
                break
            if not chunk:
                break
            written += chunk
        os.close(ours)
    assert process.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_statistics_fit_the_terminal(published: Path, width: int) -> None:
    """No line is longer than the terminal is wide, and the names and bounds are always there."""
    printed = _STYLE.sub("", on_terminal("show", "orders", folder=published.parent, width=width))
    lines = printed.splitlines()
    assert max(map(len, lines[: 2 + 10])) <= width
    assert {"column", "type", "nulls", "distinct", "minimum", "maximum"} <= set(lines[1].split())
    assert ("distribution" in lines[1]) == (width >= 120)
    assert ("std" in lines[1]) == (width >= 160)


def test_colours_are_for_terminals_that_want_them(published: Path) -> None:
    assert "\x1b[1m" in on_terminal("show", "orders", folder=published.parent)
    assert "\x1b" not in on_terminal("show", "orders", folder=published.parent, NO_COLOR="1")
    assert "\x1b" not in on_terminal("show", "orders", folder=published.parent, TERM="dumb")


@pytest.mark.parametrize("width", [80, 120])
def test_many_bins_make_a_chart(published: Path, width: int) -> None:
    """It fills most of the width, has its greatest frequency at the axis, and its edges below."""
    printed = _STYLE.sub(
        "", on_terminal("histogram", "orders", "id", "--bins", "60", folder=published.parent, width=width)
    )
    heading, *chart, axis, edges = printed.splitlines()
    assert heading.startswith("id int64  400 values")
    assert len(chart) == 12
    assert re.match(r" *\d+ ┤.*█", chart[0])
    assert 0.5 * width < len(axis) <= width
    assert all(len(line) <= width for line in [*chart, edges])
    assert edges.split()[0] == "0"


def test_top_values_are_cut_to_fit(published: Path) -> None:
    printed = _STYLE.sub("", on_terminal("top", "orders", "state", folder=published.parent, width=60))
    assert max(map(len, printed.splitlines())) <= 60


def test_without_utf_8_something_is_shown(published: Path) -> None:
    """Characters that the terminal does not know are replaced; JSON is escaped."""
    printed = on_terminal("show", "orders", folder=published.parent, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "orders" in printed
    assert on_terminal("show", "orders", "--json", folder=published.parent, PYTHONIOENCODING="ascii").isascii()


def test_a_plan_names_columns_whose_types_change(capsys: pytest.CaptureFixture[str]) -> None:
    """With what is in which file."""
    fragments, partitions = (
        {"added": 1, "removed": 0, "kept": 0, "profiled": 1},
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
        ],
    }
    TerminalOutput().refreshed(plan)
    printed = capsys.readouterr().out
    assert "zip: int64 → string, because of '01234' in /t/b.csv, line 2\n" in printed
    assert "n: null → decimal(10,2)\n" in printed
