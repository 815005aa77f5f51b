"""The typed union `value`: a struct with one nullable child per type class, of which exactly one is not null."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from metastore_assets.statistics.types import TypeClass, class_named, type_class


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
        held = np.flatnonzero(child.is_valid().to_numpy(zero_copy_only=False))
        canonical = child.take(pa.array(held)).cast(class_named(field.name).arrow)
        for at, scalar in zip(held.tolist(), canonical, strict=True):
            result[at] = scalar
    return result


def from_union(values: pa.StructArray) -> pa.Array:
    """The values of union values that are all of one class, as a canonical array of it."""
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count < len(child):
            return child.cast(class_named(field.name).arrow)
    return pa.nulls(len(values))
