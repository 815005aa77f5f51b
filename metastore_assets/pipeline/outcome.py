"""The progress and the result of a refresh, with their text in logs.

A fragment is a data file with its deletes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from metastore_assets.exports.export_result import ExportResult
from metastore_assets.pipeline.plan import TypeChange
from metastore_assets.pipeline.stages import PlanStage
from metastore_assets.storage.io_counters import IoCounter, IoCounts
from metastore_assets.store.version import RefreshStats
from metastore_assets.value_counts import ValueCountChanges

STEPS = ("plan", "profile", "decide", "reduce", "value_counts", "publish")
"""Steps of a refresh whose reads and writes are counted. `reduce` merges profiles, and does not include
`value_counts`."""
_SECONDS_BETWEEN_LOGS = 10.0


@dataclass(frozen=True)
class Progress:
    """The progress of one stage of a refresh, counted in fragments or partitions."""

    table: str
    stage: str
    """`plan`, `profile`, `reduce`, `publish` or `export`."""
    done: int = 0
    """Number of finished fragments or partitions."""
    total: int = 0
    """Number of fragments or partitions of the stage."""
    unit: str = ""
    """What is counted: `fragments` or `partitions`. Empty for stages that are not counted."""
    running: int = 0
    """Number of fragments or partitions that are being processed."""
    rows: int = 0
    """Number of table rows read so far."""
    bytes: int = 0
    """Stored size in bytes of the fragments read so far."""
    total_bytes: int = 0
    part: str = ""
    """The chunk of a backfill (`chunk 2 of 5`) or the lot of a first version (`lot 2 of 7`). Empty if the work is not
    divided."""


@dataclass(frozen=True)
class RefreshResult:
    """The result of a refresh."""

    table: str
    version: int
    """Number of the newest version after the refresh."""
    snapshot: str
    published: bool
    """Whether a version was published. False if the newest version was already up to date."""
    fragments_added: int
    fragments_removed: int
    fragments_unchanged: int
    fragments_profiled: int
    """Number of fragments that were read. Added fragments whose profile was stored are not read."""
    partitions_changed: tuple[str, ...]
    """Keys of the partitions whose profile was merged, including added partitions."""
    partitions_removed: tuple[str, ...]
    partitions_total: int
    seconds: float
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and the table no longer has."""
    type_changes: tuple[TypeChange, ...] = ()
    """Columns whose type changed since the previous version."""
    value_count_changes: ValueCountChanges | None = field(default_factory=ValueCountChanges)
    """Changes of the table's value counts; None if unknown, because the value counts were rebuilt."""
    refresh_stats: RefreshStats | None = None
    """Fragments and bytes that the refresh read, and its duration; None if no version was published."""
    steps: Mapping[str, IoCounts] = field(default_factory=dict)
    """Reads and writes of the table's and the Metastore's files in all processes, by step."""
    stages: tuple[PlanStage, ...] = ()
    """The stages that ran, in the order of the plan."""
    exports: tuple[ExportResult, ...] = ()
    """The state of each target under `exports`."""

    @property
    def failed_exports(self) -> tuple[ExportResult, ...]:
        """The targets that could not be written."""
        return tuple(export for export in self.exports if export.state == "failed")

    def to_json(self) -> dict[str, object]:
        """Return the result as `refresh --json` prints it."""
        return {
            "table": self.table,
            "version": self.version,
            "snapshot": self.snapshot,
            "published": self.published,
            "fragments": {
                "added": self.fragments_added,
                "removed": self.fragments_removed,
                "unchanged": self.fragments_unchanged,
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
            "exports": [export.to_json() for export in self.exports],
            "seconds": round(self.seconds, 3),
        }


def counts_by_step(counter: IoCounter) -> dict[str, IoCounts]:
    """Return {step: its reads and writes} for each step of a refresh, such as `plan` or `profile`."""
    return {name: counter.counts(name) for name in STEPS}


def log_progress(log: Callable[[str], object]) -> Callable[[Progress], None]:
    """Return a function that logs the start of each stage, then its progress at most every ten seconds."""
    stage, log_time = "", 0.0

    def report(progress: Progress) -> None:
        nonlocal stage, log_time
        now = time.monotonic()
        if progress.stage == stage and now - log_time < _SECONDS_BETWEEN_LOGS:
            return
        stage, log_time = progress.stage, now
        count_text = f": {progress.done} of {progress.total} {progress.unit}" if progress.total else ""
        log(f"{stage}{count_text}")

    return report


def format_result(result: RefreshResult) -> str:
    """Return the result of a refresh in one line."""
    if not result.published:
        return f"version {result.version} is current: snapshot {result.snapshot}"
    return (
        f"version {result.version} of snapshot {result.snapshot}: {result.fragments_added} fragments added, "
        f"{result.fragments_removed} removed, {result.fragments_unchanged} unchanged; "
        f"{len(result.partitions_changed)} of {result.partitions_total} partitions computed, "
        f"{len(result.partitions_removed)} removed; "
        f"{result.seconds:.1f} s"
    )
