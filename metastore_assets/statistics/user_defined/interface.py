"""Base classes of user-defined statistics.

`MergeableStatistic` and `FrequencyStatistic` are part of the public API, in `metastore_assets`.

A *state* is a statistic of a set of rows in mergeable form.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type,
the *canonical type*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa

from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.values.types import TypeClass

Route = Literal["merge", "subtract", "frequencies"]
"""How a statistic is computed after a commit.

- `merge`: from the merged states of the parts of the table.
- `subtract`: as `merge`; the states of removed parts can also be subtracted.
- `frequencies`: from the frequencies of all values.
"""

GROUPS = ("any", "numeric", "temporal", "decimal", "timestamp", "timestamptz")
"""Names in `types` that mean several type classes."""


class UserStatistic(ABC):
    """A statistic that has one Arrow value for each column it applies to.

    Objects are constructed without arguments. They must not store values between calls, because one object is used for
    all columns.
    """

    name: ClassVar[str]
    """The name of its column in `statistics`: a Python identifier. No other statistic may have it, even if case
    is ignored."""
    revision: ClassVar[str]
    """A text that must change if the same rows would give another value. Then all rows are read again."""
    types: ClassVar[tuple[str, ...]]
    """The names of the type classes to which it applies (`int64`, `float64`, `string`, `date`, `boolean`, …), or groups
    of them: `numeric`, `decimal` (any scale), `temporal`, `timestamp` and `timestamptz` (any unit), `any`."""
    result: ClassVar[pa.DataType]
    """Arrow type of the value, which Parquet must support."""
    guarantee: ClassVar[Guarantee] = "exact"
    """How far the value can be trusted: `exact`, `bound` or `estimate`."""
    is_reported: ClassVar[bool] = True
    """Whether the result is stored in `statistics`. False if an export needs only the state."""

    @property
    @abstractmethod
    def route(self) -> Route:
        """How the statistic is computed after a commit: `merge`, `subtract` or `frequencies`.

        `subtract` merges states of added rows, and retracts those of removed rows.
        """

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
        """Return the state of the rows that remain after some rows are removed.

        `retract(merge(a, b), b)` equals `a`.

        Args:
            total: The state of all rows.
            part: The state of the removed rows.
        """


class MergeableStatistic(UserStatistic):
    """A statistic whose states of disjoint sets of rows can be merged.

    A state is the Python value that Arrow returns for its type (`list`, `dict`, `int`, `str`, None, …). `merge` must be
    associative and commutative, because neither rows nor files have an order. Merging with the initial state must
    change nothing.
    """

    state: ClassVar[pa.DataType]
    """Arrow type of a state as it is stored."""

    @abstractmethod
    def initial(self) -> Any:
        """Return the state of no rows."""

    @abstractmethod
    def update(self, state: Any, values: pa.Array, counts: pa.Int64Array) -> Any:
        """Return the state after more rows are added: `values[i]` occurs in `counts[i]` of them.

        Args:
            state: The state before. It must not be changed.
            values: Values of the canonical Arrow type of their class (int64, float64, large_string, date32, …), in
                any order. They may repeat. No value is null; NaN is a value.
            counts: 1 or more for each value.
        """

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Return the state of two disjoint sets of rows together.

        Args:
            one: The state of one set of rows. It must not be changed.
            other: The state of the other set. It must not be changed.
        """

    @abstractmethod
    def finalize(self, state: Any) -> Any:
        """Return the statistic of the rows of a state, as a value of the Arrow type `result`.

        Return None if the statistic is not defined for these rows, such as a mean without values.
        """

    @property
    def route(self) -> Route:
        """How the statistic is computed: `subtract` if it has a method `retract`, otherwise `merge`."""
        return "subtract" if isinstance(self, SupportsRetract) else "merge"


class FrequencyStatistic(UserStatistic):
    """A statistic that is computed from the frequencies of all values.

    Only columns with enumerated values have it. Enumerated means that every distinct value is stored with its count.
    """

    @abstractmethod
    def compute(self, values: pa.Array, counts: pa.Int64Array) -> Any:
        """Return the statistic as a value of the Arrow type `result`; None if it is not defined.

        Args:
            values: Distinct values in ascending order, of the canonical Arrow type of their class. No value is null;
                NaN is the last value. The array is empty for a column without values.
            counts: How often each value occurs, 1 or more.
        """

    @property
    def route(self) -> Route:
        """`frequencies`: after a commit, the statistic is computed from all values with their frequencies."""
        return "frequencies"
