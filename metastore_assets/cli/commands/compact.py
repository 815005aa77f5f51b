"""`metastore compact`: merge the value count files of a table, and write value counts as plain files.

The value counts of a column are its distinct values with their frequencies. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import find_table_config, load_config
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.report import text


@click.command(short_help="Write value counts as plain files.")
@name_argument
@output_options
@click.pass_obj
def compact(invocation: Invocation, name: str, as_json: bool) -> None:
    """Write a table's value counts as plain files for other tools.

    Publishes a version with the same content, merged value counts and the plain files. One file has all value counts by
    decreasing frequency. Another one has the ranks of the values of columns with `ranks: on`. When value counts change,
    the next version has no plain files. Refreshes do not need this command: they merge value counts when it pays.
    """
    from metastore_assets.pipeline.value_counts.compact import compact as compact_table
    from metastore_assets.store.versions import versions_of

    config = load_config(invocation)
    table = find_table_config(config, name)
    versions = versions_of(config, table.name)
    with show_progress() as watcher:
        watcher.working(name, "merging value counts")
        result = {"table": name, **asdict(compact_table(versions, table))}
    for kind in ("frequencies", "ranks"):
        result[kind] = result[kind] and versions.objects.uri(result[kind])
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    heading, before, after = Styled(result["table"], "bold"), result["files_before"], result["files"]
    if result["published"]:
        merge_text = f"merged to {after:,}" if after != before else "already merged"
        summary = f": {text.format_count(before, 'file')} of value counts, {merge_text}"
        page.line(heading, Styled(f" version {result['version']}", "green"), summary)
    else:
        page.line(heading, Styled(f" has compact value counts at version {result['version']}", "green"))
    for kind in ("frequencies", "ranks"):
        if result[kind] is not None:
            page.line(f"  {kind:<11}  {result[kind]}")
