"""Parsing of values that are written as text, into inferred or declared types."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import pyarrow as pa

from metastore_assets.formats.values import cast_texts
from metastore_assets.startup import pc

TRUE = ["true", "True", "TRUE"]
FALSE = ["false", "False", "FALSE"]
BLANKS = " \t"
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_EXACT_DIGITS = {16: 3, 32: 7, 64: 15}
"""For each width of a float in bits: up to how many digits it holds every integer exactly."""
_NOT_FINITE = r"(?i)^[+-]?(nan|inf|infinity)$"
_ZERO = r"^[+-]?[0.]*([eE].*)?$"


def parse(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Parse texts as values of a type.

    Nulls stay null. Blanks around values are ignored, except in texts and bytes.

    Raises:
        ArrowInvalid: a text is no value of the type. This includes an integer that a float cannot represent exactly,
            more digits than a decimal has, and a number out of range.
    """
    if pa.types.is_string(type_):
        return texts
    if pa.types.is_binary(type_):
        return texts.cast(type_)
    texts = pc.utf8_trim(texts, BLANKS)
    if pa.types.is_boolean(type_):
        return _booleans(texts)
    if pa.types.is_integer(type_):
        return _integers(texts, type_)
    if pa.types.is_floating(type_):
        return _floats(texts, type_)
    if pa.types.is_time(type_):
        return _times(texts, type_)
    if type_ == pa.uuid():
        return _uuids(texts)
    return cast_texts(texts, type_)


def first_mismatch(texts: pa.StringArray, fits: Callable[[pa.StringArray], bool]) -> int:
    """Return the index of the first text that does not fit, by binary search.

    Args:
        texts: the texts, of which at least one does not fit.
        fits: returns whether all texts of a slice fit.
    """
    start, end = 0, 1
    # It tests slices of doubling size from the front, because Arrow is slow to refuse many values.
    while end < len(texts) and fits(texts.slice(start, end - start)):
        start, end = end, 2 * end
    end = min(end, len(texts))
    while end - start > 1:
        middle = (start + end) // 2
        if fits(texts.slice(start, middle - start)):
            start = middle
        else:
            end = middle
    return start


def matches(texts: pa.StringArray, pattern: str) -> pa.BooleanArray:
    """Return for each text whether a part of it matches a regular expression."""
    return pc.match_substring_regex(texts, pattern)


def _booleans(texts: pa.StringArray) -> pa.BooleanArray:
    _require(pc.is_in(texts, value_set=pa.array(TRUE + FALSE)), texts, "boolean")
    values = pc.is_in(texts, value_set=pa.array(TRUE))
    return pc.if_else(texts.is_valid(), values, pa.scalar(None, pa.bool_()))


def _integers(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    # Arrow would parse 0x10 as 16.
    _require(pc.invert(matches(texts, "[xX]")), texts, type_)
    return pc.cast(_unsigned(texts), type_)


def _floats(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Parse texts as floats.

    Raises ArrowInvalid for a number out of range, or for an integer that the type cannot represent exactly.
    """
    values = pc.cast(texts, type_)
    # Arrow parses 1e400 as infinity, nan(1) as NaN, and 1e-400 as zero. All three are refused.
    is_finite, is_zero = pc.is_finite(values), pc.equal(values, pa.scalar(0, type_))
    if not pc.all(is_finite, min_count=0).as_py():
        _require(pc.or_(is_finite, matches(texts, _NOT_FINITE)), texts, type_)
    if pc.any(is_zero).as_py():
        _require(pc.or_(pc.invert(is_zero), matches(texts, _ZERO)), texts, type_)
    if pc.any(matches(texts, rf"^[+-]?[0-9]{{{_EXACT_DIGITS[type_.bit_width] + 1},}}$")).as_py():
        _require(_are_exact(texts, values), texts, type_)
    return values


def _are_exact(texts: pa.StringArray, values: pa.Array) -> pa.BooleanArray:
    """Return for each text of an integer whether the parsed float equals it; True for other texts."""
    is_integer = matches(texts, r"^[+-]?[0-9]{1,18}$")
    zero = pa.scalar(0, values.type)
    integers = pc.cast(_unsigned(pc.if_else(is_integer, texts, "0")), pa.int64())
    exact = pc.equal(integers, pc.cast(pc.if_else(is_integer, values, zero), pa.int64(), safe=False))
    is_huge = matches(texts, r"^[+-]?[0-9]{19,}$")
    if not pc.any(is_huge).as_py():
        return exact
    pairs = zip(texts.to_pylist(), values.to_pylist(), is_huge.to_pylist(), strict=True)
    return pc.and_(exact, pa.array([not huge or Decimal(text) == Decimal(value) for text, value, huge in pairs]))


def _times(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    _require(matches(texts, _TIME), texts, type_)
    day = pc.binary_join_element_wise("1970-01-01T", texts, "")
    return pc.cast(pc.cast(pc.cast(day, pa.timestamp("ns")), pa.time64("ns")), type_)


def _uuids(texts: pa.StringArray) -> pa.Array:
    try:
        values = [None if text is None else UUID(text).bytes for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def _unsigned(texts: pa.StringArray) -> pa.StringArray:
    """Remove a plus sign before the first digit of each text."""
    if not pc.any(pc.starts_with(texts, "+")).as_py():
        return texts
    return pc.replace_substring_regex(texts, r"^\+([0-9])", r"\1")


def _require(is_valid_text: pa.BooleanArray, texts: pa.StringArray, type_: object) -> None:
    if not pc.all(is_valid_text, min_count=0).as_py():
        wrong = texts.filter(pc.and_(pc.invert(is_valid_text), texts.is_valid()))
        if len(wrong):
            raise pa.ArrowInvalid(f"{wrong[0].as_py()!r} is no {type_}")
