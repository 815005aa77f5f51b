"""Limits on Avro schemas and blocks, checked before decoding because the decoder trusts every declared length.

A list of a billion nulls takes only the bytes of its length. A recursive type nests decoder calls as deeply as the data
asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.storage.corrupt_input import (
    CORRUPTION_ERRORS,
    LimitError,
    UnsupportedError,
    check_limit,
    error_reason,
)
from metastore_assets.storage.limits import EMPTY_ROWS, FIELDS, NESTING, RECORD_VALUES

_FIXED_BYTES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS = ("int", "long", "enum")
_LENGTHS = ("bytes", "string")


@dataclass(frozen=True)
class _Node:
    """One type of a schema with the sizes of its encoding."""

    kind: str
    children: tuple[_Node, ...]
    fixed: int | None
    """Bytes of every value; None when values differ in size."""
    least: int
    """Minimum bytes of a value."""
    fields: int
    """Number of types in it, itself included."""
    depth: int
    has_items: bool
    """Whether it contains arrays or maps."""
    is_endless: bool
    """Whether it contains arrays whose items take no bytes, so that a length in the data can be arbitrary."""


class AvroLimits:
    """Checks the schema and the blocks of one file. Raises ArrowInvalid or LimitError."""

    def __init__(self, schema: Any) -> None:
        try:
            self._root = _Compiler().node(schema, "", 0)
        except (LimitError, pa.ArrowInvalid):
            raise
        except CORRUPTION_ERRORS as error:
            raise pa.ArrowInvalid(f"its Avro schema is broken: {error_reason(error)}") from error
        self._empty_rows = 0

    def check(self, data: bytes, rows: int) -> None:
        """Check one decompressed block. `rows` is the row count that the block declares."""
        root = self._root
        if rows > len(data):
            self._empty_rows += rows
            check_limit(EMPTY_ROWS, self._empty_rows, "rows without any bytes")
        # Each item takes at least one byte, so a short block cannot exceed RECORD_VALUES in one record.
        if root.is_endless or (root.has_items and len(data) > RECORD_VALUES):
            cursor = _Cursor(data)
            for _ in range(rows):
                cursor.items = 0
                cursor.skip(root)


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, _Node] = {}
        self._open: set[str] = set()

    def node(self, schema: Any, namespace: str, depth: int) -> _Node:
        check_limit(NESTING, depth, "types inside of each other in an Avro schema")
        if isinstance(schema, list):
            return _node("union", [self.node(branch, namespace, depth + 1) for branch in schema], None, 1)
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.node(kind, namespace, depth + 1)
        if kind == "array":
            return _node("array", [self.node(schema["items"], namespace, depth + 1)], None, 1)
        if kind == "map":
            return _node("map", [self.node(schema["values"], namespace, depth + 1)], None, 1)
        if kind not in ("record", "error", "enum", "fixed"):
            return self._reference(kind, namespace)
        return self._define(schema, namespace, depth)

    def _define(self, schema: Mapping[str, Any], namespace: str, depth: int) -> _Node:
        name = _full_name(schema["name"], schema.get("namespace") or namespace)
        inner_namespace, kind = name.rpartition(".")[0], schema["type"]
        self._open.add(name)
        if kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or size < 0:
                raise pa.ArrowInvalid(f"its Avro type {name!r} has the size {str(size)[:100]!r}")
            node = _node(kind, [], size, size)
        elif kind == "enum":
            node = _node(kind, [], None, 1)
        else:
            children = [self.node(field["type"], inner_namespace, depth + 1) for field in schema["fields"]]
            sizes = [child.fixed for child in children]
            fixed = None if None in sizes else sum(size for size in sizes if size is not None)
            node = _node("record", children, fixed, sum(child.least for child in children))
        self._open.discard(name)
        self._named[name] = node
        return node

    def _reference(self, name: str, namespace: str) -> _Node:
        if name in _FIXED_BYTES:
            return _node(name, [], _FIXED_BYTES[name], _FIXED_BYTES[name])
        if name in _VARINTS or name in _LENGTHS:
            return _node(name, [], None, 1)
        for candidate in (_full_name(name, namespace), name):
            if candidate in self._open:
                raise UnsupportedError(f"its Avro type {candidate[:100]!r} contains itself, which has no reader")
            if candidate in self._named:
                return self._named[candidate]
        raise pa.ArrowInvalid(f"its Avro schema names a type {name[:100]!r} that it does not define")


def _node(kind: str, children: list[_Node], fixed: int | None, least: int) -> _Node:
    fields = 1 + sum(child.fields for child in children)
    check_limit(FIELDS, fields, "fields in an Avro schema")
    depth = 1 + max((child.depth for child in children), default=0)
    check_limit(NESTING, depth, "types inside of each other in an Avro schema")
    is_list = kind == "array"
    return _Node(
        kind,
        tuple(children),
        fixed,
        least,
        fields,
        depth,
        is_list or kind == "map" or any(child.has_items for child in children),
        (is_list and children[0].least == 0) or any(child.is_endless for child in children),
    )


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Cursor:
    """Skips over encoded values without decoding them, and counts the items of arrays and maps."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.items = 0

    def skip(self, node: _Node) -> None:
        kind = node.kind
        if node.fixed is not None:
            self._at += node.fixed
        elif kind in _VARINTS:
            self._number()
        elif kind in _LENGTHS:
            self._skip_text()
        elif kind == "union":
            self.skip(node.children[self._number()])
        elif kind == "record":
            for child in node.children:
                self.skip(child)
        else:
            self._skip_items(node.children[0], is_map=kind == "map")
        if self._at > len(self._data):
            raise EOFError

    def _skip_items(self, item: _Node, *, is_map: bool) -> None:
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            self.items += count
            check_limit(RECORD_VALUES, self.items, "items in one Avro record")
            if item.fixed is not None and not is_map:
                self._at += count * item.fixed
                continue
            for _ in range(count):
                if is_map:
                    self._skip_text()
                self.skip(item)

    def _skip_text(self) -> None:
        length = self._number()
        if length < 0:
            raise pa.ArrowInvalid("the Avro file has a part of negative length")
        self._at += length

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
