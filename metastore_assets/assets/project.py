"""The public functions that build Dagster definitions for the tables of a configuration."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, get_args

from dagster import AssetsDefinition, AssetSpec, DefaultSensorStatus, Definitions, SensorDefinition

from metastore_assets.assets.factory import refresh_job, table_assets
from metastore_assets.assets.table_info import TableInfo, load_table_info
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.config import MetastoreConfig, SensorStatus, TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.messages import join_names
from metastore_assets.resources.configuration import ConfigLike, Configuration
from metastore_assets.resources.spark import SparkLike
from metastore_assets.sensors.commits import commit_sensor, dagster_sensor_status
from metastore_assets.sensors.databases import database_sensors

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource


def build_metastore_assets(
    config: ConfigLike = None,
    *,
    tables: Iterable[str] | None = None,
    translator: MetastoreTranslator | None = None,
    s3: "S3Resource | None" = None,
    spark: SparkLike | None = None,
) -> Sequence[AssetSpec | AssetsDefinition]:
    """Return the assets of the tables of a configuration.

    They need no resources in the project's definitions.

    Format and partitioning of each table are read from the root of the Metastore. If the root lacks those of a table,
    they are read from the table and stored in the root. Reading takes five seconds at most.

    Args:
        config: A `MetastoreConfig`, or the path of a `metastore.yaml`, which each run reads again. None is
            $METASTORE_CONFIG, else ./metastore.yaml. Environment variables in it are needed only in runs.
        tables: The names of the tables, or one name; None for all.
        translator: Decides the keys and other attributes of the tables' assets; None for `MetastoreTranslator()`.
        s3: The `S3Resource` of dagster-aws, for S3 access that the configuration does not set.
        spark: A resource of dagster-pyspark that provides the session. The settings under `spark` are then not used.

    Raises:
        ConfigError: The configuration is invalid, or a table does not exist.
    """
    configuration = Configuration.of(config, s3, spark).with_loaded_listings()
    unresolved_config = configuration.unresolved()
    selected_tables = _select_tables(unresolved_config, tables)
    infos = load_table_info(configuration, [table.name for table in selected_tables])
    user_translator = translator or MetastoreTranslator()
    return [
        asset
        for table in selected_tables
        for asset in table_assets(configuration, table, user_translator, infos.get(table.name, TableInfo()))
    ]


def build_commit_sensor(
    table: str,
    config: ConfigLike = None,
    *,
    translator: MetastoreTranslator | None = None,
    s3: "S3Resource | None" = None,
    default_status: DefaultSensorStatus | None = None,
) -> SensorDefinition:
    """Return a sensor that launches a run of the table's refresh job for each commit.

    It looks at the table every `sensor.interval` seconds. The definitions need not contain the job, but they need the
    assets of `build_metastore_assets`.

    Args:
        table: The name of the table.
        config: As for `build_metastore_assets`.
        translator: As for `build_metastore_assets`.
        s3: As for `build_metastore_assets`.
        default_status: Whether the sensor starts by itself. Default: as configured by `sensor.status` and `sensors`.

    Raises:
        ConfigError: The configuration is invalid, or the table does not exist.
    """
    configuration = Configuration.of(config, s3).with_loaded_listings()
    unresolved_config = configuration.unresolved()
    table_config = unresolved_config.table(table)
    names = names_of(table_config, translator or MetastoreTranslator())
    status = default_status or dagster_sensor_status(unresolved_config.sensor_status(table_config))
    return commit_sensor(configuration, table_config, names, refresh_job(table_config, names), status)


def build_metastore_definitions(
    config: ConfigLike = None,
    *,
    tables: Iterable[str] | None = None,
    translator: MetastoreTranslator | None = None,
    s3: "S3Resource | None" = None,
    spark: SparkLike | None = None,
    sensors: SensorStatus | None = None,
) -> Definitions:
    """Return the assets, checks, jobs and sensors of a configuration, to merge with those of a project.

    A database contributes the tables that were last listed in it. Unless `tables` is given, one sensor per database
    detects added and removed tables, and then reloads the code location.

    Args:
        config: As for `build_metastore_assets`.
        tables: As for `build_metastore_assets`.
        translator: As for `build_metastore_assets`.
        s3: As for `build_metastore_assets`.
        spark: As for `build_metastore_assets`.
        sensors: The status of all sensors: `running`, `stopped`, or `absent`. Default: as the configuration says.

    Raises:
        ConfigError: The configuration is invalid, or a table does not exist.
    """
    if sensors not in (None, *get_args(SensorStatus)):
        raise ConfigError(
            f"sensors = {sensors!r}: must be {join_names([repr(status) for status in get_args(SensorStatus)])}"
        )
    configuration = Configuration.of(config, s3, spark).with_loaded_listings()
    unresolved_config, user_translator = configuration.unresolved(), translator or MetastoreTranslator()
    selected_tables = _select_tables(unresolved_config, tables)
    jobs, sensor_definitions = [], []
    for table in selected_tables:
        names = names_of(table, user_translator)
        job = refresh_job(table, names)
        jobs.append(job)
        status = unresolved_config.sensor_status(table, sensors)
        if status != "absent":
            sensor_definitions.append(commit_sensor(configuration, table, names, job, dagster_sensor_status(status)))
    # A selection of tables excludes tables that are added later, so it needs no sensor that detects them.
    if tables is None:
        sensor_definitions += database_sensors(configuration, user_translator, sensors)
    return Definitions(
        assets=build_metastore_assets(
            configuration, tables=[table.name for table in selected_tables], translator=translator
        ),
        jobs=jobs,
        sensors=sensor_definitions,
    )


def _select_tables(config: MetastoreConfig, names: Iterable[str] | None) -> list[TableConfig]:
    """Return the tables with these names, each once; all tables for None.

    Raises ConfigError for an unknown name.
    """
    if names is None:
        return config.tables
    return [config.table(name) for name in dict.fromkeys([names] if isinstance(names, str) else names)]
