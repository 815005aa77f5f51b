"""`InProcessRunner` runs tasks in this process, and `SizedRunner` runs large batches on Spark."""

from __future__ import annotations

import threading

import pytest

from metastore_assets.spark import runner as spark_runner
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.tasks.runner import InProcessRunner


def invert(number: int) -> float:
    return 1 / number


@pytest.mark.parametrize("threads", [1, 3])
def test_results_and_errors_have_the_order_of_the_tasks(threads: int) -> None:
    runner = InProcessRunner(threads)
    assert runner.parallelism == threads
    assert runner.map(invert, [1, 2, 4]) == [1, 0.5, 0.25]
    first, error, last = runner.outcomes(invert, [1, 0, 2])
    assert (first, type(error), last) == (1, ZeroDivisionError, 0.5)
    with pytest.raises(ZeroDivisionError):
        runner.map(invert, [1, 0, 2])


def test_threads_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2, timeout=60)
    assert InProcessRunner(2).map(lambda _: barrier.wait() in (0, 1), [1, 2]) == [True, True]


def test_large_input_needs_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise LookupError("Spark")

    monkeypatch.setattr(spark_runner, "SPARK_BYTES", 5)
    runner = SizedRunner(start)  # type: ignore[arg-type]
    assert runner.map(abs, [-1, -2], paths=["a", "b"], costs=[2, 2]) == [1, 2]
    with pytest.raises(LookupError):
        runner.map(abs, [-1, -2], paths=["a", "b"], costs=[2, 3])
