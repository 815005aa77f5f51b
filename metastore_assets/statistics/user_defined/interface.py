"""Base classes of user-defined statistics.

`MergeableStatistic` and `FrequencyStatistic` are part of the public API, in `metastore_assets`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa

from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.values.types import TypeClass

Route = Literal["merge", "subtract", "frequencies"]
"""How a statistic is updated after a commit.

- `merge`: the states of the parts are merged.
- `subtract`: as `merge`; a part's state can also be subtracted.
- `frequencies`: the statistic is computed from the frequencies of all values.
"""

GROUPS = ("any", "numeric", "temporal", "decimal", "timestamp", "timestamptz")
"""Names in `types` that mean several type classes."""


class UserStatistic(ABC):
    """A statistic with one Arrow value per column.

    It is constructed without arguments. It must not store values between calls, because one object is used for all
    columns.
    """

    name: ClassVar[str]
    """The name of its column in `statistics`: a Python identifier that no other statistic has."""
    revision: ClassVar[str]
    """Must change whenever the same rows would give another value, so that they are read again."""
    types: ClassVar[tuple[str, ...]]
    """The type classes it applies to, by name (`int64`, `float64`, `string`, `date`, `boolean`, …), or `numeric`,
    `decimal` (any scale), `temporal`, `timestamp`, `timestamptz` (any unit), `any`."""
    result: ClassVar[pa.DataType]
    """Arrow type of the value, which Parquet must support."""
    guarantee: ClassVar[Guarantee] = "exact"
    """How far the value can be trusted: `exact`, `bound` or `estimate`."""
    is_reported: ClassVar[bool] = True
    """Whether statistics have the result. Statistics of which only the state is needed, for an export, have none."""

    @property
    @abstractmethod
    def route(self) -> Route:
        """The way in which the statistic is updated after a commit."""

    def is_for(self, cls: TypeClass) -> bool:
        """Return whether the statistic applies to a type class."""
        groups = {"any"} if cls.kind != "null" else set()
        groups |= {"numeric"} if cls.is_numeric else set()
        groups |= {"temporal"} if pa.types.is_temporal(cls.arrow) else set()
        return bool({cls.name, cls.name.partition("_")[0], *groups} & set(self.types))


@runtime_checkable
class SupportsRetract(Protocol):
    """A mergeable statistic whose `merge` has an inverse."""

    def retract(self, total: Any, part: Any) -> Any:
        """Return the state of some rows without a part of them: the inverse of `merge`.

        Args:
            total: The state of all the rows.
            part: The state of the part.
        """


class MergeableStatistic(UserStatistic):
    """A statistic whose states of disjoint sets of rows can be merged.

    A state is the Python value that Arrow returns for its type (`list`, `dict`, `int`, `str`, None, …). `merge` must be
    associative and commutative with the initial state as identity, because neither rows nor files have an order.
    """

    state: ClassVar[pa.DataType]
    """Arrow type of a state as it is stored."""

    @abstractmethod
    def initial(self) -> Any:
        """Return the state of no rows."""

    @abstractmethod
    def update(self, state: Any, values: pa.Array, counts: pa.Int64Array) -> Any:
        """Return the state with more rows, in which `values[i]` occurs `counts[i]` times.

        Args:
            state: The state so far; it must not be changed.
            values: Values of the canonical Arrow type of their class (int64, float64, large_string, date32, …), in
                any order. They may repeat. No value is null; NaN is a value.
            counts: 1 or more for each value.
        """

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Return the state of two disjoint sets of rows together. Neither argument must be changed."""

    @abstractmethod
    def finalize(self, state: Any) -> Any:
        """Return the value of the type `result`, or None if it is not defined."""

    @property
    def route(self) -> Route:
        """The route `subtract` if the class has a method `retract`; otherwise `merge`."""
        return "subtract" if isinstance(self, SupportsRetract) else "merge"


class FrequencyStatistic(UserStatistic):
    """A statistic that is computed from the frequencies of all values.

    It is absent for columns whose values are not enumerated.
    """

    @abstractmethod
    def compute(self, values: pa.Array, counts: pa.Int64Array) -> Any:
        """Return the value of the type `result`, or None if it is not defined.

        Args:
            values: Distinct values in ascending order, of the canonical Arrow type of their class. No value is null;
                NaN is the last value. The array is empty for a column without values.
            counts: How often each value occurs, 1 or more.
        """

    @property
    def route(self) -> Route:
        """The route `frequencies`, because all values are needed."""
        return "frequencies"
