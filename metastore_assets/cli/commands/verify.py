"""`metastore verify`: compare the newest version with the table's files.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import click

from metastore_assets.cli.failures import CHECK_FAILED, SUCCESS, Invocation
from metastore_assets.cli.opening import find_table_config, load_config
from metastore_assets.cli.options import name_argument, output_options, partitions_option
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.report import text


@click.command(short_help="Compare the newest version with the table's files.")
@name_argument
@partitions_option("Compare only this partition")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Compare only N random fragments.")
@output_options
@click.pass_obj
def verify(invocation: Invocation, name: str, partitions: tuple[str, ...], sample: int | None, as_json: bool) -> int:
    """Compare the newest version with the table's files.

    Reads the files again and reports each number that differs. Estimates are not compared. Changes nothing. Exits with
    status 1 when a number differs or a file cannot be read.
    """
    from metastore_assets.pipeline.verification.verify import VerificationScope
    from metastore_assets.pipeline.verification.verify import verify as verify_table

    config = load_config(invocation)
    table = find_table_config(config, name)
    with show_progress() as watcher, LazySpark(config.spark, watcher) as spark:
        verification = verify_table(config, table, spark, VerificationScope(partitions, sample), progress=watcher)
        watcher.hide()
    result = verification.to_json()
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    return SUCCESS if verification.is_right else CHECK_FAILED


def _draw(page: Page, result: Answer) -> None:
    compared_parts = [
        text.format_count(result["fragments"], "fragment"),
        text.format_count(result["partitions"], "partition"),
    ]
    compared_parts += ["the table"] if result["complete"] else []
    count = result["skipped_partitions"]
    skipped_text = f"; skipped {text.format_count(count, 'partition')} changed since" if count else ""
    errors = len(result["differences"]) + len(result["unreadable"])
    if errors:
        verdict = Styled(f"{errors:,} wrong", "red")
    elif count and not result["fragments"]:
        command = f"metastore refresh {text.make_printable(result['table'])}"
        verdict = Styled(f"nothing was compared; run `{command}`", "yellow")
    else:
        verdict = Styled("the compared numbers match" if count else "all numbers match the table", "green")
    heading = Styled(result["table"], "bold")
    page.line(heading, f" version {result['version']}: {', '.join(compared_parts)} compared{skipped_text}: ", verdict)
    for row in result["differences"]:
        column = f", {text.make_printable(row['column'])}" if row["column"] else ""
        subject = f"  {row['level']} {text.make_printable(row['name'])}{column}"
        numbers = f"stored {text.make_printable(row['stored'])}, computed {text.make_printable(row['computed'])}"
        page.line(Styled(f"{subject}: {row['statistic']}: {numbers}", "red"))
    for row in result["unreadable"]:
        page.line(Styled(f"  {text.make_printable(row['path'])}: {text.make_printable(row['message'])}", "red"))
