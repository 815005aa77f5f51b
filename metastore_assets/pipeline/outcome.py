"""What is told of a refresh: how far it is, and what it did."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from metastore_assets.pipeline.plan import Plan, TypeChange
from metastore_assets.storage.io_counters import IoCounter, IoCounts
from metastore_assets.store.manifest import Effort, Version
from metastore_assets.value_counts import ListChanges

STEPS = ("plan", "profile", "decide", "reduce", "lists", "publish")
"""What a refresh does one after the other; `lists` is done within `reduce`, and counted apart."""


@dataclass(frozen=True)
class Progress:
    """How far a refresh is. `stage` is one of plan, profile, reduce, publish; counts are of what `unit` says.

    Once all partitions are reduced, `reduce` goes on with the table.
    """

    table: str
    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    running: int = 0
    """How many the Spark job that runs now is for; they are done when it ends."""
    rows: int = 0
    """Of the table, read so far."""
    bytes: int = 0
    """Stored size of the fragments that were read so far, of `total_bytes`."""
    total_bytes: int = 0
    part: str = ""
    """Which part of a larger work this is, for people: `2 of 5`."""


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh did."""

    table: str
    version: int
    """The version that is now the newest."""
    snapshot: str
    published: bool
    """False when the newest version already described the current snapshot."""
    fragments_added: int
    fragments_removed: int
    fragments_kept: int
    fragments_profiled: int
    """Fragments that were read; added ones whose profile was still stored are not."""
    partitions_changed: tuple[str, ...]
    """Keys of the partitions computed anew, added ones included."""
    partitions_removed: tuple[str, ...]
    partitions_total: int
    seconds: float
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy named when the version was made, and that the table no longer has."""
    type_changes: tuple[TypeChange, ...] = ()
    """Columns that are of another type than in the version before."""
    lists: ListChanges | None = field(default_factory=ListChanges)
    """What changed in the lists of the table's values; None where they were made anew, and that is not known."""
    effort: Effort | None = None
    """What the version took; None where none was published."""
    steps: Mapping[str, IoCounts] = field(default_factory=dict)
    """What each of the `STEPS` read and wrote, of the table's files and of the Metastore's, in whichever process."""

    def to_json(self) -> dict[str, object]:
        """The shape of `refresh --json`."""
        return {
            "table": self.table,
            "version": self.version,
            "snapshot": self.snapshot,
            "published": self.published,
            "fragments": {
                "added": self.fragments_added,
                "removed": self.fragments_removed,
                "kept": self.fragments_kept,
                "profiled": self.fragments_profiled,
            },
            "partitions": {
                "changed": len(self.partitions_changed),
                "removed": len(self.partitions_removed),
                "total": self.partitions_total,
            },
            "lists": asdict(self.lists) if self.lists else None,
            "dropped_columns": list(self.dropped_columns),
            "type_changes": [change.to_json() for change in self.type_changes],
            "steps": {
                name: {"read": own.read.to_json(), "written": own.written.to_json()} for name, own in self.steps.items()
            },
            "seconds": round(self.seconds, 3),
        }


def nothing_to_do(latest: Version, profiled: int, started: float, meter: IoCounter) -> RefreshResult:
    """Where the newest version is current. `started` is a time of the monotonic clock; `meter` counted the steps."""
    return RefreshResult(
        latest.table, latest.number, latest.snapshot, False, 0, 0, latest.fragment_count, profiled, (), (),
        len(latest.partitions), time.monotonic() - started, latest.dropped_columns, steps=_steps(meter),
    )  # fmt: skip


def result_of(
    plan: Plan, new: Version, lists: ListChanges | None, profiled: int, started: float, meter: IoCounter
) -> RefreshResult:
    """Where a version was published."""
    return RefreshResult(
        table=plan.table,
        version=new.number,
        snapshot=new.snapshot,
        published=True,
        fragments_added=len(plan.added),
        fragments_removed=len(plan.removed),
        fragments_kept=plan.kept,
        fragments_profiled=profiled,
        partitions_changed=plan.changed_partitions,
        partitions_removed=plan.removed_partitions,
        partitions_total=len(plan.partitions),
        seconds=time.monotonic() - started,
        dropped_columns=new.dropped_columns,
        effort=new.effort,
        type_changes=plan.type_changes,
        lists=lists,
        steps=_steps(meter),
    )


def _steps(meter: IoCounter) -> dict[str, IoCounts]:
    return {name: meter.counts(name) for name in STEPS}
