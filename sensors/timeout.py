"""Calls with a timeout.

A sensor tick must end before Dagster's own timeout, which reports no reason.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from metastore_assets.errors import StoreError

Result = TypeVar("Result")

_TIMEOUT_VARIABLE = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
_SHARE = 2 / 3
"""The share of Dagster's tick timeout that a call may take. Requests to Dagster's storage need the remaining time."""


def tick_timeout() -> float:
    """Return the seconds that a tick may wait for a call: two thirds of Dagster's timeout."""
    try:
        return float(os.environ.get(_TIMEOUT_VARIABLE) or 60) * _SHARE
    except ValueError:
        return 60 * _SHARE


class TimeoutRunner(Generic[Result]):
    """A runner of one call at a time in a thread, with a timeout.

    After the timeout, `run` raises an error that names the object that did not answer.

    A thread cannot be killed. While a call still runs after its timeout, the next `run` first waits for its end. If the
    call does not end in time, `run` raises the error without starting another call.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._started_at = 0.0
        self._target = ""

    def run(self, action: Callable[[Callable[[str], None]], Result], seconds: float) -> Result:
        """Call `action` in a thread, and return its result or raise its error.

        Args:
            action: The function to call. Its argument is a function `report(name)`, which `action` must call before it
                reads an object. The name is for messages.
            seconds: The timeout.

        Raises:
            StoreError: The call did not end in time, or has not begun because an earlier call is still running. The
                message names the object that the running call last reported.
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
            except BaseException as error:  # noqa: BLE001 (raised again in the calling thread)
                failure.append(error)

        self._started_at = time.monotonic()
        # A daemon thread, because a call that never ends must not keep the process from ending.
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._wait(self._thread, end)
        if failure:
            raise failure[0]
        return results[0]

    def _wait(self, thread: threading.Thread, end: float) -> None:
        """Wait until the thread has ended, or `time.monotonic()` reaches `end`.

        Raises StoreError if it still runs.
        """
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            raise StoreError(
                f"{self._target} has not answered for {time.monotonic() - self._started_at:.0f} seconds. Nothing "
                f"changed, and the next tick tries again. If it needs longer, raise {_TIMEOUT_VARIABLE} for the daemon "
                "and the code server"
            )
        self._thread = None
