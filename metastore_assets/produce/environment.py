"""The context of a dataflow step: settings, destination of sorted rows, and data that nodes share.

A step computes the next state of the dataflow from its last state. A node is a root or a stage of the dataflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import polars as pl

from metastore_assets.produce.stages import Delta
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

if TYPE_CHECKING:
    from metastore_assets.produce.parts import Part


@dataclass(frozen=True)
class Settings:
    """Tuning parameters, which change no result.

    The defaults suit millions of rows on one machine.
    """

    target_rows: int = 4_000_000
    """Target number of rows per shard. A shard of more than twice this size is split. Neighbours that have at most half
    of this size together are joined."""
    row_group_rows: int = 100_000
    """Rows per row group of a run, which are read together. More than 131,072 mean 131,072."""
    batch_rows: int = 100_000
    """Approximate input rows per call of a batch Produce function. A call has complete source keys, at least one."""
    buffer_rows: int = 2_000_000
    """Maximum number of rows that a task sorts in memory. More are spilled to sorted files and merged."""
    task_rows: int = 500_000
    """Number of update rows of the feeders per task."""
    small_rows: int = 200_000
    """Maximum number of update rows of a stage that runs in the calling process, whatever the runner."""
    bulk_share: float = 0.2
    """Share of a dataset's rows above which an update rewrites the dataset, instead of adding a run.

    At one fifth, rewriting takes 1.1 to 1.3 times as long as adding a run. It saves that time in the next few full
    reads, or in the first compaction (measured by `benchmarks/produce_share.py`)."""
    single_run_rows: int = 20_000
    """Maximum number of rows of a dataset that is one run, a plain file for any tool. Every change rewrites it."""
    fan_in: int = 8
    """Number of runs of one level that are merged into one run of the next level."""
    base_share: float = 0.5
    """A shard is merged completely when the rows added since the last full merge exceed this share of it."""
    max_runs: int = 24
    """Maximum number of runs that a reader of a shard must merge. More are always merged."""
    inline_budget: int = 4
    """Rows that compaction may write per update row within `advance`. The rest is saved as credit."""
    check: bool = False
    """Whether to call every Produce function twice, and raise ProduceError if the results differ."""

    def __post_init__(self) -> None:
        """Raise ValueError if a setting is below its minimum."""
        least = {
            "check": False,
            "fan_in": 2,
            "single_run_rows": 0,
            "max_runs": 2,
            "small_rows": 0,
            "bulk_share": 0,
            "base_share": 0,
            "inline_budget": 0,
        }
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if value < least.get(name, 1):
                raise ValueError(f"{name} is {value!r}; it has to be at least {least.get(name, 1)}")


@dataclass(frozen=True)
class Spool:
    """The destination of sorted rows that tasks write: memory, or files in a folder."""

    storage: ObjectStore
    folder: str
    settings: Settings
    in_memory: bool
    """Whether rows are passed on in memory if they need not be spilled."""


@dataclass(frozen=True)
class Environment:
    """The storage, runner and settings of a dataflow step, and the data that its nodes pass on in memory."""

    storage: ObjectStore
    folder: str
    """Folder of new files."""
    runner: TaskRunner
    settings: Settings
    scratch: list[str]
    """Temporary files of tasks, and files that no state references. They are deleted after the step."""
    updates: dict[str, Part] = field(default_factory=dict)
    """Updates in memory, by node."""
    replaced: dict[str, pl.DataFrame] = field(default_factory=dict)
    """{node: all previous rows of the keys in its update}, if they were read and are few."""
    contents: dict[str, pl.DataFrame] = field(default_factory=dict)
    """{sum stage: all of its current rows}, if they changed and are few."""
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """{delta root: its added and removed rows}."""
    written: list[str] = field(default_factory=list)
    """Files of loaded content, which are deleted if loading fails."""

    def new_attempt(self) -> Environment:
        """Return an environment to repeat the step, without data that nodes passed on in the failed attempt.

        It shares the list `scratch` with this environment, so that the files of the failed attempt are still deleted.
        """
        return replace(self, updates={}, replaced={}, contents={})

    def spool(self, rows: int) -> Spool:
        """Return the destination of a node's results: memory for few input rows, otherwise files."""
        return Spool(self.storage, self.folder, self.settings, in_memory=rows <= self.settings.small_rows)

    def runner_for(self, rows: int) -> TaskRunner:
        """Return the runner for tasks that have `rows` rows in total.

        If the rows are few, this process runs the tasks.
        """
        return InProcessRunner() if rows <= self.settings.small_rows else self.runner
