"""Types of JSON values: what occurs in each place of many objects, and the Arrow type that holds all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.storage.limits import KEYS

_EXACT = 2**53
"""Integers up to here are floats without loss."""
_NEGATIVE_ENDS = (0, _EXACT, 2**63, 10**38 - 1)
_POSITIVE_ENDS = (0, _EXACT, 2**63 - 1, 2**64 - 1, 10**38 - 1)
"""Sizes of integers between which nothing is decided otherwise."""
_HINT = "say in the table's `schema` what type the column is to have"
_KINDS: dict[pa.DataType, tuple[type, ...]] = {
    pa.int64(): (int,),
    pa.float64(): (int, float),
    pa.bool_(): (bool,),
    pa.string(): (str,),
}
"""What values a column of a type may have."""
_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", dict: "an object", list: "an array"}


@dataclass
class Shape:
    """What was seen in one place: kinds of values, the extremes of integers, and what lies below."""

    seen: dict[type, str] = field(default_factory=dict)
    """By Python type, where it was first seen. Null is never recorded."""
    least: int = 0
    greatest: int = 0
    beyond: str = ""
    """Where the first integer beyond 2^53 was seen."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """Of objects, by key, in order of first occurrence."""
    items: Shape | None = None
    """Of arrays."""


def observe(shape: Shape, value: Any, line: int) -> None:
    """Add a parsed value to what was seen."""
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


def merge(whole: Shape, part: Shape, path: str) -> None:
    """Add what was seen in a file."""
    for kind, place in part.seen.items():
        whole.seen.setdefault(kind, f"{path}, {place}")
    if part.beyond and not whole.beyond:
        whole.beyond = f"{path}, {part.beyond}"
    whole.least, whole.greatest = min(whole.least, part.least), max(whole.greatest, part.greatest)
    for name, child in part.fields.items():
        merge(whole.fields.setdefault(name, Shape()), child, path)
    if part.items is not None:
        if whole.items is None:
            whole.items = Shape()
        merge(whole.items, part.items, path)


def without_extremes(shape: Shape) -> Shape:
    """Return a shape that says of integers which types hold them, and not which they are.

    Least and greatest become those of the narrowest range that a type decision depends on. So nothing that is stored
    of a file tells a value, and the types are the same.
    """
    return replace(
        shape,
        least=-_range_end(-shape.least, _NEGATIVE_ENDS),
        greatest=_range_end(shape.greatest, _POSITIVE_ENDS),
        fields={name: without_extremes(child) for name, child in shape.fields.items()},
        items=None if shape.items is None else without_extremes(shape.items),
    )


def _range_end(size: int, ends: Sequence[int]) -> int:
    """Return the first end that is no smaller; of a number with more digits the greatest that has as many."""
    return next((end for end in ends if size <= end), 10 ** len(str(size)) - 1)


def arrow_type(table: str, column: str, shape: Shape, declared: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of a place: what is declared of its path, else one that holds all values; null when there are none.

    Raises TableFormatError when no type does.
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
    """The first values because of which a column is not of some types."""
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
