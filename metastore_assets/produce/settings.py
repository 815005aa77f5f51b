"""Sizes and shares that decide how work is cut and when runs are merged."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """The defaults suit tables of millions of rows on one machine; every choice gives the same rows."""

    target_rows: int = 4_000_000
    """Rows of a shard when it is cut. A shard of twice as many is split, neighbours of a quarter are merged."""
    row_group_rows: int = 100_000
    """Rows read at a time of one run."""
    batch_rows: int = 100_000
    """Rows of input given to one call of a vectorised Produce function: whole groups, at least one."""
    buffer_rows: int = 2_000_000
    """Instructions that a task sorts in memory; more are spilled as sorted runs and merged."""
    task_rows: int = 500_000
    """Rows of an update that make one task."""
    small_rows: int = 200_000
    """Up to so many rows of updates, a stage is run in the calling process, whatever the runner."""
    bulk_share: float = 0.2
    """A dataset is rewritten as a whole when an update brings more than this share of its rows, else a run is added.

    At a fifth, rewriting takes 1.1 to 1.3 times as long, and saves that at the next few readings of all rows or at the
    first compaction; `benchmarks/produce_share.py` measures it.
    """
    single_run_rows: int = 20_000
    """A dataset of no more rows is one run, a plain file for any tool, which every step that changes it writes anew."""
    fan_in: int = 8
    """Runs of one level that are merged into one of the next."""
    base_share: float = 0.5
    """A shard is merged into one run when what came since the last time is more than this share of it."""
    max_runs: int = 24
    """Runs that a reader of any shard may have to merge: beyond, they are merged whatever it costs."""
    inline_budget: int = 4
    """Rows that compaction may write per row of an update within `advance`; what is not used up is saved."""

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
