"""Type classes: groups of column types, such as signed integers, stored as one Arrow type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.values.columns import plain_type

DECIMAL_DIGITS = 38


@dataclass(frozen=True)
class TypeClass:
    """A group of column types whose values are converted to one *canonical* Arrow type, without loss.

    For example, int8 and int64 have the class `int64`, and string and large_string the class `string`. The kind of a
    class determines how values are ordered and computed:

    - `boolean`;
    - `bytes`: strings, binary and UUIDs, ordered by their bytes;
    - `null`: the column has no values;
    - `integer`: values that are stored as one integer, their *physical value*: integers, decimals (the unscaled value),
      dates (days), times and timestamps (in their unit);
    - `float`: IEEE 754 doubles. NaN equals itself and is the greatest value, -0.0 equals 0.0.
    """

    name: str
    """The name of the class. Stored bounds are structs with one field per class, which have these names."""
    arrow: pa.DataType
    """The canonical type."""
    kind: str
    """One of the kinds above."""

    @property
    def scale(self) -> int:
        """Digits after the decimal point: a decimal is its physical value / 10**scale.

        0 for other classes.
        """
        return self.arrow.scale if t.is_decimal(self.arrow) else 0

    @property
    def is_numeric(self) -> bool:
        """Whether values have sums and means, as integers, floats and decimals do, but not dates and times."""
        return self.kind == "float" or t.is_integer(self.arrow) or t.is_decimal(self.arrow)

    @property
    def is_ordinal(self) -> bool:
        """Whether values have histograms and quantile sketches: true for kinds `integer` and `float`."""
        return self.kind in ("integer", "float")

    @property
    def physical_range(self) -> tuple[int, int]:
        """The least and the greatest physical value of an `integer` class, both inclusive."""
        if t.is_decimal(self.arrow):
            return -(10**DECIMAL_DIGITS) + 1, 10**DECIMAL_DIGITS - 1
        if t.is_time(self.arrow):
            return 0, 86_400 * 10**9 - 1
        bits = self.arrow.bit_width
        return (0, 2**bits - 1) if t.is_unsigned_integer(self.arrow) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_TIMESTAMPS = ("timestamp_ms", "timestamp_us", "timestamp_ns")
_ZONED_TIMESTAMPS = ("timestamptz_ms", "timestamptz_us", "timestamptz_ns")
_SIMPLE = {
    "boolean": TypeClass("boolean", pa.bool_(), "boolean"),
    "int64": TypeClass("int64", pa.int64(), "integer"),
    "uint64": TypeClass("uint64", pa.uint64(), "integer"),
    "float64": TypeClass("float64", pa.float64(), "float"),
    "string": TypeClass("string", pa.large_string(), "bytes"),
    "binary": TypeClass("binary", pa.large_binary(), "bytes"),
    "uuid": TypeClass("uuid", pa.uuid(), "bytes"),
    "date": TypeClass("date", pa.date32(), "integer"),
    "time": TypeClass("time", pa.time64("ns"), "integer"),
    "null": TypeClass("null", pa.null(), "null"),
    **{name: TypeClass(name, pa.timestamp(name[-2:]), "integer") for name in _TIMESTAMPS},
    **{name: TypeClass(name, pa.timestamp(name[-2:], "UTC"), "integer") for name in _ZONED_TIMESTAMPS},
}
_DECIMAL_NAME = re.compile(r"decimal_(\d{1,2})")


@lru_cache(maxsize=4096)
def type_text(type: pa.DataType) -> str:
    """Return a type as text for users."""
    return str(type).replace("extension<arrow.uuid>", "uuid")


def is_text(type: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's text types."""
    return t.is_string(type) or t.is_large_string(type) or t.is_string_view(type)


def is_binary(type: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's binary types of variable length."""
    return t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type)


def is_byte_string(type: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's text or binary types of variable length."""
    return is_text(type) or is_binary(type)


@lru_cache(maxsize=4096)
def type_class(type: pa.DataType) -> TypeClass:
    """Return the type class of an Arrow type.

    Dictionary, run-end-encoded and extension types have the class of the type that they encode. Timestamps in seconds
    have the class of milliseconds, because Parquet has no timestamps in seconds.

    Raises:
        UnsupportedTypeError: The type has no class: a struct, list or map (their children have classes), a decimal of
            negative scale or more than 38 digits, a duration, an interval or a union.
    """
    plain = plain_type(type)
    if plain == pa.uuid():
        return _SIMPLE["uuid"]
    if t.is_decimal(plain):
        return _decimal_class(plain)
    if t.is_timestamp(plain):
        unit = "ms" if plain.unit == "s" else plain.unit
        return _SIMPLE[f"timestamp_{unit}" if plain.tz is None else f"timestamptz_{unit}"]
    for matches, name in _RULES:
        if matches(plain):
            return _SIMPLE[name]
    raise UnsupportedTypeError(_reason(plain))


def classes_of(types: Iterable[pa.DataType]) -> list[TypeClass]:
    """Return the type classes of Arrow types, in the same order.

    Types without a class are omitted.
    """
    classes = []
    for type in types:
        try:
            classes.append(type_class(type))
        except UnsupportedTypeError:
            continue
    return classes


def class_named(name: str) -> TypeClass:
    """Return the type class with a name.

    Raises UnsupportedTypeError if there is none.
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    match = _DECIMAL_NAME.fullmatch(name)
    if match and int(match[1]) <= DECIMAL_DIGITS:
        return TypeClass(name, pa.decimal128(DECIMAL_DIGITS, int(match[1])), "integer")
    raise UnsupportedTypeError(f"{name!r} is not the name of a type class")


def type_fingerprint(type: pa.DataType) -> str:
    """Return a text that is equal for two types exactly if statistics of their columns can be merged.

    It is the name of the type class, such as `int64`. For a type without a class, it is `<struct>`, `<map>`, `<list>`,
    or the Arrow type, such as `<duration[ns]>`.
    """
    try:
        return type_class(type).name
    except UnsupportedTypeError:
        return f"<{_container_kind(plain_type(type))}>"


def _container_kind(type: pa.DataType) -> str:
    """Return the kind of a type without a class: `struct`, `map`, `list`, or the name of the Arrow type."""
    if t.is_struct(type):
        return "struct"
    if t.is_map(type):
        return "map"
    return "list" if t.is_nested(type) and type.num_fields == 1 else str(type)


_RULES = (
    (t.is_boolean, "boolean"),
    (t.is_uint64, "uint64"),
    (t.is_integer, "int64"),
    (t.is_floating, "float64"),
    (t.is_string, "string"),
    (t.is_large_string, "string"),
    (t.is_string_view, "string"),
    (t.is_binary, "binary"),
    (t.is_large_binary, "binary"),
    (t.is_binary_view, "binary"),
    (t.is_fixed_size_binary, "binary"),
    (t.is_date, "date"),
    (t.is_time, "time"),
    (t.is_null, "null"),
)


def _decimal_class(type: pa.DataType) -> TypeClass:
    if type.scale < 0:
        raise UnsupportedTypeError(f"{type} has a negative scale; store it with scale 0 or more to have it profiled")
    if type.precision > DECIMAL_DIGITS or type.scale > DECIMAL_DIGITS:
        raise UnsupportedTypeError(f"{type} has more than {DECIMAL_DIGITS} digits, the most that Parquet readers share")
    return class_named(f"decimal_{type.scale}")


def _reason(type: pa.DataType) -> str:
    """Return the reason why a type has no type class, as text for users."""
    if t.is_struct(type):
        return "a struct has no values itself; its fields have statistics"
    if t.is_map(type):
        return "a map has no values itself; its keys and values have statistics"
    if t.is_nested(type) and not t.is_union(type):
        return "a list has no values itself; its elements have statistics"
    return f"{type} is not a type that values are profiled of"
