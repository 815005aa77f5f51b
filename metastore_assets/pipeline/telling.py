"""What a log tells of a refresh: how far it is, and what it did."""

from __future__ import annotations

import time
from collections.abc import Callable

from metastore_assets.pipeline.outcome import Progress, RefreshResult

_SECONDS_BETWEEN_LOGS = 10.0


def log_progress(log: Callable[[str], object]) -> Callable[[Progress], None]:
    """Each stage is logged once, and then as it goes on, but seldom: every line is a row in Dagster's database."""
    stage, logged = "", 0.0

    def tell(progress: Progress) -> None:
        nonlocal stage, logged
        now = time.monotonic()
        if progress.stage == stage and now - logged < _SECONDS_BETWEEN_LOGS:
            return
        stage, logged = progress.stage, now
        counted = f": {progress.done} of {progress.total} {progress.unit}" if progress.total else ""
        log(f"{stage}{counted}")

    return tell


def format_result(result: RefreshResult) -> str:
    """A refresh in one line."""
    if not result.published:
        return f"version {result.version} is current: snapshot {result.snapshot}"
    return (
        f"version {result.version} of snapshot {result.snapshot}: {result.fragments_added} fragments added, "
        f"{result.fragments_removed} removed, {result.fragments_kept} kept; {len(result.partitions_changed)} of "
        f"{result.partitions_total} partitions computed, {len(result.partitions_removed)} removed; "
        f"{result.seconds:.1f} s"
    )
