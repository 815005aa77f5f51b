"""`metastore check-statistic` tests a user-defined statistic on random data."""

from __future__ import annotations

import json

from tests.cli.run_command import error_of, run, run_json

SHIPPED = "metastore_assets.statistics.user_defined.shipped:Benford"
FIRST = "tests.pipeline.user_statistics:First"


def test_a_statistic_that_obeys_the_laws() -> None:
    results = run_json("check-statistic", SHIPPED, "--tries", "20")
    assert (results["holds"], results["route"], results["counterexample"]) == (True, "subtract", None)
    assert "decimal_2" in results["type_classes"]
    assert "all laws hold" in run("check-statistic", SHIPPED, "--tries", "20").stdout


def test_a_statistic_that_depends_on_the_order_of_rows() -> None:
    """For a statistic that depends on the order of rows, the command ends with status 1.

    The output has the violated law, `merge() is commutative`, and data that violate it.
    """
    result = run("check-statistic", FIRST, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert not document["holds"]
    assert document["counterexample"]["law"] == "merge() is commutative"
    assert document["counterexample"]["type_class"] == "int64"
    command_result = run("check-statistic", FIRST)
    assert command_result.exit_code == 1
    assert "merge() is commutative; this fails for int64" in command_result.stdout


def test_a_statistic_that_does_not_exist() -> None:
    message = error_of(run("check-statistic", "no.such:Statistic"))
    assert "'no.such'" in message
    assert "PYTHONPATH" in message
