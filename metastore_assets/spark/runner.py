"""Run functions of tasks on Spark: one Python task per bin of work, results back as values.

A frame of tasks drives `mapInArrow`; no row of data crosses from a JVM to Python. Needs no other package on the
workers than this one.
"""

from __future__ import annotations

import gc
import heapq
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from metastore_assets.errors import MetastoreError, WorkerEndedError
from metastore_assets.spark.connect import count_remote_slots, interrupting_jobs, is_remote
from metastore_assets.spark.pyspark_compat import collect_blobs
from metastore_assets.storage.io_counters import IoCounter, IoCounts, add_io_counts, count_io, is_counting_io
from metastore_assets.storage.process_memory import run_with_memory_limit
from metastore_assets.tasks.child_program import portable_error
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, catch_error, limit_arrow_threads, raise_first_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class _Raised:
    error: MetastoreError


@dataclass(frozen=True)
class _Counted:
    traffic: IoCounts


SPARK_BYTES = 32 << 20
"""Bytes to read from which on a `SizedRunner` uses Spark."""
_WALKED = 20_000
"""Objects that a worker may have PySpark walk after every task: the modules of one task alone are over 100,000."""
_WORKER_ENDED = "Python worker exited unexpectedly"
_BINS_PER_SLOT = 4
"""Bins of work per parallel slot: enough to even out tasks of unknown length, few enough to launch at once."""


def parallelism(spark: SparkSession) -> int:
    """Number of tasks that the cluster runs at once, as far as Spark tells; at least 1."""
    return count_remote_slots(spark) if is_remote(spark) else max(1, spark.sparkContext.defaultParallelism)


class SparkRunner(TaskRunner):
    """Runs tasks on Spark, classic or Connect: one job per call.

    A file that crashes its Python worker fails the job, and Spark does not say which file it was. The runner then runs
    all tasks again, each in a child process of a worker, and isolates later tasks from the start.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` returns the session, and starts it at the first call."""
        self._spark = spark
        self._isolates = False

    @property
    def parallelism(self) -> int:
        return parallelism(self._spark())

    def outcomes(
        self,
        function: Callable[[T], Any],
        tasks: Sequence[T],
        *,
        paths: Sequence[str] | None = None,
        costs: Sequence[float] | None = None,
    ) -> list[Any]:
        return self._run(partial(_catch_portable_error, function), function, tasks, paths, costs)

    def map(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        *,
        paths: Sequence[str] | None = None,
        costs: Sequence[float] | None = None,
    ) -> list[R]:
        """Return `[function(task) for task in tasks]`; arguments as of `outcomes`.

        Raises:
            MetastoreError: A task raised it, there and here the same.
            PythonException: A task raised anything else, which ends the job at once.
            WorkerEndedError: A worker crashed, and there are no `paths` to look for the culprit.
        """
        return raise_first_error(self._run(function, function, tasks, paths, costs))

    def _run(
        self,
        in_worker: Callable[[T], Any],
        in_child: Callable[[T], Any],
        tasks: Sequence[T],
        paths: Sequence[str] | None,
        costs: Sequence[float] | None,
    ) -> list[Any]:
        """Run one function in Spark's workers, or the other in their child processes once a worker has crashed."""
        if not tasks:
            return []
        spark = self._spark()
        if paths is None:
            return _run_job(spark, in_worker, tasks, costs)
        if not self._isolates:
            try:
                return _run_job(spark, partial(run_with_memory_limit, in_worker), tasks, costs)
            except WorkerEndedError:
                self._isolates = True
        return _run_job(spark, partial(_run_isolated, in_child), list(zip(tasks, paths, strict=True)), costs)


class SizedRunner(TaskRunner):
    """Runs tasks that read files: in a child process, or on Spark when they read 32 MiB or more together.

    Costs are bytes to read. A job on Spark takes tenths of a second, in which a child reads less than that.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` returns the session, and starts it at the first call."""
        self._small = IsolatedRunner(threads=TEXT_THREADS)
        self._large = SparkRunner(spark)

    @property
    def parallelism(self) -> int:
        return self._small.parallelism

    def outcomes(
        self,
        function: Callable[[T], Any],
        tasks: Sequence[T],
        *,
        paths: Sequence[str] | None = None,
        costs: Sequence[float] | None = None,
    ) -> list[Any]:
        runner = self._small if sum(costs or ()) < SPARK_BYTES else self._large
        return runner.outcomes(function, tasks, paths=paths, costs=costs)


def _catch_portable_error(function: Callable[[T], R], task: T) -> R | Exception:
    """Return `function(task)`, or the exception that it raised in a form that survives pickling."""
    outcome = catch_error(function, task)
    return portable_error(outcome) if isinstance(outcome, Exception) else outcome


def _run_isolated(function: Callable[[T], Any], task: tuple[T, str]) -> Any:
    """Return the outcome of a task that reads the file at a path, run in a child process of this worker."""
    (outcome,) = IsolatedRunner().outcomes(function, [task[0]], paths=[task[1]])
    return outcome


def _run_job(
    spark: SparkSession, function: Callable[[T], R], tasks: Sequence[T], costs: Sequence[float] | None
) -> list[R]:
    """Return `[function(task) for task in tasks]`, computed in one Spark job. There is at least one task."""
    weights = [cost + 1 for cost in costs] if costs is not None else [1.0] * len(tasks)
    bins = balanced_bins(weights, parallelism(spark) * _BINS_PER_SLOT)
    packed = [pack([(index, tasks[index]) for index in group]) for group in bins]
    frame = spark.range(0, len(packed), 1, len(packed)).mapInArrow(
        partial(_run_bins, pack(function), packed, is_counting_io()), "result binary"
    )
    numbered: dict[int, R] = dict(results(collected(frame)))
    return [numbered[index] for index in range(len(tasks))]


def _run_bins(
    function: bytes, packed: Sequence[bytes], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    prepare_task()
    unpacked = pickle.loads(function)
    with counting(counted) as count:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                for number, task in pickle.loads(packed[index]):
                    yield result_batch(_packed_result(unpacked, number, task))
        if counted:
            yield result_batch(count())


@contextmanager
def counting(counted: bool) -> Iterator[Callable[[], bytes]]:
    """In a task: count what the block reads and writes, if that is wanted. What is given makes it a result, which
    `results` adds to the driver's count, and leaves out."""
    with count_io() if counted else nullcontext(IoCounter()) as meter:
        yield lambda: pack(_Counted(meter.counts()))


def result_batch(blob: bytes) -> pa.RecordBatch:
    """One packed result as a row of the column `result`."""
    return pa.record_batch([pa.array([blob], pa.binary())], ["result"])


def pack(value: object) -> bytes:
    """A task, a function or a result as bytes, for `pickle.loads` in another process.

    Functions may have been defined where only the driver knows them. Arrow scalars, which functions may hold, would be
    pickled as Python values, which end at microseconds and at the year 9999: here they travel as Arrow.
    """
    sink = io.BytesIO()
    _pickler()(sink, pickle.HIGHEST_PROTOCOL).dump(value)
    return sink.getvalue()


@cache
def _pickler() -> Callable[..., pickle.Pickler]:
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, pa.Scalar):
                return _scalar_of, (pa.repeat(obj, 1),)
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    return Pickler


def _scalar_of(values: pa.Array) -> pa.Scalar:
    return values[0]


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a frame. Raises WorkerEndedError when that, and no exception of a task, made its job fail."""
    try:
        with interrupting_jobs(frame.sparkSession):
            return collect_blobs(frame)
    except Exception as error:
        # Spark has no class for it, and wraps it in those of Py4J or of Connect.
        if _WORKER_ENDED not in str(error) or _is_interrupt(error):
            raise
        raise WorkerEndedError(
            "a Python worker of Spark ended at its work: it crashed, or was killed for want of memory; give the "
            "workers more memory, or run fewer tasks at a time"
        ) from error


def _is_interrupt(error: Exception) -> bool:
    """Whether it is but what Ctrl-C or the like led to: workers end of that too."""
    seen: BaseException | None = error
    while isinstance(seen, Exception):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def results(table: pa.Table) -> list[Any]:
    """The values that tasks sent back in the column `result`. Raises what the first failed one raised."""
    sent = [pickle.loads(blob) for blob in table.column("result").to_pylist()]
    for value in sent:
        if isinstance(value, _Counted):
            add_io_counts(value.traffic)
    for value in sent:
        if isinstance(value, _Raised):
            raise value.error
    return [value for value in sent if not isinstance(value, _Counted)]


def failure(error: MetastoreError) -> bytes:
    """A task's error as a result, for `results` to raise."""
    return pack(_Raised(error))


def _packed_result(function: Callable[[T], R], number: int, task: T) -> bytes:
    try:
        return pack((number, function(task)))
    except MetastoreError as error:
        return failure(error)


def balanced_bins(weights: Sequence[float], count: int) -> list[list[int]]:
    """Indices of `weights` in at most `count` bins of about equal total, heaviest bin first (longest task first)."""
    heap = [(0.0, index) for index in range(min(count, len(weights)))]
    groups: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):
        total, bin_index = heapq.heappop(heap)
        groups[bin_index].append(index)
        heapq.heappush(heap, (total + weights[index], bin_index))
    return sorted(groups, key=lambda group: -sum(weights[i] for i in group))


def prepare_task() -> None:
    """What the functions that Spark runs do first, once per task."""
    limit_arrow_threads()
    _set_aside()


def _set_aside() -> None:
    """Take what a Spark worker has imported out of the collector's sight.

    PySpark collects garbage after each task, which for the modules alone is 60 ms of CPU, thirty times what a small
    task takes itself. What is there when the next begins has outlived that, and stays; what tasks leave is collected.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and len(gc.get_objects()) > _WALKED:
        gc.freeze()
