"""States of user-defined statistics.

A *state* is a statistic in mergeable form. All states of a table's column are one binary value: an Arrow stream of one
row.

The row has a field struct(`state`, `reason`) for each statistic. The name of the field is the key of the statistic: its
reference and revision, such as `my_module:Median@1`. There is a reason instead of a state if the user's code raised an
error, or returned a value that is not of the declared type. Other statistics are not affected.

A *policy* says which statistics and values of a column are stored. A *type class* is a group of column types, such as
all signed integers, whose values are converted to one Arrow type, the *canonical type*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import ConfigError
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext
from metastore_assets.statistics.merge_rules import MergeParts
from metastore_assets.statistics.user_defined.interface import MergeableStatistic
from metastore_assets.statistics.user_defined.loading import (
    LoadedStatistic,
    load_by_key,
    load_for_class,
    load_for_policy,
)
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.blocks import ValueBlock
    from metastore_assets.statistics.column import ColumnStatistics

_MAX_REASON = 300
"""Maximum number of characters of a reason."""
NOT_ALL = "it was not computed for all rows; `metastore refresh NAME --full` computes it"
"""The reason instead of a merged state if some rows have no state of the statistic."""


@dataclass(frozen=True)
class StoredUserState:
    """The state of one statistic, or the reason why there is none."""

    value: Any
    """The state as the Python value of its Arrow type; None if there is a reason."""
    reason: str | None = None
    """Why there is no state; None if there is one."""


class UserCodeError(Exception):
    """A failure of a user's code: an error, or a returned value that is not of the declared type."""


def call_user_code(what: str, type_: pa.DataType, call: Callable[[], Any]) -> pa.Array:
    """Call a user's code and return its result as an array of one element.

    Args:
        what: The name of the called method, for messages.
        type_: The declared type of the result.
        call: The call.

    Raises:
        UserCodeError: The call raised an error or returned another type.
    """
    try:
        result = call()
    except Exception as error:  # An error of a user's code affects only that statistic.
        raise UserCodeError(f"{what} raised {type(error).__name__}: {error}"[:_MAX_REASON]) from error
    try:
        if isinstance(result, pa.Scalar) and result.type == type_:
            return pa.repeat(result, 1)  # Without Python, which has no years beyond 9999.
        return pa.array([result.as_py() if isinstance(result, pa.Scalar) else result], type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"{what} returned {_representation(result)} ({type(result).__name__}), which is not of the type {type_}"
        ) from error


def _representation(value: Any) -> str:
    try:
        return f"{value!r:.100}"
    except Exception:  # noqa: BLE001 (it is the user's code, or a date that Python does not have)
        return "a value without a representation"


class UserStateAccumulator:
    """The states of the mergeable user-defined statistics of one column, updated block by block."""

    def __init__(self, references: tuple[str, ...], cls: TypeClass) -> None:
        """Start with the initial states of the mergeable statistics that apply to a type class.

        Args:
            references: Classes of user-defined statistics, as `module:Class`. Statistics that are not mergeable are
                ignored.
            cls: The type class of the column.

        Raises:
            ConfigError: A statistic cannot be loaded.
        """
        self._statistics = {
            loaded_statistic.key: loaded_statistic.statistic
            for loaded_statistic in load_for_class(references, cls)
            if isinstance(loaded_statistic.statistic, MergeableStatistic)
        }
        self._states = {
            key: _call_for_state("initial()", statistic, statistic.initial)
            for key, statistic in self._statistics.items()
        }

    def __bool__(self) -> bool:
        return bool(self._statistics)

    def add(self, values: pa.Array, counts: pa.Int64Array) -> None:
        """Add values to all states.

        Args:
            values: Values in the canonical Arrow type of the column's type class.
            counts: How often each value occurs.
        """
        for key, statistic in self._statistics.items():
            state = self._states[key]
            if state.reason is None and len(values):
                self._states[key] = _call_for_state(
                    "update()", statistic, partial(statistic.update, state.value, values, counts)
                )

    def states(self) -> bytes | None:
        """Return the encoded states; None if no statistic applies to the column."""
        return encode_user_states(self._states)


def encode_user_states(states: Mapping[str, StoredUserState]) -> bytes | None:
    """Encode states as bytes; None if there are no states.

    Args:
        states: The states by `LoadedStatistic.key`.
    """
    if not states:
        return None
    arrays = []
    for key, state in states.items():
        type_ = _require_mergeable(load_by_key(key)).state
        value = pa.nulls(1, type_) if state.reason is not None else pa.array([state.value], type_)
        arrays.append(
            pa.StructArray.from_arrays([value, pa.array([state.reason], pa.string())], names=["state", "reason"])
        )
    table = pa.Table.from_arrays(arrays, names=list(states))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_user_states(data: bytes | None) -> dict[str, StoredUserState]:
    """Return the states that `encode_user_states` encoded, by `LoadedStatistic.key`.

    The mapping is empty for None.
    """
    if data is None:
        return {}
    (row,) = pa.ipc.open_stream(data).read_all().to_pylist()
    return {key: StoredUserState(fields["state"], fields["reason"]) for key, fields in row.items()}


def merge_user_states(parts: Sequence[bytes | None]) -> bytes | None:
    """Merge the encoded states of disjoint sets of rows; None if no part has states.

    If only some parts have a state of a statistic, the result has a reason instead of a merged state.
    """
    if all(part is None for part in parts):
        return None
    by_part = [decode_user_states(part) for part in parts]
    keys = sorted({key for states in by_part for key in states})
    missing = StoredUserState(None, NOT_ALL)
    return encode_user_states(
        {key: _merge_states(key, [states.get(key, missing) for states in by_part]) for key in keys}
    )


def select_states(data: bytes | None, policy: ResolvedPolicy, type_class: str | None) -> bytes | None:
    """Return the encoded states that a policy requests, without the others; None if there are none.

    Args:
        data: Encoded states; None for no states.
        policy: The policy of the column.
        type_class: Name of the column's type class.
    """
    if data is None:
        return None
    keys = list_required_keys(policy, type_class)
    return encode_user_states({key: state for key, state in decode_user_states(data).items() if key in keys})


def list_state_keys(data: bytes | None) -> frozenset[str]:
    """Return the keys of encoded states; an empty set for None."""
    return frozenset() if data is None else frozenset(pa.ipc.open_stream(data).schema.names)


def list_required_keys(policy: ResolvedPolicy, type_class: str | None) -> frozenset[str]:
    """Return the keys of the states that a column's policy requests.

    The result is empty if the column has no type class.
    """
    if not policy.statistics:
        return frozenset()
    return frozenset(
        loaded_statistic.key
        for loaded_statistic in load_for_policy(policy, type_class)
        if isinstance(loaded_statistic.statistic, MergeableStatistic)
    )


def compute_states(policy: ResolvedPolicy, type_class: str, frequencies: Frequencies) -> bytes | None:
    """Compute the states of a column's mergeable statistics from its value counts.

    Args:
        policy: The policy of the column, which names its statistics.
        type_class: The name of the column's type class.
        frequencies: The value counts: all distinct values with their frequencies.

    Returns:
        The encoded states; None if the policy names no mergeable statistic that applies to the type class.
    """
    accumulator = UserStateAccumulator(policy.statistics, class_named(type_class))
    accumulator.add(frequencies.values, frequencies.counts)
    return accumulator.states()


def _merge_states(key: str, states: Sequence[StoredUserState]) -> StoredUserState:
    """Return the merged state of one statistic, or a reason why there is none.

    There is none if a part has no state, or if a merge fails.

    Args:
        key: The key of the statistic.
        states: The state of each part.
    """
    reasons = [state.reason for state in states if state.reason is not None]
    if reasons:
        return StoredUserState(None, min(reasons))
    statistic, total = _require_mergeable(load_by_key(key)), states[0]
    for state in states[1:]:
        total = _call_for_state("merge()", statistic, partial(statistic.merge, total.value, state.value))
        if total.reason is not None:
            break
    return total


def _call_for_state(what: str, statistic: MergeableStatistic, call: Callable[[], Any]) -> StoredUserState:
    """Return the state that a user's method returns, or the reason why it failed."""
    try:
        # Converted to its Arrow type and back, so that merging sees what is stored.
        return StoredUserState(call_user_code(what, statistic.state, call)[0].as_py())
    except UserCodeError as error:
        return StoredUserState(None, str(error))
    except (OverflowError, ValueError) as error:
        return StoredUserState(None, f"{what} returned a state without a Python value: {error}")


def _require_mergeable(loaded_statistic: LoadedStatistic) -> MergeableStatistic:
    if not isinstance(loaded_statistic.statistic, MergeableStatistic):
        raise ConfigError(f"statistic {loaded_statistic.reference!r} has no states any more: give it a new revision")
    return loaded_statistic.statistic


class UserStates(BuiltinStatistic[UserStateAccumulator]):
    """All mergeable user-defined statistics as one built-in statistic.

    Its state is one binary value per column.
    """

    name = "user_states"
    version = "1"
    state_schema = pa.schema([("user_states", pa.binary())])

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        return bool(policy.statistics)

    def initial(self, context: ColumnContext) -> UserStateAccumulator:
        return UserStateAccumulator(context.policy.statistics, context.cls)

    def update(self, state: UserStateAccumulator, block: ValueBlock) -> UserStateAccumulator:
        if state:
            state.add(block.canonical_values(), pa.array(block.counts))
        return state

    def to_fields(self, state: UserStateAccumulator, row: ColumnStatistics) -> Mapping[str, Any]:
        return {"user_states": state.states()}

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return {`user_states`: the merged states of each column}; empty if no part has states."""
        if all(table["user_states"].null_count == len(table) for table in parts.tables):
            return {}
        states = parts.states_by_column("user_states", parts.typed)
        return {"user_states": pa.array([merge_user_states(each) for each in states], pa.binary())}
