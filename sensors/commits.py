"""The commit sensor of a table, which launches a run for each commit to the table.

A run publishes a version: the statistics of the table at one snapshot.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    RepositoryDefinition,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from metastore_assets.assets.checks import current_check_name, escape_markdown
from metastore_assets.assets.names import DAGSTER_BACKFILL_TAG, RUN_KEY_TAG, TABLE_TAG, UNFINISHED, TableNames
from metastore_assets.assets.pending_events import is_partitioned
from metastore_assets.assets.reported_state import reported_version
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.config import SensorStatus, TableConfig
from metastore_assets.formats import SnapshotReference
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.pipeline.version_policies import matches_policies
from metastore_assets.report.text import to_one_line
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.decision import Cursor, SensorState, decide_run, update_missing_table
from metastore_assets.sensors.reload import request_reload
from metastore_assets.sensors.table_probe import ProbeResult, TableProbe
from metastore_assets.sensors.timeout import TimeoutRunner, tick_timeout
from metastore_assets.store.version import Version

_FINISHED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_KEYS_PER_QUERY = 32
"""The maximum number of run keys in one query to Dagster."""
_DEAD_AFTER = 3600.0
"""Seconds without an event after which a started run counts as dead, for example because its machine has failed. The
sensor then reports it as failed, because it would otherwise occupy a limit of concurrent runs forever. A run of a table
logs more often, and a run whose worker is running, according to Dagster's run launcher, is not dead."""


def commit_sensor(
    configuration: Configuration,
    table: TableConfig,
    names: TableNames,
    job: Any,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """Return the sensor of one table, which launches runs of `job`.

    A tick reads the table's current snapshot, the newest version and recent runs in Dagster. It needs no Spark.

    Args:
        configuration: The configuration that has the table.
        table: The table as configured when the code location was loaded.
        names: The table's names in Dagster.
        job: The job that refreshes the table.
        default_status: The initial status of the sensor, before a user starts or stops it.
    """
    runner = TimeoutRunner[ProbeResult]()
    table_probe = TableProbe(configuration, table.name)
    checked_version = [0]
    """The newest version that was compared with the loaded assets."""

    @sensor(
        name=names.sensor,
        job=job,
        minimum_interval_seconds=table.sensor.interval,
        default_status=default_status,
        # The page of a sensor shows its description as plain text.
        description=f"Launches a run for each commit to the table {table.name!r}, which refreshes its profiles. "
        "Retries a failed run on the next tick, then after increasing pauses.",
    )
    def commits(context: SensorEvaluationContext) -> SensorResult:
        """Return a request for a run if `decide_run` decides so; otherwise the reason to skip this tick."""
        last_cursor = Cursor.from_json(context.cursor)
        missing_table = last_cursor.missing
        with hide_secrets():
            configuration_json = table_probe.configuration_json() if missing_table else ""
            if missing_table and missing_table.is_too_early(
                _digest(configuration_json), table.sensor.interval, time.time()
            ):
                return SensorResult(skip_reason=SkipReason(missing_table.describe(time.time())), cursor=context.cursor)
            probe_result = runner.run(table_probe.probe, tick_timeout())
        last_cursor = replace(last_cursor, missing=None)
        if probe_result.latest is not None and probe_result.latest.number != checked_version[0]:
            checked_version[0] = probe_result.latest.number
            if not _fits_loaded_assets(probe_result.latest, names, context.repository_def):
                change = "now has" if is_partitioned(probe_result.latest) else "no longer has"
                context.log.info("table %r %s partitions: %s", table.name, change, request_reload(context))
        if probe_result.current is None and probe_result.latest is None:
            now, interval = time.time(), probe_result.table.sensor.interval
            missing_table = update_missing_table(
                missing_table,
                _digest(probe_result.configuration_json),
                to_one_line(probe_result.absence),
                interval,
                now,
            )
            cursor = replace(last_cursor, missing=missing_table).to_json()
            return SensorResult(skip_reason=SkipReason(missing_table.describe(now)), cursor=cursor)
        if probe_result.current is None:
            assert probe_result.latest is not None
            events = (
                []
                if last_cursor.is_dropped
                else [dropped_check(probe_result.table, names, probe_result.latest, probe_result.absence)]
            )
            cursor = replace(last_cursor, is_dropped=True).to_json()
            reason = f"version {probe_result.latest.number} remains the newest: {probe_result.absence}"
            return SensorResult(skip_reason=SkipReason(reason), cursor=cursor, asset_events=events)
        state = update_sensor_state(context.instance, probe_result, probe_result.current, names)
        decision = decide_run(
            replace(last_cursor, is_dropped=False), state, probe_result.table.sensor.interval, time.time()
        )
        cursor = decision.cursor.to_json()
        if decision.attempt is None:
            is_restored = last_cursor.is_dropped and state.is_current
            events = [restored_check(probe_result.table, names, state)] if is_restored else []
            return SensorResult(skip_reason=SkipReason(decision.reason), cursor=cursor, asset_events=events)
        context.log.info(decision.reason)
        return SensorResult(run_requests=[run_request(names, state, decision.attempt)], cursor=cursor)

    return commits


def _fits_loaded_assets(version: Version, names: TableNames, repository: RepositoryDefinition | None) -> bool:
    """Return whether the loaded asset `names.partitions` still fits the table.

    It fits if both have partitions, or neither has. An asset that is not loaded has no partitions. Without a repository
    of loaded assets, the result is True.
    """
    assets = repository.assets_defs_by_key.get(names.partitions) if repository else None
    has_partitions = assets is not None and assets.specs_by_key[names.partitions].partitions_def is not None
    return repository is None or has_partitions == is_partitioned(version)


def dagster_sensor_status(status: SensorStatus) -> DefaultSensorStatus:
    """Convert a configured status to Dagster's.

    `absent` becomes STOPPED. A sensor with the status `absent` is created only if a project calls
    `build_commit_sensor`.
    """
    return DefaultSensorStatus.RUNNING if status == "running" else DefaultSensorStatus.STOPPED


def dropped_check(table: TableConfig, names: TableNames, latest: Version, reason: str) -> AssetCheckEvaluation:
    """Return a failed result of the check `current`, for a table that no longer exists.

    Args:
        table: The configuration of the table.
        names: The table's names in Dagster.
        latest: The newest version.
        reason: The message that the table, or the configured snapshot, no longer exists.
    """
    return AssetCheckEvaluation(
        names.kind_assets["statistics"],
        current_check_name(table),
        passed=False,
        severity=AssetCheckSeverity.ERROR,
        description=escape_markdown(reason),
        metadata={"status": "failed", "version": str(latest.number), "snapshot": latest.snapshot},
    )


def restored_check(table: TableConfig, names: TableNames, state: SensorState) -> AssetCheckEvaluation:
    """Return a passed result of the check `current`, for a table that was dropped and exists again.

    The caller has checked that the newest version still describes the table.
    """
    return AssetCheckEvaluation(
        names.kind_assets["statistics"],
        current_check_name(table),
        passed=True,
        description=escape_markdown(f"the table exists again, at snapshot {state.snapshot}"),
        metadata={"status": "passed", "version": str(state.published_number), "snapshot": state.snapshot},
    )


def update_sensor_state(
    instance: DagsterInstance, probe_result: ProbeResult, snapshot: SnapshotReference, names: TableNames
) -> SensorState:
    """Report dead runs of a table to Dagster as failed; then return the state of the table and its runs.

    A run is dead if it has logged nothing for an hour, and is not known to be running. From the state, the sensor
    decides whether to launch a run.

    Args:
        instance: The Dagster instance, whose runs and reported version are read.
        probe_result: What the probe has read: the newest version and the current snapshot.
        snapshot: The table's current snapshot.
        names: The table's names in Dagster.
    """
    unfinished_runs = _unfinished_runs(instance, names)
    dead_run_ids = _report_dead_runs(instance, unfinished_runs)
    latest = probe_result.latest
    described_snapshot = latest and SnapshotReference(latest.snapshot, latest.committed_at)
    version_identity = reported_version(instance, names)
    target = _target(probe_result.configuration_json, names, snapshot, latest)
    published_number = latest.number if latest else 0
    end_times = _ended_runs(instance, lambda attempt: _run_key(names, snapshot.id, published_number, target, attempt))
    return SensorState(
        snapshot=snapshot.id,
        history_change=probe_result.history_change,
        is_current=latest is not None
        and snapshot == described_snapshot
        and matches_policies(probe_result.table, latest),
        published_number=published_number,
        reported_number=version_identity[0] if version_identity else 0,
        target=target,
        active_run_id=next((run.run_id for run in unfinished_runs if run.run_id not in dead_run_ids), None),
        attempts=len(end_times),
        last_end_time=max(end_times, default=0.0),
    )


def run_request(names: TableNames, state: SensorState, attempt: int) -> RunRequest:
    """Return the request for a run of the table's job.

    Args:
        names: The table's names in Dagster.
        state: The observed state.
        attempt: The number of the attempt, from 1.
    """
    key = _run_key(names, state.snapshot, state.published_number, state.target, attempt)
    return RunRequest(run_key=key, tags={TABLE_TAG: names.tag})


def _run_key(names: TableNames, snapshot: str, published_number: int, target: str, attempt: int) -> str:
    """Return the key of a run.

    Dagster launches only one run with the same key, even if that run fails.

    Args:
        names: The table's names in Dagster.
        snapshot: The id of the table's current snapshot.
        published_number: The number of the newest version; 0 if there is none.
        target: The digest of snapshot, newest version and configuration that `_target` returns.
        attempt: The number of the attempt, from 1.
    """
    # The number of the published version allows another run after the table returned to an earlier snapshot.
    return f"{names.tag}:{snapshot}:{published_number}:{PROFILE_VERSION}:{target}:{attempt}"


def _target(configuration_json: str, names: TableNames, snapshot: SnapshotReference, latest: Version | None) -> str:
    """Return a digest of the snapshot, the newest version, the configuration and `PROFILE_VERSION`.

    `PROFILE_VERSION` changes if a release computes other statistics of the same rows. If an earlier run had the same
    digest, the next run is a retry. `decide_run` decides how long the sensor waits before a retry.
    """
    base = latest.number if latest else 0
    parts = [names.tag, snapshot.id, str(snapshot.committed_at), base, PROFILE_VERSION, configuration_json]
    return _digest(json.dumps(parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _report_dead_runs(instance: DagsterInstance, unfinished_runs: Iterable[DagsterRun]) -> set[str]:
    """Report the dead runs (`_is_dead`) to Dagster as failed, and return their ids."""
    now = time.time()
    dead_runs = [run for run in unfinished_runs if _is_dead(instance, run, now)]
    for run in dead_runs:
        minutes = _DEAD_AFTER / 60
        instance.report_run_failed(run, f"The run has logged nothing for {minutes:.0f} minutes and is presumed dead.")
    return {run.run_id for run in dead_runs}


def _unfinished_runs(instance: DagsterInstance, names: TableNames) -> list[DagsterRun]:
    """Return the unfinished runs of the table, including queued runs without the table's tag.

    Queued runs may not have the tag yet. Runs that a repeated request launches (`_is_resumable`) are left out.
    """
    # Runs without the tag are among the last runs of the table's assets and the runs of their backfills.
    keys = {names.partitions, *names.kind_assets.values()}
    # Events that a person reports by hand have an empty run id.
    last_run_ids = {record.asset_entry.last_run_id for record in instance.get_asset_records(list(keys))} - {None, ""}
    runs = list(instance.get_runs(RunsFilter(tags={TABLE_TAG: names.tag}, statuses=list(UNFINISHED))))
    if last_run_ids:
        last_runs = instance.get_runs(RunsFilter(run_ids=sorted(filter(None, last_run_ids))))
        runs += [run for run in last_runs if run.status in UNFINISHED]
        for backfill in sorted(
            {run.tags[DAGSTER_BACKFILL_TAG] for run in last_runs if DAGSTER_BACKFILL_TAG in run.tags}
        ):
            backfill_runs = instance.get_runs(
                RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill}, statuses=list(UNFINISHED))
            )
            runs += [run for run in backfill_runs if keys & set(run.asset_selection or ())]
    # Dagster starts a run that a crashed daemon created but did not launch if the sensor repeats the request.
    return list({run.run_id: run for run in runs if not _is_resumable(run, names)}.values())


def _is_resumable(run: DagsterRun, names: TableNames) -> bool:
    """Return whether Dagster will launch the run if this sensor repeats the request for it.

    This is so if Dagster created the run for a request of the sensor, and has not launched it. A re-execution of such a
    run has the same tags, but Dagster does not launch it for a request. A re-execution is
    recognized by its parent run.
    """
    return (
        run.status == DagsterRunStatus.NOT_STARTED
        and run.parent_run_id is None
        and run.tags.get(RUN_KEY_TAG, "").startswith(f"{names.tag}:")
    )


def _is_dead(instance: DagsterInstance, run: DagsterRun, now: float) -> bool:
    """Return whether a run has logged nothing for an hour, and is not known to be running.

    The hour is `_DEAD_AFTER`. For a created run without events, the hour begins with the creation of the run. A queued
    run is not dead.
    """
    if run.status == DagsterRunStatus.QUEUED:
        return False
    records = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    last_event = max((record.timestamp for record in records), default=now)
    if run.status == DagsterRunStatus.NOT_STARTED and not records:
        run_record = instance.get_run_record_by_id(run.run_id)
        last_event = run_record.create_timestamp.timestamp() if run_record else now
    return now - last_event > _DEAD_AFTER and not _is_running(instance, run)


def _is_running(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Return whether the worker of a run is running, as the run launcher reports.

    The result is False if the launcher cannot tell, or if the request to it fails.
    """
    try:
        launcher = instance.run_launcher
        if not launcher.supports_check_run_worker_health:
            return False
        return launcher.check_run_worker_health(run).status.name == "RUNNING"
    except Exception:  # noqa: BLE001 (a launcher may need packages and rights that the code location lacks)
        return False


def _ended_runs(instance: DagsterInstance, run_key: Callable[[int], str]) -> list[float]:
    """Return the end times of the finished runs that tried to refresh one snapshot.

    They are seconds since the epoch, in no particular order. Failed and canceled runs count, too.

    Args:
        instance: The Dagster instance.
        run_key: Returns the run key of an attempt at the refresh, given the number of the attempt, from 1.
    """
    end_times: list[float] = []
    for start in itertools.count(1, _KEYS_PER_QUERY):
        keys = [run_key(attempt) for attempt in range(start, start + _KEYS_PER_QUERY)]
        records = instance.get_run_records(RunsFilter(tags={RUN_KEY_TAG: keys}, statuses=_FINISHED))
        end_times += [record.end_time or record.update_timestamp.timestamp() for record in records]
        if not records:
            break
    return end_times
