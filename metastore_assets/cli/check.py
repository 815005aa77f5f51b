"""`metastore check`: whether a table is as its configuration says it has to be, from what is kept of it."""

from __future__ import annotations

import click

from metastore_assets.cli.failures import Invocation, note
from metastore_assets.cli.opening import configured, metastore_of, published, table_of
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output


@click.command(short_help="Check a table by what is kept of it.")
@name_argument
@click.option("--only", "names", metavar="CHECK", multiple=True, help="Only this check. May be repeated.")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An older version instead of the newest.")
@click.option("--strict", is_flag=True, help="Fail as well where what is kept does not tell.")
@click.option("--suggest", is_flag=True, help="Print checks that hold now, to be put into the configuration.")
@answering
@click.pass_obj
def check(
    invocation: Invocation,
    name: str,
    names: tuple[str, ...],
    version: int | None,
    strict: bool,
    suggest: bool,
    as_json: bool,
) -> int:
    """Check a table by what is kept of it, without reading the table.

    The checks are those under `checks` in the configuration, of the table and of its columns. Exit status 1 when one
    of severity `error` fails.
    """
    from metastore_assets.checks.evaluation import evaluate_checks, select_checks
    from metastore_assets.checks.results import results_json
    from metastore_assets.checks.subject import check_context
    from metastore_assets.checks.suggest import suggestions_json

    if suggest and (names or strict):
        raise click.UsageError("--suggest prints checks and makes none: it goes with neither --only nor --strict")
    config = configured(invocation)
    own = table_of(config, name)
    table = published(config, name, version)
    around = check_context(metastore_of(config), own, table)
    output = make_output(as_json)
    if suggest:
        output.suggested(suggestions_json(table, around))
        return 0
    checks = select_checks(own, names)
    results = evaluate_checks(checks, table, around)
    if warning := own.dropped_columns_warning(table.version.dropped_columns):
        note(warning)
    output.checks(results_json(table.version, results))
    violated = any(result.is_violated for result in results)
    return 1 if violated or (strict and any(result.status == "unknown" for result in results)) else 0
