"""Predicates with the types of a table's columns: literals become values of them, and negations go to the leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.errors import ColumnNotFoundError, LiteralError, PredicateError, UnsupportedTypeError
from metastore_assets.expressions.like import like_of
from metastore_assets.expressions.literals import expected_form, parse_literal, to_literal
from metastore_assets.expressions.predicates import (
    Column,
    Comparison,
    Constant,
    In,
    IsNaN,
    IsNull,
    Predicate,
    array_of,
    both,
    either,
)
from metastore_assets.expressions.unbound import (
    NEGATED,
    ArrowLiteral,
    BooleanColumn,
    BooleanLiteral,
    BytesLiteral,
    ColumnName,
    Literal,
    Not,
    NumberLiteral,
    Operator,
    TextLiteral,
    UnboundAnd,
    UnboundComparison,
    UnboundIn,
    UnboundIsNaN,
    UnboundIsNull,
    UnboundLike,
    UnboundOr,
    UnboundPredicate,
)
from metastore_assets.iso8601 import TICKS, date_text, parse_date, parse_time, parse_timestamp
from metastore_assets.messages import close_names
from metastore_assets.values.leaf_columns import LeafColumn, plain_type, quoted_name
from metastore_assets.values.physical import integers_array, order_key
from metastore_assets.values.types import TypeClass, type_class

_DEEPEST = 200
"""Levels of `and`, `or` and `not` inside one another that are followed."""
_FAR = 400
"""Powers of ten that lie beyond all integers of all classes, and, negative, between two of them. Of numbers further out
only the side counts: their digits, written out, might fit into no memory."""


def parse_predicate(expression: str | pc.Expression, table: str, leaves: Sequence[LeafColumn]) -> Predicate:
    """The predicate that SQL text, or an Arrow expression, says of a table with those leaf columns.

    Raises PredicateError when it does not parse (says where) or asks what cannot be answered, ColumnNotFoundError,
    and LiteralError for a literal that is none of its column's type.
    """
    if isinstance(expression, str):
        from metastore_assets.expressions.sql_parser import parse_sql  # the parser takes 90 ms to be imported

        syntax = parse_sql(expression)
    elif isinstance(expression, pc.Expression):
        from metastore_assets.expressions.arrow_parser import parse_arrow

        syntax = parse_arrow(expression)
    else:
        raise PredicateError(f"a predicate is SQL text or an Arrow expression, not a {type(expression).__name__}")
    return bind_predicate(syntax, table, leaves)


def bind_predicate(
    syntax: UnboundPredicate, table: str, leaves: Sequence[LeafColumn], noun: str = "column"
) -> Predicate:
    """Bind what was parsed to columns; `noun` is what messages call them. Raises as `parse_predicate` does."""
    return _Typing(table, leaves, noun).predicate(syntax, negated=False)


class _Typing:
    def __init__(self, table: str, leaves: Sequence[LeafColumn], noun: str) -> None:
        self._table = table
        self._noun = noun
        self._leaves = {leaf.path: leaf for leaf in leaves}

    def predicate(self, node: UnboundPredicate, *, negated: bool, depth: int = 0) -> Predicate:
        if depth > _DEEPEST:
            raise PredicateError(f"the predicate is nested more than {_DEEPEST} levels deep")
        if isinstance(node, Not):
            return self.predicate(node.child, negated=not negated, depth=depth + 1)
        if isinstance(node, UnboundAnd | UnboundOr):
            children = [self.predicate(child, negated=negated, depth=depth + 1) for child in node.children]
            return both(children) if isinstance(node, UnboundAnd) != negated else either(children)
        if isinstance(node, BooleanLiteral):
            return Constant(node.value is not None and node.value != negated)
        if isinstance(node, UnboundIsNull):
            return IsNull(self.column(node.name), negated)
        if isinstance(node, BooleanColumn):
            node = UnboundComparison(node.name, "=", BooleanLiteral(True))
        column = self.column(node.name)
        cls = self._class(column)
        if cls.kind == "null":
            return Constant(False)
        if isinstance(node, UnboundIsNaN):
            if cls.kind != "float":
                raise PredicateError(f"{self._named(column)} has no NaN, for it is of {self._type(column)}")
            return IsNaN(column, negated)
        if isinstance(node, UnboundLike):
            if cls.name != "string":
                raise PredicateError(f"like goes with text, and {self._named(column)} is of {self._type(column)}")
            return like_of(column, node.pattern, node.escape, negated)
        if isinstance(node, UnboundIn):
            literals = tuple(map(self._single, node.literals)) if self._is_rounded(node, column) else node.literals
            return self._membership(column, literals, negated)
        operator = NEGATED[node.operator] if negated else node.operator
        found = self._comparison(column, operator, node.literal)
        if not node.ieee or cls.kind != "float" or node.literal == BooleanLiteral(None):
            return found
        if self._comparison(column, "=", node.literal) == IsNaN(column):
            # Only `!=` is true of anything then, and the negation of all else.
            return IsNull(column, negated=True) if (node.operator == "!=") != negated else Constant(False)
        if node.operator not in (">", ">="):
            return found
        return either([found, IsNaN(column)]) if negated else both([found, IsNaN(column, negated=True)])

    def column(self, name: ColumnName) -> Column:
        """The column that a name means: as it is written, or but for upper and lower case the only one."""
        path = ".".join(name.parts)
        quoted = ".".join(map(quoted_name, name.parts))
        # Of a field `a.b` beside a struct `a` with a field `b`, a name in one pair of quotes means the field.
        leaf = self._leaves.get(quoted) or self._leaves.get(path)
        if leaf is None:
            alike = [own for own in self._leaves if own.lower() == path.lower()]
            if len(alike) != 1:
                raise ColumnNotFoundError(
                    f"table {self._table!r} has no {self._noun} {path!r}"
                    + close_names(path, list(self._leaves), f"; its {self._noun}s are: {{}}")
                )
            leaf = self._leaves[alike[0]]
        if leaf.repeated:
            raise PredicateError(
                f"column {leaf.path!r} of table {self._table!r} is inside a list or a map: a row has none or many of "
                "its values, so no predicate on rows can be about them"
            )
        try:
            return Column(leaf.path, leaf.field_id, type_class(leaf.type))
        except UnsupportedTypeError:
            return Column(leaf.path, leaf.field_id, None)

    def _membership(self, column: Column, literals: Sequence[Literal], negated: bool) -> Predicate:
        found: dict[object, pa.Scalar] = {}
        has_null, nan = False, False
        for own in literals:
            equal = self._comparison(column, "=", own)
            has_null |= isinstance(own, BooleanLiteral) and own.value is None
            nan |= isinstance(equal, IsNaN)
            if isinstance(equal, Comparison):
                found[order_key(equal.value)] = equal.value
        if has_null and negated:
            return Constant(False)
        parts: list[Predicate] = [IsNaN(column, negated)] if nan else []
        if found:
            parts.append(In(column, array_of([found[key] for key in sorted(found)]), negated))  # type: ignore[type-var]
        if negated:
            return both(parts) if parts else IsNull(column, negated=True)
        return either(parts)

    def _comparison(self, column: Column, operator: Operator, own: Literal) -> Predicate:
        cls = self._class(column)
        if isinstance(own, BooleanLiteral) and own.value is None:
            return Constant(False)
        value = self._value(column, cls, own)
        if isinstance(value, Fraction):
            return _whole(column, cls, operator, value)
        if isinstance(value, pa.DoubleScalar) and math.isnan(value.as_py()):
            return _with_nan(column, operator)
        return Comparison(column, operator, value)

    def _value(self, column: Column, cls: TypeClass, own: Literal) -> pa.Scalar | Fraction:
        """A literal as a scalar of the class; for classes of integers how far from 0 it is, in their unit."""
        wrong = partial(self._wrong, column, cls, own)
        if isinstance(own, ArrowLiteral):
            return self._arrow_value(column, cls, own.value)
        if isinstance(own, BooleanLiteral):
            assert own.value is not None
            return pa.scalar(own.value) if cls.kind == "boolean" else wrong()
        if isinstance(own, BytesLiteral):
            return to_literal(own.data, cls, self._named(column)) if cls.name == "binary" else wrong()
        if isinstance(own, NumberLiteral):
            return _of_number(own.value, cls) if cls.is_numeric else wrong()
        if own.kind == "date" and cls.name == "string":
            own = TextLiteral(_date_text(own) or wrong())
        if own.kind is not None and not t.is_temporal(cls.arrow):
            return wrong()
        found = self._text_value(column, cls, own)
        return wrong() if found is None else found

    def _text_value(self, column: Column, cls: TypeClass, own: TextLiteral) -> pa.Scalar | Fraction | None:
        text = own.text.strip()
        try:
            if cls.kind == "integer" and cls.is_numeric:
                number = Decimal(text)
                return _of_number(number, cls) if number.is_finite() else None
            if cls.name == "date" and own.kind in (None, "date"):
                return Fraction(parse_date(text))
            if cls.name == "time" and own.kind in (None, "time"):
                return Fraction(parse_time(text, "ns"))
            if t.is_timestamp(cls.arrow) and own.kind != "time":
                ticks, offset = parse_timestamp(text, "ns")
                if offset is not None and cls.arrow.tz is None:
                    raise LiteralError(
                        f"{own.text!r} has a time zone, and {self._named(column)} has none: leave it out"
                    )
                return Fraction(ticks, TICKS["ns"] // TICKS[cls.arrow.unit])
        except (ValueError, ArithmeticError):
            return None
        return None if t.is_temporal(cls.arrow) else parse_literal(own.text, cls, self._named(column))

    def _arrow_value(self, column: Column, cls: TypeClass, value: pa.Scalar) -> pa.Scalar | Fraction:
        kind = value.type
        if cls.is_numeric and (t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
            number = value.as_py()
            if cls.kind == "integer" and not math.isfinite(number):
                self._wrong(column, cls, ArrowLiteral(value))
            return _of_number(Decimal(number), cls)
        return to_literal(value, cls, self._named(column))

    def _is_rounded(self, node: UnboundIn, column: Column) -> bool:
        return node.rounded and t.is_float32(plain_type(self._leaves[column.path].type))

    @staticmethod
    def _single(own: Literal) -> Literal:
        """The literal, or the nearest float of 32 bits where it is a double."""
        if isinstance(own, ArrowLiteral) and t.is_float64(own.value.type):
            return ArrowLiteral(pc.cast(own.value, pa.float32(), safe=False))
        return own

    def _class(self, column: Column) -> TypeClass:
        if column.cls is None:
            raise PredicateError(
                f"{self._named(column)} is of {self._type(column)}, whose values do not compare; it may be asked "
                "whether it is null"
            )
        return column.cls

    def _named(self, column: Column) -> str:
        return f"{self._noun} {column.path!r} of table {self._table!r}"

    def _type(self, column: Column) -> str:
        return str(self._leaves[column.path].type)

    def _wrong(self, column: Column, cls: TypeClass, own: Literal) -> pa.Scalar:
        told = own.value if isinstance(own, NumberLiteral | BooleanLiteral | ArrowLiteral) else own
        text = (
            repr(told.text)
            if isinstance(told, TextLiteral)
            else repr(told.data)
            if isinstance(told, BytesLiteral)
            else str(told)
        )
        form = expected_form(cls)
        if isinstance(own, NumberLiteral) and cls.name == "string":
            form = f"text in quotes, '{own.value}', which compares as text"
        raise LiteralError(f"{text} is no value of {self._named(column)}: give {form}")


def _date_text(own: TextLiteral) -> str | None:
    """The text of `date '…'`: of a column of texts, such as a folder's name, it is compared with that."""
    try:
        return date_text(parse_date(own.text.strip()))
    except (ValueError, OverflowError):
        return None


def _of_number(number: Decimal, cls: TypeClass) -> pa.Scalar | Fraction:
    if cls.kind == "float":
        return pa.scalar(float(number) + 0.0, cls.arrow)
    if number and abs(number.adjusted()) > _FAR:
        number = Decimal((number.is_signed(), (1,), _FAR if number.adjusted() > 0 else -_FAR))
    return Fraction(number) * 10**cls.scale if number else Fraction(0)


def _whole(column: Column, cls: TypeClass, operator: Operator, value: Fraction) -> Predicate:
    """The comparison with what may be no integer, or none of the class, as one with an integer of it."""
    least, greatest = cls.physical_range
    if operator in ("=", "!="):
        if value.denominator == 1 and least <= value <= greatest:
            return Comparison(column, operator, integers_array([int(value)], cls)[0])
        return Constant(False) if operator == "=" else IsNull(column, negated=True)
    # Of the values less than 1.5, or not, 2 is the first, and 1 the last.
    bound = math.ceil(value) if operator in ("<", ">=") else math.floor(value)
    if least <= bound <= greatest:
        return Comparison(column, operator, integers_array([bound], cls)[0])
    is_true = bound > greatest if operator in ("<", "<=") else bound < least
    return IsNull(column, negated=True) if is_true else Constant(False)


def _with_nan(column: Column, operator: Operator) -> Predicate:
    """The comparison with NaN, which is the greatest value."""
    if operator in ("=", ">="):
        return IsNaN(column)
    if operator in ("!=", "<"):
        return IsNaN(column, negated=True)
    return IsNull(column, negated=True) if operator == "<=" else Constant(False)
