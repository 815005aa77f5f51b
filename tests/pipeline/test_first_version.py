"""A first version that is computed in several lots equals one that is computed at once.

A fragment is a data file here, and its profile has its statistics. A lot is a group of fragments. After each lot, a
staged version with all lots so far is stored. Staged versions are removed when the first version is published. A
version is the published statistics of a table at one snapshot. The root is the folder with all stored state.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import StoreError
from metastore_assets.formats.base import Fragment, SnapshotStream, UnstreamableError
from metastore_assets.formats.files.table import FilesFormat
from metastore_assets.pipeline import auto_policies, execution, first_version, planning
from metastore_assets.pipeline.plan import Plan, RefreshRequest
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.stages import DivideIntoLots, PlanStage, UpdateValueCounts, stages_to_json
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.staged_versions import StagedVersions
from metastore_assets.store.version_document import FORMAT_VERSION
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import SCHEMA, Lake, assert_same, everything
from tests.pipeline.test_refresh import no_spark
from tests.store.sample_versions import files_of


class Root:
    """A root in which the first version of a lake is computed in lots, each of `lot` fragments."""

    def __init__(self, lake: Lake, name: str, lot: int) -> None:
        self.lake = lake
        self.config = MetastoreConfig(root=str(lake.folder / name), tables=[lake.table], engine="auto")
        self.versions = VersionStore(ObjectStore(self.config.root), "t")
        self.lot = lot

    def refresh(self) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planning, "FRAGMENTS_PER_LOT", self.lot)
            return refresh(self.config, self.lake.table, no_spark)

    def refresh_with_rival(self, rival: Root, lot: int) -> Any:
        """Refresh, but let `rival` refresh just before lot number `lot` is computed.

        Return this refresh's result.
        """
        execute, lots = first_version.execute, 0

        def executed(*arguments: Any) -> Any:
            nonlocal lots
            lots += 1
            if lots == lot:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(first_version, "execute", execute)
                    assert rival.refresh().published
            return execute(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_version, "execute", executed)
            return self.refresh()

    def interrupted_at(self, module: Any, name: str) -> None:
        """Refresh, and interrupt the refresh when the function `name` of the module is first called."""

        def dying(*arguments: Any) -> Any:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, dying)
            with pytest.raises(KeyboardInterrupt):
                self.refresh()

    def interrupted(self, lots: int) -> None:
        """Refresh, and interrupt the refresh after `lots` lots have been computed."""
        execute, lot_count = first_version.execute, 0

        def dying(*arguments: Any) -> Any:
            nonlocal lot_count
            lot_count += 1
            if lot_count > lots:
                raise KeyboardInterrupt
            return execute(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_version, "execute", dying)
            with pytest.raises(KeyboardInterrupt):
                self.refresh()

    def pass_day(self) -> None:
        """Make all files two days older."""
        for path in Path(self.config.root).rglob("*"):
            modified_at = path.stat().st_mtime - 48 * 3600
            os.utime(path, (modified_at, modified_at))

    def expire(self) -> None:
        self.versions.expire(1, timedelta(days=1))

    def paths(self) -> set[str]:
        return {info.path for info in self.versions.objects.list()}


def lake_of(folder: Path, seed: int, columns: Sequence[str] = ("id", "group")) -> Lake:
    lake = Lake(folder, random.Random(seed), columns=columns)
    for _ in range(9):
        lake.append(lake.draw.randrange(4), lake.draw.randrange(30))
    return lake


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([10, 10**6]))
@settings(max_examples=max(2, settings().max_examples // 100))
def test_lots_and_one_plan_give_equal_versions(seed: int, lot: int, near_unique_above: int) -> None:
    """A version computed in lots (parts) has the rows and fragments of one computed at once.

    This also holds after a commit. The statistics are equal, too, unless an `auto` column stops being enumerated
    (stored as value counts) between lots. In this case, `verify` still finds no difference. After an expiry, only files
    of the newest version are left.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", near_unique_above)
        lake = lake_of(Path(folder), seed, SCHEMA.names)
        at_once, parts = Root(lake, "whole", 10**6), Root(lake, "parts", lot)
        for step in range(2):
            results = [root.refresh() for root in (at_once, parts)]
            assert results[0].published == results[1].published
            assert results[0].fragments_added == results[1].fragments_added
            versions = [root.versions.latest() for root in (at_once, parts)]
            assert versions[0] is not None
            assert versions[1] is not None
            if near_unique_above > 10:
                assert_same(everything(at_once.config), everything(parts.config))
            assert versions[0].row_count == versions[1].row_count
            assert {entry.id for entry in versions[0].fragments} == {entry.id for entry in versions[1].fragments}
            assert [entry.version for entry in versions[0].partitions] == [
                entry.version for entry in versions[1].partitions
            ] or step
            lake.commit()
        parts.refresh()
        verification = verify(parts.config, lake.table, no_spark)
        assert verification.is_right, verification.differences
        parts.pass_day()
        parts.expire()
        latest = parts.versions.latest()
        assert latest is not None
        remaining = {path for path in parts.paths() if not path.startswith("history/")}
        assert remaining <= {*files_of(latest), "versions/oldest"}


def test_a_dry_run_shows_the_stages_of_all_lots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run shows the stages that the refresh executes next.

    They include the division into lots for the first version, but not for the second one.
    """
    lake = lake_of(tmp_path, 8)
    root = Root(lake, "root", 2)
    monkeypatch.setattr(planning, "FRAGMENTS_PER_LOT", root.lot)
    for has_lots in (True, False):
        plan = plan_refresh(root.config, lake.table)
        result = root.refresh()
        assert stages_to_json(result.stages) == plan.to_json()["stages"]
        assert numbers_of_lots(plan.stages) == numbers_of_lots(result.stages) == ([(9, 5)] if has_lots else [])
        lake.append(1)


def numbers_of_lots(stages: Sequence[PlanStage]) -> list[tuple[int, int]]:
    """Return (number of fragments, number of lots) of each stage `DivideIntoLots`."""
    return [(stage.fragments, stage.lots) for stage in stages if isinstance(stage, DivideIntoLots)]


def test_a_dry_run_after_an_interruption_shows_the_missing_lots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first refresh is interrupted after three of five lots.

    The plan has two lots, and reuses the finished profiles.

    With another policy, the plan has no lots, but reuses the profiles that are still valid.
    """
    lake = lake_of(tmp_path, 8)
    root = Root(lake, "root", 2)
    root.interrupted(3)
    monkeypatch.setattr(planning, "FRAGMENTS_PER_LOT", root.lot)
    table = lake.table
    lake.options = {"columns": {"group": {"histogram": "off"}}}
    for planned_table, lots in ((table, [(9, 2)]), (lake.table, [])):
        plan = plan_refresh(root.config, planned_table)
        assert numbers_of_lots(plan.stages) == lots
        assert profiled_fragments(plan) == 3
    assert profiled_fragments(plan_refresh(root.config, table, RefreshRequest(full=True))) == 9
    lake.options = {}
    result = root.refresh()
    assert result.fragments_profiled == 3
    assert numbers_of_lots(result.stages) == [(9, 2)]


def profiled_fragments(plan: Plan) -> int:
    """Return the number of fragments that a plan reads, according to the JSON of the plan."""
    fragments: Any = plan.to_json()["fragments"]
    count: int = fragments["profiled"]
    return count


# With these seeds, 3, 1, 0 and 4 lots are finished before the interruption. Files change with odd seeds.
@pytest.mark.parametrize("seed", [0, 1, 2, 5])
@pytest.mark.parametrize("options", [{}, {"columns": {"group": {"histogram": "off"}}}], ids=["same", "other policy"])
def test_a_refresh_after_an_interruption_executes_the_stages_of_the_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, options: dict[str, Any]
) -> None:
    """A first refresh is interrupted after some lots.

    Then the table's files change, or a policy, or both, or nothing.

    The next refresh executes what a dry run shows: lots, profiled fragments and merged partitions.
    """
    draw = random.Random(seed)
    lake = lake_of(tmp_path, seed)
    finished_lots = draw.randrange(5)
    Root(lake, "root", 2).interrupted(finished_lots)
    if seed % 2:
        for file in draw.sample(lake.files(), 2):
            file.unlink()
        lake.append(draw.randrange(6))
    lake.options = options
    root = Root(lake, "root", 2)
    monkeypatch.setattr(planning, "FRAGMENTS_PER_LOT", root.lot)
    plan = plan_refresh(root.config, lake.table)
    result = root.refresh()
    assert stages_to_json(result.stages) == plan.to_json()["stages"]
    assert result.to_json()["fragments"] == plan.to_json()["fragments"]
    assert result.to_json()["partitions"] == plan.to_json()["partitions"]
    version = root.versions.latest()
    assert version is not None
    assert result.fragments_added == len(version.fragments)
    assert list(result.partitions_changed) == sorted(entry.key for entry in version.partitions)
    assert result.partitions_total == len(version.partitions)
    assert (finished_lots > 0 and bool(options)) == (not numbers_of_lots(plan.stages))
    assert_equals_one_plan(root)


def test_a_dry_run_after_the_last_lot_shows_the_publication_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(lake_of(tmp_path, 8), "root", 2)
    root.interrupted_at(execution, "table_location")
    monkeypatch.setattr(planning, "FRAGMENTS_PER_LOT", root.lot)
    plan = plan_refresh(root.config, root.lake.table)
    result = root.refresh()
    assert stages_to_json(result.stages) == plan.to_json()["stages"]
    assert [stage["stage"] for stage in stages_to_json(plan.stages)] == ["divide_into_lots", "publish"]
    assert numbers_of_lots(plan.stages) == [(9, 0)]


def test_an_interruption_loses_one_lot(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, 1)
    root = Root(lake, "root", 2)
    root.interrupted(3)
    assert root.versions.numbers() == []
    root.pass_day()
    before = root.paths()
    root.expire()
    staged_version = StagedVersions(root.versions).latest()
    assert staged_version is not None
    assert len(staged_version.fragments) == 6
    assert set(files_of(staged_version)) - {"versions/3.json", "versions/newest"} <= root.paths() <= before
    result = root.refresh()
    assert (result.version, result.fragments_added, result.fragments_profiled) == (1, 9, 3)
    latest = root.versions.latest()
    assert latest is not None
    unneeded_folders = {path.partition("/")[0] for path in root.paths() - set(files_of(latest))}
    assert unneeded_folders <= {"pending"}, "the files of earlier lots are removed"
    at_once = Root(lake, "whole", 10**6)
    at_once.refresh()
    assert_same(everything(at_once.config), everything(root.config))


def test_an_interrupted_lot_deletes_its_value_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, update, written_paths = Root(lake_of(tmp_path, 1), "root", 2), execution._update_value_counts, set[str]()

    def dying(run: execution.Execution, stage: UpdateValueCounts) -> None:
        before = root.paths()
        update(run, stage)
        if run.plan.base is not None:
            written_paths.update(root.paths() - before)
            raise KeyboardInterrupt

    monkeypatch.setitem(execution._EXECUTORS, UpdateValueCounts, dying)  # type: ignore[misc]
    with pytest.raises(KeyboardInterrupt):
        root.refresh()
    assert written_paths
    assert not written_paths & root.paths()


def test_the_table_may_change_before_the_refresh_continues(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, 2)
    root, at_once = Root(lake, "root", 2), Root(lake, "whole", 10**6)
    root.interrupted(3)
    for file in lake.files()[::2]:
        file.unlink()
    lake.append(1)
    root.refresh()
    at_once.refresh()
    assert_same(everything(at_once.config), everything(root.config))
    assert verify(root.config, lake.table, no_spark).is_right


def test_changed_policies_discard_staged_lots_only(tmp_path: Path) -> None:
    """A first refresh is interrupted after three lots, and a policy changes.

    The next refresh discards the staged version with these lots. It uses the saved profiles that are valid under the
    new policy, so it does not read all fragments again.
    """
    lake = lake_of(tmp_path, 3)
    root = Root(lake, "root", 2)
    root.interrupted(3)
    lake.options = {"columns": {"group": {"frequencies": "off"}}}
    root = Root(lake, "root", 2)
    assert root.refresh().fragments_profiled < 9
    at_once = Root(lake, "whole", 10**6)
    at_once.refresh()
    assert_same(everything(at_once.config), everything(root.config))
    assert not any(path.startswith("staged/") for path in root.paths())


def test_fingerprinted_columns_need_all_fragments(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, 4)
    lake.options = {"columns": {"id": {"frequencies": "repeated"}}}
    root, at_once = Root(lake, "root", 2), Root(lake, "whole", 10**6)
    assert root.refresh().fragments_profiled == 9
    at_once.refresh()
    assert_same(everything(at_once.config), everything(root.config))


def test_a_refresh_ends_if_another_one_publishes_first(tmp_path: Path) -> None:
    """Another refresh publishes version 1 just before this one computes its second lot.

    This one publishes nothing.
    """
    lake = lake_of(tmp_path, 5)
    root, rival = Root(lake, "root", 2), Root(lake, "root", 10**6)
    assert not root.refresh_with_rival(rival, 2).published
    assert root.versions.numbers() == [1]
    assert verify(root.config, lake.table, no_spark).is_right


def test_another_refresh_publishes_right_after_the_last_lot(tmp_path: Path) -> None:
    """A first refresh computes its last lot, and then a rival refresh publishes version 1.

    The rival also removes the staged versions (the results of lots), just before the first refresh reads the last of
    them. The first refresh ends without an error, and publishes nothing.
    """
    lake = lake_of(tmp_path, 4)
    root, rival = Root(lake, "root", 3), Root(lake, "root", 3)
    publish, latest = StagedVersions.publish, StagedVersions.latest
    lot_count = 0

    def count_lots(self: StagedVersions, *arguments: Any, **options: Any) -> None:
        nonlocal lot_count
        publish(self, *arguments, **options)
        lot_count += 1

    def after_rival(self: StagedVersions) -> Any:
        nonlocal lot_count
        if lot_count == 3:
            lot_count = 0
            assert rival.refresh().published
        return latest(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedVersions, "publish", count_lots)
        patch.setattr(StagedVersions, "latest", after_rival)
        assert not root.refresh().published
    assert root.versions.numbers() == [1]
    assert_equals_one_plan(root)


def test_a_lot_is_staged_even_if_nothing_can_be_deleted(tmp_path: Path) -> None:
    def refuse(self: ObjectStore, paths: list[str]) -> None:
        if paths:
            raise StoreError("cannot delete")

    root = Root(lake_of(tmp_path, 4), "root", 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_version, "_STAGED_GRACE", timedelta(days=-1))
        patch.setattr(ObjectStore, "delete", refuse)
        assert root.refresh().published
    assert_equals_one_plan(root)


def test_a_lot_has_few_fragments_in_a_table_of_any_size(tmp_path: Path) -> None:
    """With lots of four fragments, at most five are in memory, in tables of 12 and of 24 fragments."""
    most = []
    for count in (12, 24):
        lake = Lake(tmp_path / str(count), random.Random(1), columns=["id"])
        for number in range(count):
            lake.append(number, 1)
        root, execute, sizes = Root(lake, "root", 4), first_version.execute, []

        def executed(*arguments: Any, execute: Any = execute, sizes: list[int] = sizes) -> Any:
            execution = execute(*arguments)
            sizes.append(len(execution.fragments))
            return execution

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_version, "execute", executed)
            root.refresh()
        assert sum(sizes) >= count
        most.append(max(sizes))
    assert most[0] == most[1] <= 5


def test_another_refresh_publishes_the_staged_version(tmp_path: Path) -> None:
    """A rival refresh publishes version 1 before a first refresh computes its third lot.

    The rival continues from the staged version (the result of the first two lots), and then removes it. The first
    refresh ends without an error, and publishes nothing.
    """
    lake = lake_of(tmp_path, 6)
    root = Root(lake, "root", 2)
    assert not root.refresh_with_rival(root, 3).published
    assert root.versions.numbers() == [1]
    assert verify(root.config, lake.table, no_spark).is_right


def assert_equals_one_plan(root: Root) -> None:
    """Assert that the published version equals one that is computed at once in another root."""
    at_once = Root(root.lake, "whole", 10**6)
    at_once.refresh()
    assert_same(everything(at_once.config), everything(root.config))


def test_the_snapshot_is_read_if_its_stream_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of a snapshot ends with the error that a file is listed twice.

    The complete snapshot is read instead.
    """

    def stream(table_format: FilesFormat) -> SnapshotStream:
        snapshot = table_format.snapshot()

        def fragments() -> Iterator[Fragment]:
            yield from snapshot.fragments
            raise UnstreamableError("a data file is listed twice")

        return replace(SnapshotStream.of(snapshot), fragments=fragments(), snapshot=None)

    root = Root(lake_of(tmp_path, 7), "root", 2)
    monkeypatch.setattr(FilesFormat, "stream", stream)
    assert root.refresh().version == 1
    monkeypatch.undo()
    assert_equals_one_plan(root)


def test_the_policies_change_after_the_last_lot(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, 8)
    root = Root(lake, "root", 2)
    root.interrupted_at(execution, "table_location")
    staged_version = StagedVersions(root.versions).latest()
    assert staged_version is not None
    assert len(staged_version.fragments) == 9
    lake.options = {"columns": {"group": {"values": "hidden"}}}
    root = Root(lake, "root", 2)
    assert root.refresh().version == 1
    latest = root.versions.latest()
    assert latest is not None
    assert latest.spec_id != staged_version.spec_id
    assert not root.refresh().published


def write_format_version(root: Root, change: int) -> None:
    """Add a number to the format version in staged versions, as if another release had written them."""
    for path in Path(root.config.root).glob("t/staged/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": FORMAT_VERSION + change}))


def test_staged_versions_of_an_older_release_are_ignored(tmp_path: Path) -> None:
    root = Root(lake_of(tmp_path, 9), "root", 2)
    root.interrupted(3)
    root.pass_day()
    write_format_version(root, -1)
    root.expire()
    assert not [path for path in root.paths() if not path.startswith(("staged/", "pending/"))]
    assert root.refresh().fragments_profiled == 9
    assert not [path for path in root.paths() if path.startswith("staged/")]
    assert_equals_one_plan(root)


def test_staged_versions_of_a_newer_release_are_refused(tmp_path: Path) -> None:
    root = Root(lake_of(tmp_path, 9), "root", 2)
    root.interrupted(3)
    write_format_version(root, 1)
    before = root.paths()
    for action in (root.refresh, root.expire):
        with pytest.raises(StoreError, match=rf"format_version.*\b{FORMAT_VERSION + 1}\b"):
            action()
    assert before <= root.paths()


def test_removal_of_staged_versions_with_unreadable_documents(tmp_path: Path) -> None:
    root = Root(lake_of(tmp_path, 9), "root", 2)
    root.interrupted(3)
    write_format_version(root, -1)
    StagedVersions(root.versions).remove()
    assert not [path for path in root.paths() if path.startswith("staged/")]


def test_saved_profiles_are_used_by_all_lots(tmp_path: Path) -> None:
    """Profiles of six fragments are saved.

    A refresh in lots of two reads only the other three fragments.

    The saved profiles are removed when the version is published.
    """
    lake = lake_of(tmp_path, 10)
    root = Root(lake, "root", 2)
    root.interrupted(3)
    staged_versions = StagedVersions(root.versions)
    version = staged_versions.latest()
    assert version is not None
    root.versions.save_pending(list(version.fragments))
    staged_versions.remove_documents()
    assert len(root.versions.pending()) == 6
    root = Root(lake, "root", 2)
    assert root.refresh().fragments_profiled == 3
    assert root.versions.pending() == []
    assert_equals_one_plan(root)
