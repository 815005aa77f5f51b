"""The `metastore` command and its subcommands, one module each."""

from __future__ import annotations

from importlib import import_module

import click

from metastore_assets.cli.failures import MetastoreGroup
from metastore_assets.cli.options import global_options
from metastore_assets.messages import close_names

_EPILOG = """\b
Completion of names with Tab in bash (see docs/reference/output.md for other shells):
  eval "$(_METASTORE_COMPLETE=bash_source metastore)"
"""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_SECTIONS = {
    "Common commands": ("profile", "refresh", "show", "top", "check"),
    "Set up and refresh": ("init", "doctor", "tables", "backfill", "spark-server"),
    "Look at a table": ("histogram", "quantile", "rank", "locate", "history", "report", "sql", "schema"),
    "Plan a query": ("prune", "estimate", "count", "clustering", "export"),
    "Compare versions": ("versions", "changes", "diff"),
    "Check the statistics": ("verify", "check-statistic"),
    "Maintain the store": ("compact", "expire", "purge"),
}
"""The names of the commands, by the sections of `metastore --help`."""


class CommandGroup(MetastoreGroup):
    """The group of all commands.

    To start fast, a command's module is imported only when the command is used, or when the help text lists all
    commands.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(name for names in _SECTIONS.values() for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name; None if there is none."""
        if not any(cmd_name in names for names in _SECTIONS.values()):
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), module)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name of the command, the command, the arguments after it).

        Raises UsageError for an unknown command, with names that are similar.
        """
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}{close_names(name, self.list_commands(ctx), '')}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help text, in sections."""
        width = max(len(name) for name in self.list_commands(ctx))
        limit = formatter.width - 6 - width
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in commands if command]
                formatter.write_dl(rows)


@click.group(cls=CommandGroup, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="metastore-assets", message="%(version)s")
@global_options
def cli() -> None:
    """Rich column statistics of lakehouse tables, true after every commit.

    `profile` computes the statistics of any table. The other commands work on the tables of a configuration, which
    `init` writes; NAME is the name of a table in it. `refresh` brings the stored statistics up to date. The rest reads
    the stored statistics, mostly without Spark.
    """
