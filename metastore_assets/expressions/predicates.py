"""A predicate as a typed tree without negations: of each row it says whether the predicate is true.

SQL's logic has three values, and a filter keeps the rows where a predicate is true: false and null are alike to it.
Once negations are pushed down to the leaves, `and` and `or` of what is true are all that is left of that logic. So a
leaf says when it is true: a comparison is so of no null, and its negation of none either.

Values are ordered as everywhere here: NaN equals itself and is the greatest, -0.0 is 0.0, text goes by bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.expressions.unbound import Operator
from metastore_assets.values.types import TypeClass

_FEW = 16
"""Members of `in` that are looked up one by one."""


@dataclass(frozen=True)
class Column:
    """A column that a predicate is about: a value, or null, in each row."""

    path: str
    """Its dotted path, of now."""
    field_id: str
    cls: TypeClass | None
    """None of what has no values that compare: a struct, a list, a map, or a type without a class."""


@dataclass(frozen=True)
class Constant:
    """True of every row, or of none."""

    value: bool


@dataclass(frozen=True)
class Comparison:
    """Of values that compare so with one, which is not NaN. NaN is greater than it."""

    column: Column
    operator: Operator
    value: pa.Scalar
    """Of the canonical type of the column's class."""

    def __reduce__(self) -> tuple[object, ...]:
        # A scalar would travel as a Python value, and those end at microseconds and at the year 9999.
        return _compare, (self.column, self.operator, array_of([self.value]))


@dataclass(frozen=True)
class In:
    """Of values that are among some; negated, of values that are not."""

    column: Column
    values: pa.Array
    """Of the canonical type, ascending and distinct; at least one, and NaN is none of them."""
    negated: bool = False

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, In)
            and (self.column, self.negated) == (other.column, other.negated)
            and self.values.equals(other.values)
        )

    def __hash__(self) -> int:
        return hash((self.column, self.negated, str(self.values)))


@dataclass(frozen=True)
class Like:
    """Of texts that begin with a prefix and, with a pattern, are like that; negated, of texts that are not."""

    column: Column
    prefix: bytes
    """Empty only with a pattern."""
    pattern: str | None = None
    """With `%` and `_`, which a backslash makes plain characters; None where any text may follow the prefix."""
    negated: bool = False


@dataclass(frozen=True)
class IsNull:
    """Of nulls; negated, of values."""

    column: Column
    negated: bool = False


@dataclass(frozen=True)
class IsNaN:
    """Of NaN; negated, of values that are not NaN. Of no null, either way."""

    column: Column
    negated: bool = False


@dataclass(frozen=True)
class And:
    """Of rows that all are true of."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """Of rows that at least one is true of."""

    children: tuple[Predicate, ...]


Leaf: TypeAlias = Comparison | In | Like | IsNull | IsNaN
Predicate: TypeAlias = Constant | Leaf | And | Or


def _compare(column: Column, operator: Operator, values: pa.Array) -> Comparison:
    return Comparison(column, operator, values[0])


def array_of(values: Sequence[pa.Scalar]) -> pa.Array:
    """Scalars of one class, one at least, as an array."""
    type_ = values[0].type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array([own.value for own in values], type_.storage_type))
    return pa.array(values, type_)


def both(children: list[Predicate]) -> Predicate:
    """`And`, as flat and as short as it can be."""
    return _joined(And, children, Constant(True))


def either(children: list[Predicate]) -> Predicate:
    """`Or`, likewise."""
    return _joined(Or, children, Constant(False))


def _joined(kind: type[And | Or], children: list[Predicate], neutral: Constant) -> Predicate:
    flat: dict[Predicate, None] = {}
    for child in children:
        flat.update(dict.fromkeys(child.children if isinstance(child, kind) else (child,)))
    flat.pop(neutral, None)
    decided = Constant(not neutral.value)
    if decided in flat:
        return decided
    return kind(tuple(flat)) if len(flat) > 1 else next(iter(flat), neutral)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """What has to be true all at once."""
    return predicate.children if isinstance(predicate, And) else (predicate,)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """The leaves, left to right."""
    if isinstance(predicate, And | Or):
        for child in predicate.children:
            yield from leaves(child)
    elif not isinstance(predicate, Constant):
        yield predicate


def equal_values(leaf: Leaf, most: int = _FEW) -> list[pa.Scalar]:
    """The values of which one is in every row that a leaf is true of; none where they are not told, or more than
    `most`."""
    if isinstance(leaf, Comparison) and leaf.operator == "=":
        return [leaf.value]
    if isinstance(leaf, In) and not leaf.negated and len(leaf.values) <= most:
        return list(leaf.values)
    return []


def referenced_columns(predicate: Predicate) -> list[Column]:
    """The columns that it is about, each once, left to right."""
    return list(dict.fromkeys(leaf.column for leaf in leaves(predicate)))
