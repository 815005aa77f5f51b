"""Partitions on the command line: keys as they are printed or as people write them, and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.lakehouse import build
from tests.cli.run_command import error_of, run, run_json


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("lakehouse")).folder / "metastore.yaml"


@pytest.mark.parametrize(
    ("table", "text", "names"),
    [
        ("events", "day=2024-01-04", ["day=2024-01-03"]),
        ("events", "day=2025-*", ["day=2024-01-01", "day=2024-01-02", "day=2024-01-03"]),
        ("events", "dya=2024-01-01", ["day", "dya"]),
        ("orders", "contry=FR", ["country"]),
        ("people", "day=2024-01-01", ["all"]),
    ],
)
def test_a_condition_that_matches_nothing(config: Path, table: str, text: str, names: list[str]) -> None:
    message = error_of(run("refresh", table, "--dry-run", "--partition", text, config=config))
    assert all(part in message for part in (repr(table), repr(text), *map(repr, names)))


@pytest.mark.parametrize("text", ["half=2", "half=?", "half=%32"])
@pytest.mark.parametrize("command", [["show", "orders"], ["top", "orders", "state"], ["histogram", "orders", "id"]])
def test_one_partition_is_shown(config_file: Path, command: list[str], text: str) -> None:
    """Commands about one partition accept a pattern for `--partition` if it matches one partition.

    The output of `show` names the key of this partition. A pattern that matches two partitions is an error.
    """
    if text == "half=?":
        message = error_of(run(*command, "--partition", text, config=config_file))
        assert all(part in message for part in ("'half=?'", "2 partitions", "'orders'", "'half=1'"))
        assert "`metastore show orders --partitions`" in message
        text = "half=[!1]"
    answer = run_json(*command, "--partition", text, config=config_file)
    assert answer == run_json(*command, "--partition", "half=2", config=config_file)
    if command[0] == "show":
        assert answer["partition"] == "half=2"
