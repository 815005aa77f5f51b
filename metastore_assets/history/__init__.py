"""The history of a table: its columns' statistics in every version, including expired ones.

A version has the statistics of one snapshot of the table.
"""

from metastore_assets.history.delta_table import explain_unavailable
from metastore_assets.history.points import HistoryPoint, distinct_versions, points, points_table, version_points
from metastore_assets.history.updates import append_versions, append_when_due, read_history, remove_values

__all__ = [
    "HistoryPoint",
    "append_versions",
    "append_when_due",
    "distinct_versions",
    "explain_unavailable",
    "points",
    "points_table",
    "read_history",
    "remove_values",
    "version_points",
]
