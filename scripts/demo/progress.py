"""Progress of long work: a line with a spinner on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

_SECONDS = 10.0


@contextmanager
def show_progress(console: Console, text: str, measure: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show `text`, the result of `measure` and the elapsed seconds while the `with` block runs."""
    start_time = time.monotonic()
    end_event = threading.Event()
    status = console.status(f"{text} …") if sys.stdout.isatty() else None

    def show() -> None:
        while not end_event.wait(0.5 if status else _SECONDS):
            line = f"{text} … {measure()} {time.monotonic() - start_time:.0f} s"
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
        end_event.set()
        thread.join()
        if status:
            status.stop()
