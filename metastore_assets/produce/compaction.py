"""Merging of runs, so that reads open few files, and each row is rewritten only a few times.

A run is a sorted file of a dataset, and the state of a dataset lists its runs. A shard is a key range with its runs;
runs of level 0 span all shards. `fan_in` runs of one level are merged into one run of the next level. A shard is merged
completely if the rows added since its last full merge are a large share of it (size-tiered compaction with bounded
garbage; O'Neil et al., The log-structured merge-tree, 1996). Large shards are split, small neighbours are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import polars as pl

from metastore_assets.produce.dataset import Dataset, DatasetState, Shard, merge_streams
from metastore_assets.produce.environment import Settings, Spool
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.runs import KeyRange, Run, RunWriter, read_run
from metastore_assets.tasks.runner import TaskRunner

BASE_LEVEL = 100
"""Level of the runs that a full merge, a rewrite or a load of a shard wrote."""
_TOMBSTONE_WEIGHT = 4
"""Number of rows that a tombstone counts in the choice of merges, so that tombstones disappear sooner."""


@dataclass(frozen=True)
class Work:
    """The resources of a compaction: the runner of merge tasks, and the destination of merged runs."""

    runner: TaskRunner
    spool: Spool
    """Destination and sizes of merged runs."""


Pieces = list[tuple[Run, pl.DataFrame]]
"""Consecutive runs, each with its greatest key."""


def compact_dataset(dataset: Dataset, work: Work, *, is_unlimited: bool) -> DatasetState:
    """Run all due merges that the dataset's credit allows.

    Return the new state.

    The credit is the number of rows that merges may write. With `is_unlimited`, all due merges run, whatever the
    credit. If a shard and level 0 have more than `max_runs` runs together, runs are merged even without credit.
    """
    state = dataset.state
    while True:
        job = _next_merge(state, work.spool.settings, is_unlimited=is_unlimited)
        if job is None:
            return state
        state = replace(job.run(replace(dataset, state=state), work), credit=max(0, state.credit - job.cost))


def rewrite_dataset(dataset: Dataset, work: Work) -> DatasetState:
    """Rewrite all rows.

    Return the new state: each shard has at most one run, and level 0 is empty.
    """
    state = dataset.state
    ranges = _join_small_shards(state, work.spool.settings)
    tasks = [_RewriteTask(dataset, work.spool, key_range) for key_range in ranges]
    pieces = work.runner.map(_rewrite, tasks)
    return replace(assemble_state(state, list(zip(pieces, ranges, strict=True))), credit=0)


def assemble_state(state: DatasetState, results: Sequence[tuple[Pieces, KeyRange]]) -> DatasetState:
    """Return a state with one shard for each new run, and with an empty level 0.

    A range without runs becomes a shard without runs.

    Args:
        state: The state before. The new state has the same `credit`.
        results: (new runs, key range) of consecutive key ranges. The runs have all rows of the range.
    """
    shards: list[Shard] = []
    bounds: list[pl.DataFrame] = []
    for pieces, key_range in results:
        shards += [Shard((run,)) for run, _ in pieces] or [Shard()]
        bounds += [key for _, key in pieces[:-1]]
        if key_range.until is not None:
            bounds.append(key_range.until)
    splitters = pl.concat(bounds) if bounds else state.splitters.clear()
    return replace(state, splitters=splitters, shards=tuple(shards), level0=())


def write_pieces(spool: Spool, run_schema: RunSchema, rows: int, frames: Iterable[pl.DataFrame]) -> Pieces:
    """Write frames as runs of about the target size.

    Return each run with its greatest key.

    A key is never split between two runs.

    Args:
        spool: Destination and sizes of the runs.
        run_schema: Columns of the runs.
        rows: Number of rows, or an estimate. Up to twice the target size, the rows become one run. More rows become
            several runs of equal size, about 5/6 to 5/4 of the target size. If the estimate is wrong, the last run may
            be smaller.
        frames: Sorted frames without tombstones, which are rows that delete others.
    """
    settings = spool.settings
    target = settings.target_rows
    size = max(rows, target) if rows <= 2 * target else -(-rows // round(rows / target))
    pieces: Pieces = []
    remaining = iter(frames)
    frame = next(remaining, None)
    while frame is not None:
        last = frame
        with RunWriter(spool.storage, spool.folder, run_schema, settings.row_group_rows) as writer:
            while frame is not None and (
                not writer.rows or writer.rows < size or continues_key(last, frame, run_schema)
            ):
                writer.write(frame)
                last, frame = frame, next(remaining, None)
        pieces.append((writer.run(BASE_LEVEL), last.tail(1)[:, list(run_schema.group.columns)]))
    return pieces


def continues_key(last: pl.DataFrame, frame: pl.DataFrame, run_schema: RunSchema) -> bool:
    """Return whether `frame` begins with the last key of `last`, the previous frame."""
    return run_schema.group.distinct(pl.concat([last[-1:], frame[:1]], how="vertical")).height == 1


class _Job(Protocol):
    @property
    def cost(self) -> int:
        """The maximum number of rows that the merge writes."""

    def run(self, dataset: Dataset, work: Work) -> DatasetState:
        """Run the merge.

        Return the new state.
        """


@dataclass(frozen=True)
class _Flush:
    """The merge of all runs of level 0, which span all shards, into one new run per shard."""

    cost: int

    def run(self, dataset: Dataset, work: Work) -> DatasetState:
        state = dataset.state
        tasks = [
            _MergeTask(dataset, work.spool, state.level0, key_range, 1, retains_tombstones=bool(shard.runs))
            for shard, key_range in zip(state.shards, state.ranges(), strict=True)
        ]
        new_runs = work.runner.map(_merge, tasks)
        shards = [Shard((*shard.runs, *run)) for shard, run in zip(state.shards, new_runs, strict=True)]
        return replace(state, shards=tuple(shards), level0=())


@dataclass(frozen=True)
class _TierMerge:
    """The merge of the `count` newest runs of a shard, all of one level, into one run of the next level."""

    cost: int
    shard: int
    count: int

    def run(self, dataset: Dataset, work: Work) -> DatasetState:
        state = dataset.state
        runs = state.shards[self.shard].runs
        older_runs, merged_runs = runs[: -self.count], runs[-self.count :]
        level = merged_runs[-1].level + 1
        key_range = state.ranges()[self.shard]
        task = _MergeTask(dataset, work.spool, merged_runs, key_range, level, retains_tombstones=bool(older_runs))
        (new_runs,) = work.runner.map(_merge, [task])
        return _with_shard(state, self.shard, [Shard((*older_runs, *new_runs))], [])


@dataclass(frozen=True)
class _FullMerge:
    """A job that merges all runs of a shard into one run.

    Runs of level 0 stay, because they belong to no shard.

    If there are too many rows for one run, several are written, and each becomes a shard.
    """

    cost: int
    shard: int

    def run(self, dataset: Dataset, work: Work) -> DatasetState:
        state = dataset.state
        older = replace(dataset, state=replace(state, level0=()))
        task = _RewriteTask(older, work.spool, state.ranges()[self.shard])
        (pieces,) = work.runner.map(_rewrite, [task])
        return _with_shard(state, self.shard, [Shard((run,)) for run, _ in pieces], [key for _, key in pieces[:-1]])


def _with_shard(state: DatasetState, number: int, shards: list[Shard], bounds: list[pl.DataFrame]) -> DatasetState:
    """Return the state with one shard replaced by others.

    Args:
        state: The state before.
        number: The position of the replaced shard among the shards of the state.
        shards: The new shards; none if no row remains.
        bounds: Greatest key of each new shard except the last.
    """
    return replace(
        state,
        shards=(*state.shards[:number], *(shards or [Shard()]), *state.shards[number + 1 :]),
        splitters=pl.concat([state.splitters[:number], *bounds, state.splitters[number:]]),
    )


def _next_merge(state: DatasetState, settings: Settings, *, is_unlimited: bool) -> _Job | None:
    """Return the next merge to run; None if there is none.

    If a shard and level 0 have more than `max_runs` runs together, the merge may write any number of rows. Otherwise,
    the result is a merge that level 0 or a shard needs, and that writes at most `state.credit` rows. `is_unlimited`
    removes this limit.
    """
    flush = _Flush(sum(run.rows for run in state.level0))
    over_limit = [
        number for number, shard in enumerate(state.shards) if len(shard.runs) + len(state.level0) > settings.max_runs
    ]
    if over_limit:
        return flush if len(state.level0) > 1 else _full_merge(state, over_limit[0])
    due: list[_Job] = [flush] if len(state.level0) >= settings.fan_in else []
    for number, shard in enumerate(state.shards):
        due += _due_merges(state, number, shard, settings)
    return next((job for job in due if is_unlimited or job.cost <= state.credit), None)


def _due_merges(state: DatasetState, number: int, shard: Shard, settings: Settings) -> list[_Job]:
    """Return the merge that a shard needs, as a list of one; an empty list if it needs none.

    The base of a shard is the runs that its last full merge or a load wrote. Newer runs were added to the shard since.

    - If the newer runs have more than `settings.base_share` times the rows of the base, all runs are merged. A
      tombstone counts as `_TOMBSTONE_WEIGHT` rows.
    - Otherwise, if at least `settings.fan_in` newer runs have the same level as the newest run, these are merged.

    Args:
        state: The state with the shard.
        number: The position of the shard among the shards of the state.
        shard: The shard.
        settings: The limits.
    """
    newer = [run for run in shard.runs if run.level != BASE_LEVEL]
    base = sum(run.rows for run in shard.runs if run.level == BASE_LEVEL)
    weight = sum(run.rows + (_TOMBSTONE_WEIGHT - 1) * run.tombstones for run in newer)
    if weight > settings.base_share * base:
        return [_full_merge(state, number)]
    tail = [run for run in newer if run.level == newer[-1].level]
    if len(tail) < settings.fan_in:
        return []
    return [_TierMerge(sum(run.rows for run in tail), number, len(tail))]


def _full_merge(state: DatasetState, number: int) -> _FullMerge:
    return _FullMerge(sum(run.rows for run in state.shards[number].runs), number)


def _join_small_shards(state: DatasetState, settings: Settings) -> list[KeyRange]:
    """Return the key ranges of shards, with small neighbours joined."""
    result: list[tuple[KeyRange, int]] = []
    for shard, key_range in zip(state.shards, state.ranges(), strict=True):
        rows = sum(run.rows for run in shard.runs)
        if result and (result[-1][1] + rows) * 2 <= settings.target_rows:
            previous, so_far = result[-1]
            result[-1] = KeyRange(previous.after, key_range.until), so_far + rows
        else:
            result.append((key_range, rows))
    return [key_range for key_range, _ in result]


@dataclass(frozen=True)
class _MergeTask:
    dataset: Dataset
    spool: Spool
    runs: tuple[Run, ...]
    key_range: KeyRange
    level: int
    retains_tombstones: bool


def _merge(task: _MergeTask) -> list[Run]:
    """Merge the rows of a key range from consecutive runs.

    Return [the merged run], or [] if no row remains.
    """
    run_schema = task.dataset.run_schema
    writer = RunWriter(task.spool.storage, task.spool.folder, run_schema, task.spool.settings.row_group_rows)
    with writer:
        runs = reversed(task.runs)
        streams = [read_run(task.dataset.storage, run, run_schema, task.key_range) for run in runs]
        for frame in merge_streams(streams, run_schema):
            writer.write(frame if run_schema.amounts or task.retains_tombstones else frame.filter(~pl.col(TOMBSTONE)))
    return [writer.run(task.level)] if writer.rows else []


@dataclass(frozen=True)
class _RewriteTask:
    dataset: Dataset
    spool: Spool
    key_range: KeyRange


def _rewrite(task: _RewriteTask) -> Pieces:
    """Rewrite all rows of a key range as runs of about the target size."""
    dataset, run_schema = task.dataset, task.dataset.run_schema
    frames = dataset.scan(task.key_range).frames
    return write_pieces(task.spool, run_schema, _count_rows(dataset.state, task.key_range, run_schema), frames)


def _count_rows(state: DatasetState, key_range: KeyRange, run_schema: RunSchema) -> int:
    """Return the number of stored rows in a key range that consists of complete shards.

    Runs of level 0 span all shards. Their rows are counted only if the range consists of all shards.
    """

    def is_inside(shard_range: KeyRange) -> bool:
        if shard_range.until is None:
            return key_range.until is None
        return key_range.filter(shard_range.until, run_schema.group).height > 0

    shards = zip(state.shards, state.ranges(), strict=True)
    inside = [sum(run.rows for run in shard.runs) for shard, shard_range in shards if is_inside(shard_range)]
    return sum(inside) + (sum(run.rows for run in state.level0) if len(inside) == len(state.shards) else 0)
