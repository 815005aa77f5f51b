"""Execution of a backfill's chunks as Dagster runs, one by one (`metastore backfill --via dagster`).

A chunk is a group of partitions that one run refreshes. A run publishes a version below a root: the folder with all
stored state, which the configuration names.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from metastore_assets.assets.graphql import graphql_string, run_graphql
from metastore_assets.assets.metadata import VERSION
from metastore_assets.assets.names import (
    TABLE_TAG,
    TAG_DIGEST_LENGTH,
    UNFINISHED,
    identifier,
    is_shortened_tag,
    table_tag,
)
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.backfill import ChunkProcessor, ChunkResult
from metastore_assets.pipeline.backfill_plan import Chunk
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.version import RefreshStats
from metastore_assets.store.versions import VersionStore

BACKFILL_TAG = "metastore/backfill"
"""The tag of runs that `metastore backfill` launched. Its value is the id of the backfill, which stays the same when
another command continues the backfill."""
_JOB_SUFFIX = "_refresh"
_MAX_PREFIXES = 100_000
"""Maximum number of prefixes that `_is_tag_of` derives from a job's name and compares with the job's tag."""
_POLL_SECONDS = 1.0
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
def open_run_executor(
    versions: VersionStore, backfill: str, progress: Callable[[Progress], None] = lambda progress: None
) -> Iterator[ChunkProcessor]:
    """Yield a function that executes a chunk as a run of the table's job.

    The run is in the instance of $DAGSTER_HOME. Dagster looks for the job in the code locations of the working folder.

    Args:
        versions: The versions of the table.
        backfill: The id of the backfill, the value of `BACKFILL_TAG`.
        progress: A function that is called when the status of a run changes.

    Raises:
        ConfigError: There is no instance, no daemon that takes runs from the queue, or no job of the table.
    """
    if not os.environ.get("DAGSTER_HOME"):
        raise ConfigError(
            "--via dagster launches runs in a Dagster instance, and $DAGSTER_HOME does not name one: set it to the "
            "folder that the daemon uses"
        )
    job = find_refresh_job(run_graphql(_WORKSPACE), versions.table)
    with DagsterInstance.get() as instance:
        yield run_executor(instance, job, versions, backfill, progress)


@dataclass(frozen=True)
class RefreshJob:
    """The job that refreshes a table, with its code location and repository."""

    location: str
    repository: str
    name: str

    @property
    def op(self) -> str:
        """The name of the job's op."""
        return f"{self.name.removesuffix(_JOB_SUFFIX)}_profile"


def run_executor(
    instance: DagsterInstance,
    job: RefreshJob,
    versions: VersionStore,
    backfill: str,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> ChunkProcessor:
    """Return a function that executes a chunk as a run of `job` and waits until the run ends.

    If an interrupted command of the same backfill has launched a run for the chunk, the function waits for that run.

    Args:
        instance: The Dagster instance.
        job: The job of the table.
        versions: The versions of the table.
        backfill: The id of the backfill, the value of `BACKFILL_TAG`.
        progress: A function that is called when the status of a run changes.
    """

    def execute(chunk: Chunk, part: str) -> ChunkResult:
        """Execute a chunk.

        The version number in the result is None if a newly launched run published no version.

        Args:
            chunk: The partitions to refresh.
            part: The number of the chunk, such as `2 of 5`; empty for a single chunk.

        Raises:
            ConfigError: The run succeeded, but published nothing below the root of this command. Probably Dagster has
                another configuration.
            MetastoreError: Dagster did not launch the run, or the run failed before it published a version.
        """
        before = versions.newest()
        run_id = _find_launched_run(instance, job, backfill, chunk)
        is_new = run_id is None
        if run_id is None:
            run_id = _launch(job, backfill, chunk, part)
        failed_checks = _wait_for_run(instance, versions.table, run_id, part, progress)
        published_number = _reported_version(instance, run_id)
        latest = versions.latest()
        is_unchanged = latest is None or (is_new and latest.number == before)
        if latest is None or (
            chunk.read_again and (is_unchanged or published_number is None or published_number > latest.number)
        ):
            raise ConfigError(
                f"table {versions.table!r}: run {run_id} of Dagster succeeded but published nothing below "
                f"{versions.objects.uri()}: use the same configuration for Dagster and this command"
            )
        if is_unchanged:
            return ChunkResult(None, 0, 0, failed_checks)
        refresh_stats = latest.refresh_stats or RefreshStats(0, 0, 0.0)
        return ChunkResult(
            published_number or latest.number, refresh_stats.fragments, refresh_stats.bytes, failed_checks
        )

    return execute


def _find_launched_run(instance: DagsterInstance, job: RefreshJob, backfill: str, chunk: Chunk) -> str | None:
    """Return the id of a run that was launched before for the same chunk of the backfill.

    Returns None if there is no such run. A run that has not ended always counts. An ended run counts only if both of
    these are true:

    - `chunk.read_again` has partitions, which are read even if their statistics are stored. Without such partitions,
      the backfill was planned from a version that already contains the results of ended runs.
    - The run published its version: it was successful, or only a check failed.
    """
    # Outdated partitions were planned from the newest version, which already contains the results of all ended runs.
    statuses = [*UNFINISHED, *(_ENDED if chunk.read_again else ())]
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
    """Launch a run of the job for a chunk, and return the run's id.

    Raises MetastoreError if Dagster refuses.

    Args:
        job: The job of the table.
        backfill: The id of the backfill.
        chunk: The partitions to refresh.
        part: The number of the chunk, such as `2 of 5`. It becomes a tag of the run unless it is empty.
    """
    tags = {BACKFILL_TAG: backfill, **({f"{BACKFILL_TAG}_chunk": part} if part else {})}
    values = {
        "location": graphql_string(job.location),
        "repository": graphql_string(job.repository),
        "job": graphql_string(job.name),
        "config": graphql_string(json.dumps(_run_config(job, chunk), ensure_ascii=False)),
        "tags": ", ".join(f"{{key: {graphql_string(key)}, value: {graphql_string(tags[key])}}}" for key in tags),
    }
    launch_response = run_graphql(_LAUNCH % values)["launchRun"]
    if "run" not in launch_response:
        errors = launch_response.get("errors") or [launch_response]
        raise MetastoreError(
            f"Dagster did not launch the job {job.name!r}: {errors[0].get('message', launch_response['__typename'])}"
        )
    run_id: str = launch_response["run"]["runId"]
    return run_id


def _wait_for_run(
    instance: DagsterInstance, table: str, run_id: str, part: str, progress: Callable[[Progress], None]
) -> tuple[str, ...]:
    """Wait until a run has published its version and ended.

    Args:
        instance: The Dagster instance.
        table: The name of the table, for messages.
        run_id: The id of the run.
        part: The number of the chunk, such as `2 of 5`, for messages.
        progress: A function that is called when the status of the run changes.

    Returns:
        The names of the checks that failed.

    Raises:
        MetastoreError: The run failed before it published a version, was cancelled, or was deleted.
    """
    reported_status = None
    while True:
        status = _run(instance, table, run_id).status
        if status != reported_status:
            stage = f"run {run_id[:8]} of Dagster is {status.value.lower().replace('_', ' ')}"
            progress(Progress(table, stage, part=part and f"chunk {part}"))
            reported_status = status
        if status == DagsterRunStatus.SUCCESS:
            return _failed_checks(instance, run_id)
        if status == DagsterRunStatus.FAILURE and (failed_checks := _failed_checks(instance, run_id)):
            return failed_checks
        if status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
            outcome = "failed" if status == DagsterRunStatus.FAILURE else "was cancelled"
            raise MetastoreError(f"table {table!r}: run {run_id} of Dagster {outcome}{_error_text(instance, run_id)}")
        time.sleep(_POLL_SECONDS)


def _run(instance: DagsterInstance, table: str, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    if run is None:
        raise MetastoreError(f"table {table!r}: run {run_id} of Dagster was deleted while this command waited for it")
    return run


def _failed_checks(instance: DagsterInstance, run_id: str) -> tuple[str, ...]:
    """Return the names of the checks that failed in a run."""
    failed_checks = []
    for record in instance.get_records_for_run(run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION).records:
        event = record.event_log_entry.dagster_event
        if event is not None and not event.asset_check_evaluation_data.passed:
            failed_checks.append(event.asset_check_evaluation_data.check_name)
    return tuple(failed_checks)


def _reported_version(instance: DagsterInstance, run_id: str) -> int | None:
    """Return the number of the version that a run reported to Dagster; None if it reported none."""
    records = instance.get_records_for_run(
        run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION, limit=1, ascending=False
    ).records
    materialization = records[0].asset_materialization if records else None
    version = materialization.metadata.get(VERSION) if materialization else None
    return version.value if version is not None and isinstance(version.value, int) else None


def _error_text(instance: DagsterInstance, run_id: str) -> str:
    """Return the error message of the failed step, or else of the run, as `: message`.

    If there is no error, the text is empty.
    """
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


def _is_tag_of(tag: str, table: str, job: str) -> bool:
    """Return whether a job refreshes a table, judged by the job's tag `TABLE_TAG` and the job's name.

    A readable tag must name the table: `orders`, or `sales.orders` if the assets have the prefix `sales`.

    A tag that would be too long is shortened, and ends in a digest, so it does not show the table's name. Then the
    possible prefixes are derived from the job's name, in which `_` may stand for `-` or `.`. The result is True if
    `table_tag` returns the tag for the table and one of these prefixes.

    Args:
        tag: The value of `TABLE_TAG`, with or without a prefix.
        table: The name of the table.
        job: The name of the job.
    """
    if tag == table_tag(table) or tag.rpartition(".")[2] == table:
        return True
    before_table, suffix, after = job.rpartition(f"{identifier(table)}{_JOB_SUFFIX}")
    if not is_shortened_tag(tag) or not suffix or after:
        return False
    prefix = before_table.removesuffix("_")
    start = tag[:-TAG_DIGEST_LENGTH][: len(prefix)]
    ends = product(*("._-" if char == "_" else char for char in prefix[len(start) :]))
    return any(table_tag(f"{start}{''.join(end)}.{table}") == tag for end in islice(ends, _MAX_PREFIXES))


def find_refresh_job(answer: Mapping[str, Any], table: str) -> RefreshJob:
    """Return the job that refreshes a table.

    Jobs name their table in the tag `TABLE_TAG`. A job with the tag `orders` takes precedence over jobs with a prefix
    in the tag, such as `sales.orders`.

    Args:
        answer: The answer to the GraphQL query `_WORKSPACE`: the state of the daemon, and the code locations.
        table: The name of the table.

    Raises:
        ConfigError: Dagster queues runs and no daemon starts them, or Dagster cannot load the working folder. Or no
            job refreshes the table, or several do.
    """
    daemon = answer["instance"]["daemonHealth"]["daemonStatus"]
    if daemon["required"] and not daemon["healthy"]:
        raise ConfigError(
            "--via dagster queues runs, and no daemon of the instance starts queued runs: start one "
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
                if job["name"].endswith(_JOB_SUFFIX) and _is_tag_of(tag, table, job["name"]):
                    matches = exact if tag == table_tag(table) else others
                    matches.append(RefreshJob(entry["name"], repository["name"], job["name"]))
    jobs = exact or others
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        names = ", ".join(sorted(f"{job.name} in {job.location}" for job in jobs))
        raise ConfigError(f"table {table!r}: several jobs refresh a table of that name: {names}; launch one in Dagster")
    names = ", ".join(entry["name"] for entry in entries) or "none"
    raise ConfigError(
        f"table {table!r}: no job in the code locations of the working folder refreshes it; code locations: {names}"
        + (f"; not loaded: {'; '.join(errors)}" if errors else "")
    )
