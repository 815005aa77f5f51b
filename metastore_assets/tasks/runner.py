"""The interface of task runners, and the runner that works in the calling process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from metastore_assets.storage.parallel import parallel_map

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class TaskBatch(Generic[T]):
    """The tasks of one call of a runner.

    `paths` and `costs` have one item for each task, or are None.
    """

    tasks: Sequence[T]
    paths: Sequence[str] | None = None
    costs: Sequence[float] | None = None


class TaskRunner(ABC):
    """A runner, which calls a function for each of many tasks, in this process or in others.

    A task may run twice, even at the same time, so files that it writes need unique names. Functions, tasks and results
    are pickled if they move between processes.

    A subclass implements `_run`, and `_run_until_error` if it can stop at the first error.
    """

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """Number of tasks that run at the same time; at least 1."""

    def outcomes(
        self,
        function: Callable[[T], Any],
        tasks: Sequence[T],
        *,
        paths: Sequence[str] | None = None,
        costs: Sequence[float] | None = None,
    ) -> list[Any]:
        """Run `function(task)` for each task.

        Return an outcome for each: its result, or the exception that it raised.

        Args:
            function: Called with a task as its only argument.
            tasks: Picklable values.
            paths: The path of the file that each task reads. The outcome of a task whose file crashes a process is a
                FatalFileError with the path. If `paths` is None, a crash may raise WorkerEndedError instead.
            costs: Relative costs of the tasks, such as bytes to read; equal costs by default.

        Returns:
            One outcome per task, in the order of the tasks.
        """
        return self._run(function, TaskBatch(tasks, paths, costs))

    def map(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        *,
        paths: Sequence[str] | None = None,
        costs: Sequence[float] | None = None,
    ) -> list[R]:
        """Return `[function(task) for task in tasks]`.

        The arguments are those of `outcomes`.

        Raises:
            Exception: The exception of one of the failed tasks, if any failed.
        """
        return raise_first_error(self._run_until_error(function, TaskBatch(tasks, paths, costs)))

    @abstractmethod
    def _run(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        """Return the outcomes of a batch: for each task its result, or the exception that it raised."""

    def _run_until_error(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        """Return the outcomes of a batch, as `_run` does.

        If a task fails, a subclass may instead raise its exception immediately, without running the other tasks.
        """
        return self._run(function, batch)


class InProcessRunner(TaskRunner):
    """A runner of tasks in the calling process, on one or more threads.

    It cannot isolate crashes.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    @property
    def parallelism(self) -> int:
        return self._threads

    def _run(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        return self._run_until_error(partial(catch_error, function), batch)

    def _run_until_error(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        return parallel_map(function, batch.tasks, self._threads)


def catch_error(function: Callable[[T], R], task: T) -> R | Exception:
    """Return `function(task)`, or the exception that it raised."""
    try:
        return function(task)
    except Exception as error:  # noqa: BLE001 (the caller decides what an error means)
        return error


def raise_first_error(outcomes: Iterable[Any]) -> list[Any]:
    """Return the outcomes as a list.

    If any of them is an exception, raise the first one.
    """
    results = list(outcomes)
    for outcome in results:
        if isinstance(outcome, Exception):
            raise outcome
    return results


def with_arguments(function: Callable[..., R]) -> Callable[[tuple[Any, ...]], R]:
    """Return a picklable function that takes a tuple, and calls `function` with the items of the tuple."""
    return partial(_call_with_arguments, function)


def _call_with_arguments(function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    return function(*arguments)


def limit_arrow_threads() -> None:
    """Limit Arrow to one thread in this process.

    Several tasks run in parallel instead.
    """
    if pa.cpu_count() != 1:
        pa.set_cpu_count(1)
