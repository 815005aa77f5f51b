"""Says that long work goes on: a line with a spinner on a terminal, a line every few seconds elsewhere."""

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
    """Show `text`, how long it has taken, and what `measure` says, inside the block."""
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
