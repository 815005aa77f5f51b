"""One sensor per database, which reloads the code location when tables were added or removed."""

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dagster import (
    DagsterInstance,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from metastore_assets.assets.names import identifier
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.assets.translator import MetastoreTranslator
from metastore_assets.config import DatabaseConfig, SensorStatus
from metastore_assets.config.file import table_name_for
from metastore_assets.databases import DatabaseListing, list_databases
from metastore_assets.errors import ConfigError, TableFormatError
from metastore_assets.messages import join_names, remove_secrets
from metastore_assets.report.markdown import code_markdown
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.commits import default_status_of
from metastore_assets.sensors.reload_decision import ReloadRequest, decide
from metastore_assets.sensors.timeout import TimeoutRunner, tick_timeout

_DELAY = 1.0
"""Seconds until the code location is reloaded: its old process has to answer the tick first."""


def database_sensors(
    configuration: Configuration, translator: MetastoreTranslator, chosen: SensorStatus | None = None
) -> list[SensorDefinition]:
    """Return the sensors of all databases of a configuration. `chosen` overrides the configured status."""
    shown = configuration.shown()
    entries = {database.key: database for database in reversed(shown.databases)}
    names = {key: f"{identifier(table_name_for(key), translator.prefix)}_tables" for key in entries}
    taken = list(names.values())
    for key, name in names.items():
        if taken.count(name) > 1:
            names[key] = f"{name}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    statuses = {key: shown.sensor_status(database, chosen) for key, database in entries.items()}
    return [
        database_sensor(configuration, database, names[key], default_status_of(statuses[key]))
        for key, database in sorted(entries.items())
        if statuses[key] != "absent"
    ]


def database_sensor(
    configuration: Configuration,
    database: DatabaseConfig,
    name: str,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """Return the sensor of one database. A tick lists its tables with a few requests and launches no run.

    Added tables have their sensors once the code location is loaded again.
    """
    key = database.key
    runner = TimeoutRunner[tuple[DatabaseListing, ...]]()
    loaded = {place for one in configuration.members or () if one.key == key for place in _table_names(one)}

    def members(report_progress: Callable[[str], None]) -> tuple[DatabaseListing, ...]:
        report_progress(f"the database {key}")
        now = configuration.now()
        return list_databases(now.model_copy(update={"databases": [one for one in now.databases if one.key == key]}))

    @sensor(
        name=name,
        minimum_interval_seconds=database.sensor.interval,
        default_status=default_status,
        description=f"Sees tables of the database {code_markdown(key)} come and go. When there are others than this "
        "code location has loaded, it has it loaded anew.",
    )
    def tables(context: SensorEvaluationContext) -> SensorResult:
        with hide_secrets():
            listings = runner.run(members, tick_timeout())
            if not listings:
                raise ConfigError(f"the database {key} is not in the configuration any more: reload the code location")
            if listings[0].failure:
                raise TableFormatError(listings[0].failure)
        existing = {place for one in listings for place in _table_names(one)}
        decision = decide(ReloadRequest.from_json(context.cursor), loaded, existing, time.time())
        reason = decision.reason
        if decision.reloads:
            context.log.info(reason)
            reason = f"{reason}; {_reload(context)}"
        dropped_names = sorted({name for one in listings for name in one.dropped})
        if dropped_names:
            reason = f"{reason}; gone, and kept as they were: {join_names(dropped_names)}"
        return SensorResult(skip_reason=SkipReason(reason), cursor=decision.request.to_json())

    return tables


def _table_names(members: DatabaseListing) -> set[str]:
    return {*members.tables, *members.dropped}


def _reload(context: SensorEvaluationContext) -> str:
    """Reload the code location if its server can, and return a sentence which says so.

    Servers that Dagster's tools start (`dagster dev`, `dagster code-server start`) can reload; the webserver and the
    daemon notice it.
    """
    origin = context.code_location_origin
    if origin is None:
        return "reload the code location"
    client = getattr(origin, "create_client", None)
    if client is None:
        return "Dagster's daemon reloads this code location within a minute; the webserver does when Reload is pressed"
    threading.Thread(target=_reload_soon, args=(client(), context.instance), daemon=True).start()
    return "the code location is being reloaded"


def _reload_soon(client: Any, instance: DagsterInstance) -> None:
    time.sleep(_DELAY)
    try:
        client.reload_code(timeout=instance.code_server_reload_timeout)
    except Exception as error:  # noqa: BLE001 (the next tick sees whether it is loaded, and says what to do)
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        message = f"{moment} the code location could not be reloaded: {remove_secrets(str(error))}"
        sys.stderr.write(f"{message}\n")
