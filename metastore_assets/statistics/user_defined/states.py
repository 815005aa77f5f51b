"""States of user-defined statistics: those of a column as one binary value, an Arrow stream of one row.

A column of it is a statistic's, named by its key: struct(`state`, `reason`), of which a reason stands where there is no
state, because the user's code raised or returned something else. That is the column's only loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import ConfigError
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.interface import BuiltinStatistic, ProfileContext
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
    from metastore_assets.statistics.blocks import Block
    from metastore_assets.statistics.column import ColumnStatistics

_LONGEST = 300
"""Characters of a reason."""
NOT_ALL = "it was not computed of all rows; `metastore refresh NAME --full` does"


@dataclass(frozen=True)
class StoredUserState:
    """Of one statistic."""

    value: Any
    """A value of its type, as Python has it."""
    reason: str | None = None
    """Why there is none."""


class UserCodeError(Exception):
    """Raised when a user's code raises, or returns what is not of the type that it declares: says so."""


def call_user_code(what: str, type_: pa.DataType, call: Callable[[], Any]) -> pa.Array:
    """What the call returns, as an array of one value of that type. Raises Failed."""
    try:
        found = call()
    except Exception as error:  # whatever it is, it ends nothing else
        raise UserCodeError(f"{what} raised {type(error).__name__}: {error}"[:_LONGEST]) from error
    try:
        return pa.array([found.as_py() if isinstance(found, pa.Scalar) else found], type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(f"{what} returned {found!r:.100} ({type(found).__name__}), which is no {type_}") from error


class UserStateAccumulator:
    """Takes a column's values a block at a time, for those of some statistics that have states."""

    def __init__(self, references: tuple[str, ...], cls: TypeClass) -> None:
        self._statistics = {
            own.key: own.statistic
            for own in load_for_class(references, cls)
            if isinstance(own.statistic, MergeableStatistic)
        }
        self._states = {key: _attempt("initial()", own, own.initial) for key, own in self._statistics.items()}

    def __bool__(self) -> bool:
        return bool(self._statistics)

    def add(self, values: pa.Array, counts: pa.Int64Array) -> None:
        """Values of the canonical type of the class, with how often each occurs."""
        for key, own in self._statistics.items():
            state = self._states[key]
            if state.reason is None and len(values):
                self._states[key] = _attempt("update()", own, partial(own.update, state.value, values, counts))

    def states(self) -> bytes | None:
        """All states; None where there are none."""
        return encode_user_states(self._states)


def encode_user_states(states: Mapping[str, StoredUserState]) -> bytes | None:
    """The states by key, each of its type; None of none."""
    if not states:
        return None
    arrays = []
    for key, own in states.items():
        type_ = _mergeable(load_by_key(key)).state
        value = pa.nulls(1, type_) if own.reason is not None else pa.array([own.value], type_)
        arrays.append(
            pa.StructArray.from_arrays([value, pa.array([own.reason], pa.string())], names=["state", "reason"])
        )
    table = pa.Table.from_arrays(arrays, names=list(states))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_user_states(data: bytes | None) -> dict[str, StoredUserState]:
    """The inverse of `encode_user_states`."""
    if data is None:
        return {}
    (row,) = pa.ipc.open_stream(data).read_all().to_pylist()
    return {key: StoredUserState(own["state"], own["reason"]) for key, own in row.items()}


def merge_user_states(parts: Sequence[bytes | None]) -> bytes | None:
    """The states of disjoint sets of rows together. A statistic that one of them has not is not known of all."""
    if all(part is None for part in parts):
        return None
    held = [decode_user_states(part) for part in parts]
    keys = sorted({key for own in held for key in own})
    return encode_user_states(
        {key: _merged(key, [own.get(key, StoredUserState(None, NOT_ALL)) for own in held]) for key in keys}
    )


def select_states(data: bytes | None, policy: ResolvedPolicy, type_class: str | None) -> bytes | None:
    """Of stored states those that a policy asks for."""
    if data is None:
        return None
    keys = list_required_keys(policy, type_class)
    return encode_user_states({key: own for key, own in decode_user_states(data).items() if key in keys})


def list_state_keys(data: bytes | None) -> frozenset[str]:
    """The keys of stored states."""
    return frozenset() if data is None else frozenset(pa.ipc.open_stream(data).schema.names)


def list_required_keys(policy: ResolvedPolicy, type_class: str | None) -> frozenset[str]:
    """The keys of the states that a policy asks for of a column of that class."""
    if not policy.statistics:
        return frozenset()
    return frozenset(
        own.key for own in load_for_policy(policy, type_class) if isinstance(own.statistic, MergeableStatistic)
    )


def compute_states(policy: ResolvedPolicy, type_class: str, frequencies: Frequencies) -> bytes | None:
    """The states that a policy asks for, of the list of all values of a column."""
    accumulator = UserStateAccumulator(policy.statistics, class_named(type_class))
    accumulator.add(frequencies.values, frequencies.counts)
    return accumulator.states()


def _merged(key: str, states: Sequence[StoredUserState]) -> StoredUserState:
    reasons = [own.reason for own in states if own.reason is not None]
    if reasons:
        return StoredUserState(None, min(reasons))
    statistic, total = _mergeable(load_by_key(key)), states[0]
    for own in states[1:]:
        total = _attempt("merge()", statistic, partial(statistic.merge, total.value, own.value))
        if total.reason is not None:
            break
    return total


def _attempt(what: str, statistic: MergeableStatistic, call: Callable[[], Any]) -> StoredUserState:
    try:
        # Through its Arrow type and back: what is stored is what is merged.
        return StoredUserState(call_user_code(what, statistic.state, call)[0].as_py())
    except UserCodeError as error:
        return StoredUserState(None, str(error))


def _mergeable(own: LoadedStatistic) -> MergeableStatistic:
    if not isinstance(own.statistic, MergeableStatistic):
        raise ConfigError(f"statistic {own.reference!r} has no states any more: give it a new revision")
    return own.statistic


class UserStates(BuiltinStatistic[UserStateAccumulator]):
    """The mergeable statistics of users, as one built-in statistic: their states are one binary value per column."""

    name = "user_states"
    version = "1"
    state_schema = pa.schema([("user_states", pa.binary())])

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        """Return whether the policy requests user-defined statistics."""
        return bool(policy.statistics)

    def initial(self, context: ProfileContext) -> UserStateAccumulator:
        """Return the initial states of the statistics that the policy requests."""
        return UserStateAccumulator(context.policy.statistics, context.cls)

    def update(self, state: UserStateAccumulator, block: Block) -> UserStateAccumulator:
        """Add the values of a block, NaN included."""
        if state:
            state.add(block.canonical_values(), pa.array(block.counts))
        return state

    def to_fields(self, state: UserStateAccumulator, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the encoded states."""
        return {"user_states": state.states()}

    def merge(self, parts: MergeParts, merged: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return the merged states."""
        if all(table["user_states"].null_count == len(table) for table in parts.tables):
            return {}
        states = parts.states_by_column("user_states", parts.typed)
        return {"user_states": pa.array([merge_user_states(each) for each in states], pa.binary())}
