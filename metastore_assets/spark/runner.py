"""A runner of tasks on Spark, and helpers for other Spark jobs.

A job applies `mapInArrow` to a frame of bin indices. A bin is a group of tasks that becomes one task of Spark. Tasks
and results are pickles, which are opaque to Spark. Workers need no package besides this one. A slot is a place for one
running task, usually a core.
"""

from __future__ import annotations

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
from metastore_assets.startup import freeze_objects
from metastore_assets.storage.io_counters import IoCounter, IoCounts, add_io_counts, count_io, is_counting_io
from metastore_assets.storage.process_memory import run_with_memory_limit
from metastore_assets.tasks.child_program import portable_error
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskBatch, TaskRunner, catch_error, limit_arrow_threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class _TaskError:
    """The error of a task, sent instead of its result."""

    error: MetastoreError


@dataclass(frozen=True)
class _TaskIoCounts:
    """The numbers of files and bytes that a Spark task read and wrote.

    The task sends this object to the driver among its results. `unpack_results` does not return it.
    """

    counts: IoCounts


SPARK_BYTES = 32 << 20
"""A `SizedRunner` uses Spark if its tasks read at least this many bytes together."""
_WORKER_ENDED = "Python worker exited unexpectedly"
_BINS_PER_SLOT = 4
"""Number of bins per slot. A bin is a group of our tasks that becomes one task of Spark. Several per slot balance tasks
of unknown duration; more would take longer to start."""


def count_slots(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at the same time, according to Spark; at least 1."""
    return count_remote_slots(spark) if is_remote(spark) else max(1, spark.sparkContext.defaultParallelism)


class SparkRunner(TaskRunner):
    """A runner of tasks on Spark, classic or Connect.

    Each call is one job.

    A file may crash a Python worker, so that the job fails. The runner then runs all tasks of the job again, each in a
    child process of a worker. All later tasks that read files run in child processes, too.

    `map` raises a task's MetastoreError unchanged. Any other error of a task in a worker ends the job as a
    PythonException of Spark. If the task runs in a child process, `map` raises any error of the task unchanged.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """Create a runner.

        Args:
            spark: Returns the session. It is called when the first task runs, and may start the session.
        """
        self._spark = spark
        self._isolates = False

    @property
    def parallelism(self) -> int:
        return count_slots(self._spark())

    def _run(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        return self._run_jobs(partial(_catch_portable_error, function), function, batch)

    def _run_until_error(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        return self._run_jobs(function, function, batch)

    def _run_jobs(self, in_worker: Callable[[T], Any], in_child: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        """Run a batch.

        Return the result of the called function for each task.

        If a Python worker crashes, and the batch names the files of its tasks in `paths`, the batch runs again: each
        task in a child process of a worker. All later batches with `paths` run in child processes from the start. If a
        task raises an exception in a child process, its result is the exception.

        Args:
            in_worker: The function to call for each task in a Python worker.
            in_child: The function to call for each task in a child process.
            batch: The tasks.

        Raises:
            WorkerEndedError: A Python worker crashes, and the batch has no `paths`, or its tasks already run in child
                processes.
        """
        tasks, paths, costs = batch.tasks, batch.paths, batch.costs
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
    """A runner of tasks that read files: on Spark for large batches, otherwise in a child process.

    The cost of a task is the number of bytes that it reads. A batch is large if its costs add up to 32 MiB or more. A
    batch without costs runs in a child process.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """Create a runner.

        Args:
            spark: Returns the session. It is not called before Spark is needed, and may start the session.
        """
        self._small = IsolatedRunner(threads=TEXT_THREADS)
        self._large = SparkRunner(spark)

    @property
    def parallelism(self) -> int:
        return self._small.parallelism

    def _run(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        # Even a small Spark job takes some tenths of a second, in which a child process can read 32 MiB.
        runner = self._small if sum(batch.costs or ()) < SPARK_BYTES else self._large
        return runner.outcomes(function, batch.tasks, paths=batch.paths, costs=batch.costs)


def _catch_portable_error(function: Callable[[T], R], task: T) -> R | Exception:
    """Return `function(task)`.

    If it raises an exception, return that in a form that survives pickling.
    """
    outcome = catch_error(function, task)
    return portable_error(outcome) if isinstance(outcome, Exception) else outcome


def _run_isolated(function: Callable[[T], Any], task: tuple[T, str]) -> Any:
    """Run a task in a child process of this worker.

    Return its result, or the exception that it raised.

    Args:
        function: Called with the first item of `task`.
        task: (argument of `function`, path of the file that the task reads). If the child crashes, the result is a
            FatalFileError with this path.
    """
    (outcome,) = IsolatedRunner().outcomes(function, [task[0]], paths=[task[1]])
    return outcome


def _run_job(
    spark: SparkSession, function: Callable[[T], R], tasks: Sequence[T], costs: Sequence[float] | None
) -> list[R]:
    """Return `[function(task) for task in tasks]`, computed in one Spark job.

    Args:
        spark: The session.
        function: The function, which runs in Python workers.
        tasks: The tasks. The caller passes at least one.
        costs: The relative cost of each task; None for equal costs.
    """
    weights = [cost + 1 for cost in costs] if costs is not None else [1.0] * len(tasks)
    with reporting_ended_java():
        bins = balance_bins(weights, count_slots(spark) * _BINS_PER_SLOT)
        packed_tasks = [pack([(index, tasks[index]) for index in group]) for group in bins]
        frame = spark.range(0, len(packed_tasks), 1, len(packed_tasks)).mapInArrow(
            partial(_run_bins, pack(function), packed_tasks, is_counting_io()), "result binary"
        )
    results_by_index: dict[int, R] = dict(unpack_results(collect_results(frame)))
    return [results_by_index[index] for index in range(len(tasks))]


def _run_bins(
    packed_function: bytes, packed_bins: Sequence[bytes], counts_io: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the tasks of some bins (groups of tasks) in a Python worker.

    Yield a batch of one row for each task.

    The row has a pickled value: the pair (index of the task, result), or the MetastoreError that the task raised. If
    `counts_io` is true, a batch follows with the total of files and bytes that these tasks read and wrote.

    Args:
        packed_function: The pickled function.
        packed_bins: For each bin, the pickled pairs (index of a task, task).
        counts_io: Whether to count the files and bytes that the tasks read and write.
        batches: Batches with the indices in `packed_bins` of the bins to run, in the column `id`.
    """
    prepare_task()
    function = pickle.loads(packed_function)
    with packing_io_counts(counts_io) as pack_counts:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                for number, task in pickle.loads(packed_bins[index]):
                    yield result_batch(_pack_result(function, number, task))
        if counts_io:
            yield result_batch(pack_counts())


@contextmanager
def packing_io_counts(enabled: bool) -> Iterator[Callable[[], bytes]]:
    """Count the files and bytes that the block reads and writes in a Python worker, if `enabled` is true.

    Yields:
        A function that returns the counts so far as a packed result. In the driver, `unpack_results` adds them.
    """
    with count_io() if enabled else nullcontext(IoCounter()) as counter:
        yield lambda: pack(_TaskIoCounts(counter.counts()))


def result_batch(blob: bytes) -> pa.RecordBatch:
    """Return a batch with one row: a packed result in the column `result`."""
    return pa.record_batch([pa.array([blob], pa.binary())], ["result"])


def pack(value: object) -> bytes:
    """Pickle a task, a function or a result for `pickle.loads` in another process.

    Lambdas, nested functions and functions of the main program are pickled with their code. The other process must be
    able to import all other functions.
    """
    sink = io.BytesIO()
    _pickler()(sink, pickle.HIGHEST_PROTOCOL).dump(value)
    return sink.getvalue()


@cache
def _pickler() -> Callable[..., pickle.Pickler]:
    """Return a pickler class that pickles any function, and Arrow scalars as Arrow arrays.

    The class is derived from cloudpickle's pickler. A function that cannot be imported is pickled with its code.
    """
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, pa.Scalar):
                return _first_scalar, (pa.repeat(obj, 1),)
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    return Pickler


def _first_scalar(values: pa.Array) -> pa.Scalar:
    return values[0]


def collect_results(frame: DataFrame) -> pa.Table:
    """Collect the rows of a frame that has one binary column.

    Raises:
        WorkerEndedError: A Python worker crashed.
        MetastoreError: The Java process of a classic session ended, or a Spark Connect server did.
    """
    try:
        with reporting_ended_java(), interrupting_jobs(frame.sparkSession):
            return collect_blobs(frame)
    except Exception as error:
        # Spark has no exception class for a crash, and wraps it in classes of Py4J or Connect.
        if _WORKER_ENDED not in str(error) or _is_interrupt(error):
            raise
        raise WorkerEndedError(
            "a Python worker of Spark ended during a task: it crashed, or was killed for lack of memory; give the "
            "workers more memory, or run fewer tasks at a time"
        ) from error


@contextmanager
def reporting_ended_java() -> Iterator[None]:
    """Raise MetastoreError if the block fails because the Java process of a classic session has ended."""
    try:
        yield
    except Exception as error:
        if not _is_java_lost(error) or _is_interrupt(error):
            raise
        raise MetastoreError(
            "Spark's Java process ended: it crashed, or was killed, for example for lack of memory; published versions "
            "and finished profiles are stored: lower `spark.driver.memory` or free memory, and try again"
        ) from error


def _is_java_lost(error: Exception) -> bool:
    """Return whether an error means that Spark's Java process does not answer any more."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JJavaError):
        return False
    # Py4J has one class for a lost connection and for a wrong call. Only the latter has a trace.
    return isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and "Trace:" not in str(error))


def _is_interrupt(error: Exception) -> bool:
    """Return whether Ctrl-C or a similar interrupt caused an error."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def unpack_results(table: pa.Table) -> list[Any]:
    """Return the unpickled results of tasks from the column `result`.

    Raises the error of the first failed task.

    The column can also contain `_TaskIoCounts`, the numbers of files and bytes that tasks read or wrote. They are added
    to the counts of this process, and are not returned.
    """
    values = [pickle.loads(blob) for blob in table.column("result").to_pylist()]
    for value in values:
        if isinstance(value, _TaskIoCounts):
            add_io_counts(value.counts)
    for value in values:
        if isinstance(value, _TaskError):
            raise value.error
    return [value for value in values if not isinstance(value, _TaskIoCounts)]


def pack_failure(error: MetastoreError) -> bytes:
    """Pickle the error of a task, so that `unpack_results` raises it."""
    return pack(_TaskError(error))


def _pack_result(function: Callable[[T], R], number: int, task: T) -> bytes:
    """Run a task, and return the pickled pair (`number`, result).

    If the task raises a MetastoreError, return the pickled error instead. `unpack_results` raises it again.

    Args:
        function: The function to call with the task.
        number: The index of the task in its job.
        task: The task.
    """
    try:
        return pack((number, function(task)))
    except MetastoreError as error:
        return pack_failure(error)


def balance_bins(weights: Sequence[float], count: int) -> list[list[int]]:
    """Distribute items to at most `count` bins of about equal weight.

    Args:
        weights: The weight of each item.
        count: The greatest number of bins.

    Returns:
        For each bin the indices of its items, heaviest first. The heaviest bin comes first.
    """
    heap = [(0.0, index) for index in range(min(count, len(weights)))]
    groups: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):
        total, bin_index = heapq.heappop(heap)
        groups[bin_index].append(index)
        heapq.heappush(heap, (total + weights[index], bin_index))
    return sorted(groups, key=lambda group: -sum(weights[i] for i in group))


def prepare_task() -> None:
    """Limit Arrow to one thread in a Python worker, and exclude existing objects from garbage collection.

    Each Spark task calls this first.
    """
    from pyspark import TaskContext

    limit_arrow_threads()
    if TaskContext.get() is not None:
        freeze_objects()
