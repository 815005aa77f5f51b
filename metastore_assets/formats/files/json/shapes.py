"""Shapes of JSON values: the kinds of values at each path of many objects, and the Arrow type for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.storage.limits import KEYS

_EXACT = 2**53
"""Floats hold integers up to this one without loss."""
_NEGATIVE_ENDS = (0, _EXACT, 2**63, 10**38 - 1)
_POSITIVE_ENDS = (0, _EXACT, 2**63 - 1, 2**64 - 1, 10**38 - 1)
"""Magnitudes of integers at which the decision on a type changes."""
_HINT = "say in the table's `schema` what type the column is to have"
_KINDS: dict[pa.DataType, tuple[type, ...]] = {
    pa.int64(): (int,),
    pa.float64(): (int, float),
    pa.bool_(): (bool,),
    pa.string(): (str,),
}
"""Kinds of values by the type of a column."""
_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", dict: "an object", list: "an array"}


@dataclass
class Shape:
    """The values at one path: their kinds, the extremes of integers, and the shapes below."""

    seen: dict[type, str] = field(default_factory=dict)
    """The first location of each Python type. Null is not recorded."""
    least: int = 0
    greatest: int = 0
    beyond: str = ""
    """The location of the first integer beyond 2^53."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """Shapes of object values by key, in order of first occurrence."""
    items: Shape | None = None
    """The shape of all items of arrays."""


def observe(shape: Shape, value: Any, line: int) -> None:
    """Add a parsed value to a shape."""
    if value is None:
        return
    kind = type(value)
    if kind not in shape.seen:
        shape.seen[kind] = f"line {line}"
    if kind is int:
        if value < shape.least:
            shape.least = value
        elif value > shape.greatest:
            shape.greatest = value
        if not shape.beyond and abs(value) > _EXACT:
            shape.beyond = f"line {line}"
    elif kind is dict:
        for name, inner in value.items():
            child = shape.fields.get(name)
            if child is None:
                child = shape.fields[name] = Shape()
                if len(shape.fields) > KEYS:
                    raise pa.ArrowInvalid(f"line {line}: its objects have more than {KEYS} different keys")
            observe(child, inner, line)
    elif kind is list:
        if shape.items is None:
            shape.items = Shape()
        for inner in value:
            observe(shape.items, inner, line)


def merge(total: Shape, part: Shape, path: str) -> None:
    """Add the shape of a file to the shape of a table."""
    for kind, place in part.seen.items():
        total.seen.setdefault(kind, f"{path}, {place}")
    if part.beyond and not total.beyond:
        total.beyond = f"{path}, {part.beyond}"
    total.least, total.greatest = min(total.least, part.least), max(total.greatest, part.greatest)
    for name, child in part.fields.items():
        merge(total.fields.setdefault(name, Shape()), child, path)
    if part.items is not None:
        if total.items is None:
            total.items = Shape()
        merge(total.items, part.items, path)


def without_extremes(shape: Shape) -> Shape:
    """Return a shape without values of integers, from which the same types follow.

    The extremes become the ends of the narrowest range that a decision on a type depends on.
    """
    return replace(
        shape,
        least=-_range_end(-shape.least, _NEGATIVE_ENDS),
        greatest=_range_end(shape.greatest, _POSITIVE_ENDS),
        fields={name: without_extremes(child) for name, child in shape.fields.items()},
        items=None if shape.items is None else without_extremes(shape.items),
    )


def _range_end(size: int, ends: Sequence[int]) -> int:
    """Return the first end that is not smaller; beyond all ends, the greatest number with as many digits."""
    return next((end for end in ends if size <= end), 10 ** len(str(size)) - 1)


def arrow_type(table: str, column: str, shape: Shape, declared: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of a path: the declared one, else one that holds all values; null without values.

    Args:
        table: URI of the table, for messages.
        column: dotted path.
        shape: the shape of the path in all files.
        declared: declared types by path.

    Raises:
        TableFormatError: no type holds all values.
    """
    if column in declared:
        return declared[column]
    kinds = set(shape.seen)
    if len(kinds) > 1 and kinds != {int, float}:
        (one, here), (other, there) = list(shape.seen.items())[:2]
        if _NAMES[one] == _NAMES[other]:
            other, there = list(shape.seen.items())[2]
        raise TableFormatError(
            f"{table}: column {column!r} is {_NAMES[one]} in {here} and {_NAMES[other]} in {there}; "
            f"no type holds both: {_HINT}"
        )
    if dict in kinds:
        inner = [(name, arrow_type(table, f"{column}.{name}", child, declared)) for name, child in shape.fields.items()]
        return pa.struct(inner) if inner else pa.string()
    if list in kinds and shape.items is not None:
        return pa.list_(pa.field("element", arrow_type(table, f"{column}.element", shape.items, declared)))
    if int in kinds:
        return _number_type(table, column, shape)
    return {bool: pa.bool_(), float: pa.float64(), str: pa.string()}[kinds.pop()] if kinds else pa.null()


def type_reasons(column: str, shape: Shape) -> Iterator[TypeReason]:
    """Yield, for each type that the column is not of, the first value that does not fit."""
    for type_, kinds in _KINDS.items():
        other = next((kind for kind in shape.seen if kind not in kinds), None)
        if other is not None:
            name = "a fraction" if other is float else _NAMES[other]
            yield TypeReason(column, type_, f"{name} in {shape.seen[other]}")


def _number_type(table: str, column: str, shape: Shape) -> pa.DataType:
    if float in shape.seen:
        if max(-shape.least, shape.greatest) > _EXACT:
            raise TableFormatError(
                f"{table}: column {column!r} has numbers with a fraction ({shape.seen[float]}) and integers beyond "
                f"2^53 ({shape.beyond}); no type holds both without loss: {_HINT}"
            )
        return pa.float64()
    if shape.least >= -(2**63) and shape.greatest < 2**63:
        return pa.int64()
    if shape.least >= 0 and shape.greatest < 2**64:
        return pa.uint64()
    digits = len(str(max(-shape.least, shape.greatest)))
    if digits > 38:
        raise TableFormatError(
            f"{table}: column {column!r} has integers of {digits} digits; at most 38 are read: {_HINT}"
        )
    return pa.decimal128(38, 0)
