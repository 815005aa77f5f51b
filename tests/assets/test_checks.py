"""Configured checks are Dagster asset checks, and a run reports their results for its version.

A version is the published statistics of a table at one snapshot.
"""

import re
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, DagsterInstance, ExecuteInProcessResult
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from deltalake import write_deltalake

from metastore_assets.assets.checks import check_results, check_specs, escape_markdown, export_check_specs
from metastore_assets.assets.project import build_metastore_definitions
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.store.objects import ObjectStore
from tests.assets.lab import Lab, key_of, kind_of
from tests.assets.user_project import STATISTICS, commit, reported_row_counts
from tests.checks.check_results import around
from tests.cli.run_command import run as run_command
from tests.lookup.publishing import publish

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
    by_name = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert all(evaluation.asset_key == AssetKey(["sales", "sales_statistics"]) for evaluation in by_name.values())
    return by_name


def run(lab: Lab) -> ExecuteInProcessResult:
    """Evaluate a tick for `sales`, and execute the requested run, which may fail."""
    (request,) = lab.tick("sales").run_requests or []
    return lab.run("sales", request, raise_on_error=False)


def test_a_configured_check_may_have_the_name_of_an_export() -> None:
    """The check of an export gets a number if a configured check has its name.

    Dagster refuses two checks of one name. Names that differ only in case count as equal.
    """
    checks = ({"row_count": 1, "name": "export_Iceberg"}, {"row_count": 2, "name": "export_iceberg_2"}, "consistent")
    table = TableConfig(name="t", uri="t", checks=checks, exports=("iceberg", "hive"))
    specs = [*check_specs(table, AssetKey("t")), *export_check_specs(table, AssetKey("t"))]
    names = ["export_Iceberg", "export_iceberg_2", "consistent", "current", "export_iceberg_3", "export_hive"]
    assert [spec.name for spec in specs] == names


@pytest.fixture
def checked_lab(lab: Lab) -> Lab:
    lab.config_file.write_text(CONFIG, encoding="utf-8")
    return lab


def test_a_run_evaluates_the_checks_of_its_version(checked_lab: Lab) -> None:
    """A run reports the result of each configured check of the version that it publishes.

    An unknown result is a warning. A check that does not fit its column fails, and the other checks are still
    evaluated. A failed blocking check fails the run. The version is reported nevertheless, with metadata that show its
    changes since the version before. Finally, the table is removed and restored, and each of the two is reported once.
    """
    first = evaluations(run(checked_lab))
    assert {name: (evaluation.passed, evaluation.severity.value) for name, evaluation in first.items()} == {
        "complete": (True, "ERROR"),
        "enough_rows": (True, "ERROR"),
        "row_count_change": (False, "WARN"),
        "current": (True, "WARN"),
        "consistent": (True, "ERROR"),
        "id_unique": (True, "ERROR"),
        "shop_accepted_values": (False, "ERROR"),
        "price_null_share": (True, "ERROR"),
        "price_range": (False, "ERROR"),
        "note_unique": (False, "WARN"),
    }
    assert re.search(r"^unknown: .*\bversion\b.*\bsnapshot\b", str(first["row_count_change"].description))
    assert "unknown: about" in str(first["note_unique"].description)
    assert "frequencies: repeated" in str(first["note_unique"].description)
    assert re.search("'x'.*'price'.*'sales'.*number", str(first["price_range"].description))
    assert first["price_null_share"].metadata["null_share"].value == pytest.approx(0.03, abs=0.03)
    first_version = checked_lab.latest("sales")
    checked_lab.append(4, count=20)
    again = run(checked_lab)
    assert not again.success, "a blocking check has failed"
    second = evaluations(again)
    assert second["row_count_change"].passed
    assert second["row_count_change"].metadata["change"].value == pytest.approx(20 / 600)
    assert not second["enough_rows"].passed
    table = second["enough_rows"].metadata["partitions"].value
    assert [record.data["partition"] for record in table.records] == [key_of(4)]  # type: ignore[union-attr]

    metadata = {kind_of(event.asset_key): event.metadata for event in checked_lab.events(again.run_id)}["statistics"]
    assert metadata["price/null_share"].value == pytest.approx(second["price_null_share"].metadata["null_share"].value)
    assert metadata["shop/distinct_count"].value == 5
    lineage = metadata["dagster/column_lineage"].value.deps_by_column  # type: ignore[union-attr]
    assert lineage["price"][0].asset_key == AssetKey(["sales", "sales_source"])
    changes = {record.data["what"]: record.data for record in metadata["changes"].value.records}  # type: ignore[union-attr]
    assert changes["rows"] == {"what": "rows", "before": "600", "now": "620", "change": "+20"}
    assert changes["files"]["change"] == "+1"
    assert (changes["partitions"]["now"], changes["partitions"]["change"]) == ("4", "1 added")
    assert "added" in str(changes["value counts"]["change"])
    assert changes["version"]["before"] == str(first_version.number)
    assert metadata["rows_changed"].value == 20
    # The version is published and reported: another run would change nothing.
    assert not checked_lab.tick("sales").run_requests
    _assert_removal_is_reported_once(checked_lab)


def _assert_removal_is_reported_once(lab: Lab) -> None:
    """Assert that one tick reports the removal of a table, and that one tick reports its return.

    The check `current` fails at the removal and passes at the return. The tick after each of the two reports nothing.
    """
    table, away = lab.folder / "sales", lab.folder / "away"
    table.rename(away)
    tick = lab.tick("sales")
    assert not tick.run_requests
    assert re.search(r"\bversion 2\b", str(tick.skip_message))
    (evaluation,) = tick.asset_events
    assert isinstance(evaluation, AssetCheckEvaluation)
    assert (evaluation.check_name, evaluation.passed, evaluation.severity.value) == (
        "current",
        False,
        "ERROR",
    )
    assert evaluation.asset_key == AssetKey(["sales", "sales_statistics"])
    # As the daemon does with the results of a tick.
    lab.instance.report_runless_asset_event(evaluation)
    key = AssetCheckKey(evaluation.asset_key, evaluation.check_name)
    (execution,) = lab.instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).values()
    assert execution.status == AssetCheckExecutionRecordStatus.FAILED
    assert lab.tick("sales", tick.cursor).asset_events == []
    away.rename(table)
    back = lab.tick("sales", tick.cursor)
    (evaluation,) = back.asset_events
    assert isinstance(evaluation, AssetCheckEvaluation)
    assert (evaluation.check_name, evaluation.passed) == ("current", True)
    assert lab.tick("sales", back.cursor).asset_events == []


def test_check_specs_are_defined_before_any_run() -> None:
    """Checks have a specification in Dagster from the configuration alone.

    It has the name, a description of the expectation, and whether a failure blocks downstream assets.
    """
    (table,) = MetastoreConfig.model_validate(yaml.safe_load(CONFIG)).tables
    specs = {spec.name: spec for spec in check_specs(table, AssetKey("statistics"))}
    assert list(specs) == [
        "complete",
        "enough_rows",
        "row_count_change",
        "current",
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


def test_infinite_measures_are_text_alone(tmp_path: Path) -> None:
    """An infinite maximum is in the text `observed` of a result.

    It has no metadata entry of its own, because Dagster's UI cannot show it as a number.
    """
    store = ObjectStore(str(tmp_path))
    lookup = publish(store, pa.table({"ratio": [0.5, float("inf")]}))
    table = TableConfig(name="orders", uri="x", columns={"ratio": {"checks": [{"range": {"minimum": 0}}]}})
    (result,) = check_results([AssetCheckKey(AssetKey("a"), "ratio_range")], table, lookup, around(store))
    assert result.passed
    assert result.metadata["minimum"].value == 0.5
    assert "maximum" not in result.metadata
    assert result.metadata["observed"].value == "0.5 to Infinity"


def test_values_with_markup_are_shown_literally() -> None:
    """`escape_markdown` escapes images, tags, code, line breaks and control characters."""
    markdown = escape_markdown("not ![x](http://a/b) <img src=y> `c` \n\x1b[31m")
    assert markdown == r"not `![x](http://a/b)` \<img src=y\> \`c\` \\n\\x1b\[31m"


def test_a_dropped_column_fails_its_check_and_nothing_else(
    tmp_path: Path,
) -> None:
    """After a column with a check was dropped from its table, only this check fails.

    The run still publishes and reports a version. It warns once about the settings of the dropped column, as do the
    commands `refresh` and `check`.
    """
    table = {
        "name": "sales",
        "uri": str(tmp_path / "sales"),
        "columns": {"note": {"frequencies": "off", "checks": ["not_null"]}, "amount": {"checks": ["not_null"]}},
    }
    file = tmp_path / "metastore.yaml"
    file.write_text(yaml.safe_dump({"root": str(tmp_path / "root"), "engine": "auto", "tables": [table]}))
    definitions = build_metastore_definitions(file)
    with DagsterInstance.ephemeral() as instance:
        for number, rows in enumerate((pa.table({"amount": [1], "note": ["a"]}), pa.table({"amount": [1, 2]}))):
            write_deltalake(tmp_path / "sales", rows, mode="overwrite", schema_mode="overwrite")
            result = commit(definitions, instance)
            assert result is not None
            assert result.success
            log_messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
            warnings = [text for text in log_messages if "columns.note" in text]
            assert len(warnings) == number
            by_name = evaluations(result)
            assert by_name["note_not_null"].passed == (number == 0)
            assert by_name["amount_not_null"].passed
        assert re.search("'sales'.*'note'", str(by_name["note_not_null"].description))
        assert reported_row_counts(instance, result, STATISTICS) == {None: 2}
        assert commit(definitions, instance) is None, "the version is current"
    for arguments, status in ((["refresh", "sales"], 0), (["check", "sales"], 1)):
        done = run_command(*arguments, config=file)
        assert done.exit_code == status, done.output
        assert done.stderr.count("columns.note is for a column that the table no longer has") == 1
