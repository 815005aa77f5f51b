"""Run the examples of a documentation page in the working folder: `python doc_examples.py PAGE`.

Only the standard library is imported, so that this file runs in an environment that has only the package.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"(?P<run><!-- run -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class CodeBlock(NamedTuple):
    """A fenced code block of a page."""

    language: str
    code: str
    runs: bool
    """Whether the line before the block is `<!-- run -->`."""


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield the fenced code blocks of a page in their order."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield CodeBlock(match["language"], match["code"], match["run"] is not None)


def run_shell(code: str, folder: Path) -> None:
    """Run shell commands in a folder, with the programs of this Python environment first on PATH.

    Raises:
        AssertionError: If a command fails. The message has the code and its output.
    """
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("METASTORE_CONFIG", None)
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise AssertionError(f"{code}\n{process.stdout}\n{process.stderr}")


def run_page(page: Path, folder: Path) -> int:
    """Run the examples of a page that are marked with `<!-- run -->`, one after the other.

    All Python examples share their variables, like one Python session, and run in the working folder of this process.

    Args:
        page: The Markdown file.
        folder: The folder in which shell examples run.

    Returns:
        The number of examples that ran.
    """
    names: dict[str, object] = {}
    count = 0
    for block in code_blocks(page):
        if not block.runs:
            continue
        count += 1
        if block.language == "python":
            exec(compile(block.code, page.name, "exec"), names)
        else:
            run_shell(block.code, folder)
    return count


if __name__ == "__main__":
    print(f"{run_page(Path(sys.argv[1]), Path.cwd())} examples ran")
