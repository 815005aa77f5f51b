"""Conditions on partitions: predicates bound to the types of partition columns, evaluated on the values of partitions.

The values are texts as partition keys spell them. A text and the type of its column determine the value, so the
evaluator of rows decides: there is no second comparison of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import LiteralError, UnsupportedTypeError
from metastore_assets.expressions.binding import bind_predicate
from metastore_assets.expressions.literals import parse_literal
from metastore_assets.expressions.predicates import And, Constant, Leaf, Or, Predicate, array_of
from metastore_assets.expressions.row_filter import leaf_mask
from metastore_assets.expressions.unbound import (
    BooleanLiteral,
    ColumnName,
    Not,
    UnboundAnd,
    UnboundOr,
    UnboundPredicate,
)
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import type_class


class PartitionCondition:
    """A condition on the partition columns of one table. Keeps what it found out of each value of a column."""

    def __init__(self, condition: UnboundPredicate, table: str, types: Mapping[str, pa.DataType]) -> None:
        """Bind a condition to the partition columns in `types`.

        Raises:
            ColumnNotFoundError: The condition names a column that is not in `types`.
            LiteralError: A literal is no value of its column.
            PredicateError: A column has no values that the condition could compare.
        """
        leaves = [LeafColumn(name, name, type_, False) for name, type_ in types.items()]
        self._predicate = bind_predicate(condition, table, leaves, noun="partition column")
        self._types = types
        self._table = table
        self._decided: dict[tuple[int, str | None], bool] = {}

    def may_match(self, values: Mapping[str, str | None]) -> bool:
        """Return whether the condition may be true of a partition.

        Args:
            values: Texts of its values by column, None for null. A column that is absent may have any value.

        Raises:
            LiteralError: A text is no value of its column.
        """
        return self._may_hold(self._predicate, values)

    def _may_hold(self, predicate: Predicate, values: Mapping[str, str | None]) -> bool:
        if isinstance(predicate, Constant):
            return predicate.value
        # The tree has no negations: what makes a leaf true never makes the predicate false.
        if isinstance(predicate, And):
            return all(self._may_hold(child, values) for child in predicate.children)
        if isinstance(predicate, Or):
            return any(self._may_hold(child, values) for child in predicate.children)
        name = predicate.column.field_id
        return name not in values or self._holds(predicate, name, values[name])

    def _holds(self, leaf: Leaf, name: str, text: str | None) -> bool:
        key = id(leaf), text
        decided = self._decided.get(key)
        if decided is None:
            value = partition_value(text, self._types[name], f"partition column {name!r} of table {self._table!r}")
            decided = self._decided[key] = bool(leaf_mask(leaf, value)[0])
        return decided


def partition_value(text: str | None, type_: pa.DataType, subject: str) -> pa.Array:
    """Return the value that a partition key spells as `text`, as an array of length one.

    Args:
        text: None for null.
        type_: Of the partition column.
        subject: The column, for messages.

    Raises:
        LiteralError: The text is no value of that type.
    """
    if text is None:
        return pa.nulls(1, type_)
    cls = type_class(type_)
    if t.is_float32(type_):
        # The key has the shortest text for the 32 bits; the nearest double would be another number.
        try:
            return pa.array(np.array([text], np.float32))
        except ValueError:
            raise LiteralError(f"{text!r} is no value of {subject}: give a number") from None
    return array_of([parse_literal(text, cls, subject)])


def is_partition_value(text: str | None, type_: pa.DataType) -> bool:
    """Return whether a text, None for null, spells a value of a type."""
    try:
        partition_value(text, type_, "")
    except (LiteralError, UnsupportedTypeError):
        return False
    return True


def referenced_names(node: UnboundPredicate) -> Iterator[str]:
    """Yield the columns that a condition names, as it spells them."""
    if isinstance(node, UnboundAnd | UnboundOr):
        for child in node.children:
            yield from referenced_names(child)
    elif isinstance(node, Not):
        yield from referenced_names(node.child)
    elif not isinstance(node, BooleanLiteral):
        yield _path(node.name)


def _path(name: ColumnName) -> str:
    return ".".join(name.parts)
