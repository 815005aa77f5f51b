"""The sensor of a database, which reloads the code location after tables were added or removed."""

import hashlib
import time
from collections.abc import Callable, Iterable

from dagster import (
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
from metastore_assets.messages import join_names
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.commits import dagster_sensor_status
from metastore_assets.sensors.reload import request_reload
from metastore_assets.sensors.reload_decision import ReloadRequest, decide_reload
from metastore_assets.sensors.timeout import TimeoutRunner, tick_timeout


def database_sensors(
    configuration: Configuration, translator: MetastoreTranslator, status: SensorStatus | None = None
) -> list[SensorDefinition]:
    """Return the sensors of all databases of a configuration, without those whose status is `absent`.

    Args:
        configuration: The configuration.
        translator: The translator. The names of the sensors begin with its prefix.
        status: The status of all sensors; None for the configured ones.
    """
    config = configuration.unresolved()
    databases = {database.key: database for database in reversed(config.databases)}
    names = {key: f"{identifier(table_name_for(key), translator.prefix)}_tables" for key in databases}
    all_names = list(names.values())
    for key, name in names.items():
        if all_names.count(name) > 1:
            names[key] = f"{name}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    statuses = {key: config.sensor_status(database, status) for key, database in databases.items()}
    return [
        database_sensor(configuration, database, names[key], dagster_sensor_status(statuses[key]))
        for key, database in sorted(databases.items())
        if statuses[key] != "absent"
    ]


def database_sensor(
    configuration: Configuration,
    database: DatabaseConfig,
    name: str,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """Return the sensor of one database.

    It launches no runs, but reloads the code location if tables have changed.

    Args:
        configuration: The configuration that has the database.
        database: The database.
        name: The name of the sensor.
        default_status: The initial status of the sensor, before a user starts or stops it.
    """
    key = database.key
    runner = TimeoutRunner[tuple[DatabaseListing, ...]]()
    loaded_names = _table_names(listing for listing in configuration.listings or () if listing.key == key)

    def list_tables(report_progress: Callable[[str], None]) -> tuple[DatabaseListing, ...]:
        report_progress(f"the database {key}")
        config = configuration.resolved()
        entries = [entry for entry in config.databases if entry.key == key]
        return list_databases(config.model_copy(update={"databases": entries}))

    @sensor(
        name=name,
        minimum_interval_seconds=database.sensor.interval,
        default_status=default_status,
        description=f"Detects added and removed tables of the database {key!r}, and reloads the code "
        "location if its tables are others.",
    )
    def tables(context: SensorEvaluationContext) -> SensorResult:
        """Compare the database's tables with the loaded ones.

        If they differ, request a reload of the code location.
        """
        with hide_secrets():
            listings = runner.run(list_tables, tick_timeout())
            if not listings:
                raise ConfigError(f"the configuration no longer has the database {key}: reload the code location")
            if listings[0].failure:
                raise TableFormatError(listings[0].failure)
        existing_names = _table_names(listings)
        decision = decide_reload(ReloadRequest.from_json(context.cursor), loaded_names, existing_names, time.time())
        reason = decision.reason
        if decision.reloads:
            context.log.info(reason)
            reason = f"{reason}; {request_reload(context)}"
        dropped_names = sorted({name for listing in listings for name in listing.dropped})
        if dropped_names:
            reason = f"{reason}; dropped tables, whose versions remain: {join_names(dropped_names)}"
        unreadable_names = sorted({name for listing in listings for name in listing.skipped})
        if unreadable_names:
            reason = f"{reason}; entries that are no readable tables: {join_names(unreadable_names)}"
        return SensorResult(skip_reason=SkipReason(reason), cursor=decision.request.to_json())

    return tables


def _table_names(listings: Iterable[DatabaseListing]) -> set[str]:
    """Return the names of all tables in some listings, including dropped tables."""
    return {name for listing in listings for name in (*listing.tables, *listing.dropped)}
