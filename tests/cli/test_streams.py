"""Standard streams that are closed or full, and files that are links or pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from metastore_assets.cli.files import write_atomically
from tests.cli.run_command import PROGRAM, run


def _ended(config_file: Path, *arguments: str, redirections: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *PROGRAM, *arguments]
    return subprocess.run(command, cwd=config_file.parent, text=True, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize("arguments", [["tables"], ["tables", "--json"]])
def test_a_closed_stdout_is_as_dev_null(config_file: Path, arguments: list[str]) -> None:
    process = _ended(config_file, *arguments, redirections=">&-")
    assert (process.returncode, process.stderr) == (0, "")


def test_a_closed_stderr_does_not_change_the_status(config_file: Path) -> None:
    assert _ended(config_file, "show", "nope", redirections="2>&-").returncode == 3
    assert _ended(config_file, "nope", redirections="<&- >&- 2>&-").returncode == 2


_PROGRAM_WITH_CHILD = """
import subprocess, sys
from metastore_assets.cli import run
sys.argv = ["metastore", "--version"]
try:
    run()
finally:
    subprocess.run([sys.executable, "-c", "import sys; print(sys.stdout is None, sys.stdin is None, file=sys.stderr)"])
"""


def test_closed_streams_are_dev_null_for_children() -> None:
    """Standard streams that are closed when the command starts are /dev/null for its child processes.

    Otherwise, a file that a child opens would get the number of a stream, and the child's output would be written to
    this file.
    """
    command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", _PROGRAM_WITH_CHILD]
    process = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False, timeout=120)
    assert (process.returncode, process.stderr) == (0, "False False\n")


def test_a_closed_stdin_cannot_confirm(config_file: Path) -> None:
    process = _ended(config_file, "backfill", "orders", redirections="<&-")
    assert process.returncode == 2
    assert "--yes" in process.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [["tables"], ["tables", "--json"]])
def test_a_full_disk_is_an_error(config_file: Path, arguments: list[str]) -> None:
    process = _ended(config_file, *arguments, redirections=">/dev/full")
    message = "error: the output cannot be written to stdout: No space left on device\n"
    assert (process.returncode, process.stderr) == (3, message)
    assert _ended(config_file, "show", "nope", redirections="2>/dev/full").returncode == 3


def test_the_target_of_a_link_is_replaced(config_file: Path) -> None:
    folder = config_file.parent
    (folder / "pages").mkdir()
    (folder / "pages" / "page.html").write_text("old")
    (folder / "link.html").symlink_to("pages/page.html")
    assert run("report", "orders", "-o", str(folder / "link.html"), config=config_file).exit_code == 0
    assert (folder / "link.html").is_symlink()
    assert (folder / "pages" / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="not on Windows")
def test_dev_stdout_is_appended_to_a_file(config_file: Path) -> None:
    file = config_file.parent / "all.html"
    file.write_text("before\n")
    process = _ended(config_file, "report", "orders", "-o", "/dev/stdout", redirections=">>all.html")
    assert process.returncode == 0
    assert file.read_text().startswith("before\n<!doctype html>")


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "page", advice="")
    reader.join(60)
    assert (read, pipe.is_fifo()) == (["page"], True)
