"""Calls of one function for many items on threads, which mostly wait for a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from metastore_assets.storage.io_counters import IoCountingThreadPool

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 32
_MAX_SHARED_THREADS = 256
"""Maximum number of threads that all calls of `parallel_map` share."""
_INTERRUPTIBLE_THREADS = 16
_WAIT_SECONDS = 0.2
_pool = IoCountingThreadPool(_MAX_SHARED_THREADS, "parallel_map")


def _replace_pool() -> None:
    """Replace the thread pool in a forked process, because a fork does not inherit threads."""
    global _pool
    _pool = IoCountingThreadPool(_MAX_SHARED_THREADS, "parallel_map")


os.register_at_fork(after_in_child=_replace_pool)


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = _THREADS, *, is_parallel: bool = True
) -> list[Result]:
    """Return `[function(item) for item in items]`, computed on several threads.

    All callers of `parallel_map` share the threads. The caller's thread also calls the function. So the function may
    call `parallel_map`, too, even if no shared thread is free.

    The reads and writes of the function are counted in the `count_io` block of the caller. If a call of the function
    fails, no more calls start. When all started calls have ended, the error of the first failed item is raised.

    Args:
        function: The function.
        items: The items.
        threads: The maximum number of threads.
        is_parallel: Whether to use threads. Pass False where they do not help, as for small local files.
    """
    arguments = list(items)
    if not is_parallel or threads == 1 or len(arguments) < 2:
        return [function(item) for item in arguments]
    calls, futures = _Calls(function, arguments), list[Future[None]]()
    try:
        for _ in range(min(threads, len(arguments)) - 1):
            futures.append(_pool.submit(calls.work))
        calls.work()
    finally:
        calls.stop()
        for future in futures:
            # A helper that has not started is not needed: no call is left. So nested calls wait only for running ones.
            if not future.cancel():
                wait([future])
    return calls.results()


class _Calls(Generic[Item, Result]):
    """Calls of one function for several items, which threads take in turn."""

    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._function = function
        self._items = items
        self._numbers = iter(range(len(items)))  # `next` is atomic
        self._results: dict[int, Result] = {}
        self._errors: dict[int, BaseException] = {}

    def work(self) -> None:
        """Call the function for the next item until no item is left.

        After an error, no call starts.
        """
        while (number := next(self._numbers, None)) is not None:
            try:
                self._results[number] = self._function(self._items[number])
            except BaseException as error:  # noqa: BLE001 (`results` raises it in the thread of the caller)
                self._errors[number] = error
                self.stop()

    def stop(self) -> None:
        """Start no more calls."""
        self._numbers = iter(range(0))

    def results(self) -> list[Result]:
        """Return the results in the order of the items, or raise the error of the first failed item."""
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[number] for number in range(len(self._items))]


def interruptible_map(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `[function(item) for item in items]`, computed on daemon threads, for commands.

    An interrupted command ends immediately. The threads of `parallel_map` would keep it alive until the store responds.
    If calls fail, the error of the first failed item is raised.
    """
    tasks = [(Future[Result](), item) for item in items]
    queue: SimpleQueue[tuple[Future[Result], Item]] = SimpleQueue()
    for task in tasks:
        queue.put(task)

    def work() -> None:
        """Call the function for items of the queue until it is empty."""
        while True:
            try:
                future, item = queue.get_nowait()
            except Empty:
                return
            try:
                future.set_result(function(item))
            except BaseException as error:  # noqa: BLE001 (the caller raises it again; a panic of Rust is no Exception)
                future.set_exception(error)

    for _ in range(min(_INTERRUPTIBLE_THREADS, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    return [_wait_for(future) for future, _ in tasks]


def _wait_for(future: Future[Result]) -> Result:
    # An endless wait might not notice a signal; see `install_signal_handlers`.
    while not future.done():
        wait([future], _WAIT_SECONDS)
    return future.result()
