"""Parsing of type names in the configuration: those of Arrow and those of SQL engines."""

from __future__ import annotations

import difflib
import re

import pyarrow as pa

_NAMES: dict[str, pa.DataType] = {
    **dict.fromkeys(("bool", "boolean"), pa.bool_()),
    **dict.fromkeys(("int8", "tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("int16", "smallint", "short"), pa.int16()),
    **dict.fromkeys(("int32", "int", "integer"), pa.int32()),
    **dict.fromkeys(("int64", "bigint", "long"), pa.int64()),
    **dict.fromkeys(("uint8", "utinyint"), pa.uint8()),
    **dict.fromkeys(("uint16", "usmallint"), pa.uint16()),
    **dict.fromkeys(("uint32", "uint", "uinteger"), pa.uint32()),
    **dict.fromkeys(("uint64", "ubigint", "ulong"), pa.uint64()),
    **dict.fromkeys(("float32", "float", "real"), pa.float32()),
    **dict.fromkeys(("float64", "double", "double precision"), pa.float64()),
    **dict.fromkeys(("string", "text", "varchar", "char", "utf8", "str", "large_string"), pa.string()),
    **dict.fromkeys(("binary", "varbinary", "bytes", "blob", "bytea", "large_binary"), pa.binary()),
    **dict.fromkeys(("date", "date32", "date32[day]", "date64[ms]"), pa.date32()),
    **dict.fromkeys(("time", "time without time zone"), pa.time64("us")),
    **dict.fromkeys(
        ("timestamp", "datetime", "timestamp_ntz", "timestamp without time zone"),
        pa.timestamp("us"),
    ),
    **dict.fromkeys(("timestamptz", "timestamp_ltz", "timestamp with time zone"), pa.timestamp("us", "UTC")),
    **dict.fromkeys(("uuid", "extension<arrow.uuid>"), pa.uuid()),
    **{f"timestamp_{unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamptz_{unit}": pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")},
}
_DECIMAL = re.compile(r"(?:decimal(?:128|256)?|numeric|dec)\((\d+)(?:,(-?\d+))?\)")
_TEXT = re.compile(r"(?:var)?char\(\d+\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:,(?:tz=)?[\w/+:-]+)?\]", re.IGNORECASE)
_TIME = re.compile(r"time(?:32|64)?\[(s|ms|us|ns)\]")
_DIGITS = 38


def parse_type_name(name: object) -> pa.DataType:
    """Return the Arrow type for a type name such as `bigint` or `decimal(10,2)`, in upper or lower case.

    Timestamps with any time zone become UTC.

    Raises:
        ValueError: there is no such type. The message lists names.
    """
    text = re.sub(r"\s*([\[\](),])\s*", r"\1", " ".join(str(name).lower().split()))
    if text in _NAMES:
        return _NAMES[text]
    if _TEXT.fullmatch(text):
        return pa.string()
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= _DIGITS and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        raise ValueError(f"a decimal has 1 to {_DIGITS} digits, as many behind the point or fewer")
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], "UTC" if "," in text else None)
    if match := _TIME.fullmatch(text):
        return pa.time32(match[1]) if match[1] in ("s", "ms") else pa.time64(match[1])
    near = difflib.get_close_matches(text, [*_NAMES, "decimal(p,s)"], 1)
    raise ValueError(
        "no type that a column can be read in"
        + (f"; did you mean {near[0]}? There are " if near else "; there are ")
        + "boolean, int, bigint, float, double, decimal(p,s), string, binary, date, time, timestamp, "
        "timestamptz, timestamp[ns], uuid and others"
    )
