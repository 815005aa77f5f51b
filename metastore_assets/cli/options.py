"""Options that commands share."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from metastore_assets.cli.completion import column_name, partition_key, table_names
from metastore_assets.cli.failures import Invocation

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig

Command = TypeVar("Command", bound=Callable[..., Any])


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    invocation = context.find_object(Invocation)
    if invocation is not None and option.name is not None and value:
        setattr(invocation, option.name, value)


def global_options(command: Command) -> Command:
    """`--config` and `--debug`, which may stand before or after the command's name."""
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help="The configuration; else $METASTORE_CONFIG, else ./metastore.yaml.",
    )
    debug = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Show the traceback of an error.",
    )
    return config(debug(command))


def answering(command: Command) -> Command:
    """The options of every command that prints an answer: `--json` and the global ones."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one document per line.")
    return as_json(global_options(command))


name_argument = click.argument("name", metavar="NAME", shell_complete=table_names)
column_argument = click.argument("column", metavar="COLUMN", shell_complete=column_name)
partition_option = click.option(
    "--partition",
    metavar="KEY",
    shell_complete=partition_key,
    help="Of one partition instead of the whole table, such as day=2024-01-01.",
)


engine_option = click.option(
    "--engine",
    type=click.Choice(["spark", "auto"]),
    help="Refresh here, and so, whatever the configuration says: `auto` reads few small files without Spark.",
)


def with_engine(config: MetastoreConfig, engine: str | None) -> MetastoreConfig:
    """The configuration with the engine that is asked for, if one is."""
    return config if engine is None else config.model_copy(update={"engine": engine})


def partitions_option(what: str) -> Callable[[Command], Command]:
    """`--partition` for any number of partitions; `what` is done with the one named."""
    return click.option(
        "--partition",
        "partitions",
        metavar="KEY",
        multiple=True,
        shell_complete=partition_key,
        help=f"{what}, or those that fit a pattern such as 'day=2024-*'. May be repeated.",
    )


def column_names(text: str | None) -> list[str] | None:
    """The names in a list like `a,b`; one that holds a comma stands in double quotes. None for no list at all."""
    if text is None:
        return None
    names = next(csv.reader([text], skipinitialspace=True), [])
    return [name.strip() for name in names if name.strip()]
