"""Answers from published versions, which have statistics of tables: no Spark, no Dagster, no access to the tables."""

from metastore_assets.lookup.column_values import TextValue
from metastore_assets.lookup.filtered_view import FilteredView, ReadCost
from metastore_assets.lookup.histograms import Bin
from metastore_assets.lookup.relation import Relation
from metastore_assets.lookup.results import Answers, AsOf, Count, Quantile, Statistics, TopValues
from metastore_assets.lookup.table import Table

__all__ = [
    "Answers",
    "AsOf",
    "Bin",
    "Count",
    "FilteredView",
    "Quantile",
    "ReadCost",
    "Relation",
    "Statistics",
    "Table",
    "TextValue",
    "TopValues",
]
