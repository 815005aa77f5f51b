"""`metastore backfill`: bring selected partitions up to date, or read them again.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.drawing import draw_keys
from metastore_assets.cli.failures import ERROR, INTERRUPTED, Invocation, print_note, raise_interrupt, report_error
from metastore_assets.cli.opening import find_table_config, load_config
from metastore_assets.cli.options import engine_option, name_argument, output_options, partitions_option, with_engine
from metastore_assets.cli.output import Answer, Page, Styled, answer, write_json
from metastore_assets.cli.progress import Watcher, show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.report import text
from metastore_assets.startup import limit_polars_threads

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig, TableConfig
    from metastore_assets.pipeline.backfill import ChunkProcessor
    from metastore_assets.pipeline.backfill_plan import BackfillPlan

_STDIN = "-"


@click.command(short_help="Bring selected partitions up to date, or read them again.")
@name_argument
@partitions_option("Select this partition")
@click.option("--from", "first", metavar="A", help="Select partitions from this value on, inclusive.")
@click.option("--to", "last", metavar="B", help="Select partitions up to this value, inclusive.")
@click.option("--where", metavar="PREDICATE", help='Select partitions that match, such as "day >= current_date - 7".')
@click.option("--keys-from", metavar="FILE", help="Select the partition keys in a file, one per line; - is stdin.")
@click.option("--missing", is_flag=True, help="Do only partitions that the newest version does not have.")
@click.option("--stale", is_flag=True, help="Do only partitions that the newest version has and that are out of date.")
@click.option(
    "--full",
    is_flag=True,
    help="Read all selected partitions again.  [default: only missing and stale ones]",
)
@click.option("--dry-run", is_flag=True, help="Only show what a backfill would do.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--via", type=click.Choice(["local", "dagster"]), default="local", show_default=True, help="Where to run."
)
@click.option(
    "--chunk", type=click.IntRange(min=1), metavar="N", help="With --full, publish a version after every N partitions."
)
@click.option("--no-publish", is_flag=True, help="Only read the partitions; a later refresh publishes them.")
@click.option("--restart", is_flag=True, help="Start an interrupted --full again instead of continuing it.")
@click.option("-v", "--verbose", is_flag=True, help="Name all partitions of the plan.")
@engine_option
@output_options
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
    full: bool,
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
    """Bring selected partitions of a table up to date, or read them again.

    --partition and --keys-from select partitions; without them, all partitions are selected. --from, --to and --where
    narrow the selection. The command compares the newest version with the table to see what to do. Run an
    interrupted backfill again to continue it.
    """
    if full and (missing or stale or no_publish):
        raise click.UsageError(
            f"--full does not go with {'--missing' if missing else '--stale' if stale else '--no-publish'}"
        )
    if no_publish and via == "dagster":
        raise click.UsageError("--no-publish does not go with --via dagster")
    if restart and not full:
        raise click.UsageError("--restart needs --full")
    needs_confirmation = not yes and not dry_run
    if needs_confirmation and (keys_from == _STDIN or not sys.stdin.isatty()):
        raise click.UsageError("cannot ask for confirmation without a terminal: give --yes or --dry-run")
    limit_polars_threads()
    from metastore_assets.pipeline.backfill import BackfillResult, plan_backfill
    from metastore_assets.pipeline.backfill_plan import BackfillOptions, BackfillSelection, Mode
    from metastore_assets.pipeline.engine import check_refreshes_here
    from metastore_assets.pipeline.outcome import Progress

    if engine is not None and via == "dagster":
        raise click.UsageError("--engine does not go with --via dagster, which leaves the engine to Dagster")
    config = with_engine(load_config(invocation), engine)
    table = find_table_config(config, name)
    keys = None if keys_from is None else _read_keys(keys_from)
    mode: Mode = "all" if full else "outdated" if missing == stale else "missing" if missing else "stale"
    selection = BackfillSelection(mode, partitions, keys, first, last, where)
    with show_progress() as watcher:
        watcher(Progress(table.name, "plan"))
        plan = plan_backfill(config, table, selection, BackfillOptions(not no_publish, chunk, restart))
    if chunk is not None and not full:
        print_note("--chunk has no effect without --full: missing and stale partitions make one version")
    if via == "dagster" and not plan.publishes:
        raise click.UsageError(
            "--via dagster publishes a version, and the first version needs all partitions: select all of them, or "
            "leave out --via"
        )
    if via == "local" and not dry_run and plan.chunks:
        check_refreshes_here(config, table)  # Before asking for confirmation
    if dry_run or not plan.chunks:
        if as_json:
            document = _plan_to_json(plan) if dry_run else BackfillResult(table.name, done=True).to_json()
            write_json(document)
        else:
            _draw_plan(Page(), _plan_to_json(plan), verbose=verbose)
        return 0
    if needs_confirmation or not as_json:
        _draw_plan(Page(err=True), _plan_to_json(plan), verbose=verbose)
    if needs_confirmation and not click.confirm("Continue?", err=True):
        return INTERRUPTED
    return _Backfill(config, table, plan, via).run(invocation, as_json=as_json)


@dataclass(frozen=True)
class _Backfill:
    """A planned backfill of a table, which is executed in chunks of partitions."""

    config: MetastoreConfig
    table: TableConfig
    plan: BackfillPlan
    via: str
    """`local` or `dagster`."""

    def run(self, invocation: Invocation, *, as_json: bool) -> int:
        """Run the backfill, print its result even if it fails partway, and return the exit status."""
        from metastore_assets.pipeline.backfill import BackfillResult
        from metastore_assets.pipeline.backfill import backfill as do_backfill

        result = BackfillResult(self.table.name)
        with show_progress() as watcher, LazySpark(self.config.spark, watcher) as spark, ExitStack() as stack:
            try:
                work = stack.enter_context(self._work(spark, watcher))
                do_backfill(self.config, self.table, self.plan, work, result)
            except (KeyboardInterrupt, SystemExit):
                watcher.hide()
                if self.via == "dagster":
                    print_note("the current run continues in Dagster: cancel it there to stop it")
                raise
            except Exception as error:  # noqa: BLE001 (the result shows what was done before the error)
                raise_interrupt(error)
                spark.explain(error)
                watcher.hide()
                subject = "" if repr(self.table.name) in str(error) else f"table {self.table.name!r}"
                failure = {**result.to_json(), "error": report_error(error, invocation, subject)}
                answer(failure, lambda page: _draw_result(page, failure), as_json=as_json)
                return ERROR
            watcher.hide()
        if result.failed_checks:
            names = ", ".join(result.failed_checks)
            print_note(f"table {self.table.name!r}: the versions are published, but these checks failed: {names}")
        document = result.to_json()
        answer(document, lambda page: _draw_result(page, document), as_json=as_json)
        return 0

    def _work(self, spark: LazySpark, watcher: Watcher) -> AbstractContextManager[ChunkProcessor]:
        """Return a context manager that yields a function.

        The function backfills one chunk of partitions.

        It does so in this process if `via` is `local`, and otherwise by a run of Dagster.
        """
        if self.via == "local":
            from metastore_assets.pipeline.backfill import local_processor

            return nullcontext(local_processor(self.config, self.table, spark, self.plan, watcher))
        from metastore_assets.extras import extra

        with extra("dagster", "--via dagster"):
            from metastore_assets.assets.launch import open_run_executor
        from metastore_assets.store.versions import versions_of

        return open_run_executor(versions_of(self.config, self.table.name), self.plan.attempt, watcher)


def _read_keys(file: str) -> tuple[str, ...]:
    """Return the stripped lines of a file, or of stdin if `file` is `-`.

    Empty lines are left out.

    Raises UsageError if the file cannot be read.
    """
    try:
        content = sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.UsageError(f"--keys-from: {file} cannot be read: {reason}") from error
    return tuple(line.strip() for line in content.splitlines() if line.strip())


def _plan_to_json(plan: BackfillPlan) -> dict[str, Any]:
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
        "mode": plan.selection.mode,
        "selected": plan.selected_count,
        "total": plan.total,
        "missing": plan.missing,
        "stale": plan.stale,
        "again": len(plan.keys) - plan.missing - plan.stale,
        "unselected": asdict(plan.unselected_totals),
        "publishes": plan.publishes,
        "continues": len(plan.done),
        "keys": list(plan.keys),
    }


def _draw_plan(page: Page, plan: Answer, *, verbose: bool) -> None:
    heading = Styled(plan["table"], "bold")
    version = f"version {plan['version']}" if plan["version"] else "no version yet"
    page.line(heading, f" {version}, snapshot {text.make_printable(plan['snapshot'][:20])}: {_summary(plan)}")
    if plan["continues"]:
        done_text = text.format_count(plan["continues"], "partition")
        page.line(f"  continues an interrupted backfill that did {done_text} (--restart does them again)")
    if not plan["chunks"]:
        return
    input_text = f"{text.format_count(plan['fragments'], 'fragment')} ({text.format_size(plan['bytes'])})"
    versions = ", a version for each" if plan["chunks"] > 1 else ""
    duration = "" if plan["seconds"] is None else f", about {_format_duration(plan['seconds'])}"
    page.line(f"  reads {input_text} in {text.format_count(plan['chunks'], 'chunk')}{versions}{duration}")
    unselected_counts = plan["unselected"]
    unselected_text = f"{text.format_count(unselected_counts['partitions'], 'partition')} that you did not select"
    fragments = text.format_count(unselected_counts["fragments"], "fragment")
    size = f"{fragments}, {text.format_size(unselected_counts['bytes'])}"
    if not plan["publishes"]:
        page.line(Styled(f"  publishes no version until {unselected_text} are read too ({size})", "yellow"))
    elif unselected_counts["partitions"]:
        page.line(Styled(f"  this includes {size} of {unselected_text}: a version describes the whole table", "yellow"))
    draw_keys(page, plan["keys"], "*", "green", verbose=verbose)


def _draw_result(page: Page, result: Answer) -> None:
    heading = Styled(result["table"], "bold")
    if not result["chunks"]:
        verdict = Styled(" nothing to do", "green") if result["done"] else Styled(" nothing was done", "yellow")
        page.line(heading, verdict)
        return
    versions = ", ".join(map(str, result["versions"]))
    published_text = f"version{'s' * (len(result['versions']) > 1)} {versions}" if versions else "no version published"
    read_text = f"{text.format_count(result['fragments'], 'fragment')} ({text.format_size(result['bytes'])})"
    done_text = (
        f"{text.format_count(result['partitions'], 'partition')} in {text.format_count(result['chunks'], 'chunk')}"
    )
    unfinished_text = " stopped" if "error" in result else " read, but not published"
    verdict = Styled(" done", "green") if result["done"] else Styled(unfinished_text, "yellow")
    page.line(
        heading,
        verdict,
        f" in {text.format_seconds(result['seconds'])}: {done_text}, {read_text} read, {published_text}",
    )


def _summary(plan: Answer) -> str:
    if not plan["chunks"]:
        selected_text = text.format_count(plan["selected"], "selected partition")
        verdict = {"missing": "is missing", "stale": "is out of date"}.get(plan["mode"], "needs work")
        return f"nothing to do: none of {selected_text} {verdict}"
    counts = {"missing": plan["missing"], "out of date": plan["stale"], "read again": plan["again"]}
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    return f"{plan['partitions']:,} of {text.format_count(plan['total'], 'partition')} to do ({kinds})"


def _format_duration(seconds: float) -> str:
    return text.format_seconds(seconds) if seconds < 5400 else f"{seconds / 3600:.1f} h"
