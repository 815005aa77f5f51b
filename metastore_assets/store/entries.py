"""The entries of a version as Arrow tables and back: one row per fragment, partition, node or layout column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import pyarrow as pa

from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles

_STRINGS = pa.list_(pa.string())
FILES = ("statistics", "histograms", "frequencies", "states")
_FILES = [pa.field(name, _STRINGS if name == "frequencies" else pa.string()) for name in FILES]

FRAGMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("partition_key", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("row_count", pa.int64()),
        ("layout", pa.string()),
        ("unprofiled", _STRINGS),
        ("retired", pa.int64()),
        *_FILES,
    ]
)
PARTITIONS = pa.schema(
    [
        ("key", pa.string()),
        ("content_id", pa.string()),
        ("row_count", pa.int64()),
        ("bytes", pa.int64()),
        ("fragments", pa.int64()),
        ("version", pa.int64()),
        *_FILES,
    ]
)
NODES = pa.schema([("id", pa.string()), *_FILES])
LAYOUTS = pa.schema([("layout", pa.string()), ("field_id", pa.string()), ("signature", pa.string())])

Entry = TypeVar("Entry", FragmentEntry, PartitionEntry, NodeEntry)
_SCHEMAS: dict[type, pa.Schema] = {FragmentEntry: FRAGMENTS, PartitionEntry: PARTITIONS, NodeEntry: NODES}


def entries_table(kind: type[Entry], entries: Sequence[Entry]) -> pa.Table:
    """One row per entry, in the given order; the profile's files are four columns."""
    columns = []
    for field in _SCHEMAS[kind]:
        if field.name in FILES:
            values: list[Any] = [getattr(entry.files, field.name) for entry in entries]
        else:
            values = [getattr(entry, field.name) for entry in entries]
        columns.append(_strings(values) if field.type == _STRINGS else pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=_SCHEMAS[kind])


def entries_of(kind: type[Entry], table: pa.Table) -> list[Entry]:
    """The entries of a table made by `entries_table`."""
    columns = {name: _values(table.column(name)) for name in _SCHEMAS[kind].names}
    columns["files"] = list(map(ProfileFiles, *(columns[name] for name in FILES)))
    return list(map(kind, *(columns[field.name] for field in fields(kind))))


def layouts_table(layouts: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """One row per layout and column; a layout without columns has one row without a column."""
    rows: list[tuple[str, str | None, str | None]] = []
    for layout, columns in layouts.items():
        rows.extend((layout, field_id, signature) for field_id, signature in columns.items())
        if not columns:
            rows.append((layout, None, None))
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(LAYOUTS)]
    return pa.Table.from_arrays(arrays, schema=LAYOUTS)


def layouts_of(table: pa.Table) -> dict[str, dict[str, str]]:
    """The layouts of a table made by `layouts_table`."""
    layouts: dict[str, dict[str, str]] = {}
    columns = (_values(table.column(name)) for name in LAYOUTS.names)
    for layout, field_id, signature in zip(*columns, strict=True):
        found = layouts.setdefault(layout, {})
        if field_id is not None:
            found[field_id] = signature
    return layouts


def _strings(values: Sequence[Sequence[str]]) -> pa.Array:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    flat = pa.array([text for value in values for text in value], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; lists as tuples, made from one flat list (several times faster than `to_pylist`)."""
    if column.type != _STRINGS:
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        flat = chunk.flatten().to_pylist()
        start = 0
        for length in chunk.value_lengths().to_pylist():
            values.append(tuple(flat[start : start + length]))
            start += length
    return values
