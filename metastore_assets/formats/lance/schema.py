"""The schema of a Lance table in Arrow, with the field ids of the manifest at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.formats.schema_casting import canonical_type

_BLOB = b"lance-encoding:blob"
_BLOB_EXTENSION = "lance.blob.v2"


def arrow_fields(schema: pa.Schema, fields: Sequence[Any], key: bytes) -> list[pa.Field]:
    """Return the columns of a table as Arrow fields with their field ids.

    Args:
        schema: the columns in the types that Lance stores.
        fields: the same columns as pylance's `LanceField`, which have the ids.
        key: the metadata key of the ids: FIELD_ID for the table's schema, PARQUET_FIELD_ID for the columns of a file.
    """
    return [_field(stored_field, field, key) for stored_field, field in zip(schema, fields, strict=True)]


def field_ids(field: Any) -> Iterator[int]:
    """Yield the ids of a `LanceField` and of all fields inside it."""
    yield field.id()
    for child in field.children():
        yield from field_ids(child)


def is_blob(field: pa.Field) -> bool:
    """Return True if a stored field is a blob, whose values are outside of the column's pages."""
    return _BLOB in (field.metadata or {}) or getattr(field.type, "extension_name", "") == _BLOB_EXTENSION


def has_nested_blob(type_: pa.DataType) -> bool:
    """Return True if a stored type has a field, at any depth, that is a blob."""
    children = [type_.field(index) for index in range(type_.num_fields)]
    return any(is_blob(child) or has_nested_blob(child.type) for child in children)


def _field(stored_field: pa.Field, field: Any, key: bytes) -> pa.Field:
    type_ = pa.binary() if is_blob(stored_field) else _read_type(stored_field.type, field.children(), key)
    # Nullable, because a column can be added without values.
    return pa.field(stored_field.name, type_, metadata={key: str(field.id())})


def _read_type(stored_type: pa.DataType, children: Sequence[Any], key: bytes) -> pa.DataType:
    """Return the Arrow type in which a column with the type `stored_type` is read."""
    if pa.types.is_date64(stored_type):
        return pa.date32()
    if isinstance(stored_type, pa.BaseExtensionType) or not pa.types.is_nested(stored_type):
        return canonical_type(stored_type)
    if pa.types.is_struct(stored_type):
        return pa.struct([_field(child, field, key) for child, field in zip(stored_type, children, strict=True)])
    if pa.types.is_map(stored_type):
        # The only child of a map is a struct of key and value.
        item = children[0].children()[1]
        return pa.map_(canonical_type(stored_type.key_type), _read_type(stored_type.item_type, item.children(), key))
    nested_fields = children[0].children() if children else ()  # A list of fixed size may have no child.
    return pa.list_(pa.field("element", _read_type(stored_type.field(0).type, nested_fields, key)))
