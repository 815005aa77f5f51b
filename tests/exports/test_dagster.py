"""Exports in Dagster: a check for each target, which fails without failing the run."""

from pathlib import Path

import yaml
from dagster import AssetCheckEvaluation, ExecuteInProcessResult

from tests.assets.lab import Lab


def configure(lab: Lab) -> Path:
    """Configure an export of the table `sales` to a new folder.

    Return the folder.
    """
    folder = lab.folder / "exported"
    folder.mkdir()
    exports = {"folder": {"path": str(folder)}}
    table = {"name": "sales", "uri": "./sales", "exports": exports}
    lab.config_file.write_text(yaml.safe_dump({"root": "./metastore", "engine": "auto", "tables": [table]}))
    return folder


def export_check(result: ExecuteInProcessResult) -> AssetCheckEvaluation:
    (check,) = (each for each in result.get_asset_check_evaluations() if each.check_name == "export_folder")
    return check


def run(lab: Lab) -> ExecuteInProcessResult:
    (request,) = lab.tick("sales").run_requests or []
    return lab.run("sales", request)


def test_a_failed_target_is_a_failed_check_that_the_next_run_repeats(lab: Lab) -> None:
    folder = configure(lab)
    (folder / "broken").touch()
    result = run(lab)
    assert result.success
    check = export_check(result)
    assert (check.passed, check.severity.value) == (False, "ERROR")
    assert "the folder is broken" in str(check.description)
    assert lab.latest("sales").number == 1
    (folder / "broken").unlink()
    lab.append(2)
    check = export_check(run(lab))
    assert check.passed
    assert check.metadata["state"].value == "written"
    assert (folder / "sales.json").exists()
