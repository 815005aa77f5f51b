"""The chunks of a backfill as runs of Dagster: launched in the instance one after the other, and waited for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, __version__
from dagster._cli.job import _create_run
from dagster._cli.workspace.cli_target import (  # type: ignore[attr-defined]
    WorkspaceOpts,
    get_workspace_from_cli_opts,
)
from dagster._core.errors import DagsterHomeNotSetError
from dagster._core.remote_representation.external import RemoteJob, RemoteRepository
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster._core.workspace.context import BaseWorkspaceRequestContext
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon

from metastore_assets.assets.names import TABLE_TAG
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.backfill import Done, Work
from metastore_assets.pipeline.backfill_plan import Chunk
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.manifest import Effort
from metastore_assets.store.versions import VersionStore

BACKFILL_TAG = "metastore/backfill"
"""Tag of the runs of a backfill that the command launched: the digest of what was chosen."""
_JOB = "_refresh"
"""What the names of the tables' jobs end with."""
_SECONDS_BETWEEN_LOOKS = 1.0
_HEARTBEAT = 180.0
"""Seconds since its last sign of life after which a daemon is taken for one that does not run; it gives one each 30."""


@contextmanager
def launching(
    versions: VersionStore, backfill: str, progress: Callable[[Progress], None] = lambda progress: None
) -> Iterator[Work]:
    """Work that is done by runs of the table's job, in the instance of $DAGSTER_HOME.

    The job is looked for in the code locations of `workspace.yaml`, or of what else Dagster finds in the working
    folder. `backfill` becomes a tag of the runs. Raises ConfigError where instance, daemon, or job are not there.
    """
    try:
        with DagsterInstance.get() as instance:
            _check_daemon(instance)
            with get_workspace_from_cli_opts(
                instance, version=__version__, workspace_opts=WorkspaceOpts(), log_level="ERROR"
            ) as workspace:
                yield work_in(instance, workspace, versions, backfill, progress)
    except DagsterHomeNotSetError as error:
        raise ConfigError(
            "--via dagster launches runs in an instance of Dagster, and $DAGSTER_HOME does not say which: set it to "
            "the folder that the daemon uses"
        ) from error
    except click.UsageError as error:
        raise ConfigError(
            f"--via dagster looks for the job in the code locations of the working folder: {error.format_message()}"
        ) from error


def work_in(
    instance: DagsterInstance,
    workspace: BaseWorkspaceRequestContext,
    versions: VersionStore,
    backfill: str,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Work:
    """The same with an instance and code locations at hand."""
    table = versions.table
    place = _place_of(workspace, table)

    def do(chunk: Chunk, part: str) -> Done:
        before = versions.newest()
        run = _create_run(
            instance=instance,
            code_location=workspace.get_code_location(place.location),
            remote_repo=place.repository,
            remote_job=place.job,
            run_config={"ops": {_op_of(place.job): {"config": {"partitions": list(chunk.again)}}}},
            tags={BACKFILL_TAG: backfill, **({f"{BACKFILL_TAG}_chunk": part} if part else {})},
            op_selection=None,
            run_id=None,
        )
        instance.submit_run(run.run_id, workspace)
        _wait(instance, table, run.run_id, part, progress)
        latest = versions.latest()
        if latest is None or (chunk.again and latest.number == before):
            raise ConfigError(
                f"table {table!r}: run {run.run_id} of Dagster ended well, and nothing was published below "
                f"{versions.objects.uri()}: Dagster and this command use different configurations"
            )
        effort = latest.effort or Effort(0, 0, 0.0)
        if latest.number == before:
            return Done(None, 0, 0)
        return Done(latest.number, effort.fragments, effort.bytes)

    return do


def _wait(instance: DagsterInstance, table: str, run: str, part: str, progress: Callable[[Progress], None]) -> None:
    """Wait until a run has ended. Raises MetastoreError with what it says of itself when it did not end well."""
    told = None
    while True:
        status = _run(instance, table, run).status
        if status != told:
            progress(
                Progress(table, f"run {run[:8]} of Dagster is {status.value.lower().replace('_', ' ')}", part=part)
            )
            told = status
        if status == DagsterRunStatus.SUCCESS:
            return
        if status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
            ended = "failed" if status == DagsterRunStatus.FAILURE else "was cancelled"
            raise MetastoreError(f"table {table!r}: run {run} of Dagster {ended}{_reason(instance, run)}")
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _run(instance: DagsterInstance, table: str, run: str) -> DagsterRun:
    found = instance.get_run_by_id(run)
    if found is None:
        raise MetastoreError(f"table {table!r}: run {run} of Dagster was deleted while it was waited for")
    return found


def _reason(instance: DagsterInstance, run: str) -> str:
    """Of a run that failed: what was raised in it, or what Dagster says of its end."""
    for kind in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
        for record in instance.get_records_for_run(run, of_type=kind).records:
            event = record.event_log_entry.dagster_event
            if event is not None and event.is_step_failure:
                data = event.step_failure_data
                own = data.user_failure_data.description if data.user_failure_data else None
                return f": {own or (data.error.message if data.error else event.message)}"
            if event is not None and event.message:
                return f": {event.message}"
    return ""


@dataclass(frozen=True)
class _Place:
    """Where the job is that refreshes a table."""

    location: str
    repository: RemoteRepository
    job: RemoteJob


def _place_of(workspace: BaseWorkspaceRequestContext, table: str) -> _Place:
    """The table's job: of a Metastore without a prefix, else the only one of a table of that name."""
    found = {
        (job.tags.get(TABLE_TAG) != table, location.name, job.name): _Place(location.name, repository, job)
        for location in workspace.code_locations
        for repository in location.get_repositories().values()
        for job in repository.get_all_jobs()
        if job.name.endswith(_JOB) and (tag := job.tags.get(TABLE_TAG, "")) and tag.rpartition(".")[2] == table
    }
    own = [place for (other, *_), place in sorted(found.items()) if not other] or list(found.values())
    if len(own) == 1:
        return own[0]
    if own:
        names = ", ".join(f"{place.job.name} in {place.location}" for place in own)
        raise ConfigError(f"table {table!r}: several jobs refresh a table of that name: {names}; launch one in Dagster")
    entries = workspace.get_code_location_entries().items()
    errors = [f"{name}: {entry.load_error.message}" for name, entry in entries if entry.load_error]
    names = ", ".join(workspace.code_location_names) or "none"
    raise ConfigError(
        f"table {table!r}: no job of the code locations here refreshes it; there are: {names}"
        + (f"; not loaded: {'; '.join(errors)}" if errors else "")
    )


def _op_of(job: RemoteJob) -> str:
    """The op of a table's job: both begin as the table's other names do."""
    return f"{job.name.removesuffix(_JOB)}_profile"


def _check_daemon(instance: DagsterInstance) -> None:
    """Where runs wait in a queue, somebody has to take them from there."""
    if not isinstance(instance.run_coordinator, QueuedRunCoordinator):
        return
    heartbeat = instance.get_daemon_heartbeats().get(QueuedRunCoordinatorDaemon.daemon_type())
    if heartbeat is None or time.time() - heartbeat.timestamp > _HEARTBEAT:
        raise ConfigError(
            "--via dagster puts runs into the queue of the instance, and no daemon takes them from there: start one "
            "(`dagster-daemon run`, or `dagster dev`), or leave out --via dagster"
        )
