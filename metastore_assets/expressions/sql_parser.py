"""Parser of predicates in SQL text.

The text is parsed with sqlglot, which depends on no other package and reports the location of errors. In sqlglot's
syntax tree, only the node types in `_PREDICATES` and `_LITERALS` are accepted. Nodes of all other types are refused
with a message, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Literal, NoReturn, cast

from sqlglot import TokenType, exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.predicates import COMMUTED, Operator
from metastore_assets.expressions.unbound import (
    BooleanColumn,
    BooleanLiteral,
    BytesLiteral,
    ColumnName,
    Not,
    NumberLiteral,
    TextLiteral,
    UnboundAnd,
    UnboundComparison,
    UnboundIn,
    UnboundIsNaN,
    UnboundIsNull,
    UnboundLike,
    UnboundLiteral,
    UnboundOr,
    UnboundPredicate,
)

_KINDS: Mapping[str, Literal["date", "timestamp", "time"]] = {
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "DATETIME": "timestamp",
}
_MAX_LENGTH = 1_000_000
_MAX_QUOTED_LENGTH = 200
_GRAMMAR = (
    "a predicate consists of comparisons of a column with a literal, in, between, is [not] null, is [not] nan, like, "
    "and, or, not"
)


class _Predicates(Dialect):
    """The SQL dialect of predicates: names in double quotes or backticks, text in single quotes.

    Inside text, a quote is written twice, and a backslash has no special meaning.
    """

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 (as the library declares it)
        STRING_ESCAPES = ["'"]  # noqa: RUF012
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012
        COMMANDS: ClassVar[set[Any]] = set()  # after `show`, the rest would be one text


def parse_sql(text: str) -> UnboundPredicate:
    """Parse SQL text to an unbound predicate, whose columns have no types yet.

    `current_date` is replaced by the current day in UTC.

    Raises:
        PredicateError: The text does not parse, or has an unsupported construct. The message says where.
    """
    if not text.strip():
        raise PredicateError(f"the predicate is empty; {_GRAMMAR}")
    if len(text) > _MAX_LENGTH:
        raise PredicateError(f"the predicate is longer than {_MAX_LENGTH:,} characters")
    try:
        dialect = _Predicates()
        sql_tokens = dialect.tokenize(text)
        ends = [token.token_type == TokenType.SEMICOLON for token in sql_tokens]
        # As a condition, not as a statement: `set` and `comment` are names here.
        parsed_expressions = [] if any(ends[:-1]) else dialect.parser().parse_into(exp.Condition, sql_tokens, text)
        if len(parsed_expressions) != 1 or parsed_expressions[0] is None:
            raise PredicateError(f"{_quote(text)} is more than one predicate; {_GRAMMAR}")
        return _parse_predicate(parsed_expressions[0])
    except RecursionError:
        raise PredicateError("the predicate is nested too deep to be parsed") from None
    except SqlglotError as error:
        raise PredicateError(f"{_quote(text)} does not parse{_locate(text, error)}") from error


def today() -> date:
    """Return the current day in UTC."""
    return datetime.now(UTC).date()


def _locate(text: str, error: SqlglotError) -> str:
    """Return where and why SQL text does not parse, as the end of a message; empty if unknown."""
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if not details or details.get("line") is None:
        quote = _find_unclosed_quote(text)
        return "" if quote is None else f" {_format_position(text, *quote)}: the quote is not closed"
    position = _format_position(text, details["line"], details["col"])
    near = f", near {details['highlight']!r}" if details.get("highlight") else ""
    description = str(details.get("description", "")).split(" for <class", 1)[0]
    if "Required keyword" in description:
        description = "something is missing after it"
    return f" {position}{near}: {description[:1].lower()}{description[1:]}"


def _format_position(text: str, line: int, character: int) -> str:
    return f"at character {character}" if "\n" not in text else f"in line {line}, at {character}"


def _find_unclosed_quote(text: str) -> tuple[int, int] | None:
    """Return (line, character), both from 1, of the quote that is not closed, or None."""
    open_position, at = -1, 0
    while at < len(text):
        if open_position < 0:
            open_position = at if text[at] in "'\"`" else -1
        elif text[at] == text[open_position]:
            if text[at + 1 : at + 2] == text[open_position]:
                at += 1
            else:
                open_position = -1
        at += 1
    if open_position < 0:
        return None
    lines = text[:open_position].split("\n")
    return len(lines), len(lines[-1]) + 1


def _parse_predicate(node: exp.Expr) -> UnboundPredicate:
    parse = _PREDICATES.get(type(node))
    return _refuse(node) if parse is None else parse(node)


def _parse_comparison(node: exp.Expr) -> UnboundPredicate:
    """Return the comparison of a column with a literal, with the column on the left: `x > 5` for `5 < x`.

    Raises PredicateError if the two sides are not a column and a literal.
    """
    operator = _OPERATORS[type(node)]
    left, right = node.this.unnest(), node.expression.unnest()
    if _is_name(left) and _is_name(right):
        raise PredicateError(
            f"{_to_text(node)} compares two columns; text goes into single quotes. {_GRAMMAR.capitalize()}"
        )
    if not _is_name(left) and not _is_name(right):
        _refuse(right if _is_literal(left) else left)
    if _is_name(left):
        return UnboundComparison(_parse_name(left), operator, _parse_literal(right))
    return UnboundComparison(_parse_name(right), COMMUTED[operator], _parse_literal(left))


def _parse_null_safe(node: exp.Expr) -> UnboundPredicate:
    """Parse `is [not] distinct from` and `<=>`: comparisons in which null equals null."""
    left, right = node.this.unnest(), node.expression.unnest()
    if not _is_name(left):
        left, right = right, left
    name, literal = _parse_name(left), _parse_literal(right)
    is_equal = isinstance(node, exp.NullSafeEQ)
    if literal.is_null:
        return UnboundIsNull(name) if is_equal else Not(UnboundIsNull(name))
    if is_equal:
        return UnboundAnd((Not(UnboundIsNull(name)), UnboundComparison(name, "=", literal)))
    return UnboundOr((UnboundIsNull(name), UnboundComparison(name, "!=", literal)))


def _parse_between(node: exp.Expr) -> UnboundPredicate:
    if node.args.get("symmetric"):
        return _refuse(node)
    name = _parse_name(node.this)
    low, high = _parse_literal(node.args["low"]), _parse_literal(node.args["high"])
    return UnboundAnd((UnboundComparison(name, ">=", low), UnboundComparison(name, "<=", high)))


def _parse_in(node: exp.Expr) -> UnboundPredicate:
    if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise PredicateError(f"{_to_text(node)}: in needs at least one literal in parentheses")
    return UnboundIn(_parse_name(node.this), tuple(map(_parse_literal, node.expressions)))


def _parse_is(node: exp.Expr) -> UnboundPredicate:
    """Return the predicate of `is null`, `is nan`, `is true` or `is false`.

    Raises PredicateError for other operands.
    """
    name, right = _parse_name(node.this), node.expression.unnest()
    if isinstance(right, exp.Null):
        return UnboundIsNull(name)
    if isinstance(right, exp.Column) and right.name.lower() == "nan":
        return UnboundIsNaN(name)
    if isinstance(right, exp.Boolean):
        is_value = UnboundComparison(name, "=", BooleanLiteral(bool(right.this)))
        return UnboundAnd((Not(UnboundIsNull(name)), is_value))
    return _refuse(node)


def _parse_like(node: exp.Expr, escape: str = "\\") -> UnboundPredicate:
    if len(escape) > 1:
        raise PredicateError(f"{_to_text(node)}: the escape is one character, not {escape!r}")
    like = UnboundLike(_parse_name(node.this), _parse_text(node.expression), escape or None)
    return Not(like) if node.args.get("negate") else like


def _parse_escape(node: exp.Expr) -> UnboundPredicate:
    if not isinstance(node.this, exp.Like):
        return _refuse(node)
    return _parse_like(node.this, _parse_text(node.expression))


def _parse_boolean(node: exp.Expr) -> BooleanLiteral:
    return BooleanLiteral(None if isinstance(node, exp.Null) else bool(node.this))


def _parse_column(node: exp.Expr) -> UnboundPredicate:
    return BooleanColumn(_parse_name(node))


def _parse_children(node: Any) -> tuple[UnboundPredicate, ...]:
    return tuple(map(_parse_predicate, node.flatten()))


_OPERATORS: Mapping[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_PREDICATES: Mapping[type[exp.Expr], Callable[[exp.Expr], UnboundPredicate]] = {
    **dict.fromkeys(_OPERATORS, _parse_comparison),
    exp.Paren: lambda node: _parse_predicate(node.this),
    exp.And: lambda node: UnboundAnd(_parse_children(node)),
    exp.Or: lambda node: UnboundOr(_parse_children(node)),
    exp.Not: lambda node: Not(_parse_predicate(node.this)),
    exp.NullSafeEQ: _parse_null_safe,
    exp.NullSafeNEQ: _parse_null_safe,
    exp.Between: _parse_between,
    exp.In: _parse_in,
    exp.Is: _parse_is,
    exp.IsNan: lambda node: UnboundIsNaN(_parse_name(node.this)),
    exp.Like: _parse_like,
    exp.Escape: _parse_escape,
    exp.Boolean: _parse_boolean,
    exp.Null: _parse_boolean,
    exp.Column: _parse_column,
    exp.Dot: _parse_column,
    exp.Identifier: _parse_column,
}
"""For each of sqlglot's classes of nodes that a predicate may contain, the function that parses the node."""


def _parse_literal(node: exp.Expr) -> UnboundLiteral:
    node = node.unnest()
    if _is_name(node):
        raise PredicateError(f"{_to_text(node)} is a column where a literal is needed; text goes into single quotes")
    parse = _LITERALS.get(type(node))
    return _refuse(node) if parse is None else parse(node)


def _parse_plain_literal(node: exp.Expr) -> UnboundLiteral:
    if node.is_string:
        return TextLiteral(node.this)
    try:
        return NumberLiteral(Decimal(node.this))
    except InvalidOperation:
        return _refuse(node)


def _parse_negative(node: exp.Expr) -> UnboundLiteral:
    number = _parse_literal(node.this)
    # A minus sign would round to the digits of Python's context.
    return NumberLiteral(number.value.copy_negate()) if isinstance(number, NumberLiteral) else _refuse(node)


def _parse_bytes(node: exp.Expr) -> UnboundLiteral:
    try:
        return BytesLiteral(bytes.fromhex(node.this))
    except ValueError:
        return _refuse(node)


def _parse_relative_day(node: exp.Expr) -> UnboundLiteral:
    """Parse `current_date`, alone or with a number of days added or subtracted."""
    if isinstance(node, exp.CurrentDate):
        return _refuse(node) if node.this else TextLiteral(today().isoformat(), "date")
    left, right = node.this.unnest(), node.expression.unnest()
    if not isinstance(left, exp.CurrentDate) or left.this:
        return _refuse(node)
    if isinstance(right, exp.Interval):
        unit = right.args.get("unit")
        if unit is None or str(unit.name).upper() not in ("DAY", "DAYS"):
            return _refuse(node)
        right = right.this.unnest()
    if not isinstance(right, exp.Literal) or not str(right.this).isdecimal():
        return _refuse(node)
    try:
        days = int(right.this)
        day = today() + timedelta(days=days if isinstance(node, exp.Add) else -days)
    except (OverflowError, ValueError):  # Python converts no text of thousands of digits
        raise PredicateError(f"{_to_text(node)} is beyond the years from 1 to 9999") from None
    return TextLiteral(day.isoformat(), "date")


def _parse_typed_text(node: exp.Expr) -> UnboundLiteral:
    """Parse a text with its type, such as `date '2024-01-31'` or `cast('2024-01-31' as date)`."""
    text = node.this.unnest()
    type_ = node.args.get("to")
    kind = _KINDS.get(type_.this.value if type_ is not None else "")
    if kind is None or not isinstance(text, exp.Literal) or not text.is_string:
        return _refuse(node)
    return TextLiteral(text.this, kind)


_LITERALS: Mapping[type[exp.Expr], Callable[[exp.Expr], UnboundLiteral]] = {
    exp.Boolean: _parse_boolean,
    exp.Null: _parse_boolean,
    exp.Literal: _parse_plain_literal,
    exp.Neg: _parse_negative,
    exp.HexString: _parse_bytes,
    exp.CurrentDate: _parse_relative_day,
    exp.Add: _parse_relative_day,
    exp.Sub: _parse_relative_day,
    exp.Cast: _parse_typed_text,
    exp.TryCast: _parse_typed_text,
    exp.Date: _parse_typed_text,
    exp.Timestamp: _parse_typed_text,
    exp.TsOrDsToDate: _parse_typed_text,
}
"""For each of sqlglot's classes of nodes that may be a literal, the function that parses the node."""


def _parse_text(node: exp.Expr) -> str:
    node = node.unnest()
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise PredicateError(f"{_to_text(node)} is not a text in single quotes")
    return cast(str, node.this)


def _is_name(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Dot | exp.Identifier)


def _is_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.HexString)


def _parse_name(node: exp.Expr) -> ColumnName:
    node = node.unnest()
    if isinstance(node, exp.Dot):
        return ColumnName((*_parse_name(node.this).parts, *_parse_name(node.expression).parts))
    if isinstance(node, exp.Identifier):
        return ColumnName((node.this,))
    if isinstance(node, exp.Column) and all(isinstance(part, exp.Identifier) for part in node.parts):
        return ColumnName(tuple(part.this for part in node.parts))
    if _is_literal(node):
        raise PredicateError(f"{_to_text(node)} is a literal where a column is needed; names go into double quotes")
    return _refuse(node)


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED_LENGTH else text[: _MAX_QUOTED_LENGTH - 3] + "…")


def _to_text(node: exp.Expr) -> str:
    return _quote(node.sql(dialect=_Predicates))[1:-1]


def _refuse(node: exp.Expr) -> NoReturn:
    raise PredicateError(f"{_to_text(node)} is not supported: {_GRAMMAR}")
