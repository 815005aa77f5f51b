"""`metastore init`: write a configuration for tables at given locations or in catalogs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import ERROR, SUCCESS, Invocation, raise_interrupt, report_error
from metastore_assets.cli.files import write_atomically
from metastore_assets.cli.options import (
    output_options,
    parse_pair,
    reader_option,
    schema_option,
    uris_argument,
)
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import absolute_location
from metastore_assets.report import text

if TYPE_CHECKING:
    from pathlib import Path

    from metastore_assets.cli.starting_config import DatabaseProposal, TableProposal

_CATALOG = "catalog://"
_ALL_TABLES = ".*"
"""The end of a location that stands for all tables in a database: `catalog://prod/sales.*`."""
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
@click.option(
    "--catalog",
    "catalogs",
    metavar="NAME=SETTINGS",
    multiple=True,
    callback=lambda context, option, texts: dict(map(_parse_catalog, texts)),
    help="The settings of a catalog in YAML, as under `catalogs` of the configuration: 'prod={type: glue, "
    "glue.region: eu-central-1}'. May be repeated. A table is named catalog://prod/sales.orders, and all tables of a "
    "database catalog://prod/sales.*.",
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
    catalogs: Mapping[str, Any],
    options: Mapping[str, Any],
    schema: Mapping[str, str],
    force: bool,
    as_json: bool,
) -> int:
    """Write a configuration with the tables at some locations, or in catalogs.

    Detects the format of each table, and suggests what to store of its columns: from the values of a small table, from
    the schema of a large one. Comments explain every line. Writes the file that --config names, by default
    ./metastore.yaml, and nothing else. If a table cannot be read, nothing is written.
    """
    from metastore_assets.cli.starting_config import (
        DatabaseProposal,
        TableProposal,
        escape_references,
        format_config,
    )
    from metastore_assets.config.file import config_path

    file = config_path(invocation.config)
    if not force and os.path.lexists(file):
        raise MetastoreError(f"{file} exists: add --force to replace it, or name another file with --config")
    settings = {key: value for key, value in (("options", options), ("schema", schema)) if value}
    names: set[str] = set()
    uris = tuple(dict.fromkeys(uris))
    entries = [_entry(uri, catalogs, names) | settings for uri in uris]
    _check_file(file, entries)
    escaped_entries = dict(zip(uris, map(escape_references, entries), strict=True))
    proposals = _find_proposals(
        invocation, escaped_entries, {"root": escape_references(root), "catalogs": catalogs}, file
    )
    if proposals is None:
        return ERROR
    content = format_config(root, proposals, file, catalogs)
    write_atomically(file, content, replace=force, advice="name another file with --config")
    result = {
        "file": str(file),
        "root": root,
        "tables": [item.to_json() for item in proposals if isinstance(item, TableProposal)],
        "databases": [item.to_json() for item in proposals if isinstance(item, DatabaseProposal)],
    }
    answer(result, lambda page: _draw(page, result), as_json=as_json)
    return SUCCESS


def _check_file(file: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise MetastoreError if a configuration file would be in the folder of one of its tables.

    Args:
        file: The path of the file.
        entries: The entries under `tables` of the file. Locations are absolute.
    """
    from metastore_assets.config.root_folders import is_read_with_table
    from metastore_assets.storage.location import Location

    for entry in entries:
        if "uri" in entry and is_read_with_table(Location.of(str(file.absolute())), Location.of(entry["uri"])):
            raise MetastoreError(
                f"{file} would be in {entry['uri']}, the folder of table {entry['name']!r}: its readers would read the "
                "file as data, or a vacuum might delete it; run `metastore init` in another folder, or name another "
                "file with --config"
            )


def _parse_catalog(text: str) -> tuple[str, Any]:
    """Parse `NAME=SETTINGS` to the name and the settings.

    Raises BadParameter if the name or `=` is missing, or if the settings are not valid YAML.
    """
    import yaml

    from metastore_assets.config.base import as_text

    name, settings = parse_pair(text)
    try:
        parsed_settings = yaml.safe_load(settings)
    except (ValueError, yaml.YAMLError):
        raise click.BadParameter(f"{settings!r} is no YAML: write 'NAME={{type: …, key: value}}'") from None
    if isinstance(parsed_settings, dict):  # JSON, which the file gets, has no dates.
        parsed_settings = {
            key: as_text(value) if isinstance(value, date) else value for key, value in parsed_settings.items()
        }
    return name, parsed_settings


def _entry(uri: str, catalogs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the entry for a table or database in the configuration.

    For a table, this function also adds the table's name to `names`.

    Args:
        uri: The location, as the user wrote it.
        catalogs: The settings of catalogs, by name.
        names: The names of earlier tables, in lower case with `_` for `-`. A second `orders` is named `orders_2`.

    Raises:
        UsageError: A location `catalog://…` lacks the catalog or the table, or its catalog has no settings. Only the
            catalog `default` needs none.
    """
    from metastore_assets.config.file import table_name_for
    from metastore_assets.config.models import fold_name
    from metastore_assets.profiling import table_name

    catalog, _, identifier = uri.removeprefix(_CATALOG).partition("/")
    if uri.startswith(_CATALOG):
        if not catalog or not identifier:
            raise click.UsageError(
                f"{uri} names no table: write {_CATALOG}CATALOG/DATABASE.TABLE, or {_CATALOG}CATALOG/DATABASE.* for all"
            )
        if catalog not in (*catalogs, "default"):
            raise click.UsageError(f"the catalog {catalog!r} has no settings: add --catalog '{catalog}={{type: …}}'")
        if identifier.endswith(_ALL_TABLES):
            return {"catalog": catalog, "database": identifier.removesuffix(_ALL_TABLES)}
        name = _distinct_name(table_name_for(identifier), names)
        entry: dict[str, Any] = {"name": name, "catalog": catalog, "table": identifier}
    else:
        name = _distinct_name(table_name(_EXTENSION.sub("", absolute_location(uri))), names)
        entry = {"name": name, "uri": absolute_location(uri)}
    names.add(fold_name(name))
    return entry


def _find_proposals(
    invocation: Invocation, entries: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], file: Path
) -> list[TableProposal | DatabaseProposal] | None:
    """Read the tables and databases at some locations, and return a proposal for each of them.

    A proposal is what `init` has found out about a table or a database, from which its configuration is written. Errors
    are printed. If there is any error, the result is None.

    Args:
        invocation: The invocation, for reports of errors.
        entries: For each location as the user wrote it, the entry under `tables` of the configuration.
        settings: Root and catalogs of the configuration.
        file: The path of the configuration.
    """
    from metastore_assets.cli.starting_config import find_database, find_table
    from metastore_assets.config.file import normalize_mapping
    from metastore_assets.config.loading import parse_config
    from metastore_assets.pipeline.outcome import Progress
    from metastore_assets.storage.temporary_folders import TemporaryFolder

    proposals: list[TableProposal | DatabaseProposal] = []
    failures = 0
    with TemporaryFolder("init") as folder, show_progress() as watcher:
        for number, (uri, entry) in enumerate(entries.items()):
            try:
                watcher(Progress(entry.get("name", uri), "plan"))
                config = parse_config(normalize_mapping({**settings, "tables": [dict(entry)]}), file).resolve()
                proposals += [find_table(table, f"{folder}/{number}") for table in config.tables]
                proposals += map(find_database, config.databases)
            except Exception as error:  # noqa: BLE001 (the other tables are tried too, so that all errors are reported)
                raise_interrupt(error)
                watcher.hide()
                if isinstance(error, ConfigError):  # It begins with the file, which does not exist yet.
                    error = ConfigError(str(error).removeprefix(f"{file}: "))
                report_error(error, invocation, uri if isinstance(error, ConfigError) else "")
                failures += 1
        watcher.hide()
    return None if failures else proposals


def _distinct_name(name: str, names: set[str]) -> str:
    """Return the name or, if it is taken, the name with a number: `orders_2`.

    A long name is shortened before the number is added. Names that `fold_name` makes equal count as the same name:
    `my-orders` and `My_Orders`.

    Args:
        name: The wanted name.
        names: The taken names, as `fold_name` returns them.
    """
    from metastore_assets.config.models import fold_name

    numbered_names = (f"{name[:95]}_{number}" for number in range(2, len(names) + 3))
    return next(candidate for candidate in (name, *numbered_names) if fold_name(candidate) not in names)


def _draw(page: Page, result: Answer) -> None:
    databases = result["databases"]
    counts = [text.format_count(len(result["tables"]), "table")] if result["tables"] or not databases else []
    counts += [text.format_count(len(databases), "database")] if databases else []
    page.line(Styled(result["file"], "bold"), f": {', '.join(counts)}")
    width = max((len(table["table"]) for table in result["tables"]), default=0)
    for table in result["tables"]:
        active_count = sum(item["active"] for item in table["suggestions"])
        inactive_count = len(table["suggestions"]) - active_count
        facts = [table["format"], text.format_count(table["columns"], "column"), text.format_size(table["bytes"])]
        if active_count:
            facts.append(text.format_count(active_count, "suggested policy", "suggested policies"))
        if inactive_count:
            facts.append(f"{text.format_count(inactive_count, 'policy', 'policies')} in comments")
        page.line("  ", Styled(f"{table['table']:<{width}}", "bold"), f"  {', '.join(facts)}")
    for database in databases:
        count = text.format_count(len(database["tables"]), "table")
        page.line("  ", Styled(f"{database['catalog']}.{database['database']}", "bold"), f"  {count}")
        for skipped_table in database["skipped"]:
            page.line("    ", Styled(f"{skipped_table['table']} is left out: {skipped_table['reason']}", "dim"))
    page.line(Styled("  next: `metastore doctor`, then `metastore refresh --all`", "dim"))
