"""Texts and Arrow expressions become the condition that they mean, or are refused. SQL text of predicates parses."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.values.leaf_columns import LeafColumn


def test_between_symmetric_is_refused() -> None:
    """It would match nothing if its ends were taken in their order."""
    with pytest.raises(PredicateError, match="not supported"):
        parse_predicate("x between symmetric 5 and 1", "t", [LeafColumn("x", "1", pa.int64())])


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.null(), pa.struct([("a", pa.int64())])], ids=str)
def test_nan_is_null_applies_to_columns_without_nan(type_: pa.DataType) -> None:
    columns = [LeafColumn("x", "1", type_)]
    field = pc.field("x")
    for expression, plain in (
        (field.is_null(nan_is_null=True), field.is_null()),
        (~field.is_null(nan_is_null=True), field.is_valid()),
    ):
        assert parse_predicate(expression, "t", columns) == parse_predicate(plain, "t", columns)
