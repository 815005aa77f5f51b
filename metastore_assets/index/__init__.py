"""The index: what is known of each column in each fragment of a version, so that a predicate reads little of it."""

from metastore_assets.index.reading import IndexColumn, IndexReader
from metastore_assets.index.rows import IndexRows
from metastore_assets.index.writing import next_index

__all__ = ["IndexColumn", "IndexReader", "IndexRows", "next_index"]
