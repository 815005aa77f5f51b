"""Backfills of one table: planning, and processing of chunks.

A chunk has the partitions that one step of a backfill processes (see `backfill_plan`). A fragment is a data file with
its deletes, and its profile is its statistics. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import PartitionNotFoundError, VersionNotFoundError
from metastore_assets.formats import open_table_format
from metastore_assets.pipeline.backfill_plan import (
    DEFAULT_OPTIONS,
    BackfillOptions,
    BackfillPlan,
    BackfillSelection,
    Chunk,
    PlannedRefresh,
    expected_seconds,
    make_backfill_plan,
)
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import Plan, RefreshRequest
from metastore_assets.pipeline.planning import (
    AttemptProfiles,
    current_plan,
    first_version_totals,
    metadata_cache,
    plan_first_partitions,
)
from metastore_assets.pipeline.profiling import profile_all, profile_error
from metastore_assets.pipeline.refresh import plan_version, refresh
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.backfills import BackfillRecord
from metastore_assets.store.entries import FRAGMENTS
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.version import RefreshStats
from metastore_assets.store.versions import VersionStore, versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ESTIMATE_VERSIONS = 5
"""Number of recent versions whose durations are used to estimate the duration of a backfill."""


@dataclass(frozen=True)
class ChunkResult:
    """The result of processing one chunk of a backfill."""

    version: int | None
    """Number of the published version; None if the chunk published none."""
    fragments: int
    """Number of fragments that were read."""
    bytes: int
    """Stored size of the fragments."""
    failed_checks: tuple[str, ...] = ()
    """In Dagster, names of the checks that failed. Elsewhere, `export_<name>` for each target that could not be
    written."""


ChunkProcessor = Callable[[Chunk, str], ChunkResult]
"""Processes one chunk. The second argument is a label for messages, such as `2 of 5`; empty for a single chunk."""


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
    """`ChunkResult.failed_checks` of all chunks."""

    def to_json(self) -> dict[str, object]:
        """Return the result as `backfill --json` prints it."""
        return {**vars(self), "seconds": round(self.seconds, 3)}


def plan_backfill(
    config: MetastoreConfig,
    table: TableConfig,
    selection: BackfillSelection,
    options: BackfillOptions = DEFAULT_OPTIONS,
) -> BackfillPlan:
    """Plan a backfill of a table, with an estimate of its duration.

    Reads metadata only.

    The plan omits partitions that an interrupted backfill of the same selection has finished.

    Args:
        config: The configuration.
        table: The table.
        selection: The criteria of the partitions.
        options: Whether versions are published, the size of chunks, and whether to start from the beginning.

    Raises:
        PartitionNotFoundError: The selection matches no partition.
        ColumnNotFoundError: The condition names a column that is no partition column.
        LiteralError: A bound of the range, or a literal of the condition, is no value of its partition column.
    """
    versions, plan = versions_of(config, table.name), None
    planned_refresh = _plan_first_version(config, table, versions)
    if planned_refresh is None:
        plan = plan_version(config, table)
        planned_refresh = PlannedRefresh.of(plan)
    record = BackfillRecord.of(versions.objects, selection.id, planned_refresh.base)
    if options.restart:
        record = BackfillRecord(versions.objects, selection.id)
    backfill_plan = make_backfill_plan(
        planned_refresh, selection, options, done=record.finished_keys(planned_refresh.base)
    )
    backfill_plan = replace(backfill_plan, attempt=record.attempt)
    if not backfill_plan.chunks:
        return backfill_plan
    if plan is not None:
        backfill_plan = _without_profiled(backfill_plan, plan, versions)
    refresh_stats = _recent_refresh_stats(versions, planned_refresh.base.number if planned_refresh.base else 0)
    seconds = expected_seconds(refresh_stats, backfill_plan.bytes, len(backfill_plan.chunks))
    return replace(backfill_plan, seconds=seconds)


def _plan_first_version(config: MetastoreConfig, table: TableConfig, versions: VersionStore) -> PlannedRefresh | None:
    """Plan the first version from a stream of its fragments, which need not fit into memory.

    Returns None if the table has a version, or if its fragments cannot be streamed.
    """
    if versions.newest():
        return None
    table = with_hidden_key(config, table)
    table_format = open_table_format(table, metadata_cache(versions, full=False))
    totals = first_version_totals(versions, table_format, table)
    return None if totals is None else PlannedRefresh.of_first(table.name, totals)


def backfill(
    config: MetastoreConfig, table: TableConfig, plan: BackfillPlan, process: ChunkProcessor, result: BackfillResult
) -> None:
    """Process the chunks of a plan in order.

    If the plan's mode is `all`, the partitions of published chunks are recorded until the backfill ends. If the
    backfill is interrupted, a later plan of the same selection omits these partitions.

    Args:
        config: The configuration.
        table: The table.
        plan: The plan.
        process: Processes a chunk. Its errors are raised.
        result: Updated after each chunk. After an error, it contains the finished chunks.
    """
    start_time = time.monotonic()
    versions = versions_of(config, table.name)
    newest = versions.latest()
    record = BackfillRecord.of(versions.objects, plan.selection.id, newest)
    if record.attempt != plan.attempt:
        since = newest.number if newest else 0
        record = BackfillRecord(versions.objects, plan.selection.id, plan.attempt, since)
    record.save()
    several = len(plan.chunks)
    try:
        for number, chunk in enumerate(plan.chunks, 1):
            chunk_result = process(chunk, f"{number} of {several}" if several > 1 else "")
            result.chunks += 1
            result.partitions += len(chunk.keys)
            result.fragments += chunk_result.fragments
            result.bytes += chunk_result.bytes
            result.failed_checks = sorted({*result.failed_checks, *chunk_result.failed_checks})
            if chunk_result.version is not None:
                result.versions.append(chunk_result.version)
                if number < several and plan.selection.mode == "all":
                    record.add(chunk.keys, chunk_result.version)
    finally:
        result.seconds = time.monotonic() - start_time
    record.remove()
    result.done = plan.publishes


def local_processor(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    plan: BackfillPlan,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> ChunkProcessor:
    """Return a function that processes chunks of a backfill in this process.

    Args:
        config: The configuration.
        table: The table.
        spark: Returns the Spark session. Called only if the configured engine needs Spark (see `Engine`).
        plan: The plan of the backfill.
        progress: Called with the progress of the whole backfill.
    """
    before = Progress(table.name, "profile")

    def process(chunk: Chunk, part: str) -> ChunkResult:
        """Process a chunk, and report its progress in addition to that of the previous chunks.

        `part` names the chunk in these reports, such as `2 of 5`; empty if the backfill has a single chunk.
        """
        nonlocal before
        # `before`: the progress after the previous chunk. Progress of this chunk is added to it.
        latest, start_progress = before, before

        def report(event: Progress) -> None:
            nonlocal latest
            size = max(plan.bytes, start_progress.bytes + event.total_bytes)
            rows, read = (
                max(latest.rows, start_progress.rows + event.rows),
                max(latest.bytes, start_progress.bytes + event.bytes),
            )
            latest = replace(event, rows=rows, bytes=read, total_bytes=size, part=part and f"chunk {part}")
            progress(latest)

        process_chunk = _refresh_chunk if chunk.publishes else _save_chunk_profiles
        chunk_result = process_chunk(config, table, spark, chunk, report)
        before = replace(start_progress, rows=latest.rows, bytes=start_progress.bytes + chunk_result.bytes)
        return chunk_result

    return process


def _refresh_chunk(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    chunk: Chunk,
    progress: Callable[[Progress], None],
) -> ChunkResult:
    """Refresh the table, and read the partitions in `chunk.read_again` again.

    Partitions that the table no longer has are skipped. The result has no version if the table was up to date.
    """
    read_again = chunk.read_again
    while True:
        try:
            result = refresh(config, table, spark, RefreshRequest(partitions=read_again), progress=progress)
        except PartitionNotFoundError:
            # Partitions may have been dropped since the plan was made.
            current = plan_version(config, table).partition_keys
            remaining = tuple(key for key in read_again if key in current)
            if remaining == read_again:
                raise
            read_again = remaining
        else:
            refresh_stats = result.refresh_stats or RefreshStats(0, 0, 0.0)
            return ChunkResult(
                result.version if result.published else None,
                refresh_stats.fragments,
                refresh_stats.bytes,
                tuple(f"export_{export.target}" for export in result.failed_exports),
            )


def _save_chunk_profiles(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    chunk: Chunk,
    progress: Callable[[Progress], None],
) -> ChunkResult:
    """Profile the chunk's fragments that have no stored profile, and save the profiles for a refresh.

    Raises ProfileError if a fragment cannot be profiled.
    """
    versions, table = versions_of(config, table.name), with_hidden_key(config, table, create=True)
    progress(Progress(table.name, "plan"))
    table_format = open_table_format(table, metadata_cache(versions, full=False), SizedRunner(spark))
    keys = set(chunk.keys)
    plan = plan_first_partitions(versions, table_format, table, keys)
    if plan is None:
        plan = current_plan(versions, table_format, table, attempt=AttemptProfiles(makes_lots=False))
    plan = replace(plan, to_profile=tuple(fragment for fragment in plan.to_profile if fragment.partition_key in keys))
    context = RefreshContext(Engine.of_refresh(config, table, spark), versions, table, progress)
    profiling_result = profile_all(context, plan)
    if profiling_result.failures:
        raise profile_error(table, profiling_result.failures, len(profiling_result.entries))
    versions.save_pending(profiling_result.unsaved_entries)
    return ChunkResult(None, len(profiling_result.entries), sum(entry.bytes for entry in profiling_result.entries))


def _without_profiled(backfill_plan: BackfillPlan, plan: Plan, versions: VersionStore) -> BackfillPlan:
    """Return the backfill plan, with fewer fragments and bytes to read in the first chunk.

    Fragments whose profiles an interrupted attempt has saved are subtracted. The chunks have the same partitions as
    before.
    """
    # An interrupted attempt has saved profiles of the first unfinished chunk only.
    first = backfill_plan.chunks[0]
    attempt = AttemptProfiles.resume(versions, RefreshRequest(partitions=first.read_again))
    read_again = set(first.read_again)
    profiled_entries = {entry.key: entry for entry in attempt.entries if entry.partition_key in read_again}
    changed_partitions = {partition.key: partition.fragments for partition in plan.partitions}
    published_entries = (
        entries_of(plan.base, FRAGMENTS).find_all(profiled_entries) if plan.base and profiled_entries else {}
    )
    skipped_entries = [
        entry
        for key, entry in profiled_entries.items()
        if (
            entry.id in changed_partitions[entry.partition_key]
            if entry.partition_key in changed_partitions
            else key in published_entries and published_entries[key].id == entry.id
        )
    ]
    size = sum(entry.bytes for entry in skipped_entries)
    first = replace(first, fragments=first.fragments - len(skipped_entries), bytes=first.bytes - size)
    return replace(backfill_plan, chunks=(first, *backfill_plan.chunks[1:]))


def _recent_refresh_stats(versions: VersionStore, newest: int) -> list[RefreshStats]:
    """Return the statistics of the refreshes that published the `_ESTIMATE_VERSIONS` newest versions.

    `newest` is the number of the newest version. Versions that have expired, or have no statistics, are left out.
    """
    refresh_stats = []
    for number in range(newest, max(0, newest - _ESTIMATE_VERSIONS), -1):
        try:
            stats = versions.read(number).refresh_stats
        except VersionNotFoundError:
            break
        if stats is not None:
            refresh_stats.append(stats)
    return refresh_stats
