"""`metastore report`: one HTML file about a table."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from metastore_assets.cli.failures import Invocation, note
from metastore_assets.cli.opening import configured, published, version_choice
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output
from metastore_assets.errors import MetastoreError


@click.command(short_help="Write a page about a table.")
@name_argument
@click.option("-o", "--output", "file", metavar="FILE", help="Where to; `-` for stdout.  [default: NAME.html]")
@click.option(
    "--against",
    metavar="VERSION",
    help="What changed since this version: its number, `snapshot:ID`, or a time.  [default: the one before]",
)
@answering
@click.pass_obj
def report(invocation: Invocation, name: str, file: str | None, against: str | None, as_json: bool) -> None:
    """Write a page about a table, as one HTML file that needs nothing else: columns, partitions, versions, changes."""
    from metastore_assets.cli.current import CurrentCheck
    from metastore_assets.report.html import report_page

    config = configured(invocation)
    check = CurrentCheck(config, name)
    table = published(config, name)
    earlier = None
    if against is not None:
        earlier = table.at(version_choice(against) or table)
    else:
        numbers = [number for number in table.versions.numbers() if number < table.version.number]
        earlier = table.at(numbers[-1]) if numbers else None
    is_current, reason = check.is_current(table.version)
    if reason is not None:
        note(reason)
    page = report_page(table, earlier, is_current=is_current)
    if file == "-":
        click.echo(page, nl=False)
        return
    path = Path(file or f"{name}.html")
    _write(path, page)
    answer = {"table": name, "version": table.version.number, "file": str(path), "bytes": len(page.encode())}
    make_output(as_json).answer(answer, lambda terminal: terminal.line(f"{path} ({len(page.encode()):,} bytes)"))


def _write(path: Path, page: str) -> None:
    """All or nothing. Raises MetastoreError."""
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
    found = os.umask(0)
    os.umask(found)
    return found
