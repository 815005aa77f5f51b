"""Errors name files that crash the process that reads them.

Nothing else is lost, and planning does not crash. A fragment is a data file with the deletes that apply to it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import FatalFileError, ProfileError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.base import FragmentReader, FragmentSource, Snapshot
from metastore_assets.formats.schema_casting import canonical_type
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragments import FragmentProfiler, ProfilingContext
from metastore_assets.pipeline.refresh import plan_refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks import child_process
from metastore_assets.tasks.isolation import run_isolated
from tests.cli.run_command import run
from tests.formats.iceberg.writer import IcebergWriter, column, with_ids
from tests.pipeline.file_lake import assert_same, everything
from tests.robustness.crashing_files import KILLERS, ROWS, negative_lengths
from tests.robustness.refresh_assertions import assert_equals_scratch, refreshed
from tests.tasks import child_tasks as tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAPS = pa.map_(pa.int32(), pa.int32())


def good(path: Path, number: int) -> None:
    """Write a file with the same columns as the files that crash the reader."""
    path.parent.mkdir(parents=True, exist_ok=True)
    maps = pa.array([[(7, number)]] * 20, _MAPS)
    orc.write_table(pa.table({"id": pa.array(range(20), pa.int64()), "m": maps}), path)


def killing(path: Path) -> Path:
    """Write a file whose maps crash the reader.

    Return its path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(negative_lengths())
    return path


def config_of(folder: Path, **table: Any) -> MetastoreConfig:
    table_config = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), **table})
    return MetastoreConfig(root=str(folder / "root"), tables=[table_config])


def snapshot_of(folder: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()


@pytest.mark.long
@pytest.mark.spark
def test_crashing_files_among_others_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """The error names each file that crashed its reader, and how the reader's process ended.

    The published statistics stay as they were, and no other file is read twice.
    """
    config = config_of(tmp_path)
    lake = tmp_path / "lake"
    for number in range(40):
        good(lake / f"p={number % 4}" / f"{number}.orc", number)
    killers = [killing(lake / "p=1" / "killer.orc"), killing(lake / "p=3" / "other.orc")]
    (tmp_path / "metastore.yaml").write_text("root: ./root\ntables: [{name: t, uri: ./lake}]\n")
    command_result = run("refresh", "t", "--json", config=tmp_path / "metastore.yaml")
    assert (command_result.exit_code, len(command_result.stderr.splitlines())) == (3, 1)
    assert "2 of 42 fragments" in command_result.stderr
    for killer, partition in zip(killers, ("p=1", "p=3"), strict=True):
        reason = (
            f"partition {partition!r}: reading {killer} (column 'm') ended the process that read it "
            "(signal 11, segmentation fault)"
        )
        assert reason in command_result.stderr
        assert reason in json.loads(command_result.stdout)["error"]
        killer.unlink()
    assert refreshed(config, spark).fragments_profiled == 0
    before = everything(config)
    good(lake / "p=4" / "new.orc", 9)
    killing(killers[0])
    with pytest.raises(ProfileError, match=rf"\b1 of 2\b.*'p=1': .*{killers[0]}"):
        refreshed(config, spark)
    assert_same(everything(config), before)
    good(killers[0], 5)
    result = refreshed(config, spark)
    assert (result.fragments_added, result.fragments_profiled, result.partitions_changed) == (2, 1, ("p=1", "p=4"))
    assert_equals_scratch(config, spark, tmp_path)


@contextmanager
def kill_readers_of(*paths: Path) -> Iterator[None]:
    """During the block, kill children that read one of these files.

    The kernel does that if memory is short. Without paths, kill every child that is reading anything.
    """
    stop = threading.Event()

    def kill() -> None:
        """Kill each child process that is reading one of `paths`, until the block ends."""
        while not stop.is_set():
            for child in list(child_process._running):
                in_flight = child._in_flight.entries().values()
                if any(str(path) in text for text in in_flight for path in paths) or (in_flight and not paths):
                    child._process.kill()
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()


def long(path: Path) -> Path:
    """Write a file that takes some time to be read."""
    path.write_bytes(b"id,s\n" + b"1,abcdefgh\n" * 3_000_000)
    return path


@pytest.mark.spark
def test_a_file_that_crashes_its_reader_during_planning(spark: SparkSession, tmp_path: Path) -> None:
    """Planning succeeds if a file crashes its reader, but the row count of this file is unknown.

    The refresh then fails, and its error says how the reader's process ended. After the file is repaired, a refresh
    reads only this file.
    """
    config = config_of(tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(3):
        (lake / f"{number}.csv").write_text(f"id,s\n{number},x\n")
    fatal = long(lake / "long.csv")
    with kill_readers_of(fatal):
        snapshot = snapshot_of(lake)
        counts = {Path(fragment.path).name: fragment.row_count for fragment in snapshot.fragments}
        assert counts == {"0.csv": 1, "1.csv": 1, "2.csv": 1, "long.csv": None}
        unread = next(fragment for fragment in snapshot.fragments if fragment.row_count is None)
        with pytest.raises(FatalFileError, match=rf"{fatal} .*signal 9\b.*memory"):
            unread.source.open()
        with pytest.raises(ProfileError, match=rf"\b1 of 4\b.*{fatal} .*signal 9\b"):
            refreshed(config, spark)
    fatal.write_text("id,s\n7,x\n")
    assert refreshed(config, spark).fragments_profiled == 1
    assert_equals_scratch(config, spark, tmp_path)


def test_a_table_of_only_crashing_files_is_an_error(tmp_path: Path) -> None:
    files = [long(tmp_path / name) for name in ("a.csv", "b.csv")]
    with (
        kill_readers_of(*files),
        pytest.raises(TableFormatError, match=f"{tmp_path} .*{files[0]}"),
    ):
        snapshot_of(tmp_path)


@pytest.mark.parametrize("name", KILLERS)
def test_bounds_of_a_file_that_crashes_its_reader_are_unknown(tmp_path: Path, name: str) -> None:
    """A file that crashes its reader has unknown bounds and null counts.

    A good file in the same table has a known null count. The bounds of `negative-lengths.orc` are not checked: its
    footer is intact, so they may be known.
    """
    (tmp_path / f"killer{Path(name).suffix}").write_bytes(KILLERS[name]())
    column_ = {"flipped-repetition.parquet": "s"}.get(name, "id")
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})
    if name.endswith(".parquet"):
        pq.write_table(table, tmp_path / "good.parquet")
    else:
        orc.write_table(table.select(["id"]), tmp_path / "good.orc")
    format_ = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = format_.snapshot()
    reported_bounds = format_.bounds(snapshot, column_).to_pylist()
    paths = [Path(fragment.path).stem for fragment in snapshot.fragments]
    by_path = dict(zip(paths, reported_bounds, strict=True))
    assert by_path["good"]["null_count"] == 0
    if name != "negative-lengths.orc":  # whose footer is intact
        assert {by_path["killer"][key] for key in ("null_count", "minimum", "maximum")} == {None}


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_a_delete_file_is_named_and_not_the_data_file(tmp_path: Path, kind: str) -> None:
    """If reading a delete file crashes, the error names this file, so that nobody repairs the data file."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    data = writer.data(pa.table({"id": pa.array(range(ROWS), pa.int64())}))
    writer.commit(data)
    many = 2_000_000
    if kind == "position":
        deletes = writer.position_deletes([(data["file_path"], 3)])
        table = pa.table({"file_path": pa.repeat(data["file_path"], many), "pos": pa.repeat(3, many)})
        ids = {"file_path": 2147483546, "pos": 2147483545}
    else:
        deletes = writer.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), "id")
        table, ids = pa.table({"id": pa.repeat(3, many)}), {"id": 1}
    writer.commit(deletes)
    fatal = Path(deletes["file_path"])
    pq.write_table(with_ids(table, ids), fatal)
    (fragment,) = snapshot_of(tmp_path / "t").fragments
    with kill_readers_of(fatal), pytest.raises(TableFormatError, match=rf"{fatal} .*signal 9\b"):
        run_isolated(tasks.open_fragment, fragment.path, fragment.source)


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    return pa.table([pa.nulls(count, type_) for type_ in schema.types], schema=schema)


@pytest.mark.parametrize("checkpoint_path", ["a checkpoint", "a sidecar"])
def test_a_checkpoint_that_crashes_its_reader_is_named(tmp_path: Path, checkpoint_path: str) -> None:
    """If reading a Delta checkpoint or its sidecar file crashes, the error names this file.

    The crash ends a child process. The planning process continues, and reads the table the next time.
    """
    lake = tmp_path / "lake"
    log = lake / "_delta_log"
    write_deltalake(str(lake), pa.table({"id": [1, 2]}))
    DeltaTable(lake).create_checkpoint()
    (path,) = log.glob("*.checkpoint.parquet")
    if checkpoint_path == "a sidecar":
        sidecar = log / "_sidecars" / "one.parquet"
        sidecar.parent.mkdir()
        path.rename(sidecar)
        actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
        checkpoint_actions = [action for action in actions if {"protocol", "metaData"} & set(action)]
        checkpoint_actions.append({"sidecar": {"path": sidecar.name, "sizeInBytes": 1, "modificationTime": 0}})
        checkpoint = log / f"{0:020}.checkpoint.00000000-0000-4000-8000-000000000000.json"
        checkpoint.write_text("\n".join(map(json.dumps, checkpoint_actions)))
        path = sidecar
    (log / f"{0:020}.json").unlink()
    # Rows without any action make it long and change nothing.
    rows = pq.read_table(path)
    rows = rows.cast(pa.schema([(field.name, canonical_type(field.type)) for field in rows.schema]))
    pq.write_table(pa.concat_tables([_nulls(rows.schema, 3_000_000), rows]), path)
    with kill_readers_of(), pytest.raises(TableFormatError, match=rf"{path} .*signal 9\b"):
        snapshot_of(lake)
    assert [fragment.row_count for fragment in snapshot_of(lake).fragments] == [2]


@dataclass(frozen=True)
class Kills:
    """A fragment's source that kills the process that opens it, but only the first `times` times.

    To count the kills, the source creates a file in the folder `started_files` before each kill.
    """

    source: FragmentSource
    started_files: str
    times: int

    def open(self) -> FragmentReader:
        start_count = len(os.listdir(self.started_files))
        if start_count < self.times:
            Path(self.started_files, str(start_count)).touch()
            signal.raise_signal(signal.SIGKILL)
        return self.source.open()


@pytest.mark.spark
@pytest.mark.parametrize(("times", "fails"), [(2, False), pytest.param(9, True, marks=pytest.mark.long)])
def test_a_fragment_whose_worker_is_killed_is_retried_twice(
    spark: SparkSession, tmp_path: Path, times: int, fails: bool
) -> None:
    """If the process that reads a fragment is killed once or twice, the fragment is read again.

    A kill may have another cause than the fragment. After a third kill, the fragment is reported as failed. Other
    fragments are profiled in any case.
    """
    config = config_of(tmp_path)
    for number in range(6):
        good(tmp_path / "lake" / f"{number}.orc", number)
    plan = plan_refresh(config, config.tables[0])
    context = ProfilingContext(ObjectStore(config.root).child("t"), config.tables[0], plan.snapshot.schema, plan.spec)
    started_files = tmp_path / "marks"
    started_files.mkdir()
    first, *others = plan.snapshot.fragments
    killer = replace(first, source=Kills(first.source, str(started_files), times))
    profiles, failures = FragmentProfiler(Engine(lambda: spark), context).profile([(killer, *others)])
    assert len(profiles) == (5 if fails else 6)
    assert [failure.path for failure in failures] == ([killer.path] if fails else [])
    if fails:
        assert "(signal 9, killed)" in failures[0].message
