"""Queries of published versions, which have the statistics of tables.

These queries need neither Spark nor Dagster.
"""

from metastore_assets.lookup.column_values import TextValue
from metastore_assets.lookup.filtered_view import FilteredView
from metastore_assets.lookup.histograms import Bin
from metastore_assets.lookup.relation import Relation
from metastore_assets.lookup.results import (
    AsOf,
    Count,
    Mode,
    PartitionFrequency,
    Quantile,
    ReadCost,
    ResultSet,
    ValueFrequency,
)
from metastore_assets.lookup.table import ScanRequest, Table

__all__ = [
    "AsOf",
    "Bin",
    "Count",
    "FilteredView",
    "Mode",
    "PartitionFrequency",
    "Quantile",
    "ReadCost",
    "Relation",
    "ResultSet",
    "ScanRequest",
    "Table",
    "TextValue",
    "ValueFrequency",
]
