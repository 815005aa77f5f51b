"""Casts of columns to later types of the table, and checks that casts of hudi-rs keep all values."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.formats.readers.avro_schema import resolve_record_type
from metastore_assets.formats.readers.calendars import FileCalendar
from metastore_assets.formats.readers.nested_arrays import leaf_types
from metastore_assets.formats.schema_casting import canonical_type, cast_leaf, type_kind
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError
from metastore_assets.values.types import is_text


def cast_as_hudi(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array of a leaf type as Hudi does.

    A float becomes the double with the same shortest text: 0.1 stays 0.1. Raises ArrowInvalid if floats are cast to
    texts, because versions of Java format floats differently.
    """
    if array.type == pa.float32() and target == pa.float64():
        return pc.cast(pc.cast(array, pa.string()), target)
    if pa.types.is_floating(array.type) and is_text(target):
        raise pa.ArrowInvalid(
            f"the file stores {array.type}, but the table has {target}, and versions of Java format such numbers "
            "differently; rewrite the file with Hudi, by clustering for example"
        )
    return cast_leaf(array, target)


def avro_columns(avro_schema: str) -> pa.Schema:
    """Return the columns of a schema in Avro JSON.

    Raises one of `corrupt_input.CORRUPTION_ERRORS` if the schema is invalid.
    """
    return pa.schema(list(resolve_record_type(json.loads(avro_schema)).arrow))


def check_type_changes(stored_schema: pa.Schema, table: pa.Schema) -> None:
    """Raise UnsupportedError if hudi-rs might change values when it casts to the table's types.

    For some types, hudi-rs rounds values, takes microseconds for milliseconds, or returns null for a value that does
    not fit. The error is also raised for a stored column whose name differs from the table's only in case.
    """
    by_folded = {name.lower(): name for name in stored_schema.names}
    for field in table:
        index = stored_schema.get_field_index(field.name)
        if index < 0 and (similar := by_folded.get(field.name.lower())):
            raise UnsupportedError(
                f"files with a column {similar!r} are not supported together with log files, because the table has the "
                f"column {field.name!r}; compact the table with Hudi"
            )
        if index >= 0 and (change := _unsafe_change(canonical_type(stored_schema.field(index).type), field.type)):
            before, after = change
            raise UnsupportedError(
                f"files with {before} in the column {field.name!r}, which is {after} in the table, are not supported "
                "together with log files; compact the table with Hudi"
            )


def check_calendar(file: pq.ParquetFile) -> None:
    """Raise UnsupportedError if a base file has days or timestamps that hudi-rs would misread.

    These are old values, in the calendar of old Spark versions. hudi-rs reads them as Gregorian.
    """
    calendar = FileCalendar.of(file.metadata.metadata)
    if calendar.is_gregorian:
        return
    for field in file.schema_arrow:
        if any(map(pa.types.is_temporal, leaf_types(field.type))):
            for batch in file.iter_batches(columns=[field.name]):
                column = batch.column(0)
                # Unaffected arrays are returned as they are.
                if any(calendar.rebase(column, has_int96=is_int96) is not column for is_int96 in (False, True)):
                    raise UnsupportedError(
                        f"days before 15 October 1582 in Spark's legacy calendar, as in the column {field.name!r}, are "
                        "not supported together with log files; compact the table with Hudi"
                    )


def _unsafe_change(stored_type: pa.DataType, target: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """Return the first pair (stored type, target type) whose cast may change values, or None.

    Nested types are compared field by field, so the pair may be the types of a nested field.
    """
    if stored_type == target:
        return None
    if pa.types.is_struct(stored_type) and pa.types.is_struct(target):
        pairs = [
            (stored_type.field(field.name).type, field.type) for field in target if field.name in stored_type.names
        ]
    elif pa.types.is_map(stored_type) and pa.types.is_map(target):
        pairs = [(stored_type.key_type, target.key_type), (stored_type.item_type, target.item_type)]
    elif pa.types.is_list(stored_type) and pa.types.is_list(target):
        pairs = [(stored_type.value_type, target.value_type)]
    else:
        return None if _is_safe(stored_type, target) else (stored_type, target)
    return next((change for pair in pairs if (change := _unsafe_change(*pair))), None)


def _is_safe(stored_type: pa.DataType, target: pa.DataType) -> bool:
    """Return True if hudi-rs never returns wrong values when it casts one leaf type to another.

    It then casts each value as Hudi does, or raises an error.
    """
    if pa.types.is_timestamp(stored_type) and pa.types.is_timestamp(target):
        return stored_type.unit == target.unit or target.unit == "us"
    if pa.types.is_decimal(stored_type) and pa.types.is_decimal(target):
        digits = target.precision - target.scale
        return bool(stored_type.scale <= target.scale and stored_type.precision - stored_type.scale <= digits)
    if pa.types.is_integer(stored_type):
        if pa.types.is_decimal(target):
            return bool(target.precision - target.scale >= (10 if stored_type.bit_width <= 32 else 19))
        is_wider = pa.types.is_integer(target) and stored_type.bit_width <= target.bit_width
        return is_wider or pa.types.is_floating(target) or is_text(target)
    if pa.types.is_floating(stored_type):
        is_wider = pa.types.is_floating(target) and stored_type.bit_width <= target.bit_width
        return is_wider or is_text(target)
    if type_kind(stored_type) in ("text", "bytes"):
        return type_kind(target) in ("text", "bytes")
    return True
