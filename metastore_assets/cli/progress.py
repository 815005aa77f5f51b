"""What is going on, on stderr, while long work runs; nothing at all when nobody is looking."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from metastore_assets.pipeline.refresh import Progress as Event

_STAGES = {
    "plan": "planning",
    "profile": "profiling",
    "reduce": "reducing",
    "publish": "publishing",
}


class Watcher(Protocol):
    """Is told how far a refresh is."""

    def __call__(self, event: Event) -> None:
        """The refresh of a table has come this far."""

    def spark_starts(self) -> None:
        """A Spark session is being started; the next event comes after it."""

    def hide(self) -> None:
        """Something is about to be printed. The next event shows again."""


class Silent:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Show nothing."""

    def spark_starts(self) -> None:
        """Show nothing."""

    def hide(self) -> None:
        """There is nothing to hide."""


class Bar:
    """One line with a spinner, what is going on, a bar, and the time it takes."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, event: Event) -> None:
        """Show the event. The bar is one that only moves to and fro until something is done."""
        unit = event.unit.removesuffix("s") if event.total == 1 else event.unit
        so_far = f"{event.done:,} of " if event.done else ""
        counted = f"{so_far}{event.total:,} {unit}" if event.total else ""
        doing = f"{event.table}: {_STAGES.get(event.stage, event.stage)}"
        self._show(doing, counted, event.done, event.total if event.done else None)

    def spark_starts(self) -> None:
        """Show that Spark starts."""
        self._show("starting Spark", "", 0, None)

    def hide(self) -> None:
        """Take the line away."""
        self._progress.stop()

    def _show(self, doing: str, counted: str, done: int, total: int | None) -> None:
        self._progress.start()
        self._progress.update(self._task, description=doing, counted=counted, completed=done, total=total)


@contextmanager
def watching() -> Iterator[Watcher]:
    """A watcher that shows a line on stderr inside the block, if that is a terminal, and leaves no trace of it."""
    if not sys.stderr.isatty():
        yield Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    progress = Progress(
        SpinnerColumn(style="cyan"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24, style="dim", pulse_style="cyan", complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.fields[counted]}", style="dim", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    try:
        yield Bar(progress, progress.add_task("", total=None, counted=""))
    finally:
        progress.stop()
