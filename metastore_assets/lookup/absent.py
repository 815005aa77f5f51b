"""What is known of a column in a partition that was profiled before there was one."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.config import ResolvedPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile import HIDDEN_REASON, profile_all_null
from metastore_assets.store.manifest import Decision
from metastore_assets.values.leaf_columns import LeafColumn


def row_of_nulls(
    leaf: LeafColumn, rows: int, of_table: ColumnStatistics, decision: Decision | None
) -> ColumnStatistics:
    """The statistics of a column that is null in so many rows, kept as the table's of that column are; without
    mergeable states."""
    policy = ResolvedPolicy()
    if of_table.reason == HIDDEN_REASON:
        # Whatever the key: there is nothing that would be hashed.
        policy = ResolvedPolicy(values="hidden").with_hash_key(bytes(32))
    elif of_table.frequencies == "off":
        policy = ResolvedPolicy(frequencies="off")
    elif of_table.frequencies == "repeated":
        policy = ResolvedPolicy(frequencies="repeated", algorithm="fingerprints")
    elif of_table.frequencies == "estimated" or (decision is not None and decision.frequencies == "estimated"):
        policy = ResolvedPolicy(frequencies="estimated")
    row = profile_all_null(leaf, rows, policy)
    return replace(row, moments=None, quantile_sketch=None, distinct_sketch=None, user_states=None)
