"""From states, or from the list of a column's values, to what is told of user-defined statistics."""

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

_NOT_LISTED = "the column's values are not listed, which `frequencies: all` changes"


def add_user_results(
    row: ColumnStatistics, policy: ResolvedPolicy, frequencies: Frequencies | None = None
) -> ColumnStatistics:
    """`row` with what its states say of the statistics that its policy asks for, and the list of its values of those
    that follow from it: without one they are absent."""
    found: dict[str, UserResult] = {}
    states = decode_user_states(row.user_states) if policy.statistics else {}
    for own in load_for_policy(policy, row.type_class):
        if isinstance(own.statistic, MergeableStatistic):
            found[own.name] = _finalized(own.statistic, states.get(own.key, StoredUserState(None, NOT_ALL)))
        elif frequencies is None:
            found[own.name] = _absent(own.statistic, _NOT_LISTED)
    if frequencies is not None and row.type_class is not None:
        found |= compute_frequency_results(policy, class_named(row.type_class), frequencies)
    return replace(row, user_defined=found) if found or row.user_defined else row


def compute_frequency_results(
    policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies
) -> dict[str, UserResult]:
    """What the list of all values of a column says, by name of the statistics that follow from it."""
    values = frequencies.values if len(frequencies) else pa.nulls(0, cls.arrow)
    found: dict[str, UserResult] = {}
    for own in load_for_class(policy.statistics, cls):
        if isinstance(own.statistic, FrequencyStatistic):
            found[own.name] = _computed(own.statistic, values, frequencies.counts)
    return found


def add_frequency_results(
    facts: FrequencySummary, policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies
) -> FrequencySummary:
    """`facts` of the list with what it says of the statistics that a policy asks for."""
    return (
        replace(facts, user_defined=compute_frequency_results(policy, cls, frequencies)) if policy.statistics else facts
    )


def needs_frequencies(policy: ResolvedPolicy, cls: TypeClass) -> bool:
    """Whether a policy asks for a statistic that follows from the list of a column's values."""
    return any(isinstance(own.statistic, FrequencyStatistic) for own in load_for_class(policy.statistics, cls))


def _finalized(statistic: MergeableStatistic, state: StoredUserState) -> UserResult:
    if state.reason is not None:
        return _absent(statistic, state.reason)
    try:
        return _known(
            statistic, call_user_code("finalize()", statistic.result, lambda: statistic.finalize(state.value))
        )
    except UserCodeError as error:
        return _absent(statistic, str(error))


def _computed(statistic: FrequencyStatistic, values: pa.Array, counts: pa.Int64Array) -> UserResult:
    try:
        return _known(
            statistic, call_user_code("compute()", statistic.result, lambda: statistic.compute(values, counts))
        )
    except UserCodeError as error:
        return _absent(statistic, str(error))


def _known(statistic: UserStatistic, array: pa.Array) -> UserResult:
    return UserResult(array, "absent" if array.null_count else statistic.guarantee)


def _absent(statistic: UserStatistic, reason: str) -> UserResult:
    return UserResult(pa.nulls(1, statistic.result), "absent", reason)
