"""Names of everything Dagster keeps of a table. Distinct for distinct tables, because table names stay distinct when
punctuation and case do not count (the configuration sees to that) and each kind of thing has a suffix of its own."""

from typing import Literal, get_args

from dagster import AssetKey, DynamicPartitionsDefinition

Level = Literal["partition", "table"]
Kind = Literal["histograms", "frequencies", "statistics"]

LEVELS: tuple[Level, ...] = get_args(Level)
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of reporting: the table's statistics come last and say that all the rest has been reported."""

TABLE_TAG = "metastore/table"
"""Tag of runs and assets: the table's name."""
TARGET_TAG = "metastore/target"
"""Tag of runs that a sensor asked for: digest of what they are to bring the table up to."""
CHECK = "rows_add_up"


def source_key(table: str) -> AssetKey:
    """The table itself, as an asset that others write."""
    return AssetKey([table, "source"])


def asset_key(table: str, level: Level, kind: Kind) -> AssetKey:
    """One kind of file at one level."""
    return AssetKey([table, level, kind])


def identifier(table: str) -> str:
    """The table's name as a group, and as the beginning of other names."""
    return table.replace("-", "_")


def op_name(table: str) -> str:
    """The one op that refreshes a table."""
    return f"{identifier(table)}_profile"


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
