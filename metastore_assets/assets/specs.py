"""The assets of one table as Dagster's specifications: what the catalog shows before anything is computed."""

from collections.abc import Mapping

from dagster import AssetCheckSpec, AssetKey, AssetSpec

from metastore_assets.assets.changes import is_partitioned
from metastore_assets.assets.checks import specs_of_checks
from metastore_assets.assets.names import (
    KINDS,
    TABLE_TAG,
    Kind,
    asset_key,
    identifier,
    partitions_key,
    partitions_of,
    source_key,
)
from metastore_assets.config import TableConfig
from metastore_assets.pipeline.signatures import PROFILE_VERSION
from metastore_assets.store.manifest import Version

_CONTENTS: Mapping[Kind, str] = {
    "statistics": "One row per column: counts of values, nulls and distinct values, least and greatest value, sum, "
    "mean, deviation, lengths, percentiles, and what each number is worth.",
    "frequencies": "One row per column and value: how often the value occurs, most frequent first. Of columns with too "
    "many distinct values none is listed; the statistics say how many there are.",
    "histograms": "One column per numeric or temporal column: bins whose width is a power of two, so that histograms "
    "of any two partitions add up exactly.",
    "ranks": "All values of the columns under `ranks: on`, in order: exact quantiles, and the rank of any value.",
}
_WHOLE = (
    "Of the whole of `{table}`, merged from its partitions. Materializing it brings everything up to the table's "
    "current snapshot, and reads only what changed."
)
_PARTITIONS = (
    "The statistics, frequencies and histograms of each partition of `{table}`. Materializing partitions by hand reads "
    "their rows again; a commit to the table brings up to date what it changed by itself."
)
_KINDS_OF_FORMATS = {"files": "file"}
"""What Dagster calls a format, where it is not the same."""


def kinds_of(table: TableConfig) -> tuple[Kind, ...]:
    """The kinds of files that the table has an asset of. Ranks where the configuration asks for them."""
    ranked = any(table.policy(column).ranks == "on" for column in ("default", *table.columns))
    return tuple(kind for kind in KINDS if kind != "ranks" or ranked)


def source_spec(table: TableConfig, newest: Version | None) -> AssetSpec:
    """The table itself: observed once per snapshot, never written. `newest` is the newest version, if there is one."""
    detected = newest.format if newest else table.format
    return AssetSpec(
        source_key(table.name),
        description=f"The table at `{table.uri}`. Each observation is a snapshot that the Metastore describes.",
        group_name=identifier(table.name),
        kinds={_KINDS_OF_FORMATS.get(detected, detected) if detected else "table"},
        metadata={"dagster/uri": table.uri},
        tags={TABLE_TAG: table.name},
    )


def profile_specs(table: TableConfig, newest: Version | None) -> list[AssetSpec]:
    """The assets that a refresh makes: one of the partitions, and below it one of each kind of files of the table.

    A table without partitions has none for them. Before the first version nobody knows; a table that turns out to have
    none loses it when the code location is loaded again.
    """
    name = table.name
    whole = [
        _spec(table, asset_key(name, kind), f"{_CONTENTS[kind]}\n\n{_WHOLE.format(table=name)}", kind)
        for kind in kinds_of(table)
    ]
    if newest is not None and not is_partitioned(newest):
        return [spec.replace_attributes(deps=[source_key(name)]) for spec in whole]
    partitions = _spec(table, partitions_key(name), _PARTITIONS.format(table=name), "partitions")
    return [
        partitions.replace_attributes(deps=[source_key(name)], partitions_def=partitions_of(name)),
        *(spec.replace_attributes(deps=[partitions_key(name)]) for spec in whole),
    ]


def check_specs(table: TableConfig) -> list[AssetCheckSpec]:
    """Checks that the run makes of what it published."""
    return specs_of_checks(table, asset_key(table.name, "statistics"))


def _spec(table: TableConfig, key: AssetKey, description: str, kind: str) -> AssetSpec:
    return AssetSpec(
        key,
        description=description,
        group_name=identifier(table.name),
        code_version=PROFILE_VERSION,
        kinds={"spark", "parquet"},
        tags={TABLE_TAG: table.name, "metastore/kind": kind},
    )
