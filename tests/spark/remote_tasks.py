"""Tasks for Spark workers.

The module imports only the standard library and errors of the package.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from metastore_assets.errors import FragmentError


def double_or_fail(number: int) -> int:
    if number == 13:
        raise FragmentError("13 brings bad luck", path="/lake/13", missing=True)
    return 2 * number


def end_worker(how: str) -> None:
    if how == "kill":
        signal.raise_signal(signal.SIGKILL)
    raise KeyError(how)


def process_of(_: int) -> int:
    return os.getpid()


def beat(task: tuple[str, float]) -> None:
    """Write the current time to a file, every 0.05 seconds for the given number of seconds.

    `task` is (path, seconds).
    """
    path, seconds = task
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        Path(path).write_text(str(time.time()))
        time.sleep(0.05)
