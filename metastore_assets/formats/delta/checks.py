"""What protocol, metadata and schema in the log of a Delta table have to be like before anything in them is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore_assets.formats.metadata_json import as_integer, as_list, as_object, as_objects, as_text, check_distinct
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import FIELDS, NESTING


def check_protocol(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action `protocol`. Raises ValueError that names a key whose value is of another kind than it has to be."""
    as_integer(action.get("minReaderVersion"), "minReaderVersion", minimum=1)
    for feature in as_list(action.get("readerFeatures") or [], "readerFeatures"):
        as_text(feature, "a reader feature")
    return dict(action)


def check_table(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action `metaData`. Raises ValueError likewise."""
    as_text(action.get("schemaString"), "schemaString")
    columns = as_list(action.get("partitionColumns") or [], "partitionColumns")
    check_distinct((as_text(name, "a partition column") for name in columns), "the partition column")
    as_object(action.get("format") or {}, "format")
    for key, value in as_object(action.get("configuration") or {}, "configuration").items():
        if value is not None and not isinstance(value, str):
            as_text(value, f"the setting {key[:100]!r}")
    return dict(action)


def check_schema(schema: Any, partition_columns: tuple[str, ...]) -> dict[str, Any]:
    """A table's schema. Raises ValueError for one whose fields cannot be told apart, or that is beyond limits."""
    counted = [0]
    _check_fields(as_object(schema, "the schema").get("fields"), counted, 1)
    names = {field["name"] for field in schema["fields"]}
    for name in partition_columns:
        if name not in names:
            raise ValueError(f"the partition column {name!r} is not in it")
    return dict(schema)


def _check_fields(fields: Any, counted: list[int], depth: int) -> None:
    own = as_objects(fields, "the fields of the schema")
    # Unique whatever their case, as Delta demands.
    check_distinct((as_text(field.get("name"), "the name of a field").lower() for field in own), "a field named")
    mappings = [as_object(field.get("metadata") or {}, "the metadata of a field") for field in own]
    for key in ("delta.columnMapping.physicalName", "delta.columnMapping.id"):
        check_distinct((str(mapping[key]) for mapping in mappings if mapping.get(key) is not None), f"the {key}")
    for field in own:
        _check_type(field.get("type"), counted, depth)


def _check_type(type_: Any, counted: list[int], depth: int) -> None:
    counted[0] += 1
    check_limit(FIELDS, counted[0], "fields in a schema")
    check_limit(NESTING, depth, "types inside of each other in a schema")
    if isinstance(type_, str):
        return
    kind = as_text(as_object(type_, "the type of a field").get("type"), "the type of a field")
    if kind == "struct":
        _check_fields(type_.get("fields"), counted, depth + 1)
    for part in {"array": ("elementType",), "map": ("keyType", "valueType")}.get(kind, ()):
        _check_type(type_.get(part), counted, depth + 1)
