"""The typed union `value`: a struct with one nullable child per type class, of which exactly one is not null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.values.types import TypeClass, class_named, type_class


def union_type(classes: Iterable[TypeClass]) -> pa.StructType:
    """The struct of the classes' canonical types, named by class and sorted by name.

    The class `null` has no values, hence no child. Parquet has no structs without children, so where no class has
    values the union is that of `boolean` alone.
    """
    held = {cls.name: cls for cls in classes if cls.kind != "null"}
    return pa.struct([pa.field(name, held[name].arrow) for name in sorted(held)] or [pa.field("boolean", pa.bool_())])


def pack_values(values: pa.Array, cls: TypeClass, union: pa.StructType) -> pa.StructArray:
    """A canonical array of one class as union values."""
    arrays = [values if field.name == cls.name else pa.nulls(len(values), field.type) for field in union]
    return pa.StructArray.from_arrays(arrays, fields=list(union))


def pack_scalars(scalars: Sequence[pa.Scalar | None], union: pa.StructType) -> pa.StructArray:
    """Scalars of any classes as union values; None becomes a null union."""
    names = [None if scalar is None else type_class(scalar.type).name for scalar in scalars]
    arrays = []
    for field in union:
        held = [scalar if name == field.name else None for scalar, name in zip(scalars, names, strict=True)]
        arrays.append(_array(held, field.type))
    missing = pa.array([name is None for name in names], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=missing)


def _array(scalars: Sequence[pa.Scalar | None], type: pa.DataType) -> pa.Array:
    if not isinstance(type, pa.BaseExtensionType):
        return pa.array(scalars, type)
    # Arrow builds no arrays of extension types, only of what they are stored as.
    stored = [None if scalar is None or not scalar.is_valid else scalar.value for scalar in scalars]
    return pa.ExtensionArray.from_storage(type, pa.array(stored, type.storage_type))


def unpack_scalars(values: pa.StructArray) -> list[pa.Scalar | None]:
    """The inverse of `pack_scalars`, from whatever types a reader gave the children."""
    result: list[pa.Scalar | None] = [None] * len(values)
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count == len(child):
            continue
        scalars = _canonical(child, class_named(field.name).arrow)
        if not scalars.null_count:
            return list(scalars)
        for at, scalar in enumerate(scalars):
            if scalar.is_valid:
                result[at] = scalar
    return result


def _canonical(child: pa.Array, type: pa.DataType) -> pa.Array:
    """A child in the type of its class. Without a kernel for what readers give: kernels take 30 ms to be imported."""
    if child.type == type:
        return child
    if (child.type, type) in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())):
        return pa.array(child.view(pa.binary()).to_pylist(), pa.large_binary()).view(type)
    return child.cast(type)


def unpack_values(values: pa.StructArray) -> pa.Array:
    """The values of union values that are all of one class, as a canonical array of it."""
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count < len(child):
            return child.cast(class_named(field.name).arrow)
    return pa.nulls(len(values))


def merge_unions(types: Iterable[pa.StructType]) -> pa.StructType:
    """The union of all the classes of some unions."""
    return union_type(class_named(field.name) for type_ in types for field in type_)


def cast_to_union(values: pa.Array, union: pa.StructType) -> pa.Array:
    """Union values, or lists of (fraction, union value), as those of a union with the same classes or more."""
    if isinstance(values, pa.ListArray):
        if values.type.value_type == pa.struct([("fraction", pa.float64()), ("value", union)]):
            return values
        first, end = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        entries = values.values.slice(first, end - first)
        fractions, own = entries.field("fraction"), cast_to_union(entries.field("value"), union)
        entries = pa.StructArray.from_arrays([fractions, own], names=["fraction", "value"])
        # Offsets of their own: a mask goes with no slice of a buffer.
        offsets = pc.subtract(values.offsets, pa.scalar(first, pa.int32()))
        return pa.ListArray.from_arrays(offsets, entries, mask=values.is_null() if values.null_count else None)
    if values.type == union:
        return values
    children = dict(zip(values.type.names, values.flatten(), strict=True))
    arrays = [
        children[field.name].cast(field.type) if field.name in children else pa.nulls(len(values), field.type)
        for field in union
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=values.is_null())


def select_class(values: pa.StructArray, cls: TypeClass) -> pa.Array:
    """Of union values those of one class, and null in place of the others."""
    at = values.type.get_field_index(cls.name)
    if at < 0:
        return pa.nulls(len(values), cls.arrow)
    own = values.flatten()[at]
    return own if own.type == cls.arrow else own.cast(cls.arrow)


def scatter_values(
    values: Mapping[str, tuple[npt.NDArray[np.intp], pa.Array]], length: int, union: pa.StructType
) -> pa.StructArray:
    """Union values from places and values by class; null at all other places."""
    arrays = []
    missing = np.ones(length, np.bool_)
    for field in union:
        if field.name not in values:
            arrays.append(pa.nulls(length, field.type))
            continue
        places, own = values[field.name]
        indices, elsewhere = np.zeros(length, np.int64), np.ones(length, np.bool_)
        indices[places], elsewhere[places] = np.arange(len(places)), False
        arrays.append(own.take(pa.array(indices, mask=elsewhere)))
        missing &= arrays[-1].is_null().to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=pa.array(missing))
