"""Reading what is published: no Spark, no Dagster, no access to the tables themselves."""

from metastore_assets.lookup.answers import Answers, AsOf, Count, Quantile, Statistics, TopValues
from metastore_assets.lookup.histograms import Bin
from metastore_assets.lookup.metastore import Metastore, open_table
from metastore_assets.lookup.scoped import FilteredView, ReadCost
from metastore_assets.lookup.table import Table
from metastore_assets.lookup.values import TextValue

__all__ = [
    "Answers",
    "AsOf",
    "Bin",
    "Count",
    "FilteredView",
    "Metastore",
    "Quantile",
    "ReadCost",
    "Statistics",
    "Table",
    "TextValue",
    "TopValues",
    "open_table",
]
