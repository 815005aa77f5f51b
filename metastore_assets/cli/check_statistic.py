"""`metastore check-statistic`: try the laws of a user-defined statistic on random data."""

from __future__ import annotations

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.options import answering
from metastore_assets.cli.outputs import make_output


@click.command("check-statistic")
@click.argument("reference", metavar="MODULE:CLASS")
@click.option("--tries", type=click.IntRange(min=1), metavar="N", help="Random data sets of each type.  [default: 200]")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Other random data.")
@answering
@click.pass_obj
def check_statistic(invocation: Invocation, reference: str, tries: int | None, seed: int, as_json: bool) -> int:
    """Try the laws of a user-defined statistic on random data.

    Merging has to be associative and commutative, and the order of rows must not matter. Needs no configuration; the
    module has to be on PYTHONPATH. Exit status 1, and the data, where a law does not hold.
    """
    from metastore_assets.statistics.user_defined.laws import TRIES, find_counterexample, list_tested_classes
    from metastore_assets.statistics.user_defined.loading import load_statistic

    own = load_statistic(reference)
    found = find_counterexample(own.statistic, tries or TRIES, seed)
    make_output(as_json).checked(
        {
            "statistic": reference,
            "name": own.name,
            "revision": own.statistic.revision,
            "route": own.statistic.route,
            "type_classes": [cls.name for cls in list_tested_classes(own.statistic)],
            "holds": found is None,
            "counterexample": None if found is None else found.to_json(),
        }
    )
    return 0 if found is None else 1
