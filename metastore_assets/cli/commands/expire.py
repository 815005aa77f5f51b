"""`metastore expire`: remove old versions of a table.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import math
from datetime import timedelta

import click

from metastore_assets.cli.failures import Invocation, print_note
from metastore_assets.cli.opening import load_config, resolve_table_name
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.report import text

_MAX_GRACE = 1_000_000
"""The maximum number of hours. Times that are further back than about 2,000 years cannot be computed."""


def _check_grace(context: click.Context, option: click.Parameter, hours: float) -> float:
    """Return a number of hours unchanged.

    Raises BadParameter for NaN, which `click.FloatRange` accepts.
    """
    if math.isnan(hours):
        raise click.BadParameter("nan is no number of hours")
    return hours


@click.command()
@name_argument
@click.option(
    "--keep",
    "retained_versions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of versions to keep.  [default: as configured]",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=_MAX_GRACE),
    callback=_check_grace,
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="Keep younger files. Choose more hours than any refresh or reader runs.",
)
@output_options
@click.pass_obj
def expire(invocation: Invocation, name: str, retained_versions: int | None, grace: float, as_json: bool) -> None:
    """Remove old versions of a table's stored statistics.

    A version is the statistics at one snapshot. The table itself does not change. Also removes files of the root that
    no version references, such as those of a refresh that was killed.
    """
    from metastore_assets.extras import is_installed
    from metastore_assets.history import append_versions, explain_unavailable
    from metastore_assets.store.versions import versions_of

    config = load_config(invocation)
    versions = versions_of(config, resolve_table_name(config, name))
    limit = retained_versions or config.keep_versions
    if len(versions.numbers()) > limit and is_installed("history"):
        reason = explain_unavailable(versions.objects)
        if reason is None:
            append_versions(versions)
        else:
            print_note(reason)
    with show_progress() as watcher:
        watcher.working(name, "removing versions")
        expiry_counts = versions.expire(limit, timedelta(hours=grace))
    result = {
        "table": name,
        "versions": expiry_counts.versions,
        "files": expiry_counts.files,
        "bytes": expiry_counts.bytes,
    }
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    removed_text = (
        f"{text.format_count(result['versions'], 'version')} and {text.format_count(result['files'], 'file')}"
    )
    page.line(Styled(result["table"], "bold"), f": removed {removed_text} ({text.format_size(result['bytes'])})")
