"""The columns of a table and all fields nested in them, each with its own values and statistics.

Structs, lists and maps are columns, and so are their fields, elements, keys and values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.startup import pc

FIELD_ID = b"metastore.field_id"
"""Metadata key of an Arrow field, at every depth. Its value is the field's identity, which survives renames.

The identity is the physical name or field id where the format has one. A field without the key is identified by its
name.
"""


@dataclass(frozen=True)
class Column:
    """A column of a table or a field nested in one, with its own statistics.

    Structs, lists and maps are columns, and so are their fields, elements, keys and values.
    """

    path: str
    """Dotted path: `a.b` in a struct, `a.element` in a list, `a.key` and `a.value` in a map."""
    field_id: str
    """The ids of the enclosing columns, outermost first, and of the column, joined by dots: `1.4`. No two columns of a
    table have the same. An id is the metadata FIELD_ID of the field; without it, the name."""
    type: pa.DataType
    repeated: bool = False
    """Whether the column is inside a list or a map, so that one row of the table has any number of its values."""
    aliases: tuple[tuple[str, ...], ...] = field(default=(), compare=False, repr=False)
    """All possible paths of each enclosing struct, list and map, outermost first, then those of the column itself.

    The first path of each is the current one. The other paths, with and without backticks, may become current when
    other columns are added or dropped."""


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type that a dictionary, run-end-encoded or extension type encodes.

    Other types are returned unchanged.

    `arrow.uuid` is also returned unchanged; `arrow.bool8` becomes boolean.
    """
    while True:
        if t.is_dictionary(type) or t.is_run_end_encoded(type):
            type = type.value_type
        elif isinstance(type, pa.BaseExtensionType) and type != pa.uuid():
            type = pa.bool_() if type == pa.bool8() else type.storage_type
        else:
            return type


def plain_array(array: pa.Array) -> pa.Array:
    """Return an array without dictionary, run-end and extension encodings.

    Its type is `plain_type(array.type)`.
    """
    while True:
        if t.is_dictionary(array.type):
            array = _gather(array.dictionary, array.indices)
        elif t.is_run_end_encoded(array.type):
            array = _run_end_decode(array)
        elif isinstance(array.type, pa.BaseExtensionType) and array.type != pa.uuid():
            array = array.storage.cast(pa.bool_()) if array.type == pa.bool8() else array.storage
        else:
            return array


def logical_nulls(array: pa.Array) -> pa.BooleanArray:
    """Return for each value whether it is null.

    Unlike `Array.is_null` before pyarrow 26, this finds nulls in the dictionary of a dictionary array and in the
    children of a union.
    """
    if t.is_dictionary(array.type):
        return logical_nulls(array.dictionary).take(array.indices).fill_null(True)
    if not t.is_union(array.type):
        return array.is_null()
    # Use the buffers, because `type_codes` and `offsets` of a slice are those of the whole array.
    rows = slice(array.offset, array.offset + len(array))
    codes = np.frombuffer(array.buffers()[1], np.int8)[rows]
    nulls = np.zeros(len(array), np.bool_)
    for index, code in enumerate(array.type.type_codes):
        positions = np.flatnonzero(codes == code)
        # Children of a sparse union are as long as the union; those of a dense one have an offset for each row.
        dense = array.type.mode == "dense"
        at = np.frombuffer(array.buffers()[2], np.int32)[rows][positions] if dense else positions
        nulls[positions] = logical_nulls(array.field(index)).take(pa.array(at)).to_numpy(zero_copy_only=False)
    return pa.array(nulls)


def field_columns(field: pa.Field) -> list[Column]:
    """Return the columns of one top-level field, depth first: the field itself, then its children.

    Paths are distinct within the field. `columns_by_field` makes them distinct in the table.
    """
    return columns_by_field([field])[0]


def schema_columns(fields: Iterable[pa.Field]) -> list[Column]:
    """Return the columns of all fields of a table in one list, in table order, with distinct paths."""
    return [column for columns in columns_by_field(fields) for column in columns]


def columns_by_field(fields: Iterable[pa.Field]) -> list[list[Column]]:
    """Return one list of columns for each field of a table, with distinct paths.

    The path of the field `b` in a struct `a` is `a.b`. If the table also has a column with the name `a.b`, the path of
    this column is its name in backticks. If two columns have the name `x`, the second one has the path `x[2]`, with `x`
    in backticks.
    """
    walked_fields = [list(_walk(field, (), False)) for field in fields]
    plain = Counter(".".join(names) for columns in walked_fields for names, _ in columns)
    used_paths: set[str] = set()
    taken_ids: set[str] = set()
    result = []
    for columns in walked_fields:
        row: list[Column] = []
        aliases: list[tuple[str, ...]] = []
        for names, column in columns:
            path = ".".join(names)
            dotted_path, quoted_path = path, ".".join(map(quoted_name, names))
            path = _make_unique(dotted_path if plain[dotted_path] == 1 else quoted_path, used_paths)
            # Depth first: earlier columns at this depth or below do not enclose this one.
            aliases = [*aliases[: len(names) - 1], (path, dotted_path, quoted_path)]
            row.append(
                replace(column, path=path, field_id=_make_unique(column.field_id, taken_ids), aliases=tuple(aliases))
            )
        result.append(row)
    return result


def split_columns(field: pa.Field, array: pa.Array) -> list[pa.Array]:
    """Return the array of each column of a field, in the order of `field_columns(field)`.

    - Dictionaries are decoded only if their values are structs, lists or maps.
    - A field inside a null struct is null. A null list or map has no elements.
    - A struct, list or map has its own array, before those of its fields or elements.
    - A union inside a struct becomes booleans: null where the union is null, otherwise true.
    """
    return list(_split(array))


def children(type: pa.DataType) -> Sequence[tuple[str, pa.Field]]:
    """Return (name in paths, field) of each child of a struct, list or map.

    Other types have no children.
    """
    if t.is_struct(type):
        return [(type.field(i).name, type.field(i)) for i in range(type.num_fields)]
    if t.is_map(type):
        return [("key", type.key_field), ("value", type.item_field)]
    return [("element", type.value_field)] if is_list(type) else []


def child_fields(type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct, list or map.

    The type may be encoded, such as a dictionary of structs (see `plain_type`). Fields are named as in paths: `element`
    in lists, `key` and `value` in maps.
    """
    return [field.with_name(name) for name, field in children(plain_type(type))]


def map_child_types(type: pa.DataType, function: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a struct, map or list type in which `function(child type)` replaces each child type.

    Other types, and list views, are returned unchanged.
    """

    def mapped(field: pa.Field) -> pa.Field:
        return field.with_type(function(field.type))

    if t.is_struct(type):
        return pa.struct([mapped(field) for field in type])
    if t.is_map(type):
        return pa.map_(mapped(type.key_field), mapped(type.item_field), type.keys_sorted)
    if t.is_list(type):
        return pa.list_(mapped(type.value_field))
    if t.is_large_list(type):
        return pa.large_list(mapped(type.value_field))
    if t.is_fixed_size_list(type):
        return pa.list_(mapped(type.value_field), type.list_size)
    return type


def is_list(type: pa.DataType) -> bool:
    """Return whether the type is a list type of any layout.

    Maps are no lists.
    """
    return (
        t.is_list(type)
        or t.is_large_list(type)
        or t.is_fixed_size_list(type)
        or t.is_list_view(type)
        or t.is_large_list_view(type)
    )


def _walk(
    field: pa.Field, parents: tuple[tuple[str, str], ...], is_repeated: bool, name: str | None = None
) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Yield (names on the path, column) of a field and of all fields inside it, depth first.

    The attribute `aliases` of the columns is not set.

    Args:
        field: The field.
        parents: (name, id) of each enclosing field, outermost first.
        is_repeated: Whether an enclosing field is a list or a map.
        name: The name of the field in paths, such as `element` for the elements of a list; None for `field.name`.
    """
    # Parquet writers choose the name of a list's element, so its path and default identity are fixed here.
    label = field.name if name is None else name
    identity = (field.metadata or {}).get(FIELD_ID)
    parts = (*parents, (label, label if identity is None else identity.decode()))
    names = tuple(part for part, _ in parts)
    plain = plain_type(field.type)
    yield names, Column(".".join(names), ".".join(quoted_name(part) for _, part in parts), field.type, is_repeated)
    for child_name, child in children(plain):
        yield from _walk(child, parts, is_repeated or not t.is_struct(plain), child_name)


def _make_unique(path: str, used_paths: set[str]) -> str:
    """Return the path, with a number if it is in `used_paths`, and add the result to `used_paths`."""
    unique, twin = path, 1
    while unique in used_paths:
        twin += 1
        unique = f"`{path}`[{twin}]"
    used_paths.add(unique)
    return unique


def quoted_name(name: str) -> str:
    """Return a name as part of a path: in backticks if it contains a dot or a backtick, or is empty."""
    return "`" + name.replace("`", "``") + "`" if "." in name or "`" in name or not name else name


def _split(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of a field's columns, depth first; see `split_columns`."""
    if not t.is_dictionary(array.type) or t.is_nested(plain_type(array.type)):
        array = plain_array(array)
    yield array
    if t.is_struct(array.type):
        yield from _split_struct(array)
    elif t.is_map(array.type):
        entries = _elements(array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))))
        yield from _split_struct(entries)
    elif is_list(array.type):
        yield from _split(_elements(array))


def _elements(array: pa.Array) -> pa.Array:
    """Return the elements of all lists that are not null.

    In memory, null lists may have elements, too.
    """
    # If all lists are null, Arrow's flatten() builds an empty array, and fails for structs with extension types.
    return array.values.slice(0, 0) if array.null_count == len(array) else array.flatten()


def _split_struct(array: pa.StructArray) -> Iterator[pa.Array]:
    """Yield the arrays of the columns inside a struct array.

    They are null where the struct is null.
    """
    fields = [array.field(i) for i in range(array.type.num_fields)]
    if any(_lacks_validity(child.type) for child in fields):
        # Arrow's flatten() skips null structs for run-end encodings, and aborts the process for unions.
        fields = [_with_validity(child) if _lacks_validity(child.type) else child for child in fields]
        array = pa.StructArray.from_arrays(fields, names=[str(i) for i in range(len(fields))], mask=array.is_null())
    for child in array.flatten():
        yield from _split(child)


def _lacks_validity(type: pa.DataType) -> bool:
    return t.is_run_end_encoded(type) or t.is_union(plain_type(type))


def _with_validity(array: pa.Array) -> pa.Array:
    array = plain_array(array)
    if not t.is_union(array.type):
        return array
    return pc.if_else(logical_nulls(array), pa.scalar(None, pa.bool_()), True)


def _gather(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the values at the given indices; null for a null index.

    Unlike `Array.take`, it supports all types.
    """
    if len(values) == 0:
        return pa.nulls(len(indices), values.type)
    if t.is_string_view(values.type) or t.is_binary_view(values.type):
        # No Arrow kernel takes from views.
        values = values.cast(pa.large_string() if t.is_string_view(values.type) else pa.large_binary())
    try:
        return values.take(indices)
    except pa.ArrowNotImplementedError:
        rows = [pa.nulls(1, values.type) if at is None else values.slice(at, 1) for at in indices.to_pylist()]
        return pa.concat_arrays([values.slice(0, 0), *rows])


def _run_end_decode(array: pa.RunEndEncodedArray) -> pa.Array:
    # Arrow's own decoder has no kernel for views.
    ends = array.run_ends.cast(pa.int64()).to_numpy()
    rows = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")
    return _gather(plain_array(array.values), pa.array(rows))
