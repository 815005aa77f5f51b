"""Unbound predicates: the results of parsing SQL text and Arrow expressions.

Their columns have no types yet.

There is one class per operator. `bind` returns a bound predicate: one of the module `predicates`, whose columns have
types. Bound predicates contain no `not`, because `bind` moves negations into the operators.
A type class is a group of column types whose values are stored as one Arrow type.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import LiteralError, PredicateError
from metastore_assets.expressions.literals import expected_form, parse_literal, to_literal
from metastore_assets.expressions.predicates import (
    NEGATED,
    BoundColumn,
    Comparison,
    CompleteClass,
    Constant,
    In,
    IsNaN,
    IsNull,
    Like,
    Operator,
    Predicate,
    conjoin,
    disjoin,
)
from metastore_assets.iso8601 import TICKS, date_text, parse_date, parse_time, parse_timestamp
from metastore_assets.startup import pc
from metastore_assets.values.json import scalar_text
from metastore_assets.values.physical import array_of, integers_array, order_key
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.expressions.binding import Binder

_MAX_DEPTH = 200
"""Maximum number of nested levels of `and`, `or` and `not`. A deeper predicate is refused."""
_MAX_EXPONENT = 400
"""Limit of exponents: 10**500 is replaced by 10**400, and 10**-500 by 10**-400. Comparisons with integers of columns
stay the same, and the digits fit into memory."""
_LIKE_WILDCARDS = ("%", "_")


@dataclass(frozen=True)
class ColumnName:
    """A column as written in the predicate: the parts of its path.

    A quoted part may contain dots.
    """

    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The dotted path."""
        return ".".join(self.parts)


@dataclass(frozen=True)
class LiteralTarget:
    """The column that a literal is compared with.

    The literal is converted to the column's type.
    """

    cls: TypeClass
    subject: str
    """The column, for messages."""

    def reject(self, literal: UnboundLiteral) -> NoReturn:
        """Raise LiteralError, because the literal is not a value of the column."""
        raise LiteralError(f"{literal.description} is no value of {self.subject}: give {literal.replacement(self.cls)}")


class UnboundLiteral(CompleteClass, abstract=True):
    """A literal as it was written, before it is converted to the type of a column."""

    @property
    def is_null(self) -> bool:
        """Whether the literal is `null`."""
        return False

    @property
    @abstractmethod
    def description(self) -> str:
        """The literal, for messages."""

    @abstractmethod
    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        """Convert the literal to the type class of the target.

        The result is usually a scalar. For integers, decimals, dates, times and timestamps it may be an exact fraction,
        so that 1.5 can be compared with integers. The fraction counts unscaled units of a decimal, days of a date, and
        units of a time or timestamp.

        Raises:
            LiteralError: The literal is not a value of the target.
        """

    def replacement(self, cls: TypeClass) -> str:
        """Return what a message asks for instead of this literal: `an integer` in `give an integer`."""
        return expected_form(cls)


@dataclass(frozen=True)
class TextLiteral(UnboundLiteral):
    """A text in quotes, without or with a type before it: `'2024-01-31'`, `date '2024-01-31'`.

    Without a type, the text is converted to the type of the column that it is compared with.
    """

    text: str
    kind: Literal["date", "timestamp", "time"] | None = None
    """The type before the text; None if there is none."""

    @property
    def description(self) -> str:
        return repr(self.text) if self.kind is None else f"{self.kind} {self.text!r}"

    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        """Convert the text to the target's class.

        The `kind` is the type before the text. Without it, the text can become a value of any class. A `date` can
        become a date, a timestamp or a string. A `time` can become a time, and a `timestamp` a timestamp.

        Raises:
            LiteralError: The text is not a value of the target, or the `kind` does not fit the target's class.
        """
        cls = target.cls
        if self.kind is not None and cls.name == "string":
            # A column of texts, such as a folder's name, is compared with the text of a date.
            return parse_literal(self._normalized_date(target), cls, target.subject)
        if self.kind is not None and not t.is_temporal(cls.arrow):
            target.reject(self)
        try:
            physical = self._physical_value(target)
        except (ValueError, ArithmeticError):
            target.reject(self)
        if physical is not None:
            return physical
        if t.is_temporal(cls.arrow) or (cls.kind == "integer" and cls.is_numeric):
            target.reject(self)
        return parse_literal(self.text, cls, target.subject)

    def _normalized_date(self, target: LiteralTarget) -> str:
        if self.kind != "date":
            target.reject(self)
        try:
            return date_text(parse_date(self.text.strip()))
        except (ValueError, OverflowError):
            target.reject(self)

    def _physical_value(self, target: LiteralTarget) -> pa.Scalar | Fraction | None:
        cls, text = target.cls, self.text.strip()
        if cls.kind == "integer" and cls.is_numeric:
            number = Decimal(text)
            return _number_value(number, cls) if number.is_finite() else None
        if cls.name == "date" and self.kind in (None, "date"):
            return Fraction(parse_date(text))
        if cls.name == "time" and self.kind in (None, "time"):
            return Fraction(parse_time(text, "ns"))
        if t.is_timestamp(cls.arrow) and self.kind != "time":
            ticks, offset = parse_timestamp(text, "ns")
            if offset is not None and cls.arrow.tz is None:
                raise LiteralError(f"{self.text!r} has a time zone, and {target.subject} has none: leave it out")
            return Fraction(ticks, TICKS["ns"] // TICKS[cls.arrow.unit])
        return None


@dataclass(frozen=True)
class NumberLiteral(UnboundLiteral):
    """An exact number."""

    value: Decimal

    @property
    def description(self) -> str:
        return str(self.value)

    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        return _number_value(self.value, target.cls) if target.cls.is_numeric else target.reject(self)

    def replacement(self, cls: TypeClass) -> str:
        if cls.name == "string":
            return f"text in quotes, '{self.value}', which compares as text"
        return expected_form(cls)


@dataclass(frozen=True)
class BytesLiteral(UnboundLiteral):
    """Bytes, written in SQL as `x'00ff'`."""

    data: bytes

    @property
    def description(self) -> str:
        return repr(self.data)

    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        if target.cls.name != "binary":
            target.reject(self)
        return to_literal(self.data, target.cls, target.subject)


@dataclass(frozen=True)
class ArrowLiteral(UnboundLiteral):
    """An Arrow scalar that is not null."""

    value: pa.Scalar

    @property
    def description(self) -> str:
        return scalar_text(self.value)

    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        cls, type_ = target.cls, self.value.type
        if cls.is_numeric and (t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_)):
            number = self.value.as_py()
            if cls.kind == "integer" and not math.isfinite(number):
                target.reject(self)
            return _number_value(Decimal(number), cls)
        return to_literal(self.value, cls, target.subject)

    def rounded_to_float32(self) -> ArrowLiteral:
        """Return the literal, rounded to 32 bits if it is a double."""
        if not t.is_float64(self.value.type):
            return self
        return ArrowLiteral(pc.cast(self.value, pa.float32(), safe=False))


class UnboundPredicate(CompleteClass, abstract=True):
    """A condition on rows.

    Its columns have no types yet.
    """

    @abstractmethod
    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        """Return the predicate on the typed columns of a table.

        Args:
            binder: Resolves names to the columns of the table.
            negated: Whether to return the negation. If the predicate is null for a row, neither it nor its negation
                matches the row.
            depth: The number of operators around this one.

        Raises:
            PredicateError: The predicate is nested too deep, or compares a column whose values cannot be compared.
            ColumnNotFoundError: The predicate names a column that does not exist.
            LiteralError: A literal is not a value of its column.
        """

    @abstractmethod
    def column_names(self) -> Iterator[str]:
        """Yield the dotted paths of the columns, as they are spelled in the predicate, left to right."""


@dataclass(frozen=True)
class BooleanLiteral(UnboundPredicate, UnboundLiteral):
    """`true`, `false` or `null`, as a literal and as a predicate."""

    value: bool | None

    @property
    def is_null(self) -> bool:
        """Whether the literal is `null`."""
        return self.value is None

    @property
    def description(self) -> str:
        return str(self.value)

    def to_value(self, target: LiteralTarget) -> pa.Scalar | Fraction:
        assert self.value is not None
        return pa.scalar(self.value) if target.cls.kind == "boolean" else target.reject(self)

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        return Constant(self.value is not None and self.value != negated)

    def column_names(self) -> Iterator[str]:
        return iter(())


@dataclass(frozen=True)
class Not(UnboundPredicate):
    """The negation of a predicate."""

    child: UnboundPredicate

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        _check_depth(depth)
        return self.child.bind(binder, negated=not negated, depth=depth + 1)

    def column_names(self) -> Iterator[str]:
        return self.child.column_names()


class _UnboundJunction(UnboundPredicate, abstract=True):
    """A conjunction or a disjunction of predicates."""

    children: tuple[UnboundPredicate, ...]
    is_conjunction: ClassVar[bool]

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        _check_depth(depth)
        children = [child.bind(binder, negated=negated, depth=depth + 1) for child in self.children]
        return conjoin(children) if self.is_conjunction != negated else disjoin(children)

    def column_names(self) -> Iterator[str]:
        for child in self.children:
            yield from child.column_names()


@dataclass(frozen=True)
class UnboundAnd(_UnboundJunction):
    """A conjunction of predicates."""

    children: tuple[UnboundPredicate, ...]
    is_conjunction = True


@dataclass(frozen=True)
class UnboundOr(_UnboundJunction):
    """A disjunction of predicates."""

    children: tuple[UnboundPredicate, ...]
    is_conjunction = False


class _UnboundLeaf(UnboundPredicate, abstract=True):
    """A condition on one column.

    For a null value, the condition is null (neither true nor false). There are two exceptions: `UnboundIsNull`, and
    `UnboundIsNaN` if the column's type has no NaN. These conditions are true or false for every row.
    """

    name: ColumnName

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        column = binder.resolve_comparable(self.name)
        if column.type_class.kind == "null":
            return Constant(False)
        return self.bind_values(binder, column, negated=negated)

    @abstractmethod
    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        """Return the predicate, or its negation, on a column whose values can be compared."""

    def column_names(self) -> Iterator[str]:
        yield self.name.path


@dataclass(frozen=True)
class UnboundIsNull(_UnboundLeaf):
    """The condition `is null`.

    For every row it is true or false, never null.
    """

    name: ColumnName

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        return self.bind_values(binder, binder.resolve(self.name), negated=negated)

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        return IsNull(column, negated)


@dataclass(frozen=True)
class UnboundIsNaN(_UnboundLeaf):
    """The condition `is nan` on a column."""

    name: ColumnName
    any_type: bool = False
    """Whether columns of any type are accepted. Of a type without NaN, the condition is false for all rows."""

    def bind(self, binder: Binder, *, negated: bool, depth: int = 0) -> Predicate:
        if self.any_type:
            column = binder.resolve(self.name)
            if column.cls is None or column.cls.kind != "float":
                return Constant(negated)
        return super().bind(binder, negated=negated, depth=depth)

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        if column.type_class.kind != "float":
            raise PredicateError(f"{binder.subject(column)} has no NaN, because its type is {binder.type_name(column)}")
        return IsNaN(column, negated)


@dataclass(frozen=True)
class BooleanColumn(_UnboundLeaf):
    """A boolean column as a predicate."""

    name: ColumnName

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        return UnboundComparison(self.name, "=", BooleanLiteral(True)).bind_values(binder, column, negated=negated)


@dataclass(frozen=True)
class UnboundComparison(_UnboundLeaf):
    """A comparison of a column with a literal."""

    name: ColumnName
    operator: Operator
    literal: UnboundLiteral
    ieee: bool = False
    """Whether NaN compares as in Arrow: it is not equal to, less than or greater than any value, not even NaN."""

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        target = binder.target(column)
        operator = NEGATED[self.operator] if negated else self.operator
        predicate = compare(column, operator, self.literal, target)
        if not self.ieee or target.cls.kind != "float" or self.literal.is_null:
            return predicate
        if compare(column, "=", self.literal, target) == IsNaN(column):
            # Among comparisons with NaN, only `!=` is true. The negations of all others are true.
            return _is_not_null(column) if (self.operator == "!=") != negated else Constant(False)
        if self.operator not in (">", ">="):
            return predicate
        return disjoin([predicate, IsNaN(column)]) if negated else conjoin([predicate, IsNaN(column, negated=True)])


@dataclass(frozen=True)
class UnboundIn(_UnboundLeaf):
    """The condition `in`: whether the value of a column equals one of the literals."""

    name: ColumnName
    literals: tuple[UnboundLiteral, ...]
    rounded: bool = False
    """Whether doubles are rounded to 32 bits if the column has 32-bit floats. Arrow's `is_in` does so; its `=` and `<`
    do not."""

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        """Return the typed `in` or `not in`.

        Numbers that cannot be in the column are dropped: 1.5 for integers.

        If one of the literals is null, `not in` is true of no row.
        """
        target = binder.target(column)
        literals = self.literals
        if self.rounded and binder.is_float32(column):
            literals = tuple(
                literal.rounded_to_float32() if isinstance(literal, ArrowLiteral) else literal for literal in literals
            )
        keys: dict[Any, pa.Scalar | Fraction] = {}
        has_nan = False
        for literal in literals:
            if literal.is_null:
                continue
            value = literal.to_value(target)
            key = value if isinstance(value, Fraction) else order_key(value)
            if key != key:
                has_nan = True
            else:
                keys[key] = value
        if negated and any(literal.is_null for literal in literals):
            return Constant(False)
        parts: list[Predicate] = [IsNaN(column, negated)] if has_nan else []
        values = _ascending_values(keys, target.cls)
        if len(values):
            parts.append(In(column, values, negated))
        if negated:
            return conjoin(parts) if parts else _is_not_null(column)
        return disjoin(parts)


@dataclass(frozen=True)
class UnboundLike(_UnboundLeaf):
    """The condition `like`: a text matches a pattern, in which `%` is any text and `_` one character."""

    name: ColumnName
    pattern: str
    escape: str | None = "\\"
    """The escape character: `%`, `_` and the escape itself stand for themselves after it. None if there is none."""

    def bind_values(self, binder: Binder, column: BoundColumn, *, negated: bool) -> Predicate:
        """Return the simplest equivalent condition, such as `=` for a pattern without wildcards.

        Raises PredicateError if the column's type is not text, or if the pattern is invalid.
        """
        if column.type_class.name != "string":
            raise PredicateError(
                f"like applies to text, and the type of {binder.subject(column)} is {binder.type_name(column)}"
            )
        tokens = self._tokens()
        prefix_length = next((at for at, token in enumerate(tokens) if token in _LIKE_WILDCARDS), len(tokens))
        prefix = "".join(token[-1] for token in tokens[:prefix_length]).encode("utf-8", "surrogateescape")
        remainder = tokens[prefix_length:]
        if not remainder:
            text = pa.array([prefix], pa.large_binary()).view(pa.large_string())[0]
            return Comparison(column, "!=" if negated else "=", text)
        if any(token != "%" for token in remainder):
            if any("\ud800" <= token <= "\udfff" for token in tokens):
                raise PredicateError(
                    f"the pattern {self.pattern!r} has bytes that are not UTF-8; only a pattern whose one wildcard "
                    "is a final % may have them"
                )
            return Like(column, prefix, "".join(tokens), negated)
        if prefix:
            return Like(column, prefix, None, negated)
        return Constant(False) if negated else _is_not_null(column)

    def _tokens(self) -> list[str]:
        r"""Return the characters of the pattern.

        An escaped wildcard or backslash is one item, such as `\%`. Raises PredicateError if the pattern ends with its
        escape character.
        """
        tokens = []
        characters = iter(self.pattern)
        for character in characters:
            if character == self.escape:
                escaped_character = next(characters, None)
                if escaped_character is None:
                    raise PredicateError(f"the pattern {self.pattern!r} ends with its escape character")
                tokens.append(f"\\{escaped_character}" if escaped_character in ("%", "_", "\\") else escaped_character)
            else:
                tokens.append("\\\\" if character == "\\" else character)
        return tokens


def compare(column: BoundColumn, operator: Operator, literal: UnboundLiteral, target: LiteralTarget) -> Predicate:
    """Return the bound predicate that compares a column with a literal.

    The result need not be a `Comparison`: `x = null` is constantly false, and `x = NaN` is `IsNaN`.

    Args:
        column: The column, whose values can be compared.
        operator: The operator.
        literal: The literal, on the right side.
        target: The type class and the name of the column, for the conversion of the literal.

    Raises:
        LiteralError: The literal is not a value of the column.
    """
    if literal.is_null:
        return Constant(False)
    value = literal.to_value(target)
    if isinstance(value, Fraction):
        return _compare_integer(column, operator, value)
    if isinstance(value, pa.DoubleScalar) and math.isnan(value.as_py()):
        return _compare_nan(column, operator)
    return Comparison(column, operator, value)


def _ascending_values(values: Mapping[Any, pa.Scalar | Fraction], cls: TypeClass) -> pa.Array:
    """Return those of the given values that a column of a type class can have, ascending.

    Args:
        values: Values of literals by their sort keys. For integers, the keys are exact numbers.
        cls: The type class.
    """
    if cls.kind == "integer":
        least, greatest = cls.physical_range
        numbers = sorted(int(key) for key in values if key.denominator == 1)
        return integers_array([number for number in numbers if least <= number <= greatest], cls)
    return array_of([values[key] for key in sorted(values)]) if values else pa.array([], cls.arrow)


def _check_depth(depth: int) -> None:
    if depth >= _MAX_DEPTH:
        raise PredicateError(f"the predicate is nested more than {_MAX_DEPTH} levels deep")


def _is_not_null(column: BoundColumn) -> Predicate:
    return IsNull(column, negated=True)


def _number_value(number: Decimal, cls: TypeClass) -> pa.Scalar | Fraction:
    """Return a number in the form in which it is compared with values of a type class.

    For a class of floats, the result is a scalar; for other classes, it is an exact fraction. For decimals, the
    fraction is unscaled: 1.5 becomes 150 if the scale is 2.

    A huge or tiny number becomes 10**400 or 10**-400 with its sign, so that the fraction stays short. Comparisons have
    the same result, because no column has such values.
    """
    if cls.kind == "float":
        return pa.scalar(float(number) + 0.0, cls.arrow)
    if number and abs(number.adjusted()) > _MAX_EXPONENT:
        exponent = _MAX_EXPONENT if number.adjusted() > 0 else -_MAX_EXPONENT
        number = Decimal((number.is_signed(), (1,), exponent))
    fraction = Fraction(number) if number else Fraction(0)
    return fraction * 10**cls.scale if cls.scale else fraction


def _compare_integer(column: BoundColumn, operator: Operator, value: Fraction) -> Predicate:
    """Return the predicate that compares a column, stored as integers, with any exact number.

    For example, `x < 1.5` becomes `x < 2`. If no value can satisfy the comparison, as `x = 1.5`, the result is false.
    If every value except null satisfies it, as `x != 1.5`, the result is `x is not null`.

    Args:
        column: A column of integers, dates, times, timestamps or decimals.
        operator: The operator.
        value: The exact number, in the unit of the stored integers: days for a date column, for example. For a
            decimal column, it is unscaled: 150 for 1.5 if the scale is 2.
    """
    cls = column.type_class
    least, greatest = cls.physical_range
    if operator in ("=", "!="):
        if value.denominator == 1 and least <= value <= greatest:
            return Comparison(column, operator, integers_array([int(value)], cls)[0])
        return Constant(False) if operator == "=" else _is_not_null(column)
    # An integer is less than 1.5 if it is less than 2, and greater than 1.5 if it is greater than 1.
    bound = math.ceil(value) if operator in ("<", ">=") else math.floor(value)
    if least <= bound <= greatest:
        return Comparison(column, operator, integers_array([bound], cls)[0])
    is_true = bound > greatest if operator in ("<", "<=") else bound < least
    return _is_not_null(column) if is_true else Constant(False)


def _compare_nan(column: BoundColumn, operator: Operator) -> Predicate:
    if operator in ("=", ">="):
        return IsNaN(column)
    if operator in ("!=", "<"):
        return IsNaN(column, negated=True)
    return _is_not_null(column) if operator == "<=" else Constant(False)
