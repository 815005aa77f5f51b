"""The translator from tables to assets: a class that a project subclasses to change its assets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dagster import AssetKey, AssetSpec, FreshnessPolicy, PartitionMapping, PartitionsDefinition

from metastore_assets.assets.names import TABLE_TAG, AssetKind, Kind, TableNames, identifier, kinds_of, table_tag
from metastore_assets.assets.partition_groups import PartitionGrouping
from metastore_assets.assets.partition_mapping import TablePartitions
from metastore_assets.checks.configured_checks import read_named_checks
from metastore_assets.checks.table_checks import Fresh
from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.messages import redact
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.report.markdown import code_markdown

_CONTENTS: Mapping[AssetKind, str] = {
    "statistics": "One row per column: counts of values, nulls and distinct values, minimum, maximum, sum, mean, "
    "standard deviation, lengths, percentiles, and the guarantee of each number.",
    "frequencies": "One row per column and value with its frequency, the most frequent first. Columns with too many "
    "distinct values have no rows; the statistics have the number of their distinct values.",
    "histograms": "The histogram of each numeric or temporal column. The widths of its bins are powers of two, so that "
    "histograms of partitions add up exactly.",
    "ranks": "All values of the columns with `ranks: on`, in ascending order, with exact quantiles and ranks.",
}
_TABLE = (
    "Describes the whole table {table}{merged}. Materializing it refreshes all profiles to the table's current "
    "snapshot, and reads only what changed."
)
_SINGLE = (
    "Statistics, frequencies and histograms of {table}{partitions}. After each commit a sensor refreshes what the "
    "commit changed.{again}"
)
_PARTITIONS = (
    "The statistics, frequencies and histograms of each partition of {table}. Materializing partitions by hand reads "
    "their rows again. After each commit a sensor refreshes what the commit changed."
)
_SOURCE = "The table at {uri}. Each observation is a snapshot that the Metastore describes."
_PREFIX = re.compile(r"[A-Za-z0-9_-]+")
_FORMAT_KINDS = {"files": "file"}
"""Dagster's kinds for formats that have another name there."""
_MIN_WINDOW = timedelta(minutes=2)


@dataclass(frozen=True)
class MetastoreAsset:
    """The facts about one asset, which the translator's methods receive."""

    table: TableConfig
    """The table's configuration, with variables unresolved."""
    kind: AssetKind
    """`source` is the table itself, `partitions` are the profiles of its partitions, others are table-level files."""
    format: str | None = None
    """The table's format from the newest version or the configuration; None if unknown."""
    engine: str | None = None
    """The configured engine that reads the table: `spark`, `auto` or `emr-serverless`; None for a source."""
    partitioned: bool | None = None
    """Whether the table has partition columns; None if unknown."""


class MetastoreTranslator:
    """A translator from the tables of a Metastore to assets.

    Override `get_asset_spec` to change keys, groups, descriptions and other attributes of assets:
    `super().get_asset_spec(asset).replace_attributes(…)`. Override the other methods to relate the table to assets of
    the project. All keys, groups, jobs, sensors, pools and tags begin with `prefix`, so two Metastores in one Dagster
    instance can have tables of the same name.
    """

    prefix: tuple[str, ...] = ()

    def __init__(self, prefix: str | Sequence[str] = ()) -> None:
        self.prefix = (prefix,) if isinstance(prefix, str) else tuple(prefix)
        for part in self.prefix:
            if not _PREFIX.fullmatch(part):
                raise ConfigError(
                    f"the prefix {part!r} must consist of letters, digits, `_` and `-`, because names begin with it"
                )

    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        """Return the spec of an asset.

        It has the key, group, description, kinds, tags, metadata and freshness policy. An override can change the
        default with `super().get_asset_spec(asset).replace_attributes(…)` or `merge_attributes(…)`. The assets of a
        table must have different keys.

        The Metastore keeps the dependencies in the spec, and adds one for every asset except `source`, which is the
        table itself. The asset `partitions` depends on the table. Table-level assets have statistics of the whole
        table. They depend on `partitions`; without it, on the table.

        The Metastore also sets the partitions of the asset that has the statistics of partitions.
        """
        # The last part of the key names the table, because Dagster's graph shows only the last part.
        key = AssetKey([*self.prefix, asset.table.name, f"{asset.table.name}_{asset.kind}"])
        tags = {TABLE_TAG: table_tag(asset.table.name, self.prefix)}
        common: dict[str, Any] = {
            "description": _description(asset),
            "group_name": identifier(asset.table.name, self.prefix),
        }
        if asset.kind == "source":
            # People use this name in SQL. A folder has only the configured name.
            name = asset.table.identifier or asset.table.name
            kind = _FORMAT_KINDS.get(asset.format, asset.format) if asset.format else "table"
            metadata = {"dagster/uri": redact(asset.table.uri), "dagster/table_name": name}
            return AssetSpec(key, **common, kinds={kind}, tags=tags, metadata=metadata)
        return AssetSpec(
            key,
            **common,
            kinds={"parquet"} if asset.engine == "auto" else {"spark", "parquet"},
            tags={**tags, "metastore/kind": asset.kind},
            code_version=PROFILE_VERSION,
            freshness_policy=_freshness_policy(asset.table) if asset.kind == "statistics" else None,
        )

    def get_upstream(self, table: TableConfig) -> AssetKey | None:
        """Return the key of the project's asset that writes the table.

        The table's assets depend on it.

        None, the default, means that no asset writes the table. The table is then an external asset, whose key is
        `prefix/sales/sales_source` for the table `sales`.
        """
        return None

    def get_partitions_def(self, table: TableConfig) -> PartitionsDefinition | TablePartitions | None:
        """Return the project's partitions definition that corresponds to the table's partitions.

        Return a `TablePartitions` if the keys of the table differ from those of the definition. With None, the default,
        Dagster's partitions are dynamic and have the table's keys.
        """
        return None

    def get_partition_mapping(self, table: TableConfig) -> PartitionMapping | None:
        """Return the partition mapping by which the statistics of partitions depend on the table.

        The mapping relates two assets: the one with the statistics of partitions, and the one that writes the table
        (see `get_upstream`). It is needed only if the partitions of these two assets do not match by name or time. The
        default is None.
        """
        return None


def _description(asset: MetastoreAsset) -> str:
    """Return the description of an asset, in Markdown."""
    if asset.kind == "source":
        return _SOURCE.format(uri=code_markdown(redact(asset.table.uri)))
    table = code_markdown(asset.table.name)
    if asset.kind == "partitions":
        return _PARTITIONS.format(table=table)
    is_partitioned = asset.partitioned is not False
    if asset.table.outputs == "table":
        again = " Materializing partitions by hand reads their rows again." if is_partitioned else ""
        partitions = ", of each partition and of the whole" if is_partitioned else ""
        return _SINGLE.format(table=table, partitions=partitions, again=again)
    description = _TABLE.format(table=table, merged=", merged from its partitions" if is_partitioned else "")
    return f"{_CONTENTS[asset.kind]}\n\n{description}"


def _freshness_policy(table: TableConfig) -> FreshnessPolicy | None:
    """Return a policy with the shortest time limit of the table's `fresh` checks of severity `error`.

    The time limit is at least `_MIN_WINDOW`. The result is None if the table has no such check.
    """
    checks = [named_check.check for named_check in read_named_checks(table)]
    limits = [check.within for check in checks if isinstance(check, Fresh) and check.severity == "error"]
    # Dagster evaluates the policy at most once a minute.
    return FreshnessPolicy.time_window(max(min(limits), _MIN_WINDOW)) if limits else None


def _to_table_partitions(definition: PartitionsDefinition | TablePartitions | None) -> TablePartitions | None:
    return TablePartitions(definition) if isinstance(definition, PartitionsDefinition) else definition


def names_of(table: TableConfig, translator: MetastoreTranslator) -> TableNames:
    """Return the names of a table's objects in Dagster.

    Raises ConfigError if two assets of the table have the same key.
    """
    kinds: tuple[AssetKind, ...] = (*(("partitions",) if table.outputs == "kinds" else ()), *kinds_of(table))
    keys = {kind: translator.get_asset_spec(MetastoreAsset(table, kind)).key for kind in kinds}
    upstream = translator.get_upstream(table)
    if upstream is None:
        source = translator.get_asset_spec(MetastoreAsset(table, "source")).key
    else:
        source = AssetKey.from_coercible(upstream)
    kind_by_key: dict[AssetKey, str] = {source: "source"}
    for kind, key in keys.items():
        if key in kind_by_key:
            raise ConfigError(
                f"table {table.name!r}: {kind_by_key[key]} and {kind} both have the asset key "
                f"{key.to_user_string()!r}: get_asset_spec must return a different key for each kind"
            )
        kind_by_key[key] = kind
    kind_assets: dict[Kind, AssetKey] = {kind: keys[kind] for kind in kinds_of(table)}
    return TableNames(
        table.name,
        source,
        keys["partitions" if "partitions" in keys else "statistics"],
        kind_assets,
        translator.prefix,
        upstream is not None,
        _to_table_partitions(translator.get_partitions_def(table)),
        PartitionGrouping(table.dagster.partition_columns),
    )
