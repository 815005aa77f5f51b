"""A progress line on stderr during long work, shown only on a terminal.

A fragment is a data file with the deletes that apply to it.
"""

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
_BAR_WIDTHS = range(8, 25)
"""The possible widths of the bar in terminal cells. If even the smallest does not fit, there is no bar."""
_FIXED_WIDTH = 24
"""Terminal cells that are reserved for the spinner, the table's name and the time."""


class Watcher(Protocol):
    """The interface of a display of progress."""

    def __call__(self, event: Event) -> None:
        """Show the stage and the counts of a refresh's progress event."""

    def working(self, table: str, stage: str, counts: tuple[int, int, str] = (0, 0, "")) -> None:
        """Show a stage of work that is no refresh, until the next event.

        Args:
            table: The table's name; empty if the work is not about one table.
            stage: The name of the stage, such as "removing versions".
            counts: The number of finished parts, the number of all parts, and the word for parts in the plural. (0,
                0, "") if parts are not counted.
        """

    def spark_starts(self) -> None:
        """Show that a Spark session is being started, until the next event."""

    def spark_runs(self, spark: SparkSession) -> None:
        """Start to count the tasks of a session."""

    def hide(self) -> None:
        """Hide the line before other output is printed.

        The next event shows it again.
        """


class HiddenProgress:
    """A display that shows nothing, for stderr that is not a terminal."""

    def __call__(self, event: Event) -> None:
        """Show nothing."""

    def working(self, table: str, stage: str, counts: tuple[int, int, str] = (0, 0, "")) -> None:
        """Show nothing."""

    def spark_starts(self) -> None:
        """Show nothing."""

    def spark_runs(self, spark: SparkSession) -> None:
        """Show nothing."""

    def hide(self) -> None:
        """Do nothing: there is no line to hide."""


class ProgressLine:
    """A line that rich redraws several times a second: spinner, stage, its counts, and elapsed time.

    The line appears with the first event: a call of the object, of `working` or of `spark_starts`. The line also shows
    the number of finished tasks of Spark's running jobs.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner

        self._console = console
        self._started = time.monotonic()
        self._first_read: tuple[float, int] | None = None
        self._bytes_read = 0
        self._estimated_end: float | None = None
        self._stage_text = ""
        self._counts_width = 0
        self._event: Event | None = None
        self._tasks: RunningTasks | None = None
        self._spinner = Spinner("dots", style="cyan")
        self._bar = ProgressBar(total=1, style="dim", pulse_style="cyan", complete_style="cyan")
        self._live = Live(
            get_renderable=self.render,
            console=console,
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __call__(self, event: Event) -> None:
        """Show the stage and the counts of an event."""
        self._show(_format_stage(event), event)

    def working(self, table: str, stage: str, counts: tuple[int, int, str] = (0, 0, "")) -> None:
        """Show a stage of a command other than a refresh.

        Args:
            table: The name of the table.
            stage: The text for the stage, such as `counting rows`.
            counts: (number done, total, what is counted), such as `(3, 20, "columns")`. The default shows no counts.
        """
        from metastore_assets.pipeline.outcome import Progress

        self(Progress(table, stage, *counts))

    def spark_starts(self) -> None:
        """Show that a Spark session is being started."""
        self._show("starting Spark", None)

    def spark_runs(self, spark: SparkSession) -> None:
        """Start to count the tasks of a session.

        A second session is ignored.
        """
        if self._tasks is None:
            self._tasks = RunningTasks(spark)

    def hide(self) -> None:
        """Remove the line from the terminal until the next event."""
        self._live.stop()

    def close(self) -> None:
        """Remove the line and stop counting Spark's tasks."""
        self.hide()
        if self._tasks is not None:
            self._tasks.close()

    def render(self) -> RenderableType:
        """Return the line to draw now."""
        from rich.table import Table
        from rich.text import Text

        tasks = self._tasks.count() if self._tasks is not None else (0, 0)
        room = self._console.width - len(self._stage_text) - _FIXED_WIDTH
        counts = _join_fitting(_format_counts(self._event, self._remaining_seconds(), *tasks), room)
        seconds = int(time.monotonic() - self._started)
        elapsed_text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        # Pad the counts, so that the text after them does not move.
        self._counts_width = max(self._counts_width, len(counts))
        counts = counts.ljust(self._counts_width)
        if room < len(counts):
            counts = counts.rstrip() if len(counts.rstrip()) <= room else ""
        room = self._console.width - len(f"* {counts} {elapsed_text}  ")
        name = (
            self._event
            and self._event.table
            and f"{text.truncate(self._event.table, max(4, room - len(self._stage_text) - 2))}: "
        )
        title = f"{name or ''}{self._stage_text}"
        cells: list[RenderableType] = [self._spinner, Text(title), Text(counts, "dim"), Text(elapsed_text, "cyan")]
        bar_width = room - text.count_cells(title) - 1
        if bar_width >= _BAR_WIDTHS[0]:
            self._bar.width = min(bar_width, _BAR_WIDTHS[-1])
            self._bar.completed = _finished_share(self._event, *tasks)
            self._bar.pulse = not self._bar.completed
            cells.insert(2, self._bar)
        grid = Table.grid(padding=(0, 1, 0, 0))
        for _ in cells:
            grid.add_column(no_wrap=True)
        grid.add_row(*cells)
        return grid

    def _show(self, stage: str, event: Event | None) -> None:
        """Show a stage, and the counts of an event if there is one."""
        is_new_stage = stage != self._stage_text
        if is_new_stage:
            self._counts_width = 0
        self._stage_text, self._event = stage, event
        if event is not None and event.total_bytes:
            self._update_estimated_end(event.bytes, event.total_bytes - event.bytes)
        if self._tasks is not None:
            # Jobs of the previous stage no longer count.
            self._tasks.forget()
        self._live.start()
        if is_new_stage:
            # Show a stage at least once, even if it ends before the next periodic refresh.
            self._live.refresh()

    def _update_estimated_end(self, read_bytes: int, remaining_bytes: int) -> None:
        """Estimate the time of the end from the speed of reading so far.

        If `read_bytes` is less than in the last call, the measurement of the speed begins again.

        Args:
            read_bytes: The bytes that are read so far.
            remaining_bytes: The bytes that remain to be read.
        """
        now = time.monotonic()
        if self._first_read is None or read_bytes < self._bytes_read:
            self._first_read = now, read_bytes
        begun_at, first_bytes = self._first_read
        if read_bytes > max(first_bytes, self._bytes_read):
            self._estimated_end = now + (now - begun_at) * remaining_bytes / (read_bytes - first_bytes)
        self._bytes_read = read_bytes

    def _remaining_seconds(self) -> float | None:
        """Return the estimated remaining seconds; None if unknown or negative."""
        if self._estimated_end is None or self._event is None or not self._event.total_bytes:
            return None
        seconds = self._estimated_end - time.monotonic()
        return seconds if seconds > 0 else None


@contextmanager
def show_progress() -> Iterator[Watcher]:
    """Yield an object that shows events in a progress line on stderr.

    It shows nothing if stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield HiddenProgress()
        return
    from rich.console import Console

    line = ProgressLine(Console(stderr=True))
    try:
        yield line
    finally:
        line.close()


def _format_stage(event: Event) -> str:
    part = event.part and f" ({event.part})"
    if event.stage == "reduce":
        return ("reducing the table" if event.done == event.total else "reducing partitions") + part
    name = {"plan": "planning", "profile": "profiling", "publish": "publishing"}.get(event.stage, event.stage)
    return name + part


def _format_counts(
    event: Event | None, remaining_seconds: float | None, finished_tasks: int, total_tasks: int
) -> list[str]:
    """Return the counts of an event as texts, the most important first.

    Args:
        event: The last event; None before the first.
        remaining_seconds: The estimated seconds until the end; None if unknown.
        finished_tasks: The finished tasks of Spark's running jobs.
        total_tasks: All tasks of these jobs; 0 without jobs.
    """
    if event is None:
        return []
    counts = []
    if (event.total and event.stage == "profile") or event.done < event.total:
        counts.append(_format_part(event.done, event.total, event.unit.removesuffix("s")))
    if total_tasks:
        counts.append(_format_part(finished_tasks, total_tasks, "task"))
    if remaining_seconds is not None:
        counts.append(f"{text.format_seconds(max(remaining_seconds, 10.0))} left")
    if event.bytes:
        counts.append(f"{text.format_size(event.bytes)} of {text.format_size(event.total_bytes)}")
    if event.rows:
        counts.append(text.format_count(event.rows, "row"))
    return counts


def _join_fitting(counts: Sequence[str], room: int) -> str:
    """Join as many counts as fit into `room` characters, at least the first."""
    while len(counts) > 1 and len(" · ".join(counts)) > room:
        counts = counts[:-1]
    return " · ".join(counts)


def _format_part(done: int, total: int, noun: str) -> str:
    return f"{done:,} of {text.format_count(total, noun)}"


def _finished_share(event: Event | None, finished_tasks: int, total_tasks: int) -> float:
    """Return the finished share of the work, from 0 to 1; 0 if it is unknown.

    - If the work is divided into several parts (`event.part`), and `event.total_bytes` is known, the result is the
      share of these bytes that were read.
    - Otherwise, the result is the finished share of the stage's fragments or partitions. Those that are being processed
      count in proportion to the finished tasks of Spark. The share is unknown in the stage `reduce`.

    Args:
        event: The last event; None before the first.
        finished_tasks: The finished tasks of Spark's running jobs.
        total_tasks: All tasks of these jobs; 0 without jobs.
    """
    if event is not None and event.part and event.total_bytes:
        return event.bytes / event.total_bytes
    if event is None or not event.total or event.stage == "reduce":
        return 0
    return (event.done + (event.running * finished_tasks / total_tasks if total_tasks else 0)) / event.total
