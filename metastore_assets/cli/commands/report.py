"""`metastore report`: write an HTML page about a table."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from metastore_assets.cli.failures import Invocation, print_note
from metastore_assets.cli.opening import load_config, open_version, parse_version
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import answer
from metastore_assets.errors import MetastoreError


@click.command(short_help="Write an HTML page about a table.")
@name_argument
@click.option("-o", "--output", "file", metavar="FILE", help="The file to write; `-` is stdout.  [default: NAME.html]")
@click.option(
    "--against",
    metavar="VERSION",
    help="Show what changed since this version: a number, `snapshot:ID`, or a time.  [default: the previous]",
)
@output_options
@click.pass_obj
def report(invocation: Invocation, name: str, file: str | None, against: str | None, as_json: bool) -> None:
    """Write an HTML page about the columns, partitions, versions and changes of a table.

    The page is one file that needs no other files.
    """
    from metastore_assets.cli.current import CurrentCheck
    from metastore_assets.report.html import report_page

    config = load_config(invocation)
    check = CurrentCheck(config, name)
    table = open_version(config, name)
    earlier = None
    if against is not None:
        earlier = table.at(parse_version(against) or table)
    else:
        numbers = [number for number in table.versions.numbers() if number < table.version.number]
        earlier = table.at(numbers[-1]) if numbers else None
    is_current, reason = check.is_current(table.version)
    if reason is not None:
        print_note(reason)
    page = report_page(table, earlier, is_current=is_current)
    if file == "-":
        click.echo(page, nl=False)
        return
    path, size = Path(file or f"{name}.html"), len(page.encode())
    _write_atomically(path, page)
    result = {"table": name, "version": table.version.number, "file": str(path), "bytes": size}
    answer(result, lambda terminal: terminal.line(f"{path} ({size:,} bytes)"), as_json=as_json)


def _write_atomically(path: Path, page: str) -> None:
    """Write a page to a temporary file and rename that to `path`. Raises MetastoreError."""
    try:
        folder = path.absolute().parent
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
            Path(temporary).chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise MetastoreError(
            f"cannot write {path}: {error.strerror or error}; name another file with --output"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
