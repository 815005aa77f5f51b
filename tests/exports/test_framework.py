"""Exports: what a target gets, when it is written, and what its failure affects.

The target is a folder.

The value counts of a column are its distinct values with the frequency of each.

An export writes the statistics of a version to a target, such as a catalog.

A version is the published statistics of a table at one snapshot. A hidden column has the policy `values: hidden`: new
versions have no values of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from metastore_assets.checks.configured_checks import load_checked_config
from metastore_assets.cli.failures import BAD_USAGE
from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import ConfigError
from metastore_assets.exports.base import exported_version
from metastore_assets.exports.configured_targets import read_export_entries
from metastore_assets.exports.writing import open_version, read_export_states
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.stages import stages_to_json
from metastore_assets.store.versions import versions_of
from tests.cli.run_command import run, run_json
from tests.robustness.refresh_assertions import no_spark


class Exporting:
    """A table of two partitions, and folders to which it is exported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        self.settings: dict[str, Any] = {
            "exports": {"one": {"kind": "folder", "path": str(self.target("one"))}},
            "columns": {"secret": {"values": "hidden"}},
        }
        self.append(0)
        self.append(1)

    def target(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def append(self, partition: int) -> None:
        folder = self.folder / "lake" / f"part={partition}"
        folder.mkdir(parents=True, exist_ok=True)
        self.written += 1
        texts = [f"text {self.written} {number}" for number in range(20)]
        table = pa.table({"id": list(range(self.written, self.written + 20)), "text": texts, "secret": texts})
        pq.write_table(table, folder / f"{self.written}.parquet")

    @property
    def file(self) -> Path:
        path = self.folder / "metastore.yaml"
        table = {"name": "t", "uri": str(self.folder / "lake"), **self.settings}
        path.write_text(yaml.safe_dump({"root": str(self.folder / "root"), "engine": "auto", "tables": [table]}))
        return path

    @property
    def config(self) -> MetastoreConfig:
        return load_checked_config(self.file)

    def refresh(self) -> Any:
        return refresh(self.config, self.config.tables[0], no_spark)

    def content(self, name: str = "one") -> Any:
        return json.loads((self.target(name) / "t.json").read_text())


@pytest.fixture
def exporting(tmp_path: Path) -> Exporting:
    return Exporting(tmp_path)


def test_a_refresh_exports_as_its_last_step(exporting: Exporting) -> None:
    """A refresh writes the export as its last stage, and the plan of the refresh includes this stage.

    A version that the target has already is not written again.
    """
    plan = plan_refresh(exporting.config, exporting.config.tables[0])
    result = exporting.refresh()
    assert [stage["stage"] for stage in plan.to_json()["stages"]][-2:] == ["publish", "write_exports"]  # type: ignore
    assert stages_to_json(result.stages) == plan.to_json()["stages"]
    (export,) = result.exports
    assert (export.target, export.kind, export.state, export.version) == ("one", "folder", "written", 1)
    assert exporting.content()["columns"]["id"] == {"values": 40, "nulls": 0, "minimum": "1", "maximum": "21"}
    assert exporting.content()["partitions"] == {"part=0": 4, "part=1": 4}
    assert exporting.refresh().exports[0].state == "current"
    exporting.append(1)
    assert (exporting.refresh().exports[0].version, exporting.content()["columns"]["id"]["values"]) == (2, 60)


def test_hidden_columns_export_counts_only(exporting: Exporting) -> None:
    """Only the counts of a hidden column are exported, without bounds and number of distinct values.

    This also holds for a column that the configuration hides and the version still shows.
    """
    exporting.refresh()
    hidden_content = {"values": 40, "nulls": 0, "minimum": None, "maximum": None}
    assert exporting.content()["columns"]["secret"] == hidden_content
    exporting.settings["columns"]["text"] = {"values": "hidden"}
    table = exporting.config.tables[0]
    (entry,) = read_export_entries(table)
    version = versions_of(exporting.config, "t").latest()
    assert version is not None
    exported_table_version = exported_version(
        entry.open(table), open_version(versions_of(exporting.config, "t").objects, version)
    )
    columns = {column.path: column for column in exported_table_version.columns()}
    assert columns["text"].is_hidden
    assert columns["text"].statistics.minimum is columns["text"].statistics.distinct_count is None
    assert columns["id"].statistics.minimum is not None


def test_an_export_without_a_refresh_hides_a_column_that_was_hidden_since(exporting: Exporting) -> None:
    exporting.refresh()
    assert exporting.content()["columns"]["text"]["minimum"] is not None
    exporting.settings["columns"]["text"] = {"values": "hidden"}
    assert run_json("export", "t", "--status", config=exporting.file)["targets"][0]["state"] == "behind"
    assert run_json("export", "t", config=exporting.file)["targets"][0]["state"] == "written"
    assert exporting.content()["columns"]["text"] == {"values": 40, "nulls": 0, "minimum": None, "maximum": None}


def test_a_failed_target_affects_neither_the_version_nor_other_targets(exporting: Exporting) -> None:
    """If one target fails, the version is published and the other target is written.

    The command reports the failure and ends with status 3. The next refresh writes the failed target, although the
    table has not changed.
    """
    exporting.settings["exports"]["two"] = {"kind": "folder", "path": str(exporting.target("two"))}
    broken_marker = exporting.target("one") / "broken"
    broken_marker.touch()
    failed_refresh = run("refresh", "t", config=exporting.file)
    assert failed_refresh.exit_code == 3
    assert re.search(r"'one'.*OSError: the folder is broken", failed_refresh.stderr)
    assert "version 1" in failed_refresh.stdout
    assert exporting.content("two")["mark"]["metastore-assets.version"] == "1"
    broken_marker.unlink()
    again = run_json("refresh", "t", config=exporting.file)
    assert (again["published"], [each["state"] for each in again["exports"]]) == (False, ["written", "current"])


@pytest.mark.parametrize("state", ["current", "behind", "absent", "failed"])
def test_a_dry_run_shows_the_targets_that_a_refresh_without_a_version_would_write(
    exporting: Exporting, state: str
) -> None:
    """If no version is to be published, a dry run shows which targets a refresh would write.

    It writes nothing, and the refresh after it executes the same stages. A target is written if it is behind, absent or
    failed, and not if it is current.
    """
    exporting.settings["exports"]["two"] = {"kind": "folder", "path": str(exporting.target("two"))}
    exporting.refresh()
    if state == "behind":
        exporting.settings["exports"]["one"]["columns"] = ["id"]
    elif state == "absent":
        (exporting.target("one") / "t.json").unlink()
    elif state == "failed":
        (exporting.target("one") / "broken").touch()
    targets = [["one"]] if state != "current" else []
    before = exporting.content("two")
    dry = run_json("refresh", "t", "--dry-run", config=exporting.file)
    assert (dry["published"], dry["version"], [stage["targets"] for stage in dry["stages"]]) == (False, 1, targets)
    output = run("refresh", "t", "--dry-run", config=exporting.file).stdout
    assert ("write exports: 1 target ('one')" in output) == bool(targets)
    assert exporting.content("two") == before
    result = exporting.refresh()
    assert (stages_to_json(result.stages), result.published) == (dry["stages"], False)


def test_a_backfill_names_a_failed_target(exporting: Exporting) -> None:
    (exporting.target("one") / "broken").touch()
    result = run_json("backfill", "t", "--yes", config=exporting.file)
    assert (result["done"], result["failed_checks"]) == (True, ["export_one"])


def test_another_policy_or_option_makes_a_target_outdated(exporting: Exporting) -> None:
    exporting.refresh()
    exporting.settings["exports"]["one"]["columns"] = ["i*"]
    assert run_json("export", "t", "--status", config=exporting.file)["targets"][0]["state"] == "behind"
    assert exporting.refresh().exports[0].state == "written"
    assert list(exporting.content()["columns"]) == ["id"]


def test_a_setting_that_matches_no_column_is_noted(exporting: Exporting) -> None:
    """If a pattern under `columns` of a target matches no column, the export succeeds with a note.

    The cause may be a typing error or a dropped column. The other columns are exported.
    """
    exporting.settings["exports"]["one"]["columns"] = ["id", "txet", "s*"]
    (export,) = exporting.refresh().exports
    assert (export.state, list(exporting.content()["columns"])) == ("written", ["id", "secret"])
    assert export.notes == ("no column matches txet under `columns`",)


def test_statistics_of_others_are_not_overwritten(exporting: Exporting) -> None:
    (exporting.target("one") / "t.json").write_text("{}")
    (failed_export,) = exporting.refresh().exports
    assert failed_export.state == "failed"
    assert "set `replace: true`" in failed_export.error
    exporting.settings["exports"]["one"]["replace"] = True
    assert exporting.refresh().exports[0].state == "written"


def test_the_command_exports_shows_and_removes(exporting: Exporting) -> None:
    """`metastore export` writes exports, shows which version each target has, and removes exports.

    `--status` and `--dry-run` write nothing. `--to` exports to one target only, and `--remove` removes the export. The
    command is refused without a configured target, for an unknown target, and with both `--remove` and `--status`.
    """
    exports = exporting.settings.pop("exports")
    exporting.refresh()
    missing = run("export", "t", config=exporting.file)
    assert (missing.exit_code, "'t'" in missing.stderr) == (3, True)
    exporting.settings["exports"] = {**exports, "two": {"kind": "folder", "path": str(exporting.target("two"))}}
    status = run_json("export", "t", "--status", config=exporting.file)
    assert [target["state"] for target in status["targets"]] == ["absent", "absent"]
    dry = run_json("export", "t", "--dry-run", config=exporting.file)
    assert (dry["bytes_to_read"], dry["read_again"]) == (0, {})
    assert not list(exporting.target("one").iterdir())
    export_answer = run_json("export", "t", "--to", "two", config=exporting.file)
    assert [(target["target"], target["state"], target["columns"]) for target in export_answer["targets"]] == [
        ("two", "written", 4)
    ]
    status_lines = run("export", "t", "--status", config=exporting.file).stdout.splitlines()
    snapshot = export_answer["snapshot"]
    assert [line.split() for line in status_lines[1:]] == [
        ["state", "target", "version", "snapshot"],
        ["absent", "one"],
        ["current", "two", "1", snapshot],
    ]
    unknown = run("export", "t", "--to", "tow", config=exporting.file)
    assert re.search(r"'tow'.*'t'", unknown.stderr)
    assert "two" in unknown.stderr
    both = run("export", "t", "--remove", "--status", config=exporting.file)
    assert (both.exit_code, "--remove" in both.stderr) == (BAD_USAGE, True)
    removal_answer = run_json("export", "t", "--remove", config=exporting.file)
    assert [target["state"] for target in removal_answer["targets"]] == ["absent", "removed"]
    assert not list(exporting.target("two").iterdir())


def test_a_purge_writes_exports_again(exporting: Exporting) -> None:
    exporting.refresh()
    for path in (exporting.folder / "lake" / "part=0").iterdir():
        path.unlink()
    exporting.refresh()
    before = exporting.content()
    result = run_json("purge", "t", "--before", "2", config=exporting.file)
    assert (result["published"], result["exports"][0]["state"]) == (3, "written")
    after = exporting.content()
    assert after["mark"]["metastore-assets.version"] == "3"
    assert after["columns"] == before["columns"]
    assert list(after["partitions"]) == ["part=1"]


def test_a_purge_that_cannot_clear_a_target_says_to_purge_again(exporting: Exporting) -> None:
    """A purge fails if it cannot remove an export, and the error says to repeat the purge.

    The error names the target and the command `metastore purge`, because a refresh does not remove everything that a
    purge removes from a target.
    """
    exporting.refresh()
    (exporting.target("one") / "broken").touch()
    failed_purge = run("purge", "t", "--before", "1", config=exporting.file)
    assert failed_purge.exit_code == 3
    assert re.search(r"'one'.*OSError: the folder is broken.*`metastore purge`", failed_purge.stderr)
    assert "exports to targets that the configuration no longer names" in failed_purge.stdout


def test_a_target_can_ask_for_a_statistic_that_users_do_not_see(exporting: Exporting) -> None:
    """A target may need a statistic that lookups do not report, and refreshes then compute it.

    It is computed for columns that are not hidden and have no stored value counts. After such a target is added, the
    next refresh reads these columns once.
    """
    exporting.settings["columns"]["text"] = {"frequencies": "off"}
    exporting.refresh()
    exporting.settings["exports"]["two"] = {"kind": "sketching", "path": str(exporting.target("two"))}
    dry = run_json("export", "t", "--dry-run", config=exporting.file)
    assert dry["bytes_to_read"] > 0
    assert list(dry["read_again"]) == ["text"]
    assert read_states(exporting) == {}
    exporting.refresh()
    assert run_json("export", "t", "--dry-run", config=exporting.file)["bytes_to_read"] == 0
    assert read_states(exporting) == {"text": "text 2 9"}
    exporting.append(0)
    exporting.refresh()
    assert read_states(exporting) == {"text": "text 3 9"}
    for path in (exporting.folder / "lake" / "part=0").glob("3.parquet"):
        path.unlink()
    exporting.refresh()
    assert read_states(exporting) == {"text": "text 2 9"}, "a state follows from the remaining rows"
    answer = run_json("show", "t", config=exporting.file)
    assert all(not column["user_defined"] for column in answer["columns"])


def read_states(exporting: Exporting) -> dict[str, Any]:
    versions, table = versions_of(exporting.config, "t"), exporting.config.tables[0]
    version = versions.latest()
    assert version is not None
    entry = read_export_entries(table)[-1]
    exported_table_version = exported_version(entry.open(table), open_version(versions.objects, version))
    return exported_table_version.states("tests.exports.folder_target:Greatest")


@pytest.mark.parametrize(
    ("exports", "message"),
    [
        (3, "exports = 3: must be a mapping or a list"),
        ({"folder": 3}, "table 't': exports.folder = 3: must be a mapping of settings"),
        ({"a-b": {}}, "the name 'a-b' must be a letter"),
        ({"foldr": {}}, "exports.foldr: no installed package has the kind 'foldr'"),
        (["folder"], "exports.folder.path is missing"),
        ({"folder": {"path": "x", "plce": 1}}, "exports.folder.plce: no such key; there are: kind, "),
        ({"folder": {"path": "x", "replace": "perhaps"}}, "exports.folder.replace = 'perhaps': must be true or false"),
    ],
)
def test_a_wrong_setting_is_an_error_of_the_configuration(exporting: Exporting, exports: Any, message: str) -> None:
    exporting.settings["exports"] = exports
    with pytest.raises(ConfigError) as error:
        load_checked_config(exporting.file)
    assert message in str(error.value)


def test_targets_of_one_place_would_replace_each_other(exporting: Exporting) -> None:
    """Two targets with the same destination are refused, because each export would replace the other.

    Every refresh would then write both exports again.
    """
    exporting.settings["exports"] = {"iceberg": {}, "narrow": {"kind": "iceberg", "columns": ["id"]}}
    with pytest.raises(ConfigError, match=r"exports.*iceberg, narrow.*'iceberg'"):
        load_checked_config(exporting.file)


def test_statistics_of_selected_partitions_are_not_those_of_the_table(exporting: Exporting) -> None:
    exporting.settings["partitions"] = {"part": ["1"]}
    with pytest.raises(ConfigError, match=r"'t'.*exports.*partitions"):
        load_checked_config(exporting.file)


def test_states_are_those_of_the_newest_version(exporting: Exporting) -> None:
    exporting.refresh()
    config, versions = exporting.config, versions_of(exporting.config, "t")
    version = versions.latest()
    assert version is not None
    assert read_export_states(config.tables[0], versions.objects, version)[0].state == "current"
