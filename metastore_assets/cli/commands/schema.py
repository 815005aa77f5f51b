"""`metastore schema`: print the JSON schemas of what commands print with `--json`."""

from __future__ import annotations

import json

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.options import global_options
from metastore_assets.cli.output import write_text


@click.command(short_help="Print the JSON schema of a command's output.")
@click.argument("command", metavar="[COMMAND]...", nargs=-1)
@global_options
@click.pass_obj
def schema(invocation: Invocation, command: tuple[str, ...]) -> None:
    """Print the JSON schema of each line that a command prints with --json.

    Without COMMAND, prints the schemas of all commands, and their version. The first number of the version rises if a
    key is removed or changes its meaning or type; the second one rises if a key is added.
    """
    from metastore_assets.cli.output_schemas import DOCUMENTS, all_schemas, command_schema

    name = " ".join(command)
    if name and name not in DOCUMENTS:
        raise click.UsageError(f"{name!r} is no command with --json; there are: {', '.join(sorted(DOCUMENTS))}")
    write_text(json.dumps(command_schema(name) if name else all_schemas(), indent=2, ensure_ascii=False) + "\n")
