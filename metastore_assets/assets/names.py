"""The names of a table's objects in Dagster: its assets, op, pool, job, sensor and partitions.

The names are unique: the configuration rejects table names that differ only in punctuation or case, and each kind of
object has its own suffix.

Some assets stand for table-level files. Each such file has one kind of data about the whole table: statistics, value
frequencies, histograms or ranks.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dagster import AssetKey, DagsterInstance, DagsterRunStatus, DynamicPartitionsDefinition, PartitionsDefinition

from metastore_assets.assets.partition_groups import UNGROUPED, PartitionGrouping
from metastore_assets.assets.partition_mapping import PartitionKeyMap, TablePartitions
from metastore_assets.config import TableConfig

Kind = Literal["histograms", "frequencies", "ranks", "statistics"]
AssetKind = Literal["source", "partitions", "histograms", "frequencies", "ranks", "statistics"]
"""The kind of an asset: the table itself, the profiles of its partitions, or one kind of table-level file."""

KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of table-level files in the order of their events. Statistics are last: their event completes the report of
a version."""
PARTITION_KINDS: tuple[Kind, ...] = ("statistics", "frequencies", "histograms")
"""The kinds of files that a partition has."""

TABLE_TAG = "metastore/table"
"""The tag of runs and assets that names their table, as `prefix.table`."""
DATA_VERSION_TAG = "dagster/data_version"
"""The documented tag of materializations with their data version."""
DAGSTER_BACKFILL_TAG = "dagster/backfill"
"""The documented tag of runs with the id of the backfill that launched them."""
RUN_KEY_TAG = "dagster/run_key"
"""The tag of runs that a sensor requested, with the key of the request."""
UNFINISHED = (
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
"""The statuses of runs that may still refresh their table. A created run is `NOT_STARTED` until it is queued or
launched."""
_MAX_TAG_LENGTH = 63
TAG_DIGEST_LENGTH = 17
"""Length of the end of a shortened tag: a hyphen and a digest."""


@dataclass(frozen=True)
class TableNames:
    """The names of one table's objects in Dagster."""

    table: str
    source: AssetKey
    """The asset of the table itself."""
    partitions: AssetKey
    """The partitioned asset. The event of a partition covers all kinds of its files."""
    kind_assets: Mapping[Kind, AssetKey]
    """The asset of each kind of table-level file."""
    prefix: Sequence[str] = ()
    """The first parts of all names, which distinguish several Metastores in one Dagster instance."""
    has_writer: bool = False
    """Whether `source` is an asset of the project that writes the table."""
    mapping: TablePartitions | None = None
    """The mapping of the table's partitions to a partitions definition of the project; None for dynamic partitions."""
    grouping: PartitionGrouping = UNGROUPED
    """The rule by which partitions of the table are one partition in Dagster."""

    @property
    def is_single(self) -> bool:
        """Whether one asset has the statistics of the table and of all its partitions (`outputs: table`)."""
        return self.partitions == self.kind_assets["statistics"]

    @property
    def tag(self) -> str:
        """The value of the tag `TABLE_TAG`, such as `prod.orders`."""
        return table_tag(self.table, self.prefix)

    @property
    def identifier(self) -> str:
        """`prefix` and table name joined by `_`: `prod_web_orders`.

        The names of op, job and sensor begin with it.
        """
        return identifier(self.table, self.prefix)

    @property
    def op(self) -> str:
        """The name of the op that refreshes the table."""
        return f"{self.identifier}_profile"

    @property
    def pool(self) -> str:
        """The name of the op's pool.

        A limit of the pool is the maximum number of concurrent runs of the table.
        """
        return f"metastore_{self.identifier}"

    @property
    def job(self) -> str:
        """The name of the job that brings the table's statistics up to date with its current snapshot."""
        return f"{self.identifier}_refresh"

    @property
    def sensor(self) -> str:
        """The name of the sensor that detects commits to the table."""
        return f"{self.identifier}_commits"

    @property
    def dynamic_partitions(self) -> str:
        """The name of the dynamic partitions definition, which the assets use only if `mapping` is None."""
        return ".".join([*self.prefix, f"{self.table}_partitions"])

    @property
    def partitions_def(self) -> PartitionsDefinition:
        """The partitions definition of the assets.

        If `mapping` is not None, it contains a definition of the user's Dagster project, which is returned. Otherwise,
        the definition is dynamic.
        """
        return (
            self.mapping.partitions_def if self.mapping else DynamicPartitionsDefinition(name=self.dynamic_partitions)
        )


def kinds_of(table: TableConfig) -> tuple[Kind, ...]:
    """Return the kinds of table-level files that have an asset of their own, in the order of `KINDS`.

    `ranks` is included only if a column has `ranks: on`. With `outputs: table`, only `statistics` is returned.
    """
    if table.outputs == "table":
        return ("statistics",)
    has_ranks = any(table.effective_policy(column).ranks == "on" for column in ("default", *table.columns))
    return tuple(kind for kind in KINDS if kind != "ranks" or has_ranks)


def partition_key_map(names: TableNames, keys: Iterable[str], instance: DagsterInstance) -> PartitionKeyMap:
    """Map the table's partition keys to Dagster's partition keys.

    If `names.mapping` is None, each key maps to itself.

    Args:
        names: The names of the table in Dagster.
        keys: The partition keys of the table. If `names.grouping` groups partitions: the keys of the groups.
        instance: The Dagster instance, which has the keys of dynamic partitions.
    """
    if names.mapping is not None:
        return replace(names.mapping.key_map(keys, instance), grouping=names.grouping)
    identity = {key: key for key in keys}
    return PartitionKeyMap(identity, identity, grouping=names.grouping)


def table_tag(table: str, prefix: Sequence[str] = ()) -> str:
    """Return the value of `TABLE_TAG`: `prefix.table`.

    A digest replaces the end of a text over 63 characters.
    """
    text = ".".join([*prefix, table])
    if len(text) <= _MAX_TAG_LENGTH:
        return text
    digest = f"-{hashlib.sha256(text.encode()).hexdigest()[: TAG_DIGEST_LENGTH - 1]}"
    return text[: _MAX_TAG_LENGTH - TAG_DIGEST_LENGTH] + digest


def is_shortened_tag(tag: str) -> bool:
    """Return whether a value of `TABLE_TAG` may end in a digest.

    `table_tag` shortens long values in this way.
    """
    return len(tag) == _MAX_TAG_LENGTH and tag[-TAG_DIGEST_LENGTH] == "-"


def identifier(table: str, prefix: Sequence[str] = ()) -> str:
    """Join prefix and table name by `_`, and replace each `-` and `.` by `_`.

    For the table `web-orders` with the prefix `prod`: `prod_web_orders`.
    """
    return "_".join([*prefix, table]).replace("-", "_").replace(".", "_")
