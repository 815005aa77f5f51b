"""The indexes of a version: what the profiles of all fragments and of all partitions say, by column."""

from metastore_assets.index.fragments import IndexColumn, IndexReader, IndexRows, update_index
from metastore_assets.index.partitions import (
    PartitionReader,
    PartitionRows,
    concat_partitions,
    stack_partitions,
    update_partitions,
)

__all__ = [
    "IndexColumn",
    "IndexReader",
    "IndexRows",
    "PartitionReader",
    "PartitionRows",
    "concat_partitions",
    "stack_partitions",
    "update_index",
    "update_partitions",
]
