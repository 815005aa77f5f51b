"""`metastore backfill`: bring chosen partitions up to date, or read them again, in few large steps."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import FAILED, Invocation, note, raise_interrupt, report
from metastore_assets.cli.opening import configured, table_of
from metastore_assets.cli.options import answering, engine_option, name_argument, partitions_option, with_engine
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import Watcher, watching
from metastore_assets.cli.spark import LazySpark
from metastore_assets.startup import limit_polars_threads

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig, TableConfig
    from metastore_assets.pipeline.backfill import Work
    from metastore_assets.pipeline.backfill_plan import BackfillPlan

_STDIN = "-"


@click.command(short_help="Bring chosen partitions up to date, or read them again.")
@name_argument
@partitions_option("This partition")
@click.option("--from", "first", metavar="A", help="Partitions from this value on, by the order of values.")
@click.option("--to", "last", metavar="B", help="Partitions up to this value, which is included.")
@click.option("--where", metavar="E", help='Partitions that this is true of, such as "day >= current_date - 7".')
@click.option("--keys-from", metavar="FILE", help="Partitions by their keys, one on each line of a file; - is stdin.")
@click.option("--missing", is_flag=True, help="Those that the newest version does not have.")
@click.option("--stale", is_flag=True, help="Those that it has and that are out of date.")
@click.option("--all", "every", is_flag=True, help="All, read again whatever is stored.  [default: missing and stale]")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--via", type=click.Choice(["local", "dagster"]), default="local", help="Who does it.  [default: local]")
@click.option(
    "--chunk", type=click.IntRange(min=1), metavar="N", help="Read again so many partitions for each version."
)
@click.option("--no-publish", is_flag=True, help="Only read what is chosen, for a later refresh to publish.")
@click.option("--restart", is_flag=True, help="Do again what an interrupted --all for the same partitions has done.")
@click.option("-v", "--verbose", is_flag=True, help="Name all partitions of the plan.")
@engine_option
@answering
@click.pass_obj
def backfill(
    invocation: Invocation,
    name: str,
    partitions: tuple[str, ...],
    first: str | None,
    last: str | None,
    where: str | None,
    keys_from: str | None,
    missing: bool,
    stale: bool,
    every: bool,
    dry_run: bool,
    yes: bool,
    via: str,
    chunk: int | None,
    no_publish: bool,
    restart: bool,
    verbose: bool,
    engine: str | None,
    as_json: bool,
) -> int:
    """Bring chosen partitions of a table up to date, or read them again.

    What is chosen by --partition and --keys-from, as far as --from, --to and --where allow; without any, all of the
    table. What there is to do is told by the newest version and the table; an interrupted backfill, repeated, goes on
    where it was.
    """
    if every and (missing or stale or no_publish):
        raise click.UsageError(
            f"--all does not go with {'--missing' if missing else '--stale' if stale else '--no-publish'}"
        )
    if no_publish and via == "dagster":
        raise click.UsageError("--no-publish does not go with --via dagster")
    if restart and not every:
        raise click.UsageError("--restart is for --all: nothing else is done twice")
    asks = not yes and not dry_run
    if asks and (keys_from == _STDIN or not sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: say --yes to go on without, or --dry-run")
    limit_polars_threads()
    from metastore_assets.pipeline.backfill import BackfillResult, plan_backfill
    from metastore_assets.pipeline.backfill_plan import BackfillSelection, Mode
    from metastore_assets.pipeline.engine import check_refreshes_here
    from metastore_assets.pipeline.outcome import Progress

    if engine is not None and via == "dagster":
        raise click.UsageError("--engine is for work that is done here, and --via dagster leaves it to Dagster")
    config = with_engine(configured(invocation), engine)
    table = table_of(config, name)
    keys = None if keys_from is None else _keys(keys_from)
    mode: Mode = "all" if every else "outdated" if missing == stale else "missing" if missing else "stale"
    choice = BackfillSelection(mode, partitions, keys, first, last, where)
    with watching() as watcher:
        watcher(Progress(table.name, "plan"))
        plan = plan_backfill(config, table, choice, publish=not no_publish, chunk=chunk, restart=restart)
    if chunk is not None and not every:
        note("--chunk is for what --all reads again: what is missing or out of date makes one version")
    if via == "dagster" and not plan.publishes:
        raise click.UsageError(
            "--via dagster publishes, and the first version takes the whole table: choose all partitions, or leave "
            "--via out"
        )
    if via == "local" and not dry_run and plan.chunks:
        check_refreshes_here(config, table)  # nobody is asked about what is refused then
    if dry_run or not plan.chunks:
        if as_json:
            answer = _planned(plan) if dry_run else BackfillResult(table.name, done=True).to_json()
            make_output(as_json).backfill(answer)
        else:
            _print_plan(plan, every=verbose, err=False)
        return 0
    if asks or not as_json:
        _print_plan(plan, every=verbose, err=True)
    if asks and not click.confirm("Go on?", err=True):
        return FAILED
    return _carry_out(invocation, config, table, plan, via, as_json)


def _carry_out(
    invocation: Invocation,
    config: MetastoreConfig,
    table: TableConfig,
    plan: BackfillPlan,
    via: str,
    as_json: bool,
) -> int:
    """Do what is planned; say what came of it, whole or in part. Returns the exit status."""
    from metastore_assets.pipeline.backfill import BackfillResult, local_work
    from metastore_assets.pipeline.backfill import backfill as do_backfill

    output, result = make_output(as_json), BackfillResult(table.name)
    with watching() as watcher, LazySpark(config.spark, watcher) as spark, ExitStack() as stack:
        try:
            if via == "dagster":
                work = stack.enter_context(_launching(config, table, plan, watcher))
            else:
                work = local_work(config, table, spark, plan, watcher)
            do_backfill(config, table, plan, work, result)
        except (KeyboardInterrupt, SystemExit):
            watcher.hide()
            if via == "dagster":
                note("the run that was waited for goes on in Dagster")
            raise
        except Exception as error:  # noqa: BLE001 (what was done until then is told all the same)
            raise_interrupt(error)
            spark.explain(error)
            watcher.hide()
            subject = "" if repr(table.name) in str(error) else f"table {table.name!r}"
            output.backfill({**result.to_json(), "error": report(error, invocation, subject)})
            return FAILED
        watcher.hide()
    if result.failed_checks:
        note(f"the versions are published, and checks failed in Dagster: {', '.join(result.failed_checks)}")
    output.backfill(result.to_json())
    return 0


def _launching(
    config: MetastoreConfig, table: TableConfig, plan: BackfillPlan, watcher: Watcher
) -> AbstractContextManager[Work]:
    from metastore_assets.extras import extra

    with extra("dagster", "--via dagster"):
        from metastore_assets.assets.launch import launching
    from metastore_assets.store.versions import versions_of

    return launching(versions_of(config, table.name), plan.attempt, watcher)


def _keys(file: str) -> tuple[str, ...]:
    """The lines of a file, without blanks around them; empty ones are none."""
    try:
        text = sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise click.UsageError(f"--keys-from: {file} cannot be read: {why}") from error
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _planned(plan: BackfillPlan) -> dict[str, Any]:
    """A plan as JSON: what a result has, and what it would be made of."""
    return {
        "table": plan.table,
        "partitions": len(plan.keys),
        "chunks": len(plan.chunks),
        "versions": [],
        "fragments": plan.fragments,
        "bytes": plan.bytes,
        "seconds": None if plan.seconds is None else round(plan.seconds, 3),
        "done": not plan.chunks,
        "failed_checks": [],
        "dry_run": True,
        "version": plan.version,
        "snapshot": plan.snapshot,
        "mode": plan.choice.mode,
        "chosen": plan.chosen,
        "total": plan.total,
        "missing": plan.missing,
        "stale": plan.stale,
        "again": len(plan.keys) - plan.missing - plan.stale,
        "besides": asdict(plan.besides),
        "publishes": plan.publishes,
        "continues": len(plan.done),
        "keys": list(plan.keys),
    }


def _print_plan(plan: BackfillPlan, *, every: bool, err: bool) -> None:
    from metastore_assets.cli.backfill_page import print_backfill_plan
    from metastore_assets.cli.page import Page

    print_backfill_plan(Page(err=err), _planned(plan), every=every)
