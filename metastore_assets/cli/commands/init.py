"""`metastore init`: write a configuration for tables at some locations."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import ERROR, SUCCESS, Invocation, raise_interrupt, report_error
from metastore_assets.cli.files import write_atomically
from metastore_assets.cli.options import (
    absolute_location,
    output_options,
    reader_option,
    schema_option,
    uris_argument,
)
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.cli.starting_config import FoundTable

_EXTENSION = re.compile(r"\.(avro|csv|json|jsonl|ndjson|orc|parquet|tsv)(\.\w+)?$", re.IGNORECASE)


@click.command(short_help="Write a configuration for tables.")
@uris_argument
@click.option(
    "--root",
    default="./metastore",
    show_default=True,
    metavar="URI",
    help="Where the statistics will be stored: a folder relative to the file, or a URI such as s3://bucket/metastore.",
)
@reader_option
@schema_option
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@output_options
@click.pass_obj
def init(
    invocation: Invocation,
    uris: tuple[str, ...],
    root: str,
    options: Mapping[str, Any],
    schema: Mapping[str, str],
    force: bool,
    as_json: bool,
) -> int:
    """Write a configuration with the tables at some locations.

    Detects the format of each table, and suggests what to store of its columns: from the values of a small table, from
    the schema of a large one. Comments explain every line. Writes the file that --config names, by default
    ./metastore.yaml, and nothing else. If a table cannot be read, nothing is written.
    """
    from metastore_assets.cli.starting_config import format_config
    from metastore_assets.config.file import config_path

    file = config_path(invocation.config)
    if not force and os.path.lexists(file):
        raise MetastoreError(f"{file} exists: add --force to replace it, or name another file with --config")
    tables = _find_tables(invocation, uris, {"options": options, "schema": schema})
    if tables is None:
        return ERROR
    content = format_config(root, tables, file)
    write_atomically(file, content, replace=force, advice="name another file with --config")
    result = {"file": str(file), "root": root, "tables": [table.to_json() for table in tables]}
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    return SUCCESS


def _find_tables(invocation: Invocation, uris: Sequence[str], settings: Mapping[str, Any]) -> list[FoundTable] | None:
    """Return the tables at some locations; None if one cannot be read, after reporting each error."""
    from metastore_assets.cli.starting_config import find_table
    from metastore_assets.config import TableConfig
    from metastore_assets.pipeline.outcome import Progress
    from metastore_assets.profiling import table_name
    from metastore_assets.storage.temporary_folders import TemporaryFolder

    tables: list[FoundTable] = []
    names: set[str] = set()
    failures = 0
    with TemporaryFolder("init") as folder, show_progress() as watcher:
        for number, uri in enumerate(uris):
            name = _distinct_name(table_name(_EXTENSION.sub("", uri)), names)
            names.add(name)
            try:
                watcher(Progress(name, "plan"))
                config = TableConfig(name=name, uri=absolute_location(uri), **settings)
                tables.append(find_table(config, f"{folder}/{number}"))
            except Exception as error:  # noqa: BLE001 (the other tables are tried too, so that all errors are reported)
                raise_interrupt(error)
                watcher.hide()
                report_error(error, invocation, uri if isinstance(error, ConfigError) else "")
                failures += 1
        watcher.hide()
    return None if failures else tables


def _distinct_name(name: str, names: set[str]) -> str:
    """Return a name, with a number added if it is one of `names`."""
    numbered = (f"{name[:95]}_{number}" for number in range(2, len(names) + 3))
    return name if name not in names else next(other for other in numbered if other not in names)


def _draw(page: Page, result: Answer) -> None:
    page.line(Styled(result["file"], "bold"), f": {text.format_count(len(result['tables']), 'table')}")
    for table in result["tables"]:
        active = sum(item["active"] for item in table["suggestions"])
        others = len(table["suggestions"]) - active
        facts = [table["format"], text.format_count(table["columns"], "column"), text.format_size(table["bytes"])]
        facts += [f"{text.format_count(active, 'suggested policy', 'suggested policies')}"] if active else []
        facts += [f"{text.format_count(others, 'policy', 'policies')} in comments"] if others else []
        page.line("  ", Styled(table["table"], "bold"), f"  {', '.join(facts)}")
    page.line(Styled("  next: `metastore doctor`, then `metastore refresh --all`", "dim"))
