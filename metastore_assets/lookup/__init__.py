"""Reading what is published: no Spark, no Dagster, no access to the tables themselves."""

from metastore_assets.lookup.histograms import Bin
from metastore_assets.lookup.metastore import Metastore, open_table
from metastore_assets.lookup.table import TableLookup, TopValues
from metastore_assets.lookup.values import Count, Quantile, TextValue

__all__ = ["Bin", "Count", "Metastore", "Quantile", "TableLookup", "TextValue", "TopValues", "open_table"]
