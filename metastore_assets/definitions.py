"""The Dagster code location with all tables of $METASTORE_CONFIG or ./metastore.yaml."""

from dagster import Definitions, in_process_executor

from metastore_assets.assets.project import build_metastore_definitions

# Dagster shows a ConfigError of this module as the reason why the code location does not load.
# Each run is one op, so the run's process executes it: a process per op would only start Python again.
defs = Definitions.merge(build_metastore_definitions(), Definitions(executor=in_process_executor))
