"""A translator from tables to assets of a project: a class whose methods a project overrides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dagster import AssetKey, AssetSpec, AutomationCondition, FreshnessPolicy, PartitionMapping

from metastore_assets.assets.names import TABLE_TAG, AssetKind, Kind, TableNames, identifier, kinds_of, tag_of
from metastore_assets.assets.partition_mapping import TablePartitions
from metastore_assets.checks.entries import read_named_checks
from metastore_assets.checks.table_checks import Fresh
from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.messages import redact
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.report.markdown import code_markdown

_CONTENTS: Mapping[AssetKind, str] = {
    "statistics": "One row per column: counts of values, nulls and distinct values, least and greatest value, sum, "
    "mean, deviation, lengths, percentiles, and what each number is worth.",
    "frequencies": "One row per column and value: how often the value occurs, most frequent first. Of columns with too "
    "many distinct values none is listed; the statistics say how many there are.",
    "histograms": "One column per numeric or temporal column: bins whose width is a power of two, so that histograms "
    "of any two partitions add up exactly.",
    "ranks": "All values of the columns under `ranks: on`, in order: exact quantiles, and the rank of any value.",
}
_WHOLE = (
    "Of the whole of {table}{merged}. Materializing it brings everything up to the table's current snapshot, and "
    "reads only what changed."
)
_SINGLE = (
    "Statistics, frequencies and histograms of {table}{partitions}. A commit to the table brings up to date what it "
    "changed by itself.{again}"
)
_PARTITIONS = (
    "The statistics, frequencies and histograms of each partition of {table}. Materializing partitions by hand reads "
    "their rows again; a commit to the table brings up to date what it changed by itself."
)
_SOURCE = "The table at {uri}. Each observation is a snapshot that the Metastore describes."
_PREFIX = re.compile(r"[A-Za-z0-9_-]+")
_KINDS_OF_FORMATS = {"files": "file"}
"""Dagster's names of formats that differ from ours."""
_LEAST_WINDOW = timedelta(minutes=2)


@dataclass(frozen=True)
class MetastoreAsset:
    """An asset of a table, as passed to the translator's methods."""

    table: TableConfig
    """The table's configuration, as written."""
    kind: AssetKind
    """`source` is the table itself, `partitions` the profiles of its partitions; the other kinds are files of the whole
    table."""
    format: str | None = None
    """The table's format, if the configuration or the newest version records it."""
    engine: str | None = None
    """The configured engine that reads the table: `spark`, `auto` or `emr-serverless`; None for a source."""
    partitioned: bool | None = None
    """Whether the table has partition columns; None if unknown."""


class MetastoreTranslator:
    """Names, groups and dependencies of the assets of a Metastore.

    Override the methods whose result should differ; `super()` returns the default. Each method receives one asset or
    one table. With `prefix`, all keys, groups, jobs, sensors, pools and tags start with it, so that two Metastores may
    have tables of the same name in one Dagster instance.
    """

    prefix: tuple[str, ...] = ()

    def __init__(self, prefix: str | Sequence[str] = ()) -> None:
        self.prefix = (prefix,) if isinstance(prefix, str) else tuple(prefix)
        for part in self.prefix:
            if not _PREFIX.fullmatch(part):
                raise ConfigError(
                    f"the prefix {part!r} is to be of letters, digits, `_` and `-`, for names begin with it"
                )

    def get_asset_key(self, asset: MetastoreAsset) -> AssetKey:
        """Return the key of an asset: `prefix/table/table_kind`. Keys must be distinct over all tables.

        The last part names the table, because Dagster's graph shows only the last part.
        """
        return AssetKey([*self.prefix, asset.table.name, f"{asset.table.name}_{asset.kind}"])

    def get_description(self, asset: MetastoreAsset) -> str:
        """Return the description on the asset's page, as Markdown."""
        if asset.kind == "source":
            return _SOURCE.format(uri=code_markdown(redact(asset.table.uri)))
        table = code_markdown(asset.table.name)
        if asset.kind == "partitions":
            return _PARTITIONS.format(table=table)
        partitioned = asset.partitioned is not False
        if asset.table.outputs == "table":
            again = " Materializing partitions by hand reads their rows again." if partitioned else ""
            partitions = ", of each partition and of the whole" if partitioned else ""
            return _SINGLE.format(table=table, partitions=partitions, again=again)
        whole = _WHOLE.format(table=table, merged=", merged from its partitions" if partitioned else "")
        return f"{_CONTENTS[asset.kind]}\n\n{whole}"

    def get_group_name(self, asset: MetastoreAsset) -> str:
        """Return the asset's group, by default one for each table."""
        return identifier(asset.table.name, self.prefix)

    def get_kinds(self, asset: MetastoreAsset) -> set[str]:
        """Return up to three kinds, which Dagster shows on the asset."""
        if asset.kind != "source":
            return {"parquet"} if asset.engine == "auto" else {"spark", "parquet"}
        return {_KINDS_OF_FORMATS.get(asset.format, asset.format) if asset.format else "table"}

    def get_owners(self, asset: MetastoreAsset) -> Sequence[str]:
        """Return the owners: e-mail addresses, or `team:name`. By default none."""
        return ()

    def get_tags(self, asset: MetastoreAsset) -> Mapping[str, str]:
        """Return tags in addition to those of the Metastore."""
        return {}

    def get_metadata(self, asset: MetastoreAsset) -> Mapping[str, Any]:
        """Return metadata of the definition; events have metadata of their own."""
        if asset.kind != "source":
            return {}
        # The name that people use in SQL. A folder has only the configured name.
        name = asset.table.identifier or asset.table.name
        return {"dagster/uri": redact(asset.table.uri), "dagster/table_name": name}

    def get_freshness_policy(self, asset: MetastoreAsset) -> FreshnessPolicy | None:
        """Return how old the asset may be: the limit of the table's check `fresh`, if its severity is `error`."""
        if asset.kind != "statistics":
            return None
        checks = [named.check for named in read_named_checks(asset.table)]
        limits = [check.within for check in checks if isinstance(check, Fresh) and check.severity == "error"]
        # Dagster evaluates the policy at most once a minute.
        return FreshnessPolicy.time_window(max(min(limits), _LEAST_WINDOW)) if limits else None

    def get_automation_condition(self, asset: MetastoreAsset) -> AutomationCondition | None:  # type: ignore[type-arg]
        """Return when Dagster materializes the asset by itself: never, because a sensor handles each commit."""
        return None

    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        """Return the complete spec of an asset, without partitions, which `get_partitions` provides.

        Dependencies that an override adds are added to those of the Metastore.
        """
        own = {} if asset.kind == "source" else {"metastore/kind": asset.kind}
        return AssetSpec(
            self.get_asset_key(asset),
            description=self.get_description(asset),
            group_name=self.get_group_name(asset),
            kinds=self.get_kinds(asset),
            owners=self.get_owners(asset),
            tags={**self.get_tags(asset), TABLE_TAG: tag_of(asset.table.name, self.prefix), **own},
            metadata=self.get_metadata(asset),
            code_version=None if asset.kind == "source" else PROFILE_VERSION,
            automation_condition=self.get_automation_condition(asset),
            freshness_policy=self.get_freshness_policy(asset),
        )

    def get_upstream(self, table: TableConfig) -> AssetKey | None:
        """Return the project's asset that writes the table; the table's assets then depend on it.

        None (the default) makes the table an external asset of its own, `prefix/table/table_source`.
        """
        return None

    def get_partitions(self, table: TableConfig) -> TablePartitions | None:
        """Return the project's partitions that match the table's one to one; None for separate dynamic partitions."""
        return None

    def get_partition_mapping(self, table: TableConfig) -> PartitionMapping | None:
        """Return one of Dagster's partition mappings from the asset that writes the table.

        Needed only if partitions do not match by name or time.
        """
        return None


def names_of(table: TableConfig, translator: MetastoreTranslator) -> TableNames:
    """Return Dagster's names for everything of a table. Raises ConfigError if two of its assets have the same key."""
    kinds: tuple[AssetKind, ...] = (*(("partitions",) if table.outputs == "kinds" else ()), *kinds_of(table))
    keys = {kind: translator.get_asset_spec(MetastoreAsset(table, kind)).key for kind in kinds}
    upstream = translator.get_upstream(table)
    if upstream is None:
        source = translator.get_asset_spec(MetastoreAsset(table, "source")).key
    else:
        source = AssetKey.from_coercible(upstream)
    seen: dict[AssetKey, str] = {source: "source"}
    for kind, key in keys.items():
        if key in seen:
            raise ConfigError(
                f"table {table.name!r}: {seen[key]} and {kind} both have the asset key {key.to_user_string()!r}: "
                "get_asset_key has to give each kind a key of its own"
            )
        seen[key] = kind
    whole: dict[Kind, AssetKey] = {kind: keys[kind] for kind in kinds_of(table)}
    return TableNames(
        table.name,
        source,
        keys["partitions" if "partitions" in keys else "statistics"],
        whole,
        translator.prefix,
        upstream is not None,
        translator.get_partitions(table),
    )
