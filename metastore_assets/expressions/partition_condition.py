"""Conditions on partitions: predicates on partition columns, evaluated on partition keys.

The values in keys are texts. They are converted to the types of the columns before they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import LiteralError, UnsupportedTypeError
from metastore_assets.expressions.binding import bind_predicate
from metastore_assets.expressions.literals import parse_literal
from metastore_assets.expressions.predicates import And, Leaf, Or, Predicate
from metastore_assets.expressions.unbound import UnboundPredicate
from metastore_assets.values.columns import Column
from metastore_assets.values.physical import array_of
from metastore_assets.values.types import type_class


class PartitionCondition:
    """A condition on the partition columns of one table, bound to their types.

    The result of each comparison is cached by the text of the compared partition value.
    """

    def __init__(self, condition: UnboundPredicate, table: str, types: Mapping[str, pa.DataType]) -> None:
        """Bind a condition to partition columns.

        Args:
            condition: The condition.
            table: The table's name or location, for messages.
            types: The type of each partition column.

        Raises:
            ColumnNotFoundError: The condition names a column that is not in `types`.
            LiteralError: A literal is not a value of its column.
            PredicateError: The condition compares a column whose values cannot be compared.
        """
        columns = [Column(name, name, type_, False) for name, type_ in types.items()]
        self._predicate = bind_predicate(condition, table, columns, noun="partition column")
        self._types = types
        self._table = table
        self._results: dict[tuple[int, str | None], bool] = {}

    def may_match(self, values: Mapping[str, str | None]) -> bool:
        """Return whether the condition may be true of a partition.

        Args:
            values: The texts of the partition's values, by column; None for null. Columns with unknown values are
                missing.

        Raises:
            LiteralError: A text is not a value of its column.
        """
        return self._may_match(self._predicate, values)

    def _may_match(self, predicate: Predicate, values: Mapping[str, str | None]) -> bool:
        """Do the same as `may_match` for a part of the condition."""
        # Bound predicates have no negations, so an unknown value can be taken as matching.
        if isinstance(predicate, And):
            return all(self._may_match(child, values) for child in predicate.children)
        if isinstance(predicate, Or):
            return any(self._may_match(child, values) for child in predicate.children)
        if not isinstance(predicate, Leaf):
            return bool(predicate.mask({}, 1)[0])
        name = predicate.column.field_id
        return name not in values or self._matches(predicate, name, values[name])

    def _matches(self, leaf: Leaf, name: str, text: str | None) -> bool:
        """Return whether a partition value, given as text, satisfies `leaf`.

        Results are cached.
        """
        key = id(leaf), text
        result = self._results.get(key)
        if result is None:
            value = parse_partition_value(
                text, self._types[name], f"partition column {name!r} of table {self._table!r}"
            )
            result = self._results[key] = bool(leaf.value_mask(value)[0])
        return result


def parse_partition_value(text: str | None, type_: pa.DataType, subject: str) -> pa.Array:
    """Parse the text of a value in a partition key to an array of length one.

    Args:
        text: The text; None for null.
        type_: The type of the partition column.
        subject: The column, for messages.

    Raises:
        LiteralError: The text is not a value of that type.
    """
    if text is None:
        return pa.nulls(1, type_)
    cls = type_class(type_)
    if t.is_float32(type_):
        # The key has the shortest text of the 32 bits; the nearest double would be another number.
        try:
            return pa.array(np.array([text], np.float32))
        except ValueError:
            raise LiteralError(f"{text!r} is no value of {subject}: give a number") from None
    return array_of([parse_literal(text, cls, subject)])


def is_partition_value(text: str | None, type_: pa.DataType) -> bool:
    """Return whether a text in a partition key is a value of a type.

    None means null, which every type has.
    """
    try:
        parse_partition_value(text, type_, "")
    except (LiteralError, UnsupportedTypeError):
        return False
    return True
