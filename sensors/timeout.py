"""Calls with a timeout, for sensor ticks that must end in time."""

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from metastore_assets.errors import StoreError

Result = TypeVar("Result")

_LIMIT = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
_SHARE = 2 / 3
"""The share of Dagster's tick timeout for the call; Dagster's storage needs the rest."""


def tick_timeout() -> float:
    """Return the seconds that a tick waits for a call."""
    try:
        return float(os.environ.get(_LIMIT) or 60) * _SHARE
    except ValueError:
        return 60 * _SHARE


class TimeoutRunner(Generic[Result]):
    """Runs one call at a time in a thread, and names what did not answer in time.

    A thread cannot be ended. While one is still running, no other is started, however many ticks there are.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._target = ""

    def run(self, action: Callable[[Callable[[str], None]], Result], seconds: float) -> Result:
        """Return what `action` returns, or raise what it raises.

        Args:
            action: Takes a function that it calls with the name of the object it reads next.
            seconds: The timeout.

        Raises:
            StoreError: The call did not end in time; the message names that object.
        """
        end = time.monotonic() + seconds
        if self._thread is not None:
            self._wait(self._thread, end)
        results: list[Result] = []
        failure: list[BaseException] = []

        def report_progress(target: str) -> None:
            self._target = target

        def run() -> None:
            try:
                results.append(action(report_progress))
            except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
                failure.append(error)

        self._since = time.monotonic()
        # A daemon thread does not keep the process from ending.
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._wait(self._thread, end)
        if failure:
            raise failure[0]
        return results[0]

    def _wait(self, thread: threading.Thread, end: float) -> None:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            raise StoreError(
                f"{self._target} has not answered for {time.monotonic() - self._since:.0f} seconds. Nothing changed, "
                f"and the next tick tries again. If it needs longer, raise {_LIMIT} for the daemon and the code server"
            )
        self._thread = None
