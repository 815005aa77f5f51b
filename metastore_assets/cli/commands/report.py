"""`metastore report`: write an HTML page about a table.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.failures import Invocation, print_note
from metastore_assets.cli.files import write_atomically
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import name_argument, output_options, since_option, version_option
from metastore_assets.cli.output import answer, write_text
from metastore_assets.cli.progress import show_progress

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference


@click.command(short_help="Write an HTML page about a table.")
@name_argument
@click.option("-o", "--output", "file", metavar="FILE", help="The file to write; `-` is stdout.  [default: NAME.html]")
@since_option("Show what changed since this version")
@version_option
@output_options
@click.pass_obj
def report(
    invocation: Invocation,
    name: str,
    file: str | None,
    since: VersionReference | None,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Write an HTML page about the columns, partitions, versions and changes of a table.

    The page is one file that needs no other files.
    """
    from metastore_assets.cli.current import CurrentCheck
    from metastore_assets.report.html import report_page

    config = load_config(invocation)
    check = CurrentCheck(config, name)
    table = open_version(config, name, version)
    earlier = None
    if since is not None:
        earlier = table.at(since)
    else:
        numbers = [number for number in table.versions.numbers() if number < table.version.number]
        earlier = table.at(numbers[-1]) if numbers else None
    is_current, reason = check.is_current(table.version)
    if reason is not None:
        print_note(reason)
    with show_progress() as watcher:
        page = report_page(
            table,
            earlier,
            is_current=is_current,
            progress=lambda done, total: watcher.working(name, "reading columns", (done, total, "columns")),
        )
    if file == "-":
        write_text(page)
        return
    path, size = Path(file or f"{name}.html"), len(page.encode())
    write_atomically(path, page, advice="name another file with --output")
    result = {"table": name, "version": table.version.number, "file": str(path), "bytes": size}
    answer(result, lambda terminal: terminal.line(f"{path} ({size:,} bytes)"), as_json=as_json)
