"""Random predicates, and their results in SQL's three-valued logic, computed in plain Python.

This module shares no code with the package. A predicate is a tree that can be converted to SQL or to an Arrow
expression, and is evaluated here on plain values.
"""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tests.fuzz.columns import DAY, Kind, NodePath

Logic: TypeAlias = bool | None
Row: TypeAlias = Mapping[int, Any]
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda low, high: bool(low == high),
    "!=": lambda low, high: bool(low != high),
    "<>": lambda low, high: bool(low != high),
    "<": lambda low, high: bool(low < high),
    "<=": lambda low, high: bool(low <= high),
    ">": lambda low, high: bool(low > high),
    ">=": lambda low, high: bool(low >= high),
}
_MIRRORED = {"=": "=", "!=": "!=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARROW = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


@dataclass(frozen=True)
class Literal:
    """A literal in SQL or in Arrow.

    `point` is its value in the form that the function `point` returns; None for null.
    """

    text: str
    point: Any
    scalar: pa.Scalar | None = None


def point(kind: Kind, value: Any) -> Any:
    """Convert a value other than null to a form that Python orders as the column's type does.

    Values of all types of one `family` can be compared in this form.
    """
    if kind.family == "float":
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if kind.family == "text":
        return value.encode()
    if kind.family in ("time", "local", "zoned"):
        return value * kind.tick
    return value


class Predicate(ABC):
    """A node of the tree of a predicate."""

    @abstractmethod
    def holds(self, row: Row) -> Logic:
        """Evaluate the predicate on a row.

        None stands for null.
        """

    @abstractmethod
    def sql(self) -> str: ...

    def arrow(self) -> pc.Expression:
        """Convert to an Arrow expression.

        Raises TypeError if there is none for the node.
        """
        raise TypeError(f"pyarrow has no expression for {type(self).__name__}")


@dataclass(frozen=True)
class Not(Predicate):
    inner: Predicate

    def holds(self, row: Row) -> Logic:
        outcome = self.inner.holds(row)
        return None if outcome is None else not outcome

    def sql(self) -> str:
        return f"not ({self.inner.sql()})"

    def arrow(self) -> pc.Expression:
        return ~self.inner.arrow()


@dataclass(frozen=True)
class Several(Predicate):
    word: str
    parts: Sequence[Predicate]

    def holds(self, row: Row) -> Logic:
        outcomes = [part.holds(row) for part in self.parts]
        decisive = self.word == "or"
        return decisive if decisive in outcomes else None if None in outcomes else not decisive

    def sql(self) -> str:
        return f" {self.word} ".join(f"({part.sql()})" for part in self.parts)

    def arrow(self) -> pc.Expression:
        parts = [part.arrow() for part in self.parts]
        return reduce((lambda low, high: low | high) if self.word == "or" else (lambda low, high: low & high), parts)


@dataclass(frozen=True)
class Test(Predicate):
    """A test of one column."""

    __test__ = False
    node_path: NodePath
    name: str
    """The column as SQL writes it."""
    is_ieee: bool
    """Whether the test is part of an Arrow expression, in which NaN equals no value."""

    def value(self, row: Row) -> Any:
        (value,) = self.node_path.values(row)
        return value

    @property
    def kind(self) -> Kind:
        assert self.node_path.node.kind is not None
        return self.node_path.node.kind

    def compare(self, operator: str, value: Any, literal: Literal) -> Logic:
        """Compare a value with a literal.

        None stands for null.
        """
        if value is None or literal.point is None:
            return None
        low, high = point(self.kind, value), literal.point
        if self.is_ieee and self.kind.family == "float" and (low[0] or high[0]):
            return operator in ("!=", "<>")
        return _OPERATORS[operator](low, high)

    @property
    def field(self) -> pc.Expression:
        names = self.node_path.names
        return pc.field(names[0]) if len(names) == 1 else pc.field(*names)


@dataclass(frozen=True)
class Comparison(Test):
    operator: str
    literal: Literal
    is_mirrored: bool = False

    def holds(self, row: Row) -> Logic:
        return self.compare(self.operator, self.value(row), self.literal)

    def sql(self) -> str:
        if self.is_mirrored:
            return f"{self.literal.text} {_MIRRORED[self.operator]} {self.name}"
        return f"{self.name} {self.operator} {self.literal.text}"

    def arrow(self) -> pc.Expression:
        outcome: pc.Expression = getattr(self.field, _ARROW[self.operator])(self.literal.scalar)
        return outcome


@dataclass(frozen=True)
class Distinct(Test):
    literal: Literal
    negated: bool
    """`is not distinct from`."""

    def holds(self, row: Row) -> Logic:
        value = self.value(row)
        if value is None or self.literal.point is None:
            is_equal = value is None and self.literal.point is None
        else:
            is_equal = point(self.kind, value) == self.literal.point
        return is_equal if self.negated else not is_equal

    def sql(self) -> str:
        return f"{self.name} is {'not ' if self.negated else ''}distinct from {self.literal.text}"


@dataclass(frozen=True)
class Between(Test):
    low: Literal
    high: Literal
    negated: bool

    def holds(self, row: Row) -> Logic:
        value = self.value(row)
        sides = [self.compare(">=", value, self.low), self.compare("<=", value, self.high)]
        outcome = False if False in sides else None if None in sides else True
        return outcome if outcome is None or not self.negated else not outcome

    def sql(self) -> str:
        return f"{self.name}{' not' if self.negated else ''} between {self.low.text} and {self.high.text}"


@dataclass(frozen=True)
class In(Test):
    literals: Sequence[Literal]
    negated: bool
    skips_nulls: bool = False

    def holds(self, row: Row) -> Logic:
        value = self.value(row)
        if self.is_ieee:
            if value is None:
                return not self.skips_nulls and any(item.point is None for item in self.literals)
            # Arrow's `is_in` treats NaN as equal to itself.
            return point(self.kind, value) in [item.point for item in self.literals]
        comparisons = [self.compare("=", value, item) for item in self.literals]
        result = True if True in comparisons else None if None in comparisons else False
        return result if result is None or not self.negated else not result

    def sql(self) -> str:
        members = ", ".join(item.text for item in self.literals)
        return f"{self.name}{' not' if self.negated else ''} in ({members})"

    def arrow(self) -> pc.Expression:
        type_ = self.kind.arrow
        scalars = [pa.scalar(None, type_) if item.scalar is None else item.scalar for item in self.literals]
        outcome: pc.Expression = pc.is_in(
            self.field,
            options=pc.SetLookupOptions(value_set=pa.array(scalars, type_), skip_nulls=self.skips_nulls),
        )
        return outcome


@dataclass(frozen=True)
class Null(Test):
    negated: bool

    def holds(self, row: Row) -> Logic:
        return (self.value(row) is None) != self.negated

    def sql(self) -> str:
        return f"{self.name} is{' not' if self.negated else ''} null"

    def arrow(self) -> pc.Expression:
        return self.field.is_valid() if self.negated else self.field.is_null()


@dataclass(frozen=True)
class NaN(Test):
    form: str

    def holds(self, row: Row) -> Logic:
        value = self.value(row)
        if value is None:
            return None
        return math.isnan(value) != (self.form == "is not nan")

    def sql(self) -> str:
        return f"isnan({self.name})" if self.form == "isnan" else f"{self.name} {self.form}"

    def arrow(self) -> pc.Expression:
        return pc.is_nan(self.field) if self.form != "is not nan" else ~pc.is_nan(self.field)


@dataclass(frozen=True)
class Like(Test):
    pattern: str
    escape: str
    negated: bool

    def holds(self, row: Row) -> Logic:
        value = self.value(row)
        if value is None:
            return None
        return (re.fullmatch(_regex(self.pattern, self.escape), value, re.DOTALL) is not None) != self.negated

    def sql(self) -> str:
        end = "" if self.escape == "\\" else f" escape '{self.escape}'"
        return f"{self.name}{' not' if self.negated else ''} like {_text(self.pattern)}{end}"


@dataclass(frozen=True)
class Flag(Test):
    def holds(self, row: Row) -> Logic:
        outcome: Logic = self.value(row)
        return outcome

    def sql(self) -> str:
        return self.name

    def arrow(self) -> pc.Expression:
        return self.field


def _regex(pattern: str, escape: str) -> str:
    outcome, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            outcome += re.escape(pattern[at])
        else:
            outcome += {"%": ".*", "_": "."}.get(character) or re.escape(character)
        at += 1
    return outcome


class PredicateDrawer:
    """Draws predicates for the rows of a table."""

    def __init__(self, draw: random.Random, node_paths: Sequence[NodePath], rows: Sequence[Row]) -> None:
        self.draw = draw
        self.node_paths = [node_path for node_path in node_paths if not node_path.is_repeated]
        self.rows = rows

    def drawn(self, depth: int = 3, *, ieee: bool = False) -> Predicate:
        """Draw a predicate with at most `depth` levels of `not`, `and` and `or`.

        With `ieee`, the predicate compares as Arrow does, and can be converted to an Arrow expression.
        """
        draw = self.draw
        if depth and draw.random() < 0.6:
            if draw.random() < 0.25:
                return Not(self.drawn(depth - 1, ieee=ieee))
            parts = [self.drawn(depth - 1, ieee=ieee) for _ in range(draw.choice([2, 2, 3]))]
            return Several(draw.choice(["and", "or"]), parts)
        return self._test(ieee)

    def _test(self, ieee: bool) -> Predicate:
        """Draw a test of one column, which compares as Arrow does if `ieee`, and otherwise as SQL does."""
        draw = self.draw
        node_path = draw.choice(self.node_paths)
        kind, target = node_path.node.kind, (node_path, self._name(node_path, exact=ieee), ieee)
        if kind is None or draw.random() < 0.1:
            return Null(*target, draw.random() < 0.5)
        if kind.family == "flag" and draw.random() < 0.5:
            return Flag(*target)
        if kind.family == "float" and draw.random() < 0.1:
            return NaN(*target, draw.choice(["is nan", "is not nan", "isnan"]))
        if kind.family == "text" and not ieee and draw.random() < 0.25:
            return self._like(target)
        if draw.random() < 0.3:
            members = [self._literal(node_path, kind, ieee, in_list=True) for _ in range(draw.choice([1, 2, 3, 5, 9]))]
            return In(*target, members, not ieee and draw.random() < 0.4, draw.random() < 0.5)
        if ieee:
            return Comparison(*target, draw.choice(list(_ARROW)), self._literal(node_path, kind, ieee))
        if draw.random() < 0.2:
            low, high = (self._literal(node_path, kind, ieee) for _ in range(2))
            return Between(*target, low, high, draw.random() < 0.4)
        if draw.random() < 0.1:
            return Distinct(*target, self._literal(node_path, kind, ieee), draw.random() < 0.5)
        literal = self._literal(node_path, kind, ieee)
        return Comparison(*target, draw.choice(list(_OPERATORS)), literal, draw.random() < 0.2)

    def _name(self, node_path: NodePath, *, exact: bool) -> str:
        parts = []
        for name in node_path.names:
            quote = self.draw.choice('""`')
            parts.append(quote + name.replace(quote, quote * 2) + quote)
        return ".".join(parts)

    def _like(self, target: tuple[NodePath, str, bool]) -> Predicate:
        """Draw a `like` test, whose pattern has wildcards at random places and perhaps an escaped character.

        `target` has the first three fields of the test: the column, its name in SQL, and `is_ieee`.
        """
        draw = self.draw
        escape = draw.choice(["\\", "\\", "!"])
        pattern = ""
        for character in draw.choice(["", "a", "ab", "a%b", 'x"y', "it's", "😀", "a" * 70]):
            chance = draw.random()
            pattern += "%" if chance < 0.15 else "_" if chance < 0.3 else character
        pattern = "".join(escape + item if item == escape else item for item in pattern)
        if draw.random() < 0.3:
            pattern += escape + draw.choice(["%", "_", escape])
        if draw.random() < 0.5:
            pattern += "%"
        return Like(*target, pattern, escape, draw.random() < 0.4)

    def _literal(self, node_path: NodePath, kind: Kind, ieee: bool, *, in_list: bool = False) -> Literal:
        """Draw a literal to compare with a column: null, a value in one of the rows, or another value."""
        draw = self.draw
        if draw.random() < (0.1 if in_list or not ieee else 0.0):
            return Literal("null", None)
        value = kind.drawn(draw)
        if self.rows and draw.random() < 0.7:
            (stored_value,) = node_path.values(draw.choice(self.rows))
            value = value if stored_value is None else stored_value
        if ieee:
            if kind.family == "float" and not in_list and draw.random() < 0.3:
                # A double for columns of any type.
                other = draw.choice([value, 0.1, 88.001144, 9.007199e15])
                return Literal("", point(kind, other), pa.scalar(other, pa.float64()))
            return Literal("", point(kind, value), kind.array([value])[0])
        return _LITERALS[kind.family](draw, kind, value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _number(draw: random.Random, kind: Kind, value: Any) -> Literal:
    number = Decimal(value)
    if draw.random() < 0.25:
        exact = Context(prec=90)
        number = exact.add(number, Decimal(draw.choice(["0.5", "-0.001", "1", "1e30", "-1e30", "-1"])))
    text = f"{number:f}" if draw.random() < 0.8 else f"{number:e}"
    if draw.random() < 0.3:
        text = _text(text)
    return Literal(text, Fraction(number))


def _float(draw: random.Random, kind: Kind, value: Any) -> Literal:
    if draw.random() < 0.2:
        value = draw.choice([0.1, 88.001144, 9.007199e15, 16_777_217, 2])
    text = repr(value)
    if not math.isfinite(value):
        text = _text({"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)])
    elif draw.random() < 0.2:
        text = _text(text)
    return Literal(text, point(kind, float(value)))


def _string(draw: random.Random, kind: Kind, value: Any) -> Literal:
    if draw.random() < 0.2:
        value += draw.choice(["a", "\U0010ffff", "'"])
    return Literal(_text(value), value.encode())


def _bytes(draw: random.Random, kind: Kind, value: Any) -> Literal:
    if draw.random() < 0.2:
        value += b"\0"
    return Literal(f"x'{value.hex()}'" if draw.random() < 0.5 else _text(value.hex()), value)


def _uuid(draw: random.Random, kind: Kind, value: Any) -> Literal:
    text = value.hex()
    return Literal(_text("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))), value)


def _flag(draw: random.Random, kind: Kind, value: Any) -> Literal:
    return Literal(str(value).lower(), value)


def _date(draw: random.Random, kind: Kind, value: Any) -> Literal:
    text = _text((date(1970, 1, 1) + timedelta(days=value)).isoformat())
    return Literal(draw.choice(["", "date "]) + text, value)


def _clock(nanoseconds: int, digits: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    outcome = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return outcome + (f".{rest:09}"[: digits + 1] if digits else "")


def _digits(draw: random.Random, nanoseconds: int) -> int:
    """Draw the number of digits of a fraction of a second: 0, 3, 6 or 9, and no less than the time needs."""
    least = len(f"{nanoseconds % 10**9:09}".rstrip("0"))
    return draw.choice([item for item in (0, 3, 6, 9) if item >= least])


def _time(draw: random.Random, kind: Kind, value: Any) -> Literal:
    item = value * kind.tick
    if draw.random() < 0.3:
        item = min(item + 1, DAY - 1)
    return Literal(draw.choice(["", "time "]) + _text(_clock(item, _digits(draw, item))), item)


def _timestamp(draw: random.Random, kind: Kind, value: Any) -> Literal:
    """Draw a timestamp literal that equals a value or is near it.

    It may have nanoseconds, a zone, or only a day.
    """
    item = value * kind.tick
    if draw.random() < 0.25:
        item += draw.choice([1, -1, 999])
    if draw.random() < 0.1:
        item = item // DAY * DAY
    least, most = _FIRST + DAY, _LAST - DAY
    item = min(max(item, least), most)
    offset = 0
    zone = ""
    if kind.family == "zoned" and draw.random() < 0.6:
        zone, offset = draw.choice([("Z", 0), ("+02:00", 120), ("-05:30", -330), ("+00:00", 0)])
    days, rest = divmod(item + offset * 60 * 10**9, DAY)
    day = (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    if not rest and not zone and draw.random() < 0.5:
        return Literal(draw.choice(["", "date ", "timestamp "]) + _text(day), item)
    text = day + draw.choice("T ") + _clock(rest, _digits(draw, rest)) + zone
    return Literal(draw.choice(["", "timestamp "]) + _text(text), item)


_FIRST = -719_162 * DAY
_LAST = 2_932_896 * DAY
_LITERALS: dict[str, Callable[[random.Random, Kind, Any], Literal]] = {
    "number": _number,
    "float": _float,
    "text": _string,
    "bytes": _bytes,
    "uuid": _uuid,
    "flag": _flag,
    "date": _date,
    "time": _time,
    "local": _timestamp,
    "zoned": _timestamp,
}
__all__ = ["Literal", "Predicate", "PredicateDrawer", "point"]
