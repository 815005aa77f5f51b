"""Progress of long work: a line with a spinner on a terminal, or else a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

_SECONDS = 10.0


@contextmanager
def working(console: Console, text: str, measure: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show progress during the block.

    Args:
        console: Where it is shown.
        text: The name of the work.
        measure: Returns more text for each progress line.
    """
    started = time.monotonic()
    done = threading.Event()
    status = console.status(f"{text} …") if sys.stdout.isatty() else None

    def show() -> None:
        while not done.wait(0.5 if status else _SECONDS):
            line = f"{text} … {measure()} {time.monotonic() - started:.0f} s"
            if status:
                status.update(line)
            else:
                console.print(f"  {line}")

    thread = threading.Thread(target=show, daemon=True)
    if status:
        status.start()
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if status:
            status.stop()
