"""A backfill reads and publishes what its plan says.

This holds for any selection of partitions and any interruption. A chunk is a group of partitions that are read, and
usually published, together. A version is the published statistics of a table at one snapshot. The profile of a data
file is its statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import CorruptionError, PartitionNotFoundError, ProfileError
from metastore_assets.formats.base import SnapshotStream
from metastore_assets.pipeline import backfill_plan
from metastore_assets.pipeline.backfill import BackfillResult, ChunkResult, backfill, local_processor, plan_backfill
from metastore_assets.pipeline.backfill_plan import (
    BackfillOptions,
    BackfillPlan,
    BackfillSelection,
    Mode,
    PlannedRefresh,
    expected_seconds,
    make_backfill_plan,
)
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import plan_version, refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import RefreshStats
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake, assert_same, everything, latest
from tests.pipeline.test_engine import no_spark
from tests.store.sample_versions import forbid_complete_reads


class Interrupted(Exception):
    """Raised by a progress callback to interrupt a backfill, as a signal would."""


def config_of(lake: Lake, root: str = "root") -> MetastoreConfig:
    return lake.config(root).model_copy(update={"engine": "auto"})


def plan_of(lake: Lake, selection: BackfillSelection, **options: Any) -> BackfillPlan:
    return plan_backfill(config_of(lake), lake.table, selection, BackfillOptions(**options))


def fill(
    lake: Lake, selection: BackfillSelection, progress: Callable[[Progress], None] = lambda event: None, **options: Any
) -> BackfillResult:
    """Plan a backfill with `options` and execute it; `progress` receives its events."""
    config, result = config_of(lake), BackfillResult("t")
    plan = plan_of(lake, selection, **options)
    backfill(config, lake.table, plan, local_processor(config, lake.table, no_spark, plan, progress), result)
    return result


def fill_until(lake: Lake, selection: BackfillSelection, event: int, **options: Any) -> BackfillResult | None:
    """Plan and execute a backfill, and interrupt it at a progress event, given by its number from 1.

    Return the result of the interrupted backfill. Return None if the backfill ended before the event.
    """
    events = 0

    def interrupt(progress: Progress) -> None:
        nonlocal events
        events += 1
        if events == event:
            raise Interrupted

    config, result = config_of(lake), BackfillResult("t")
    plan = plan_of(lake, selection, **options)
    try:
        backfill(config, lake.table, plan, local_processor(config, lake.table, no_spark, plan, interrupt), result)
    except Interrupted:
        return result
    return None


def paths(lake: Lake, folder: str) -> list[str]:
    return [info.path for info in ObjectStore(str(lake.folder / "root")).child("t").list(folder)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Twelve partitions of one small file each, without a version; few statistics are configured."""
    new_lake = Lake(
        tmp_path, options={"columns": {"default": {"frequencies": "off", "histogram": "off", "quantiles": "off"}}}
    )
    for partition in range(1, 13):
        new_lake.append(partition, 8)
    return new_lake


def key(partition: int) -> str:
    return f"part={partition}"


def test_the_first_version_reads_all_partitions(lake: Lake) -> None:
    """All partitions are one chunk, because a version describes the whole table.

    Afterwards nothing is left to do.
    """
    plan = plan_of(lake, BackfillSelection())
    assert (plan.version, plan.missing, plan.stale, len(plan.chunks), plan.fragments) == (0, 12, 0, 1, 12)
    assert plan.keys == tuple(key(number) for number in range(1, 13))
    assert plan.bytes == sum(path.stat().st_size for path in lake.files())
    assert plan.seconds is None
    result = fill(lake, BackfillSelection())
    assert (result.versions, result.partitions, result.fragments, result.bytes, result.done) == (
        [1],
        12,
        12,
        plan.bytes,
        True,
    )
    assert plan_of(lake, BackfillSelection()).chunks == ()
    assert plan_of(lake, BackfillSelection("all")).seconds is not None


def test_profiles_of_selected_partitions_are_saved_before_the_first_version(lake: Lake) -> None:
    """A backfill of selected partitions saves profiles, and publishes no version if others are unread.

    Files whose profiles are saved are not read again. The backfill of the other partitions publishes version 1.
    """
    selection = BackfillSelection(first="3", last="11")
    plan = plan_of(lake, selection)
    assert not plan.publishes
    assert (plan.unselected_totals.partitions, plan.unselected_totals.fragments) == (3, 3)
    result = fill(lake, selection)
    assert (result.versions, result.partitions, result.fragments, result.done) == ([], 9, 9, False)
    assert fill(lake, selection).fragments == 0
    rest = fill(lake, BackfillSelection())
    assert (rest.versions, rest.fragments, rest.done) == ([1], 3, True)


def test_the_plan_of_the_first_version_needs_no_list_of_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan from a stream of files equals the plan from the complete list.

    An earlier backfill has saved the profiles of some files.
    """
    fill(lake, BackfillSelection(first="3", last="5"))
    lake.append(4, 8)
    config = config_of(lake)
    selections = [BackfillSelection(), BackfillSelection("stale"), BackfillSelection("all", ("part=4", "part=9"))]
    expected = [make_backfill_plan(PlannedRefresh.of(plan_version(config, lake.table)), each) for each in selections]
    assert (expected[0].fragments, expected[2].fragments) == (10, 2)
    monkeypatch.setattr(SnapshotStream, "read_all", lambda self: pytest.fail("all files are listed"))
    plans = [plan_of(lake, selection) for selection in selections]
    assert [replace(plan, attempt="") for plan in plans] == expected


def test_profiles_are_saved_before_the_first_version_without_a_list_of_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk is read without a list of all files.

    Partitions that were dropped after planning are omitted.
    """
    monkeypatch.setattr(SnapshotStream, "read_all", lambda self: pytest.fail("all files are listed"))
    lake.append(4, 8)
    plan = plan_of(lake, BackfillSelection(first="3", last="5"))
    config = config_of(lake)
    process = local_processor(config, lake.table, no_spark, plan)
    assert [process(chunk, "") for chunk in plan.chunks] == [ChunkResult(None, 4, plan.bytes)]
    for number in (3, 4, 5):
        for path in (lake.uri / key(number)).iterdir():
            path.unlink()
    assert [process(chunk, "") for chunk in plan.chunks] == [ChunkResult(None, 0, 0)]


def test_no_publish_saves_profiles_only(lake: Lake) -> None:
    """A backfill with `publish=False` saves profiles and publishes no version.

    The next refresh uses the saved profiles.
    """
    fill(lake, BackfillSelection())
    for partition in (2, 5, 9):
        lake.append(partition, 8)
    result = fill(lake, BackfillSelection(partitions=("part=5",)), publish=False)
    assert (result.versions, result.fragments) == ([], 1)
    assert latest(config_of(lake)).number == 1
    assert refresh(config_of(lake), lake.table, no_spark).fragments_profiled == 2


def test_a_plan_after_the_first_version_streams_entries(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selections are planned without reading all entries (records of data files) of a version at once."""
    fill(lake, BackfillSelection())
    lake.append(3, 8)
    lake.append(20, 8)
    modes: tuple[Mode, ...] = ("outdated", "missing", "stale", "all")
    plans = [plan_of(lake, BackfillSelection(mode)) for mode in modes]
    forbid_complete_reads(monkeypatch)
    assert [replace(plan_of(lake, plan.selection), attempt=plan.attempt) for plan in plans] == plans
    assert [plan.fragments for plan in plans] == [2, 2, 2, 14]


def test_missing_and_stale_partitions_are_selected(lake: Lake) -> None:
    """Partition 3 gets a new file (it is stale), and 20 and 21 are new (they are missing).

    The mode `stale` selects partition 3, `missing` selects the two new ones, and `outdated` selects all three. With
    each mode, the backfill reads all three, because a version describes the whole table. The plan counts the partitions
    that are not selected.
    """
    fill(lake, BackfillSelection())
    lake.append(3, 8)
    lake.append(20, 8)
    lake.append(21, 8)
    answer = {mode: plan_of(lake, BackfillSelection(mode)) for mode in ("outdated", "missing", "stale")}  # type: ignore[arg-type]
    assert {mode: plan.keys for mode, plan in answer.items()} == {
        "outdated": (key(3), key(20), key(21)),
        "missing": (key(20), key(21)),
        "stale": (key(3),),
    }
    assert [(plan.missing, plan.stale, plan.unselected_totals.partitions) for plan in answer.values()] == [
        (2, 1, 0),
        (2, 0, 1),
        (0, 1, 2),
    ]
    assert {plan.fragments for plan in answer.values()} == {3}
    result = fill(lake, BackfillSelection("missing"))
    assert (result.partitions, result.fragments, result.versions) == (2, 3, [2])
    assert plan_of(lake, BackfillSelection("stale")).chunks == ()


def test_removing_partitions_publishes_a_version(lake: Lake) -> None:
    """A backfill without a selection publishes the removal of a partition, and reads no file.

    A backfill with a selection has nothing to do.
    """
    fill(lake, BackfillSelection())
    lake.files()[0].unlink()
    assert plan_of(lake, BackfillSelection(first="4")).chunks == ()
    assert plan_of(lake, BackfillSelection("missing")).chunks == ()
    result = fill(lake, BackfillSelection())
    assert (result.versions, result.partitions, result.fragments, result.done) == ([2], 0, 0, True)


def test_mode_all_is_split_into_chunks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk has a limited number of partitions, fragments or bytes and becomes a version.

    Each partition is read once.

    The bytes and rows in progress events rise over all chunks, up to their totals.
    """
    fill(lake, BackfillSelection())
    assert [len(chunk.keys) for chunk in plan_of(lake, BackfillSelection("all"), chunk_partitions=5).chunks] == [
        5,
        5,
        2,
    ]
    assert [len(chunk.keys) for chunk in plan_of(lake, BackfillSelection("all")).chunks] == [12]
    with monkeypatch.context() as patch:
        patch.setattr(backfill_plan, "CHUNK_FRAGMENTS", 6)
        assert [len(chunk.keys) for chunk in plan_of(lake, BackfillSelection("all")).chunks] == [6, 6]
    size = sum(path.stat().st_size for path in lake.files())
    monkeypatch.setattr(backfill_plan, "CHUNK_BYTES", size // 3 + 1)
    assert [len(chunk.keys) for chunk in plan_of(lake, BackfillSelection("all")).chunks] == [4, 4, 4]
    before = everything(config_of(lake))
    events: list[Progress] = []
    result = fill(lake, BackfillSelection("all"), events.append)
    assert (result.versions, result.chunks, result.partitions, result.fragments) == ([2, 3, 4], 3, 12, 12)
    profile_events = [event for event in events if event.stage == "profile"]
    assert [event.bytes for event in profile_events] == sorted(event.bytes for event in profile_events)
    assert [event.rows for event in profile_events] == sorted(event.rows for event in profile_events)
    assert (profile_events[-1].bytes, profile_events[-1].rows, {event.total_bytes for event in profile_events}) == (
        size,
        96,
        {size},
    )
    assert list(dict.fromkeys(event.part for event in events)) == ["chunk 1 of 3", "chunk 2 of 3", "chunk 3 of 3"]
    assert_same(everything(config_of(lake)), before)
    assert [entry.version for entry in latest(config_of(lake)).partitions].count(1) == 0


def test_all_outdated_partitions_are_one_chunk(lake: Lake) -> None:
    """Partitions that changed since the newest version are the first chunk.

    A partition with a new file is read completely, including its old file.
    """
    fill(lake, BackfillSelection())
    for partition in (2, 4, 30):
        lake.append(partition, 8)
    plan = plan_of(lake, BackfillSelection("all"), chunk_partitions=4)
    assert [len(chunk.keys) for chunk in plan.chunks] == [3, 4, 4, 2]
    assert plan.chunks[0].keys == (key(2), key(4), key(30))
    assert plan.chunks[0].read_again == (key(2), key(4))
    assert [chunk.fragments for chunk in plan.chunks] == [5, 4, 4, 2]


@pytest.mark.parametrize("event", [8, *(pytest.param(event, marks=pytest.mark.long) for event in (1, 3, 13, 20, 27))])
def test_an_interrupted_backfill_continues(lake: Lake, event: int) -> None:
    """The next backfill continues from any interruption.

    Only the interrupted chunk may be read again.
    """
    fill(lake, BackfillSelection())
    interrupted_result = fill_until(lake, BackfillSelection("all"), event, chunk_partitions=3)
    assert interrupted_result is not None
    assert not interrupted_result.done
    plan = plan_of(lake, BackfillSelection("all"), chunk_partitions=3)
    assert (len(plan.done), len(plan.chunks)) == (3 * interrupted_result.chunks, 4 - interrupted_result.chunks)
    rest = fill(lake, BackfillSelection("all"), chunk_partitions=3)
    assert interrupted_result.partitions + rest.partitions == 12
    assert 12 - 3 <= interrupted_result.fragments + rest.fragments <= 12
    assert paths(lake, "backfills") == []


@pytest.mark.long
def test_saved_profiles_of_a_chunk_are_not_read_again(lake: Lake) -> None:
    """A backfill is interrupted after it has read all partitions.

    The next one with the same selection reads nothing.

    A backfill with another selection does not use the saved profiles.
    """
    fill(lake, BackfillSelection())
    events: list[str] = []
    fill(lake, BackfillSelection("all"), lambda event: events.append(event.stage))
    reduces = events.index("reduce") + 1
    assert fill_until(lake, BackfillSelection("all"), reduces) is not None
    other = fill(lake, BackfillSelection("all", first="1", last="3"))
    assert other.fragments == 3
    assert fill_until(lake, BackfillSelection("all"), reduces) is not None
    assert plan_of(lake, BackfillSelection("all")).fragments == 0
    assert fill(lake, BackfillSelection("all")).fragments == 0


@pytest.mark.long
def test_another_selection_does_not_continue_the_backfill(lake: Lake) -> None:
    """A backfill is interrupted after its first chunk.

    A plan with the same selection continues it.

    With another selection, or with `--restart`, all chunks are planned again.
    """
    fill(lake, BackfillSelection())
    interrupted_result = fill_until(lake, BackfillSelection("all"), 9, chunk_partitions=3)
    assert interrupted_result is not None
    assert interrupted_result.chunks == 1
    assert plan_of(lake, BackfillSelection("all", first="1")).done == ()
    assert len(plan_of(lake, BackfillSelection("all")).done) == 3
    assert plan_of(lake, BackfillSelection("all"), restart=True).done == ()
    assert fill(lake, BackfillSelection("all"), restart=True).fragments == 12
    assert paths(lake, "backfills") == []


def test_partitions_dropped_after_planning_are_omitted(lake: Lake) -> None:
    """If the table changes during a backfill, new partitions are read, and dropped ones omitted."""
    fill(lake, BackfillSelection())

    def commit(event: Progress) -> None:
        if event.stage == "publish" and (lake.uri / "part=12").exists():
            for path in (lake.uri / "part=12").iterdir():
                path.unlink()
            (lake.uri / "part=12").rmdir()
            lake.append(30, 8)

    result = fill(lake, BackfillSelection("all"), commit, chunk_partitions=6)
    assert result.done
    assert result.versions == [2, 3]
    assert {entry.key for entry in latest(config_of(lake)).partitions} == {*map(key, range(1, 12)), key(30)}
    assert result.fragments == 12  # the eleven that are left, and the new one


@pytest.mark.long
def test_an_unreadable_file_stops_the_backfill(lake: Lake) -> None:
    """A file is damaged, and the error of the backfill names its partition.

    After the file is repaired, a backfill completes, and its result is right.
    """
    fill(lake, BackfillSelection())
    damaged_file = next((lake.uri / "part=7").iterdir())
    good = damaged_file.read_bytes()
    damaged_file.write_bytes(good[:-400] + b"x" * 396 + b"PAR1")
    config, result = config_of(lake), BackfillResult("t")
    plan = plan_of(lake, BackfillSelection("all"), chunk_partitions=3)
    with pytest.raises(ProfileError, match="part=7"):
        backfill(config, lake.table, plan, local_processor(config, lake.table, no_spark, plan), result)
    assert result.done is False
    number = latest(config).number
    damaged_file.write_bytes(good)
    assert fill(lake, BackfillSelection("all"), chunk_partitions=3).done
    assert latest(config).number > number
    lake_again = everything(config)
    refresh(config_of(lake, "other"), lake.table, no_spark)
    assert_same(lake_again, everything(config_of(lake, "other")))


def test_partition_keys_from_a_list(lake: Lake) -> None:
    """The list `keys` selects partitions, and an empty one selects none.

    The error about unknown keys names one of them and has the number of the others.
    """
    assert plan_of(lake, BackfillSelection(keys=())).chunks == ()
    fill(lake, BackfillSelection())
    assert plan_of(lake, BackfillSelection("all", keys=())).chunks == ()
    assert plan_of(lake, BackfillSelection("all", keys=(key(3), key(11)))).keys == (key(3), key(11))
    assert plan_of(lake, BackfillSelection("all", ("part=1",), (key(3), key(11)), last="9")).keys == (key(1), key(3))
    with pytest.raises(PartitionNotFoundError, match=r"'part=99'.*\b1\b"):
        plan_of(lake, BackfillSelection("all", keys=(key(3), "part=99", "part=1*")))
    with pytest.raises(PartitionNotFoundError, match=r"'part=2'.*'part=4'"):
        plan_of(lake, BackfillSelection("all", ("part=9",), first="2", last="4"))


def test_the_expected_duration_is_extrapolated() -> None:
    """The expected time is extrapolated from the earlier run that read most bytes.

    It is at least the duration of the shortest earlier run, times the number of versions to publish.
    """
    assert expected_seconds([], 100, 1) is None
    efforts = [RefreshStats(1, 0, 2.0), RefreshStats(4, 1000, 10.0), RefreshStats(1, 10, 3.0)]
    assert expected_seconds(efforts, 5000, 2) == 50.0
    assert expected_seconds(efforts, 0, 3) == 6.0


def test_an_interrupted_full_refresh_continues(lake: Lake) -> None:
    """A full refresh is interrupted after reading.

    The next one uses the saved profiles and reads nothing.

    If the saved profiles are damaged, the next full refresh fails, and the one after it reads all files.
    """
    config = config_of(lake)
    refresh(config, lake.table, no_spark)

    def interrupt(event: Progress) -> None:
        if event.stage == "reduce":
            raise Interrupted

    with pytest.raises(Interrupted):
        refresh(config, lake.table, no_spark, request=RefreshRequest(full=True), progress=interrupt)
    assert refresh(config, lake.table, no_spark, request=RefreshRequest(full=True)).fragments_profiled == 0
    assert refresh(config, lake.table, no_spark, request=RefreshRequest(full=True)).fragments_profiled == 12

    with pytest.raises(Interrupted):
        refresh(config, lake.table, no_spark, request=RefreshRequest(full=True), progress=interrupt)
    store = VersionStore(ObjectStore(config.root), "t")
    for path in {path for entry in store.pending() for path in entry.files.paths()}:
        file = Path(store.objects.uri(path))
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorruptionError):
        refresh(config, lake.table, no_spark, request=RefreshRequest(full=True))
    assert refresh(config, lake.table, no_spark, request=RefreshRequest(full=True)).fragments_profiled == 12


@pytest.mark.s3
@pytest.mark.long
def test_an_interrupted_backfill_continues_on_an_object_store(lake: Lake, s3_options: dict[str, str]) -> None:
    """A backfill is interrupted after reading its second chunk.

    The next one reads only the third chunk, which has two partitions.

    At the end, the record of the backfill is deleted.
    """
    config = config_of(lake).model_copy(update={"root": "s3://metastore/backfills", "storage_options": s3_options})

    def fill_there(interrupt: Callable[[Progress], None] = lambda event: None) -> BackfillResult:
        plan = plan_backfill(config, lake.table, BackfillSelection("all"), BackfillOptions(chunk_partitions=5))
        backfill(config, lake.table, plan, local_processor(config, lake.table, no_spark, plan, interrupt), result)
        return result

    def interrupt(event: Progress) -> None:
        if event.part == "chunk 2 of 3" and event.stage == "reduce":
            raise Interrupted

    refresh(config, lake.table, no_spark)
    result = BackfillResult("t")
    with pytest.raises(Interrupted):
        fill_there(interrupt)
    assert (result.versions, result.partitions, result.done) == ([2], 5, False)
    result = BackfillResult("t")
    assert fill_there().versions == [3, 4]
    assert (result.partitions, result.fragments) == (7, 2)
    assert ObjectStore(config.root, config.storage_options).child("t").list("backfills") == []


# An example takes seconds, so shrinking a failure would take minutes.
@pytest.mark.long
@settings(
    max_examples=25,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_sequence_of_backfills_gives_the_version_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After random commits and backfills, a refresh gives the same statistics as one from scratch.

    Some backfills are interrupted. A backfill reads no more than planned. If it publishes versions, and its mode
    includes all partitions that are missing or out of date, then nothing is left to do, because a version describes the
    whole table.
    """
    lake = Lake(tmp_path_factory.mktemp("lake"), random.Random(data.draw(st.integers(0, 99))))
    for partition in range(4):
        lake.append(partition, 5)
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(0, 2))):
            lake.commit()
        if not lake.files():
            lake.append(1, 5)
        folders = sorted({path.parent.name for path in lake.files()})
        mode: Mode = data.draw(st.sampled_from(["outdated", "missing", "stale", "all"]))
        keys = data.draw(st.none() | st.lists(st.sampled_from(folders), unique=True))
        selection, chunk = (
            BackfillSelection(mode, keys=None if keys is None else tuple(keys)),
            data.draw(st.integers(1, 3)),
        )
        plan = plan_of(lake, selection, chunk_partitions=chunk)
        if data.draw(st.booleans()):
            interrupted_result = fill_until(lake, selection, data.draw(st.integers(1, 12)), chunk_partitions=chunk)
            assert interrupted_result is None or interrupted_result.fragments <= plan.fragments
            plan = plan_of(lake, selection, chunk_partitions=chunk)
        result = fill(lake, selection, chunk_partitions=chunk)
        assert result.fragments <= plan.fragments
        assert result.partitions == len(plan.keys)
        after = plan_of(lake, BackfillSelection())
        selected_keys = set(folders) if keys is None else set(keys)
        complete_modes = {"outdated", "all", "missing" if plan.version == 0 else ""}
        if mode in complete_modes and plan.publishes and selected_keys and plan.chunks:
            assert after.chunks == (), (plan, after)
    config = config_of(lake)
    refresh(config, lake.table, no_spark)
    refresh(config_of(lake, "other"), lake.table, no_spark)
    assert_same(everything(config), everything(config_of(lake, "other")))
