"""Texts and Arrow expressions are parsed to the condition that they mean, or are refused.

The SQL text of a predicate is parsed to an equal predicate.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlglot import exp, tokens

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.predicates import BoundColumn, Comparison, IsNull, Like, conjoin
from metastore_assets.values.columns import Column
from metastore_assets.values.types import class_named

BOUND = BoundColumn("x", "1", class_named("string"))
_NAMES = sorted({name.lower() for name in (*tokens.Tokenizer.KEYWORDS, *exp.FUNCTION_BY_NAME) if name.isidentifier()})
"""The words that the parser knows: keywords of SQL, and names of functions."""


@pytest.mark.parametrize("path", ["{}", "a.{}", "{}.a"])
def test_columns_may_have_the_name_of_any_keyword(path: str) -> None:
    """A predicate on a column with the name of any keyword is parsed from its SQL text to an equal one.

    The SQL text of the predicate quotes the names of columns that need quotes.
    """
    for name in _NAMES:
        column = Column(path.format(name), "1", pa.string())
        for predicate in (Comparison(BOUND, ">", pa.scalar("b", pa.large_string())), IsNull(BOUND), Like(BOUND, b"a")):
            keyword_predicate = replace(predicate, column=replace(BOUND, path=column.path))
            for first in (
                keyword_predicate,
                conjoin([IsNull(keyword_predicate.column, negated=True), keyword_predicate]),
            ):
                assert parse_predicate(first.to_sql(), "orders", [column]) == first


@pytest.mark.parametrize("name", ["comment", "set", "show", "begin", "load", "cache", "execute", "analyze", "copy"])
def test_names_of_statements_need_no_quotes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    columns = [Column(name, "1", pa.int64())]
    assert parse_predicate(f"{name} > 1", "t", columns) == parse_predicate(f'"{name}" > 1', "t", columns)
    assert not caplog.records


def test_between_symmetric_is_refused() -> None:
    """`between symmetric` is refused, and the error shows the condition.

    `between symmetric 5 and 1` would match nothing if it were read as `between 5 and 1`.
    """
    with pytest.raises(PredicateError, match="BETWEEN 5 AND 1"):
        parse_predicate("x between symmetric 5 and 1", "t", [Column("x", "1", pa.int64())])


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.null(), pa.struct([("a", pa.int64())])], ids=str)
def test_nan_is_null_applies_to_columns_without_nan(type_: pa.DataType) -> None:
    columns = [Column("x", "1", type_)]
    field = pc.field("x")
    for expression, plain in (
        (field.is_null(nan_is_null=True), field.is_null()),
        (~field.is_null(nan_is_null=True), field.is_valid()),
    ):
        assert parse_predicate(expression, "t", columns) == parse_predicate(plain, "t", columns)


def test_a_pattern_that_is_not_utf8_is_refused_unless_it_is_a_prefix() -> None:
    """A `like` pattern with bytes that are not UTF-8 is refused, unless it is a prefix followed by `%`.

    Lone surrogates in the text stand for these bytes. A prefix is compared with the bytes.
    """
    columns = [Column("x", "1", pa.string())]
    for pattern in ("%\udc80", "a_\udcff%", "\udc80_"):
        with pytest.raises(PredicateError, match="UTF-8"):
            parse_predicate(f"x like '{pattern}'", "t", columns)
    assert parse_predicate("x like 'a\udc80%'", "t", columns) == Like(BOUND, b"a\x80")


def test_unsupported_expressions_with_long_texts_are_refused() -> None:
    """An unsupported expression is refused even if it has a text so long that Arrow cannot print it.

    When Arrow prints an expression, it shortens a long text, and here cuts it inside a character.
    """
    long = pc.is_in(pc.field("x"), pa.array(["😀" * 100]))
    with pytest.raises(PredicateError, match=r"isin.*match_like"):
        parse_predicate(long & pc.match_substring(pc.field("x"), "a"), "t", [Column("x", "1", pa.string())])
