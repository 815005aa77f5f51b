"""`metastore versions`: list the published versions of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.drawing import draw_hidden_columns, format_time, short_snapshot
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_metastore, open_version
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import Answer, GridColumn, Page, answer
from metastore_assets.errors import VersionNotFoundError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.metastore import Metastore
    from metastore_assets.store.manifest import Version


@click.command()
@name_argument
@output_options
@click.pass_obj
def versions(invocation: Invocation, name: str, as_json: bool) -> None:
    """List the published versions of a table, the newest first."""
    config = load_config(invocation)
    newest = open_version(config, name).version
    rows = _list_versions(open_metastore(config), name, newest)
    answer(rows, lambda page: _draw(page, rows), as_json=as_json)


def _list_versions(metastore: Metastore, name: str, newest: Version) -> list[dict[str, Any]]:
    """Return a JSON object for each version that is not newer than `newest`, in descending order."""
    from metastore_assets.cli.answers import parallel_map, version_to_json

    numbers = [number for number in metastore.versions(name) if number < newest.number]

    def read(number: int) -> dict[str, Any] | None:
        try:
            return version_to_json(metastore.table(name, version=number).version)
        except VersionNotFoundError:
            return None  # It expired after it was listed.

    older = parallel_map(read, reversed(numbers))
    return [version_to_json(newest), *(row for row in older if row is not None)]


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
    hidden = page.fitting_grid(columns, lines, ["committed", "bytes", "fragments", "partitions"])
    draw_hidden_columns(page, hidden)
