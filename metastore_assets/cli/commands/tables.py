"""`metastore tables`: list the configured tables.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.drawing import draw_hidden_columns, format_time, short_snapshot
from metastore_assets.cli.failures import ERROR, SUCCESS, Invocation, print_error
from metastore_assets.cli.opening import add_database_tables, load_config
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Answer, GridColumn, Page, Part, Styled, answer
from metastore_assets.errors import StoreError, VersionNotFoundError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig, TableConfig

_VERSION_KEYS = (
    "version",
    "snapshot",
    "committed_at",
    "published_at",
    "row_count",
    "bytes",
    "partitions",
    "fragments",
)


@click.command()
@output_options
@click.pass_obj
def tables(invocation: Invocation, as_json: bool) -> int:
    """List the configured tables and their newest versions."""
    rows = _list_tables(add_database_tables(load_config(invocation))[0])
    answer(rows, lambda page: _draw(page, rows), as_json=as_json)
    unreadable_rows = [row for row in rows if row["error"] is not None]
    for row in unreadable_rows:
        subject = "" if repr(row["table"]) in row["error"] else f"table {row['table']!r}: "
        print_error(f"{subject}{row['error']}")
    return ERROR if unreadable_rows else SUCCESS


def _list_tables(config: MetastoreConfig) -> list[dict[str, Any]]:
    """Return a JSON object for each table, with facts about its newest version.

    The facts are None if the table has no version. If the newest version cannot be read, the facts are None, too, and
    `error` has the reason.

    Raises StoreError if reading the newest version failed for every table.
    """
    from metastore_assets.cli.answers import version_to_json
    from metastore_assets.lookup.summaries import VersionSummary
    from metastore_assets.messages import clean_message, redact
    from metastore_assets.metastore import Metastore
    from metastore_assets.storage.parallel import interruptible_map

    metastore = Metastore(config.root, storage_options=config.storage_options)

    errors: list[StoreError] = []

    def table_to_json(table: TableConfig) -> dict[str, Any]:
        version, reason = None, None
        try:
            version = metastore.table(table.name).version
        except VersionNotFoundError:
            pass
        except StoreError as error:
            reason = clean_message(str(error))
            errors.append(error)
        facts = {} if version is None else version_to_json(VersionSummary.of(version))
        return {
            "table": table.name,
            "uri": redact(table.uri),
            "format": table.declared_format if version is None else version.format,
            "catalog": getattr(table.catalog, "name", None),
            "dropped": table.dropped_reason,
            "error": reason,
            **{key: facts.get(key) for key in _VERSION_KEYS},
        }

    rows = interruptible_map(table_to_json, config.tables)
    if errors and len(errors) == len(rows):  # One message suffices, for example about wrong credentials.
        raise errors[0]
    return rows


def _draw(page: Page, rows: Sequence[Answer]) -> None:
    if not rows:
        page.line(Styled("no tables are configured", "dim"))
        return
    columns = [
        GridColumn("table", style="bold"),
        GridColumn("format"),
        *(GridColumn(heading, right=True) for heading in ("rows", "partitions", "version")),
        *(GridColumn(heading) for heading in ("snapshot", "published", "uri")),
    ]
    lines = list(map(_table_line, rows))
    draw_hidden_columns(page, page.fitting_grid(columns, lines, ["snapshot", "format", "partitions", "version"]))


def _table_line(row: Answer) -> Sequence[Part]:
    is_unpublished = row["version"] is None
    if row["error"] is not None:
        published: Part = Styled("unreadable", "red")
    elif is_unpublished:
        published = Styled("never refreshed", "yellow")
    else:
        published = format_time(row["published_at"])
    return (
        row["table"],
        row["format"] or text.ABSENT,
        *(text.format_number(row[key]) for key in ("row_count", "partitions", "version")),
        text.ABSENT if is_unpublished else short_snapshot(row["snapshot"]),
        published,
        text.make_printable(row["uri"]),
    )
