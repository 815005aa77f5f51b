"""What every step of a dataflow needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from metastore_assets.produce.parts import Part, Spool
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Delta
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner


@dataclass(frozen=True)
class Environment:
    """What every step needs."""

    storage: ObjectStore
    folder: str
    """Of the files that are written."""
    runner: TaskRunner
    settings: Settings
    check: bool
    scratch: list[str]
    """Files that tasks wrote for each other: no version names them, unless one of them became a run."""
    updates: dict[str, Part] = field(default_factory=dict)
    """By node: its update, where that is in memory."""
    replaced: dict[str, pl.DataFrame] = field(default_factory=dict)
    """By node: all rows that the keys of its update had, where they are few and were read."""
    contents: dict[str, pl.DataFrame] = field(default_factory=dict)
    """By node that adds up: all rows that it has now, where they are few and have changed."""
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """By root of deltas: what came and what went."""
    written: list[str] = field(default_factory=list)
    """Files of content that was given whole."""

    def again(self) -> Environment:
        """For another attempt, which knows nothing of what this one read; the scratch is common."""
        return replace(self, updates={}, replaced={}, contents={})

    def spool(self, rows: int) -> Spool:
        """Where the instructions that come of so many rows go."""
        return Spool(self.storage, self.folder, self.settings, in_memory=rows <= self.settings.small_rows)

    def runner_for(self, rows: int) -> TaskRunner:
        """A job for few rows costs more than the rows."""
        return InProcessRunner() if rows <= self.settings.small_rows else self.runner
