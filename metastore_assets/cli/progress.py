"""Progress of long work on stderr, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from metastore_assets.cli.running_tasks import RunningTasks
from metastore_assets.report import text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console, RenderableType

    from metastore_assets.pipeline.outcome import Progress as Event

_FRAMES_PER_SECOND = 8
_BAR = range(8, 25)
"""Maximum width of a bar in cells, if the text leaves room."""
_LEAST = 24
"""Minimum width for a spinner, a name and the time before counts are shown."""


class Watcher(Protocol):
    """The interface of progress displays."""

    def __call__(self, event: Event) -> None:
        """Show an event of a refresh."""

    def spark_starts(self) -> None:
        """Show that a Spark session starts; the next event follows it."""

    def spark_runs(self, spark: SparkSession) -> None:
        """Count the tasks of this session from now on."""

    def hide(self) -> None:
        """Hide the line, because something is about to be printed. The next event shows it again."""


class HiddenProgress:
    """A progress display that shows nothing."""

    def __call__(self, event: Event) -> None:
        """Show nothing."""

    def spark_starts(self) -> None:
        """Show nothing."""

    def spark_runs(self, spark: SparkSession) -> None:
        """Show nothing."""

    def hide(self) -> None:
        """Do nothing."""


class ProgressLine:
    """A line that is redrawn several times a second: a spinner, the stage, its progress, and the elapsed time.

    Between two events, which may be minutes apart, it counts the tasks of Spark's running jobs.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner

        self._console = console
        self._started = time.monotonic()
        self._first_read: tuple[float, int] | None = None
        self._read = 0
        self._ends: float | None = None
        self._doing = ""
        self._widest = 0
        self._event: Event | None = None
        self._tasks: RunningTasks | None = None
        self._spinner = Spinner("dots", style="cyan")
        self._bar = ProgressBar(total=1, style="dim", pulse_style="cyan", complete_style="cyan")
        self._live = Live(
            get_renderable=self.drawn,
            console=console,
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __call__(self, event: Event) -> None:
        """Show the event."""
        self._show(_stage(event), event)

    def spark_starts(self) -> None:
        """Show that Spark starts."""
        self._show("starting Spark", None)

    def spark_runs(self, spark: SparkSession) -> None:
        """Count its tasks from now on."""
        if self._tasks is None:
            self._tasks = RunningTasks(spark)

    def hide(self) -> None:
        """Hide the line."""
        self._live.stop()

    def close(self) -> None:
        """Hide the line and stop."""
        self.hide()
        if self._tasks is not None:
            self._tasks.close()

    def drawn(self) -> RenderableType:
        """Return the current line."""
        from rich.table import Table
        from rich.text import Text

        tasks = self._tasks.count() if self._tasks is not None else (0, 0)
        room = self._console.width - len(self._doing) - _LEAST
        counted = _fitting(_counted(self._event, self._seconds_left(), *tasks), room)
        seconds = int(time.monotonic() - self._started)
        elapsed = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        # Pad the counts, so that the text after them does not move.
        self._widest = max(self._widest, len(counted))
        counted = counted.ljust(self._widest)
        if room < len(counted):
            counted = counted.rstrip() if len(counted.rstrip()) <= room else ""
        room = self._console.width - len(f"* {counted} {elapsed}  ")
        name = self._event and f"{text.cut(self._event.table, max(4, room - len(self._doing) - 2))}: "
        doing = f"{name or ''}{self._doing}"
        cells: list[RenderableType] = [self._spinner, Text(doing), Text(counted, "dim"), Text(elapsed, "cyan")]
        left = room - text.cells(doing) - 1
        if left >= _BAR[0]:
            self._bar.width = min(left, _BAR[-1])
            self._bar.completed = _share(self._event, *tasks)
            self._bar.pulse = not self._bar.completed
            cells.insert(2, self._bar)
        grid = Table.grid(padding=(0, 1, 0, 0))
        for _ in cells:
            grid.add_column(no_wrap=True)
        grid.add_row(*cells)
        return grid

    def _show(self, doing: str, event: Event | None) -> None:
        is_new_stage = doing != self._doing
        if is_new_stage:
            self._widest = 0
        self._doing, self._event = doing, event
        if event is not None and event.total_bytes:
            self._expect(event.bytes, event.total_bytes - event.bytes)
        if self._tasks is not None:
            self._tasks.forget()
        self._live.start()
        if is_new_stage:
            # Show a stage at least once, even if it ends before the next periodic refresh.
            self._live.refresh()

    def _expect(self, read: int, left: int) -> None:
        """Estimate the remaining time from the bytes read so far and the bytes that remain."""
        now = time.monotonic()
        if self._first_read is None or read < self._read:
            self._first_read = now, read
        begun, before = self._first_read
        if read > max(before, self._read):
            self._ends = now + (now - begun) * left / (read - before)
        self._read = read

    def _seconds_left(self) -> float | None:
        """Return the remaining seconds; None if unknown or already over."""
        if self._ends is None or self._event is None or not self._event.total_bytes:
            return None
        left = self._ends - time.monotonic()
        return left if left > 0 else None


@contextmanager
def show_progress() -> Iterator[Watcher]:
    """Show a progress line on stderr inside the block, if stderr is a terminal, and remove it afterwards."""
    if not sys.stderr.isatty():
        yield HiddenProgress()
        return
    from rich.console import Console

    line = ProgressLine(Console(stderr=True))
    try:
        yield line
    finally:
        line.close()


def _stage(event: Event) -> str:
    part = event.part and f" (chunk {event.part})"
    if event.stage == "reduce":
        return ("reducing the table" if event.done == event.total else "reducing partitions") + part
    doing = {"plan": "planning", "profile": "profiling", "publish": "publishing"}.get(event.stage, event.stage)
    return doing + part


def _counted(event: Event | None, left: float | None, done: int, total: int) -> list[str]:
    """Return the counts to show, the most important first."""
    if event is None:
        return []
    counts = []
    if (event.total and event.stage == "profile") or event.done < event.total:
        counts.append(_of(event.done, event.total, event.unit.removesuffix("s")))
    if total:
        counts.append(_of(done, total, "task"))
    if left is not None:
        counts.append(f"{text.seconds(max(left, 10.0))} left")
    if event.bytes:
        counts.append(f"{text.size(event.bytes)} of {text.size(event.total_bytes)}")
    if event.rows:
        counts.append(text.plural(event.rows, "row"))
    return counts


def _fitting(counts: Sequence[str], room: int) -> str:
    """Return as many counts as fit, at least the first."""
    while len(counts) > 1 and len(" · ".join(counts)) > room:
        counts = counts[:-1]
    return " · ".join(counts)


def _of(done: int, total: int, noun: str) -> str:
    return f"{done:,} of {text.plural(total, noun)}"


def _share(event: Event | None, done: int, total: int) -> float:
    """Return the finished share of a stage from 0 to 1; 0 if unknown. Running jobs count by finished tasks."""
    if event is not None and event.part and event.total_bytes:
        return event.bytes / event.total_bytes
    if event is None or not event.total or event.stage == "reduce":
        return 0
    return (event.done + (event.running * done / total if total else 0)) / event.total
