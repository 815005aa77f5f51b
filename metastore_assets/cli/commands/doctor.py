"""`metastore doctor`: check the environment, and access to the root and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.completion import complete_tables
from metastore_assets.cli.drawing import wrap
from metastore_assets.cli.failures import CHECK_FAILED, SUCCESS, Invocation, explain_error
from metastore_assets.cli.opening import add_database_tables, load_config
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import Watcher, show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.errors import ConfigError
from metastore_assets.report import text
from metastore_assets.startup import allow_pandas

if TYPE_CHECKING:
    from metastore_assets.cli.diagnosis.finding import DoctorFinding
    from metastore_assets.config import MetastoreConfig

_STYLES = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


@click.command(short_help="Check Java, Spark, packages, root and tables.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_tables)
@click.option("--deep", is_flag=True, help="Also start Spark and run a task, and read one data file of each table.")
@output_options
@click.pass_obj
def doctor(invocation: Invocation, names: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Check everything that refreshes and lookups need, and give advice for what does not work.

    Checks Python, the versions of packages, Java, Spark, Dagster's instance, the configuration, access to the root
    (write, read, list, conditional write, delete) and to each table, or only to the tables NAME. Exits with status 1 if
    a check failed. Warnings do not change the status.
    """
    with show_progress() as watcher:
        findings = list(_diagnose(invocation, names, watcher, deep=deep))
        watcher.hide()
    counts = Counter(finding.status for finding in findings)
    result = {
        "status": "failed" if counts["failed"] else "ok",
        **{status: counts[status] for status in _STYLES},  # type: ignore[index]
        "findings": [finding.to_json() for finding in findings],
    }
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    return CHECK_FAILED if counts["failed"] else SUCCESS


def _diagnose(invocation: Invocation, names: Sequence[str], watcher: Watcher, *, deep: bool) -> Iterator[DoctorFinding]:
    """Make all checks, and yield their findings."""
    from metastore_assets.cli.diagnosis.access import check_root, check_table
    from metastore_assets.cli.diagnosis.environment import (
        check_dagster,
        check_java,
        check_packages,
        check_python,
        check_spark,
    )
    from metastore_assets.storage.parallel import interruptible_map

    allow_pandas()  # Otherwise it would be reported as missing.
    yield check_python()
    yield from check_packages()
    config, finding = _read_config(invocation, names)
    yield finding
    yield check_java(config)
    with LazySpark({} if config is None else config.spark, watcher) as spark:
        yield check_spark(config, spark if deep else None)
    yield check_dagster()
    if config is not None:
        watcher.working("", "checking the root")
        yield check_root(config)
        watcher.working("", "checking tables")
        tables = [table for table in config.tables if not names or table.name in names]
        yield from interruptible_map(partial(check_table, config, deep=deep), tables)


def _read_config(invocation: Invocation, names: Sequence[str]) -> tuple[MetastoreConfig | None, DoctorFinding]:
    """Return (configuration with the tables in its databases, finding about it).

    The configuration is None if its file is missing or invalid, or if it lacks one of `names`. The finding is then
    `failed`. It is also `failed` if a catalog did not answer, but then the configuration is returned.

    Args:
        invocation: The global options.
        names: The names of tables to find in the configuration.
    """
    from metastore_assets.cli.diagnosis.finding import DoctorFinding
    from metastore_assets.config.file import config_path

    file = config_path(invocation.config)
    if not file.exists():
        advice = "`metastore init URI...` writes one; --config and METASTORE_CONFIG name another file"
        return None, DoctorFinding("configuration", "failed", f"there is no {file}", advice)
    try:
        config = load_config(invocation)
        expanded_config, is_complete = add_database_tables(config)
        for name in names:
            expanded_config.table(name)
    except ConfigError as error:
        return None, DoctorFinding("configuration", "failed", explain_error(error))
    message = f"{file}: {text.format_count(len(expanded_config.tables), 'table')}"
    if not is_complete:
        advice = "the notes name the catalogs: check their `uri` and credentials"
        return expanded_config, DoctorFinding("configuration", "failed", f"{message}; a catalog did not answer", advice)
    return expanded_config, DoctorFinding("configuration", "ok", message)


def _draw(page: Page, result: Answer) -> None:
    width = max(len(finding["subject"]) for finding in result["findings"])
    for finding in result["findings"]:
        status = finding["status"]
        subject = f"{text.make_printable(finding['subject']):<{width}}"
        first_line, *other_lines = wrap(finding["message"], page.width, width + 10) or [""]
        page.line(Styled(f"{status:<8}", _STYLES[status]), Styled(subject, "bold"), f"  {first_line}")
        if finding["advice"] is not None:
            other_lines += wrap(f"→ {finding['advice']}", page.width, width + 10)
        for line in other_lines:
            page.line(" " * (width + 10), Styled(line, "dim" if status == "skipped" else ""))
    counts = [f"{result[status]:,} {status}" for status in _STYLES if result[status]]
    page.line(Styled(", ".join(counts), "red" if result["failed"] else "green"))
