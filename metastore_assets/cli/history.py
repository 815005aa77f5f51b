"""`metastore history`: statistics over all versions, those that expired included."""

from __future__ import annotations

from typing import Any

import click

from metastore_assets.cli.completion import column_name
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import newest
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output


@click.command(short_help="Show how a table, or a column of it, came to be what it is.")
@name_argument
@click.argument("column", metavar="[COLUMN]", required=False, shell_complete=column_name)
@click.option(
    "--statistic",
    metavar="NAME",
    help="One statistic alone, such as null_count, distinct_count, mean or p50; without a column row_count, bytes, "
    "partitions or fragments.",
)
@click.option("--append", is_flag=True, help="First append what the Delta table lacks, for whoever else reads it.")
@answering
@click.pass_obj
def history(
    invocation: Invocation, name: str, column: str | None, statistic: str | None, append: bool, as_json: bool
) -> None:
    """Show rows, nulls, distinct values and more in every version, those that expired included, the oldest first.

    They are kept in the Delta table `<root>/NAME/history`.
    """
    from metastore_assets.cli.history_page import print_column, print_statistic, print_versions
    from metastore_assets.history import append_versions, distinct_versions
    from metastore_assets.lookup import Table

    table: Table = newest(invocation, name)
    if append:
        append_versions(table.versions)
    output = make_output(as_json)
    if statistic is not None:
        try:
            points = table.history(column, statistic)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        subject = " ".join(filter(None, (name, column, statistic)))
        output.answer([_point(own) for own in points], lambda page: print_statistic(page, subject, points))
        return
    rows = table.history(column)
    if column is None:
        records = distinct_versions(rows).to_pylist()
        output.answer(list(map(_json, records)), lambda page: print_versions(page, name, records))
        return
    records = rows.to_pylist()
    output.answer(list(map(_json, records)), lambda page: print_column(page, name, column, records))


def _point(point: Any) -> dict[str, Any]:
    return {
        "version": point.version,
        "snapshot": point.snapshot,
        "published_at": point.published_at.isoformat(),
        "value": _number(point.value),
        "guarantee": point.guarantee,
    }


def _json(record: dict[str, Any]) -> dict[str, Any]:
    import json

    told = {key: value for key, value in record.items() if key != "position"}
    for key in ("committed_at", "published_at"):
        told[key] = told[key] and told[key].isoformat()
    if "user_defined" in told:
        told["user_defined"] = json.loads(told["user_defined"] or "{}")
    return {key: _number(value) for key, value in told.items()}


def _number(value: Any) -> Any:
    from metastore_assets.values.json import float_json, integer_json

    if isinstance(value, float):
        return float_json(value)
    return integer_json(value) if isinstance(value, int) and not isinstance(value, bool) else value
