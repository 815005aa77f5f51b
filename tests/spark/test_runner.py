"""Spark runs each task once, with the same errors as in this process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from collections import Counter
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PythonException

from metastore_assets.errors import FragmentError, WorkerEndedError
from metastore_assets.spark.runner import SparkRunner, balance_bins, collect_results
from tests.spark.remote_tasks import double_or_fail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@given(st.lists(st.floats(0, 1e9), max_size=60), st.integers(1, 9))
def test_bins_hold_every_task_once_and_are_balanced(weights: list[float], count: int) -> None:
    bins = balance_bins(weights, count)
    assert sorted(index for group in bins for index in group) == list(range(len(weights)))
    assert len(bins) <= count
    totals = [sum(weights[index] for index in group) for group in bins]
    # Longest task first: no bin exceeds the mean by more than the largest task.
    assert all(total <= sum(weights) / max(1, len(bins)) + max(weights) * 1.000001 for total in totals)


@pytest.mark.spark
def test_every_task_runs_once(spark: SparkSession) -> None:
    numbers = [number for number in range(100) if number != 13]
    assert SparkRunner(lambda: spark).map(double_or_fail, numbers) == [2 * number for number in numbers]
    assert SparkRunner(lambda: spark).map(double_or_fail, []) == []


@pytest.mark.spark
def test_an_error_arrives_as_it_was_raised(spark: SparkSession) -> None:
    with pytest.raises(FragmentError, match="13 brings bad luck") as error_info:
        SparkRunner(lambda: spark).map(double_or_fail, range(20))
    assert (error_info.value.path, error_info.value.missing) == ("/lake/13", True)


class Circle:
    """An object in a reference cycle, which only the garbage collector frees."""

    left: ClassVar[list[weakref.ref[Circle]]] = []

    def __init__(self) -> None:
        self.itself = self


def leave_garbage(number: int) -> tuple[int, int, int]:
    """Leave a reference cycle, and describe what earlier tasks of this process left.

    Returns:
        The process id, the number of objects that the garbage collector walks, and how many cycles of earlier tasks are
        still in memory.
    """
    import_module("metastore_assets.pipeline.refresh")  # as most tasks do
    initial_count = len(gc.get_objects())
    remaining = sum(circle() is not None for circle in Circle.left)
    Circle.left.append(weakref.ref(Circle()))
    return os.getpid(), initial_count, remaining


@pytest.mark.spark
def test_garbage_collection_between_tasks_skips_modules(spark: SparkSession) -> None:
    """The cost of PySpark's collection after a task does not depend on imported modules.

    It depends on what tasks leave. Cycles of earlier tasks are freed. From the third task of a worker on, the collector
    walks fewer than 50,000 objects.
    """
    answer = [SparkRunner(lambda: spark).map(leave_garbage, [number])[0] for number in range(8)]
    assert all(remaining == 0 for _, _, remaining in answer)
    assert max(Counter(process for process, _, _ in answer).values()) > 2
    for _, group in groupby(sorted(answer, key=lambda one: one[0]), key=lambda one: one[0]):
        _, *later = [walked_count for _, walked_count, _ in group]
        assert all(walked_count < 50_000 for walked_count in later[1:])


def end_worker(how: str) -> str:
    if how == "kill":
        signal.raise_signal(signal.SIGKILL)
    if how == "abort":
        os.abort()
    raise {"bug": KeyError, "memory": MemoryError}[how](how)


@pytest.mark.spark
@pytest.mark.parametrize("how", ["kill", "abort"])
def test_a_terminated_worker_is_distinguished_from_a_failed_task(spark: SparkSession, how: str) -> None:
    with pytest.raises(WorkerEndedError):
        SparkRunner(lambda: spark).map(end_worker, [how])


_KILL_JAVA = """
import os, signal, sys
from pathlib import Path
from metastore_assets.errors import MetastoreError
from metastore_assets.spark.runner import SparkRunner
from metastore_assets.spark.session import get_spark_session

def kill_java(number):
    daemon_status = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(daemon_status.rpartition(")")[2].split()[1]), signal.SIGKILL)

spark = get_spark_session()
for function in (kill_java, abs):
    try:
        SparkRunner(lambda: spark).map(function, [1])
    except MetastoreError as error:
        print(type(error).__name__, error)
os._exit(0)
"""
"""A program whose first Spark job kills the Java process. It prints the errors of this job and of the next one."""


@pytest.mark.spark
def test_an_ended_java_process_is_reported_by_this_job_and_the_next() -> None:
    program = subprocess.run([sys.executable, "-c", _KILL_JAVA], capture_output=True, text=True, timeout=300)
    assert program.returncode == 0, program.stderr
    first, second = program.stdout.splitlines()
    assert first == second
    assert first.startswith("MetastoreError Spark's Java process ended")


@pytest.mark.spark
@pytest.mark.parametrize("how", ["bug", "memory"])
def test_a_failed_task_is_not_reported_as_a_terminated_worker(spark: SparkSession, how: str) -> None:
    """If a task raises KeyError or MemoryError, `map` raises Spark's PythonException.

    The error is not WorkerEndedError, which is raised if the process of a worker ends.
    """
    with pytest.raises(PythonException, match=f"Error: '?{how}\\b"):
        SparkRunner(lambda: spark).map(end_worker, [how])


def test_an_interrupted_worker_is_not_the_fault_of_its_task() -> None:
    """Spark's error is raised unchanged if a worker ended because of Ctrl-C.

    It is not reported as a crash. Ctrl-C also reaches the workers, so the waiting process may see that a worker ended
    before it is interrupted itself.
    """

    class Interrupted:
        sparkSession = None

        def toArrow(self) -> None:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise RuntimeError("Python worker exited unexpectedly (crashed)")  # noqa: B904

    with pytest.raises(RuntimeError):
        collect_results(cast("DataFrame", Interrupted()))
