"""What a command asks: a table, or with `--where` the rows of it that a predicate is true of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from metastore_assets.cli.failures import note
from metastore_assets.cli.opening import partition_of, published, table_of
from metastore_assets.cli.progress import watching
from metastore_assets.cli.spark import LazySpark

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig
    from metastore_assets.lookup import FilteredView, Table

Asked: TypeAlias = "Table | FilteredView"

where_option = click.option(
    "--where",
    metavar="E",
    help="Of the rows that this is true of, such as \"day >= '2024-01-01' and country = 'FR'\". Files of which "
    "it is true in part are read.",
)


@contextmanager
def asked(
    config: MetastoreConfig, name: str, where: str | None, partition: str | None = None, version: int | None = None
) -> Iterator[tuple[Asked, str | None]]:
    """What is to be asked, and the key of the partition that is meant; None for all of it.

    With `where` tells in the end, on stderr, what was read of the table. Raises VersionNotFoundError, ConfigError,
    PartitionNotFoundError, PredicateError, ColumnNotFoundError, LiteralError.
    """
    table = published(config, name, version)
    key = partition_of(table, partition)
    if where is None:
        yield table, key
        return
    predicate = table.predicate(where)

    from metastore_assets.report import text
    from metastore_assets.scan import filter_table

    with watching() as watcher, LazySpark(config.spark, watcher) as spark:
        scope = filter_table(table, predicate)
        if scope.match.partial_fragments:  # else nobody has to be asked where the table is
            scope = filter_table(table, predicate, table_of(config, name), spark)
        yield scope, key
        watcher.hide()
    cost = scope.cost
    if cost.fragments_read:
        files = f"{cost.fragments_read:,} of {text.plural(cost.fragments_total, 'file')}"
        note(f"{files} were read, {text.size(cost.bytes_read)} of them: the predicate is true of some of their rows")
