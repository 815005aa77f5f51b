"""The end of a command: one line on stderr per failure, and an exit status that scripts can rely on."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import clean_message, remove_secrets
from metastore_assets.report.text import one_line

FAILED = 1
USAGE = 2
INTERRUPTED = 130
COMPLETION_VARIABLE = "_METASTORE_COMPLETE"
"""A variable that the shell sets when it asks for completions."""


@dataclass
class Invocation:
    """The options that precede the command."""

    config: Path | None = None
    debug: bool = False


class Interrupted(Exception):
    """Raised when the user pressed Ctrl-C. click's own handling would print more than one line."""


class MetastoreGroup(click.Group):
    """A group of commands that turns every failure into one line and an exit status."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit. With `standalone_mode=False`, return or raise instead."""
        if COMPLETION_VARIABLE in os.environ:
            from metastore_assets.cli.shells import register

            register()
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        invocation = Invocation()
        sys.exit(exit_status(partial(run, obj=invocation), invocation))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the context is for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


def exit_status(run: Callable[[], object], invocation: Invocation) -> int:
    """Run something, report its failure, and return the exit status. A returned int is the status.

    If the reader of stdout goes away, click ends the command silently with status 1.
    """
    try:
        status = run()
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, Interrupted, click.Abort):
        _write("interrupted")
        return INTERRUPTED
    except NoArgsIsHelpError as error:
        _write(error.ctx.get_help())
        return USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "metastore"
        print_error(f"{clean_message(error.format_message())} (see `{command} --help`)")
        return USAGE
    except Exception as error:  # noqa: BLE001 (whatever went wrong, the user gets one line)
        report_error(error, invocation)
        return FAILED


def raise_interrupt(error: Exception) -> None:
    """Raise Ctrl-C or SIGTERM again if it caused the error."""
    if (interrupt := find_interrupt(error)) is not None:
        raise interrupt from None


def find_interrupt(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return the Ctrl-C or SIGTERM that is the error or caused it.

    An interrupted call to Spark raises an error of the call, with the interrupt as its context.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt | SystemExit):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def report_error(error: Exception, invocation: Invocation, subject: str = "") -> str:
    """Print a failure as one line, after its traceback with --debug, and return the line."""
    if invocation.debug:
        _write(remove_secrets("".join(traceback.format_exception(error)).rstrip("\n")))
    message = f"{remove_secrets(subject)}: {explain_error(error)}" if subject else explain_error(error)
    print_error(message)
    return message


def explain_error(error: Exception) -> str:
    """Return an error as one line without secrets: its message, or for unexpected errors its type and what to do."""
    return remove_secrets(_explained(error))


def _explained(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return one_line(clean_message(error.format_message()))
    if isinstance(error, MetastoreError):
        return one_line(str(error))
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    kind, message = type(error).__name__, one_line(_gist(remove_secrets(str(error))))[:500]
    return one_line(clean_message(f"unexpected {kind}: {message}{notes}. This is a bug: --debug shows where"))


def _gist(message: str) -> str:
    """Return the most informative line of a message: Spark's contain stack traces of Python workers and the JVM."""
    lines = message.strip().splitlines() or [""]
    traced = [index for index, line in enumerate(lines) if line.rstrip().endswith("Traceback (most recent call last):")]
    if traced:
        return next((line for line in lines[traced[-1] + 1 :] if line and not line[0].isspace()), lines[0])
    return lines[0]


def print_error(message: str) -> None:
    """Write an error to stderr as one line."""
    _write(click.style("error: ", fg="red") + one_line(message))


def print_note(message: str) -> None:
    """Print a notice that is not an error to stderr, as one line."""
    _write(click.style("note: ", fg="yellow") + one_line(clean_message(message)))


def _write(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        click.echo(line, err=True)
