"""The progress line: always moving, never wider than the terminal, and correct.

A fragment is a data file together with the deletes that apply to it. A chunk is the partitions that one step of a
backfill processes.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from rich.console import Console

from metastore_assets.cli.progress import HiddenProgress, ProgressLine, show_progress
from metastore_assets.cli.running_tasks import RunningTasks
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.report.text import count_cells
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = [
    Progress("t", "plan"),
    Progress("t", "profile", 0, 100, "fragments", 32),
    Progress("t", "profile", 96, 100, "fragments", 4),
    Progress("t", "profile", 100, 100, "fragments"),
    Progress("t", "reduce", 0, 20_000, "partitions", 20_000),
    Progress("t", "reduce", 20_000, 20_000, "partitions"),
    Progress("t", "publish"),
    Progress("t", "profile", 40, 100, "fragments", 4, 12_345, 10**9, 4 * 10**9, "chunk 2 of 5"),
    Progress("t", "run 01234567 of Dagster is started", part="chunk 12 of 15"),
    Progress("t", "reading columns", 3, 12, "columns"),
    Progress("", "checking tables"),
]


def frame(event: Progress, width: int) -> str:
    """Return the line that shows an event."""
    output = io.StringIO()
    console = Console(file=output, width=width, color_system=None)
    line = ProgressLine(console)
    line(event)
    line.hide()
    console.print(line.render())
    return output.getvalue().rstrip("\n")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160])
@pytest.mark.parametrize("name", ["t", "a_rather_long_name_" * 4, "表" * 30])
def test_the_line_fits_the_terminal(width: int, name: str) -> None:
    for event in EVENTS:
        line = frame(replace(event, table=name), width)
        assert "\n" not in line
        assert count_cells(line) <= width


def test_progress_line() -> None:
    plan, first, last, done, partitions, table, publish, *_ = (frame(event, 80) for event in EVENTS)
    assert "t: planning" in plan
    assert "t: profiling" in first
    assert "0 of 100 fragments" in first
    assert "96 of 100 fragments" in last
    assert "100 of 100 fragments" in done
    assert "t: reducing partitions" in partitions
    assert "0 of 20,000 partitions" in partitions
    assert "t: reducing the table" in table
    assert "t: publishing" in publish
    # A name that is too long does not hide the progress.
    assert "…: reducing the table" in frame(Progress("a_name" * 20, "reduce", 2, 2, "partitions"), 60)


def test_progress_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line shows the chunk and the number of fragments, and also bytes and rows if there is room.

    The remaining time is extrapolated from the bytes that were read so far.
    """
    wide, narrow = (frame(EVENTS[7], width) for width in (160, 80))
    assert "t: profiling (chunk 2 of 5)" in wide
    assert "40 of 100 fragments · 1 GB of 4 GB · 12,345 rows" in wide
    assert "40 of 100" in narrow
    assert "rows" not in narrow
    assert "t: run 01234567 of Dagster is started (chunk 12 of 15)" in frame(EVENTS[8], 100)
    console = Console(file=io.StringIO(), width=160, color_system=None)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    line = ProgressLine(console)
    line(replace(EVENTS[7], bytes=0, table="another"))
    line(EVENTS[7])
    line(replace(EVENTS[7], bytes=0))
    now += 60
    line(EVENTS[7])
    now += 30
    line(replace(EVENTS[7], running=3))
    line.hide()
    output = io.StringIO()
    Console(file=output, width=160, color_system=None).print(line.render())
    assert "2.5 min left" in output.getvalue()


def test_no_progress_without_a_terminal() -> None:
    with show_progress() as watcher:
        assert isinstance(watcher, HiddenProgress)


@pytest.mark.spark
def test_tasks_are_counted_while_a_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    """While a job runs, `RunningTasks.count` returns the numbers of its ended tasks and of all its tasks.

    After `RunningTasks.forget`, the tasks of the job are not counted any more.
    """

    def wait_for_file(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                while not (tmp_path / str(number)).exists():
                    time.sleep(0.01)
            yield batch

    def collect() -> None:
        spark.range(0, 4, 1, 4).mapInArrow(wait_for_file, "id long").collect()

    tasks = RunningTasks(spark)
    job = threading.Thread(target=collect)
    job.start()
    try:
        for number in range(4):
            wait_until(lambda number=number: tasks.count() == (number, 4))  # type: ignore[misc]
            if number == 2:
                tasks.forget()
                assert tasks.count() == (0, 0)
                break
            (tmp_path / str(number)).touch()
    finally:
        for number in range(4):
            (tmp_path / str(number)).touch()
        job.join()
    assert tasks.count() == (0, 0)
    tasks.close()
