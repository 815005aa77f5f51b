"""Whether a condition is true of values that are texts, such as those of partitions, of which not all are known yet.

Numbers are compared with numbers, times with times, and all else as text, by its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial, reduce
from itertools import product
from typing import Any as Anything
from typing import TypeAlias

from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.expressions.syntax import (
    All,
    Any,
    Blob,
    Comparison,
    Flag,
    Likeness,
    Literal,
    Membership,
    Name,
    NaNTest,
    Not,
    NullTest,
    Number,
    Syntax,
    Text,
    Truth,
)
from metastore_assets.iso8601 import parse_timestamp

Values: TypeAlias = Mapping[str, str | None]
"""By column: null is None, and columns that are not there are not known yet."""
Outcomes: TypeAlias = frozenset[bool | None]
"""What a condition may come to: true, false, null."""

_ANYTHING: Outcomes = frozenset([True, False, None])


def may_hold(node: Syntax, values: Values) -> bool:
    """Whether a condition may be true, whatever the columns are that are not known yet.

    Raises ConfigError where a value is no number and is compared with one.
    """
    return True in _outcomes(node, values)


def columns_named(node: Syntax) -> Iterator[str]:
    """The columns that it is about."""
    if isinstance(node, All | Any):
        for child in node.children:
            yield from columns_named(child)
    elif isinstance(node, Not):
        yield from columns_named(node.child)
    elif not isinstance(node, Truth):
        yield _path(node.name)


def _path(name: Name) -> str:
    return ".".join(name.parts)


def _outcomes(node: Syntax, values: Values) -> Outcomes:
    if isinstance(node, Truth):
        return frozenset([node.value])
    if isinstance(node, Not):
        return frozenset(None if own is None else not own for own in _outcomes(node.child, values))
    if isinstance(node, All | Any):
        # Columns that are not known may be the same in several children: then some of these pairs do not occur.
        parts = [_outcomes(child, values) for child in node.children]
        return reduce(partial(_joined, isinstance(node, Any)), parts)
    column = _path(node.name)
    if column not in values:
        return _ANYTHING if not isinstance(node, NullTest) else frozenset([True, False])
    value = values[column]
    if isinstance(node, NullTest):
        return frozenset([value is None])
    return frozenset([None if value is None else _of_value(node, column, value)])


def _joined(decisive: bool, some: Outcomes, others: Outcomes) -> Outcomes:
    """Of `or`, of which true is decisive, and of `and`, of which false is."""
    pairs = product(some, others)
    return frozenset(decisive if decisive in own else None if None in own else not decisive for own in pairs)


def _of_value(node: Comparison | Membership | Likeness | NaNTest | Flag, column: str, value: str) -> bool | None:
    if isinstance(node, NaNTest):
        return value.lower() == "nan"
    if isinstance(node, Flag):
        return value == "true"
    if isinstance(node, Likeness):
        return re.fullmatch(_regex(node), value, re.DOTALL) is not None
    if isinstance(node, Membership):
        found = [_compared("=", column, value, own) for own in node.literals]
        return True if True in found else None if None in found else False
    return _compared(node.operator, column, value, node.literal)


def _compared(operator: str, column: str, value: str, literal: Literal) -> bool | None:
    if isinstance(literal, Truth):
        if literal.value is None:
            return None
        sides: tuple[Anything, Anything] = (value, str(literal.value).lower())
    elif isinstance(literal, Number):
        sides = (_number(column, value, literal), literal.value)
    elif isinstance(literal, Text):
        times = _ticks(value), _ticks(literal.text)
        sides = times if None not in times else (value.encode(), literal.text.encode())
    else:
        what = "bytes" if isinstance(literal, Blob) else "an Arrow value"
        raise PredicateError(f"a partition column, {column!r}, cannot be compared with {what}: write its value as text")
    own, other = sides
    return {
        "=": own == other,
        "!=": own != other,
        "<": own < other,
        "<=": own <= other,
        ">": own > other,
        ">=": own >= other,
    }[operator]


def _number(column: str, value: str, literal: Number) -> Decimal:
    try:
        number = Decimal(value)
        if not number.is_nan():
            return number
    except InvalidOperation:
        pass
    raise ConfigError(
        f"the partition column {column!r} has the value {value!r}, which is no number to be compared with "
        f"{literal.value}: in quotes, '{literal.value}', it is compared as text"
    )


def _ticks(text: str) -> int | None:
    """Microseconds since 1970 in UTC; None of what is no time."""
    try:
        return parse_timestamp(text, "us")[0]
    except (ValueError, OverflowError):
        return None


def _regex(node: Likeness) -> str:
    found = ""
    characters = iter(node.pattern)
    for character in characters:
        if node.escape is not None and character == node.escape:
            following = next(characters, None)
            if following is None:
                raise PredicateError(f"the pattern {node.pattern!r} ends with its escape character")
            found += re.escape(following)
        else:
            found += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return found
