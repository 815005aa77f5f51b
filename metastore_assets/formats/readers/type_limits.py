"""Limits on the number, nesting and width of the types in a data file's schema."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import FIELDS, FIXED_BYTES, NESTING


def check_types(fields: Iterable[pa.Field]) -> None:
    """Raise LimitError when the columns of a file exceed the limits on types."""
    counted = 0
    for field in fields:
        counted += _checked(field.type, 1)
        check_limit(FIELDS, counted, "fields in the file's schema")


def _checked(type_: pa.DataType, depth: int) -> int:
    """Return the number of fields within a type, itself included."""
    check_limit(NESTING, depth, "types inside of each other")
    if isinstance(type_, pa.BaseExtensionType):
        return _checked(type_.storage_type, depth)
    if pa.types.is_dictionary(type_):
        return _checked(type_.value_type, depth)
    if pa.types.is_fixed_size_binary(type_):
        check_limit(FIXED_BYTES, type_.byte_width, "bytes in a value of fixed width")
    if pa.types.is_fixed_size_list(type_):
        check_limit(FIXED_BYTES, type_.list_size, "items in a list of fixed size")
    if not pa.types.is_nested(type_):
        return 1
    return 1 + sum(_checked(type_.field(index).type, depth + 1) for index in range(type_.num_fields))
