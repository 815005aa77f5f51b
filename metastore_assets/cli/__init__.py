"""The `metastore` command."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import NoReturn

from metastore_assets.cli.interrupt import install_signal_handlers
from metastore_assets.startup import (
    FastExit,
    call_with_frame_memory,
    collect_garbage_seldom,
    disable_pydantic_plugins,
    hide_pandas,
    limit_blas_threads,
    share_dataclass_methods,
)


def main() -> NoReturn:
    """Run the command line of this process, and exit with its status."""
    fast_exit = FastExit()
    try:
        call_with_frame_memory(run)
    except SystemExit as request:
        if isinstance(request.code, int):
            fast_exit.status = request.code
        raise


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as after `>&-`.

    Python sets `sys.stdout` to None then.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # The first free descriptor is that of the closed stream. Otherwise, a pipe would get it, also in a child.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115 (open until the process ends)


def run() -> NoReturn:
    """Run the command line of this process.

    Always raises SystemExit with the exit status.
    """
    _open_standard_streams()
    # A signal raises an exception, so that temporary files are removed before the process ends.
    install_signal_handlers()
    hide_pandas()
    disable_pydantic_plugins()
    limit_blas_threads()
    collect_garbage_seldom()
    share_dataclass_methods()
    # Warnings of libraries address programmers; a user of the command cannot act on them.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        from metastore_assets.cli.commands import cli

        cli(prog_name="metastore")
    except KeyboardInterrupt:  # Ctrl-C came before click handled it.
        print("interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(128 + signal.SIGINT)
    raise AssertionError("the command exits")
