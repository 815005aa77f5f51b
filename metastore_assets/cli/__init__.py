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


def _refuse_foreign_package() -> None:
    """Exit with an error if a folder in PYTHONPATH has another package with the name of this one.

    With an editable install, Python still imports modules of this package below the other one. Only some commands would
    then fail.
    """
    package = sys.modules[__name__.partition(".")[0]]
    folder = os.path.dirname(package.__file__ or "")
    if folder and os.path.realpath(folder) != os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
        print(  # noqa: T201
            f"error: {folder} hides the installed package {package.__name__}; rename this folder, or remove the folder "
            "that contains it from PYTHONPATH",
            file=sys.stderr,
        )
        sys.exit(1)


def run() -> NoReturn:
    """Run the command line of this process.

    Always raises SystemExit with the exit status.
    """
    _open_standard_streams()
    _refuse_foreign_package()
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
