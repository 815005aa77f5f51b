"""Iteration over the leaves of nested arrays, and replacement of leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from metastore_assets.startup import pc


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the leaf arrays of a nested array.

    An array that is not nested is itself the only leaf.

    Values inside null lists are skipped.
    """
    if pa.types.is_struct(array.type) or pa.types.is_union(array.type):
        for index in range(array.type.num_fields):
            yield from leaves(array.field(index))
    elif pa.types.is_map(array.type):
        start, length = _extent(array)
        yield from leaves(array.keys.slice(start, length))
        yield from leaves(array.items.slice(start, length))
    elif pa.types.is_nested(array.type):
        yield from leaves(array.flatten())
    else:
        yield array


def leaf_types(type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the leaf types of a nested type, or the type itself."""
    if pa.types.is_nested(type_):
        for index in range(type_.num_fields):
            yield from leaf_types(type_.field(index).type)
    else:
        yield type_


def map_leaves(array: pa.Array, function: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return an array in which each leaf is replaced by `function(leaf)`.

    The function must not change type or length.
    """
    if not pa.types.is_nested(array.type):
        return function(array)
    if pa.types.is_union(array.type):
        children = [map_leaves(array.field(index), function) for index in range(array.type.num_fields)]
        names = [array.type.field(index).name for index in range(array.type.num_fields)]
        offsets = [array.offsets] if array.type.mode == "dense" else []
        build = pa.UnionArray.from_dense if offsets else pa.UnionArray.from_sparse
        return build(array.type_codes, *offsets, children, names, array.type.type_codes)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        if not array.type.num_fields:
            return array
        children = [map_leaves(array.field(index), function) for index in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
    if pa.types.is_map(array.type):
        start, length = _extent(array)
        offsets = pa.array(array.offsets.to_numpy() - start, pa.int32())
        keys = map_leaves(array.keys.slice(start, length), function)
        items = map_leaves(array.items.slice(start, length), function)
        return pa.MapArray.from_arrays(offsets, keys, items, type=array.type, mask=mask)
    # Lists of all layouts: `flatten` leaves out values below null lists, so the offsets are computed again.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())
    values = map_leaves(array.flatten(), function)
    plain = pa.ListArray.from_arrays(offsets, values, type=pa.list_(array.type.value_field), mask=mask)
    return plain if pa.types.is_list(array.type) else plain.cast(array.type)


def _extent(array: pa.MapArray) -> tuple[int, int]:
    """Return where the entries of a map array start in its `keys` and `items`, and their number."""
    offsets = array.offsets
    start = offsets[0].as_py()
    return start, offsets[len(offsets) - 1].as_py() - start
