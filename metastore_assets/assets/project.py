"""The tables of a configuration as definitions of a project: assets, sensors, or all of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dagster import AssetsDefinition, AssetSpec, DefaultSensorStatus, Definitions, SensorDefinition

from metastore_assets.assets.factory import refresh_job, table_assets
from metastore_assets.assets.newest import newest_versions
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.resources.configuration import ConfigLike, Configuration
from metastore_assets.resources.spark import SparkLike
from metastore_assets.sensors.commits import commit_sensor
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
    """The assets of the tables of a configuration, of all or of those named.

    `config` is a `MetastoreConfig`, or the path of a `metastore.yaml`, which runs read anew; None is $METASTORE_CONFIG,
    else ./metastore.yaml. Variables of the environment are looked up by runs: assets load without.

    `s3`, dagster-aws's resource, is the access to S3 where the configuration itself names none; `spark`, one of
    dagster-pyspark's resources, gives the session, instead of one with the settings under `spark`. The assets bring
    both with them: they need no entry among the resources of the definitions.

    What the newest versions tell, whether a table has partitions and its format, is looked up for some seconds at most.
    Raises ConfigError.
    """
    configuration = Configuration.of(config, s3, spark).looked_up()
    metastore = configuration.shown()
    chosen = metastore.tables if tables is None else [metastore.table(name) for name in tables]
    newest = newest_versions(configuration, [table.name for table in chosen])
    own = translator or MetastoreTranslator()
    return [asset for table in chosen for asset in table_assets(configuration, table, own, newest.get(table.name))]


def build_commit_sensor(
    table: str,
    config: ConfigLike = None,
    *,
    translator: MetastoreTranslator | None = None,
    s3: "S3Resource | None" = None,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> SensorDefinition:
    """The sensor that sees the commits of one table and asks for a run for each, with the job that it runs.

    It runs without being switched on, unless `default_status` says otherwise, every `sensor.interval` seconds.
    The arguments are those of `build_metastore_assets`, whose assets have to be in the same code location. Raises
    ConfigError.
    """
    configuration = Configuration.of(config, s3).looked_up()
    own = configuration.shown().table(table)
    names = names_of(own, translator or MetastoreTranslator())
    return commit_sensor(configuration, own, names, refresh_job(own, names), default_status)


def build_metastore_definitions(
    config: ConfigLike = None,
    *,
    tables: Iterable[str] | None = None,
    translator: MetastoreTranslator | None = None,
    s3: "S3Resource | None" = None,
    spark: SparkLike | None = None,
) -> Definitions:
    """Assets, checks, jobs and sensors of the tables of a configuration, to be merged with a project's own.

    Of whole databases these are the tables that they have now; a sensor for each sees tables come and go.

    The arguments are those of `build_metastore_assets`. Raises ConfigError.
    """
    configuration = Configuration.of(config, s3, spark).looked_up()
    chosen = [table.name for table in configuration.shown().tables] if tables is None else list(tables)
    sensors = [build_commit_sensor(table, configuration, translator=translator) for table in chosen]
    # Whoever chooses tables does not ask for those to come.
    of_databases = database_sensors(configuration, translator or MetastoreTranslator()) if tables is None else []
    return Definitions(
        assets=build_metastore_assets(configuration, tables=chosen, translator=translator),
        jobs=[sensor.job for sensor in sensors],
        sensors=[*sensors, *of_databases],
    )
