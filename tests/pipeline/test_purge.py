"""A purge removes all traces of deleted rows, and lookups and refreshes work as before.

A version is the published statistics of a table at one snapshot. It has an entry for each data file and each partition.
A purge copies many entries in lots, to save memory.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.pipeline import purge as purge_module
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.purge import PurgeResult
from metastore_assets.pipeline.purge import purge as purge_with
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import compact as compact_module
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.produce import Delta, FlowState
from metastore_assets.store import local, segment_levels
from metastore_assets.store.backfills import BackfillRecord
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles, SegmentKind
from metastore_assets.store.version import FragmentEntry, ProfileFiles, ValueCountFiles, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import (
    TableValueCounts,
    TopLimits,
    read_value_counts,
    rewrite_value_counts,
    value_count_dataflow,
)
from metastore_assets.value_counts.graph import delta_name, rows_of
from tests.pipeline.file_lake import Lake, assert_same, everything, rows
from tests.pipeline.test_refresh import no_spark
from tests.store.sample_versions import forbid_complete_reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PERSON = "Ada Deleted-Person"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path, random.Random(4))
    for partition in (1, 1, 2, 2, 3):
        lake.append(partition)
    return lake


LOTS = {"several lots": 3, "one lot": 10_000}


@pytest.fixture(autouse=True)
def lots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a purge copy three entries at a time.

    A test can be parametrized with other numbers of entries.
    """
    monkeypatch.setattr(purge_module, "_ENTRIES_PER_LOT", getattr(request, "param", LOTS["several lots"]))


def versions(lake: Lake) -> VersionStore:
    return VersionStore(ObjectStore(lake.config().root), "t")


def purge(store: VersionStore, before: int) -> PurgeResult:
    return purge_with(Engine(no_spark), store, before)


def holding(root: Path, text: str) -> list[str]:
    """Return the paths of files below a folder that contain a text, plain or decompressed."""
    result = []
    for path in filter(Path.is_file, root.rglob("*")):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            data += str(table.to_pydict()).encode() + str(table.schema.metadata).encode()
            data += b"".join(inflated(cell) for cell in cells(table))
        if text.encode() in data:
            result.append(str(path.relative_to(root)))
    return result


def cells(table: pa.Table) -> list[bytes]:
    return [
        value
        for name in table.column_names
        if pa.types.is_binary(table.schema.field(name).type)
        for value in table[name].to_pylist()
        if value is not None
    ]


def inflated(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error:
        return b""


@pytest.mark.parametrize("lots", LOTS.values(), ids=LOTS, indirect=True)
@pytest.mark.parametrize("location", ["alone", "beside others"])
def test_a_deleted_value_is_stored_nowhere(spark: SparkSession, lake: Lake, location: str) -> None:
    def run() -> None:
        refresh(lake.config(), lake.table, lambda: spark)

    table = rows(lake.draw, 40)
    groups = table["group"].to_pylist()
    path = lake.append(4 if location == "alone" else 1)
    pq.write_table(table.set_column(1, "group", pa.array([PERSON, *groups[1:]])), path)
    run()
    assert holding(Path(lake.config().root), PERSON)
    path.unlink()
    run()
    assert holding(Path(lake.config().root), PERSON)  # kept for a restore, and in version 1
    answer = everything(lake.config())
    result = purge(versions(lake), 2)
    assert (result.versions, result.published, result.unfinished) == (2, 3, 0)
    assert result.files > 3
    assert not holding(Path(lake.config().root), PERSON)
    assert versions(lake).numbers() == [3]
    assert everything(lake.config()) == answer
    lake.append(2)
    run()
    refresh(lake.config("scratch"), lake.table, lambda: spark)
    assert_same(everything(lake.config()), everything(lake.config("scratch")))
    assert purge(versions(lake), 3).versions == 0
    assert versions(lake).numbers() == [3, 4, 5]
    assert purge(versions(lake), 5).versions == 3
    assert versions(lake).numbers() == [6]


@pytest.mark.parametrize("lots", LOTS.values(), ids=LOTS, indirect=True)
def test_files_of_a_lost_race_are_removed(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge that loses a race to another publisher tries again.

    No files of its first attempt are left.
    """
    path = lake.append(1)
    for _ in range(2):
        refresh(lake.config(), lake.table, lambda: spark)
        path.unlink(missing_ok=True)
    publish = VersionStore.publish
    others = [lambda: compact(versions(lake), lake.table)]

    def publish_after_others(store: VersionStore, version: Version, *arguments: Any, **options: Any) -> None:
        if others:
            others.pop()()
        publish(store, version, *arguments, **options)

    monkeypatch.setattr(VersionStore, "publish", publish_after_others)
    assert purge(versions(lake), 2).published == 4
    store = versions(lake)
    assert store.numbers() == [2, 3, 4]
    referenced_paths = {path for number in store.numbers() for path in store.read(number).paths()}
    folders = ("fragments", "index", "value_counts", "nodes", "partitions", "table")
    assert {info.path for folder in folders for info in store.objects.list(folder)} <= referenced_paths


def test_a_purge_removes_the_values_of_a_dropped_column(spark: SparkSession, tmp_path: Path) -> None:
    """A column is dropped.

    One partition has the same rows otherwise, so its reused profile still has the column.

    The first purge counts this partition as outdated. After a refresh with `--full` and another purge, no file has the
    column's values.
    """
    lake = Lake(tmp_path, random.Random(4))
    both = pa.table({"n": [1, 2, 2], "person": [PERSON, PERSON, "x"]})
    for folder in (tmp_path / "lake" / "part=1", tmp_path / "lake" / "part=2"):
        folder.mkdir(parents=True)
        pq.write_table(both, folder / "0.parquet")
    refresh(lake.config(), lake.table, lambda: spark)
    pq.write_table(both.slice(1).drop_columns(["person"]), tmp_path / "lake" / "part=1" / "0.parquet")
    pq.write_table(both.drop_columns(["person"]), tmp_path / "lake" / "part=2" / "0.parquet")
    version = refresh(lake.config(), lake.table, lambda: spark).version
    assert purge(versions(lake), version).outdated == 1  # of the partition whose other rows are the same
    version = refresh(lake.config(), lake.table, lambda: spark, RefreshRequest(full=True)).version
    assert purge(versions(lake), version).outdated == 0
    assert holding(Path(lake.config().root), PERSON) == []


def test_rewritten_value_counts_without_columns_have_no_files(tmp_path: Path) -> None:
    """All values of the only column were added and removed again.

    The rewritten value counts reference no file.
    """
    store = ObjectStore(str(tmp_path))
    flow = value_count_dataflow(store, {"string"})
    state = FlowState()
    for frequency in (3, -3):
        columns = {"column": ["1"], "value": [PERSON], "frequency": [frequency]}
        delta = Delta(pa.Table.from_pydict(columns, rows_of("string").schema))
        state = flow.step(state, {delta_name("string"): [delta]})
    old_counts = TableValueCounts(flow=state, top_limits={"1": TopLimits(max_values=1)})
    assert old_counts.paths()
    rewritten = rewrite_value_counts(store, old_counts)
    assert rewritten.paths() == set()
    assert rewritten.top_limits == old_counts.top_limits


def test_a_purge_removes_unpublished_files(spark: SparkSession, lake: Lake) -> None:
    """A purge removes files that no version references, at any age.

    They are saved profiles, records of backfills, and others. A file of another program in the same folder stays. For
    concurrent refreshes, see test_purge_unpublished.py.
    """
    refresh(lake.config(), lake.table, lambda: spark)
    store = versions(lake)
    states, of_killed_refresh = f"fragments/{0:032x}.states.parquet", f"value_counts/{0:032x}.parquet"
    store.objects.write(states, b"x")
    store.objects.write(of_killed_refresh, b"x")
    store.objects.write("_delta_log/0.json", b"of another program")
    files = ProfileFiles("", "", (), states)
    store.save_pending([FragmentEntry("f", "part=1", "file", 1, 1, "spec_id", (), files)])
    BackfillRecord(store.objects, f"{0:032x}").add(["part=1"], 1)
    assert purge(versions(lake), 1).unfinished == 4
    assert not store.objects.list("backfills"), "keys of partitions are values, too"
    assert not store.objects.list("pending")
    assert store.objects.info(files.states) is None
    assert store.objects.info(of_killed_refresh) is None
    assert store.objects.info("_delta_log/0.json"), "it lost the log of a table in the same folder"
    assert purge(versions(lake), 2).unfinished == 0


@pytest.mark.parametrize("lots", LOTS.values(), ids=LOTS, indirect=True)
def test_two_purges_at_once(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one purge deletes files, a second one publishes and removes the version of the first.

    Only the version of the second purge is left, and its statistics are those from before both purges.
    """
    refresh(lake.config(), lake.table, lambda: spark)
    delete_files, others = purge_module.delete_files, [2]

    def delete_after_others(objects: ObjectStore, files: Iterable[pa.Table]) -> tuple[int, int]:
        if others:
            assert purge(versions(lake), others.pop()).published == 3
        return delete_files(objects, files)

    answer = everything(lake.config())
    monkeypatch.setattr(purge_module, "delete_files", delete_after_others)
    assert purge(versions(lake), 1).published == 2
    assert versions(lake).numbers() == [3]
    assert everything(lake.config()) == answer


def test_a_purge_publishes_after_another_listed_the_versions(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge deletes no file of the version that a second purge publishes meanwhile.

    When the first purge has published version 2 and listed the versions, but not read them yet, the second purge
    publishes version 3, and removes version 2.
    """
    refresh(lake.config(), lake.table, lambda: spark)
    numbers, others = Documents.numbers, [2]

    def numbers_before_others(self: Documents) -> list[int]:
        listed_numbers = numbers(self)
        if others and listed_numbers == [1, 2]:
            assert purge(versions(lake), others.pop()).published == 3
        return listed_numbers

    answer = everything(lake.config())
    monkeypatch.setattr(Documents, "numbers", numbers_before_others)
    assert purge(versions(lake), 1).published == 2
    assert not others
    assert versions(lake).numbers() == [3]
    assert everything(lake.config()) == answer
    for path in versions(lake).read(3).paths():
        assert versions(lake).objects.info(path), path


@pytest.mark.parametrize("command", ["purge", "compact"])
def test_a_purge_removes_files_that_another_command_copies(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A purge or compaction starts again if another purge removes the version on which it is based."""
    for _ in range(2):
        refresh(lake.config(), lake.table, lambda: spark)
        lake.append(1)
    module = purge_module if command == "purge" else compact_module
    others = [2]

    def read_after_others(objects: ObjectStore, files: ValueCountFiles | None) -> TableValueCounts:
        value_counts = read_value_counts(objects, files)
        if others:
            assert purge(versions(lake), others.pop()).published == 3
        return value_counts

    answer = everything(lake.config())
    monkeypatch.setattr(module, "read_value_counts", read_after_others)
    if command == "purge":
        assert purge(versions(lake), 2).published == 4
        assert versions(lake).numbers() == [3, 4]
    else:
        assert compact(versions(lake), lake.table).version == 4
    assert everything(lake.config()) == answer


def test_a_purge_removes_a_file_that_a_refresh_is_writing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh repeats itself if a purge removes a file that the refresh is writing.

    The refresh then publishes a version after that of the purge.
    """
    refresh(lake.config(), lake.table, lambda: spark)
    lake.append(1)
    sync, others = local._LocalOutput.sync, [1]

    def sync_before_purge(self: local._LocalOutput) -> None:
        sync(self)
        if others:
            assert purge(versions(lake), others.pop()).published == 2

    with monkeypatch.context() as patch:
        patch.setattr(local._LocalOutput, "sync", sync_before_purge)
        assert refresh(lake.config(), lake.table, lambda: spark).version == 3
    assert not others


@pytest.mark.parametrize("lots", LOTS.values(), ids=LOTS, indirect=True)
def test_a_lot_merges_segments_of_one_set(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge publishes in lots, and each lot merges segments of at most one set.

    A set is an index, or the entries of one kind, such as fragments. It is stored as segments, one for each commit that
    changed it.
    """
    refresh(lake.config(), lake.table, lambda: spark)
    lots: list[set[str]] = [set()]
    update_levels, publish = segment_levels.update_levels, Documents.publish

    def record_merging(kind: SegmentKind, before: SegmentFiles, changes: KeyChanges, *rest: Any, **options: Any) -> Any:
        lots[-1] |= {kind.name} if changes.may_merge else set()
        return update_levels(kind, before, changes, *rest, **options)

    def publish_lot(documents: Documents, *arguments: Any) -> None:
        lots.append(set())
        publish(documents, *arguments)

    monkeypatch.setattr(segment_levels, "update_levels", record_merging)
    monkeypatch.setattr(Documents, "publish", publish_lot)
    monkeypatch.setattr(segment_levels, "_MIN_CHANGED", 0)
    purge(versions(lake), 1)
    assert max(map(len, lots)) <= 1, lots
    assert any(lots) == (purge_module._ENTRIES_PER_LOT == 3), "the first lot has no stored segments"


def test_entries_are_streamed(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an expiry nor a purge in lots reads all entries of one kind at once."""
    for _ in range(2):
        refresh(lake.config(), lake.table, lambda: spark)
        lake.append(1)
    forbid_complete_reads(monkeypatch)
    assert versions(lake).expire(1, timedelta(days=-1)).versions == 1
    assert purge(versions(lake), 2).published == 3


def test_a_purge_before_a_missing_version_is_an_error(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(VersionNotFoundError, match=r"'t'.*version 1\b"):
        purge(versions(lake), 1)
    refresh(lake.config(), lake.table, lambda: spark)
    with pytest.raises(VersionNotFoundError, match=r"'t'.*version 2\b.*\b1$"):
        purge(versions(lake), 2)
    assert versions(lake).numbers() == [1]
