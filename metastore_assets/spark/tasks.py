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
from metastore_assets.spark.remote import is_remote, remote_parallelism, working
from metastore_assets.spark.versions import collect_blobs
from metastore_assets.storage.io_counters import IoCounter, IoCounts, add_io_counts, count_io, is_counting_io

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


_WALKED = 20_000
"""Objects that a worker may have PySpark walk after every task: the modules of one task alone are over 100,000."""
_WORKER_ENDED = "Python worker exited unexpectedly"
_BINS_PER_SLOT = 4
"""Bins of work per parallel slot: enough to even out tasks of unknown length, few enough to launch at once."""


def parallelism(spark: SparkSession) -> int:
    """Number of tasks that the cluster runs at once, as far as Spark tells; at least 1."""
    return remote_parallelism(spark) if is_remote(spark) else max(1, spark.sparkContext.defaultParallelism)


class SparkExecutor:
    """Runs tasks on Spark, in one job per call. What a task that is run twice leaves behind, no version names."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """`[function(task) for task in tasks]`, in that order. Raises what the first failed one raised."""
        numbered = run_tasks(self._spark, partial(_numbered, function), list(enumerate(tasks)))
        return [result for _, result in sorted(numbered, key=lambda item: item[0])]

    def slots(self) -> int:
        """How many tasks run at a time."""
        return parallelism(self._spark)


def _numbered(function: Callable[[T], R], task: tuple[int, T]) -> tuple[int, R]:
    return task[0], function(task[1])


def run_tasks(
    spark: SparkSession,
    function: Callable[[T], R],
    tasks: Sequence[T],
    weights: Sequence[float] | None = None,
) -> list[R]:
    """`[function(task) for task in tasks]`, computed by Spark in one job; results in no particular order.

    `weights` are relative costs. A MetastoreError of any task is raised here as it was raised there, without Spark's
    wrapping; what a function wants to survive, it returns as a result. Raises WorkerEndedError when a task ended the
    process that it ran in.
    """
    if not tasks:
        return []
    bins = balanced_bins(weights or [1.0] * len(tasks), parallelism(spark) * _BINS_PER_SLOT)
    packed = [pack([tasks[index] for index in group]) for group in bins]
    frame = spark.range(0, len(packed), 1, len(packed)).mapInArrow(
        partial(_run, pack(function), packed, is_counting_io()), "result binary"
    )
    return results(collected(frame))


def _run(
    function: bytes, packed: Sequence[bytes], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    begin_task()
    unpacked = pickle.loads(function)
    with counting(counted) as count:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                for task in pickle.loads(packed[index]):
                    yield blob_batch(_outcome(unpacked, task))
        if counted:
            yield blob_batch(count())


@contextmanager
def counting(counted: bool) -> Iterator[Callable[[], bytes]]:
    """In a task: count what the block reads and writes, if that is wanted. What is given makes it a result, which
    `results` adds to the driver's count, and leaves out."""
    with count_io() if counted else nullcontext(IoCounter()) as meter:
        yield lambda: pack(_Counted(meter.counts()))


def blob_batch(blob: bytes) -> pa.RecordBatch:
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
        with working(frame.sparkSession):
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


def _outcome(function: Callable[[T], R], task: T) -> bytes:
    try:
        return pack(function(task))
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


def begin_task() -> None:
    """What the functions that Spark runs do first, once per task."""
    limit_threads()
    _set_aside()


def _set_aside() -> None:
    """Take what a Spark worker has imported out of the collector's sight.

    PySpark collects garbage after each task, which for the modules alone is 60 ms of CPU, thirty times what a small
    task takes itself. What is there when the next begins has outlived that, and stays; what tasks leave is collected.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and len(gc.get_objects()) > _WALKED:
        gc.freeze()


def limit_threads() -> None:
    """One thread per Spark task: Spark already runs as many tasks as there are cores."""
    if pa.cpu_count() != 1:
        pa.set_cpu_count(1)
