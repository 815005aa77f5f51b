"""Column statistics of Arrow arrays in plain Python, to compare with the truth files of real tables.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.

A truth file has the recorded statistics of one table in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from metastore_assets.formats import Fragment, Snapshot


@dataclass
class ColumnSummary:
    rows: int
    null_count: int
    distinct_count: int | None = None
    nan_count: int | None = None
    minimum: Any = None
    maximum: Any = None


def read_columns(snapshot: Snapshot, fragments: Iterable[Fragment] | None = None) -> dict[str, list[Any]]:
    """Read the columns of the fragments as plain Python values, by column name.

    The default is all fragments of the snapshot. Also check each fragment's row count, and the types and validity of
    its arrays.
    """
    columns: dict[str, list[Any]] = {field.name: [] for field in snapshot.schema}
    for fragment in snapshot.fragments if fragments is None else fragments:
        with fragment.source.open() as reader:
            assert fragment.row_count in (None, reader.row_count)
            for field in snapshot.schema:
                chunks = list(reader.read(field))
                for chunk in chunks:
                    assert chunk.type == field.type
                    chunk.validate(full=True)
                assert sum(map(len, chunks)) == reader.row_count
                columns[field.name] += [value for chunk in chunks for value in _plain_values(chunk)]
    return columns


def read_rows(snapshot: Snapshot, fragments: Iterable[Fragment] | None = None) -> list[tuple[Any, ...]]:
    """Read the rows of the fragments as tuples in the order of the schema's columns.

    The default is all fragments of the snapshot.
    """
    return list(zip(*read_columns(snapshot, fragments).values(), strict=True))


class Micros(int):
    """A timestamp in microseconds since 1970, which Python's datetime cannot represent."""


def _plain_values(chunk: pa.Array) -> list[Any]:
    """Return values as Python objects.

    Timestamps that Python cannot represent are returned as `Micros`.
    """
    if isinstance(chunk, pa.StructArray):
        children = {field.name: _plain_values(chunk.field(index)) for index, field in enumerate(chunk.type)}
        rows = zip(*children.values(), strict=True)
        valid = chunk.is_valid().to_pylist()
        return [dict(zip(children, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]
    try:
        return chunk.to_pylist()
    except OverflowError:
        numbers = chunk.cast(pa.timestamp("us", chunk.type.tz)).cast(pa.int64()).to_pylist()
        return [None if number is None else Micros(number) for number in numbers]


def summarize_columns(name: str, type_: pa.DataType, values: list[Any]) -> dict[str, ColumnSummary]:
    """Return the statistics of a column and of all columns nested in it, by path.

    Paths are, for example, `m` and `m.key`.

    Args:
        name: The path of the column.
        type_: Its type.
        values: Its values, as `read_columns` returns them.
    """
    nulls = sum(value is None for value in values)
    if pa.types.is_struct(type_):
        result = {name: _nested_summary(values, nulls)}
        for field in type_:
            below = [None if value is None else value[field.name] for value in values]
            result |= summarize_columns(f"{name}.{field.name}", field.type, below)
        return result
    if pa.types.is_list(type_):
        below = [item for value in values if value is not None for item in value]
        return {name: _nested_summary(values, nulls)} | summarize_columns(f"{name}.element", type_.value_type, below)
    if pa.types.is_map(type_):
        pairs = [pair for value in values if value is not None for pair in value]
        return (
            {name: _nested_summary(values, nulls)}
            | summarize_columns(f"{name}.key", type_.key_type, [key for key, _ in pairs])
            | summarize_columns(f"{name}.value", type_.item_type, [item for _, item in pairs])
        )
    return {name: _flat_summary(len(values), nulls, [value for value in values if value is not None])}


def _nested_summary(values: list[Any], nulls: int) -> ColumnSummary:
    return ColumnSummary(len(values), nulls, 0 if nulls == len(values) else None)


def _flat_summary(rows: int, nulls: int, present: list[Any]) -> ColumnSummary:
    """Return the statistics of a column from its row count, null count and non-null values."""
    nans = sum(isinstance(value, float) and math.isnan(value) for value in present)
    keys = [_key(value) for value in present if not (isinstance(value, float) and math.isnan(value))]
    distinct = len(set(keys)) + bool(nans)
    floats = any(isinstance(value, float) for value in present)
    if not keys:
        return ColumnSummary(rows, nulls, distinct, nans if floats else None)
    return ColumnSummary(
        rows, nulls, distinct, nans if floats else None, _plain(_value(min(keys))), _plain(_value(max(keys)))
    )


def _key(value: Any) -> Any:
    if isinstance(value, str):
        return ("text", value.encode())
    if isinstance(value, float):
        return value + 0.0
    return value


def _value(key: Any) -> Any:
    return key[1].decode() if isinstance(key, tuple) else key


def _plain(value: Any) -> Any:
    """Return a value as the truth files, which are JSON, store it.

    For example, dates and large integers are texts.
    """
    if isinstance(value, Micros):
        return _micros_text(value)
    if isinstance(value, datetime):
        naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return naive.isoformat(timespec="microseconds")
    if isinstance(value, time):
        return f"T{value.isoformat(timespec='microseconds')}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return str(value)
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"x:{value.hex()}"
        return text if text.isprintable() else f"x:{value.hex()}"
    return value


def _micros_text(value: int) -> str:
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value)
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    except OverflowError:
        return f"us:{int(value)}"
