"""Shell completion of table names, column names and partition keys.

Pressing Tab must have no effects, even if another user wrote the configuration in the working folder. Completion
therefore leaves variables in the configuration unreplaced, and reads only the configuration and a root on local disk.
The root is the folder with all stored state. A listing is the list of a database's tables that a catalog returned. The
last listing of each database is stored in the root. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import click

from metastore_assets.cli.failures import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from metastore_assets.config import MetastoreConfig
    from metastore_assets.lookup import Table

_TIMEOUT = 2.0
"""Seconds to wait for a root that does not respond."""


def complete_tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching names of configured tables, without those that are already in the command line.

    The tables of a database are those of its last listing; no request is sent to the catalog.
    """

    def list_names() -> list[str]:
        from metastore_assets.config.file import config_path, read_mapping, table_name_for

        raw = read_mapping(config_path(_invocation(context).config))
        configured_names = [table.get("name") or table_name_for(table["table"]) for table in raw.get("tables", [])]
        return [*configured_names, *(_recorded_table_names(context) if raw.get("databases") else ())]

    entered_names = context.params.get("names") or ()
    return _items(
        name for name in _names_in_time(list_names) if name.startswith(incomplete) and name not in entered_names
    )


def _recorded_table_names(context: click.Context) -> list[str]:
    """Return the names of the tables in databases, from their last listing."""
    from metastore_assets.databases import expand_databases, recorded_listings

    config = _local_config(context)
    if config is None:
        return []
    return [
        table.name
        for table in expand_databases(config, recorded_listings(config))[0].tables
        if table.database is not None
    ]


def complete_column(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching columns of the table in the command line, at its newest version."""
    return _items(name for name in _names_of_table(context, _column_names) if name.startswith(incomplete))


def complete_columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching columns for the last name in a list such as `a,"b,c"`.

    Columns in the list are left out.
    """
    before, comma, last_name = incomplete.rpartition(",")
    entered_names = set(next(csv.reader([before]), []))
    columns = [_quote(name) for name in _names_of_table(context, _column_names) if name not in entered_names]
    return _items(f"{before}{comma}{name}" for name in columns if name.startswith(last_name))


def complete_partition(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the matching partition keys of the table in the command line, at its newest version."""
    return _items(key for key in _names_of_table(context, _partition_keys) if key.startswith(incomplete))


def complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return an item that makes the shell itself complete file names."""
    return _items([incomplete], "file")


def _invocation(context: click.Context) -> Invocation:
    return context.find_object(Invocation) or Invocation()


def _local_config(context: click.Context) -> MetastoreConfig | None:
    """Return the configuration without replacing variables.

    Returns None if its root is remote or contains a variable.
    """
    from metastore_assets.config import read_config
    from metastore_assets.store.objects import ObjectStore

    config = read_config(_invocation(context).config)
    if "${" in config.root:
        return None
    located_config = config.locate()
    return None if ObjectStore(located_config.root).is_remote else located_config


def _names_of_table(context: click.Context, names: Callable[[Table], list[str]]) -> list[str]:
    """Return the names that `names` lists for the newest version of the table in the command line.

    The result is empty after a timeout or error.
    """
    from metastore_assets.metastore import Metastore

    def list_names() -> list[str]:
        # click does not parse the arguments while the value of an option is missing.
        entered_names = [context.params.get("name"), *context.params.get("names", ()), *context.args]
        config = _local_config(context)
        return [] if config is None else names(Metastore(config.root).table(next(filter(None, entered_names))))

    return _names_in_time(list_names)


def _column_names(table: Table) -> list[str]:
    return [row.column for row in table.statistics()]


def _partition_keys(table: Table) -> list[str]:
    return [entry.key for entry in table.partitions()]


def _quote(name: str) -> str:
    buffer = io.StringIO()
    quoting: Literal[0, 1] = csv.QUOTE_MINIMAL if name == name.strip() else csv.QUOTE_ALL
    csv.writer(buffer, lineterminator="", quoting=quoting).writerow([name])
    return buffer.getvalue()


def _names_in_time(list_names: Callable[[], list[str]]) -> list[str]:
    """Return the result of `list_names`; an empty list after a timeout or an error."""
    names: list[str] = []

    def run() -> None:
        try:
            names.extend(list_names())
        except Exception:  # noqa: BLE001 (the command itself will report the error)
            names.clear()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    return list(names)


def _items(values: Iterable[str], kind: str = "plain") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # Shells read completions line by line, so that names with line breaks would be taken for several.
    return [CompletionItem(value, kind) for value in values if not {"\n", "\r"} & set(value)]
