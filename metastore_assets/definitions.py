"""The Dagster code location: every table of the configuration, found as the CLI finds it."""

from dagster import Definitions, in_process_executor

from metastore_assets.assets.project import build_metastore_definitions

# A ConfigError here is what Dagster shows of a code location that cannot be loaded: file, key, value, what is allowed.
# Its runs are one op each, whoever launched them: another process for it would only start Python again.
defs = Definitions.merge(build_metastore_definitions(), Definitions(executor=in_process_executor))
