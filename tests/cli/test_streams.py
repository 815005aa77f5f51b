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


def _ended(published: Path, *arguments: str, redirections: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *PROGRAM, *arguments]
    return subprocess.run(command, cwd=published.parent, text=True, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize("arguments", [["tables"], ["tables", "--json"]])
def test_a_closed_stdout_is_as_dev_null(published: Path, arguments: list[str]) -> None:
    ended = _ended(published, *arguments, redirections=">&-")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_stderr_does_not_change_the_status(published: Path) -> None:
    assert _ended(published, "show", "nope", redirections="2>&-").returncode == 3
    assert _ended(published, "nope", redirections="<&- >&- 2>&-").returncode == 2


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
    """Closed streams are replaced by /dev/null.

    Otherwise, a file that a child opens would get the number of a stream.

    The child's output would then be written to this file.
    """
    command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", _PROGRAM_WITH_CHILD]
    ended = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "False False\n")


def test_a_closed_stdin_cannot_confirm(published: Path) -> None:
    ended = _ended(published, "backfill", "orders", redirections="<&-")
    assert ended.returncode == 2
    assert "--yes" in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [["tables"], ["tables", "--json"]])
def test_a_full_disk_is_an_error(published: Path, arguments: list[str]) -> None:
    ended = _ended(published, *arguments, redirections=">/dev/full")
    message = "error: the output cannot be written to stdout: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (3, message)
    assert _ended(published, "show", "nope", redirections="2>/dev/full").returncode == 3


def test_the_target_of_a_link_is_replaced(published: Path) -> None:
    folder = published.parent
    (folder / "pages").mkdir()
    (folder / "pages" / "page.html").write_text("old")
    (folder / "link.html").symlink_to("pages/page.html")
    assert run("report", "orders", "-o", str(folder / "link.html"), config=published).exit_code == 0
    assert (folder / "link.html").is_symlink()
    assert (folder / "pages" / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="not on Windows")
def test_dev_stdout_is_appended_to_a_file(published: Path) -> None:
    file = published.parent / "all.html"
    file.write_text("before\n")
    ended = _ended(published, "report", "orders", "-o", "/dev/stdout", redirections=">>all.html")
    assert ended.returncode == 0
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
