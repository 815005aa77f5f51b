"""Bound predicates: one class per operator, each with all its evaluators.

A bound predicate has typed columns. It is a tree of `And`, `Or` and leaves, which are conditions on one column. There
is no `not`: binding moves it to the leaves, which have a field `negated`. Except for `IsNull`, neither a leaf nor its
negation is true of a null. SQL's third truth value, null, is not needed: a filter selects the rows for which the
predicate is true, so false and null are the same.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one.

Values are ordered as in statistics: NaN equals itself and is the greatest value, -0.0 equals 0.0, and text compares by
its UTF-8 bytes.

Evaluators:
    mask                   the rows of Arrow arrays that match
    bound_rows             bounds on the number of matching rows, for many sets of rows at once
    eliminating_statistic  the statistic that proves that no row of a set matches (leaves only)
    to_sql                 SQL text that parses to the same predicate

If a class lacks one of them, the import of its module fails. In other packages, an evaluator is a mapping from
classes to functions; `complete_evaluator` checks that no class is missing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from metastore_assets.expressions.literals import column_to_sql, literal_to_sql, quote_text
from metastore_assets.expressions.row_bounds import (
    ColumnBounds,
    Mask,
    RowBounds,
    RowCounts,
    UpperLimits,
    bound_conjunction,
    bound_disjunction,
    order_comparable,
    to_mask,
)
from metastore_assets.startup import pc
from metastore_assets.values.columns import logical_nulls
from metastore_assets.values.physical import array_of, canonical, storage
from metastore_assets.values.truncation import prefix_successor
from metastore_assets.values.types import TypeClass

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
COMMUTED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""For each operator, the equivalent one for swapped operands: `5 < x` is `x > 5`."""
NEGATED: Mapping[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""For each operator, its negation: `<` is false for exactly the values for which `>=` is true."""

MAX_SHOWN_VALUES = 10
"""Maximum number of values of one `in` in SQL text for people."""
_MAX_EQUAL_VALUES = 16
"""Maximum number of values of one `in` that `equal_values` returns by default."""
_MAX_COMPARED_VALUES = 64
"""Maximum number of values of one `in` that are compared with bounds one by one, if the type has no binary search."""
_KERNELS: Mapping[Operator, str] = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}

StatisticNames: TypeAlias = "np.ndarray[Any, np.dtype[np.str_]]"
_MINIMUM_AND_MAXIMUM = "minimum, maximum"


@dataclass(frozen=True)
class BoundColumn:
    """A column in a bound predicate.

    It is inside no list and no map, so each row has one value of it, or null.
    """

    path: str
    """Dotted path in the current schema."""
    field_id: str
    cls: TypeClass | None
    """The type class; None if values cannot be compared, as for structs, lists and maps."""

    @property
    def type_class(self) -> TypeClass:
        """The type class `cls` of a column whose values can be compared.

        For any other column, `cls` is None, and an assertion fails.
        """
        assert self.cls is not None
        return self.cls


class CompleteClass(ABC):  # noqa: B024 (its families have the abstract methods)
    """A base class whose subclasses must implement all abstract methods.

    The definition of a subclass that lacks one raises TypeError. A subclass with `abstract=True` is not checked.
    """

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        super().__init_subclass__()
        missing = sorted(name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False))
        if missing and not abstract:
            raise TypeError(f"class {cls.__name__} has no {', '.join(missing)}")


class Predicate(CompleteClass, abstract=True):
    """A condition on rows."""

    @abstractmethod
    def mask(self, arrays: Mapping[str, pa.Array], row_count: int) -> Mask:
        """Return a mask of the matching rows.

        Args:
            arrays: The values of each referenced column, by its field id. Each has `row_count` rows.
            row_count: The number of rows.
        """

    @abstractmethod
    def bound_rows(
        self, row_counts: RowCounts, columns: Mapping[str, ColumnBounds], limits: UpperLimits | None = None
    ) -> RowBounds:
        """Return bounds on the number of matching rows in each set of rows.

        An upper bound of 0 means that no row matches (Iceberg's inclusive evaluator). A lower bound that equals the row
        count means that all rows match (Iceberg's strict evaluator).

        Args:
            row_counts: The number of rows of each set.
            columns: Bounds of each referenced column, by its field id.
            limits: For some leaves (conditions on one column), additional upper bounds on the number of matching rows
                in each set. None has the same effect as an empty mapping.
        """

    @abstractmethod
    def to_sql(self, max_values: int | None = None) -> str:
        """Return SQL text that parses to the same predicate.

        Args:
            max_values: The maximum number of values of an `in`; None for all. A shortened text is for people only: it
                does not parse.
        """

    @abstractmethod
    def leaves(self) -> Iterator[Leaf]:
        """Yield the leaves of the predicate, left to right."""

    def to_short_sql(self) -> str:
        """Return SQL text for users, with at most `MAX_SHOWN_VALUES` values of each `in`."""
        return self.to_sql(MAX_SHOWN_VALUES)

    def conjuncts(self) -> tuple[Predicate, ...]:
        """Return the parts of a conjunction; for any other predicate, only the predicate itself."""
        return (self,)


@dataclass(frozen=True)
class Constant(Predicate):
    """A predicate that is true of all rows, or of none."""

    value: bool

    def mask(self, arrays: Mapping[str, pa.Array], row_count: int) -> Mask:
        return np.full(row_count, self.value)

    def bound_rows(
        self, row_counts: RowCounts, columns: Mapping[str, ColumnBounds], limits: UpperLimits | None = None
    ) -> RowBounds:
        matching = row_counts if self.value else np.zeros_like(row_counts)
        return RowBounds(matching, matching)

    def to_sql(self, max_values: int | None = None) -> str:
        return "true" if self.value else "false"

    def leaves(self) -> Iterator[Leaf]:
        return iter(())


class _Junction(Predicate, abstract=True):
    """A conjunction or a disjunction of several predicates."""

    children: tuple[Predicate, ...]
    keyword: ClassVar[str]

    def to_sql(self, max_values: int | None = None) -> str:
        parts = []
        for child in self.children:
            text = child.to_sql(max_values)
            parts.append(f"({text})" if isinstance(child, _Junction) else text)
        return f" {self.keyword} ".join(parts)

    def leaves(self) -> Iterator[Leaf]:
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True)
class And(_Junction):
    """A conjunction.

    It is true of the rows for which all of its children are true.
    """

    children: tuple[Predicate, ...]
    keyword = "and"

    def mask(self, arrays: Mapping[str, pa.Array], row_count: int) -> Mask:
        combined_mask: Mask = np.logical_and.reduce([child.mask(arrays, row_count) for child in self.children])
        return combined_mask

    def bound_rows(
        self, row_counts: RowCounts, columns: Mapping[str, ColumnBounds], limits: UpperLimits | None = None
    ) -> RowBounds:
        return bound_conjunction([child.bound_rows(row_counts, columns, limits) for child in self.children], row_counts)

    def conjuncts(self) -> tuple[Predicate, ...]:
        return self.children


@dataclass(frozen=True)
class Or(_Junction):
    """A disjunction.

    It is true of the rows for which at least one of its children is true.
    """

    children: tuple[Predicate, ...]
    keyword = "or"

    def mask(self, arrays: Mapping[str, pa.Array], row_count: int) -> Mask:
        combined_mask: Mask = np.logical_or.reduce([child.mask(arrays, row_count) for child in self.children])
        return combined_mask

    def bound_rows(
        self, row_counts: RowCounts, columns: Mapping[str, ColumnBounds], limits: UpperLimits | None = None
    ) -> RowBounds:
        return bound_disjunction([child.bound_rows(row_counts, columns, limits) for child in self.children], row_counts)


class Leaf(Predicate, abstract=True):
    """A condition on one column."""

    column: BoundColumn

    @abstractmethod
    def value_mask(self, array: pa.Array) -> Mask:
        """Return for each value whether it matches.

        The array has any type of the column's type class.
        """

    @abstractmethod
    def bound_column_rows(self, column: ColumnBounds) -> RowBounds:
        """Return bounds on the number of matching rows in each set of rows, from bounds of the column."""

    @abstractmethod
    def eliminating_statistic(self, column: ColumnBounds) -> StatisticNames:
        """Return for each set of rows the name of the statistic that proves that no row of the set matches.

        For example, it is `null_count` if all rows are null. The name has no meaning for a set that may have matching
        rows.
        """

    def equal_values(self, max_values: int = _MAX_EQUAL_VALUES) -> list[pa.Scalar]:
        """Return the values of `=` or `in`, such as 1 and 2 for `in (1, 2)`.

        The result is empty for other conditions, and for an `in` with more than `max_values` values.
        """
        return []

    def mask(self, arrays: Mapping[str, pa.Array], row_count: int) -> Mask:
        return self.value_mask(arrays[self.column.field_id])

    def bound_rows(
        self, row_counts: RowCounts, columns: Mapping[str, ColumnBounds], limits: UpperLimits | None = None
    ) -> RowBounds:
        bounds = self.bound_column_rows(columns[self.column.field_id])
        if limits is None or self not in limits:
            return bounds
        return RowBounds(np.minimum(bounds.least, limits[self]), np.minimum(bounds.most, limits[self]))

    def leaves(self) -> Iterator[Leaf]:
        yield self


@dataclass(frozen=True)
class IsNull(Leaf):
    """The condition `is null`; if negated, `is not null`, which is also true of NaN."""

    column: BoundColumn
    negated: bool = False

    def value_mask(self, array: pa.Array) -> Mask:
        nulls: Mask = logical_nulls(array).to_numpy(zero_copy_only=False)
        return ~nulls if self.negated else nulls

    def bound_column_rows(self, column: ColumnBounds) -> RowBounds:
        nulls = column.nulls
        return RowBounds(column.rows - nulls.most, column.rows - nulls.least) if self.negated else nulls

    def eliminating_statistic(self, column: ColumnBounds) -> StatisticNames:
        return np.full(len(column.rows), "null_count")

    def to_sql(self, max_values: int | None = None) -> str:
        return f"{column_to_sql(self.column.path)} is{' not' if self.negated else ''} null"


@dataclass(frozen=True)
class IsNaN(Leaf):
    """The condition `is nan`.

    If negated, it is true of all values except NaN and null.
    """

    column: BoundColumn
    negated: bool = False

    def value_mask(self, array: pa.Array) -> Mask:
        values = canonical(array, self.column.type_class)
        return _is_valid(values) & (_is_nan(values, self.column.type_class) != self.negated)

    def bound_column_rows(self, column: ColumnBounds) -> RowBounds:
        return column.numbers if self.negated else column.nans

    def eliminating_statistic(self, column: ColumnBounds) -> StatisticNames:
        return np.where(column.nulls.least == column.rows, "null_count", "nan_count")

    def to_sql(self, max_values: int | None = None) -> str:
        return f"{column_to_sql(self.column.path)} is{' not' if self.negated else ''} nan"


class _ValueLeaf(Leaf, abstract=True):
    """A condition on values, such as `<`, `in` or `like`, that minimum and maximum can prove or disprove."""

    @property
    @abstractmethod
    def matches_nan(self) -> bool:
        """Whether NaN, which is the greatest value, matches."""

    @abstractmethod
    def match_range(self, minimum: pa.Array, maximum: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return (some, every), two boolean arrays with an item per range of values.

        `some` is false only if no value in the range matches. `every` is true only if all values in the range match.
        Each may be null for a range of which an end is unknown.

        Args:
            minimum: The lower end of each range, inclusive, of the canonical type; null if unknown.
            maximum: The upper end of each range, inclusive, of the canonical type; null if unknown.
        """

    @property
    @abstractmethod
    def matching_range(self) -> tuple[pa.Array, pa.Array] | None:
        """The least and the greatest value that the condition names, as arrays of length one.

        `x = 5` has (5, 5), and `x in (1, 4, 9)` has (1, 9). `x like 'ab%'` has the prefix twice: ('ab', 'ab').
        The result is None for negated leaves, and for comparisons other than `=`.
        """

    def bound_column_rows(self, column: ColumnBounds) -> RowBounds:
        some, every = self.match_range(column.minimum, column.maximum)
        numbers, nans = column.numbers, column.nans
        least = np.where(to_mask(every, if_null=False), numbers.least, 0)
        most = np.where(to_mask(some, if_null=True), numbers.most, 0)
        if self.matches_nan:
            least, most = least + nans.least, most + nans.most
        max_values = column.rows - column.nulls.least
        return RowBounds(np.minimum(least, max_values), np.minimum(most, max_values))

    def eliminating_statistic(self, column: ColumnBounds) -> StatisticNames:
        names = np.where(
            column.nulls.least == column.rows, "null_count", np.where(column.numbers.most == 0, "nan_count", "")
        )
        return np.where(names == "", self._eliminating_bound(column), names)

    def _eliminating_bound(self, column: ColumnBounds) -> StatisticNames:
        """Return for each set of rows the name of the bound that proves that no value matches.

        The name is `minimum` if even the minimum is too great, and `maximum` if even the maximum is too small.
        Otherwise, both bounds are named. The name has no meaning for a set in which a value may match.
        """
        if self.matching_range is None:
            return np.full(len(column.rows), _MINIMUM_AND_MAXIMUM)
        cls = self.column.type_class
        first, last = (order_comparable(values, cls) for values in self.matching_range)
        minimum, maximum = (order_comparable(values, cls) for values in (column.minimum, column.maximum))
        is_above = to_mask(pc.greater(minimum, last[0]), if_null=False)
        is_below = to_mask(pc.less(maximum, first[0]), if_null=False)
        return np.where(is_above, "minimum", np.where(is_below, "maximum", _MINIMUM_AND_MAXIMUM))


@dataclass(frozen=True)
class Comparison(_ValueLeaf):
    """A comparison such as `<` with a constant.

    The constant is not NaN.
    """

    column: BoundColumn
    operator: Operator
    value: pa.Scalar
    """The constant, in the canonical Arrow type of the column's type class."""

    def __reduce__(self) -> tuple[object, ...]:
        # A pickled scalar is a Python value, which ends at microseconds and at the year 9999.
        return _rebuild_comparison, (self.column, self.operator, array_of([self.value]))

    @property
    def matches_nan(self) -> bool:
        return self.operator in (">", ">=", "!=")

    @property
    def matching_range(self) -> tuple[pa.Array, pa.Array] | None:
        value = array_of([self.value])
        return (value, value) if self.operator == "=" else None

    def value_mask(self, array: pa.Array) -> Mask:
        cls = self.column.type_class
        values = canonical(array, cls)
        kernel = getattr(pc, _KERNELS[self.operator])
        value = order_comparable(array_of([self.value]), cls)[0]
        matching = to_mask(kernel(order_comparable(values, cls), value), if_null=False)
        if self.operator in (">", ">="):  # Arrow says false of NaN
            matching |= _is_nan(values, cls)
        return _is_valid(values) & matching

    def match_range(self, minimum: pa.Array, maximum: pa.Array) -> tuple[pa.Array, pa.Array]:
        cls = self.column.type_class
        low, high, value = (order_comparable(bound, cls) for bound in (minimum, maximum, self.value))
        if self.operator in ("<", "<="):
            kernel = getattr(pc, _KERNELS[self.operator])
            return kernel(low, value), kernel(high, value)
        if self.operator in (">", ">="):
            kernel = getattr(pc, _KERNELS[self.operator])
            return kernel(high, value), kernel(low, value)
        # Either bound alone may exclude the value.
        some = pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value))
        every = pc.and_kleene(pc.greater_equal(low, value), pc.less_equal(high, value))
        return (some, every) if self.operator == "=" else (pc.invert(every), pc.invert(some))

    def eliminating_statistic(self, column: ColumnBounds) -> StatisticNames:
        names = super().eliminating_statistic(column)
        if self.operator in ("=", "!="):
            return names
        bound = "minimum" if self.operator in ("<", "<=") else "maximum"
        return np.where(names == _MINIMUM_AND_MAXIMUM, bound, names)

    def equal_values(self, max_values: int = _MAX_EQUAL_VALUES) -> list[pa.Scalar]:
        return [self.value] if self.operator == "=" else []

    def to_sql(self, max_values: int | None = None) -> str:
        return f"{column_to_sql(self.column.path)} {self.operator} {literal_to_sql(self.value)}"


@dataclass(frozen=True)
class In(_ValueLeaf):
    """The condition that a value is in a set; if negated, that the value is not in the set."""

    column: BoundColumn
    values: pa.Array
    """The set: at least one value, distinct and ascending, without NaN, in the canonical Arrow type of the column's
    type class."""
    negated: bool = False

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, In)
            and (self.column, self.negated) == (other.column, other.negated)
            and self.values.equals(other.values)
        )

    def __hash__(self) -> int:
        return hash((self.column, self.negated, str(self.values)))

    @property
    def matches_nan(self) -> bool:
        return self.negated

    @property
    def matching_range(self) -> tuple[pa.Array, pa.Array] | None:
        return None if self.negated else (self.values.slice(0, 1), self.values.slice(len(self.values) - 1))

    def value_mask(self, array: pa.Array) -> Mask:
        cls = self.column.type_class
        values = canonical(array, cls)
        is_member = pc.is_in(order_comparable(values, cls), value_set=order_comparable(self.values, cls))
        return _is_valid(values) & (to_mask(is_member, if_null=False) != self.negated)

    def match_range(self, minimum: pa.Array, maximum: pa.Array) -> tuple[pa.Array, pa.Array]:
        cls = self.column.type_class
        low, high, members = (order_comparable(values, cls) for values in (minimum, maximum, self.values))
        some = pc.and_kleene(pc.less_equal(low, members[-1]), pc.greater_equal(high, members[0]))
        if cls.kind == "float" or pa.types.is_integer(members.type):
            some = pc.and_kleene(some, _contains_member(members, low, high))
        elif len(members) <= _MAX_COMPARED_VALUES:
            some = pc.and_kleene(pc.less_equal(low, members[0]), pc.greater_equal(high, members[0]))
            for member in members[1:]:
                contains = pc.and_kleene(pc.less_equal(low, member), pc.greater_equal(high, member))
                some = pc.or_kleene(some, contains)
        every = pc.and_kleene(pc.equal(low, high), pc.is_in(low, value_set=members, skip_nulls=True))
        return (pc.invert(every), pc.invert(some)) if self.negated else (some, every)

    def equal_values(self, max_values: int = _MAX_EQUAL_VALUES) -> list[pa.Scalar]:
        return list(self.values) if not self.negated and len(self.values) <= max_values else []

    def to_sql(self, max_values: int | None = None) -> str:
        shown_values = [literal_to_sql(value) for value in self.values[: max_values or len(self.values)]]
        remaining = len(self.values) - len(shown_values)
        if remaining:
            shown_values.append(f"… {remaining:,} more")
        return f"{column_to_sql(self.column.path)}{' not' if self.negated else ''} in ({', '.join(shown_values)})"


@dataclass(frozen=True)
class Like(_ValueLeaf):
    """The condition that a text begins with `prefix` and also matches `pattern`, or its negation.

    If `pattern` is None, the prefix alone decides.
    """

    column: BoundColumn
    prefix: bytes
    """The bytes before the first wildcard of the pattern. Empty only if `pattern` is given."""
    pattern: str | None = None
    """A `like` pattern with `\\` as its escape; None if any text may follow the prefix."""
    negated: bool = False

    @property
    def matches_nan(self) -> bool:
        return self.negated

    @property
    def matching_range(self) -> tuple[pa.Array, pa.Array] | None:
        prefix = pa.array([self.prefix], pa.large_binary())
        return None if self.negated else (prefix, prefix)

    def value_mask(self, array: pa.Array) -> Mask:
        values = canonical(array, self.column.type_class)
        if self.pattern is None:
            matching = pc.starts_with(storage(values), self.prefix)
        else:
            matching = pc.match_like(values, self.pattern)
        return _is_valid(values) & (to_mask(matching, if_null=False) != self.negated)

    def match_range(self, minimum: pa.Array, maximum: pa.Array) -> tuple[pa.Array, pa.Array]:
        low, high = storage(minimum), storage(maximum)
        # Texts with a prefix are consecutive: from the prefix to the first text that is greater than all of them.
        prefix, successor = pa.scalar(self.prefix, pa.large_binary()), prefix_successor(self.prefix)
        some, every = pc.greater_equal(high, prefix), pc.greater_equal(low, prefix)
        if successor is not None:
            end = pa.scalar(successor, pa.large_binary())
            some, every = pc.and_kleene(some, pc.less(low, end)), pc.and_kleene(every, pc.less(high, end))
        if self.pattern is not None:
            # Bounds decide the pattern only where all values are equal, as in a partition column.
            is_constant = pc.equal(low, high).fill_null(False)
            constants = low.filter(is_constant).view(pa.large_string())
            matching = np.zeros(len(low), np.bool_)
            matching[to_mask(is_constant, if_null=False)] = to_mask(
                pc.match_like(constants, self.pattern), if_null=False
            )
            some = pc.if_else(is_constant, pa.array(matching), some)
            every = pc.if_else(is_constant, pa.array(matching), pc.and_kleene(every, pa.scalar(False)))
        return (pc.invert(every), pc.invert(some)) if self.negated else (some, every)

    def to_sql(self, max_values: int | None = None) -> str:
        pattern = self.pattern
        if pattern is None:
            prefix = self.prefix.decode("utf-8", "surrogateescape")
            pattern = re.sub(r"([%_\\])", r"\\\1", prefix) + "%"
        return f"{column_to_sql(self.column.path)}{' not' if self.negated else ''} like {quote_text(pattern)}"


Handler = TypeVar("Handler")
_LEAF_CLASSES = (IsNull, IsNaN, Comparison, In, Like)
PREDICATE_CLASSES: tuple[type[Predicate], ...] = (Constant, And, Or, *_LEAF_CLASSES)
"""The classes of all operators of bound predicates."""


def complete_evaluator(name: str, handlers: Mapping[type[Predicate], Handler]) -> Mapping[type[Predicate], Handler]:
    """Return the handlers unchanged, after checking that each predicate class has one.

    Args:
        name: The name of the evaluator, for the message.
        handlers: The function that evaluates the predicates of each class.

    Raises:
        TypeError: A predicate class has no handler.
    """
    missing = sorted(cls.__name__ for cls in PREDICATE_CLASSES if cls not in handlers)
    if missing:
        raise TypeError(f"evaluator {name!r} does not handle {', '.join(missing)}")
    return handlers


def conjoin(children: Sequence[Predicate]) -> Predicate:
    """Join predicates with `and`; flatten nested conjunctions, and remove duplicates.

    Constants that are true are removed; with a constant that is false, the result is false. The result may be a
    predicate other than `And`. Without predicates, it is true.
    """
    return _join(And, children, Constant(True))


def disjoin(children: Sequence[Predicate]) -> Predicate:
    """Join predicates with `or`; flatten nested disjunctions, and remove duplicates.

    Constants that are false are removed; with a constant that is true, the result is true. The result may be a
    predicate other than `Or`. Without predicates, it is false.
    """
    return _join(Or, children, Constant(False))


def _join(kind: type[And | Or], children: Sequence[Predicate], neutral: Constant) -> Predicate:
    """Return the simplified conjunction or disjunction of predicates.

    `neutral` is the result without children: true for `And`, false for `Or`.
    """
    distinct: dict[Predicate, None] = {}
    for child in children:
        distinct.update(dict.fromkeys(child.children if isinstance(child, kind) else (child,)))
    distinct.pop(neutral, None)
    dominant = Constant(not neutral.value)
    if dominant in distinct:
        return dominant
    return kind(tuple(distinct)) if len(distinct) > 1 else next(iter(distinct), neutral)


def referenced_columns(predicate: Predicate) -> list[BoundColumn]:
    """Return the columns that a predicate refers to, each once, left to right."""
    return list(dict.fromkeys(leaf.column for leaf in predicate.leaves()))


def _rebuild_comparison(column: BoundColumn, operator: Operator, values: pa.Array) -> Comparison:
    return Comparison(column, operator, values[0])


def _is_valid(values: pa.Array) -> Mask:
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _is_nan(values: pa.Array, cls: TypeClass) -> Mask:
    return to_mask(pc.is_nan(values), if_null=False) if cls.kind == "float" else np.zeros(len(values), np.bool_)


def _contains_member(members: pa.Array, low: pa.Array, high: pa.Array) -> pa.Array:
    """Return whether each range contains a member of a set.

    The members are numbers, ascending. Ranges include their bounds. The result is null if a bound is unknown.
    """
    has_bounds = pc.and_kleene(low.is_valid(), high.is_valid()).to_numpy(zero_copy_only=False)
    sorted_members = members.to_numpy()
    least, greatest = (bound.fill_null(0).to_numpy() for bound in (low, high))
    first = np.searchsorted(sorted_members, least, side="left")
    has_member = first < len(sorted_members)
    has_member &= sorted_members[np.minimum(first, len(sorted_members) - 1)] <= greatest
    return pa.array(has_member, mask=~has_bounds)
