"""The Dagster code location: every table of the configuration, found as the CLI finds it."""

from dagster import Definitions, in_process_executor

from metastore_assets.assets.factory import refresh_job, table_assets
from metastore_assets.assets.newest import newest_versions
from metastore_assets.config import config_path, load_config
from metastore_assets.resources.object_store import ObjectStoreResource
from metastore_assets.resources.spark import SparkResource
from metastore_assets.sensors.commits import commit_sensor

# A ConfigError here is what Dagster shows of a code location that cannot be loaded: file, key, value, what is allowed.
_FILE = config_path()
_METASTORE = load_config(_FILE)
_NEWEST = newest_versions(_METASTORE)
_JOBS = [refresh_job(table) for table in _METASTORE.tables]

defs = Definitions(
    assets=[asset for table in _METASTORE.tables for asset in table_assets(_METASTORE, table, _NEWEST.get(table.name))],
    jobs=_JOBS,
    sensors=[commit_sensor(table, job) for table, job in zip(_METASTORE.tables, _JOBS, strict=True)],
    resources={
        "object_store": ObjectStoreResource(config_file=str(_FILE)),
        "spark": SparkResource(config_file=str(_FILE)),
    },
    # A run is one op: another process for it would only start Python again.
    executor=in_process_executor,
)
