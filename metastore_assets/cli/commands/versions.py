"""`metastore versions`: list the published versions of a table.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from metastore_assets.cli.drawing import draw_hidden_columns, format_time, short_snapshot
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_metastore, open_version
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import Answer, GridColumn, Page, answer
from metastore_assets.report import text


@click.command()
@name_argument
@output_options
@click.pass_obj
def versions(invocation: Invocation, name: str, as_json: bool) -> None:
    """List the published versions of a table, the newest first."""
    from metastore_assets.cli.answers import version_to_json

    config = load_config(invocation)
    name = open_version(config, name).version.table  # Raises if there is no version.
    rows = [version_to_json(version) for version in reversed(open_metastore(config).versions(name))]
    answer(rows, lambda page: _draw(page, rows), as_json=as_json)


def _draw(page: Page, rows: Sequence[Answer]) -> None:
    columns = [
        GridColumn("version", right=True, style="bold"),
        *map(GridColumn, ("snapshot", "committed", "published")),
    ]
    columns += [GridColumn(heading, right=True) for heading in ("rows", "partitions", "fragments", "bytes")]
    lines = [
        (
            text.format_number(row["version"]),
            short_snapshot(row["snapshot"]),
            format_time(row["committed_at"]),
            format_time(row["published_at"]),
            *(text.format_number(row[key]) for key in ("row_count", "partitions", "fragments")),
            text.format_size(row["bytes"]),
        )
        for row in rows
    ]
    hidden_columns = page.fitting_grid(columns, lines, ["committed", "bytes", "fragments", "partitions"])
    draw_hidden_columns(page, hidden_columns)
