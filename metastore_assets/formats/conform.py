"""Give the arrays of a data file the type that the table declares: by identity at every depth, and losslessly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.formats.base import FIELD_ID

PARQUET_FIELD_ID = b"PARQUET:field_id"


def identity(field: pa.Field) -> str:
    """Stable identity of a field of a table's schema: what FIELD_ID says, else its name."""
    value = (field.metadata or {}).get(FIELD_ID)
    return field.name if value is None else value.decode()


class Matcher:
    """Finds the field of a data file that holds a field of the table."""

    def __init__(self, *, by_id: bool = False, ignore_case: bool = False) -> None:
        self._by_id = by_id
        self._ignore_case = ignore_case

    def identity(self, stored: pa.Field) -> str | None:
        """The identity under which a data file holds a field; None when the file does not say."""
        if not self._by_id:
            return stored.name
        value = (stored.metadata or {}).get(PARQUET_FIELD_ID)
        return None if value is None else value.decode()

    def find(self, wanted: pa.Field, stored: Sequence[pa.Field]) -> int | None:
        """Index of the stored field that holds `wanted`, or None when the file was written without it."""
        key = identity(wanted)
        identities = [self.identity(field) for field in stored]
        if key in identities:
            return identities.index(key)
        if self._ignore_case and not self._by_id:
            folded = [index for index, name in enumerate(identities) if name and name.lower() == key.lower()]
            if len(folded) == 1:
                return folded[0]
        return None


def conform(array: pa.Array, wanted: pa.DataType, matcher: Matcher) -> pa.Array:
    """`array` as the type `wanted`. Fields that the file lacks are null; fields that the table lacks are left out.

    Raises ArrowInvalid when a value does not fit, ArrowNotImplementedError when the types have nothing in common.
    """
    if array.type == wanted and not pa.types.is_nested(wanted):
        return array
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_null(wanted) or pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(wanted, conform(storage, wanted.storage_type, matcher))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(wanted):
        return _conform_struct(array, wanted, matcher)
    if pa.types.is_map(wanted):
        return _conform_map(array, wanted, matcher)
    if pa.types.is_list(wanted):
        return _conform_list(array, wanted, matcher)
    return _conform_leaf(array, wanted)


def _conform_struct(array: pa.Array, wanted: pa.StructType, matcher: Matcher) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _unlike(array.type, wanted)
    stored = list(array.type)
    fields = list(wanted)
    children = []
    for field in fields:
        index = matcher.find(field, stored)
        if index is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(conform(array.field(index), field.type, matcher))
    mask = array.is_null() if array.null_count else None
    if not fields:
        return pa.array([None if null else {} for null in array.is_null().to_pylist()], wanted)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _conform_map(array: pa.Array, wanted: pa.MapType, matcher: Matcher) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _unlike(array.type, wanted)
    offsets = array.offsets.to_numpy()
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = conform(array.keys.slice(start, length), wanted.key_type, matcher)
    items = conform(array.items.slice(start, length), wanted.item_type, matcher)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets - start, pa.int32()), keys, items, type=wanted, mask=mask)


def _conform_list(array: pa.Array, wanted: pa.ListType, matcher: Matcher) -> pa.Array:
    if not _is_list_like(array.type):
        raise _unlike(array.type, wanted)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = conform(array.flatten(), wanted.value_type, matcher)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted, mask=mask)


def _conform_leaf(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_nested(array.type):
        raise _unlike(array.type, wanted)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(array.type):
        return _conform_timestamp(array, wanted)
    return pc.cast(array, wanted)


def _conform_timestamp(array: pa.Array, wanted: pa.TimestampType) -> pa.Array:
    # The declared type says whether the instants are in UTC; a file's own flag is often missing (INT96).
    naive = array.view(pa.timestamp(array.type.unit))
    if array.type.unit == "ns" and wanted.unit == "us":
        # What the table declares as microseconds has no finer part; engines drop what a file keeps of it.
        naive = pc.floor_temporal(naive, unit="microsecond")
    return pc.cast(naive, pa.timestamp(wanted.unit)).view(wanted)


def _is_list_like(type_: pa.DataType) -> bool:
    return (
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _unlike(stored: pa.DataType, wanted: pa.DataType) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"the file holds {stored} where the table has {wanted}")
