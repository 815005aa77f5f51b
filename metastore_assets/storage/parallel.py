"""Calls of one function for many items on threads, which mostly wait for a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

from metastore_assets.storage.io_counters import IoCountingThreadPool

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 32
_INTERRUPTIBLE_THREADS = 16
_WAIT_SECONDS = 0.2


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = _THREADS, *, is_parallel: bool = True
) -> list[Result]:
    """Return `[function(item) for item in items]`, computed on several threads.

    The reads and writes of the calls count for the `count_io` block of the caller. If calls fail, the error of the
    first failed item is raised when all calls that have started have ended.

    Args:
        function: The function.
        items: The items.
        threads: The maximum number of threads.
        is_parallel: Whether to use threads. Pass False where they do not help, as for small local files.
    """
    arguments = list(items)
    if not is_parallel or threads == 1 or len(arguments) < 2:
        return [function(item) for item in arguments]
    if len(arguments) > threads:
        with IoCountingThreadPool(threads) as pool:
            return list(pool.map(function, arguments))
    # One call needs no thread: its start and its end would take 0.1 ms of CPU time.
    first, *others = arguments
    with IoCountingThreadPool(len(others)) as pool:
        futures = [pool.submit(function, item) for item in others]
        return [function(first), *(future.result() for future in futures)]


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
