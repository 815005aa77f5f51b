"""Sizes and shares that decide how work is divided and when runs are merged."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Tuning parameters. The defaults suit millions of rows on one machine; no setting changes any result."""

    target_rows: int = 4_000_000
    """Target number of rows per shard. A shard of twice this size is split, neighbours below a quarter are merged."""
    row_group_rows: int = 100_000
    """Rows per row group of a run, which are read together."""
    batch_rows: int = 100_000
    """Input rows per call of a batch Produce function. Groups are not split, so a call has at least one."""
    buffer_rows: int = 2_000_000
    """Instructions that a task sorts in memory; more are spilled to sorted files and merged."""
    task_rows: int = 500_000
    """Update rows per task."""
    small_rows: int = 200_000
    """Up to this number of update rows, a stage runs in the calling process, whatever the runner."""
    bulk_share: float = 0.2
    """Share of a dataset's rows above which an update rewrites the dataset; below it the update adds a run.

    At one fifth, rewriting takes 1.1 to 1.3 times as long. It saves that time in the next few full reads, or in the
    first compaction (measured by `benchmarks/produce_share.py`).
    """
    single_run_rows: int = 20_000
    """A dataset of at most this size is one run, a plain file for any tool. Every step that changes it rewrites it."""
    fan_in: int = 8
    """Number of runs of one level that are merged into one run of the next level."""
    base_share: float = 0.5
    """A shard is merged completely when the rows added since the last full merge exceed this share of it."""
    max_runs: int = 24
    """Maximum number of runs that a reader of a shard must merge. More are merged at any cost."""
    inline_budget: int = 4
    """Rows that compaction may write per update row within `advance`. The unused rest is saved as credit."""

    def __post_init__(self) -> None:
        least = {
            "fan_in": 2,
            "single_run_rows": 0,
            "max_runs": 2,
            "small_rows": 0,
            "bulk_share": 0,
            "base_share": 0,
            "inline_budget": 0,
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if value < least.get(field.name, 1):
                raise ValueError(f"{field.name} is {value!r}; it has to be at least {least.get(field.name, 1)}")
