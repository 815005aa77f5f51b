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
    ("table", "text", "explanation"),
    [
        ("events", "day=2024-01-04", "the nearest are"),
        ("events", "day=2025-*", "the nearest are 'day=2024-01-01', 'day=2024-01-02' and 'day=2024-01-03'"),
        ("events", "dya=2024-01-01", "partitioned by 'day', not by 'dya'"),
        ("orders", "contry=FR", "did you mean 'country'?"),
        ("people", "day=2024-01-01", "it is not partitioned, and its one partition is 'all'"),
    ],
)
def test_a_condition_that_matches_nothing(config: Path, table: str, text: str, explanation: str) -> None:
    message = error_of(run("refresh", table, "--dry-run", "--partition", text, config=config))
    assert f"table {table!r} has no partition {text!r}" in message
    assert explanation in message


@pytest.mark.parametrize("text", ["half=2", "half=?", "half=%32"])
@pytest.mark.parametrize("command", [["show", "orders"], ["top", "orders", "state"], ["histogram", "orders", "id"]])
def test_one_partition_is_shown(published: Path, command: list[str], text: str) -> None:
    """A pattern is accepted if it matches one partition; the output names its key."""
    if text == "half=?":
        message = error_of(run(*command, "--partition", text, config=published))
        assert "'half=?' means 2 partitions of table 'orders': name one of them, such as 'half=1'" in message
        assert "`metastore show orders --partitions`" in message
        text = "half=[!1]"
    filtered = run_json(*command, "--partition", text, config=published)
    assert filtered == run_json(*command, "--partition", "half=2", config=published)
    if command[0] == "show":
        assert filtered["partition"] == "half=2"
