"""The shapes of JSON values: the kinds of values at each path, and the Arrow type that holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.formats.files.declared_types import SCHEMA_HINT
from metastore_assets.storage.limits import KEYS

_EXACT = 2**53
"""Floats hold every integer up to this one exactly."""
_NEGATIVE_ENDS = (0, _EXACT, 2**63, 10**38 - 1)
_POSITIVE_ENDS = (0, _EXACT, 2**63 - 1, 2**64 - 1, 10**38 - 1)
"""Magnitudes of negative and of other integers beyond which a column gets another type."""
_KINDS: dict[pa.DataType, tuple[type, ...]] = {
    pa.int64(): (int,),
    pa.float64(): (int, float),
    pa.bool_(): (bool,),
    pa.string(): (str,),
}
"""Python types of the parsed values that a column of each Arrow type can hold."""
_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", dict: "an object", list: "an array"}
_TYPES_BY_NAME: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, dict, list)}


@dataclass
class Shape:
    """Summary of all values at one path: kinds, range of integers, and the shapes of fields or items."""

    locations: dict[type, str] = field(default_factory=dict)
    """Where each Python type occurs first, as text for messages. Null is not recorded."""
    minimum: int = 0
    maximum: int = 0
    first_beyond: str = ""
    """Where the first integer beyond 2^53 occurs; empty without one."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """For each key of the objects at this path, the shape of its values, in the order of first occurrence."""
    items: Shape | None = None
    """The shape of the items of all arrays; None without arrays."""


@dataclass(frozen=True)
class JsonSummary:
    """Row count and value kinds of one file of JSON lines."""

    row_count: int
    shape: Shape


def observe(shape: Shape, value: Any, line: int) -> None:
    """Add a parsed value, and the values inside of it, to a shape in place.

    Args:
        shape: the shape of the value's path.
        value: the value. Null changes nothing.
        line: line number of the value, for messages.

    Raises:
        ArrowInvalid: the objects at one path have too many different keys.
    """
    if value is None:
        return
    kind = type(value)
    if kind not in shape.locations:
        shape.locations[kind] = f"line {line}"
    if kind is int:
        if value < shape.minimum:
            shape.minimum = value
        elif value > shape.maximum:
            shape.maximum = value
        if not shape.first_beyond and abs(value) > _EXACT:
            shape.first_beyond = f"line {line}"
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
    """Add the shape `part` of one file to the shape `total` of the table, in place.

    `path` is the path of the file, for messages.
    """
    for kind, location in part.locations.items():
        total.locations.setdefault(kind, f"{path}, {location}")
    if part.first_beyond and not total.first_beyond:
        total.first_beyond = f"{path}, {part.first_beyond}"
    total.minimum, total.maximum = min(total.minimum, part.minimum), max(total.maximum, part.maximum)
    for name, child in part.fields.items():
        merge(total.fields.setdefault(name, Shape()), child, path)
    if part.items is not None:
        if total.items is None:
            total.items = Shape()
        merge(total.items, part.items, path)


def without_extremes(shape: Shape) -> Shape:
    """Return a copy of a shape that does not reveal its minima and maxima, which are values of rows.

    Each is replaced by the end of its range in `_NEGATIVE_ENDS` or `_POSITIVE_ENDS`, for which the same type is
    inferred. For example, a maximum of 5 becomes 2^53.
    """
    return replace(
        shape,
        minimum=-_range_end(-shape.minimum, _NEGATIVE_ENDS),
        maximum=_range_end(shape.maximum, _POSITIVE_ENDS),
        fields={name: without_extremes(child) for name, child in shape.fields.items()},
        items=None if shape.items is None else without_extremes(shape.items),
    )


def _range_end(size: int, ends: Sequence[int]) -> int:
    """Return the end of the range that contains `size`: the first of `ends` that is at least `size`.

    `ends` are ascending. For example, the result for 5 and the ends (0, 10, 99) is 10. If `size` exceeds all ends, the
    result is the greatest integer with as many digits as `size`.
    """
    return next((end for end in ends if size <= end), 10 ** len(str(size)) - 1)


def arrow_type(table: str, column: str, shape: Shape, declared_types: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the declared type of a path, or else a type that holds all values at the path.

    A path without values has the null type. Objects without keys are text.

    Args:
        table: URI of the table, for messages.
        column: dotted path.
        shape: the shape of the path in all files.
        declared_types: declared types by path.

    Raises:
        TableFormatError: no type holds all values.
    """
    if column in declared_types:
        return declared_types[column]
    kinds = set(shape.locations)
    if len(kinds) > 1 and kinds != {int, float}:
        (kind, location), (other_kind, other_location) = list(shape.locations.items())[:2]
        if _NAMES[kind] == _NAMES[other_kind]:
            other_kind, other_location = list(shape.locations.items())[2]
        raise TableFormatError(
            f"{table}: column {column!r} is {_NAMES[kind]} in {location} and {_NAMES[other_kind]} in {other_location}; "
            f"no type holds both: {SCHEMA_HINT}"
        )
    if dict in kinds:
        inner = [
            (name, arrow_type(table, f"{column}.{name}", child, declared_types)) for name, child in shape.fields.items()
        ]
        return pa.struct(inner) if inner else pa.string()
    if list in kinds and shape.items is not None:
        return pa.list_(pa.field("element", arrow_type(table, f"{column}.element", shape.items, declared_types)))
    if int in kinds:
        return _number_type(table, column, shape)
    return {bool: pa.bool_(), float: pa.float64(), str: pa.string()}[kinds.pop()] if kinds else pa.null()


def type_reasons(column: str, shape: Shape) -> Iterator[TypeReason]:
    """Yield a reason for each type that a column cannot have because of a value of another kind.

    For example, a text in a column rules out integers. The reason names the kind and the location of such a value.
    """
    for type_, kinds in _KINDS.items():
        other_kind = next((kind for kind in shape.locations if kind not in kinds), None)
        if other_kind is not None:
            name = "a fraction" if other_kind is float else _NAMES[other_kind]
            yield TypeReason(column, type_, f"{name} in {shape.locations[other_kind]}")


def _number_type(table: str, column: str, shape: Shape) -> pa.DataType:
    """Return the type of a column of numbers: float, an integer type, or a decimal for large integers.

    Raises TableFormatError if no type holds all numbers without loss.
    """
    if float in shape.locations:
        if max(-shape.minimum, shape.maximum) > _EXACT:
            raise TableFormatError(
                f"{table}: column {column!r} has numbers with a fraction ({shape.locations[float]}) and integers "
                f"beyond 2^53 ({shape.first_beyond}); no type holds both without loss: {SCHEMA_HINT}"
            )
        return pa.float64()
    if shape.minimum >= -(2**63) and shape.maximum < 2**63:
        return pa.int64()
    if shape.minimum >= 0 and shape.maximum < 2**64:
        return pa.uint64()
    digits = len(str(max(-shape.minimum, shape.maximum)))
    if digits > 38:
        raise TableFormatError(
            f"{table}: column {column!r} has integers of {digits} digits; at most 38 are read: {SCHEMA_HINT}"
        )
    return pa.decimal128(38, 0)


def encode_summary(summary: JsonSummary) -> bytes:
    """Serialize a summary for the cache."""
    return json.dumps([summary.row_count, _encode_shape(summary.shape)], separators=(",", ":")).encode()


def decode_summary(data: bytes) -> JsonSummary:
    """Parse a serialized summary.

    Raises ValueError, LookupError or TypeError for invalid bytes.
    """
    rows, shape = json.loads(data)
    return JsonSummary(rows, _decode_shape(shape))


def _encode_shape(shape: Shape) -> list[Any]:
    """Return a shape as JSON values, which `_decode_shape` converts back."""
    return [
        [[kind.__name__, location] for kind, location in shape.locations.items()],
        shape.minimum,
        shape.maximum,
        shape.first_beyond,
        [[name, _encode_shape(child)] for name, child in shape.fields.items()],
        shape.items and _encode_shape(shape.items),
    ]


def _decode_shape(shape: list[Any]) -> Shape:
    """Return the shape that `_encode_shape` encoded.

    Raises ValueError, LookupError or TypeError for invalid values.
    """
    locations, minimum, maximum, first_beyond, fields, items = shape
    return Shape(
        {_TYPES_BY_NAME[kind]: location for kind, location in locations},
        minimum,
        maximum,
        first_beyond,
        {name: _decode_shape(child) for name, child in fields},
        None if items is None else _decode_shape(items),
    )
