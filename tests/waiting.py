"""A wait for a condition that another process or thread makes true."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Return when a condition is true; fail if it stays false for `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition stayed false"
        time.sleep(0.005)
