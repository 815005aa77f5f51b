"""`metastore refresh`: publish versions that describe the current snapshots of tables.

A version is the published statistics of a table at one snapshot. A fragment is a data file with the deletes that apply
to it. The plan of a refresh has a list of stages, which are the steps of its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import complete_tables
from metastore_assets.cli.drawing import draw_keys, short_snapshot
from metastore_assets.cli.failures import (
    ERROR,
    SUCCESS,
    Invocation,
    print_error,
    print_note,
    raise_interrupt,
    report_error,
)
from metastore_assets.cli.opening import add_database_tables, load_config
from metastore_assets.cli.options import engine_option, output_options, partitions_option, with_engine
from metastore_assets.cli.output import Answer, Page, Styled, answer, write_json
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.report import text
from metastore_assets.startup import limit_polars_threads

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.pipeline.plan import Plan


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_tables)
@click.option("--all", "every", is_flag=True, help="Refresh every configured table.")
@click.option("--dry-run", is_flag=True, help="Only show what a refresh would do.")
@click.option("--full", is_flag=True, help="Read every fragment again.")
@partitions_option("Read this partition again")
@engine_option
@click.option("-v", "--verbose", is_flag=True, help="Name all partitions of the plan.")
@output_options
@click.pass_obj
def refresh(
    invocation: Invocation,
    names: tuple[str, ...],
    every: bool,
    dry_run: bool,
    full: bool,
    partitions: tuple[str, ...],
    engine: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Bring tables up to date by reading only what changed.

    Publishes nothing for a table that has not changed since its newest version.
    """
    if every == bool(names):
        raise click.UsageError("name the tables to refresh, or give --all for every configured table")
    if partitions and len(names) != 1:
        raise click.UsageError("--partition needs exactly one table")
    config, is_complete = with_engine(load_config(invocation), engine), True
    if every or any(name not in {table.name for table in config.tables} for name in names):
        config, is_complete = add_database_tables(config)
    existing_tables = [table for table in config.tables if table.dropped_reason is None]
    tables = existing_tables if every else [config.table(name) for name in names]
    if not tables:
        from metastore_assets.config.file import config_path

        print_note(f"{config_path(invocation.config)} has no tables to refresh: add them under `tables`")

    limit_polars_threads()
    from metastore_assets.pipeline.outcome import Progress
    from metastore_assets.pipeline.plan import RefreshRequest
    from metastore_assets.pipeline.refresh import plan_refresh
    from metastore_assets.pipeline.refresh import refresh as refresh_table

    request = RefreshRequest(full, tuple(partitions))
    status = SUCCESS if is_complete or not every else ERROR
    with show_progress() as watcher, LazySpark(config.spark, watcher) as spark:

        def refresh_or_plan(table: TableConfig) -> dict[str, Any]:
            if dry_run:
                watcher(Progress(table.name, "plan"))
                plan = plan_refresh(config, table, request)
                return _plan_to_answer(plan)
            return refresh_table(config, table, spark, request, progress=watcher).to_json()

        for table in tables:
            try:
                result = refresh_or_plan(table)
            except Exception as error:  # noqa: BLE001 (one failure must not stop the other tables)
                raise_interrupt(error)
                spark.explain(error)
                watcher.hide()
                # The message of an error may name only a location.
                subject = "" if repr(table.name) in str(error) else f"table {table.name!r}"
                message = report_error(error, invocation, subject)
                if as_json:
                    write_json({"table": table.name, "error": message})
                status = ERROR
            else:
                watcher.hide()
                _answer(result, verbose, as_json)
                status = report_failed_exports(result) or status
                if warning := table.dropped_columns_warning(result.get("dropped_columns", ())):
                    print_note(warning)
    return status


def report_failed_exports(
    result: Answer, advice: str = "the version is published, and the next refresh exports again"
) -> int:
    """Print an error for each failed export.

    Return the exit status: `ERROR` if any failed, else 0.

    Args:
        result: The result of a command, with the exports under the key `exports`.
        advice: The last part of each message.
    """
    failed_exports = [export for export in result.get("exports", ()) if export["state"] == "failed"]
    for export in failed_exports:
        print_error(f"table {result['table']!r}: export {export['target']!r} failed: {export['error']}; {advice}")
    return ERROR if failed_exports else SUCCESS


def _answer(result: Answer, verbose: bool, as_json: bool) -> None:
    answer(result, lambda page: draw_refresh(page, result, verbose=verbose), as_json=as_json)


def _plan_to_answer(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON object.

    `published` says whether the plan publishes a version.

    If so, `version` is its number. Otherwise, `version` is the number of the newest version, which stays.
    """
    plan_answer = {**plan.to_json(), "published": plan.publishes}
    return plan_answer if plan.publishes else {**plan_answer, "version": plan.number - 1}


def draw_refresh(page: Page, result: Answer, *, verbose: bool = False) -> None:
    """Draw the result of a refresh, or the plan of a dry run.

    Args:
        page: The page to draw on.
        result: The result of a refresh, or a plan.
        verbose: For a plan, whether to draw all partition keys and the reasons of each stage's work.
    """
    heading, snapshot = Styled(result["table"], "bold"), short_snapshot(result["snapshot"])
    time = text.format_seconds(result["seconds"]) if "seconds" in result else ""
    if not result["published"]:
        state = Styled(f" is up to date at version {result['version']}", "green")
        page.line(heading, state, Styled(f" (snapshot {snapshot}{time and ', '}{time})", "dim"))
        _draw_stages(page, result, verbose=verbose)
    elif result.get("dry_run"):
        _draw_plan(page, result, verbose=verbose)
    else:
        version = Styled(f" version {result['version']}", "green")
        page.line(heading, version, f" of snapshot {snapshot} in {time}: {_format_counts(result)}")
        _draw_type_changes(page, result)
    draw_written_exports(page, result)


def draw_written_exports(page: Page, result: Answer) -> None:
    """Draw a line for each export target that was written, and its notes."""
    for export in result.get("exports", ()):
        if export["state"] == "written":
            columns, size = text.format_count(export["columns"], "column"), text.format_size(export["bytes"])
            page.line(Styled(f"  exported to {export['target']}: {columns}, {size}", "dim"))
            for note in export["notes"]:
                page.line(Styled(f"    {text.make_printable(note)}", "yellow"))


def _draw_plan(page: Page, plan: Answer, *, verbose: bool) -> None:
    input_text = (
        f"{text.format_count(plan['fragments']['profiled'], 'fragment')} ({text.format_size(plan['bytes_to_read'])})"
    )
    subject = f" version {plan['version']} of snapshot {short_snapshot(plan['snapshot'])}"
    page.line(Styled(plan["table"], "bold"), f"{subject} would read {input_text}: {_format_counts(plan)}")
    if plan.get("full_comparison") and plan["version"] > 1:
        page.line(Styled(f"  all fragments are compared, because {plan['full_comparison']}", "dim"))
    _draw_stages(page, plan, verbose=verbose)
    _draw_type_changes(page, plan)
    for column, outputs in plan.get("read_again", {}).items():
        missing_outputs = ", ".join(f"{output} of {text.format_count(n, 'fragment')}" for output, n in outputs.items())
        page.line(Styled(f"  {text.make_printable(column)}: {missing_outputs} not stored, read again", "yellow"))
    for column, count in plan.get("may_read_again", {}).items():
        fragments = f"those of {text.format_count(count, 'fragment')} that hold a value which now occurs twice"
        page.line(
            f"  {text.make_printable(column)}: may read again {fragments}, because fingerprints do not identify values"
        )
    for sign, style, keys in (
        ("*", "green", plan["changed_partitions"]),
        ("-", "red", plan["removed_partitions"]),
    ):
        draw_keys(page, keys, sign, style, verbose=verbose)


def _draw_stages(page: Page, plan: Answer, *, verbose: bool) -> None:
    """Draw the stages of a plan, with all partition keys and the reasons if `verbose`.

    The result of a refresh has no `stages`, so nothing is drawn for it.
    """
    from metastore_assets.pipeline.stages import stages_to_text

    for line in stages_to_text(plan.get("stages", ()), with_rules=verbose):
        page.line(Styled(f"  {line}", "dim"))


def _draw_type_changes(page: Page, result: Answer) -> None:
    for change in result.get("type_changes", ()):
        types = text.format_type_change(change["before"], change["now"])
        reason = change["reason"] and f", because of {text.make_printable(change['reason'])}"
        page.line(Styled(f"  {text.make_printable(change['column'])}: {types}", "yellow"), reason or "")


def _format_counts(result: Answer) -> str:
    """Return how many fragments, partitions and values a refresh changed, as one line."""
    fragments, partitions = result["fragments"], result["partitions"]
    counts = ", ".join(f"{fragments[key]:,} {key}" for key in ("added", "removed", "unchanged"))
    read_text = f", {fragments['profiled']:,} read" if fragments["profiled"] != fragments["added"] else ""
    removed_text = f", {partitions['removed']:,} removed" if partitions["removed"] else ""
    value_changes = result.get("value_counts") or {}
    values = [f"{value_changes[key]:,} {key}" for key in ("added", "removed", "changed") if value_changes.get(key)]
    counted_values = f"; value counts {', '.join(values)}" if values else ""
    if result["version"] > 1 and result.get("value_counts", {}) is None:
        counted_values = "; value counts built from all profiles"
    computed_text = (
        f"{partitions['changed']:,} of {text.format_count(partitions['total'], 'partition')} computed{removed_text}"
    )
    return f"fragments {counts}{read_text}; {computed_text}{counted_values}"
