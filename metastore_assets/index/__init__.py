"""The indexes of a version: bounds of columns by fragment, and statistics of columns by partition."""

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
