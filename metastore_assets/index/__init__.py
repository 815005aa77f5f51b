"""The index: what is known of each column in each fragment of a version, and in each partition, so that one column of
all of them is read in one slice."""

from metastore_assets.index.partition_rows import PartitionRows, joined, stacked
from metastore_assets.index.partitions import PartitionReader, next_partitions
from metastore_assets.index.reading import IndexColumn, IndexReader
from metastore_assets.index.rows import IndexRows
from metastore_assets.index.writing import next_index

__all__ = [
    "IndexColumn",
    "IndexReader",
    "IndexRows",
    "PartitionReader",
    "PartitionRows",
    "joined",
    "next_index",
    "next_partitions",
    "stacked",
]
