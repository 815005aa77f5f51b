"""Where tasks run: in this process, or on Spark behind the same two methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from metastore_assets.storage.io_counters import IoCountingThreadPool

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Runs functions of picklable tasks. A task may be run twice, or twice at once: what it writes has unique names."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """`[function(task) for task in tasks]`, in that order. Raises what one of the failed ones raised."""

    def slots(self) -> int:
        """How many tasks run at a time."""


class LocalExecutor:
    """Runs tasks in this process, some at a time on threads: what takes time lets go of the interpreter's lock."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        if self._threads == 1 or len(tasks) < 2:
            return [function(task) for task in tasks]
        with IoCountingThreadPool(self._threads) as pool:
            return list(pool.map(function, tasks))

    def slots(self) -> int:
        return self._threads
