"""The export target `glue`: column statistics of a table and its partitions in AWS Glue."""

from __future__ import annotations

from contextlib import AbstractContextManager

from metastore_assets.exports.catalog_target import CatalogTarget
from metastore_assets.exports.glue.catalog import GlueTable, open_glue_table


class GlueTarget(CatalogTarget):
    """A target that writes statistics of a table and its partitions to AWS Glue.

    The statistics are those of columns, and the numbers `numRows` and `totalSize`.
    """

    kind = "glue"
    title = "AWS Glue"

    def open(self) -> AbstractContextManager[GlueTable]:
        """Return a context manager that yields the table in Glue.

        See `CatalogTarget.open`.
        """
        return open_glue_table(self.table, self.title)
