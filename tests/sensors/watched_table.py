"""A table with a sensor, on a Dagster instance that stores the cursor between ticks."""

import json
import logging
from pathlib import Path
from typing import Any

import yaml
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRequest,
    build_sensor_context,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test

from metastore_assets.assets.project import build_metastore_definitions
from metastore_assets.config import load_config
from metastore_assets.store.version import Version
from metastore_assets.store.versions import versions_of

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class WatchedTable:
    """The table `t` with its sensor, in `folder/t` unless configured otherwise.

    Runs are executed in this process.
    """

    def __init__(self, folder: Path, instance: DagsterInstance, **settings: Any) -> None:
        self.file = folder / "metastore.yaml"
        self.instance = instance
        self.cursor: str | None = None
        self.configure(**settings)
        self.load()

    def configure(self, **settings: Any) -> None:
        """Write the configuration.

        `settings` extend or replace those of the table.
        """
        table = {"name": "t", "uri": "t", "sensor": {"interval": 5}, **settings}
        self.file.write_text(yaml.safe_dump({"root": "root", "engine": "auto", "tables": [table]}), encoding="utf-8")

    def load(self) -> None:
        """Load the definitions, as a code server does when it starts."""
        self.definitions = build_metastore_definitions(self.file)
        self.sensor = self.definitions.resolve_sensor_def("t_commits")

    def tick(self, *, has_repository: bool = False) -> tuple[SensorExecutionData, list[str]]:
        """Evaluate a tick, and return its result and its log lines.

        If it succeeds, its cursor and its asset events are stored, as Dagster does.

        Args:
            has_repository: Whether the sensor sees the loaded assets.
        """
        log_handler = _Logged()
        repository = self.definitions.get_repository_def() if has_repository else None
        with build_sensor_context(
            self.instance, self.cursor, repository_def=repository, sensor_name=self.sensor.name
        ) as context:
            context.log.handlers[:] = [log_handler]
            tick = self.sensor.evaluate_tick(context)
        self.cursor = tick.cursor
        for event in tick.asset_events:
            self.instance.report_runless_asset_event(event)
        return tick, log_handler.messages

    def skips(self) -> str:
        """Evaluate a tick that must request nothing and log nothing.

        Return its message.
        """
        tick, messages = self.tick()
        assert (tick.run_requests, messages) == ([], [])
        return tick.skip_message or ""

    def reloads(self) -> tuple[RunRequest, str]:
        """Evaluate a tick that must request one run.

        Return the request and the only line of the log.
        """
        tick, (message,) = self.tick()
        (request,) = tick.run_requests or []
        assert json.loads(tick.cursor or "")["target"] == (request.run_key or "").split(":")[-2]
        return request, message

    def run(self, request: RunRequest) -> DagsterRun:
        """Execute the requested run."""
        job = self.definitions.resolve_job_def("t_refresh")
        result = job.execute_in_process(_QUIET, instance=self.instance, tags=dict(request.tags))
        assert result.success
        return result.dagster_run

    def catches_up(self) -> str:
        """Execute the run that a tick must request.

        The tick after it must request none.

        Returns the first tick's log line.
        """
        request, message = self.reloads()
        before = self.number
        self.run(request)
        assert self.number == before + 1
        assert self.skips() == self.is_current()
        return message

    def is_current(self) -> str:
        """Return the message that a tick without a change must have."""
        return f"version {self.number} is current: snapshot {self.latest.snapshot}"

    def launched(self, request: RunRequest, status: DagsterRunStatus) -> DagsterRun:
        """Create a run of the request with the given status.

        The run is not executed.
        """
        location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("location"), "repository")
        return create_run_for_test(
            self.instance,
            job_name="t_refresh",
            status=status,
            tags={**request.tags, "dagster/run_key": request.run_key or ""},
            remote_job_origin=RemoteJobOrigin(location, "t_refresh"),
        )

    @property
    def latest(self) -> Version:
        version = versions_of(load_config(self.file), "t").latest()
        assert version is not None
        return version

    @property
    def number(self) -> int:
        return versions_of(load_config(self.file), "t").newest()

    def check(self) -> tuple[bool, str]:
        """Return whether the last evaluation of the asset check `current` passed, and its message."""
        key = AssetCheckKey(AssetKey(["t", "t_statistics"]), "current")
        record = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)[0]
        event = record.event and record.event.dagster_event
        assert event is not None
        evaluation = event.asset_check_evaluation_data
        return evaluation.passed, (evaluation.description or "").replace("\\", "")


class _Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
