"""What a user-defined statistic is derived from.

`MergeableStatistic` and `FrequencyStatistic` are part of the public API, in `metastore_assets`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa

from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.values.types import TypeClass

Route = Literal["merge", "subtract", "frequencies"]
"""`merge`: states of parts are merged. `subtract`: likewise, and a part can be taken out of the whole. `frequencies`:
computed from the list of the column's values."""

GROUPS = ("any", "numeric", "temporal", "decimal", "timestamp", "timestamptz")
"""Names in `types` that stand for several classes."""


class UserStatistic(ABC):
    """One number, or other Arrow value, of each column of some types. Constructed without arguments; keeps nothing of
    what it has seen, for one object serves all columns.
    """

    name: ClassVar[str]
    """Its column in `statistics`: a Python identifier, and no name of a statistic there is."""
    revision: ClassVar[str]
    """Changed whenever the same rows would come to something else, so that they are read again."""
    types: ClassVar[tuple[str, ...]]
    """The type classes it is for, by name (`int64`, `float64`, `string`, `date`, `boolean`, …), or `numeric`, `decimal`
    (any scale), `temporal`, `timestamp`, `timestamptz` (any unit), `any`."""
    result: ClassVar[pa.DataType]
    """Arrow type of its value. Must be a type that Parquet has."""
    guarantee: ClassVar[Guarantee] = "exact"
    """What the value is worth: `exact`, `bound`, `estimate`."""

    @property
    @abstractmethod
    def route(self) -> Route:
        """How it follows the table."""

    def is_for(self, cls: TypeClass) -> bool:
        """Whether `types` has the class."""
        groups = {"any"} if cls.kind != "null" else set()
        groups |= {"numeric"} if cls.is_numeric else set()
        groups |= {"temporal"} if pa.types.is_temporal(cls.arrow) else set()
        return bool({cls.name, cls.name.partition("_")[0], *groups} & set(self.types))


@runtime_checkable
class SupportsRetract(Protocol):
    """What a mergeable statistic may have besides, where merging has an inverse."""

    def retract(self, whole: Any, part: Any) -> Any:
        """The state of the rows of `whole` that are not those of `part`, which are among them."""


class MergeableStatistic(UserStatistic):
    """A statistic with a state, of which those of disjoint sets of rows make that of all of them.

    A state is what Python value Arrow makes of its type (`list`, `dict`, `int`, `str`, None, …). Merging has to be
    associative and commutative, with the initial state as identity: rows have no order, and neither have files.
    """

    state: ClassVar[pa.DataType]
    """Arrow type of a state, which is how it is stored."""

    @abstractmethod
    def initial(self) -> Any:
        """The state of no rows at all."""

    @abstractmethod
    def update(self, state: Any, values: pa.Array, counts: pa.Int64Array) -> Any:
        """The state of some rows more: `values[i]` occurs `counts[i]` times, one time or more.

        Values are of the canonical Arrow type of their class (int64, float64, large_string, date32, …), in any order,
        perhaps repeated; none is null, NaN is one. `state` must not be changed.
        """

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """The state of two disjoint sets of rows together. Neither must be changed."""

    @abstractmethod
    def finalize(self, state: Any) -> Any:
        """The value of the type `result`; None where it is not defined."""

    @property
    def route(self) -> Route:
        """`subtract` where it also has the method `retract`, else `merge`."""
        return "subtract" if isinstance(self, SupportsRetract) else "merge"


class FrequencyStatistic(UserStatistic):
    """A statistic that follows from how often each value of the column occurs; absent where values are not listed."""

    @abstractmethod
    def compute(self, values: pa.Array, counts: pa.Int64Array) -> Any:
        """The value of the type `result`; None where it is not defined.

        Values are distinct and ascending, of the canonical Arrow type of their class; none is null, NaN is the last.
        `counts[i]`, one or more, says how often `values[i]` occurs. Both are empty for a column without values.
        """

    @property
    def route(self) -> Route:
        """`frequencies`."""
        return "frequencies"
