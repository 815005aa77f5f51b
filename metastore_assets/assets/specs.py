"""The assets of one table as Dagster's specifications: what the catalog shows before anything is computed."""

from collections.abc import Mapping

from dagster import AssetCheckSpec, AssetSpec, DynamicPartitionsDefinition

from metastore_assets.assets.names import (
    CHECK,
    KINDS,
    LEVELS,
    TABLE_TAG,
    Kind,
    Level,
    asset_key,
    identifier,
    partitions_of,
    source_key,
)
from metastore_assets.config import TableConfig
from metastore_assets.pipeline.signatures import PROFILE_VERSION

_CONTENTS: Mapping[Kind, str] = {
    "statistics": "One row per column: counts of values, nulls and distinct values, least and greatest value, sum, "
    "mean, deviation, lengths, percentiles, and what each number is worth.",
    "frequencies": "One row per column and value: how often the value occurs, most frequent first. Of columns with too "
    "many distinct values none is listed; the statistics say how many there are.",
    "histograms": "One column per numeric or temporal column: bins whose width is a power of two, so that histograms "
    "of any two partitions add up exactly.",
}
_SCOPES: Mapping[Level, str] = {
    "partition": "Of each partition of `{table}`. Materializing partitions by hand reads their rows again; a commit "
    "to the table brings up to date what it changed by itself.",
    "table": "Of the whole of `{table}`, merged from its partitions. Materializing it brings everything up to the "
    "table's current snapshot, and reads only what changed.",
}


def source_spec(table: TableConfig) -> AssetSpec:
    """The table itself: observed once per snapshot, never written."""
    return AssetSpec(
        source_key(table.name),
        description=f"The table at `{table.uri}`. Each observation is a snapshot that the Metastore describes.",
        group_name=identifier(table.name),
        kinds={table.format if table.format in ("delta", "iceberg", "hudi") else "table"},
        metadata={"dagster/uri": table.uri},
        tags={TABLE_TAG: table.name},
    )


def profile_specs(table: TableConfig) -> list[AssetSpec]:
    """The six assets that a refresh makes: three kinds of files at two levels, the table's below its partitions'."""
    partitions = partitions_of(table.name)
    return [_profile_spec(table, level, kind, partitions) for level in LEVELS for kind in KINDS]


def check_specs(table: TableConfig) -> list[AssetCheckSpec]:
    """Checks that the run makes of what it published."""
    return [
        AssetCheckSpec(
            CHECK,
            asset=asset_key(table.name, "table", "statistics"),
            description="The rows of the partitions add up to the table's, and the values and nulls of every "
            "top-level column add up to its rows.",
        )
    ]


def _profile_spec(table: TableConfig, level: Level, kind: Kind, partitions: DynamicPartitionsDefinition) -> AssetSpec:
    name = table.name
    return AssetSpec(
        asset_key(name, level, kind),
        deps=[source_key(name) if level == "partition" else asset_key(name, "partition", kind)],
        description=f"{_CONTENTS[kind]}\n\n{_SCOPES[level].format(table=name)}",
        group_name=identifier(name),
        code_version=PROFILE_VERSION,
        kinds={"spark", "parquet"},
        partitions_def=partitions if level == "partition" else None,
        tags={TABLE_TAG: name, "metastore/level": level, "metastore/kind": kind},
    )
