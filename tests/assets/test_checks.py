"""Checks of the configuration as Dagster's: what it knows of them, and what a run tells of a version."""

import pytest
import yaml
from dagster import AssetCheckEvaluation, AssetKey, ExecuteInProcessResult

from metastore_assets.assets.checks import specs_of_checks
from metastore_assets.config import MetastoreConfig
from tests.assets.lab import Lab, key_of

CONFIG = """
root: ./metastore
engine: auto
tables:
  - name: sales
    uri: ./sales
    checks:
      - complete
      - row_count: {minimum: 150}
        partitions: all
        name: enough_rows
      - row_count_change: 10%
        severity: warn
    columns:
      id: {checks: [unique]}
      shop:
        checks:
          - accepted_values: [Berlin, Paris]
            blocking: true
      price: {checks: [{null_share: 50%}, {range: {minimum: x}}]}
      note: {frequencies: off, checks: [unique]}
"""


def evaluations(result: ExecuteInProcessResult) -> dict[str, AssetCheckEvaluation]:
    found = {own.check_name: own for own in result.get_asset_check_evaluations()}
    assert all(own.asset_key == AssetKey(["sales", "statistics"]) for own in found.values())
    return found


def run(lab: Lab) -> ExecuteInProcessResult:
    """A run that ends well or not."""
    (request,) = lab.tick("sales").run_requests or []
    return lab.run("sales", request, raise_on_error=False)


@pytest.fixture
def checked(lab: Lab) -> Lab:
    lab.config_file.write_text(CONFIG, encoding="utf-8")
    return lab


def test_a_run_makes_the_checks_of_what_it_published(checked: Lab) -> None:
    """Unknown is a warning that says so; a check that does not fit the table fails and says why; others are made."""
    first = evaluations(run(checked))
    assert {name: (own.passed, own.severity.value) for name, own in first.items()} == {
        "complete": (True, "ERROR"),
        "enough_rows": (True, "ERROR"),
        "row_count_change": (False, "WARN"),
        "consistent": (True, "ERROR"),
        "id_unique": (True, "ERROR"),
        "shop_accepted_values": (False, "ERROR"),
        "price_null_share": (True, "ERROR"),
        "price_range": (False, "ERROR"),
        "note_unique": (False, "WARN"),
    }
    assert str(first["row_count_change"].description).startswith("unknown: there is no version of an earlier snapshot")
    assert "unknown: about" in str(first["note_unique"].description)
    assert "frequencies: repeated" in str(first["note_unique"].description)
    assert "'x' is no value of column 'price' of table 'sales': give a number" in str(first["price_range"].description)
    assert first["price_null_share"].metadata["null_share"].value == pytest.approx(0.03, abs=0.03)
    checked.append(4, count=20)
    again = run(checked)
    assert not again.success, "a blocking check has failed"
    second = evaluations(again)
    assert second["row_count_change"].passed
    assert second["row_count_change"].metadata["change"].value == pytest.approx(20 / 600)
    assert not second["enough_rows"].passed
    table = second["enough_rows"].metadata["partitions"].value
    assert [record.data["partition"] for record in table.records] == [key_of(4)]  # type: ignore[union-attr]

    # The version is there and has been told: there is no use in another run.
    assert not checked.tick("sales").run_requests


def test_what_dagster_knows_beforehand() -> None:
    """Names, what is expected in words, and which of them hold back what follows."""
    (table,) = MetastoreConfig.model_validate(yaml.safe_load(CONFIG)).tables
    specs = {spec.name: spec for spec in specs_of_checks(table, AssetKey("statistics"))}
    assert list(specs) == [
        "complete",
        "enough_rows",
        "row_count_change",
        "consistent",
        "id_unique",
        "shop_accepted_values",
        "price_null_share",
        "price_range",
        "note_unique",
    ]
    assert {name for name, spec in specs.items() if spec.blocking} == {"shop_accepted_values"}
    assert specs["shop_accepted_values"].description == "`shop`: only Berlin, Paris."
    assert specs["enough_rows"].description == "at least 150 rows, in each partition."
