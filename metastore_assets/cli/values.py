"""`metastore quantile`, `rank` and `where`: questions about the values of a column."""

from __future__ import annotations

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import column_answer, configured, newest
from metastore_assets.cli.options import answering, column_argument, name_argument, partition_option
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.scoping import asked, where_option

_VALUES = {"ignore_unknown_options": True}
"""A negative number is a value, and no option."""
value_argument = click.argument("value", metavar="VALUE")


@click.command()
@name_argument
@column_argument
@click.argument("fractions", metavar="Q...", nargs=-1, required=True)
@click.option(
    "--continuous",
    is_flag=True,
    help="Between the two nearest values, as percentile_cont of SQL: of numbers and times.",
)
@partition_option
@where_option
@answering
@click.pass_obj
def quantile(
    invocation: Invocation,
    name: str,
    column: str,
    fractions: tuple[str, ...],
    continuous: bool,
    partition: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Show quantiles of a column: 0.5 is the median.

    The least value that at least this fraction of the values does not exceed. Exact where the values are listed.
    """
    from metastore_assets.lookup.column_values import fraction_of
    from metastore_assets.lookup.json import quantiles_json

    wanted = [fraction_of(own) for own in fractions]
    with asked(configured(invocation), name, where, partition) as (table, key):
        found = quantiles_json(table.quantile(column, wanted, key, "continuous" if continuous else "discrete"))
        subject = column_answer(table, column, key)
    make_output(as_json).quantiles(subject, found)


@click.command(context_settings=_VALUES)
@name_argument
@column_argument
@value_argument
@partition_option
@where_option
@answering
@click.pass_obj
def rank(
    invocation: Invocation,
    name: str,
    column: str,
    value: str,
    partition: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Show the rank of a value, and its frequency.

    The rank is how many values of the column are less. VALUE is written as `top --json` prints values. Exact where the
    values are listed.
    """
    from metastore_assets.cli.answers import rank_answer

    with asked(configured(invocation), name, where, partition) as (table, key):
        answer = rank_answer(table, column, value, key)
        subject = column_answer(table, column, key)
    make_output(as_json).rank(subject, answer)


@click.command(context_settings=_VALUES)
@name_argument
@column_argument
@value_argument
@answering
@click.pass_obj
def where(invocation: Invocation, name: str, column: str, value: str, as_json: bool) -> None:
    """Show the partitions that hold a value, and how often.

    VALUE is written as `top --json` prints values. Of listed columns only.
    """
    from metastore_assets.cli.answers import where_answers

    table = newest(invocation, name)
    answers = where_answers(table, column, value)
    make_output(as_json).where(column_answer(table, column, None), answers)
