"""Failures of a command: one line on stderr for each, and the exit status."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
from click.exceptions import NoArgsIsHelpError

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import clean_message, remove_secrets
from metastore_assets.report.text import to_one_line

SUCCESS = 0
CHECK_FAILED = 1
"""The command worked, and a check that it made failed."""
BAD_USAGE = 2
"""The command line is wrong; nothing was done."""
ERROR = 3
"""A configuration, table, root or value is wrong, or an operation failed."""
INTERRUPTED = 130
"""Ctrl-C, or a declined confirmation. SIGTERM ends a command with 143 and SIGHUP with 129."""
BROKEN_PIPE = 141
"""The reader of stdout ended, as `head` does."""
COMPLETION_VARIABLE = "_METASTORE_COMPLETE"
"""The environment variable that the shell sets to request completions."""


@dataclass
class Invocation:
    """The global options of one invocation of the command line."""

    config: Path | None = None
    debug: bool = False


class Interrupted(Exception):
    """Raised instead of KeyboardInterrupt, for which click would print more than one line."""


class MetastoreGroup(click.Group):
    """A click group whose commands report a failure as one line on stderr and an exit status."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line, and exit with its status.

        With `standalone_mode=False`, return its result instead.
        """
        if COMPLETION_VARIABLE in os.environ:
            from metastore_assets.cli.shells import register_shells

            register_shells()
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        invocation = Invocation()
        sys.exit(run_to_status(partial(run, obj=invocation), invocation))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command of a context.

        Raises Interrupted for Ctrl-C, and ConnectionError for a broken pipe.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except BrokenPipeError as error:
            raise ConnectionError(str(error)) from error


def run_to_status(run: Callable[[], object], invocation: Invocation) -> int:
    """Call `run`, and return the exit status: the int that `run` returns; 0 if it returns something else.

    If `run` raises an error, report it on stderr, and return the status for its kind, such as `BAD_USAGE`.
    """
    try:
        status = run()
        return status if isinstance(status, int) else SUCCESS
    except (KeyboardInterrupt, Interrupted, click.Abort):
        _write("interrupted")
        return INTERRUPTED
    except NoArgsIsHelpError as error:
        _write(error.ctx.get_help())
        return BAD_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "metastore"
        print_error(f"{clean_message(error.format_message())} (see `{command} --help`)")
        return BAD_USAGE
    except Exception as error:  # noqa: BLE001 (the user gets one line for every error)
        report_error(error, invocation)
        return ERROR


def raise_interrupt(error: Exception) -> None:
    """Raise the KeyboardInterrupt or SystemExit that caused an error.

    Does nothing if there is none.
    """
    if (interrupt := find_interrupt(error)) is not None:
        raise interrupt from None


def find_interrupt(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return the KeyboardInterrupt or SystemExit among an error and its causes; None without one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def report_error(error: Exception, invocation: Invocation, subject: str = "") -> str:
    """Print an error to stderr as one line and return that line.

    With --debug, print the traceback first.

    Args:
        error: The error.
        invocation: The global options.
        subject: The object that the error is about, to be put before the message; empty if the message names it.
    """
    if invocation.debug:
        _write(remove_secrets("".join(traceback.format_exception(error)).rstrip("\n")))
    message = f"{remove_secrets(subject)}: {explain_error(error)}" if subject else explain_error(error)
    print_error(message)
    return message


def explain_error(error: Exception) -> str:
    """Return the message of an error as one line without secrets.

    Unexpected errors also show their type.
    """
    return remove_secrets(_error_text(error))


def _error_text(error: Exception) -> str:
    """Return the line to print for an error.

    An error is called a bug if neither this package nor click defines its class. A deleted working folder is no bug.
    """
    if isinstance(error, click.ClickException):
        return to_one_line(clean_message(error.format_message()))
    if isinstance(error, MetastoreError):
        return to_one_line(str(error))
    if isinstance(error, FileNotFoundError) and not _has_working_folder():
        return "the working folder has been deleted: change to an existing one"
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    kind, message = type(error).__name__, to_one_line(_main_line(remove_secrets(str(error))))[:500]
    return to_one_line(clean_message(f"unexpected {kind}: {message}{notes}. This is a bug: --debug shows where"))


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _main_line(message: str) -> str:
    """Return the most informative line of a message.

    If the message contains a Python traceback, the result is the line after the last traceback, such as
    `ValueError: x`. Otherwise, the result is the first line.
    """
    lines = message.strip().splitlines() or [""]
    traceback_starts = [
        index for index, line in enumerate(lines) if line.rstrip().endswith("Traceback (most recent call last):")
    ]
    if traceback_starts:
        return next((line for line in lines[traceback_starts[-1] + 1 :] if line and not line[0].isspace()), lines[0])
    return lines[0]


def print_error(message: str) -> None:
    """Write an error to stderr as one line."""
    _write("error: ", "red", to_one_line(message))


def print_note(message: str) -> None:
    """Print a notice that is not an error to stderr, as one line."""
    _write("note: ", "yellow", to_one_line(clean_message(message)))


def _write(text: str, color: str | None = None, rest: str = "") -> None:
    """Write a line to stderr.

    Args:
        text: The beginning of the line.
        color: The colour of the beginning, if the terminal shows colours; None for none.
        rest: The rest of the line, without colour.
    """
    styled_text = click.style(text, fg=color) if color and uses_colors(sys.stderr) else text
    with contextlib.suppress(OSError):
        click.echo(styled_text + rest, err=True)


def uses_colors(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours.

    The variable `NO_COLOR` turns colours off.
    """
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
