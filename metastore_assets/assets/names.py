"""Dagster's names for everything of a table.

They are distinct for distinct tables: the configuration rejects table names that differ only in punctuation or case,
and each kind of thing has its suffix.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dagster import AssetKey, DagsterInstance, DynamicPartitionsDefinition, PartitionsDefinition

from metastore_assets.assets.partition_mapping import PartitionKeyMap, TablePartitions
from metastore_assets.config import TableConfig

Kind = Literal["histograms", "frequencies", "ranks", "statistics"]
AssetKind = Literal["source", "partitions", "histograms", "frequencies", "ranks", "statistics"]
"""The kind of an asset: the table itself, the profiles of its partitions, or one kind of table-level file."""

KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of table-level files in the order of reporting. Statistics come last and complete a report."""
PARTITION_KINDS: tuple[Kind, ...] = ("statistics", "frequencies", "histograms")
"""The kinds of files of a partition."""

TABLE_TAG = "metastore/table"
"""Tag of runs and assets: the table's name, with the prefix of its Metastore."""
DATA_VERSION_TAG = "dagster/data_version"
"""Tag of materializations, documented by Dagster: the data version."""
DAGSTER_BACKFILL_TAG = "dagster/backfill"
"""Tag of runs, documented by Dagster: the id of the backfill that launched the run."""
RUN_KEY_TAG = "dagster/run_key"
"""Tag that Dagster gives runs requested by a sensor: the key of the request."""
_LONGEST_TAG = 63


@dataclass(frozen=True)
class TableNames:
    """Dagster's names for everything of one table. `prefix` separates Metastores that share an instance."""

    table: str
    source: AssetKey
    """The table itself."""
    partitions: AssetKey
    """The profiles of the table's partitions, all kinds of files together."""
    whole: Mapping[Kind, AssetKey]
    """The asset of each kind of table-level file."""
    prefix: Sequence[str] = ()
    has_writer: bool = False
    """Whether `source` is an asset of the project that writes the table."""
    mapping: TablePartitions | None = None
    """Maps the table's partitions to those of a definition of the project; None: they are dynamic partitions."""

    @property
    def is_single(self) -> bool:
        """Whether one asset has both the partitions and the table (`outputs: table`)."""
        return self.partitions == self.whole["statistics"]

    @property
    def tag(self) -> str:
        """The value of `TABLE_TAG`."""
        return tag_of(self.table, self.prefix)

    @property
    def identifier(self) -> str:
        """The table's name as a group, and as the beginning of other names."""
        return identifier(self.table, self.prefix)

    @property
    def op(self) -> str:
        """The one op that refreshes the table."""
        return f"{self.identifier}_profile"

    @property
    def pool(self) -> str:
        """The pool that the op is in: where pools have a limit, that many runs work on the table at once."""
        return f"metastore_{self.identifier}"

    @property
    def job(self) -> str:
        """The job that brings the table up to its current snapshot."""
        return f"{self.identifier}_refresh"

    @property
    def sensor(self) -> str:
        """The sensor that watches the table's commits."""
        return f"{self.identifier}_commits"

    @property
    def dynamic_partitions(self) -> str:
        """The name that the partition keys are registered under in the instance, where there is no `mapping`."""
        return ".".join([*self.prefix, f"{self.table}_partitions"])

    @property
    def partitions_def(self) -> PartitionsDefinition:
        """The partitions as Dagster has them; without `mapping`, the runs that publish them register their keys."""
        return (
            self.mapping.partitions_def if self.mapping else DynamicPartitionsDefinition(name=self.dynamic_partitions)
        )


def kinds_of(table: TableConfig) -> tuple[Kind, ...]:
    """Return the kinds of files that the table has an asset for; ranks only if the configuration asks for them.

    With `outputs: table` the asset of the statistics has all kinds.
    """
    if table.outputs == "table":
        return ("statistics",)
    ranked = any(table.effective_policy(column).ranks == "on" for column in ("default", *table.columns))
    return tuple(kind for kind in KINDS if kind != "ranks" or ranked)


def partition_key_map(names: TableNames, keys: Iterable[str], instance: DagsterInstance) -> PartitionKeyMap:
    """Return Dagster's keys of these partitions of the table; without `mapping` they are equal."""
    if names.mapping is not None:
        return names.mapping.key_map(keys, instance)
    same = {key: key for key in keys}
    return PartitionKeyMap(same, same)


def tag_of(table: str, prefix: Sequence[str] = ()) -> str:
    """Return the value of `TABLE_TAG`: prefix and table name, shortened with a digest if it is too long for a tag."""
    text = ".".join([*prefix, table])
    if len(text) <= _LONGEST_TAG:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST_TAG - 17]}-{digest}"


def identifier(table: str, prefix: Sequence[str] = ()) -> str:
    """Return a table's name for use in other names, which allow neither `-` nor `.`."""
    return "_".join([*prefix, table]).replace("-", "_").replace(".", "_")
