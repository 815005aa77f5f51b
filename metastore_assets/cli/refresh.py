"""`metastore refresh`: publish a version for what a table holds now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import table_names
from metastore_assets.cli.failures import Invocation, note, raise_interrupt, report
from metastore_assets.cli.opening import configured, with_databases
from metastore_assets.cli.options import answering, engine_option, partitions_option, with_engine
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
from metastore_assets.cli.spark import LazySpark
from metastore_assets.startup import limit_polars_threads

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.pipeline.plan import Plan


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=table_names)
@click.option("--all", "every", is_flag=True, help="Every configured table.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--full", is_flag=True, help="Read every fragment again.")
@partitions_option("Read this partition again")
@engine_option
@click.option("-v", "--verbose", is_flag=True, help="Name all partitions of the plan.")
@answering
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
    """Bring tables up to date, reading only what has changed.

    A table that has not changed since its newest version is left alone.
    """
    if every == bool(names):
        raise click.UsageError("name the tables to refresh, or say --all for every configured one")
    if partitions and len(names) != 1:
        raise click.UsageError("--partition is for one table")
    config, is_complete = with_engine(configured(invocation), engine), True
    if every or any(name not in {table.name for table in config.tables} for name in names):
        config, is_complete = with_databases(config)
    there = [table for table in config.tables if table.dropped_reason is None]
    chosen = there if every else [config.table(name) for name in names]
    if not chosen:
        note("no tables are configured")
    output = make_output(as_json)

    limit_polars_threads()
    from metastore_assets.pipeline.outcome import Progress
    from metastore_assets.pipeline.refresh import plan_refresh
    from metastore_assets.pipeline.refresh import refresh as refresh_table

    status = 0 if is_complete or not every else 1
    with watching() as watcher, LazySpark(config.spark, watcher) as spark:

        def result_of(table: TableConfig) -> dict[str, Any]:
            if dry_run:
                watcher(Progress(table.name, "plan"))
                return _planned(plan_refresh(config, table, full=full, partitions=partitions), full or bool(partitions))
            return refresh_table(config, table, spark, full=full, partitions=partitions, progress=watcher).to_json()

        for table in chosen:
            try:
                result = result_of(table)
            except Exception as error:  # noqa: BLE001 (the other tables are refreshed all the same)
                raise_interrupt(error)
                spark.explain(error)
                watcher.hide()
                # Of a place that holds no table, the error knows only the place.
                subject = "" if repr(table.name) in str(error) else f"table {table.name!r}"
                output.failed({"table": table.name}, report(error, invocation, subject))
                status = 1
            else:
                watcher.hide()
                output.refreshed(result, every=verbose)
                if warning := table.dropped_columns_warning(result.get("dropped_columns", ())):
                    note(warning)
    return status


def _planned(plan: Plan, again: bool) -> dict[str, Any]:
    """A plan as the answer of a refresh: `published` says whether it would publish a version."""
    base = plan.base
    published = (base.snapshot, base.committed_at, base.spec_id) if base else None
    if again or published != (plan.snapshot.id, plan.snapshot.committed_at, plan.spec.id):
        return {**plan.to_json(), "published": True}
    return {**plan.to_json(), "published": False, "version": plan.number - 1}
