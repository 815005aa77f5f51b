"""Names of everything Dagster keeps of a table. Distinct for distinct tables, because table names stay distinct when
punctuation and case do not count (the configuration sees to that) and each kind of thing has a suffix of its own."""

from typing import Literal, get_args

from dagster import AssetKey, DynamicPartitionsDefinition

Kind = Literal["histograms", "frequencies", "ranks", "statistics"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""What a table has assets of, in the order of reporting: the statistics come last and say that all the rest has been
reported."""
PARTITION_KINDS: tuple[Kind, ...] = ("statistics", "frequencies", "histograms")
"""What a partition has files of."""

TABLE_TAG = "metastore/table"
"""Tag of runs and assets: the table's name."""
TARGET_TAG = "metastore/target"
"""Tag of runs that a sensor asked for: digest of what they are to bring the table up to."""


def source_key(table: str) -> AssetKey:
    """The table itself, as an asset that others write."""
    return AssetKey([table, "source"])


def partitions_key(table: str) -> AssetKey:
    """The profiles of the table's partitions, all kinds of files of a partition in one."""
    return AssetKey([table, "partitions"])


def asset_key(table: str, kind: Kind) -> AssetKey:
    """One kind of file of the whole table."""
    return AssetKey([table, kind])


def identifier(table: str) -> str:
    """The table's name as a group, and as the beginning of other names."""
    return table.replace("-", "_")


def op_name(table: str) -> str:
    """The one op that refreshes a table."""
    return f"{identifier(table)}_profile"


def pool_name(table: str) -> str:
    """The pool of Dagster that the op is in: where pools have a limit, that many runs work on the table at once."""
    return f"metastore_{identifier(table)}"


def job_name(table: str) -> str:
    """The job that brings a table up to its current snapshot."""
    return f"{identifier(table)}_refresh"


def sensor_name(table: str) -> str:
    """The sensor that watches a table's commits."""
    return f"{identifier(table)}_commits"


def partitions_of(table: str) -> DynamicPartitionsDefinition:
    """The partitions of a table: their keys are registered by the runs that publish them."""
    return DynamicPartitionsDefinition(name=partitions_name(table))


def partitions_name(table: str) -> str:
    """The name that the partition keys of a table are registered under in the instance."""
    return f"{table}_partitions"
