"""SQL text taken apart. The parser is sqlglot's: it needs no other package, and says where text does not parse.

Of its trees only what is known here is taken; all else is refused with words, and never passed over.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import NoReturn, cast

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.unbound import (
    COMMUTED,
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

_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_KINDS = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "TIMESTAMPNTZ": "timestamp"}
_KINDS |= {"TIMESTAMPLTZ": "timestamp", "DATETIME": "timestamp", "TIME": "time"}
_LONGEST = 1_000_000
_TAKEN = (
    "a predicate is made of comparisons of a column with a literal, in, between, is [not] null, is [not] nan, like, "
    "and, or, not"
)


class _Predicates(Dialect):
    """Names in double quotes or backticks; in text two quotes are one, and a backslash is a character."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 (as the library declares it)
        STRING_ESCAPES = ["'"]  # noqa: RUF012
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012


def parse_sql(text: str) -> UnboundPredicate:
    """What SQL text says. Raises PredicateError."""
    if not text.strip():
        raise PredicateError(f"the predicate is empty; {_TAKEN}")
    if len(text) > _LONGEST:
        raise PredicateError(f"the predicate is longer than {_LONGEST:,} characters")
    try:
        parsed = _Predicates().parse(text)
        if len(parsed) != 1 or parsed[0] is None:
            raise PredicateError(f"{_short(text)} is more than one predicate; {_TAKEN}")
        return _predicate(parsed[0])
    except RecursionError:
        raise PredicateError("the predicate is nested too deep to be parsed") from None
    except SqlglotError as error:
        raise PredicateError(f"{_short(text)} does not parse{_where(text, error)}") from error


def _where(text: str, error: SqlglotError) -> str:
    told = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if not told or told.get("line") is None:
        at = _unclosed(text)
        return "" if at is None else f" {_place(text, *at)}: the quote is not closed"
    place = _place(text, told["line"], told["col"])
    near = f", near {told['highlight']!r}" if told.get("highlight") else ""
    what = str(told.get("description", "")).split(" for <class", 1)[0]
    reason = "something is missing after it" if "Required keyword" in what else what[:1].lower() + what[1:]
    return f" {place}{near}: {reason}"


def _place(text: str, line: int, character: int) -> str:
    return f"at character {character}" if "\n" not in text else f"in line {line}, at {character}"


def _unclosed(text: str) -> tuple[int, int] | None:
    """Line and character, from 1 on, of a quote that is opened and not closed. Two in a row do not close it."""
    opened, at = -1, 0
    while at < len(text):
        if opened < 0:
            opened = at if text[at] in "'\"`" else -1
        elif text[at] == text[opened]:
            if text[at + 1 : at + 2] == text[opened]:
                at += 1
            else:
                opened = -1
        at += 1
    if opened < 0:
        return None
    before = text[:opened].split("\n")
    return len(before), len(before[-1]) + 1


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:197] + "…")


def _predicate(node: exp.Expr) -> UnboundPredicate:
    if isinstance(node, exp.Paren):
        return _predicate(node.this)
    if isinstance(node, exp.And | exp.Or):
        children = tuple(map(_predicate, node.flatten()))
        return UnboundAnd(children) if isinstance(node, exp.And) else UnboundOr(children)
    if isinstance(node, exp.Not):
        return Not(_predicate(node.this))
    if type(node) in _OPERATORS:
        return _comparison(node, _OPERATORS[type(node)])
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return _null_safe(node)
    if isinstance(node, exp.Between):
        name = _name(node.this)
        low, high = (_literal(node.args[side]) for side in ("low", "high"))
        return UnboundAnd((UnboundComparison(name, ">=", low), UnboundComparison(name, "<=", high)))
    if isinstance(node, exp.In):
        return _membership(node)
    if isinstance(node, exp.Is):
        return _is(node)
    if isinstance(node, exp.IsNan):
        return UnboundIsNaN(_name(node.this))
    if isinstance(node, exp.Escape) and isinstance(node.this, exp.Like):
        return _like(node.this, _text(node.expression))
    if isinstance(node, exp.Like):
        return _like(node, "\\")
    if isinstance(node, exp.Boolean | exp.Null):
        return _truth(node)
    if isinstance(node, exp.Column | exp.Dot | exp.Identifier):
        return BooleanColumn(_name(node))
    return _refuse(node)


def _comparison(node: exp.Expr, operator: Operator) -> UnboundPredicate:
    left, right = _bare(node.this), _bare(node.expression)
    if _is_name(left) and _is_name(right):
        raise PredicateError(f"{_sql(node)} compares two columns; text goes into single quotes. {_TAKEN.capitalize()}")
    if not _is_name(left) and not _is_name(right):
        is_literal = isinstance(left, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.HexString)
        _refuse(right if is_literal else left)
    if _is_name(left):
        return UnboundComparison(_name(left), operator, _literal(right))
    return UnboundComparison(_name(right), COMMUTED[operator], _literal(left))


def _null_safe(node: exp.Expr) -> UnboundPredicate:
    """`is [not] distinct from`, and `<=>`: as comparisons, but null is a value."""
    left, right = _bare(node.this), _bare(node.expression)
    name, literal = (_name(left), _literal(right)) if _is_name(left) else (_name(right), _literal(left))
    equal: UnboundPredicate = UnboundAnd((Not(UnboundIsNull(name)), UnboundComparison(name, "=", literal)))
    if isinstance(literal, BooleanLiteral) and literal.value is None:
        equal = UnboundIsNull(name)
    if isinstance(node, exp.NullSafeEQ):
        return equal
    return (
        UnboundOr((UnboundIsNull(name), UnboundComparison(name, "!=", literal)))
        if not isinstance(equal, UnboundIsNull)
        else Not(equal)
    )


def _membership(node: exp.In) -> UnboundPredicate:
    if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise PredicateError(f"{_sql(node)}: in needs literals in parentheses, one at least")
    return UnboundIn(_name(node.this), tuple(map(_literal, node.expressions)))


def _is(node: exp.Is) -> UnboundPredicate:
    name, what = _name(node.this), _bare(node.expression)
    if isinstance(what, exp.Null):
        return UnboundIsNull(name)
    if isinstance(what, exp.Column) and what.name.lower() == "nan":
        return UnboundIsNaN(name)
    if isinstance(what, exp.Boolean):
        return UnboundAnd((Not(UnboundIsNull(name)), UnboundComparison(name, "=", BooleanLiteral(bool(what.this)))))
    return _refuse(node)


def _like(node: exp.Like, escape: str) -> UnboundPredicate:
    if len(escape) > 1:
        raise PredicateError(f"{_sql(node)}: the escape is one character, not {escape!r}")
    found: UnboundPredicate = UnboundLike(_name(node.this), _text(node.expression), escape or None)
    return Not(found) if node.args.get("negate") else found


def _truth(node: exp.Expr) -> BooleanLiteral:
    return BooleanLiteral(None if isinstance(node, exp.Null) else bool(node.this))


def _literal(node: exp.Expr) -> Literal:
    node = _bare(node)
    if isinstance(node, exp.Boolean | exp.Null):
        return _truth(node)
    if isinstance(node, exp.Literal):
        return TextLiteral(node.this) if node.is_string else _number(node, node.this)
    if isinstance(node, exp.Neg):
        inner = _literal(node.this)
        # A minus sign would round to the digits of Python's context.
        return NumberLiteral(inner.value.copy_negate()) if isinstance(inner, NumberLiteral) else _refuse(node)
    if isinstance(node, exp.HexString):
        return _blob(node)
    if isinstance(node, exp.CurrentDate | exp.Sub | exp.Add) and (day := _day(node)) is not None:
        return TextLiteral(day.isoformat(), "date")
    if isinstance(node, exp.Cast | exp.TsOrDsToDate | exp.Date | exp.Timestamp):
        return _typed_text(node)
    if _is_name(node):
        raise PredicateError(f"{_sql(node)} is a column where a literal is needed; text goes into single quotes")
    return _refuse(node)


def _day(node: exp.Expr) -> date | None:
    """`current_date`, in UTC, and some days before or after it; None for any other sum."""
    if isinstance(node, exp.CurrentDate):
        return None if node.this else today()
    left, right = _bare(node.this), _bare(node.expression)
    if not isinstance(left, exp.CurrentDate) or left.this:
        return None
    if isinstance(right, exp.Interval):
        unit = right.args.get("unit")
        if unit is None or str(unit.name).upper() not in ("DAY", "DAYS"):
            return None
        right = _bare(right.this)
    if not isinstance(right, exp.Literal) or not str(right.this).isdecimal():
        return None
    try:
        days = int(right.this)
        return today() + timedelta(days=days if isinstance(node, exp.Add) else -days)
    except (OverflowError, ValueError):  # of thousands of digits Python makes no number
        raise PredicateError(f"{_sql(node)} is beyond the years from 1 to 9999") from None


def today() -> date:
    """In UTC."""
    return datetime.now(UTC).date()


def _typed_text(node: exp.Expr) -> Literal:
    """`date '2024-01-31'`, and the same as a cast."""
    inner = _bare(node.this)
    to = node.args.get("to")
    kind = _KINDS.get(to.this.value if to is not None else "")
    if kind is None or not isinstance(inner, exp.Literal) or not inner.is_string:
        return _refuse(node)
    return TextLiteral(inner.this, kind)  # type: ignore[arg-type]


def _number(node: exp.Expr, text: str) -> NumberLiteral:
    try:
        return NumberLiteral(Decimal(text))
    except InvalidOperation:
        return _refuse(node)


def _blob(node: exp.HexString) -> BytesLiteral:
    try:
        return BytesLiteral(bytes.fromhex(node.this))
    except ValueError:
        return _refuse(node)


def _text(node: exp.Expr) -> str:
    node = _bare(node)
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise PredicateError(f"{_sql(node)} is no text in single quotes")
    return cast(str, node.this)


def _is_name(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Dot | exp.Identifier)


def _name(node: exp.Expr) -> ColumnName:
    node = _bare(node)
    if isinstance(node, exp.Dot):
        return ColumnName((*_name(node.this).parts, *_name(node.expression).parts))
    if isinstance(node, exp.Identifier):
        return ColumnName((node.this,))
    if isinstance(node, exp.Column) and all(isinstance(part, exp.Identifier) for part in node.parts):
        return ColumnName(tuple(part.this for part in node.parts))
    if isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.HexString):
        raise PredicateError(f"{_sql(node)} is a literal where a column is needed; names go into double quotes")
    return _refuse(node)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _sql(node: exp.Expr) -> str:
    return _short(node.sql(dialect=_Predicates))[1:-1]


def _refuse(node: exp.Expr) -> NoReturn:
    raise PredicateError(f"{_sql(node)} cannot be asked: {_TAKEN}")
