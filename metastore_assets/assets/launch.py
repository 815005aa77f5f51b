"""The chunks of a backfill as Dagster runs: launched one after the other, and followed until they end."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from metastore_assets.assets.graphql import graphql_string, run_graphql
from metastore_assets.assets.metadata import VERSION
from metastore_assets.assets.names import TABLE_TAG
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.backfill import ChunkProcessor, ChunkResult
from metastore_assets.pipeline.backfill_plan import Chunk
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.manifest import RefreshStats
from metastore_assets.store.versions import VersionStore

BACKFILL_TAG = "metastore/backfill"
"""Tag of the runs that a backfill command launched. Its value identifies the backfill; a command that continues an
interrupted backfill uses the same value."""
_JOB_SUFFIX = "_refresh"
_POLL_SECONDS = 1.0
_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
_WORKSPACE = """{
  instance { daemonHealth { daemonStatus(daemonType: "QUEUED_RUN_COORDINATOR") { required healthy } } }
  workspaceOrError {
    ... on PythonError { message }
    ... on Workspace { locationEntries { name locationOrLoadError {
      ... on PythonError { message }
      ... on RepositoryLocation { repositories { name jobs { name tags { key value } } } }
    } } }
  }
}"""
_LAUNCH = """mutation {
  launchRun(executionParams: {
    selector: {repositoryLocationName: %(location)s, repositoryName: %(repository)s, jobName: %(job)s}
    runConfigData: %(config)s
    executionMetadata: {tags: [%(tags)s]}
  }) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on InvalidSubsetError { message }
    ... on PipelineNotFoundError { message }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on UnauthorizedError { message }
  }
}"""


@contextmanager
def launching(
    versions: VersionStore, backfill: str, progress: Callable[[Progress], None] = lambda progress: None
) -> Iterator[ChunkProcessor]:
    """Yield a function that does a chunk as a run of the table's job, in the instance of $DAGSTER_HOME.

    The job is searched in the code locations of `workspace.yaml`, or in what else Dagster finds in the working folder.

    Args:
        versions: The versions of the table.
        backfill: Identifies the backfill; the value of `BACKFILL_TAG`.
        progress: Called when the status of a run changes.

    Raises:
        ConfigError: There is no instance, no daemon that takes runs from the queue, or no job of the table.
    """
    if not os.environ.get("DAGSTER_HOME"):
        raise ConfigError(
            "--via dagster launches runs in a Dagster instance, and $DAGSTER_HOME does not name one: set it to the "
            "folder that the daemon uses"
        )
    job = _resolve_job(versions.table)
    with DagsterInstance.get() as instance:
        yield run_chunks(instance, job, versions, backfill, progress)


@dataclass(frozen=True)
class RefreshJob:
    """The job that refreshes a table, and the code location that it belongs to."""

    location: str
    repository: str
    name: str

    @property
    def op(self) -> str:
        """The job's op: both names begin with the name of the table."""
        return f"{self.name.removesuffix(_JOB_SUFFIX)}_profile"


def run_chunks(
    instance: DagsterInstance,
    job: RefreshJob,
    versions: VersionStore,
    backfill: str,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> ChunkProcessor:
    """Return a function that does a chunk as a run of `job`; see `launching` for the arguments.

    A run that an interrupted command of the same backfill launched for the same partitions is followed instead of
    launching another.
    """

    def do(chunk: Chunk, part: str) -> ChunkResult:
        before = versions.newest()
        run_id = _launched_before(instance, job, backfill, chunk)
        launched = run_id is None
        if run_id is None:
            run_id = _launch(job, backfill, chunk, part)
        failed_checks = _follow(instance, versions.table, run_id, part, progress)
        published = _published_version(instance, run_id)
        latest = versions.latest()
        unchanged = latest is None or (launched and latest.number == before)
        if latest is None or (chunk.read_again and (unchanged or published is None or published > latest.number)):
            raise ConfigError(
                f"table {versions.table!r}: run {run_id} of Dagster succeeded, and published nothing below "
                f"{versions.objects.uri()}: Dagster and this command use different configurations"
            )
        if unchanged:
            return ChunkResult(None, 0, 0, failed_checks)
        refresh_stats = latest.refresh_stats or RefreshStats(0, 0, 0.0)
        return ChunkResult(published or latest.number, refresh_stats.fragments, refresh_stats.bytes, failed_checks)

    return do


def _launched_before(instance: DagsterInstance, job: RefreshJob, backfill: str, chunk: Chunk) -> str | None:
    """Return the run that this backfill launched for the chunk's partitions before it was interrupted.

    A run that ended counts only for partitions that are read again: what is out of date is planned from the newest
    version, which has what such a run published.
    """
    statuses = [*_UNFINISHED, *(_ENDED if chunk.read_again else ())]
    records = instance.get_run_records(RunsFilter(tags={BACKFILL_TAG: backfill}, statuses=statuses, job_name=job.name))
    for run in (record.dagster_run for record in records):
        if run.run_config != _run_config(job, chunk):
            continue
        if run.status != DagsterRunStatus.FAILURE or _failed_checks(instance, run.run_id):
            return run.run_id
    return None


def _run_config(job: RefreshJob, chunk: Chunk) -> dict[str, Any]:
    return {"ops": {job.op: {"config": {"partitions": list(chunk.read_again)}}}}


def _launch(job: RefreshJob, backfill: str, chunk: Chunk, part: str) -> str:
    """Launch a run of the job. Returns the run's id."""
    tags = {BACKFILL_TAG: backfill, **({f"{BACKFILL_TAG}_chunk": part} if part else {})}
    values = {
        "location": graphql_string(job.location),
        "repository": graphql_string(job.repository),
        "job": graphql_string(job.name),
        "config": graphql_string(json.dumps(_run_config(job, chunk), ensure_ascii=False)),
        "tags": ", ".join(f"{{key: {graphql_string(key)}, value: {graphql_string(tags[key])}}}" for key in tags),
    }
    launched = run_graphql(_LAUNCH % values)["launchRun"]
    if "run" not in launched:
        errors = launched.get("errors") or [launched]
        raise MetastoreError(f"Dagster did not launch {job.name!r}: {errors[0].get('message', launched['__typename'])}")
    run_id: str = launched["run"]["runId"]
    return run_id


def _follow(
    instance: DagsterInstance, table: str, run_id: str, part: str, progress: Callable[[Progress], None]
) -> tuple[str, ...]:
    """Wait until a run has ended.

    A run that fails after it published has a failed blocking check: the chunk is done.

    Returns:
        The names of the failed checks.

    Raises:
        MetastoreError: The run failed before it published, was cancelled, or was deleted.
    """
    reported = None
    while True:
        status = _run(instance, table, run_id).status
        if status != reported:
            stage = f"run {run_id[:8]} of Dagster is {status.value.lower().replace('_', ' ')}"
            progress(Progress(table, stage, part=part))
            reported = status
        if status == DagsterRunStatus.SUCCESS:
            return _failed_checks(instance, run_id)
        if status == DagsterRunStatus.FAILURE and (failed := _failed_checks(instance, run_id)):
            return failed
        if status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
            ended = "failed" if status == DagsterRunStatus.FAILURE else "was cancelled"
            raise MetastoreError(f"table {table!r}: run {run_id} of Dagster {ended}{_reason(instance, run_id)}")
        time.sleep(_POLL_SECONDS)


def _run(instance: DagsterInstance, table: str, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    if run is None:
        raise MetastoreError(f"table {table!r}: run {run_id} of Dagster was deleted while this command waited for it")
    return run


def _failed_checks(instance: DagsterInstance, run_id: str) -> tuple[str, ...]:
    """Return the names of the asset checks that failed in a run. Checks are evaluated after a version is published."""
    failed = []
    for record in instance.get_records_for_run(run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION).records:
        event = record.event_log_entry.dagster_event
        if event is not None and not event.asset_check_evaluation_data.passed:
            failed.append(event.asset_check_evaluation_data.check_name)
    return tuple(failed)


def _published_version(instance: DagsterInstance, run_id: str) -> int | None:
    """Return the version that a run reported last; None if it reported none."""
    records = instance.get_records_for_run(
        run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION, limit=1, ascending=False
    ).records
    materialization = records[0].asset_materialization if records else None
    version = materialization.metadata.get(VERSION) if materialization else None
    return version.value if version is not None and isinstance(version.value, int) else None


def _reason(instance: DagsterInstance, run_id: str) -> str:
    """Return why a run failed: the error of the step, or else of the run."""
    for kind in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
        for record in instance.get_records_for_run(run_id, of_type=kind).records:
            event = record.event_log_entry.dagster_event
            if event is not None and event.is_step_failure:
                data = event.step_failure_data
                description = data.user_failure_data.description if data.user_failure_data else None
                return f": {description or (data.error.message if data.error else event.message)}"
            if event is not None and event.message:
                return f": {event.message}"
    return ""


def _resolve_job(table: str) -> RefreshJob:
    """Return the table's job: that of a Metastore without a prefix, else the only one for a table of that name."""
    answer = run_graphql(_WORKSPACE)
    daemon = answer["instance"]["daemonHealth"]["daemonStatus"]
    if daemon["required"] and not daemon["healthy"]:
        raise ConfigError(
            "--via dagster puts runs into the queue of the instance, and no daemon takes them from there: start one "
            "(`dagster-daemon run`, or `dagster dev`), or leave out --via dagster"
        )
    if "message" in answer["workspaceOrError"]:
        raise ConfigError(f"Dagster cannot load the working folder: {answer['workspaceOrError']['message']}")
    entries = answer["workspaceOrError"]["locationEntries"]
    exact, others, errors = list[RefreshJob](), list[RefreshJob](), list[str]()
    for entry in entries:
        location = entry["locationOrLoadError"] or {}
        if "message" in location:
            errors.append(f"{entry['name']}: {location['message']}")
        for repository in location.get("repositories", ()):
            for job in repository["jobs"]:
                tag = {tag["key"]: tag["value"] for tag in job["tags"]}.get(TABLE_TAG, "")
                if job["name"].endswith(_JOB_SUFFIX) and tag.rpartition(".")[2] == table:
                    matches = exact if tag == table else others
                    matches.append(RefreshJob(entry["name"], repository["name"], job["name"]))
    jobs = exact or others
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        names = ", ".join(sorted(f"{job.name} in {job.location}" for job in jobs))
        raise ConfigError(f"table {table!r}: several jobs refresh a table of that name: {names}; launch one in Dagster")
    names = ", ".join(entry["name"] for entry in entries) or "none"
    raise ConfigError(
        f"table {table!r}: no job of the code locations here refreshes it; there are: {names}"
        + (f"; not loaded: {'; '.join(errors)}" if errors else "")
    )
