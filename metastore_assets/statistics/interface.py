"""The interface of built-in statistics.

A built-in statistic has the methods of a user-defined one (`user_defined.interface.MergeableStatistic`): `initial`,
`update`, `merge` and `finalize`. It also declares its input types, result columns and version. For speed, three
points differ:

- `update` takes a `ValueBlock`. The block computes hashes and numeric values once for all statistics.
- One statistic may have several result columns and several state columns: minimum and maximum are computed together.
- `merge` takes tables of states and merges all columns of a data table in one call of numpy or Arrow. The `merge` of a
  user-defined statistic takes two Python values, so it is called for each column and statistic of each table of states.

A *state* is a statistic of a set of rows in mergeable form. A *table of states* has the states of all statistics, with
one row per column of the data table. The *policy* of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.merge_rules import RULES, MergeParts
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.blocks import ValueBlock
    from metastore_assets.statistics.histogram import Histogram

State = TypeVar("State")
Part = TypeVar("Part")
_PENDING_PARTS = 64


@dataclass(frozen=True)
class ColumnContext:
    """The properties of a column that a statistic needs before the first block of values."""

    cls: TypeClass
    policy: ResolvedPolicy
    value_width: int
    """The bytes of one value; 0 if the type has no fixed width."""
    rank_count: int = 0
    """Number of the column's values without NaN. Only percentiles of sorted blocks need it, to compute their ranks."""


class BuiltinStatistic(ABC, Generic[State]):
    """A statistic, or several statistics that are computed together.

    Objects store nothing between calls, because one object is used for all columns.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    """A text that must change if the class computes another result or another state from the same rows."""
    columns: ClassVar[tuple[str, ...]] = ()
    """The columns of the file `statistics` that this class computes."""
    state_schema: ClassVar[pa.Schema] = pa.schema([])
    """The columns that a table of states has for this statistic in addition to `columns`."""

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        """Return whether the statistic is computed for columns of a type class under a policy."""
        return True

    @abstractmethod
    def initial(self, context: ColumnContext) -> State:
        """Return the state of a column before any values are added."""

    @abstractmethod
    def update(self, state: State, block: ValueBlock) -> State:
        """Return the state after the values of a block are added.

        The method may change `state` and return it.
        """

    @abstractmethod
    def to_fields(self, state: State, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the fields of `ColumnStatistics` that store the state.

        The method may change the state, so call it only once.

        Args:
            state: The state of all values of the column.
            row: The row of the column, with its value count and null count.
        """

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return the merged result columns and state columns by name.

        Each has one element per column of the data table.

        Args:
            parts: The tables of states to merge.
            merged_columns: The merged columns of the statistics before this one in the registry, by name.
        """
        return {name: rule(parts, name) for name in self.columns if (rule := RULES.get(STATISTICS[name].merge))}

    def finalize(self, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the fields of `ColumnStatistics` that are derived from the stored state in `row`."""
        return {}

    def encode_states(
        self, rows: Sequence[ColumnStatistics], histograms: Sequence[Histogram | None]
    ) -> Sequence[pa.Array]:
        """Return one array for each field of `state_schema`, with one element per column of the data table.

        Args:
            rows: The statistics of each column of the data table.
            histograms: The histogram of each column of the data table, in the same order.
        """
        return [
            pa.array([getattr(row, name) for row in rows], type_)
            for name, type_ in zip(self.state_schema.names, self.state_schema.types, strict=True)
        ]

    def decode_states(self, table: pa.Table) -> Mapping[str, list[Any]]:
        """Return the fields of `ColumnStatistics` that this statistic stores in a table of states, by name.

        Each field is a list with a value per row of the table.

        Args:
            table: A table of states with one chunk per column.
        """
        return {name: table[name].to_pylist() for name in self.state_schema.names}


class Fold(Generic[Part]):
    """An accumulator of states of one kind, which merges 64 of them at a time."""

    def __init__(self, merge: Callable[[Sequence[Part]], Part]) -> None:
        self._merge = merge
        self._parts: list[Part] = []

    def add(self, part: Part | None) -> None:
        """Add a state; None is ignored."""
        if part is not None:
            self._parts.append(part)
        if len(self._parts) >= _PENDING_PARTS:
            self._parts = [self._merge(self._parts)]

    def total(self) -> Part | None:
        """Return the merged state of all added states; None if none was added."""
        if len(self._parts) == 1:
            return self._parts[0]  # Merging a single state returns an equal one.
        return self._merge(self._parts) if self._parts else None
