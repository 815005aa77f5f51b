"""The `metastore` command."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import NoReturn

from metastore_assets.cli.interrupt import install_signal_handlers
from metastore_assets.startup import (
    FastExit,
    collect_garbage_seldom,
    disable_pydantic_plugins,
    hide_pandas,
    limit_blas_threads,
)


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    end = FastExit()
    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            end.status = ended.code
        raise


def run() -> NoReturn:
    """Run the command line of this process. Raises SystemExit, with the status as its code."""
    # As exceptions, so that temporary files are removed on the way out.
    install_signal_handlers()
    hide_pandas()
    disable_pydantic_plugins()
    limit_blas_threads()
    collect_garbage_seldom()
    # Warnings of libraries are for programmers; a user could do nothing about them.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        from metastore_assets.cli.commands import cli

        cli(prog_name="metastore")
    except KeyboardInterrupt:  # Before there is a command to end.
        print("interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(128 + signal.SIGINT)
    raise AssertionError("the command exits")
