"""`metastore check`: its output and its exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import COUNT
from tests.cli.run_command import error_of, run, run_json

CHECKS = {
    "checks": ["consistent", "complete", {"row_count": 100, "partitions": "half=*"}],
    "columns": {
        "id": {"frequencies": "off", "checks": ["unique"]},
        "state": {"checks": [{"null_share": "10%"}, {"accepted_values": ["new"], "severity": "warn"}]},
    },
}


@pytest.fixture
def checked_config(config_file: Path) -> Path:
    """The configuration with checks of `orders` that pass, warn, or are unknown."""
    return with_checks(config_file, CHECKS)


def with_checks(path: Path, checks: object) -> Path:
    config = yaml.safe_load(path.read_text())
    config["tables"][0] |= checks
    path.write_text(yaml.safe_dump(config))
    return path


def test_warnings_and_unknown_results_do_not_fail(checked_config: Path) -> None:
    results = run_json("check", "orders", config=checked_config)
    assert {key: results[key] for key in ("table", "version", "status", "passed", "failed", "unknown")} == {
        "table": "orders",
        "version": 2,
        "status": "passed",
        "passed": 3,
        "failed": 1,
        "unknown": 2,
    }
    by_name = {check["check"]: check for check in results["checks"]}
    assert {name: check["status"] for name, check in by_name.items()} == {
        "consistent": "passed",
        "complete": "unknown",
        "row_count": "passed",
        "id_unique": "unknown",
        "state_null_share": "passed",
        "state_accepted_values": "failed",
    }
    assert by_name["state_null_share"] == {
        "check": "state_null_share",
        "kind": "null_share",
        "column": "state",
        "severity": "error",
        "status": "passed",
        "expected": "at most 10% null",
        "observed": "40 nulls in 400 rows (10.0%)",
        "guarantee": "exact",
        "advice": None,
        "measures": {"nulls": 40, "null_share": 0.1},
    }
    assert by_name["id_unique"]["guarantee"] == "estimate"
    assert by_name["row_count"]["partitions"] == {"passed": 2, "failed": 0, "unknown": 0, "first": []}
    strict = run("check", "orders", "--strict", "--json", config=checked_config)
    assert strict.exit_code == 1
    assert json.loads(strict.stdout) == results
    assert run("check", "orders", "--strict", "--only", "consistent", config=checked_config).exit_code == 0


def test_an_error_ends_with_status_1(checked_config: Path) -> None:
    with_checks(checked_config, {"columns": {"state": {"checks": ["not_null"]}}})
    failed_run = run("check", "orders", "--only", "state_not_null", config=checked_config)
    assert failed_run.exit_code == 1
    lines = failed_run.stdout.splitlines()
    assert lines[0] == "orders version 2: 1 failed"
    assert lines[2].split("  ")[0] == "failed"
    assert "40 nulls in 400 rows (10.0%)" in lines[2]
    assert run("check", "orders", "--only", "consistent", config=checked_config).exit_code == 0
    older = run_json("check", "orders", "--version", "1", "--only", "consistent", config=checked_config)
    assert older["version"] == 1
    assert "100 rows" in older["checks"][0]["observed"]


def test_results_are_printed_as_text(checked_config: Path) -> None:
    lines = run("check", "orders", config=checked_config).stdout.splitlines()
    assert lines[0] == "orders version 2: 3 passed, 1 failed, 2 unknown"
    assert [line.split()[:2] for line in lines[2:8]] == [
        ["passed", "consistent"],
        ["unknown", "complete"],
        ["passed", "row_count"],
        ["unknown", "id_unique"],
        ["passed", "state_null_share"],
        ["warning", "state_accepted_values"],
    ]
    assert r"; not done\n\x1b[31m" in lines[7], "control characters of values do not reach the terminal"
    assert lines[8:] == [
        "  complete would be answered by metastore refresh orders",
        "  id_unique would be answered by `frequencies: repeated` or `frequencies: all`",
    ]


def test_suggestions_are_pasted_and_pass(config_file: Path) -> None:
    """The checks that `check --suggest` prints pass after they are pasted into the configuration."""
    output = run("check", "orders", "--suggest", config=config_file).stdout
    suggestions = yaml.safe_load(output)
    assert suggestions["columns"]["state"]["checks"][0] == {"null_share": "15%", "severity": "warn"}
    results = run_json("check", "orders", "--suggest", config=config_file)
    assert results["yaml"].strip() == output.strip()
    assert results["columns"] == suggestions["columns"]
    with_checks(config_file, {"columns": {"id": {"frequencies": "off"}}})
    config = yaml.safe_load(config_file.read_text())
    config["tables"][0] |= suggestions
    config_file.write_text(yaml.safe_dump(config))
    done = run_json("check", "orders", config=config_file)
    assert (done["status"], done["failed"], done["unknown"]) == ("passed", 0, 0)
    assert done["passed"] >= 10
    assert f"{COUNT} rows" in done["checks"][0]["observed"]


def test_an_error_is_one_line(checked_config: Path) -> None:
    message = error_of(run("check", "orders", "--only", "x", config=checked_config))
    assert all(name in message for name in ("'x'", "'orders'"))
    assert "--suggest" in error_of(run("check", "orders", "--suggest", "--strict", config=checked_config), 2)
    with_checks(checked_config, {"columns": {"nope": {"checks": ["not_null"]}, "id": {"checks": ["not_null"]}}})
    result = run("check", "orders", "--json", config=checked_config)
    assert (result.exit_code, result.stderr) == (1, "")
    results = json.loads(result.stdout)
    assert (results["passed"], results["failed"]) == (3, 1)
    (failed_check,) = (check for check in results["checks"] if check["status"] == "failed")
    assert re.search("'orders'.*'nope'", failed_check["observed"])
    empty = run("check", "gone", config=checked_config)
    assert empty.exit_code == 0
    assert "metastore check gone --suggest" in empty.stdout
