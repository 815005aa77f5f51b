"""Casts of columns in data files to the types of the table's schema.

Nested fields are matched by name or by field id. A value that does not fit into its new type is an error, except that
timestamps are truncated from nanoseconds to microseconds.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from metastore_assets.formats.base import CONVERSION, INITIAL_DEFAULT
from metastore_assets.formats.values import Constant, repeat_constant
from metastore_assets.formats.variants import TYPED_VALUE, VARIANT, assemble_variants
from metastore_assets.iso8601 import TICKS
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError
from metastore_assets.values.columns import FIELD_ID, field_columns
from metastore_assets.values.types import is_byte_string, is_text

PARQUET_FIELD_ID = b"PARQUET:field_id"
_WITHHELD = b"withheld"
_TIME = pa.time64("us")
_DAY_SECONDS = 24 * 60 * 60
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def identity(field: pa.Field) -> str:
    """Return the identity of a field of the table's schema: its field id; without one, its name.

    The field id is the value of the metadata key `FIELD_ID`. It does not change when the field is renamed. For fields
    of data files, see `FieldMatcher.identity`.
    """
    value = (field.metadata or {}).get(FIELD_ID)
    return field.name if value is None else value.decode()


def set_default(field: pa.Field, value: pa.Scalar) -> pa.Field:
    """Return the field with a default.

    The default is the field's value in files that lack the field.

    Args:
        field: a field of the table's schema.
        value: a scalar of the field's type.
    """
    batch = pa.record_batch([pa.repeat(value, 1)], ["default"])
    return field.with_metadata({**(field.metadata or {}), INITIAL_DEFAULT: b64encode(batch.serialize().to_pybytes())})


def mark_floats(field: pa.Field) -> pa.Field:
    """Return a field that is or contains 32-bit floats, marked with the metadata key `CONVERSION`.

    Other fields are returned unchanged. The mark is for formats that convert floats to doubles by their texts. There, a
    change of a column's type changes its values: the double 0.1 is not equal to the float 0.1.
    """
    floats = [column.field_id for column in field_columns(field) if pa.types.is_float32(column.type)]
    if not floats:
        return field
    return field.with_metadata({**(field.metadata or {}), CONVERSION: json.dumps(["floats", *floats])})


def withhold_default_values(field: pa.Field) -> pa.Field:
    """Return a copy of a field with the text `withheld` in place of its default and nested defaults.

    If the configuration hides the values of a column, a stored schema has such a copy of the column, because its
    defaults would reveal values.
    """
    metadata = field.metadata or {}
    if INITIAL_DEFAULT in metadata:
        field = field.with_metadata({**metadata, INITIAL_DEFAULT: _WITHHELD})
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([withhold_default_values(child) for child in kind]))
    if pa.types.is_map(kind):
        parts = withhold_default_values(kind.key_field), withhold_default_values(kind.item_field)
        return field.with_type(pa.map_(*parts, keys_sorted=kind.keys_sorted))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(withhold_default_values(kind.value_field)))
    return field


def restore_default_values(field: pa.Field, schema: pa.Schema) -> pa.Field:
    """Return a field with the defaults that `withhold_default_values` replaced.

    They come from the table's schema.

    If the schema has no field of the same identity and type, the field is returned unchanged.
    """
    for candidate in schema:
        if identity(candidate) == identity(field) and candidate.type == field.type:
            return candidate.with_name(field.name)
    return field


def field_default(field: pa.Field) -> Constant:
    """Return the default of a field, which is its value in files that lack the field.

    The result is null if the field has no default. Raises ArrowInvalid if the default is not stored because the column
    is hidden (see `withhold_default_values`).
    """
    data = (field.metadata or {}).get(INITIAL_DEFAULT)
    if data is None:
        return pa.nulls(1, field.type)
    if data == _WITHHELD:
        raise pa.ArrowInvalid(
            f"the default of the column {field.name!r} is not stored because its values are hidden, "
            "and the file lacks the column"
        )
    schema = pa.schema([pa.field("default", field.type)])
    return pa.ipc.read_record_batch(pa.py_buffer(b64decode(data)), schema).column(0)


class FieldMatcher:
    """Rules to match the fields of data files with those of the table, and to cast leaf values.

    `cast_to_schema` applies them.
    """

    def __init__(
        self,
        *,
        by_id: bool = False,
        ignore_case: bool = False,
        longs_are_times: bool = False,
        convert: Callable[[pa.Array, pa.DataType], pa.Array] | None = None,
    ) -> None:
        """Create the rules.

        Args:
            by_id: match fields by Parquet field id instead of name. A field of the table that has no field id is
                still matched by name.
            ignore_case: match without regard to case if no name is equal and the match is unique.
            longs_are_times: if the table's type is a time, take 64-bit integers as microseconds since midnight.
            convert: casts arrays of leaf types; by default `cast_leaf`.
        """
        self.convert = convert or cast_leaf
        self._by_id = by_id
        self._ignore_case = ignore_case
        self.longs_are_times = longs_are_times

    def identity(self, stored_field: pa.Field) -> str | None:
        """Return the identity of a field of a data file: its Parquet field id or its name.

        If the matcher compares ids (`by_id`), the result is the Parquet field id; None if the field has none. Otherwise
        the result is the name. For fields of the table, see the function `identity`.
        """
        if not self._by_id:
            return stored_field.name
        value = (stored_field.metadata or {}).get(PARQUET_FIELD_ID)
        return None if value is None else value.decode()

    def index_finder(self, stored_fields: Sequence[pa.Field]) -> Callable[[pa.Field], int | None]:
        """Return a function that maps a table's field to the index of its match in `stored_fields`, or None.

        The function raises ArrowInvalid if several fields match.
        """
        by_name = _indices(field.name for field in stored_fields)
        by_id = _indices(self.identity(field) for field in stored_fields) if self._by_id else {}
        by_folded = _indices(field.name.lower() for field in stored_fields) if self._ignore_case else {}

        def find_index(field: pa.Field) -> int | None:
            """Return the index of the match of `field`; None if there is none.

            Raises ArrowInvalid if several match.
            """
            key = identity(field)
            # The fields inside a variant have no ids, even if the column has one: they match by name.
            has_id = self._by_id and FIELD_ID in (field.metadata or {})
            indices = (by_id if has_id else by_name).get(key, [])
            if len(indices) > 1:
                raise pa.ArrowInvalid(f"two of its fields are named {key!r}")
            if not indices and not has_id and len(folded_indices := by_folded.get(key.lower(), [])) == 1:
                indices = folded_indices
            return indices[0] if indices else None

        return find_index


def _indices(keys: Iterable[str | None]) -> dict[str | None, list[int]]:
    indices: dict[str | None, list[int]] = {}
    for index, key in enumerate(keys):
        indices.setdefault(key, []).append(index)
    return indices


def canonical_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which readers return columns of the type `type_`.

    Dictionaries, views, large types, and extension types other than UUID become plain types. Decimals of up to 64 bits
    become `decimal128`, and lists of all layouts become `list`. A list of structs (key, value) becomes a map if its
    element field has the name `key_value` or `map`.
    """
    if type_ == pa.bool8():
        return pa.bool_()
    if isinstance(type_, pa.BaseExtensionType):
        return type_ if type_ == pa.uuid() else canonical_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return canonical_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_decimal(type_) and type_.bit_width < 128:
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(canonical_type(type_.key_type), canonical_type(type_.item_type))
    if _is_list_of_entries(type_):
        entry = type_.value_type
        return pa.map_(canonical_type(entry.field(0).type), canonical_type(entry.field(1).type))
    if pa.types.is_nested(type_) and type_.num_fields == 1:
        return pa.list_(pa.field("element", canonical_type(type_.field(0).type)))
    return type_


def cast_to_schema(array: pa.Array, target: pa.DataType, matcher: FieldMatcher) -> pa.Array:
    """Cast an array of a data file to a type of the table's schema.

    Args:
        array: values of a column, of any type.
        target: the type in the table's schema. Nested fields that the array lacks get their defaults; fields that
            `target` lacks are dropped. If `target` is the null type, all values become null.
        matcher: the rules that match nested fields.

    Raises:
        ArrowInvalid: a value does not fit, or the types are incompatible.
        UnsupportedError: a time is no time of a day, such as 24:00:00. This error is a subclass of ArrowInvalid.
    """
    if array.type == target and not pa.types.is_nested(target):
        return _check_times(array)
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_null(target) or pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(target, pa.BaseExtensionType) and not is_text(array.type):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(target, cast_to_schema(storage, target.storage_type, matcher))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage.cast(pa.bool_()) if array.type == pa.bool8() else array.storage
    if pa.types.is_struct(target):
        return _cast_struct(array, target, matcher)
    if pa.types.is_map(target):
        return _cast_map(array, target, matcher)
    if pa.types.is_list(target):
        return _cast_list(array, target, matcher)
    if matcher.longs_are_times and target == _TIME and array.type == pa.int64():
        return _check_times(array.view(_TIME))
    return matcher.convert(_check_times(array), target)


def _cast_struct(array: pa.Array, target: pa.StructType, matcher: FieldMatcher) -> pa.Array:
    """Cast structs, field by field.

    Fields that the array lacks get their defaults. Raises ArrowInvalid if the array is not of structs.
    """
    if not pa.types.is_struct(array.type):
        raise _type_error(array.type, target)
    fields = list(target)
    if [field.name for field in fields] == VARIANT.names and array.type.get_field_index(TYPED_VALUE) >= 0:
        array = assemble_variants(array)
    find_index = matcher.index_finder(list(array.type))
    children = []
    for field in fields:
        index = find_index(field)
        if index is None:
            children.append(repeat_constant(field_default(field), len(array)))
        else:
            children.append(cast_to_schema(array.field(index), field.type, matcher))
    mask = array.is_null() if array.null_count else None
    if not fields:
        return empty_structs(array.is_valid(), target)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def empty_structs(is_valid: pa.BooleanArray, type_: pa.StructType) -> pa.Array:
    """Return an array of structs that have no fields.

    A struct is null where `is_valid` is false.
    """
    return pa.Array.from_buffers(type_, len(is_valid), [is_valid.buffers()[1]], offset=is_valid.offset)


def _cast_map(array: pa.Array, target: pa.MapType, matcher: FieldMatcher) -> pa.Array:
    """Cast the keys and values of maps.

    Raises ArrowInvalid if the array is not of maps.
    """
    if _is_list_of_entries(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        entries, offsets = array.flatten(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        mask = array.is_null() if array.null_count else None
        keys, items = (pc.struct_field(entries, [index]) for index in range(2))
        array = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)
    if not pa.types.is_map(array.type):
        raise _type_error(array.type, target)
    offsets = array.offsets.to_numpy()
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = cast_to_schema(array.keys.slice(start, length), target.key_type, matcher)
    items = cast_to_schema(array.items.slice(start, length), target.item_type, matcher)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets - start, pa.int32()), keys, items, type=target, mask=mask)


def _cast_list(array: pa.Array, target: pa.ListType, matcher: FieldMatcher) -> pa.Array:
    """Cast the elements of lists of any kind, including fixed-size lists.

    Raises ArrowInvalid if the array is not of lists.
    """
    if not _is_list_like(array.type):
        raise _type_error(array.type, target)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = cast_to_schema(array.flatten(), target.value_type, matcher)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=target, mask=mask)


def _check_times(array: pa.Array) -> pa.Array:
    """Return the array unchanged.

    Raises UnsupportedError if it has a time before 0:00 or from 24:00 on.

    DuckDB and PostgreSQL can write 24:00:00. Libraries that do not know this time would take it for another one.
    """
    if pa.types.is_time(array.type):
        unit = array.type.unit
        min_max = pc.min_max(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()))
        minimum, maximum = min_max["min"].as_py() or 0, min_max["max"].as_py() or 0
        if minimum < 0 or maximum >= _DAY_SECONDS * TICKS[unit]:
            ticks = minimum if minimum < 0 else maximum
            raise UnsupportedError(
                f"{ticks} {_UNIT_NAMES[unit]} since midnight are no time of a day; write them as text or as intervals"
            )
    return array


def cast_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array of a leaf type to another leaf type.

    Raises ArrowInvalid if a value does not fit or the types are incompatible. Nanoseconds are truncated to
    microseconds.
    """
    stored_type = array.type
    if not any(is_source(stored_type) for is_source in _SOURCES[type_kind(target)]):
        raise _type_error(stored_type, target)
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(stored_type):
        return _cast_timestamp(array, target)
    result = pc.cast(array, target)
    if pa.types.is_floating(target) and pa.types.is_floating(stored_type) and target.bit_width < stored_type.bit_width:
        # Arrow rounds floating-point numbers without an error.
        same = pc.or_(pc.equal(result.cast(stored_type), array), pc.is_nan(array))
        if pc.any(pc.invert(same)).as_py():
            raise pa.ArrowInvalid(f"a {stored_type} does not fit into {target}")
    return result


def _cast_timestamp(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Cast timestamps to the target's unit, and attach its time zone without shifting the times."""
    # The table's type says whether timestamps are in UTC; the flag in files is often missing (INT96).
    naive = array.view(pa.timestamp(array.type.unit))
    if array.type.unit == "ns" and target.unit == "us":
        # Engines truncate nanoseconds in files when the table has microseconds.
        naive = pc.floor_temporal(naive, unit="microsecond")
    return pc.cast(naive, pa.timestamp(target.unit)).view(target)


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def _is_bytes(type_: pa.DataType) -> bool:
    """Return True if the type is one of Arrow's text or binary types."""
    return is_byte_string(type_) or bool(pa.types.is_fixed_size_binary(type_))


_SOURCES: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "number": (_is_number,),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp, pa.types.is_date),
    "time": (pa.types.is_time,),
    # A partition column is text if folders hold its values, and may be of any type in other files.
    "text": (_is_bytes, _is_number, pa.types.is_boolean, pa.types.is_temporal),
    "bytes": (_is_bytes,),
    "other": (),
}
"""For each kind of target type, predicates of the types in files that may be cast to it. Arrow alone would also parse
numbers in texts."""


def type_kind(type_: pa.DataType) -> str:
    """Return the kind of a type in the table's schema.

    It is `number`, `text`, `bytes`, `boolean`, `date`, `timestamp`, `time`, or `other`.
    """
    if _is_number(type_):
        return "number"
    if pa.types.is_string(type_):
        return "text"
    if _is_bytes(type_):
        return "bytes"
    for kind in ("boolean", "date", "timestamp", "time"):
        if getattr(pa.types, f"is_{kind}")(type_):
            return kind
    return "other"


def _is_list_of_entries(type_: pa.DataType) -> bool:
    """Return True if a type is a list of structs (key, value) that stands for a map.

    Some Parquet files annotate a map so that Arrow reads it as such a list.
    """
    if not pa.types.is_list(type_) or not pa.types.is_struct(type_.value_type):
        return False
    names = [field.name for field in type_.value_type]
    return type_.value_field.name in ("key_value", "map") and names == ["key", "value"]


def _is_list_like(type_: pa.DataType) -> bool:
    """Return True if the type is one of Arrow's list types.

    The map type is not one of them.
    """
    return (
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _type_error(stored_type: pa.DataType, target: pa.DataType) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"the file stores {stored_type}, but the table has {target}")
