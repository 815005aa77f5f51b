"""The tables of a configuration as definitions of a project: assets, sensors, or all of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, get_args

from dagster import AssetsDefinition, AssetSpec, DefaultSensorStatus, Definitions, SensorDefinition

from metastore_assets.assets.factory import refresh_job, table_assets
from metastore_assets.assets.table_info import TableInfo, read_table_info
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.config import SensorStatus
from metastore_assets.errors import ConfigError
from metastore_assets.messages import join_names
from metastore_assets.resources.configuration import ConfigLike, Configuration
from metastore_assets.resources.spark import SparkLike
from metastore_assets.sensors.commits import commit_sensor, default_status_of
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

    What the newest versions tell, whether a table has partitions and its format, is looked up for some seconds at most;
    of a table that has none yet, the table itself is asked for partitions.
    Raises ConfigError.
    """
    configuration = Configuration.of(config, s3, spark).looked_up()
    metastore = configuration.shown()
    selected_tables = metastore.tables if tables is None else [metastore.table(name) for name in tables]
    infos = read_table_info(configuration, [table.name for table in selected_tables])
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
    """The sensor that sees the commits of one table and asks for a run for each, with the job that it runs.

    It looks every `sensor.interval` seconds. It runs without being switched on, unless `default_status` or, without
    that, the configuration says otherwise (`sensor.status`, `sensors`).
    The arguments are those of `build_metastore_assets`, whose assets have to be in the same code location. Raises
    ConfigError.
    """
    configuration = Configuration.of(config, s3).looked_up()
    shown = configuration.shown()
    table_config = shown.table(table)
    names = names_of(table_config, translator or MetastoreTranslator())
    status = default_status or default_status_of(shown.sensor_status(table_config))
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
    """Assets, checks, jobs and sensors of the tables of a configuration, to be merged with a project's own.

    Of whole databases these are the tables that they have now; a sensor for each sees tables come and go.

    `sensors` says whether they are `running` without being switched on, `stopped`, or `absent`; None: as the
    configuration says. The other arguments are those of `build_metastore_assets`. Raises ConfigError.
    """
    if sensors not in (None, *get_args(SensorStatus)):
        raise ConfigError(
            f"sensors = {sensors!r}: must be {join_names([repr(status) for status in get_args(SensorStatus)])}"
        )
    configuration = Configuration.of(config, s3, spark).looked_up()
    shown, user_translator = configuration.shown(), translator or MetastoreTranslator()
    selected_tables = shown.tables if tables is None else [shown.table(name) for name in tables]
    jobs, sensor_definitions = [], []
    for table in selected_tables:
        names = names_of(table, user_translator)
        job = refresh_job(table, names)
        jobs.append(job)
        status = shown.sensor_status(table, sensors)
        if status != "absent":
            sensor_definitions.append(commit_sensor(configuration, table, names, job, default_status_of(status)))
    # Whoever chooses tables does not ask for those to come.
    if tables is None:
        sensor_definitions += database_sensors(configuration, user_translator, sensors)
    return Definitions(
        assets=build_metastore_assets(
            configuration, tables=[table.name for table in selected_tables], translator=translator
        ),
        jobs=jobs,
        sensors=sensor_definitions,
    )
