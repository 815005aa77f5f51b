"""How the tables of a Metastore become assets of a project: a class whose methods a project overrides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dagster import AssetKey, AssetSpec, AutomationCondition, FreshnessPolicy, PartitionMapping

from metastore_assets.assets.names import TABLE_TAG, AssetKind, Kind, TableNames, identifier, kinds_of, tag_of
from metastore_assets.assets.partition_mapping import TablePartitions
from metastore_assets.checks.entries import named_checks
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
"""What Dagster calls a format, where it is not the same."""
_LEAST_WINDOW = timedelta(minutes=2)


@dataclass(frozen=True)
class MetastoreAsset:
    """An asset that a table has, as a translator is asked about it."""

    table: TableConfig
    """What the configuration says of the table, as written."""
    kind: AssetKind
    """`source`: the table itself; `partitions`: the profiles of its partitions; else one kind of file of the whole."""
    format: str | None = None
    """The table's format, where it is known: by the configuration, or by the newest version."""
    engine: str | None = None
    """What reads the table, as the configuration says: `spark`, `auto` or `emr-serverless`; None of a source."""
    partitioned: bool | None = None
    """Whether the table has partition columns, where that is known."""


class MetastoreTranslator:
    """What the assets of a Metastore are called, belong to, and depend on.

    Override what a project has otherwise; each method is asked about one asset, or about one table, and what it leaves
    to `super()` is as without. With `prefix`, all keys, groups, jobs, sensors, pools and tags begin with it: so two
    Metastores may have tables of one name in one instance of Dagster.
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
        """The key of an asset; `prefix/table/table_kind`. Distinct for all assets of all tables.

        Its last part names the table, for that is all that Dagster shows in a graph.
        """
        return AssetKey([*self.prefix, asset.table.name, f"{asset.table.name}_{asset.kind}"])

    def get_description(self, asset: MetastoreAsset) -> str:
        """What the asset's page says it is, in Markdown."""
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
        """The asset's group; one for each table."""
        return identifier(asset.table.name, self.prefix)

    def get_kinds(self, asset: MetastoreAsset) -> set[str]:
        """Up to three kinds, which Dagster shows on the asset."""
        if asset.kind != "source":
            return {"parquet"} if asset.engine == "auto" else {"spark", "parquet"}
        return {_KINDS_OF_FORMATS.get(asset.format, asset.format) if asset.format else "table"}

    def get_owners(self, asset: MetastoreAsset) -> Sequence[str]:
        """Who is asked about it: e-mail addresses, or `team:name`. Nobody."""
        return ()

    def get_tags(self, asset: MetastoreAsset) -> Mapping[str, str]:
        """Tags beside those that the Metastore itself goes by."""
        return {}

    def get_metadata(self, asset: MetastoreAsset) -> Mapping[str, Any]:
        """Metadata of the definition; of events there are others."""
        if asset.kind != "source":
            return {}
        # As people would name it in SQL; a folder has no name but the configuration's.
        name = asset.table.identifier or asset.table.name
        return {"dagster/uri": redact(asset.table.uri), "dagster/table_name": name}

    def get_freshness_policy(self, asset: MetastoreAsset) -> FreshnessPolicy | None:
        """How old the asset may be; what the table's check `fresh` says, where its severity is `error`."""
        if asset.kind != "statistics":
            return None
        checks = [named.check for named in named_checks(asset.table)]
        limits = [check.within for check in checks if isinstance(check, Fresh) and check.severity == "error"]
        # Dagster looks no more often than once a minute.
        return FreshnessPolicy.time_window(max(min(limits), _LEAST_WINDOW)) if limits else None

    def get_automation_condition(self, asset: MetastoreAsset) -> AutomationCondition | None:  # type: ignore[type-arg]
        """When Dagster materializes the asset by itself: never, since a sensor sees to each commit."""
        return None

    def get_asset_spec(self, asset: MetastoreAsset) -> AssetSpec:
        """All that is said of an asset. Dependencies that are added here come beside those of the Metastore.

        Its partitions are left to `get_partitions`.
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
        """The asset of the project that writes the table, which then is what the others depend on; None: the table is
        an external asset of its own, `prefix/table/table_source`."""
        return None

    def get_partitions(self, table: TableConfig) -> TablePartitions | None:
        """The partitions of the project that the table's are, one to one; None: a set of keys of its own."""
        return None

    def get_partition_mapping(self, table: TableConfig) -> PartitionMapping | None:
        """How the table's partitions follow from those of the asset that writes it, where that is not by their names or
        times: one of Dagster's own mappings."""
        return None


def names_of(table: TableConfig, translator: MetastoreTranslator) -> TableNames:
    """What Dagster calls everything of a table. Raises ConfigError where two of its assets have the same key."""
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
