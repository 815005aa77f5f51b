"""One sensor per table: sees a commit, asks for one run."""

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
from metastore_assets.report.text import one_line
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
"""Attempts that one query asks for."""
_SILENCE = 3600.0
"""Seconds without an event after which a started run is taken for dead: its machine may have gone down with it, and all
who could say so. It is reported as failed: where runs are limited, others wait for those that seem to be at work."""


def commit_sensor(
    configuration: Configuration,
    table: TableConfig,
    names: TableNames,
    job: Any,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """The sensor of one table, which asks for runs of `job`.

    A tick reads the table's snapshot id, the newest version's JSON and Dagster's runs, as far as they are others than
    those that it saw last: it starts no Spark, and does not read what is in the table.
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
            missing = still_missing(missing, _digest(probed.configured_json), one_line(probed.absence), interval, now)
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
    """Return what Dagster calls a status. A sensor that is built though it is configured as absent is stopped."""
    return DefaultSensorStatus.RUNNING if status == "running" else DefaultSensorStatus.STOPPED


def dropped_check(table: TableConfig, names: TableNames, latest: Version, reason: str) -> AssetCheckEvaluation:
    """That what is kept is of a table that is not there: a failed check, which the asset shows from now on."""
    return AssetCheckEvaluation(
        names.whole["statistics"],
        name_of_current(table),
        passed=False,
        severity=AssetCheckSeverity.ERROR,
        description=literally(reason),
        metadata={"status": "failed", "version": str(latest.number), "snapshot": latest.snapshot},
    )


def restored_check(table: TableConfig, names: TableNames, state: SensorState) -> AssetCheckEvaluation:
    """That the table is there again, in the snapshot that is described; else the run that follows says so."""
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
    """What the decision depends on: what was found, and what Dagster knows."""
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
    """The request for one run, with the one tag that people filter by."""
    key = _run_key(names, state.snapshot, state.published, state.target, attempt)
    return RunRequest(run_key=key, tags={TABLE_TAG: names.tag})


def _run_key(names: TableNames, snapshot: str, published: int, target: str, attempt: int) -> str:
    """Return the key of a run. Dagster never runs a key twice, failed runs included, so the key says all that makes a
    run worth while: the snapshot, the version it follows (a table may return to a snapshot), code, and attempt."""
    return f"{names.tag}:{snapshot}:{published}:{PROFILE_VERSION}:{target}:{attempt}"


def _target(configured_json: str, names: TableNames, now: SnapshotReference, latest: Version | None) -> str:
    """A digest short enough for a tag. Has the table's configuration in it: who mends that need not wait."""
    base = latest.number if latest else 0
    parts = [names.tag, now.id, str(now.committed_at), base, PROFILE_VERSION, configured_json]
    return _digest(json.dumps(parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _active_run(instance: DagsterInstance, names: TableNames) -> str | None:
    """An unfinished run that works on the table, however it was launched. Runs that fell silent are ended here."""
    now = time.time()
    for run in _unfinished_runs(instance, names):
        if not _is_dead(instance, run, now):
            return run.run_id
        minutes = _SILENCE / 60
        instance.report_run_failed(run, f"The run has said nothing for {minutes:.0f} minutes: it is taken for dead.")
    return None


def _unfinished_runs(instance: DagsterInstance, names: TableNames) -> list[DagsterRun]:
    """Return runs with the table's tag or job, and those that may still wait for their start and have no tag so far.

    The latter are the runs launched last for one of the table's assets, and others of the same backfill: Dagster makes
    several runs of one, and may start them in any order. Two queries, and one for such a backfill, however many runs of
    others there are.
    """
    keys = {names.partitions, *names.whole.values()}
    # Events that people report by hand are of no run: Dagster gives them an empty id.
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
    """When each finished run ended that was asked for with the keys of the first attempts, as many as there are."""
    ended: list[float] = []
    for start in itertools.count(1, _ATTEMPTS):
        keys = [run_key(attempt) for attempt in range(start, start + _ATTEMPTS)]
        records = instance.get_run_records(RunsFilter(tags={RUN_KEY_TAG: keys}, statuses=_FINISHED))
        ended += [record.end_time or record.update_timestamp.timestamp() for record in records]
        if not records:
            break
    return ended
