"""Reading what is published: no Spark, no Dagster, no access to the tables themselves."""

from metastore_assets.lookup.metastore import Metastore, open_table
from metastore_assets.lookup.table import Bin, TableLookup, TopValues

__all__ = ["Bin", "Metastore", "TableLookup", "TopValues", "open_table"]
