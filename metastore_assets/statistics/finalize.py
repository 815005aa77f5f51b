"""What is told of a column from its states: the numbers that follow from them, or from the full list of its values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics, FrequencyState
from metastore_assets.statistics.distinct import estimate_distinct
from metastore_assets.statistics.frequencies import Frequencies, FrequencySummary, summarize_frequencies
from metastore_assets.statistics.moments import decode_moments, moment_facts
from metastore_assets.statistics.quantiles import estimate_percentiles
from metastore_assets.statistics.user_defined.states import select_states
from metastore_assets.values.physical import physical_value
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy


def finalize_statistics(row: ColumnStatistics) -> ColumnStatistics:
    """A row from a table of states with the numbers that follow from them: sum, mean, …, percentiles."""
    if row.type_class is None:
        return replace(row, mean_length=_mean_length(row))
    cls = class_named(row.type_class)
    row = replace(row, mean_length=_mean_length(row))
    moments = None if row.moments is None else decode_moments(row.moments)
    if moments is not None:
        row = replace(row, **vars(moment_facts(moments, scale=None if cls.kind == "float" else cls.scale)))
    if row.percentiles is not None:
        return row
    implied = derive_frequencies(row)
    if implied is not None:
        percentiles = summarize_frequencies(implied).percentiles
        return replace(row, percentiles=percentiles, percentiles_guarantee="exact")
    if row.quantile_sketch is None or row.minimum is None or row.maximum is None:
        return row
    infinities = (0, 0) if moments is None else moments.infinities
    percentiles = estimate_percentiles(row.quantile_sketch, cls, infinities, row.minimum, row.maximum)
    return replace(row, percentiles=percentiles, percentiles_guarantee="estimate")


def restrict_to_policy(row: ColumnStatistics, policy: ResolvedPolicy) -> ColumnStatistics:
    """`row` without what its policy does not keep, though it was profiled under another that kept more.

    Where no values are listed, what followed from all of them (distinct and duplicate values, percentiles) becomes
    what the sketches estimate: no more than is known of rows whose values were never sorted.
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
    cls = class_named(row.type_class)
    distinct = None
    if row.distinct_sketch is not None:
        distinct = max(1, min(estimate_distinct(row.distinct_sketch), _most_distinct(row, cls)))
    row = replace(
        row,
        distinct_count=distinct,
        distinct_count_guarantee="absent" if distinct is None else "estimate",
        duplicate_count=None,
        percentiles=None,
        percentiles_guarantee="absent",
        frequencies=state,
    )
    implied = derive_frequencies(row)
    return finalize_statistics(row) if implied is None else apply_frequencies(row, summarize_frequencies(implied))


def unenumerated_state(policy: ResolvedPolicy) -> FrequencyState:
    """What `frequencies` is of a column whose values its policy does not list."""
    if policy.is_fingerprinted:
        return "repeated"
    return "off" if policy.frequencies == "off" else "estimated"


def apply_frequencies(merged: ColumnStatistics, facts: FrequencySummary) -> ColumnStatistics:
    """`merged` with what the full list of frequencies says, which makes distinct, duplicates and percentiles exact.

    Percentiles stay what they are where the facts have none.
    """
    percentiles = facts.percentiles
    if percentiles is not None:
        merged = replace(merged, percentiles=percentiles, percentiles_guarantee="exact")
    return replace(
        merged,
        distinct_count=facts.distinct_count,
        distinct_count_guarantee="exact",
        duplicate_count=facts.duplicate_count,
        user_defined={**merged.user_defined, **facts.user_defined},
    )


def _most_distinct(row: ColumnStatistics, cls: TypeClass) -> int:
    """How many distinct values there can be among so many, between these bounds."""
    if cls.kind != "integer" or row.minimum is None or row.maximum is None:
        return row.value_count
    return min(row.value_count, int(physical_value(row.maximum) - physical_value(row.minimum)) + 1)


def derive_frequencies(row: ColumnStatistics) -> Frequencies | None:
    """The frequencies of all values where exact numbers determine them: of booleans, a constant, nothing but NaN."""
    if row.type_class is None:
        return None
    cls = class_named(row.type_class)
    n, nans = row.value_count, row.nan_count or 0
    if n == 0:
        return None
    if cls.kind == "boolean" and row.true_count is not None:
        held: list[tuple[Any, int]] = [(False, n - row.true_count), (True, row.true_count)]
    elif not (row.minimum_exact and row.maximum_exact) or row.minimum != row.maximum:
        return None
    else:
        held = [(row.minimum, n - nans), (math.nan, nans)]
    held = [(value, count) for value, count in held if count]
    values = pa.array([value for value, _ in held], cls.arrow)
    return Frequencies(values, pa.array([count for _, count in held], pa.int64()))


def _mean_length(row: ColumnStatistics) -> float | None:
    return row.total_length / row.value_count if row.total_length is not None and row.value_count else None
