"""`metastore purge`: remove older versions, and statistics of removed rows, without a grace period.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.commands.refresh import draw_written_exports, report_failed_exports
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import find_table_config, load_config, resolve_table_name
from metastore_assets.cli.options import VERSION_FORMS, VersionType, name_argument, output_options
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.exports.export_result import ExportResult
    from metastore_assets.lookup.version_references import VersionReference
    from metastore_assets.store.version import Version


@click.command(short_help="Remove older versions and the statistics of removed rows.")
@name_argument
@click.option(
    "--before",
    type=VersionType(),
    metavar="VERSION",
    required=True,
    help=f"The oldest version to keep: {VERSION_FORMS}.",
)
@output_options
@click.pass_obj
def purge(invocation: Invocation, name: str, before: VersionReference, as_json: bool) -> int:
    """Remove older stored statistics of a table immediately, and statistics of removed rows.

    Use it for values that must no longer be stored. The table itself does not change. Refresh the table, then purge
    every version before the newest one; a version is the statistics at one snapshot. Purging publishes the newest
    version again. Readers of older versions fail, and running refreshes start again. Files of the root that no version
    references, and statistics of data files that the table no longer has, are removed whatever their age. The exports
    of the table are removed and written again.
    """
    from metastore_assets.lookup.version_references import parse_version_reference, resolve_version
    from metastore_assets.pipeline.engine import Engine
    from metastore_assets.pipeline.purge import purge as purge_table
    from metastore_assets.store.versions import versions_of

    config = load_config(invocation)
    table = find_table_config(config, name) if any(entry.exports for entry in config.entries) else None
    versions = versions_of(config, resolve_table_name(config, name))
    reference = parse_version_reference(before)
    oldest = reference if isinstance(reference, int) else resolve_version(versions, before).number
    with show_progress() as watcher, LazySpark(config.spark, watcher) as spark:
        watcher.working(name, "removing versions")
        purge_result = purge_table(Engine.of(config, spark), versions, oldest)
        exports: Sequence[ExportResult] = ()
        if table is not None and table.exports:
            from metastore_assets.exports.writing import write_exports

            watcher.working(name, "exporting again")

            def newest() -> Version:
                """Return the version that this command published, or a newer one of another process."""
                version = versions.latest()
                assert version is not None, "the newest version is never removed"
                return version

            exports = write_exports(table, versions.objects, newest, rewrite=True)
        watcher.hide()
    result = {"table": name, **asdict(purge_result), "exports": [export.to_json() for export in exports]}
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    # A refresh writes a target again, and removes nothing from it that belongs to earlier snapshots.
    return report_failed_exports(result, "removed values may remain in this target: run `metastore purge` again")


def _draw(page: Page, result: Answer) -> None:
    removed_text = (
        f"{text.format_count(result['versions'], 'version')} and {text.format_count(result['files'], 'file')}"
    )
    summary = f": removed {removed_text} ({text.format_size(result['bytes'])}), published version {result['published']}"
    page.line(Styled(result["table"], "bold"), summary)
    if result["unfinished"]:
        files = text.format_count(result["unfinished"], "file")
        page.line(f"  these include {files} of unfinished refreshes; a refresh that runs now starts again")
    if result["outdated"]:
        profiles = text.format_count(result["outdated"], "profile")
        command = f"`metastore refresh {result['table']} --full`"
        note = f"  {profiles} still hold columns that the table no longer has: run {command}, then purge again"
        page.line(Styled(note, "yellow"))
    draw_written_exports(page, result)
    for location in result["not_reached"]:
        page.line(Styled(f"  not reached, check it yourself: {location}", "yellow"))
