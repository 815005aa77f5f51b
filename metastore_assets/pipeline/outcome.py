"""The progress and the result of a refresh, and how a log shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from metastore_assets.pipeline.plan import TypeChange
from metastore_assets.pipeline.stages import PlanStage
from metastore_assets.storage.io_counters import IoCounter, IoCounts
from metastore_assets.store.manifest import RefreshStats, Version
from metastore_assets.value_counts import ValueCountChanges

STEPS = ("plan", "profile", "decide", "reduce", "value_counts", "publish")
"""Steps of a refresh whose reads and writes are counted. `value_counts`, a part of `reduce`, is counted separately."""
_SECONDS_BETWEEN_LOGS = 10.0


@dataclass(frozen=True)
class Progress:
    """The progress of one stage of a refresh. After all partitions are merged, `reduce` also merges the table."""

    table: str
    stage: str
    """`plan`, `profile`, `reduce` or `publish`."""
    done: int = 0
    """Number of units that are finished."""
    total: int = 0
    """Number of units of the stage."""
    unit: str = ""
    """`fragments` or `partitions`."""
    running: int = 0
    """Number of units of the Spark job that runs now."""
    rows: int = 0
    """Number of rows of the table that were read."""
    bytes: int = 0
    """Stored size of the fragments that were read, of `total_bytes`."""
    total_bytes: int = 0
    part: str = ""
    """Which part of a larger task this is: `2 of 5`."""


@dataclass(frozen=True)
class RefreshResult:
    """The result of a refresh."""

    table: str
    version: int
    """The version that is now the newest."""
    snapshot: str
    published: bool
    """False when the newest version already described the current snapshot."""
    fragments_added: int
    fragments_removed: int
    fragments_unchanged: int
    fragments_profiled: int
    """Fragments that were read. Added fragments whose profile was stored are not read."""
    partitions_changed: tuple[str, ...]
    """Keys of the partitions whose profile was merged, added ones included."""
    partitions_removed: tuple[str, ...]
    partitions_total: int
    seconds: float
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and that the table no longer has."""
    type_changes: tuple[TypeChange, ...] = ()
    """Columns whose type differs from that in the version before."""
    value_count_changes: ValueCountChanges | None = field(default_factory=ValueCountChanges)
    """Changes of the table's value counts; None if they were rebuilt, so that changes are not known."""
    refresh_stats: RefreshStats | None = None
    """The cost of the version; None if none was published."""
    steps: Mapping[str, IoCounts] = field(default_factory=dict)
    """By step, reads and writes of the table's and the Metastore's files, in all processes."""
    stages: tuple[PlanStage, ...] = ()
    """The stages that ran: those of the plan, in its order."""

    def to_json(self) -> dict[str, object]:
        """Return the answer of `refresh --json`."""
        return {
            "table": self.table,
            "version": self.version,
            "snapshot": self.snapshot,
            "published": self.published,
            "fragments": {
                "added": self.fragments_added,
                "removed": self.fragments_removed,
                "kept": self.fragments_unchanged,
                "profiled": self.fragments_profiled,
            },
            "partitions": {
                "changed": len(self.partitions_changed),
                "removed": len(self.partitions_removed),
                "total": self.partitions_total,
            },
            "value_counts": asdict(self.value_count_changes) if self.value_count_changes else None,
            "dropped_columns": list(self.dropped_columns),
            "type_changes": [change.to_json() for change in self.type_changes],
            "steps": {
                name: {"read": counts.read.to_json(), "written": counts.written.to_json()}
                for name, counts in self.steps.items()
            },
            "seconds": round(self.seconds, 3),
        }


def up_to_date_result(latest: Version, profiled: int, started: float, counter: IoCounter) -> RefreshResult:
    """Return the result of a refresh that published nothing.

    Args:
        latest: The newest version, which is up to date.
        profiled: Number of fragments that were read.
        started: Time of the monotonic clock when the refresh started.
        counter: The counter of reads and writes.
    """
    return RefreshResult(
        latest.table, latest.number, latest.snapshot, False, 0, 0, latest.fragment_count, profiled, (), (),
        len(latest.partitions), time.monotonic() - started, latest.dropped_columns, steps=counts_by_step(counter),
    )  # fmt: skip


def counts_by_step(counter: IoCounter) -> dict[str, IoCounts]:
    """Return the reads and writes of each of the `STEPS`."""
    return {name: counter.counts(name) for name in STEPS}


def log_progress(log: Callable[[str], object]) -> Callable[[Progress], None]:
    """Return a function that logs progress: each stage once, and then at most every ten seconds.

    Each line is a row in Dagster's database.
    """
    stage, logged = "", 0.0

    def report(progress: Progress) -> None:
        nonlocal stage, logged
        now = time.monotonic()
        if progress.stage == stage and now - logged < _SECONDS_BETWEEN_LOGS:
            return
        stage, logged = progress.stage, now
        counted = f": {progress.done} of {progress.total} {progress.unit}" if progress.total else ""
        log(f"{stage}{counted}")

    return report


def format_result(result: RefreshResult) -> str:
    """Return the result of a refresh in one line."""
    if not result.published:
        return f"version {result.version} is current: snapshot {result.snapshot}"
    return (
        f"version {result.version} of snapshot {result.snapshot}: {result.fragments_added} fragments added, "
        f"{result.fragments_removed} removed, {result.fragments_unchanged} kept; {len(result.partitions_changed)} of "
        f"{result.partitions_total} partitions computed, {len(result.partitions_removed)} removed; "
        f"{result.seconds:.1f} s"
    )
