"""Run many requests to a store at once so that Ctrl-C can end them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_SECONDS = 0.2


def parallel_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """Return `[function(item) for item in items]`, computed on several threads. Raises the error of the first failed
    item.

    The threads are daemons: pool threads would keep an interrupted command alive until the store responds.
    """
    tasks = [(Future[R](), item) for item in items]
    waiting: SimpleQueue[tuple[Future[R], T]] = SimpleQueue()
    for task in tasks:
        waiting.put(task)

    def work() -> None:
        while True:
            try:
                future, item = waiting.get_nowait()
            except Empty:
                return
            try:
                future.set_result(function(item))
            except Exception as error:  # noqa: BLE001 (raised again where the result is asked for)
                future.set_exception(error)

    for _ in range(min(threads, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    return [_result(future) for future, _ in tasks]


def _result(future: Future[R]) -> R:
    # An endless wait might not notice a signal; see `install_signal_handlers`.
    while not future.done():
        wait([future], _SECONDS)
    return future.result()
