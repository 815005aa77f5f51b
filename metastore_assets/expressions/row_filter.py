"""Which rows of an Arrow table a predicate is true of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.predicates import (
    And,
    Column,
    Constant,
    In,
    IsNaN,
    IsNull,
    Leaf,
    Like,
    Or,
    Predicate,
    array_of,
    referenced_columns,
)
from metastore_assets.values.leaf_columns import logical_nulls, plain_array, schema_leaves, split_leaves
from metastore_assets.values.physical import canonical, comparable, storage
from metastore_assets.values.types import TypeClass

Mask = npt.NDArray[np.bool_]


def fields_of(predicate: Predicate, schema: pa.Schema) -> list[int]:
    """The places in a table's schema of the top-level columns that a predicate is about, ascending."""
    wanted = {column.field_id for column in referenced_columns(predicate)}
    leaves = schema_leaves(schema)
    return [at for at, own in enumerate(leaves) if any(leaf.field_id in wanted for leaf in own)]


class RowFilter:
    """A predicate on the rows of tables of one schema. Picklable."""

    def __init__(self, predicate: Predicate, schema: pa.Schema) -> None:
        self.predicate = predicate
        self.schema = schema
        self.fields = fields_of(predicate, schema)
        """Places of the top-level columns that it needs."""

    def mask(self, columns: Mapping[int, pa.Array], rows: int) -> Mask:
        """True for the rows that the predicate is true of. `columns` has the `fields` by place, each of `rows` rows."""
        wanted = {column.field_id for column in referenced_columns(self.predicate)}
        leaves = schema_leaves(self.schema)
        arrays: dict[str, pa.Array] = {}
        for at in self.fields:
            parts = split_leaves(self.schema.field(at), columns[at])
            for leaf, array in zip(leaves[at], parts, strict=True):
                if leaf.field_id in wanted:
                    arrays[leaf.field_id] = array
        return _mask(self.predicate, arrays, rows)


def matches(predicate: Predicate, table: pa.Table) -> Mask:
    """True for the rows of a table that a predicate, made for its schema, is true of."""
    own = RowFilter(predicate, table.schema)
    columns = {at: _whole(table.column(at)) for at in own.fields}
    return own.mask(columns, table.num_rows)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunks = [plain_array(chunk) for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)


def _mask(predicate: Predicate, arrays: Mapping[str, pa.Array], rows: int) -> Mask:
    if isinstance(predicate, Constant):
        return np.full(rows, predicate.value)
    if isinstance(predicate, And | Or):
        masks = [_mask(child, arrays, rows) for child in predicate.children]
        return np.logical_and.reduce(masks) if isinstance(predicate, And) else np.logical_or.reduce(masks)
    return leaf_mask(predicate, arrays[predicate.column.field_id])


def leaf_mask(leaf: Leaf, array: pa.Array) -> Mask:
    """True for the values that a leaf is true of. The type of `array` belongs to the class of the leaf's column."""
    if isinstance(leaf, IsNull):
        found: Mask = logical_nulls(array).to_numpy(zero_copy_only=False)
        return ~found if leaf.negated else found
    cls = _class(leaf.column)
    values = canonical(array, cls)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(leaf, IsNaN):
        return valid & (_nan(values, cls) != leaf.negated)
    if isinstance(leaf, Like):
        return valid & (_like(leaf, values) != leaf.negated)
    own = _ordered(values, cls)
    if isinstance(leaf, In):
        return valid & (_numpy(pc.is_in(own, value_set=_ordered(leaf.values, cls))) != leaf.negated)
    decided = _numpy(_OPERATORS[leaf.operator](own, _ordered(array_of([leaf.value]), cls)[0]))
    if leaf.operator in (">", ">="):
        decided |= _nan(values, cls)
    return valid & decided


def _class(column: Column) -> TypeClass:
    assert column.cls is not None
    return column.cls


def _ordered(values: pa.Array, cls: TypeClass) -> pa.Array:
    return storage(values) if cls.kind == "bytes" else comparable(values)


def _nan(values: pa.Array, cls: TypeClass) -> Mask:
    return _numpy(pc.is_nan(values)) if cls.kind == "float" else np.zeros(len(values), np.bool_)


def _like(leaf: Like, values: pa.Array) -> Mask:
    if leaf.pattern is None:
        return _numpy(pc.starts_with(storage(values), leaf.prefix))
    return _numpy(pc.match_like(values, leaf.pattern))


def _numpy(decided: pa.Array) -> Mask:
    found: Mask = decided.fill_null(False).to_numpy(zero_copy_only=False)
    return found


_OPERATORS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
