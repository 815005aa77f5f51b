"""The typed union: a struct with one nullable child per type class, of which at most one is not null.

It stores values of columns of any types in one Arrow column: {"int64": 5, "string": null}. A type class is a group of
Arrow types, such as all signed integers, whose values are converted to one *canonical type*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.values.types import TypeClass, class_named, type_class


def union_type(classes: Iterable[TypeClass]) -> pa.StructType:
    """Return the typed union of type classes: one child per class, named by the class and sorted by name.

    The class `null` has no child. A union without children gets the child `boolean`, because Parquet has no empty
    structs.
    """
    by_name = {cls.name: cls for cls in classes if cls.kind != "null"}
    return pa.struct(
        [pa.field(name, by_name[name].arrow) for name in sorted(by_name)] or [pa.field("boolean", pa.bool_())]
    )


def pack_values(values: pa.Array, cls: TypeClass, union: pa.StructType) -> pa.StructArray:
    """Return values as an array of the typed union.

    Children of other type classes are null.

    Args:
        values: Values of the canonical type of `cls`.
        cls: The type class.
        union: The typed union, which has the class.
    """
    arrays = [values if field.name == cls.name else pa.nulls(len(values), field.type) for field in union]
    return pa.StructArray.from_arrays(arrays, fields=list(union))


def pack_scalars(scalars: Sequence[pa.Scalar | None], union: pa.StructType) -> pa.StructArray:
    """Return scalars of any type classes as an array of the typed union; None becomes a null struct."""
    names = [None if scalar is None else type_class(scalar.type).name for scalar in scalars]
    arrays = []
    for field in union:
        of_class = [scalar if name == field.name else None for scalar, name in zip(scalars, names, strict=True)]
        arrays.append(scalars_array(of_class, field.type))
    missing = pa.array([name is None for name in names], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=missing)


def scalars_array(scalars: Sequence[pa.Scalar | None], type: pa.DataType) -> pa.Array:
    """Return scalars of one type as an array; None becomes null."""
    if not isinstance(type, pa.BaseExtensionType):
        return pa.array(scalars, type)
    # Arrow builds arrays of extension types only from their storage.
    storage_values = [None if scalar is None or not scalar.is_valid else scalar.value for scalar in scalars]
    return pa.ExtensionArray.from_storage(type, pa.array(storage_values, type.storage_type))


def unpack_scalars(values: pa.StructArray) -> list[pa.Scalar | None]:
    """Return each element of a union array as a scalar of the canonical type of its class; None for null.

    Children of another type are cast. Files may contain `string`, for example, where `large_string` is canonical.
    """
    result: list[pa.Scalar | None] = [None] * len(values)
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count == len(child):
            continue
        scalars = _canonical(child, class_named(field.name).arrow)
        if not scalars.null_count:  # At most one child has a value at each position: the others have none.
            return list(scalars)
        for at, scalar in enumerate(scalars):
            if scalar.is_valid:
                result[at] = scalar
    return result


def _canonical(child: pa.Array, type: pa.DataType) -> pa.Array:
    if child.type == type:
        return child
    # Without Arrow's compute kernels, whose import takes 30 ms.
    if (child.type, type) in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())):
        return pa.array(child.view(pa.binary()).to_pylist(), pa.large_binary()).view(type)
    return child.cast(type)


def unpack_values(values: pa.StructArray) -> pa.Array:
    """Return the values of a union array in their canonical type; in the type `null` if all are null.

    Callers pass values of only one type class. Values of a second one would become null.
    """
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count < len(child):
            return child.cast(class_named(field.name).arrow)
    return pa.nulls(len(values))


def merge_unions(types: Iterable[pa.StructType]) -> pa.StructType:
    """Return a typed union with the type classes of all given unions."""
    return union_type(class_named(field.name) for type_ in types for field in type_)


def cast_to_union(values: pa.Array, union: pa.StructType) -> pa.Array:
    """Cast union values to another typed union.

    Args:
        values: An array of union values, or of lists of structs whose field `value` is a union value.
        union: The new union.

    Raises:
        ValueError: `union` has no child for a class that has values.
    """
    if isinstance(values, pa.ListArray):
        if values.type.value_type == pa.struct([("fraction", pa.float64()), ("value", union)]):
            return values
        first, end = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        entries = values.values.slice(first, end - first)
        fractions, cast_values = entries.field("fraction"), cast_to_union(entries.field("value"), union)
        entries = pa.StructArray.from_arrays([fractions, cast_values], names=["fraction", "value"])
        # Recomputed offsets, because Arrow accepts no mask together with a slice of an offsets buffer.
        offsets = pc.subtract(values.offsets, pa.scalar(first, pa.int32()))
        return pa.ListArray.from_arrays(offsets, entries, mask=values.is_null() if values.null_count else None)
    if values.type == union:
        return values
    children = dict(zip(values.type.names, values.flatten(), strict=True))
    lost_classes = [
        name for name in children if union.get_field_index(name) < 0 and children[name].null_count < len(values)
    ]
    if lost_classes:
        raise ValueError(
            f"a union of {', '.join(union.names) or 'no classes'} has no place for values of {', '.join(lost_classes)}"
        )
    arrays = [
        children[field.name].cast(field.type) if field.name in children else pa.nulls(len(values), field.type)
        for field in union
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=values.is_null())


def select_class(values: pa.StructArray, cls: TypeClass) -> pa.Array:
    """Return the values of one type class in its canonical type.

    Elements of another class are null.
    """
    at = values.type.get_field_index(cls.name)
    if at < 0:
        return pa.nulls(len(values), cls.arrow)
    child = values.flatten()[at]
    return child if child.type == cls.arrow else child.cast(cls.arrow)


def scatter_values(
    values: Mapping[str, tuple[npt.NDArray[np.intp], pa.Array]], length: int, union: pa.StructType
) -> pa.StructArray:
    """Build an array of the typed union from the values of each type class and their positions.

    Args:
        values: (positions in the result, values of the canonical type) of each type class, by its name. Positions are
            ascending.
        length: Length of the result. Elements at other positions are null.
        union: The typed union; classes that it does not have are ignored.
    """
    arrays = []
    missing = np.ones(length, np.bool_)
    for field in union:
        if field.name not in values:
            arrays.append(pa.nulls(length, field.type))
            continue
        positions, class_values = values[field.name]
        indices, is_null = np.zeros(length, np.int64), np.ones(length, np.bool_)
        indices[positions], is_null[positions] = np.arange(len(positions)), False
        arrays.append(class_values.take(pa.array(indices, mask=is_null)))
        missing &= arrays[-1].is_null().to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(arrays, fields=list(union), mask=pa.array(missing))
