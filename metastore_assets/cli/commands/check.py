"""`metastore check`: run the checks of a table on its stored statistics.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import draw_hidden_columns
from metastore_assets.cli.failures import CHECK_FAILED, SUCCESS, Invocation, print_note
from metastore_assets.cli.opening import find_table_config, load_config, open_metastore, open_version
from metastore_assets.cli.options import name_argument, output_options, version_option
from metastore_assets.cli.output import Answer, GridColumn, Page, Part, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_STYLES = {"passed": "green", "failed": "red", "unknown": "yellow"}


@click.command(short_help="Check a table by its stored statistics.")
@name_argument
@click.option("--only", "names", metavar="CHECK", multiple=True, help="Run only this check. May be repeated.")
@version_option
@click.option("--strict", is_flag=True, help="Also fail when the stored statistics cannot decide a check.")
@click.option("--suggest", is_flag=True, help="Print checks that pass now, to copy into the configuration.")
@output_options
@click.pass_obj
def check(
    invocation: Invocation,
    name: str,
    names: tuple[str, ...],
    version: VersionReference | None,
    strict: bool,
    suggest: bool,
    as_json: bool,
) -> int:
    """Check a table by its stored statistics, without reading the table.

    Runs the checks that the configuration has under `checks` of the table and of its columns. Exits with status 1 when
    a check of severity `error` fails.
    """
    from metastore_assets.checks.check_results import results_json
    from metastore_assets.checks.evaluation import evaluate_checks, select_checks
    from metastore_assets.checks.subject import create_check_context
    from metastore_assets.checks.suggest import suggestions_json

    if suggest and (names or strict):
        raise click.UsageError("--suggest runs no checks: do not combine it with --only or --strict")
    config = load_config(invocation)
    table = find_table_config(config, name)
    lookup = open_version(config, name, version)
    context = create_check_context(open_metastore(config), table, lookup)
    if suggest:
        suggestions = suggestions_json(lookup, context)
        answer(suggestions, lambda page: _draw_suggestions(page, suggestions), as_json=as_json)
        return SUCCESS
    checks = select_checks(table, names)
    results = evaluate_checks(checks, lookup, context)
    if warning := table.dropped_columns_warning(lookup.version.dropped_columns):
        print_note(warning)
    document = results_json(lookup.version, results)
    answer(document, lambda page: _draw(page, document), as_json=as_json)
    has_failed = any(result.is_violated or (strict and result.status == "unknown") for result in results)
    return CHECK_FAILED if has_failed else SUCCESS


def _draw(page: Page, document: Answer) -> None:
    checks = document["checks"]
    heading = Styled(text.make_printable(document["table"]), "bold")
    page.line(heading, f" version {document['version']}: ", _verdict(document))
    if not checks:
        command = f"`metastore check {document['table']} --suggest`"
        page.line(Styled(f"  no checks are configured: {command} prints checks to begin with", "dim"))
        return
    columns = [GridColumn(""), GridColumn("check", style="bold"), GridColumn("expected"), GridColumn("observed")]
    draw_hidden_columns(page, page.fitting_grid(columns, [_check_line(check) for check in checks], ["expected"]))
    for check in checks:
        for partition in check.get("partitions", {}).get("first", ()):
            subject = f"  {check['check']}, {text.make_printable(partition['partition'])}: "
            page.line(subject, Styled(_to_one_line(partition["observed"]), _STYLES[partition["status"]]))
        if check["status"] == "unknown" and check["advice"]:
            page.line(Styled(f"  {check['check']} would be answered by {text.to_one_line(check['advice'])}", "dim"))


def _verdict(document: Answer) -> Styled:
    counts = [f"{document[status]:,} {status}" for status in ("passed", "failed", "unknown") if document[status]]
    has_doubts = document["failed"] or document["unknown"]
    style = "red" if document["status"] == "failed" else "yellow" if has_doubts else "green"
    return Styled(", ".join(counts) or "nothing to check", style)


def _check_line(check: Answer) -> Sequence[Part]:
    is_warning = check["status"] == "failed" and check["severity"] == "warn"
    word = "warning" if is_warning else check["status"]
    return (
        Styled(word, "yellow" if is_warning else _STYLES[check["status"]]),
        check["check"],
        _to_one_line(check["expected"]),
        _to_one_line(check["observed"]),
    )


def _to_one_line(sentence: str) -> str:
    """Join the lines of a sentence with one space each, and make it printable.

    Blanks around each line are removed.
    """
    return text.make_printable(" ".join(line.strip() for line in sentence.splitlines()))


def _draw_suggestions(page: Page, suggestions: Answer) -> None:
    for line in suggestions["yaml"].splitlines():
        page.line(line)
