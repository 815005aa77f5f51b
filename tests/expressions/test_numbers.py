"""Number literals that a column cannot have: out of range, or between two possible values."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest

from metastore_assets.errors import LiteralError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.literals import parse_literal, to_literal
from metastore_assets.expressions.predicates import Comparison
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.types import type_class

SCHEMA = pa.schema([("n", pa.int64()), ("price", pa.decimal128(10, 2)), ("wide", pa.decimal128(38, 0))])
COLUMNS = schema_columns(SCHEMA)


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
def test_huge_exponents_are_compared_without_expanding_digits(text: str, same: str) -> None:
    """A comparison with a number of a huge exponent is parsed to an equivalent one without this number.

    With all its digits, the number would not fit into memory. Only its order relative to the column's range matters.
    """
    assert parse_predicate(text, "t", COLUMNS) == parse_predicate(same, "t", COLUMNS)


@pytest.mark.parametrize("sign", ["", "-", "- -"])
def test_all_digits_of_a_literal_are_retained(sign: str) -> None:
    """A literal of 38 digits is exact.

    Python's decimal arithmetic rounds to 28 digits by default.
    """
    digits = "12345678901234567890123456789012345678"
    predicate = parse_predicate(f"wide = {sign}{digits}", "t", COLUMNS)
    assert isinstance(predicate, Comparison)
    assert str(predicate.value) == f"{'-' if sign == '-' else ''}{digits}"


@pytest.mark.parametrize("type_", [pa.int64(), pa.decimal128(10, 2)])
def test_a_number_of_hundreds_of_digits_is_beyond_the_range(type_: pa.DataType) -> None:
    for value in (10**500, -(10**500), Decimal("1e500")):
        with pytest.raises(LiteralError, match=r"\bcolumn n\b.*\brange\b"):
            to_literal(value, type_class(type_), "column n")


@pytest.mark.parametrize("text", ["1e999999999", "-1e999999999", "1e-999999999", "1." + "0" * 500 + "1"])
def test_unrepresentable_numbers_are_refused_as_values(text: str) -> None:
    """A number that the column cannot have is an error, and is not rounded to a value of the column."""
    for type_ in (pa.int64(), pa.decimal128(10, 2)):
        cls = type_class(type_)
        with pytest.raises(LiteralError, match=f"^'{re.escape(text[:20])}.*'n'"):
            parse_literal(text, cls, "column 'n'")
        with pytest.raises(LiteralError, match=f"^{re.escape(repr(Decimal(text))[:20])}.*'n'"):
            to_literal(Decimal(text), cls, "column 'n'")


@pytest.mark.parametrize(
    ("value", "column", "reason"),
    [
        (pa.scalar(1_500_001, pa.timestamp("us")), pa.timestamp("ms"), r"\bms\b"),
        (pa.scalar(1, pa.time64("ns")), pa.time64("us"), None),
        (pa.scalar(1, pa.timestamp("s", "UTC")), pa.timestamp("s"), "time zone"),
        (pa.scalar(2**62, pa.timestamp("s")), pa.timestamp("ns"), "range"),
    ],
)
def test_arrow_times_that_a_column_cannot_have(value: pa.Scalar, column: pa.DataType, reason: str | None) -> None:
    """An Arrow time that a column cannot have is refused, and the error has the reason.

    The reason is a unit that is too fine, a time zone, or the range of the column. A time of day in nanoseconds is
    accepted for a column in microseconds.
    """
    cls = type_class(column)
    if reason is None:
        assert to_literal(value, cls, "column 'n'") == value
        return
    with pytest.raises(LiteralError, match=f"column 'n'.*{reason}"):
        to_literal(value, cls, "column 'n'")
