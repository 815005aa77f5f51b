"""Checks that hudi-rs merges records by their ordering values as Hudi does.

If a table merges by ordering values, the record with the greatest one wins among records with the same key. hudi-rs
compares two values only if they have the same type, and only for some types. Otherwise it takes the newest record
without an error. It takes a null for zero.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from metastore_assets.formats.hudi.log import (
    AVRO_BLOCK,
    DELETE_BLOCK,
    PARQUET_BLOCK,
    SCHEMA_HEADER,
    LogBlock,
    read_blocks,
)
from metastore_assets.formats.hudi.transcode import encode_avro_block
from metastore_assets.formats.readers.avro import read_avro_records
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

_KINDS = {
    "int": "integer",
    "long": "integer",
    "float": "float",
    "double": "float",
    "string": "text",
    "boolean": "boolean",
}
_TIMES = ("date", "timestamp-millis", "timestamp-micros")
_WRAPPERS: Mapping[str, Any] = {
    "Boolean": "boolean",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Bytes": "bytes",
    "String": "string",
    "Date": "int",
    "Decimal": "bytes",
    "TimeMicros": "long",
    "TimestampMicros": "long",
}
"""The types of ordering values in delete blocks, in the order of Hudi's schema, by the type of the value in Avro."""
_DELETED_KINDS: Mapping[str, Collection[str]] = {
    "integer": ("Int", "Long"),
    "float": ("Float", "Double"),
    "text": ("String",),
    "boolean": ("Boolean",),
    "date": ("Date", "Int"),
    "timestamp-millis": ("Long",),
    "timestamp-micros": ("Long", "TimestampMicros"),
    "decimal": ("Decimal",),
}
"""For each kind of ordering values, the types in delete blocks whose values are comparable with them."""
_DELETES = {
    "type": "record",
    "name": "HoodieDeleteRecordList",
    "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [
            {"name": "recordKey", "type": ["null", "string"]},
            {"name": "partitionPath", "type": ["null", "string"]},
            {"name": "orderingVal", "type": ["null", *(
                # The name of the field shows the type of a decoded value.
                {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": name, "type": type_}]}
                for name, type_ in _WRAPPERS.items()
            )]},
        ],
    }}}],
}  # fmt: skip
"""The schema of the content of delete blocks."""
_KEY = "_hoodie_record_key"


@lru_cache(maxsize=8)
def ordering_kind(avro_schema: str, ordering: tuple[str, ...]) -> str | None:
    """Return the kind of a table's ordering values, such as "integer".

    Only values of one kind are comparable.

    Args:
        avro_schema: the table's schema as Avro JSON.
        ordering: the ordering fields of the table.

    Returns:
        The kind. None if records have no ordering values: `ordering` is empty, or the schema lacks the only field in
        it.

    Raises:
        ValueError: hudi-rs does not compare these values as Hudi does, for example if there are several fields.
    """
    if len(ordering) > 1:
        raise ValueError(f"several ordering fields ({', '.join(ordering)})")
    types = {field["name"]: field["type"] for field in json.loads(avro_schema)["fields"]}
    for name in ordering:
        if name in types:
            if kind := _kind(types[name]):
                return kind
            raise ValueError(f"the ordering field {name!r} of the type {json.dumps(types[name])}")
        if name.partition(".")[0] in types:
            raise ValueError(f"the nested ordering field {name!r}")
        if similar := [column for column in types if column.lower() == name.lower()]:
            raise ValueError(f"the ordering field {name!r}, while the column is named {similar[0]!r}")
    return None


def check_ordering_values(base: str, logs: Iterable[str], field: str, kind: str, instants: Collection[str]) -> None:
    """Raise UnsupportedError if Hudi and hudi-rs may merge the records of a file slice in different ways.

    Args:
        base: path of the base file; empty if there is none, or if it is not a Parquet file.
        logs: paths of the log files.
        field: the ordering field.
        kind: the result of `ordering_kind` for the table's schema.
        instants: the instants of the writes to merge. Log blocks of other instants are ignored.
    """
    has_negative = False
    for block, content in _blocks(logs, instants):
        if block.kind == DELETE_BLOCK:
            _check_deletes(_deletes(content), field, kind)
            continue
        values = _column(content, block, field, kind)
        if values.null_count:
            raise UnsupportedError(
                f"log blocks with nulls in the ordering field {field!r} are not supported, because versions of "
                "Hudi merge them in different ways; compact the table with Hudi"
            )
        is_number = pa.types.is_integer(values.type)
        has_negative = has_negative or bool(is_number and (pc.min(values).as_py() or 0) < 0)
    if has_negative and base and _has_nulls(base, field):
        raise UnsupportedError(
            f"nulls in the ordering field {field!r} of a base file whose log files have negative values there are not "
            "supported, because versions of Hudi merge them in different ways; compact the table with Hudi"
        )


def check_concurrent_values(logs: Iterable[str], field: str, kind: str, instants: Collection[str]) -> None:
    """Raise UnsupportedError if two writes changed the same record, and their order matters.

    It matters if both gave the record the same ordering value, or if their ordering values cannot be compared. The
    order of concurrent writes is not defined. Log files without record keys raise UnsupportedError, too.

    The arguments are those of `check_ordering_values`. Call that function first: this one relies on its checks.
    """
    writes: dict[tuple[str, object], str] = {}
    keys: dict[str, set[object]] = {}
    for block, content in _blocks(logs, instants):
        if block.kind == DELETE_BLOCK:
            changes = [(key, _comparable(value, kind)) for key, value in _deletes(content)]
        else:
            keys_of_block, values = _column(content, block, _KEY, "text"), _column(content, block, field, kind)
            if keys_of_block.null_count:
                raise UnsupportedError(
                    f"log files of concurrent writes without values of {_KEY!r} are not supported, because their order "
                    "is not defined; compact the table with Hudi"
                )
            pairs = zip(keys_of_block.to_pylist(), values.to_pylist(), strict=True)
            changes = [(key, _comparable({field: value}, kind)) for key, value in pairs]
        for key, value in changes:
            other_values = {other for other in keys.get(key, ()) if writes[key, other] != block.instant}
            if other_values and (value is None or None in other_values or value in other_values):
                raise UnsupportedError(
                    f"log files of concurrent writes with equal values of the ordering field {field!r}, as for the "
                    f"record {key!r}, are not supported: their order is not defined; compact the table with Hudi"
                )
            keys.setdefault(key, set()).add(value)
            writes[key, value] = block.instant


def _blocks(logs: Iterable[str], instants: Collection[str]) -> Iterator[tuple[LogBlock, bytes]]:
    """Yield each block of rows or deletes of the given instants, with its content."""
    for path in logs:
        with pa.memory_map(path) as source:
            for block in read_blocks(pa.OSFile(path)):
                if block.kind in (AVRO_BLOCK, DELETE_BLOCK, PARQUET_BLOCK) and block.instant in instants:
                    start, length = block.content_range
                    yield block, source.read_at(length, start)


def _deletes(content: bytes) -> list[tuple[str, Mapping[str, Any] | None]]:
    """Return the record key and the ordering value of each delete in a block, such as ("a", {"Long": 3})."""
    # The content is a version, a length, and one Avro record. A block of rows also has the number of its rows.
    block = content[:4] + (1).to_bytes(4, "big") + content[4:]
    (delete_list,) = read_avro_records(encode_avro_block(block, json.dumps(_DELETES)))
    return [(str(entry["recordKey"]), entry["orderingVal"]) for entry in delete_list["deleteRecordList"]]


def _check_deletes(deletes: Sequence[tuple[str, Mapping[str, Any] | None]], field: str, kind: str) -> None:
    """Raise UnsupportedError if a delete's ordering value has another type than the ordering field.

    Args:
        deletes: the result of `_deletes`.
        field: the name of the ordering field.
        kind: the kind of the field's values, such as `integer`; see `ordering_kind`.
    """
    allowed_types = _DELETED_KINDS[kind.partition(" ")[0]]
    types = {name for _, value in deletes if value is not None and value != {"Int": 0} for name in value}
    for name in sorted(types.difference(allowed_types)):
        raise UnsupportedError(
            f"delete blocks with ordering values of the type {name} are not supported, because the ordering field "
            f"{field!r} of the table has values of the kind {kind!r}; compact the table with Hudi"
        )


def _comparable(value: Mapping[str, Any] | None, kind: str) -> object:
    """Return an ordering value as a text for comparison with another one: `{"Long": 3}` becomes `"3"`.

    The result is None if the value cannot be compared: for decimals, for None, and for `{"Int": 0}`. Hudi writes
    `{"Int": 0}` for deletes without an ordering value.

    Args:
        value: a dict with a single item, the ordering value. Its key matters only in `{"Int": 0}`.
        kind: the kind of the table's ordering values; see `ordering_kind`.
    """
    if value is None or value == {"Int": 0} or kind.startswith("decimal"):
        return None  # Deletes without an ordering value have none or zero.
    (number,) = value.values()
    return repr(number)


def _column(content: bytes, block: LogBlock, field: str, kind: str) -> pa.ChunkedArray:
    """Return the values of the column `field` in a log block of rows.

    Dates and times become integers; other values are returned as stored. If the block lacks the column, the result is
    a single null, however many rows there are.

    Raises UnsupportedError if the values are not of `kind`, such as `integer`; see `ordering_kind`.
    """
    schema = json.loads(block.headers[SCHEMA_HEADER])
    types = {part["name"]: part["type"] for part in schema["fields"]}
    if field not in types:
        return pa.chunked_array([pa.nulls(1)])
    if _kind(types[field]) != kind:
        raise UnsupportedError(
            f"log blocks whose ordering field {field!r} has the type {json.dumps(types[field])} are not supported, "
            f"because that of the table has values of the kind {kind!r}; compact the table with Hudi"
        )
    if block.kind == PARQUET_BLOCK:
        file = open_parquet(pa.BufferReader(content))
        column = file.read([field]).column(0)
        return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else _days_as_integers(column)
    stored_type = _physical(types[field])
    writer = schema | {
        "fields": [part | {"type": stored_type} if part["name"] == field else part for part in schema["fields"]]
    }
    reader = schema | {"fields": [part for part in writer["fields"] if part["name"] == field]}
    records = read_avro_records(encode_avro_block(content, block.headers[SCHEMA_HEADER]), lambda _: (writer, reader))
    return pa.chunked_array([pa.array([record[field] for record in records])])


def _days_as_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _has_nulls(base: str, field: str) -> bool:
    with pa.OSFile(base, "rb") as source:
        file = open_parquet(source)
        return field not in file.schema_arrow.names or file.read([field]).column(0).null_count > 0


def _kind(type_: object) -> str | None:
    """Return the kind of an Avro type's values, such as "integer".

    The result is None if hudi-rs does not compare such values.
    """
    if isinstance(type_, list):
        branches = [branch for branch in type_ if branch != "null"]
        return _kind(branches[0]) if len(branches) == 1 else None
    if not isinstance(type_, Mapping):
        return _KINDS.get(str(type_))
    logical = type_.get("logicalType")
    if logical == "decimal":
        return f"decimal with {type_.get('scale', 0)} digits after the point"
    if logical is not None:
        unzoned_name = str(logical).removeprefix("local-")  # Numbers with and without a zone are the same.
        return unzoned_name if unzoned_name in _TIMES else None
    return _kind(type_["type"])


def _physical(type_: Any) -> Any:
    """Return an Avro type without its logical type, so that its values are read as stored."""
    if isinstance(type_, list):
        return [_physical(branch) for branch in type_]
    return {key: part for key, part in type_.items() if key != "logicalType"} if isinstance(type_, Mapping) else type_
