"""`metastore export`: write a version's statistics for engines, or inspect or remove exports.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import complete_tables
from metastore_assets.cli.drawing import draw_hidden_columns
from metastore_assets.cli.failures import ERROR, SUCCESS, Invocation, print_error
from metastore_assets.cli.opening import find_table_config, load_config, open_version
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.errors import ConfigError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig, TableConfig

_STYLES = {"written": "green", "current": "green", "behind": "yellow", "absent": "yellow", "failed": "red"}


def _choose_action(context: click.Context, option: click.Parameter, is_set: bool) -> None:
    """Set the parameter `action` to the name of a flag that is given: `status`, `dry_run` or `remove`.

    Raises UsageError if two of these flags are given.
    """
    if is_set and context.params.setdefault("action", option.name) != option.name:
        raise click.UsageError("give only one of --status, --dry-run and --remove")


@click.command(short_help="Write the statistics to where engines look for them.")
@click.argument("name", metavar="NAME", shell_complete=complete_tables)
@click.option("--to", "targets", metavar="TARGET", multiple=True, help="Only this target. May be repeated.")
@click.option(
    "--status",
    is_flag=True,
    expose_value=False,
    callback=_choose_action,
    help="Only show which version and snapshot each target has.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    expose_value=False,
    callback=_choose_action,
    help="As --status, and show how many bytes the next refresh reads.",
)
@click.option(
    "--remove", is_flag=True, expose_value=False, callback=_choose_action, help="Remove everything that was exported."
)
@output_options
@click.pass_obj
def export(
    invocation: Invocation,
    name: str,
    targets: tuple[str, ...],
    as_json: bool,
    action: str = "write",
) -> int:
    """Write the newest version of a table to the targets that the configuration has under `exports`.

    A refresh does the same as its last step. Targets that already have the version are skipped. The command reads only
    stored statistics. If a target needs other statistics, the next refresh computes and exports them. With --status or
    --dry-run it writes nothing.
    """
    from metastore_assets.exports.writing import read_export_states, remove_exports, write_exports

    config = load_config(invocation)
    table = find_table_config(config, name)
    if not table.exports:
        raise ConfigError(f"table {name!r} has no exports: add the key `exports` to the table, such as [iceberg]")
    lookup = open_version(config, name)
    version, objects = lookup.version, lookup.objects
    with show_progress() as watcher:
        watcher.working(name, "removing exports" if action == "remove" else "exporting")
        if action == "remove":
            results = remove_exports(table, targets)
        elif action in ("status", "dry_run"):
            results = read_export_states(table, objects, version, targets)
        else:
            results = write_exports(table, objects, lambda: version, targets)
        work = _next_refresh(config, table) if action == "dry_run" else {}
        watcher.hide()
    document = {
        "table": name,
        "version": version.number,
        "snapshot": version.snapshot,
        "targets": [result.to_json() for result in results],
        **work,
    }
    answer(document, lambda page: _draw(page, document), as_json=as_json)
    failed_results = [result for result in results if result.state == "failed"]
    for result in failed_results:
        print_error(f"table {name!r}: export {result.target!r} failed: {result.error}")
    return ERROR if failed_results else SUCCESS


def _next_refresh(config: MetastoreConfig, table: TableConfig) -> dict[str, Any]:
    """Return what the next refresh will read, as the keys `read_again` and `bytes_to_read` of its plan.

    If a target was configured after the newest version was published, the result includes what this target needs.
    """
    from metastore_assets.pipeline.refresh import plan_version

    plan = plan_version(config, table).to_json()
    return {name: plan[name] for name in ("read_again", "bytes_to_read")}


def _draw(page: Page, document: Answer) -> None:
    page.line(Styled(text.make_printable(document["table"]), "bold"), f" version {document['version']}")
    columns = [GridColumn("state"), GridColumn("target", style="bold"), GridColumn("version"), GridColumn("snapshot")]
    if any(target["bytes"] is not None for target in document["targets"]):
        columns.append(GridColumn("written"))
    rows = []
    for target in document["targets"]:
        written_text = ""
        if target["bytes"] is not None:
            written_text = f"{text.format_count(target['columns'], 'column')}, {text.format_size(target['bytes'])}"
        number = "" if target["version"] is None else str(target["version"])
        snapshot = text.make_printable(target["snapshot"] or "")
        state = Styled(target["state"], _STYLES.get(target["state"], ""))
        rows.append((state, target["target"], number, snapshot, written_text)[: len(columns)])
    draw_hidden_columns(page, page.fitting_grid(columns, rows, ["snapshot"]))
    for target in document["targets"]:
        for note in target["notes"]:
            page.line(Styled(f"  {target['target']}: {text.make_printable(note)}", "yellow"))
    if "bytes_to_read" in document:
        page.line(f"  the next refresh reads {text.format_size(document['bytes_to_read'])}")
        for column, outputs in document["read_again"].items():
            fragments = max(outputs.values())
            page.line(f"  {text.make_printable(column)}: read again in {text.format_count(fragments, 'fragment')}")
