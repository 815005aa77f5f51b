"""The lists of a table's values, carried from version to version by the produce layer: graph, state, and answers."""

from metastore_assets.value_counts.changes import ListChanges, list_changes
from metastore_assets.value_counts.comparing import OtherRow, other_rows
from metastore_assets.value_counts.graph import FOLDER, list_flow
from metastore_assets.value_counts.reading import ListReader
from metastore_assets.value_counts.rewriting import rewritten
from metastore_assets.value_counts.state import Built, Cut, Lists, read_lists, write_lists

__all__ = [
    "FOLDER",
    "Built",
    "Cut",
    "ListChanges",
    "ListReader",
    "Lists",
    "OtherRow",
    "list_changes",
    "list_flow",
    "other_rows",
    "read_lists",
    "rewritten",
    "write_lists",
]
