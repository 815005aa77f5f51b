"""Results of user-defined statistics, from merged states or from the frequencies of all values.

A *state* is a statistic in mergeable form. A *policy* says which statistics and values of a column are stored. A
*type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import ResolvedPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies, FrequencySummary
from metastore_assets.statistics.user_defined.interface import FrequencyStatistic, MergeableStatistic, UserStatistic
from metastore_assets.statistics.user_defined.loading import load_for_class, load_for_policy
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.statistics.user_defined.states import (
    NOT_ALL,
    StoredUserState,
    UserCodeError,
    call_user_code,
    decode_user_states,
)
from metastore_assets.values.types import TypeClass, class_named

_NOT_ENUMERATED = "the column's values are not enumerated; set `frequencies: all`"


def add_user_results(
    row: ColumnStatistics, policy: ResolvedPolicy, frequencies: Frequencies | None = None
) -> ColumnStatistics:
    """Return the row with the results of the user-defined statistics that the policy requests.

    Earlier results of the row are dropped.

    Args:
        row: The statistics, with the states of mergeable user-defined statistics.
        policy: The policy of the column.
        frequencies: The frequencies of all values. If None, results that need them have the guarantee `absent`.
    """
    results: dict[str, UserResult] = {}
    states = decode_user_states(row.user_states) if policy.statistics else {}
    for loaded_statistic in load_for_policy(policy, row.type_class):
        if not loaded_statistic.statistic.is_reported:
            continue
        if isinstance(loaded_statistic.statistic, MergeableStatistic):
            results[loaded_statistic.name] = _finalize_state(
                loaded_statistic.statistic, states.get(loaded_statistic.key, StoredUserState(None, NOT_ALL))
            )
        elif frequencies is None:
            results[loaded_statistic.name] = _absent_result(loaded_statistic.statistic, _NOT_ENUMERATED)
    if frequencies is not None and row.type_class is not None:
        results |= compute_frequency_results(policy, class_named(row.type_class), frequencies)
    return replace(row, user_defined=results) if results or row.user_defined else row


def compute_frequency_results(
    policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies
) -> dict[str, UserResult]:
    """Return the results of the user-defined statistics that are computed from frequencies, by name.

    Args:
        policy: The policy of the column, which requests the statistics.
        cls: The type class of the column.
        frequencies: All values of the column.
    """
    values = frequencies.values if len(frequencies) else pa.nulls(0, cls.arrow)
    results: dict[str, UserResult] = {}
    for loaded_statistic in load_for_class(policy.statistics, cls):
        if isinstance(loaded_statistic.statistic, FrequencyStatistic):
            results[loaded_statistic.name] = _compute_result(loaded_statistic.statistic, values, frequencies.counts)
    return results


def add_frequency_results(
    summary: FrequencySummary, policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies
) -> FrequencySummary:
    """Return a summary with the results of user-defined statistics that use frequencies.

    Args:
        summary: The summary of the frequencies.
        policy: The policy of the column, which requests the statistics.
        cls: The type class of the column.
        frequencies: All values of the column.
    """
    return (
        replace(summary, user_defined=compute_frequency_results(policy, cls, frequencies))
        if policy.statistics
        else summary
    )


def needs_frequencies(policy: ResolvedPolicy, cls: TypeClass) -> bool:
    """Return whether a policy requests a user-defined statistic that needs the frequencies of all values."""
    return any(
        isinstance(loaded_statistic.statistic, FrequencyStatistic)
        for loaded_statistic in load_for_class(policy.statistics, cls)
    )


def _finalize_state(statistic: MergeableStatistic, state: StoredUserState) -> UserResult:
    """Return the result of a merged state.

    The result is absent, with a reason, if there is no state, or if the user's code fails.
    """
    if state.reason is not None:
        return _absent_result(statistic, state.reason)
    try:
        return _build_result(
            statistic, call_user_code("finalize()", statistic.result, lambda: statistic.finalize(state.value))
        )
    except UserCodeError as error:
        return _absent_result(statistic, str(error))


def _compute_result(statistic: FrequencyStatistic, values: pa.Array, counts: pa.Int64Array) -> UserResult:
    try:
        return _build_result(
            statistic, call_user_code("compute()", statistic.result, lambda: statistic.compute(values, counts))
        )
    except UserCodeError as error:
        return _absent_result(statistic, str(error))


def _build_result(statistic: UserStatistic, array: pa.Array) -> UserResult:
    return UserResult(array, "absent" if array.null_count else statistic.guarantee)


def _absent_result(statistic: UserStatistic, reason: str) -> UserResult:
    return UserResult(pa.nulls(1, statistic.result), "absent", reason)
