"""What was known of a table's columns version by version, in a Delta table that outlives the versions."""

from metastore_assets.history.delta_table import why_none
from metastore_assets.history.gather import gather, keep_history, read_history
from metastore_assets.history.points import HistoryPoint, points, points_of_versions, versions_in
from metastore_assets.history.purge import forget_values

__all__ = [
    "HistoryPoint",
    "forget_values",
    "gather",
    "keep_history",
    "points",
    "points_of_versions",
    "read_history",
    "versions_in",
    "why_none",
]
