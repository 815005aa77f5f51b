"""Reading of Parquet footers that Arrow refuses or misunderstands, although their files can be read.

- Old Java libraries give the logical type UNKNOWN to the group of a map's entries, which Arrow refuses. They also give
  it to intervals, which Arrow would read as nulls. This type is removed. No information is lost: the parent of such a
  group has the type MAP, and an interval also has the older converted type INTERVAL.
- Old versions of Presto declare the keys of maps as optional, which Arrow refuses. Such a map becomes a list of entries
  which `schema_casting` casts to a map.
- Arrow reads enumerations as bytes, although the specification calls them texts. They get the type of texts.
- Writers that use Arrow also store its schema, as metadata that other readers ignore. Arrow refuses the file if it
  cannot decode this schema, for example if it has the 128-bit integers of Polars. Without it, columns have the types of
  Parquet.

The footer is changed before Arrow parses it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.storage.thrift import STOP, STRUCT, ThriftCursor

REFUSED = re.compile("Logical type Null cannot be applied to group node|Map keys must be annotated as required")
"""Matches the messages with which Arrow refuses such files."""
_MAGIC = b"PAR1"
_TAIL_BYTES = 8

ARROW_SCHEMA = b"ARROW:schema"
"""The key of Arrow's schema in the metadata of a file."""

# Field ids of Parquet's structs.
_SCHEMA, _KEY_VALUE_METADATA, _KEY = 2, 5, 1
_REPETITION, _CHILDREN, _CONVERTED_TYPE, _LOGICAL_TYPE = 3, 5, 6, 10
_UNKNOWN = 11
_INTERVAL_BYTES = 12
# Thrift encodes the number n of an enumeration as 2 n, and the logical type with number n as the field n of a union.
_OPTIONAL, _ENTRIES = 1 << 1, 2 << 1
_CONVERTED_INTERVAL, _CONVERTED_MAPS, _CONVERTED_LIST = 21 << 1, (1 << 1, 2 << 1), 3 << 1
_CONVERTED_TEXT, _CONVERTED_ENUM = 0, 4 << 1
_LOGICAL_TEXT, _LOGICAL_ENUM = 1 << 4 | STRUCT, 4 << 4 | STRUCT
_LOGICAL_MAP, _LOGICAL_LIST = 2 << 4 | STRUCT, 3 << 4 | STRUCT


def is_misunderstood(schema: pq.ParquetSchema) -> bool:
    """Return whether a schema has enumerations, or columns that may be intervals.

    A column may be an interval if its type is UNKNOWN and its values have 12 bytes.
    """
    text = repr(schema)  # takes a tenth of the time of asking each column
    if "(Null)" not in text:
        return "(Enum)" in text
    types = [(column.logical_type.type, column.length) for column in map(schema.column, range(len(schema)))]
    return any(type_ == "ENUM" or (type_, length) == ("UNKNOWN", _INTERVAL_BYTES) for type_, length in types)


def read_lenient_metadata(source: pa.NativeFile, *, has_arrow_schema: bool = True) -> pq.FileMetaData:
    """Return a file's metadata from its footer, corrected in memory as the module describes.

    Args:
        source: The content of the file.
        has_arrow_schema: Whether the result contains the schema that Arrow stored in the file. If false, Arrow ignores
            this schema, and columns have the types of Parquet.

    Raises:
        ArrowInvalid: The file has no footer, or the corrected footer is still invalid.
    """
    size = source.size()
    source.seek(size - _TAIL_BYTES)
    tail = source.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - _TAIL_BYTES:
        raise pa.ArrowInvalid("it has no Parquet footer")
    source.seek(size - _TAIL_BYTES - length)
    try:
        footer = _corrected(source.read(length))
        if not has_arrow_schema:
            footer = _without_arrow_schema(footer)
    except (IndexError, RecursionError) as error:
        raise pa.ArrowInvalid("its Parquet footer is broken or cut off") from error
    return pq.read_metadata(io.BytesIO(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


@dataclass
class _Element:
    """One `SchemaElement` of a footer: values of some Thrift fields, and their offsets in the footer.

    The values are encoded as in the footer.
    """

    repetition: int = 0
    children: int = 0
    converted: tuple[int, int] = (0, 0)
    """Position and value of the converted type; zeros without one."""
    logical: tuple[int, int] = (0, 0)
    """Position and first byte of the logical type; zeros without one."""
    removable: tuple[int, int] | None = None
    """Start and end (exclusive) of the logical type, if the bytes can be removed."""

    @property
    def is_map(self) -> bool:
        return self.converted[1] in _CONVERTED_MAPS or self.logical[1] == _LOGICAL_MAP

    @property
    def is_wrongly_unknown(self) -> bool:
        """Whether the element has the logical type UNKNOWN, and is a group or an interval."""
        is_other = self.children > 0 or self.converted[1] == _CONVERTED_INTERVAL
        return is_other and self.logical[1] >> 4 == _UNKNOWN and self.removable is not None


def _corrected(footer: bytes) -> bytes:
    """Return a footer with the corrections that the module describes.

    Raises IndexError if it is cut off.
    """
    elements = list(_elements(ThriftCursor(footer)))
    data = bytearray(footer)
    for outer, entries, key in zip(elements, elements[1:], elements[2:], strict=False):
        if outer.is_map and entries.children == _ENTRIES and key.repetition == _OPTIONAL:
            if outer.converted[0]:
                data[outer.converted[0]] = _CONVERTED_LIST
            if outer.logical[0]:
                data[outer.logical[0]] = _LOGICAL_LIST
    for element in elements:
        if element.converted[1] == _CONVERTED_ENUM:
            data[element.converted[0]] = _CONVERTED_TEXT
        if element.logical[1] == _LOGICAL_ENUM:
            data[element.logical[0]] = _LOGICAL_TEXT
    for element in reversed(elements):
        if element.is_wrongly_unknown and element.removable is not None:
            del data[slice(*element.removable)]
    return bytes(data)


def _without_arrow_schema(footer: bytes) -> bytes:
    """Return a footer in which Arrow does not find the schema that it stored.

    The key of this schema in the file's metadata, `ARROW:schema`, is changed to lower case.

    Raises IndexError if the footer is cut off.
    """
    cursor = ThriftCursor(footer)
    data = bytearray(footer)
    for field, kind, _ in cursor.fields():
        if field != _KEY_VALUE_METADATA:
            cursor.skip(kind)
            continue
        for _ in range(cursor.list_header()[0]):
            for entry_field, entry_kind, _ in cursor.fields():
                cursor.skip(entry_kind)
                start = cursor.position - len(ARROW_SCHEMA)
                if entry_field == _KEY and footer[start - 1 : cursor.position] == bytes([12]) + ARROW_SCHEMA:
                    data[start : cursor.position] = ARROW_SCHEMA.lower()
    return bytes(data)


def _elements(footer: ThriftCursor) -> Iterator[_Element]:
    """Yield all elements of the schema: its groups and its columns.

    A group comes directly before its children.
    """
    for field, kind, _ in footer.fields():
        if field != _SCHEMA:
            footer.skip(kind)
            continue
        for _ in range(footer.list_header()[0]):
            element = _Element()
            for inner_field, inner_kind, start in footer.fields():
                position, value = footer.position, footer.peek()
                footer.skip(inner_kind)
                if inner_field == _REPETITION:
                    element.repetition = value
                elif inner_field == _CHILDREN:
                    element.children = value
                elif inner_field == _CONVERTED_TYPE:
                    element.converted = position, value
                elif inner_field == _LOGICAL_TYPE:
                    element.logical = position, value
                    # Only the last field can be removed, because ids of later fields are relative to it.
                    element.removable = (start, footer.position) if footer.peek() == STOP else None
            yield element
        return
