"""Limits on Avro schemas and blocks, which are checked before the decoder runs.

The decoder trusts every declared length: a list of a billion nulls takes only a few bytes. A memory limit of the
process is not enough, see docs/decisions/0005-avro-limits.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.formats.readers.avro_schema import full_name
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
class _EncodedType:
    """One type of a schema, with the sizes of its encoded values."""

    kind: str
    children: tuple[_EncodedType, ...]
    fixed_bytes: int | None
    """Size of every value; None if sizes differ."""
    min_bytes: int
    """Minimum size of a value."""
    type_count: int
    """Number of types in this type, including itself."""
    depth: int
    has_items: bool
    """Whether the type is or contains an array or a map."""
    has_empty_items: bool
    """Whether the type is or contains an array whose items may take no bytes."""


class AvroLimits:
    """A checker of one Avro file against limits.

    The constructor checks the schema, and `check` checks a block.

    Raises:
        ArrowInvalid: the schema or a block is corrupt. For a block, it may also be EOFError or IndexError.
        UnsupportedError: a type contains itself.
        LimitError: a limit is exceeded.
    """

    def __init__(self, schema: Any) -> None:
        try:
            self._root = _SchemaCompiler().compile(schema, "", 0)
        except (LimitError, pa.ArrowInvalid):
            raise
        except CORRUPTION_ERRORS as error:
            raise pa.ArrowInvalid(f"its Avro schema is broken: {error_reason(error)}") from error
        self._empty_rows = 0

    def check(self, data: bytes, rows: int) -> None:
        """Check the next block of the file.

        Raises LimitError if a limit is exceeded.

        There are two limits. The first is for blocks with more rows than bytes, for example because all values are
        null: their rows are added up over the file. The second is for the items of arrays and maps in one row.

        Args:
            data: decompressed content of the block.
            rows: number of records that the block declares.
        """
        root = self._root
        if rows > len(data):
            self._empty_rows += rows
            check_limit(EMPTY_ROWS, self._empty_rows, "rows without any bytes")
        # Each item takes at least one byte here, so a short block cannot have more than RECORD_VALUES items in a
        # record.
        if root.has_empty_items or (root.has_items and len(data) > RECORD_VALUES):
            cursor = _ValueSkipper(data)
            for _ in range(rows):
                cursor.items = 0
                cursor.skip(root)


class _SchemaCompiler:
    """A converter of a parsed Avro schema to an `_EncodedType`, which has the sizes of encoded values."""

    def __init__(self) -> None:
        self._named: dict[str, _EncodedType] = {}
        self._open: set[str] = set()

    def compile(self, schema: Any, namespace: str, depth: int) -> _EncodedType:
        """Return the encoded type of a schema.

        Args:
            schema: The schema, or a part of it, as parsed JSON.
            namespace: The namespace of the enclosing type; empty if there is none.
            depth: The number of enclosing types.

        Raises:
            LimitError: The schema has too many types, or is nested too deeply.
            UnsupportedError: A type contains itself.
            ArrowInvalid: A name is not defined, or the size of a `fixed` is invalid.
            LookupError, TypeError, AttributeError: The schema is malformed, for example without `type`.
        """
        check_limit(NESTING, depth, "types inside of each other in an Avro schema")
        if isinstance(schema, list):
            return _encoded_type("union", [self.compile(branch, namespace, depth + 1) for branch in schema], None, 1)
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.compile(kind, namespace, depth + 1)
        if kind == "array":
            return _encoded_type("array", [self.compile(schema["items"], namespace, depth + 1)], None, 1)
        if kind == "map":
            return _encoded_type("map", [self.compile(schema["values"], namespace, depth + 1)], None, 1)
        if kind not in ("record", "error", "enum", "fixed"):
            return self._reference(kind, namespace)
        return self._define(schema, namespace, depth)

    def _define(self, schema: Mapping[str, Any], namespace: str, depth: int) -> _EncodedType:
        """Return the type that a record, enum or fixed defines, and store it under its full name.

        Raises the errors of `compile`.
        """
        name = full_name(schema["name"], schema.get("namespace") or namespace)
        inner_namespace, kind = name.rpartition(".")[0], schema["type"]
        self._open.add(name)
        if kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or size < 0:
                raise pa.ArrowInvalid(f"its Avro type {name!r} has the size {str(size)[:100]!r}")
            encoded_type = _encoded_type(kind, [], size, size)
        elif kind == "enum":
            encoded_type = _encoded_type(kind, [], None, 1)
        else:
            children = [self.compile(field["type"], inner_namespace, depth + 1) for field in schema["fields"]]
            sizes = [child.fixed_bytes for child in children]
            fixed_bytes = None if None in sizes else sum(size for size in sizes if size is not None)
            encoded_type = _encoded_type("record", children, fixed_bytes, sum(child.min_bytes for child in children))
        self._open.discard(name)
        self._named[name] = encoded_type
        return encoded_type

    def _reference(self, name: str, namespace: str) -> _EncodedType:
        """Return the type of this name: a primitive type, or one that the schema has already defined.

        Raises ArrowInvalid for an unknown name. Raises UnsupportedError for the name of an enclosing type, because that
        type would contain itself.
        """
        if name in _FIXED_BYTES:
            return _encoded_type(name, [], _FIXED_BYTES[name], _FIXED_BYTES[name])
        if name in _VARINTS or name in _LENGTHS:
            return _encoded_type(name, [], None, 1)
        for candidate in (full_name(name, namespace), name):
            if candidate in self._open:
                raise UnsupportedError(f"its Avro type {candidate[:100]!r} contains itself, which has no reader")
            if candidate in self._named:
                return self._named[candidate]
        raise pa.ArrowInvalid(f"its Avro schema names a type {name[:100]!r} that it does not define")


def _encoded_type(kind: str, children: list[_EncodedType], fixed_bytes: int | None, min_bytes: int) -> _EncodedType:
    """Create an `_EncodedType`.

    Its number of types, depth and flags are computed from its children.

    Args:
        kind: The kind of the type in Avro, such as `record`.
        children: The types of fields, branches, items or values.
        fixed_bytes: Size of every value; None if sizes differ.
        min_bytes: Minimum size of a value.

    Raises:
        LimitError: The type has too many types in it, or is nested too deeply.
    """
    type_count = 1 + sum(child.type_count for child in children)
    check_limit(FIELDS, type_count, "fields in an Avro schema")
    depth = 1 + max((child.depth for child in children), default=0)
    check_limit(NESTING, depth, "types inside of each other in an Avro schema")
    is_list = kind == "array"
    return _EncodedType(
        kind,
        tuple(children),
        fixed_bytes,
        min_bytes,
        type_count,
        depth,
        is_list or kind == "map" or any(child.has_items for child in children),
        (is_list and children[0].min_bytes == 0) or any(child.has_empty_items for child in children),
    )


class _ValueSkipper:
    """A reader that skips encoded values.

    The attribute `items` counts the items of their arrays and maps.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.items = 0

    def skip(self, encoded_type: _EncodedType) -> None:
        """Skip one value of a type.

        Raises EOFError or IndexError beyond the end of the data, ArrowInvalid for a negative length, or LimitError for
        too many items.
        """
        kind = encoded_type.kind
        if encoded_type.fixed_bytes is not None:
            self._position += encoded_type.fixed_bytes
        elif kind in _VARINTS:
            self._read_varint()
        elif kind in _LENGTHS:
            self._skip_bytes()
        elif kind == "union":
            self.skip(encoded_type.children[self._read_varint()])
        elif kind == "record":
            for child in encoded_type.children:
                self.skip(child)
        else:
            self._skip_items(encoded_type.children[0], is_map=kind == "map")
        if self._position > len(self._data):
            raise EOFError

    def _skip_items(self, item: _EncodedType, *, is_map: bool) -> None:
        """Skip the blocks of an array or a map, and count their items.

        Raises LimitError for too many.
        """
        while count := self._read_varint():
            if count < 0:
                count = -count
                self._read_varint()
            self.items += count
            check_limit(RECORD_VALUES, self.items, "items in one Avro record")
            if item.fixed_bytes is not None and not is_map:
                self._position += count * item.fixed_bytes
                continue
            for _ in range(count):
                if is_map:
                    self._skip_bytes()
                self.skip(item)

    def _skip_bytes(self) -> None:
        length = self._read_varint()
        if length < 0:
            raise pa.ArrowInvalid("the Avro file has a part of negative length")
        self._position += length

    def _read_varint(self) -> int:
        """Read an integer in Avro's zigzag encoding of variable length."""
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
