"""The indexes of a version: column bounds by fragment, statistics by partition, and value filters.

A version has the statistics of one snapshot of a table. A fragment is a data file with its deletes. A value filter is
the set of hash prefixes of a column's values in one fragment.
"""

from metastore_assets.index.bounded_rows import BoundedRows
from metastore_assets.index.fragment_index import IndexRows
from metastore_assets.index.fragment_reader import IndexReader, IndexSelection
from metastore_assets.index.fragment_writer import update_index
from metastore_assets.index.partition_index import (
    PartitionReader,
    PartitionRows,
    concat_partitions,
    stack_partitions,
)
from metastore_assets.index.partition_writer import count_written_partitions, update_partitions

__all__ = [
    "BoundedRows",
    "IndexReader",
    "IndexRows",
    "IndexSelection",
    "PartitionReader",
    "PartitionRows",
    "concat_partitions",
    "count_written_partitions",
    "stack_partitions",
    "update_index",
    "update_partitions",
]
