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
from metastore_assets.assets.secrets import telling_no_secrets
from metastore_assets.assets.told import told_version
from metastore_assets.config import SensorStatus, TableConfig
from metastore_assets.formats import SnapshotReference
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.pipeline.planning import matches_policies
from metastore_assets.report.markdown import code_markdown
from metastore_assets.report.text import one_line
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.decision import Cursor, Seen, decide, still_missing
from metastore_assets.sensors.looking import Found, Looking
from metastore_assets.sensors.patience import Asking, patience
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
    asking = Asking[Found]()
    looking = Looking(configuration, table.name)

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
        with telling_no_secrets():
            if missing is not None and missing.waits(_digest(looking.configured()), time.time()):
                return SensorResult(skip_reason=SkipReason(missing.told(time.time())), cursor=context.cursor)
            found = asking.ask(looking.find, patience())
        remembered = replace(remembered, missing=None)
        if found.now is None and found.latest is None:
            now, interval = time.time(), found.table.sensor.interval
            missing = still_missing(missing, _digest(found.said), one_line(found.absence), interval, now)
            cursor = replace(remembered, missing=missing).to_json()
            return SensorResult(skip_reason=SkipReason(missing.told(now)), cursor=cursor)
        if found.now is None:
            assert found.latest is not None
            gone = [] if remembered.gone else [told_gone(found.table, names, found.latest, found.absence)]
            cursor = replace(remembered, gone=True).to_json()
            reason = f"version {found.latest.number} stays as it is: {found.absence}"
            return SensorResult(skip_reason=SkipReason(reason), cursor=cursor, asset_events=gone)
        seen = seen_by(context.instance, found, found.now, names)
        decision = decide(replace(remembered, gone=False), seen, found.table.sensor.interval, time.time())
        cursor = decision.cursor.to_json()
        if decision.attempt is None:
            back = [told_back(found.table, names, seen)] if remembered.gone and seen.current else []
            return SensorResult(skip_reason=SkipReason(decision.reason), cursor=cursor, asset_events=back)
        context.log.info(decision.reason)
        return SensorResult(run_requests=[run_request(names, seen, decision.attempt)], cursor=cursor)

    return commits


def default_status_of(status: SensorStatus) -> DefaultSensorStatus:
    """Return what Dagster calls a status. A sensor that is built though it is configured as absent is stopped."""
    return DefaultSensorStatus.RUNNING if status == "running" else DefaultSensorStatus.STOPPED


def told_gone(table: TableConfig, names: TableNames, latest: Version, reason: str) -> AssetCheckEvaluation:
    """That what is kept is of a table that is not there: a failed check, which the asset shows from now on."""
    return AssetCheckEvaluation(
        names.whole["statistics"],
        name_of_current(table),
        passed=False,
        severity=AssetCheckSeverity.ERROR,
        description=literally(reason),
        metadata={"status": "failed", "version": str(latest.number), "snapshot": latest.snapshot},
    )


def told_back(table: TableConfig, names: TableNames, seen: Seen) -> AssetCheckEvaluation:
    """That the table is there again, in the snapshot that is described; else the run that follows says so."""
    return AssetCheckEvaluation(
        names.whole["statistics"],
        name_of_current(table),
        passed=True,
        description=literally(f"the table is there again, in snapshot {seen.snapshot}"),
        metadata={"status": "passed", "version": str(seen.published), "snapshot": seen.snapshot},
    )


def seen_by(instance: DagsterInstance, found: Found, now: SnapshotReference, names: TableNames) -> Seen:
    """What the decision depends on: what was found, and what Dagster knows."""
    latest = found.latest
    described = latest and SnapshotReference(latest.snapshot, latest.committed_at)
    told = told_version(instance, names)
    target = _target(found.said, names, now, latest)
    published = latest.number if latest else 0
    ended = _ended_runs(instance, lambda attempt: _run_key(names, now.id, published, target, attempt))
    return Seen(
        snapshot=now.id,
        history_change=found.history_change,
        current=latest is not None and now == described and matches_policies(found.table, latest),
        published=published,
        reported=told[0] if told else 0,
        target=target,
        active=_active_run(instance, names),
        attempts=len(ended),
        last_ended=max(ended, default=0.0),
    )


def run_request(names: TableNames, seen: Seen, attempt: int) -> RunRequest:
    """The request for one run, with the one tag that people filter by."""
    key = _run_key(names, seen.snapshot, seen.published, seen.target, attempt)
    return RunRequest(run_key=key, tags={TABLE_TAG: names.tag})


def _run_key(names: TableNames, snapshot: str, published: int, target: str, attempt: int) -> str:
    """Return the key of a run. Dagster never runs a key twice, failed runs included, so the key says all that makes a
    run worth while: the snapshot, the version it follows (a table may return to a snapshot), code, and attempt."""
    return f"{names.tag}:{snapshot}:{published}:{PROFILE_VERSION}:{target}:{attempt}"


def _target(said: str, names: TableNames, now: SnapshotReference, latest: Version | None) -> str:
    """A digest short enough for a tag. Has the table's configuration in it: who mends that need not wait."""
    base = latest.number if latest else 0
    parts = [names.tag, now.id, str(now.committed_at), base, PROFILE_VERSION, said]
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
    found = list(instance.get_runs(RunsFilter(tags={TABLE_TAG: names.tag}, statuses=_UNFINISHED)))
    if launched:
        last = instance.get_runs(RunsFilter(run_ids=sorted(filter(None, launched))))
        found += [run for run in last if run.status in _UNFINISHED]
        for backfill in sorted({run.tags[DAGSTER_BACKFILL_TAG] for run in last if DAGSTER_BACKFILL_TAG in run.tags}):
            runs = instance.get_runs(RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill}, statuses=_UNFINISHED))
            found += [run for run in runs if keys & set(run.asset_selection or ())]
    return list({run.run_id: run for run in found}.values())


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
