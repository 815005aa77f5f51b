"""The Dagster instance of the demo, which evaluates sensors and executes requested runs in-process."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SensorEvaluationContext,
    build_sensor_context,
)

from metastore_assets.assets.names import identifier
from metastore_assets.config import load_config
from metastore_assets.spark.session import SparkLog, get_spark_session

_SETTINGS = Path(__file__).parents[2] / "dagster.yaml"
_QUIET_SETTINGS = "telemetry: {enabled: false}\nnux: {enabled: false}\n"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class DemoInstance:
    """The instance with the definitions of `metastore.yaml`.

    Its methods do what Dagster's daemon does periodically.
    """

    def __init__(self, instance: DagsterInstance, definitions: Definitions) -> None:
        self._instance = instance
        self._definitions = definitions
        self._cursors: dict[str, str | None] = {}

    def tick(self, table: str) -> list[RunRequest]:
        """Evaluate the table's sensor once, and return the runs that it requests."""
        name = f"{identifier(table)}_commits"
        sensor = self._definitions.resolve_sensor_def(name)
        context: SensorEvaluationContext = build_sensor_context(
            instance=self._instance,
            cursor=self._cursors.get(name),
            definitions=self._definitions,
            sensor_name=name,
        )
        context.log.setLevel(logging.WARNING)
        with context:
            data = sensor.evaluate_tick(context)
        self._cursors[name] = data.cursor
        return list(data.run_requests or ())

    def execute(self, table: str, request: RunRequest) -> None:
        """Execute one run in this process.

        An error of the run is raised.
        """
        job = self._definitions.resolve_job_def(f"{identifier(table)}_refresh")
        tags = {
            **request.tags,
            "dagster/sensor_name": f"{identifier(table)}_commits",
            "dagster/run_key": request.run_key or "",
        }
        job.execute_in_process(run_config={**_QUIET, **request.run_config}, instance=self._instance, tags=tags)

    def run_count(self) -> int:
        """Return the number of runs that succeeded."""
        return sum(run.status == DagsterRunStatus.SUCCESS for run in self._instance.get_runs())


@contextmanager
def demo_instance(home: Path) -> Iterator[DemoInstance]:
    """Create an instance in the folder `home`, which becomes DAGSTER_HOME.

    Spark's log is a file in this folder.

    All runs share the Spark session of this process.
    """
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(_QUIET_SETTINGS + _SETTINGS.read_text(encoding="utf-8"), encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
    session = get_spark_session(load_config().spark, log=SparkLog(home / "spark.log"))
    try:
        from metastore_assets.definitions import defs

        with DagsterInstance.get() as instance:
            yield DemoInstance(instance, defs)
    finally:
        session.stop()
