"""One sensor per table, which launches one run per commit."""

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
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from metastore_assets.assets.checks import literally, name_of_current
from metastore_assets.assets.names import DAGSTER_BACKFILL_TAG, RUN_KEY_TAG, TABLE_TAG, TableNames
from metastore_assets.assets.reported_state import reported_version
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.config import SensorStatus, TableConfig
from metastore_assets.formats import SnapshotReference
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.pipeline.planning import matches_policies
from metastore_assets.report.markdown import code_markdown
from metastore_assets.report.text import to_one_line
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.decision import Cursor, SensorState, decide, still_missing
from metastore_assets.sensors.table_probe import ProbeResult, TableProbe
from metastore_assets.sensors.timeout import TimeoutRunner, tick_timeout
from metastore_assets.store.manifest import Version

_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
_FINISHED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_ATTEMPTS = 32
"""Run keys per query."""
_SILENCE = 3600.0
"""Seconds without an event after which a started run counts as dead: its machine may have failed with everything that
could report it. The sensor reports it as failed, because a limit on runs would otherwise wait for it."""


def commit_sensor(
    configuration: Configuration,
    table: TableConfig,
    names: TableNames,
    job: Any,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """Return the sensor of one table, which launches runs of `job`.

    A tick reads the table's snapshot id, the newest version document and recent runs in Dagster. It starts no Spark and
    does not read the table's data.

    Args:
        configuration: The configuration that has the table.
        table: The table, as it was configured at load time.
        names: The table's names in Dagster.
        job: The job that refreshes the table.
        default_status: Whether the sensor starts by itself.
    """
    runner = TimeoutRunner[ProbeResult]()
    table_probe = TableProbe(configuration, table.name)

    @sensor(
        name=names.sensor,
        job=job,
        minimum_interval_seconds=table.sensor.interval,
        default_status=default_status,
        description=f"Sees commits to {code_markdown(table.name)} and brings its profiles up to date, one run per "
        "commit. A failed run is asked for again on the next tick, then less and less often.",
    )
    def commits(context: SensorEvaluationContext) -> SensorResult:
        remembered = Cursor.from_json(context.cursor)
        missing = remembered.missing
        with hide_secrets():
            if missing is not None and missing.waits(_digest(table_probe.configured()), time.time()):
                return SensorResult(skip_reason=SkipReason(missing.describe(time.time())), cursor=context.cursor)
            probed = runner.run(table_probe.probe, tick_timeout())
        remembered = replace(remembered, missing=None)
        if probed.now is None and probed.latest is None:
            now, interval = time.time(), probed.table.sensor.interval
            missing = still_missing(
                missing, _digest(probed.configured_json), to_one_line(probed.absence), interval, now
            )
            cursor = replace(remembered, missing=missing).to_json()
            return SensorResult(skip_reason=SkipReason(missing.describe(now)), cursor=cursor)
        if probed.now is None:
            assert probed.latest is not None
            dropped = [] if remembered.dropped else [dropped_check(probed.table, names, probed.latest, probed.absence)]
            cursor = replace(remembered, dropped=True).to_json()
            reason = f"version {probed.latest.number} stays as it is: {probed.absence}"
            return SensorResult(skip_reason=SkipReason(reason), cursor=cursor, asset_events=dropped)
        state = read_sensor_state(context.instance, probed, probed.now, names)
        decision = decide(replace(remembered, dropped=False), state, probed.table.sensor.interval, time.time())
        cursor = decision.cursor.to_json()
        if decision.attempt is None:
            back = [restored_check(probed.table, names, state)] if remembered.dropped and state.current else []
            return SensorResult(skip_reason=SkipReason(decision.reason), cursor=cursor, asset_events=back)
        context.log.info(decision.reason)
        return SensorResult(run_requests=[run_request(names, state, decision.attempt)], cursor=cursor)

    return commits


def default_status_of(status: SensorStatus) -> DefaultSensorStatus:
    """Return Dagster's name of a status. A sensor that is built although it is configured as absent is stopped."""
    return DefaultSensorStatus.RUNNING if status == "running" else DefaultSensorStatus.STOPPED


def dropped_check(table: TableConfig, names: TableNames, latest: Version, reason: str) -> AssetCheckEvaluation:
    """Return a failed check which says that the version describes a table that no longer exists."""
    return AssetCheckEvaluation(
        names.whole["statistics"],
        name_of_current(table),
        passed=False,
        severity=AssetCheckSeverity.ERROR,
        description=literally(reason),
        metadata={"status": "failed", "version": str(latest.number), "snapshot": latest.snapshot},
    )


def restored_check(table: TableConfig, names: TableNames, state: SensorState) -> AssetCheckEvaluation:
    """Return a passed check which says that the table exists again in the version's snapshot."""
    return AssetCheckEvaluation(
        names.whole["statistics"],
        name_of_current(table),
        passed=True,
        description=literally(f"the table is there again, in snapshot {state.snapshot}"),
        metadata={"status": "passed", "version": str(state.published), "snapshot": state.snapshot},
    )


def read_sensor_state(
    instance: DagsterInstance, probed: ProbeResult, now: SnapshotReference, names: TableNames
) -> SensorState:
    """Return the state that the decision depends on: the probe's result and Dagster's runs."""
    latest = probed.latest
    described = latest and SnapshotReference(latest.snapshot, latest.committed_at)
    reported = reported_version(instance, names)
    target = _target(probed.configured_json, names, now, latest)
    published = latest.number if latest else 0
    ended = _ended_runs(instance, lambda attempt: _run_key(names, now.id, published, target, attempt))
    return SensorState(
        snapshot=now.id,
        history_change=probed.history_change,
        current=latest is not None and now == described and matches_policies(probed.table, latest),
        published=published,
        reported=reported[0] if reported else 0,
        target=target,
        active=_active_run(instance, names),
        attempts=len(ended),
        last_ended=max(ended, default=0.0),
    )


def run_request(names: TableNames, state: SensorState, attempt: int) -> RunRequest:
    """Return the request for one run, tagged with the table."""
    key = _run_key(names, state.snapshot, state.published, state.target, attempt)
    return RunRequest(run_key=key, tags={TABLE_TAG: names.tag})


def _run_key(names: TableNames, snapshot: str, published: int, target: str, attempt: int) -> str:
    """Return the key of a run. Dagster never runs a key twice, including failed runs, so the key has everything that
    makes a run useful: the snapshot, the version it follows (a table may return to a snapshot), code, and attempt.
    """
    return f"{names.tag}:{snapshot}:{published}:{PROFILE_VERSION}:{target}:{attempt}"


def _target(configured_json: str, names: TableNames, now: SnapshotReference, latest: Version | None) -> str:
    """Return a digest, short enough for a tag. It covers the configuration, so a corrected one is tried at once."""
    base = latest.number if latest else 0
    parts = [names.tag, now.id, str(now.committed_at), base, PROFILE_VERSION, configured_json]
    return _digest(json.dumps(parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _active_run(instance: DagsterInstance, names: TableNames) -> str | None:
    """Return an unfinished run of the table, however it was launched. Dead runs are reported as failed here."""
    now = time.time()
    for run in _unfinished_runs(instance, names):
        if not _is_dead(instance, run, now):
            return run.run_id
        minutes = _SILENCE / 60
        instance.report_run_failed(run, f"The run has said nothing for {minutes:.0f} minutes: it is taken for dead.")
    return None


def _unfinished_runs(instance: DagsterInstance, names: TableNames) -> list[DagsterRun]:
    """Return the unfinished runs of the table, including queued runs that do not have its tag yet.

    The latter are the last runs launched for the table's assets, and other runs of the same backfill, which Dagster may
    start in any order. It takes two queries, and one per such backfill, whatever else runs in the instance.
    """
    keys = {names.partitions, *names.whole.values()}
    # Events that people report by hand have an empty run id.
    launched = {record.asset_entry.last_run_id for record in instance.get_asset_records(list(keys))} - {None, ""}
    probed = list(instance.get_runs(RunsFilter(tags={TABLE_TAG: names.tag}, statuses=_UNFINISHED)))
    if launched:
        last = instance.get_runs(RunsFilter(run_ids=sorted(filter(None, launched))))
        probed += [run for run in last if run.status in _UNFINISHED]
        for backfill in sorted({run.tags[DAGSTER_BACKFILL_TAG] for run in last if DAGSTER_BACKFILL_TAG in run.tags}):
            runs = instance.get_runs(RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill}, statuses=_UNFINISHED))
            probed += [run for run in runs if keys & set(run.asset_selection or ())]
    return list({run.run_id: run for run in probed}.values())


def _is_dead(instance: DagsterInstance, run: DagsterRun, now: float) -> bool:
    if run.status == DagsterRunStatus.QUEUED:
        return False
    events: Iterable[float] = (
        record.timestamp for record in instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    )
    return now - max(events, default=now) > _SILENCE


def _ended_runs(instance: DagsterInstance, run_key: Callable[[int], str]) -> list[float]:
    """Return the end times of the finished runs with the keys of attempts 1, 2, 3 …."""
    ended: list[float] = []
    for start in itertools.count(1, _ATTEMPTS):
        keys = [run_key(attempt) for attempt in range(start, start + _ATTEMPTS)]
        records = instance.get_run_records(RunsFilter(tags={RUN_KEY_TAG: keys}, statuses=_FINISHED))
        ended += [record.end_time or record.update_timestamp.timestamp() for record in records]
        if not records:
            break
    return ended
