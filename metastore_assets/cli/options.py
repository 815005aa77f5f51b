"""The click arguments and options that several commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from metastore_assets.cli.completion import (
    complete_column,
    complete_columns,
    complete_file,
    complete_partition,
    complete_tables,
)
from metastore_assets.cli.failures import Invocation

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig
    from metastore_assets.lookup.version_references import VersionReference

Command = TypeVar("Command", bound=Callable[..., Any])


def _store_in_invocation(context: click.Context, option: click.Parameter, value: Any) -> None:
    invocation = context.find_object(Invocation)
    if invocation is not None and option.name is not None and value:
        setattr(invocation, option.name, value)


def global_options(command: Command) -> Command:
    """Add the options `--config` and `--debug`, which can come before or after the command's name."""
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_store_in_invocation,
        help="The configuration file.  [default: $METASTORE_CONFIG, else ./metastore.yaml]",
    )
    debug = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_store_in_invocation,
        help="Show the traceback of an error.",
    )
    return config(debug(command))


def output_options(command: Command) -> Command:
    """Add `--json` and the global options, to a command that prints an answer."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one document per line.")
    return as_json(global_options(command))


name_argument = click.argument("name", metavar="NAME", shell_complete=complete_tables)
column_argument = click.argument("column", metavar="COLUMN", shell_complete=complete_column)
value_argument = click.argument("value", metavar="VALUE")
NEGATIVE_VALUES = {"ignore_unknown_options": True}
"""click settings of commands whose arguments may be negative numbers, which otherwise look like options."""
partition_option = click.option(
    "--partition",
    metavar="KEY",
    shell_complete=complete_partition,
    help="Use one partition instead of the whole table, such as day=2024-01-01, or the one that a pattern matches.",
)
filter_option = click.option(
    "--where",
    metavar="PREDICATE",
    help="Use only the rows that match this predicate, such as \"day >= '2024-01-01' and country = 'FR'\". Reads the "
    "files that match only partly.",
)
predicate_option = click.option(
    "--where",
    required=True,
    metavar="PREDICATE",
    help="A predicate in SQL, such as \"price > 100 and country in ('FR', 'DE')\".",
)
columns_option = click.option(
    "--columns",
    metavar="A,B",
    shell_complete=complete_columns,
    help="Show only these columns. Put a name that contains a comma in double quotes.",
)


class VersionType(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no type argument
    """The type of options that name a version of stored statistics.

    A version is named by its number, by the id of its snapshot, or by a time in ISO 8601.
    """

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> VersionReference | None:
        """Return the text unchanged: `lookup.version_references` parses it later.

        An empty text is a usage error.
        """
        if isinstance(value, str) and not value.strip():
            self.fail("a version is a number, a snapshot id or a time, and must not be empty", param, ctx)
        return value


VERSION_FORMS = "a number, `snapshot:ID`, or a time in ISO 8601"
version_option = click.option(
    "--version",
    type=VersionType(),
    metavar="VERSION",
    help=f"Use an older version: {VERSION_FORMS}.  [default: the newest]",
)


def since_option(action: str, *, required: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds the option `--since`: an earlier version of stored statistics.

    Args:
        action: The beginning of the help text.
        required: Whether the option must be given.
    """
    return click.option(
        "--since",
        type=VersionType(),
        required=required,
        metavar="VERSION",
        help=f"{action}: {VERSION_FORMS}.{'' if required else '  [default: the previous]'}",
    )


engine_option = click.option(
    "--engine",
    type=click.Choice(["spark", "auto"]),
    help="Refresh in this process with this engine, whatever the configuration says. `auto` reads few small files "
    "without Spark.",
)


def with_engine(config: MetastoreConfig, engine: str | None) -> MetastoreConfig:
    """Return the configuration with another engine, or unchanged if `engine` is None."""
    return config if engine is None else config.model_copy(update={"engine": engine})


def partitions_option(action: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option `--partition`, which may be repeated.

    Args:
        action: The beginning of the help text, such as `Select this partition`.
    """
    return click.option(
        "--partition",
        "partitions",
        metavar="KEY",
        multiple=True,
        shell_complete=complete_partition,
        help=f"{action}, or those that match a pattern such as 'day=2024-*'. May be repeated.",
    )


_COLUMN_NAME = re.compile(r"""(?:^|,)(?:\s*"(?P<quoted>(?:[^"]|"")*)"\s*(?=,|\Z)|(?P<unquoted>[^,]*))""")


def parse_column_names(text: str | None) -> list[str] | None:
    """Parse column names in a text such as `a,"b,c"`; None for None.

    Blanks around names without quotes are ignored.

    Raises UsageError if the text names no column, or has a line break outside of quotes.
    """
    if text is None:
        return None
    matches = list(_COLUMN_NAME.finditer(text))
    if any(re.search(r"[\n\r]", (match["unquoted"] or "").strip()) for match in matches):
        raise click.UsageError(
            "--columns cannot be parsed: put a name that contains a comma or a line break in double quotes"
        )
    names = [
        match["unquoted"].strip() if match["quoted"] is None else match["quoted"].replace('""', '"')
        for match in matches
        if match["quoted"] is not None or match["unquoted"].strip()
    ]
    if not names:
        raise click.UsageError(f"--columns: {text!r} names no column: give names such as `id,price`")
    return names


def _parse_option(text: str) -> tuple[str, Any]:
    """Parse a text such as `header=false` to `("header", False)`.

    A value that is not JSON stays a text.
    """
    key, value = parse_pair(text)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def parse_pair(text: str) -> tuple[str, str]:
    """Split a text such as `key=value` at the first `=`.

    Raises BadParameter if key or `=` are missing.
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} has no `=` after a name")
    return key, value


def _check_uri(uri: str) -> str:
    if not uri.strip():
        raise click.BadParameter("a URI is empty; use `.` for the working folder")
    return uri


uris_argument = click.argument(
    "uris",
    metavar="URI...",
    nargs=-1,
    required=True,
    callback=lambda context, option, uris: tuple(map(_check_uri, uris)),
    shell_complete=complete_file,
)
reader_option = click.option(
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda context, option, texts: dict(map(_parse_option, texts)),
    help="A reader option of the format, such as header=false or delimiter=';' for CSV. May be repeated.",
)
schema_option = click.option(
    "--schema",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=lambda context, option, texts: dict(map(parse_pair, texts)),
    help="The type of a column of plain files, such as zip=string or 'price=decimal(10,2)'. May be repeated.",
)
