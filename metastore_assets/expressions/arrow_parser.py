"""Arrow's compute expressions taken apart.

Their serialized form is a record batch: its literals are values in one row, and its metadata say in order what they are
arguments of. Python shows metadata as a mapping, so the order is read off their text; names that could be taken for a
part of that are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.unbound import (
    COMMUTED,
    ArrowLiteral,
    BooleanColumn,
    BooleanLiteral,
    ColumnName,
    Literal,
    Not,
    Operator,
    UnboundAnd,
    UnboundComparison,
    UnboundIn,
    UnboundIsNaN,
    UnboundIsNull,
    UnboundLike,
    UnboundOr,
    UnboundPredicate,
)

_LINE = re.compile(r"(call|end|field_ref|nested_field_ref|options|literal): '([^'\n]*)'")
_OPERATORS: Mapping[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MARK = "-- schema metadata --"
_MATCH, _SKIP = 0, 1
"""What `is_in` makes of nulls in the values: equal to null, or not there."""

Argument: TypeAlias = "ColumnName | Literal | _Call"


class _Call:
    def __init__(self, function: str, arguments: Sequence[Argument], options: Mapping[str, Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options


def parse_arrow(expression: pc.Expression) -> UnboundPredicate:
    """What an expression says. Raises PredicateError for one that cannot be taken apart without doubt."""
    try:
        data = expression.__reduce__()[1][0]
        batch = pa.ipc.open_file(data).get_batch(0)
        text = batch.schema.to_string(truncate_metadata=False, show_schema_metadata=True)
        lines = [_LINE.fullmatch(line) for line in text[text.index(_MARK) + len(_MARK) :].strip("\n").split("\n")]
    except (pa.ArrowException, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _doubtful(expression) from error
    # A line break after a quote inside a name would look like the end of one thing and the start of another.
    if b"'\n" in data.to_pybytes() or not all(lines):
        raise _doubtful(expression)
    reader = _Reader([(line[1], line[2]) for line in lines if line], batch, expression)
    found = reader.argument()
    if not reader.is_done:
        raise _doubtful(expression)
    return _predicate(found, expression)


class _Reader:
    """Reads one argument after the other."""

    def __init__(self, lines: Sequence[tuple[str, str]], batch: pa.RecordBatch, whole: pc.Expression) -> None:
        self._lines = lines
        self._batch = batch
        self._whole = whole
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._lines)

    def argument(self) -> Argument:
        kind, value = self._next()
        if kind == "field_ref":
            return ColumnName((value,))
        if kind == "nested_field_ref":
            parts = [self._next() for _ in range(int(value))]
            if any(own != "field_ref" for own, _ in parts):
                raise _doubtful(self._whole)  # a field by its place
            return ColumnName(tuple(part for _, part in parts))
        if kind == "literal":
            scalar = self._batch.column(int(value))[0]
            if not scalar.is_valid:
                return BooleanLiteral(None)
            return BooleanLiteral(scalar.as_py()) if pa.types.is_boolean(scalar.type) else ArrowLiteral(scalar)
        if kind != "call":
            raise _doubtful(self._whole)
        arguments: list[Argument] = []
        options: Mapping[str, Any] = {}
        while self._lines[self._at][0] not in ("end", "options"):
            arguments.append(self.argument())
        kind, own = self._next()
        if kind == "options":
            row = self._batch.column(int(own))[0]
            options = {name: row[name] for name in row}
            kind, own = self._next()
        if kind != "end" or own != value:
            raise _doubtful(self._whole)
        return _Call(value, arguments, options)

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._lines):
            raise _doubtful(self._whole)
        self._at += 1
        return self._lines[self._at - 1]


def _predicate(node: Argument, whole: pc.Expression) -> UnboundPredicate:
    if isinstance(node, ColumnName):
        return BooleanColumn(node)
    if isinstance(node, BooleanLiteral):
        return node
    if not isinstance(node, _Call):
        raise _refused(whole)
    if node.function in _OPERATORS:
        return _comparison(node, _OPERATORS[node.function], whole)
    if node.function in ("and_kleene", "or_kleene", "invert"):
        children = tuple(_predicate(own, whole) for own in node.arguments)
        if node.function == "invert":
            return Not(children[0])
        return UnboundAnd(children) if node.function == "and_kleene" else UnboundOr(children)
    if node.function not in _TESTS or not node.arguments or not isinstance(name := node.arguments[0], ColumnName):
        raise _refused(whole)
    return _TESTS[node.function](name, node.options, whole)


def _comparison(node: _Call, operator: Operator, whole: pc.Expression) -> UnboundPredicate:
    left, right = node.arguments
    if isinstance(left, ColumnName) and not isinstance(right, ColumnName | _Call):
        return UnboundComparison(left, operator, right, ieee=True)
    if isinstance(right, ColumnName) and not isinstance(left, ColumnName | _Call):
        return UnboundComparison(right, COMMUTED[operator], left, ieee=True)
    raise _refused(whole)


def _is_in(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    nulls = options["null_matching_behavior"].as_py()
    if nulls not in (_MATCH, _SKIP):
        raise _refused(whole)
    values = list(options["value_set"].values)
    found: list[UnboundPredicate] = []
    valid = tuple(
        BooleanLiteral(own.as_py()) if pa.types.is_boolean(own.type) else ArrowLiteral(own)
        for own in values
        if own.is_valid
    )
    if valid:
        # Arrow's is false of null, and SQL's null: that differs where it is negated.
        found.append(UnboundAnd((Not(UnboundIsNull(name)), UnboundIn(name, valid, rounded=True))))
    if nulls == _MATCH and len(valid) < len(values):
        found.append(UnboundIsNull(name))
    return UnboundOr(tuple(found))


def _is_null(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    if options["nan_is_null"].as_py():
        return UnboundOr((UnboundIsNull(name), UnboundAnd((Not(UnboundIsNull(name)), UnboundIsNaN(name)))))
    return UnboundIsNull(name)


def _is_valid(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    return Not(UnboundIsNull(name))


def _is_nan(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    return UnboundIsNaN(name)


def _starts_with(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    if options["ignore_case"].as_py():
        raise _refused(whole)
    prefix = re.sub(r"([%_\\])", r"\\\1", options["pattern"].as_py())
    return UnboundLike(name, f"{prefix}%")


def _match_like(name: ColumnName, options: Mapping[str, Any], whole: pc.Expression) -> UnboundPredicate:
    if options["ignore_case"].as_py():
        raise _refused(whole)
    return UnboundLike(name, options["pattern"].as_py())


_TESTS: Mapping[str, Callable[[ColumnName, Mapping[str, Any], pc.Expression], UnboundPredicate]] = {
    "is_in": _is_in,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_nan": _is_nan,
    "starts_with": _starts_with,
    "match_like": _match_like,
}


def _refused(whole: pc.Expression) -> PredicateError:
    return PredicateError(
        f"{whole} cannot be asked: an expression is made of comparisons of a field with a scalar, isin, is_null, "
        "is_valid, is_nan, starts_with, match_like, &, | and ~"
    )


def _doubtful(whole: pc.Expression) -> PredicateError:
    return PredicateError(f"{whole} cannot be taken apart without doubt: give it as SQL text")
