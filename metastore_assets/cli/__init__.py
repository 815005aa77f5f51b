"""The `metastore` command."""

from __future__ import annotations

import signal
import sys
import warnings
from types import FrameType
from typing import NoReturn

from metastore_assets.startup import hide_pandas


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    hide_pandas()
    from metastore_assets.cli.commands import cli

    # Warnings of libraries are for programmers; a user could do nothing about them.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    # As an exception, so that temporary files are removed on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    cli(prog_name="metastore")
    raise AssertionError("the command exits")


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
