"""What a predicate says before its columns are known: what SQL and Arrow expressions are taken apart into."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

Operator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Name:
    """A column as it was written: parts of a dotted path, each of which may hold dots."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A literal in quotes: of the type of whatever column it is compared with, or of one kind of time."""

    text: str
    kind: OneOf["date", "timestamp", "time"] | None = None


@dataclass(frozen=True)
class Number:
    """A number, exact."""

    value: Decimal


@dataclass(frozen=True)
class Blob:
    """Bytes."""

    data: bytes


@dataclass(frozen=True)
class Truth:
    """True, false, or null: as a literal, and as a predicate."""

    value: bool | None


@dataclass(frozen=True)
class ArrowValue:
    """A valid Arrow scalar."""

    value: pa.Scalar


Literal: TypeAlias = Text | Number | Blob | Truth | ArrowValue


@dataclass(frozen=True)
class Comparison:
    """A column and a literal."""

    name: Name
    operator: Operator
    literal: Literal
    ieee: bool = False
    """Whether NaN compares as in Arrow: it is not equal to anything, and neither less nor greater."""


@dataclass(frozen=True)
class Membership:
    """A column and the literals that it may be equal to."""

    name: Name
    literals: tuple[Literal, ...]
    rounded: bool = False
    """Whether literals are rounded to floats of the column's width first, as Arrow's `is_in` does. Its comparisons
    are those of doubles."""


@dataclass(frozen=True)
class Likeness:
    """A column and a pattern, in which `%` stands for any text and `_` for one character."""

    name: Name
    pattern: str
    escape: str | None = "\\"


@dataclass(frozen=True)
class NullTest:
    """Whether a column is null: the only test that is never null itself."""

    name: Name


@dataclass(frozen=True)
class NaNTest:
    """Whether a column is NaN; null of null."""

    name: Name


@dataclass(frozen=True)
class Flag:
    """A column of booleans by itself."""

    name: Name


@dataclass(frozen=True)
class Not:
    """Negation."""

    child: Syntax


@dataclass(frozen=True)
class All:
    """`and`."""

    children: tuple[Syntax, ...]


@dataclass(frozen=True)
class Any:
    """`or`."""

    children: tuple[Syntax, ...]


Syntax: TypeAlias = Comparison | Membership | Likeness | NullTest | NaNTest | Flag | Truth | Not | All | Any

MIRRORED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""By operator, the one of the same comparison with its sides swapped."""
NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""By operator, the one that is true of the other values."""
