"""Numbers that are no values of a column: far out, or between two of them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from metastore_assets.errors import LiteralError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.literals import parse_literal, to_literal
from metastore_assets.expressions.predicates import Comparison
from metastore_assets.values.leaf_columns import schema_leaves
from metastore_assets.values.types import type_class

SCHEMA = pa.schema([("n", pa.int64()), ("price", pa.decimal128(10, 2)), ("wide", pa.decimal128(38, 0))])
LEAVES = [leaf for leaves in schema_leaves(SCHEMA) for leaf in leaves]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("n < 1e999999999", "n is not null"),
        ("n <= -1e999999999", "false"),
        ("n > 1e999999999", "false"),
        ("n > -1e999999999", "n is not null"),
        ("n = 1e999999999", "false"),
        ("n != 1e999999999", "n is not null"),
        ("n = 1e-999999999", "false"),
        ("n > 1e-999999999", "n > 0"),
        ("n < -1e-999999999", "n < 0"),
        ("n = 0e999999999", "n = 0"),
        ("n = 0e-999999999", "n = 0"),
        ("n in (3, 1e999999999, 1e-999999999)", "n in (3)"),
        ("n > '1e999999999'", "false"),
        ("price >= 1e-999999999", "price >= 0.01"),
        ("price < 1e38", "price is not null"),
    ],
)
def test_their_digits_are_not_written_out(text: str, same: str) -> None:
    """A short text may stand for a number that no memory holds: only the side that it lies on counts."""
    assert parse_predicate(text, "t", LEAVES) == parse_predicate(same, "t", LEAVES)


@pytest.mark.parametrize("sign", ["", "-", "- -"])
def test_all_digits_count(sign: str) -> None:
    """Of a literal with a sign too: Python rounds what is calculated with decimals to 28."""
    digits = "12345678901234567890123456789012345678"
    predicate = parse_predicate(f"wide = {sign}{digits}", "t", LEAVES)
    assert isinstance(predicate, Comparison)
    assert str(predicate.value) == f"{'-' if sign == '-' else ''}{digits}"


@pytest.mark.parametrize("text", ["1e999999999", "-1e999999999", "1e-999999999", "1." + "0" * 500 + "1"])
def test_they_are_no_literals(text: str) -> None:
    """And not taken for the nearest value."""
    for type_ in (pa.int64(), pa.decimal128(10, 2)):
        cls = type_class(type_)
        with pytest.raises(LiteralError, match="'n'"):
            parse_literal(text, cls, "column 'n'")
        with pytest.raises(LiteralError, match="'n'"):
            to_literal(Decimal(text), cls, "column 'n'")
