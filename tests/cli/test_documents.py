"""The JSON that commands print with `--json` matches the published schemas.

The function `run_command.run` checks the same in all other tests of commands.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from metastore_assets.cli.output_schemas import DOCUMENTS, SCHEMA_VERSION
from tests.cli.run_command import all_commands, assert_matches_schema, documents, run

_COMMANDS = [
    "backfill fresh --engine auto --dry-run",
    "backfill fresh --engine auto --yes",
    "changes orders --since 1",
    "check orders",
    "check orders --suggest",
    "check-statistic tests.pipeline.user_statistics:First",
    "clustering orders",
    "compact orders",
    "count orders --where id>=0",
    "diff orders",
    "doctor",
    "estimate orders --where id<10",
    "expire orders",
    "histogram orders price",
    "history orders",
    "history orders price",
    "history orders price --statistic mean",
    "init orders --config other.yaml",
    "locate orders state new",
    "profile orders nowhere",
    "prune orders --where id<10 --explain --limit 1",
    "prune orders --where id<10",
    "purge orders --before 2",
    "quantile orders price 0.5",
    "rank orders price 1",
    "refresh fresh --engine auto",
    "refresh fresh --engine auto --dry-run",
    "refresh gone --engine auto",
    "report orders -o report.html",
    "show orders",
    "show orders --columns state,id",
    "show orders --partition half=1",
    "show orders --partitions",
    "spark-server status",
    "sql select(1)",
    "tables",
    "top orders state",
    "versions orders",
    "verify fresh",
]
_TESTED_ELSEWHERE = {"export", "spark-server start", "spark-server stop"}
"""Commands that need a target of exports, or Spark."""


def _names(command: click.Command) -> list[str]:
    if isinstance(command, click.Group):
        return [f"{command.name} {name}" for name in command.commands]
    return [command.name or ""]


def test_every_command_has_a_schema_and_is_tested() -> None:
    names = {name for command in all_commands().values() for name in _names(command)} - {"schema"}
    assert set(DOCUMENTS) == names
    tested_names = {name for name in names if any(line.startswith(name) for line in _COMMANDS)}
    assert names - tested_names == _TESTED_ELSEWHERE


@pytest.mark.parametrize("command", _COMMANDS)
def test_output_is_as_published(config_file: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(config_file.parent)
    if command.startswith("verify"):
        config_file.write_text(f"engine: auto\n{config_file.read_text()}")  # no Spark
        run("refresh", "fresh", config=config_file)
    config = None if "--config" in command else config_file
    done = run(*command.split(), "--json", config=config)
    assert documents(done), done.output


def test_differences_are_detected() -> None:
    assert_matches_schema(("top",), '[{"value": 1, "frequency": 2}]')
    for wrong in ('[{"value": 1}]', '[{"value": 1, "frequency": 2, "more": 3}]', '{"value": 1, "frequency": 2}'):
        with pytest.raises(AssertionError):
            assert_matches_schema(("top",), wrong)


def test_all_schemas_have_a_version() -> None:
    schemas = json.loads(run("schema").stdout)
    assert schemas["version"] == SCHEMA_VERSION
    assert set(schemas["commands"]) == set(DOCUMENTS)
    assert f":{SCHEMA_VERSION}:top" in json.loads(run("schema", "top").stdout)["$id"]
    assert run("schema", "nothing").exit_code == 2
