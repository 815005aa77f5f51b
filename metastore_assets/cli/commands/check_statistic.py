"""`metastore check-statistic`: test the laws of a custom statistic on random data.

An example is the associativity of merges.
"""

from __future__ import annotations

import click

from metastore_assets.cli.failures import CHECK_FAILED, SUCCESS, Invocation
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.report import text


@click.command("check-statistic")
@click.argument("reference", metavar="MODULE:CLASS")
@click.option(
    "--tries", type=click.IntRange(min=1), metavar="N", help="Random data sets for each type.  [default: 200]"
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The seed of the random data.")
@output_options
@click.pass_obj
def check_statistic(invocation: Invocation, reference: str, tries: int | None, seed: int, as_json: bool) -> int:
    """Test the laws of a custom statistic on random data.

    Merging must be associative and commutative, and the order of rows must not matter. The command needs no
    configuration. MODULE must be on PYTHONPATH. When a law does not hold, the command shows the data and exits with
    status 1.
    """
    from metastore_assets.statistics.user_defined.laws import TRIES, find_counterexample, list_tested_classes
    from metastore_assets.statistics.user_defined.loading import load_statistic

    loaded_statistic = load_statistic(reference)
    with show_progress() as watcher:
        watcher.working(loaded_statistic.name, "testing laws")
        counterexample = find_counterexample(loaded_statistic.statistic, tries or TRIES, seed)
    result = {
        "statistic": reference,
        "name": loaded_statistic.name,
        "revision": loaded_statistic.statistic.revision,
        "route": loaded_statistic.statistic.route,
        "type_classes": [cls.name for cls in list_tested_classes(loaded_statistic.statistic)],
        "holds": counterexample is None,
        "counterexample": None if counterexample is None else counterexample.to_json(),
    }
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    return SUCCESS if counterexample is None else CHECK_FAILED


def _draw(page: Page, result: Answer) -> None:
    counterexample = result["counterexample"]
    verdict = Styled("all laws hold", "green") if counterexample is None else Styled("a law does not hold", "red")
    page.line(
        Styled(result["statistic"], "bold"),
        f" {result['name']}, revision {result['revision']}, by {result['route']}: ",
        verdict,
    )
    if counterexample is None:
        page.line(Styled(f"  tried on {', '.join(result['type_classes'])}", "dim"))
        return
    page.line(f"  {counterexample['law']}; this fails for {counterexample['type_class']} values:")
    for rows in counterexample["data"]:
        page.line(f"    {text.make_printable(rows)}")
    page.line(f"  expected {text.make_printable(counterexample['expected'])}")
    page.line(f"  observed {text.make_printable(counterexample['observed'])}")
