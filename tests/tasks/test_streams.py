"""Streams of several children have all items, and end with the first error.

A crash of a child names the file at fault.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from metastore_assets.errors import FatalFileError, MetastoreError
from metastore_assets.tasks import child_process
from metastore_assets.tasks.runner import with_arguments
from metastore_assets.tasks.streams import PathTask, stream_parallel
from tests.tasks import child_tasks as tasks
from tests.tasks.test_isolation import is_running, no_idle_children
from tests.waiting import wait_until

__all__ = ["no_idle_children"]
count_to = with_arguments(tasks.count_to)


@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (1, 3), (2, 1), (2, 4)])
def test_all_items_of_all_tasks(processes: int, threads: int) -> None:
    path_tasks = [PathTask(f"/t/{number}", (number,)) for number in range(40)]
    result = Counter(stream_parallel(count_to, path_tasks, processes, threads))
    assert result == Counter(item for number in range(40) for item in range(number))
    assert list(stream_parallel(count_to, [], processes, threads)) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_of_a_task_ends_the_stream(processes: int) -> None:
    path_tasks = [PathTask(f"/t/{number}", (3, "no more") if number == 5 else (3,)) for number in range(40)]
    with pytest.raises(ValueError, match="no more"):
        list(stream_parallel(count_to, path_tasks, processes, 2))


@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (1, 4), (2, 4)])
def test_a_crash_names_the_file_at_fault(processes: int, threads: int) -> None:
    """One of twenty files crashes its child.

    The error names this file, even if the child was reading several files.
    """
    crash = (2, int(signal.SIGABRT))
    path_tasks = [PathTask(f"/t/{number}", crash if number == 7 else (2000,)) for number in range(20)]
    with pytest.raises(FatalFileError, match=r"/t/7 .*signal 6\b") as error_info:
        list(stream_parallel(count_to, path_tasks, processes, threads))
    assert error_info.value.path == "/t/7"


def test_a_crash_that_no_file_causes_alone_blames_none(tmp_path: Path) -> None:
    """Two files crash a child only together, as if they took more memory than there is.

    The error lists both.
    """
    path_tasks = [PathTask(f"/t/{number}", (str(tmp_path / str(number)),)) for number in range(2)]
    with pytest.raises(MetastoreError, match=r"\b2 .*signal 6\b.*/t/0.*/t/1") as error_info:
        list(stream_parallel(with_arguments(tasks.crash_together), path_tasks, 1, 2))
    assert not isinstance(error_info.value, FatalFileError)


@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (1, 4), (2, 4)])
def test_children_wait_for_a_caller_that_reads_slowly(processes: int, threads: int, tmp_path: Path) -> None:
    """Each thread of a child is at most a few items ahead of the caller, so memory is bounded."""
    blobs = with_arguments(tasks.endless_blobs)
    path_tasks = [PathTask(f"/t/{number}", (str(tmp_path / str(number)),)) for number in range(8)]
    items = stream_parallel(blobs, path_tasks, processes, threads)
    first_items = [next(items) for _ in range(3)]
    time.sleep(1)
    yielded_bytes = sum(path.stat().st_size for path in tmp_path.iterdir())
    items.close()  # type: ignore[attr-defined]
    assert len(first_items) <= yielded_bytes <= len(first_items) + processes * (threads + 5)


def test_closing_a_stream_ends_its_children(no_idle_children: None, tmp_path: Path) -> None:
    """Two children yield without end.

    Closing the stream ends both.
    """
    endless = with_arguments(tasks.endless)
    path_tasks = [PathTask(f"/t/{number}", (str(tmp_path / str(number)),)) for number in range(4)]
    items = stream_parallel(endless, path_tasks, 2)
    assert [next(items) for _ in range(3)]
    wait_until(lambda: len(child_process._running) == 2)  # On a busy machine, one of them starts late.
    children = [child._process.pid for child in child_process._running]
    items.close()  # type: ignore[attr-defined]
    wait_until(lambda: not any(map(is_running, children)))


def test_closing_a_stream_ends_tasks_that_yield_nothing(no_idle_children: None, tmp_path: Path) -> None:
    """A stream is closed while its tasks yield nothing.

    Then no other task starts, and no dead child is reused.
    """
    silent = with_arguments(tasks.mark_and_wait)
    items = stream_parallel(silent, [PathTask(f"/t/{number}", (str(tmp_path), number)) for number in range(40)], 2)
    assert next(items) == 0
    children = [child._process.pid for child in child_process._running]
    items.close()  # type: ignore[attr-defined]
    wait_until(lambda: not any(map(is_running, children)))
    begun_count = len(list(tmp_path.iterdir()))
    assert begun_count < 40
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) == begun_count
    assert not child_process._idle
    assert list(stream_parallel(count_to, [PathTask("/t/0", (2,))], 2)) == [0, 1]
