"""Shell completion of the names of tables, columns and partitions: quick, or empty.

The working folder's configuration may come from anybody, and pressing Tab does not mean to run it. So completion
resolves no variables of the environment, and reads only the configuration and a root on local disk.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.failures import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from metastore_assets.config import MetastoreConfig
    from metastore_assets.lookup import Table

PATIENCE = 2.0
"""Seconds to wait for a root that does not respond."""


def table_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete configured tables that the line does not name yet, with recorded tables of databases."""

    def names() -> list[str]:
        from metastore_assets.config.file import config_path, read_mapping, table_name_for

        raw = read_mapping(config_path(_invocation(context).config))
        own = [table.get("name") or table_name_for(table["table"]) for table in raw.get("tables", [])]
        return [*own, *(_of_databases(context) if raw.get("databases") else ())]

    taken = context.params.get("names") or ()
    return _items(name for name in _soon(names) if name.startswith(incomplete) and name not in taken)


def _of_databases(context: click.Context) -> list[str]:
    """Return the recorded tables of databases. Catalogs are not queried, because that may take long."""
    from metastore_assets.databases import expand_databases, recorded_listings

    config = _local_config(context)
    if config is None:
        return []
    return [
        table.name
        for table in expand_databases(config, recorded_listings(config))[0].tables
        if table.database is not None
    ]


def column_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete columns of the newest version of the table in the line."""
    return _items(name for name in _of_table(context, _columns) if name.startswith(incomplete))


def column_list(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last name of a list of columns such as `a,b`; a name with a comma is in double quotes."""
    before, comma, last = incomplete.rpartition(",")
    named = set(next(csv.reader([before]), []))
    columns = [_quoted(name) for name in _of_table(context, _columns) if name not in named]
    return _items(f"{before}{comma}{name}" for name in columns if name.startswith(last))


def partition_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete partitions of the newest version of the table in the line."""
    return _items(key for key in _of_table(context, _keys) if key.startswith(incomplete))


def location(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete file names, by the shell."""
    return _items([incomplete], "file")


def _invocation(context: click.Context) -> Invocation:
    return context.find_object(Invocation) or Invocation()


def _local_config(context: click.Context) -> MetastoreConfig | None:
    """Return the configuration as written, if its root is a folder on local disk without variables."""
    from metastore_assets.config import read_config
    from metastore_assets.store.objects import ObjectStore

    config = read_config(_invocation(context).config)
    if "${" in config.root:
        return None
    located = config.locate()
    return None if ObjectStore(located.root).is_remote else located


def _of_table(context: click.Context, names: Callable[[Table], list[str]]) -> list[str]:
    """Return names from the newest version of the table in the line."""
    from metastore_assets.metastore import Metastore

    def find() -> list[str]:
        # While the value of an option is missing, click does not parse the arguments.
        named = [context.params.get("name"), *context.params.get("names", ()), *context.args]
        config = _local_config(context)
        return [] if config is None else names(Metastore(config.root).table(next(filter(None, named))))

    return _soon(find)


def _columns(table: Table) -> list[str]:
    return [row.column for row in table.statistics()]


def _keys(table: Table) -> list[str]:
    return [entry.key for entry in table.partitions()]


def _quoted(name: str) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([name])
    return written.getvalue()


def _soon(find: Callable[[], list[str]]) -> list[str]:
    """Return the result if it is there in time. Errors give nothing: a half-typed line cannot show them."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(find())
        except Exception:  # noqa: BLE001 (whatever it is, the command itself will say it)
            found.clear()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return list(found)


def _items(values: Iterable[str], kind: str = "plain") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, kind) for value in values]
