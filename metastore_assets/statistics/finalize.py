"""Completion of statistics from states or value counts, and removal of what a policy does not store.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.

The *policy* of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metastore_assets.statistics.column import ColumnStatistics, FrequencyState
from metastore_assets.statistics.distinct import estimate_distinct
from metastore_assets.statistics.frequencies import FrequencySummary, derive_frequencies, summarize_frequencies
from metastore_assets.statistics.registry import BUILTIN_STATISTICS
from metastore_assets.statistics.user_defined.states import select_states
from metastore_assets.values.physical import order_key, physical_value
from metastore_assets.values.types import class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy


def finalize_statistics(row: ColumnStatistics) -> ColumnStatistics:
    """Return the row with sum, mean, percentiles and other results computed from its mergeable states."""
    fields: dict[str, Any] = {}
    for statistic in BUILTIN_STATISTICS:
        fields |= statistic.finalize(row)
    return replace(row, **fields)


def restrict_to_policy(row: ColumnStatistics, policy: ResolvedPolicy) -> ColumnStatistics:
    """Return the row without the sketches, states and exact numbers that a policy does not store.

    If the policy stores all values with their counts, nothing is recomputed. Otherwise, the field `frequencies` says
    what the policy stores instead, and the distinct count and the percentiles of a column with values are recomputed:

    - If other statistics determine all values, as in a constant column, both are exact.
    - Otherwise, each is estimated from its sketch, or absent without a sketch.

    A row without a type class, such as that of a list, keeps its field `frequencies`, and nothing is recomputed.

    Args:
        row: Statistics with their states, profiled under a policy that stores at least as much as `policy`.
        policy: The policy of the result.
    """
    if row.user_states is not None:
        row = replace(row, user_states=select_states(row.user_states, policy, row.type_class))
    if policy.quantiles == "off" and row.quantile_sketch is not None:
        row = replace(row, quantile_sketch=None)
    if policy.is_enumerated or row.type_class is None:
        return row
    state: FrequencyState = unenumerated_state(policy)
    if not row.value_count:
        return replace(row, frequencies=state)
    distinct_count = None
    if row.distinct_sketch is not None:
        distinct_count = max(1, min(estimate_distinct(row.distinct_sketch), max_distinct(row)))
    row = replace(
        row,
        distinct_count=distinct_count,
        distinct_count_guarantee="absent" if distinct_count is None else "estimate",
        duplicate_count=None,
        percentiles=None,
        percentiles_guarantee="absent",
        frequencies=state,
    )
    frequencies = derive_frequencies(row)
    return finalize_statistics(row) if frequencies is None else apply_summary(row, summarize_frequencies(frequencies))


def unenumerated_state(policy: ResolvedPolicy) -> FrequencyState:
    """Return the value of `ColumnStatistics.frequencies` for a column without stored value counts.

    The value is `repeated` if the policy stores fingerprints (hashes) of the values instead. It is `off` if the policy
    has `frequencies: off`, and otherwise `estimated`.
    """
    if policy.is_fingerprinted:
        return "repeated"
    return "off" if policy.frequencies == "off" else "estimated"


def apply_summary(row: ColumnStatistics, summary: FrequencySummary) -> ColumnStatistics:
    """Return the row with exact distinct counts and percentiles from its value counts.

    These replace the estimates. The user-defined results of the summary are added.

    Args:
        row: Statistics of a column.
        summary: The summary of the column's values. If the summary has no percentiles, those of the row stay.
    """
    if summary.percentiles is not None:
        row = replace(row, percentiles=summary.percentiles, percentiles_guarantee="exact")
    return replace(
        row,
        distinct_count=summary.distinct_count,
        distinct_count_guarantee="exact",
        duplicate_count=summary.duplicate_count,
        user_defined={**row.user_defined, **summary.user_defined},
    )


def max_distinct(row: ColumnStatistics) -> int:
    """Return an upper bound of the number of distinct values of a column.

    - If minimum and maximum are equal, the bound is 1, or 2 if the column also has NaN.
    - For classes of kind `integer`, such as dates, it is the number of possible values from minimum to maximum, such as
      days, if that is less than the number of values.
    - Otherwise, it is the number of the column's values, where all NaN count as one.
    """
    nan_count = row.nan_count or 0
    count = row.value_count - nan_count + min(nan_count, 1)
    if row.minimum is None or row.maximum is None or row.type_class is None:
        return count
    if order_key(row.minimum) == order_key(row.maximum):
        return 1 + min(nan_count, 1)
    if class_named(row.type_class).kind != "integer":
        return count
    return min(count, int(physical_value(row.maximum) - physical_value(row.minimum)) + 1)
