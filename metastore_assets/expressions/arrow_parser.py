"""Parser of predicates that are Arrow's compute expressions.

Arrow serializes an expression as a record batch with one row, which has the literals. The metadata of its schema
contains the calls, fields and literals in prefix order, with duplicate keys. pyarrow drops duplicate keys, so this
module reads the entries from the schema's text form. If a name in an expression could be mistaken for a part of that
text, PredicateError is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.predicates import COMMUTED, Operator
from metastore_assets.expressions.unbound import (
    ArrowLiteral,
    BooleanColumn,
    BooleanLiteral,
    ColumnName,
    Not,
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

_LINE = re.compile(r"(call|end|field_ref|nested_field_ref|options|literal): '([^'\n]*)'")
_METADATA_HEADING = "-- schema metadata --"
_NULL_MATCHES, _NULL_SKIPPED = 0, 1
"""Values of Arrow's option `null_matching_behavior` of `is_in`: a null in the value set matches null, or is ignored."""

Argument: TypeAlias = "ColumnName | UnboundLiteral | _Call"


@dataclass(frozen=True)
class _Call:
    """A call of an Arrow function, with its options by name."""

    function: str
    arguments: Sequence[Argument]
    options: Mapping[str, Any]


def parse_arrow(expression: pc.Expression) -> UnboundPredicate:
    """Parse an Arrow expression to an unbound predicate, whose columns have no types yet.

    Raises:
        PredicateError: The expression calls an unsupported function, or its serialized form is ambiguous.
    """
    try:
        data = expression.__reduce__()[1][0]
        batch = pa.ipc.open_file(data).get_batch(0)
        text = batch.schema.to_string(truncate_metadata=False, show_schema_metadata=True)
        start = text.index(_METADATA_HEADING) + len(_METADATA_HEADING)
        lines = [_LINE.fullmatch(line) for line in text[start:].strip("\n").split("\n")]
    except (pa.ArrowException, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _ambiguous(expression) from error
    # A line break after a quote inside a name would look like the end of one entry and the start of another.
    if b"'\n" in data.to_pybytes() or not all(lines):
        raise _ambiguous(expression)
    reader = _Reader([(line[1], line[2]) for line in lines if line], batch, expression)
    argument = reader.argument()
    if not reader.is_done:
        raise _ambiguous(expression)
    return _parse_argument(argument, expression)


class _Reader:
    """A reader of the calls, fields and literals of a serialized expression, which are in prefix order."""

    def __init__(self, entries: Sequence[tuple[str, str]], batch: pa.RecordBatch, expression: pc.Expression) -> None:
        self._entries = entries
        self._batch = batch
        self._expression = expression
        self._position = 0

    @property
    def is_done(self) -> bool:
        return self._position == len(self._entries)

    def argument(self) -> Argument:
        """Read the next field, literal, or call with all of its arguments."""
        kind, value = self._next()
        if kind == "field_ref":
            return ColumnName((value,))
        if kind == "nested_field_ref":
            parts = [self._next() for _ in range(int(value))]
            if any(part_kind != "field_ref" for part_kind, _ in parts):
                raise _ambiguous(self._expression)  # a field by its position
            return ColumnName(tuple(part for _, part in parts))
        if kind == "literal":
            return _to_literal(self._batch.column(int(value))[0])
        if kind != "call":
            raise _ambiguous(self._expression)
        return self._call(value)

    def _call(self, function: str) -> _Call:
        """Read the rest of a call, after its name: arguments, options and end."""
        arguments: list[Argument] = []
        options: Mapping[str, Any] = {}
        while self._entries[self._position][0] not in ("end", "options"):
            arguments.append(self.argument())
        kind, value = self._next()
        if kind == "options":
            row = self._batch.column(int(value))[0]
            options = {name: row[name] for name in row}
            kind, value = self._next()
        if kind != "end" or value != function:
            raise _ambiguous(self._expression)
        return _Call(function, arguments, options)

    def _next(self) -> tuple[str, str]:
        if self._position >= len(self._entries):
            raise _ambiguous(self._expression)
        self._position += 1
        return self._entries[self._position - 1]


def _to_literal(scalar: pa.Scalar) -> UnboundLiteral:
    if not scalar.is_valid:
        return BooleanLiteral(None)
    return BooleanLiteral(scalar.as_py()) if pa.types.is_boolean(scalar.type) else ArrowLiteral(scalar)


def _parse_argument(argument: Argument, expression: pc.Expression) -> UnboundPredicate:
    """Return a boolean column, a boolean literal or a call of a supported function as a predicate.

    Raises PredicateError for any other argument.
    """
    if isinstance(argument, ColumnName):
        return BooleanColumn(argument)
    if isinstance(argument, BooleanLiteral):
        return argument
    if isinstance(argument, _Call) and argument.function in _FUNCTIONS:
        return _FUNCTIONS[argument.function](argument, expression)
    raise _unsupported(expression)


def _parse_children(call: _Call, expression: pc.Expression) -> tuple[UnboundPredicate, ...]:
    return tuple(_parse_argument(argument, expression) for argument in call.arguments)


def _parse_comparison(call: _Call, expression: pc.Expression) -> UnboundPredicate:
    """Return the comparison of a column with a literal, with the column on the left: `x > 5` for `5 < x`.

    Raises PredicateError if the two arguments are not a column and a literal.
    """
    operator = _OPERATORS[call.function]
    left, right = call.arguments
    if isinstance(left, ColumnName) and isinstance(right, UnboundLiteral):
        return UnboundComparison(left, operator, right, ieee=True)
    if isinstance(right, ColumnName) and isinstance(left, UnboundLiteral):
        return UnboundComparison(right, COMMUTED[operator], left, ieee=True)
    raise _unsupported(expression)


def _column_name(call: _Call, expression: pc.Expression) -> ColumnName:
    if not call.arguments or not isinstance(name := call.arguments[0], ColumnName):
        raise _unsupported(expression)
    return name


def _parse_is_in(call: _Call, expression: pc.Expression) -> UnboundPredicate:
    """Return the predicate of a call of Arrow's `is_in`.

    It matches null only if the value set has a null, and the option `null_matching_behavior` lets nulls match.
    Otherwise, it is false for null, so that its negation is true. In SQL, both would be null.
    """
    name = _column_name(call, expression)
    null_handling = call.options["null_matching_behavior"].as_py()
    if null_handling not in (_NULL_MATCHES, _NULL_SKIPPED):
        raise _unsupported(expression)
    scalars = list(call.options["value_set"].values)
    literals = tuple(_to_literal(scalar) for scalar in scalars if scalar.is_valid)
    alternatives: list[UnboundPredicate] = []
    if literals:
        # For a null, Arrow's `is_in` is false, and its negation true. SQL's `in` and its negation are null.
        alternatives.append(UnboundAnd((Not(UnboundIsNull(name)), UnboundIn(name, literals, rounded=True))))
    if null_handling == _NULL_MATCHES and len(literals) < len(scalars):
        alternatives.append(UnboundIsNull(name))
    return UnboundOr(tuple(alternatives))


def _parse_if_else(call: _Call, expression: pc.Expression) -> UnboundPredicate:
    """Return the predicate of `if_else(is_valid(x), is_in(x), null)`, DuckDB's form of SQL's `in`.

    Raises PredicateError for any other `if_else`.
    """
    condition, value_if_true, otherwise = call.arguments
    if (
        not (isinstance(condition, _Call) and isinstance(value_if_true, _Call) and otherwise == BooleanLiteral(None))
        or (condition.function, value_if_true.function) != ("is_valid", "is_in")
        or _column_name(condition, expression) != _column_name(value_if_true, expression)
    ):
        raise _unsupported(expression)
    scalars = list(value_if_true.options["value_set"].values)
    if not scalars or not all(scalar.is_valid for scalar in scalars):
        raise _unsupported(expression)
    return UnboundIn(_column_name(value_if_true, expression), tuple(map(_to_literal, scalars)), rounded=True)


def _parse_is_null(call: _Call, expression: pc.Expression) -> UnboundPredicate:
    name = _column_name(call, expression)
    if call.options["nan_is_null"].as_py():
        return UnboundOr(
            (UnboundIsNull(name), UnboundAnd((Not(UnboundIsNull(name)), UnboundIsNaN(name, any_type=True))))
        )
    return UnboundIsNull(name)


def _parse_starts_with(call: _Call, expression: pc.Expression) -> UnboundPredicate:
    prefix = re.sub(r"([%_\\])", r"\\\1", _pattern(call, expression))
    return UnboundLike(_column_name(call, expression), f"{prefix}%")


def _pattern(call: _Call, expression: pc.Expression) -> str:
    if call.options["ignore_case"].as_py():
        raise _unsupported(expression)
    pattern: str = call.options["pattern"].as_py()
    return pattern


_OPERATORS: Mapping[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FUNCTIONS: Mapping[str, Callable[[_Call, pc.Expression], UnboundPredicate]] = {
    **dict.fromkeys(_OPERATORS, _parse_comparison),
    "and_kleene": lambda call, expression: UnboundAnd(_parse_children(call, expression)),
    "or_kleene": lambda call, expression: UnboundOr(_parse_children(call, expression)),
    "invert": lambda call, expression: Not(_parse_children(call, expression)[0]),
    "is_in": _parse_is_in,
    "if_else": _parse_if_else,
    "is_null": _parse_is_null,
    "is_valid": lambda call, expression: Not(UnboundIsNull(_column_name(call, expression))),
    "is_nan": lambda call, expression: UnboundIsNaN(_column_name(call, expression)),
    "starts_with": _parse_starts_with,
    "match_like": lambda call, expression: UnboundLike(_column_name(call, expression), _pattern(call, expression)),
}
"""For each supported Arrow function, by name: the function that parses its calls."""


def _unsupported(expression: pc.Expression) -> PredicateError:
    return PredicateError(
        f"{_to_text(expression)} is not supported: an expression consists of comparisons of a field with a scalar, "
        "isin, is_null, is_valid, is_nan, starts_with, match_like, &, | and ~"
    )


def _ambiguous(expression: pc.Expression) -> PredicateError:
    return PredicateError(f"{_to_text(expression)} cannot be parsed unambiguously: write it as SQL text")


def _to_text(expression: pc.Expression) -> str:
    """Return an expression as text for messages."""
    try:
        return str(expression)
    except UnicodeDecodeError:  # Arrow truncates long texts inside a character
        return "the expression"
