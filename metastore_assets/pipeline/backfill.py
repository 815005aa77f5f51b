"""Running a backfill of one table, chunk by chunk, in this process or elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import PartitionNotFoundError, VersionNotFoundError
from metastore_assets.formats import open_table_format
from metastore_assets.pipeline.backfill_plan import (
    BackfillPlan,
    BackfillSelection,
    Chunk,
    expected_seconds,
    make_backfill_plan,
)
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import Plan, RefreshRequest
from metastore_assets.pipeline.planning import AttemptProfiles, current_plan, metadata_cache
from metastore_assets.pipeline.profiling import profile_all, profile_error
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.backfills import BackfillRecord
from metastore_assets.store.manifest import RefreshStats
from metastore_assets.store.versions import VersionStore, versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EFFORTS = 5
"""Most versions whose refresh_stats is read for an estimate."""


@dataclass(frozen=True)
class Done:
    """The result of a chunk."""

    version: int | None
    """The version that was published; None if none was."""
    fragments: int
    """Number of fragments that were read."""
    bytes: int
    """Stored size of the fragments."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks of Dagster that failed after the version was published."""


Work = Callable[[Chunk, str], Done]
"""Processes one chunk. The text says which of how many it is, for people."""


@dataclass
class BackfillResult:
    """The progress and the result of a backfill."""

    table: str
    partitions: int = 0
    """Number of selected partitions that were processed."""
    chunks: int = 0
    versions: list[int] = field(default_factory=list)
    fragments: int = 0
    bytes: int = 0
    seconds: float = 0.0
    done: bool = False
    """Whether all selected partitions are in a published version."""
    failed_checks: list[str] = field(default_factory=list)
    """Names of the checks of Dagster that failed after a version was published."""

    def to_json(self) -> dict[str, object]:
        """Return the answer of `backfill --json`."""
        return {**vars(self), "seconds": round(self.seconds, 3)}


def plan_backfill(
    config: MetastoreConfig,
    table: TableConfig,
    choice: BackfillSelection,
    *,
    publish: bool = True,
    chunk: int | None = None,
    restart: bool = False,
) -> BackfillPlan:
    """Return the plan of a backfill. Reads metadata only.

    Args:
        config: The configuration.
        table: The table.
        choice: The selected partitions.
        publish: Whether versions are published.
        chunk: Most partitions that a chunk reads again.
        restart: Whether partitions that an interrupted backfill has finished are processed again.
    """
    plan = plan_refresh(config, table)
    versions = versions_of(config, table.name)
    record = BackfillRecord.of(versions.objects, choice.id, plan.base)
    if restart:
        record = BackfillRecord(versions.objects, choice.id)
    efforts = _efforts(versions, plan.base.number if plan.base else 0)
    done = record.still_done(plan.base)
    made = replace(make_backfill_plan(plan, choice, done=done, publish=publish, chunk=chunk), attempt=record.attempt)
    return made if not made.chunks else _without_kept(made, plan, versions, efforts)


def backfill(
    config: MetastoreConfig, table: TableConfig, plan: BackfillPlan, work: Work, result: BackfillResult
) -> None:
    """Process the chunks of a plan. Finished chunks are recorded: a plan for the same selection leaves them out.

    Args:
        config: The configuration.
        table: The table.
        plan: The plan.
        work: Processes a chunk. Its errors are raised.
        result: Updated after each chunk, so that it is right after an error, too.
    """
    started = time.monotonic()
    versions = versions_of(config, table.name)
    newest = versions.latest()
    record = BackfillRecord.of(versions.objects, plan.choice.id, newest)
    if record.attempt != plan.attempt:
        since = newest.number if newest else 0
        record = BackfillRecord(versions.objects, plan.choice.id, plan.attempt, since)
    record.save()
    several = len(plan.chunks)
    try:
        for number, chunk in enumerate(plan.chunks, 1):
            done = work(chunk, f"{number} of {several}" if several > 1 else "")
            result.chunks += 1
            result.partitions += len(chunk.keys)
            result.fragments += done.fragments
            result.bytes += done.bytes
            result.failed_checks = sorted({*result.failed_checks, *done.failed_checks})
            if done.version is not None:
                result.versions.append(done.version)
                if number < several and plan.choice.mode == "all":
                    record.add(chunk.keys, done.version)
    finally:
        result.seconds = time.monotonic() - started
    record.remove()
    result.done = plan.publishes


def local_work(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    plan: BackfillPlan,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Work:
    """Return a function that processes chunks in this process. `progress` is called for the whole backfill."""
    before = Progress(table.name, "profile")

    def do(chunk: Chunk, part: str) -> Done:
        nonlocal before
        latest, begun = before, before

        def tell(event: Progress) -> None:
            nonlocal latest
            size = max(plan.bytes, begun.bytes + event.total_bytes)
            rows, read = max(latest.rows, begun.rows + event.rows), max(latest.bytes, begun.bytes + event.bytes)
            latest = replace(event, rows=rows, bytes=read, total_bytes=size, part=part)
            progress(latest)

        done = (
            _published(config, table, spark, chunk, tell)
            if chunk.publishes
            else _kept(config, table, spark, chunk, tell)
        )
        before = replace(begun, rows=latest.rows, bytes=begun.bytes + done.bytes)
        return done

    return do


def _published(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    chunk: Chunk,
    progress: Callable[[Progress], None],
) -> Done:
    again = chunk.again
    while True:
        try:
            result = refresh(config, table, spark, partitions=again, progress=progress)
        except PartitionNotFoundError:
            # Partitions may have been dropped since the plan was made.
            there = {part.key for part in plan_refresh(config, table).partitions}
            left = tuple(key for key in again if key in there)
            if left == again:
                raise
            again = left
        else:
            refresh_stats = result.refresh_stats or RefreshStats(0, 0, 0.0)
            return Done(result.version if result.published else None, refresh_stats.fragments, refresh_stats.bytes)


def _kept(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    chunk: Chunk,
    progress: Callable[[Progress], None],
) -> Done:
    """Profile the fragments of the partitions without a stored profile, and save the profiles for a refresh."""
    versions, table = versions_of(config, table.name), with_hidden_key(config, table, create=True)
    progress(Progress(table.name, "plan"))
    table_format = open_table_format(table, metadata_cache(versions, full=False), SizedRunner(spark))
    plan = current_plan(versions, table_format, table)
    keys = set(chunk.keys)
    plan = replace(plan, to_profile=tuple(fragment for fragment in plan.to_profile if fragment.partition_key in keys))
    context = RefreshContext(Engine.of_refresh(config, table, spark), versions, table, progress)
    profiled = profile_all(context, plan)
    if profiled.failures:
        raise profile_error(table, profiled.failures, len(profiled.entries))
    versions.save_pending(profiled.unsaved)
    return Done(None, len(profiled.entries), sum(entry.bytes for entry in profiled.entries))


def _without_kept(
    made: BackfillPlan, plan: Plan, versions: VersionStore, efforts: Sequence[RefreshStats]
) -> BackfillPlan:
    """Return the plan without the fragments that an interrupted attempt at its first chunk has profiled."""
    first = made.chunks[0]
    kept = {entry.id for entry in AttemptProfiles.resume(versions, RefreshRequest(partitions=first.again)).entries}
    again = set(first.again)
    read = [own for own in plan.snapshot.fragments if own.partition_key in again and own.id in kept]
    left = replace(first, fragments=first.fragments - len(read), bytes=first.bytes - sum(own.bytes for own in read))
    made = replace(made, chunks=(left, *made.chunks[1:]))
    return replace(made, seconds=expected_seconds(efforts, made.bytes, len(made.chunks)))


def _efforts(versions: VersionStore, newest: int) -> list[RefreshStats]:
    """Return the measured refresh_stats of the last versions that still exist."""
    found = []
    for number in range(newest, max(0, newest - _EFFORTS), -1):
        try:
            refresh_stats = versions.read(number).refresh_stats
        except VersionNotFoundError:
            break
        if refresh_stats is not None:
            found.append(refresh_stats)
    return found
