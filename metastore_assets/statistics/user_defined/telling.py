"""From states, or from the list of a column's values, to what is told of user-defined statistics."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import ResolvedPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies, FrequencyFacts
from metastore_assets.statistics.user_defined.kinds import FrequencyStatistic, MergeableStatistic, UserStatistic
from metastore_assets.statistics.user_defined.loading import loaded, wanted
from metastore_assets.statistics.user_defined.results import Result
from metastore_assets.statistics.user_defined.states import NOT_ALL, Failed, State, decode, guarded
from metastore_assets.values.types import TypeClass, class_named

_NOT_LISTED = "the column's values are not listed, which `frequencies: all` changes"


def with_user_defined(
    row: ColumnStatistics, policy: ResolvedPolicy, frequencies: Frequencies | None = None
) -> ColumnStatistics:
    """`row` with what its states say of the statistics that its policy asks for, and the list of its values of those
    that follow from it: without one they are absent."""
    found: dict[str, Result] = {}
    states = decode(row.user_states) if policy.statistics else {}
    for own in wanted(policy, row.type_class):
        if isinstance(own.statistic, MergeableStatistic):
            found[own.name] = _finalized(own.statistic, states.get(own.key, State(None, NOT_ALL)))
        elif frequencies is None:
            found[own.name] = _absent(own.statistic, _NOT_LISTED)
    if frequencies is not None and row.type_class is not None:
        found |= results_of_list(policy, class_named(row.type_class), frequencies)
    return replace(row, user_defined=found) if found or row.user_defined else row


def results_of_list(policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies) -> dict[str, Result]:
    """What the list of all values of a column says, by name of the statistics that follow from it."""
    values = frequencies.values if len(frequencies) else pa.nulls(0, cls.arrow)
    found: dict[str, Result] = {}
    for own in loaded(policy.statistics, cls):
        if isinstance(own.statistic, FrequencyStatistic):
            found[own.name] = _computed(own.statistic, values, frequencies.counts)
    return found


def facts_with_results(
    facts: FrequencyFacts, policy: ResolvedPolicy, cls: TypeClass, frequencies: Frequencies
) -> FrequencyFacts:
    """`facts` of the list with what it says of the statistics that a policy asks for."""
    return replace(facts, user_defined=results_of_list(policy, cls, frequencies)) if policy.statistics else facts


def follows_from_list(policy: ResolvedPolicy, cls: TypeClass) -> bool:
    """Whether a policy asks for a statistic that follows from the list of a column's values."""
    return any(isinstance(own.statistic, FrequencyStatistic) for own in loaded(policy.statistics, cls))


def _finalized(statistic: MergeableStatistic, state: State) -> Result:
    if state.reason is not None:
        return _absent(statistic, state.reason)
    try:
        return _known(statistic, guarded("finalize()", statistic.result, lambda: statistic.finalize(state.value)))
    except Failed as error:
        return _absent(statistic, str(error))


def _computed(statistic: FrequencyStatistic, values: pa.Array, counts: pa.Int64Array) -> Result:
    try:
        return _known(statistic, guarded("compute()", statistic.result, lambda: statistic.compute(values, counts)))
    except Failed as error:
        return _absent(statistic, str(error))


def _known(statistic: UserStatistic, array: pa.Array) -> Result:
    return Result(array, "absent" if array.null_count else statistic.guarantee)


def _absent(statistic: UserStatistic, reason: str) -> Result:
    return Result(pa.nulls(1, statistic.result), "absent", reason)
