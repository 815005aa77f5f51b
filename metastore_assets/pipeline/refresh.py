"""Bring the Metastore of one table up to its current snapshot: plan, profile, reduce, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import (
    CorruptionError,
    FragmentError,
    MetastoreError,
    ObjectNotFoundError,
    ProfileError,
    StoreError,
    TableNotFoundError,
    VersionConflictError,
    VersionNotFoundError,
    WorkerEndedError,
)
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.history import keep_history
from metastore_assets.pipeline.assemble import next_version
from metastore_assets.pipeline.auto_policies import resolve_auto_policies
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.hidden_key import with_hidden_key
from metastore_assets.pipeline.merging.compaction import drop_value_counts
from metastore_assets.pipeline.outcome import Progress, RefreshResult, nothing_to_do, result_of
from metastore_assets.pipeline.place import table_location
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.planning import attempt_of, current_plan, is_up_to_date, memory_of
from metastore_assets.pipeline.profiling import failure_advice, profile_all, profile_error, save_as, saving
from metastore_assets.pipeline.skip_rewrites import skip_rewrites
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.storage.io_counters import count_io, io_step
from metastore_assets.store.manifest import Effort, Version
from metastore_assets.store.versions import VersionStore, versions_of
from metastore_assets.value_counts import list_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 5
_GRACE = timedelta(days=1)
"""How long a version stays after it was replaced: longer than any reader of it."""


def plan_refresh(
    config: MetastoreConfig, table: TableConfig, *, full: bool = False, partitions: Collection[str] = ()
) -> Plan:
    """What `refresh` would do now, without doing it. Reads metadata only."""
    versions, table = versions_of(config, table.name), with_hidden_key(config, table)
    table_format = open_table_format(table, memory_of(versions, full=full))
    attempt = attempt_of(versions, full=full, partitions=partitions)
    fresh = versions.pending(attempt) if attempt else ()
    return current_plan(versions, table_format, table, fresh, full=full, partitions=partitions, made={})


def is_current(config: MetastoreConfig, table: TableConfig, version: Version) -> bool:
    """Whether a version describes the table's current snapshot under the configured policies."""
    table_format = open_table_format(table, MetadataCache(lambda: version.memory))
    return is_up_to_date(table_format, with_hidden_key(config, table), version)


def refresh(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    *,
    full: bool = False,
    partitions: Collection[str] = (),
    progress: Callable[[Progress], None] = lambda progress: None,
) -> RefreshResult:
    """Publish a version for the table's current snapshot, reading only fragments without a stored profile.

    An unchanged table is left alone. Spark is asked for when there is something that `config.engine` leaves to it.
    `full` reads every fragment again; `partitions` names partitions, by key or pattern, whose fragments are read again
    in any case, but for what an interrupted refresh with the same request and the same newest version has finished.
    Safe beside other refreshes of the same table: who loses the race to publish plans again, and reads nothing twice.

    Raises ProfileError when fragments cannot be read: the last version stands, and the profiles that were finished
    are kept for the next attempt.
    """
    started = time.monotonic()
    versions = versions_of(config, table.name)
    attempt = attempt_of(versions, full=full, partitions=partitions)
    fresh = versions.pending(attempt) if attempt else []
    finished = len(fresh)
    purged = versions.known_purge
    written: set[str] = set()
    engine = Engine.of_refresh(config, table, spark)
    made: dict[str, Mapping[str, str]] = {}
    progress(Progress(table.name, "plan"))
    with (
        count_io() as meter,
        _telling_what_stands(versions),
        _without_damaged(versions, attempt),
        _telling_of_a_purge(versions),
    ):
        with io_step("plan"):
            table = with_hidden_key(config, table, make=True)
            cache = memory_of(versions, full=full)
            table_format = open_table_format(table, cache, SizedRunner(spark))
        for _ in range(_ATTEMPTS):
            with io_step("plan"):
                if (fresh or written) and versions.purged() != purged:
                    # A purge removed what was written before it.
                    versions.abandon({*written, *(path for entry in fresh for path in entry.files.paths())})
                    fresh, finished, written, made = [], 0, set(), {}
                if not full and not partitions:
                    latest = versions.latest()
                    if latest is not None and is_up_to_date(table_format, table, latest):
                        return nothing_to_do(latest, len(fresh) - finished, started, meter)
                progress(Progress(table.name, "plan"))
                plan = current_plan(versions, table_format, table, fresh, full=full, partitions=partitions, made=made)
                former, purged = purged, versions.known_purge
                if fresh and purged != former:
                    continue
            made[plan.spec.id] = plan.spec.column_specs
            with io_step("profile"):
                profiled = profile_all(engine, versions, table, plan, progress, attempt)
            if failures := profiled.failures:
                fresh += profiled.entries
                if any(failure.missing for failure in failures) and table_format.current() != plan.snapshot.reference:
                    continue  # The table moved on while it was read; what is done already is kept.
                raise profile_error(table, failures, len(profiled.entries))
            fragments = {**plan.reused, **{entry.id: entry for entry in profiled.entries}}
            with io_step("decide"), _telling_what_is_missing(table):
                with saving(versions, profiled):
                    asked, plan = plan.spec, resolve_auto_policies(engine, versions.objects, table, plan, fragments)
                    fragments = drop_value_counts(engine, versions.objects, asked, plan.spec, fragments)
                save_as(versions, profiled, fragments)
                fresh += profiled.entries
                if not full and not partitions:
                    plan = skip_rewrites(engine, versions.objects, plan, fragments)
            changed = len(plan.changed_partitions)
            progress(Progress(table.name, "reduce", 0, changed, "partitions", changed))
            then_the_table = partial(progress, Progress(table.name, "reduce", changed, changed, "partitions"))
            try:
                with io_step("reduce"), _telling_what_is_missing(table):
                    new = next_version(
                        engine,
                        versions.objects,
                        plan,
                        fragments,
                        config.keep_versions,
                        then_the_table=then_the_table,
                        memory=cache.entries,
                    )
            except FragmentError as error:
                # What fingerprints stand for is read in the table's files, which may be gone by now.
                if error.missing and table_format.current() != plan.snapshot.reference:
                    continue
                raise ProfileError(
                    f"table {table.name!r}: {error}: values that occur twice could not be read there. "
                    f"{failure_advice([error.unsupported])}"
                ) from error
            with io_step("lists"):  # before the former version may go
                lists = list_changes(versions.objects, plan.base.lists if plan.base else None, new.lists)
            progress(Progress(table.name, "publish"))
            read = fresh[finished:]
            effort = Effort(len(read), sum(entry.bytes for entry in read), time.monotonic() - started)
            new = replace(new, effort=effort, place=table_location(table, new.format))
            with io_step("publish"):
                try:
                    versions.publish(new, plan.base)
                except VersionConflictError:
                    versions.discard(new, plan.base)
                    written.update(new.paths())
                    continue
                versions.clear_pending()
                with suppress(StoreError):  # what this leaves, the next refresh removes, or `expire`, which tells why
                    outdated = keep_history(versions, plan.base, new, config.keep_versions, _GRACE)
                    versions.drop_outdated(outdated + config.keep_versions, config.keep_versions, _GRACE)
            return result_of(plan, new, lists, len(read), started, meter)
    raise MetastoreError(
        f"table {table.name!r} changed during each of {_ATTEMPTS} attempts to refresh it; what was profiled is kept, "
        "run the refresh again"
    )


@contextmanager
def _telling_of_a_purge(versions: VersionStore) -> Iterator[None]:
    """Where files that a refresh needs are gone because of a purge, say that instead of what is missing."""
    try:
        yield
    except (CorruptionError, ObjectNotFoundError) as error:
        former = versions.known_purge
        if former is None or versions.purged() == former:
            raise
        raise MetastoreError(
            f"table {versions.table!r} was purged while it was refreshed, which removed what the refresh had written: "
            "run the refresh again"
        ) from error


@contextmanager
def _without_damaged(versions: VersionStore, attempt: str) -> Iterator[None]:
    """What an attempt kept is not what the next one goes on with, where it may be that which is damaged."""
    try:
        yield
    except (CorruptionError, WorkerEndedError):
        if attempt:
            versions.clear_pending()
        raise


@contextmanager
def _telling_what_stands(versions: VersionStore) -> Iterator[None]:
    """Where there is no table any more, say what becomes of its last version."""
    try:
        yield
    except WorkerEndedError as error:
        raise WorkerEndedError(
            f"table {versions.table!r}: {error}. The last version stands; if that repeats, a stored profile may be "
            f"damaged: `metastore refresh {versions.table} --full` reads everything again"
        ) from error
    except TableNotFoundError as error:
        newest = versions.newest()
        if not newest:
            raise
        raise TableNotFoundError(
            f"{error}; version {newest} of table {versions.table!r} stays readable, but is of a table that is "
            "gone: bring its files back, or take it out of the configuration"
        ) from error


@contextmanager
def _telling_what_is_missing(table: TableConfig) -> Iterator[None]:
    """Where only stored state is read: what the last version names must be there."""
    try:
        yield
    except (ObjectNotFoundError, VersionNotFoundError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, ObjectNotFoundError) else error
        raise CorruptionError(
            f"table {table.name!r}: {cause}, though the last version names it; that version stands as it is, and "
            f"`metastore refresh {table.name} --full` reads everything again"
        ) from error
