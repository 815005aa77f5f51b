"""Value counts of a table: dataflow, stored state, and queries.

Value counts are the distinct values of each column with their frequencies.
"""

from metastore_assets.value_counts.comparing import DifferingRow, differing_rows
from metastore_assets.value_counts.graph import FOLDER, value_count_dataflow
from metastore_assets.value_counts.reading import ValueCountReader
from metastore_assets.value_counts.state import (
    Built,
    TableValueCounts,
    TopLimits,
    read_value_counts,
    rewrite_value_counts,
    write_value_counts,
)
from metastore_assets.value_counts.version_changes import ValueCountChanges, count_changes

__all__ = [
    "FOLDER",
    "Built",
    "DifferingRow",
    "TableValueCounts",
    "TopLimits",
    "ValueCountChanges",
    "ValueCountReader",
    "count_changes",
    "differing_rows",
    "read_value_counts",
    "rewrite_value_counts",
    "value_count_dataflow",
    "write_value_counts",
]
