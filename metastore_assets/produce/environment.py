"""The context of a dataflow step."""

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
    """The context that every part of a dataflow step needs."""

    storage: ObjectStore
    folder: str
    """Folder of new files."""
    runner: TaskRunner
    settings: Settings
    check: bool
    scratch: list[str]
    """Temporary files that tasks exchanged. They are deleted unless a state references them as runs."""
    updates: dict[str, Part] = field(default_factory=dict)
    """Updates in memory, by node."""
    replaced: dict[str, pl.DataFrame] = field(default_factory=dict)
    """All previous rows of the keys of a node's update, by node, if they are few and were read."""
    contents: dict[str, pl.DataFrame] = field(default_factory=dict)
    """All current rows of a sum stage, by node, if they are few and have changed."""
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """Added and removed rows, by delta root."""
    written: list[str] = field(default_factory=list)
    """Files of loaded content."""

    def again(self) -> Environment:
        """Return the context for another attempt: it shares the scratch files but no data in memory."""
        return replace(self, updates={}, replaced={}, contents={})

    def spool(self, rows: int) -> Spool:
        """Return the spool for instructions that result from so many rows."""
        return Spool(self.storage, self.folder, self.settings, in_memory=rows <= self.settings.small_rows)

    def runner_for(self, rows: int) -> TaskRunner:
        """Return the runner for so many rows: a job for few rows costs more than processing them here."""
        return InProcessRunner() if rows <= self.settings.small_rows else self.runner
