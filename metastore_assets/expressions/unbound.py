"""What a predicate says before its columns are known: what SQL and Arrow expressions are taken apart into."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

Operator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class ColumnName:
    """A column as it was written: parts of a dotted path, each of which may hold dots."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class TextLiteral:
    """A literal in quotes: of the type of whatever column it is compared with, or of one kind of time."""

    text: str
    kind: OneOf["date", "timestamp", "time"] | None = None


@dataclass(frozen=True)
class NumberLiteral:
    """A number, exact."""

    value: Decimal


@dataclass(frozen=True)
class BytesLiteral:
    """Bytes."""

    data: bytes


@dataclass(frozen=True)
class BooleanLiteral:
    """True, false, or null: as a literal, and as a predicate."""

    value: bool | None


@dataclass(frozen=True)
class ArrowLiteral:
    """A valid Arrow scalar."""

    value: pa.Scalar


Literal: TypeAlias = TextLiteral | NumberLiteral | BytesLiteral | BooleanLiteral | ArrowLiteral


@dataclass(frozen=True)
class UnboundComparison:
    """A column and a literal."""

    name: ColumnName
    operator: Operator
    literal: Literal
    ieee: bool = False
    """Whether NaN compares as in Arrow: it is not equal to anything, and neither less nor greater."""


@dataclass(frozen=True)
class UnboundIn:
    """A column and the literals that it may be equal to."""

    name: ColumnName
    literals: tuple[Literal, ...]
    rounded: bool = False
    """Whether literals are rounded to floats of the column's width first, as Arrow's `is_in` does. Its comparisons
    are those of doubles."""


@dataclass(frozen=True)
class UnboundLike:
    """A column and a pattern, in which `%` stands for any text and `_` for one character."""

    name: ColumnName
    pattern: str
    escape: str | None = "\\"


@dataclass(frozen=True)
class UnboundIsNull:
    """Whether a column is null: the only test that is never null itself."""

    name: ColumnName


@dataclass(frozen=True)
class UnboundIsNaN:
    """Whether a column is NaN; null of null."""

    name: ColumnName


@dataclass(frozen=True)
class BooleanColumn:
    """A column of booleans by itself."""

    name: ColumnName


@dataclass(frozen=True)
class Not:
    """Negation."""

    child: UnboundPredicate


@dataclass(frozen=True)
class UnboundAnd:
    """`and`."""

    children: tuple[UnboundPredicate, ...]


@dataclass(frozen=True)
class UnboundOr:
    """`or`."""

    children: tuple[UnboundPredicate, ...]


UnboundPredicate: TypeAlias = (
    UnboundComparison
    | UnboundIn
    | UnboundLike
    | UnboundIsNull
    | UnboundIsNaN
    | BooleanColumn
    | BooleanLiteral
    | Not
    | UnboundAnd
    | UnboundOr
)

COMMUTED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""By operator, the one of the same comparison with its sides swapped."""
NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""By operator, the one that is true of the other values."""
