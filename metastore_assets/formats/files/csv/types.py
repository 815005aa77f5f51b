"""Inference of the types of CSV columns: the types that fit all values of a column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from metastore_assets.formats.files.text_values import BLANKS, first_mismatch, matches, parse
from metastore_assets.startup import pc

CANDIDATES: tuple[pa.DataType, ...] = (
    pa.null(),
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.string(),
)
"""The types that a CSV column may have, the preferred first. A column gets the first one that all values in all files
fit."""

ALL = frozenset(CANDIDATES)
_EMPTY_TEXTS = ALL - {pa.null()}
"""The types that a column of only empty texts fits. An empty text is null in each of them except string."""
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LIKE = {
    type_: re.compile(pattern + r"\Z")
    for pattern, types in {
        r"[+-]?[0-9]+": [pa.int64()],
        r"\+?[0-9]+": [pa.uint64()],
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity|nan)": [pa.float64()],
        r"(?i:true|false)": [pa.bool_()],
        _DAY: [pa.date32()],
        rf"{_DAY}([ T][0-9:.]*)?": [pa.timestamp("us"), pa.timestamp("ns")],
        rf"{_DAY}.*(Z|[+-][0-9:]+)": [pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")],
        r"[0-9]{2}:[0-9:.]+": [pa.time64("us"), pa.time64("ns")],
        r"(?s:.*)": [pa.string()],
    }.items()
    for type_ in types
}
"""For each type, a pattern that all texts of its values match. Other texts may match too."""
_SAMPLE = 1024
_MAX_PYTHON_VALUES = 4
"""Maximum number of values that are compared in Python. A file may have 100,000 columns, and each call of Arrow takes
10 µs."""
_SHORT_INTEGER = re.compile(r"-?[1-9][0-9]{0,14}|0")
_INTEGERS = frozenset([pa.int64(), pa.float64(), pa.string()])
SHOWN = 100
"""Maximum number of characters of a value in a message."""
_LEADING_ZERO = r"^[ \t]*[+-]?0[0-9]"
_LONG_INTEGER = r"^[ \t]*[+-]?[0-9]{16,}[ \t]*$"
_EXACT = 2**53


@dataclass(frozen=True)
class RuledOut:
    """The first value of a file that rules out a type, because it does not fit."""

    type: pa.DataType
    text: str | None
    """The first SHOWN characters of the value; None if the column's values are hidden."""
    line: int


def fitting(texts: pa.StringArray, candidates: frozenset[pa.DataType]) -> frozenset[pa.DataType]:
    """Return the candidates that every text fits.

    A null fits all types. An empty text fits all except the null type.
    """
    return candidates - misfits(texts, candidates).keys() - ({pa.null()} if len(texts) > texts.null_count else set())


def misfits(
    texts: pa.StringArray, candidates: frozenset[pa.DataType], *, empty_fits: bool = True
) -> dict[pa.DataType, int]:
    """Return the index of the first text that does not fit, by type.

    Types that all texts fit are left out.

    Args:
        texts: the values. Nulls fit every type.
        candidates: the types to test. The null type is ignored.
        empty_fits: whether an empty text fits every type.
    """
    if len(texts) <= _MAX_PYTHON_VALUES:
        mismatches = _misfits_of_integers(texts, candidates)
        if mismatches is not None:
            return mismatches
    is_value = pc.not_equal(texts, "") if empty_fits else texts.is_valid()
    values = texts.filter(is_value)
    if not len(values):
        return {}
    # A sample is parsed first, because Arrow is slow to refuse many values.
    first = values[0].as_py().strip(BLANKS)
    mismatches = {}
    for type_ in candidates - {pa.null()}:
        if not _LIKE[type_].match(first):
            mismatches[type_] = 0
        elif not _fits(values.slice(0, _SAMPLE), type_) or (len(values) > _SAMPLE and not _fits(values, type_)):
            mismatches[type_] = first_mismatch(values, partial(_fits, type_=type_))
    if mismatches and len(values) < len(texts):
        positions = np.flatnonzero(pc.fill_null(is_value, False))
        return {type_: int(positions[index]) for type_, index in mismatches.items()}
    return mismatches


def _misfits_of_integers(texts: pa.StringArray, candidates: frozenset[pa.DataType]) -> dict[pa.DataType, int] | None:
    """Return the result of `misfits` if all texts are integers; otherwise, or without texts, None.

    The result maps each candidate that some text does not fit to the index of the first such text. Integers have at
    most 15 digits, such as `-12`; `012` and `+12` do not count. For few texts, this is faster than calls of Arrow.
    """
    values = texts.to_pylist()
    if not values or not all(value and _SHORT_INTEGER.fullmatch(value) for value in values):
        return None
    mismatches = dict.fromkeys(candidates - _INTEGERS - {pa.null(), pa.uint64()}, 0)
    negative = next((index for index, value in enumerate(values) if value[0] == "-"), None)
    if negative is not None and pa.uint64() in candidates:
        mismatches[pa.uint64()] = negative
    return mismatches


def preferred(candidates: frozenset[pa.DataType]) -> pa.DataType:
    """Return the preferred type among those that a column fits.

    A column of empty texts has the type string. A column without values has the null type.
    """
    if candidates == _EMPTY_TEXTS:
        return pa.string()
    return next(type_ for type_ in CANDIDATES if type_ in candidates)


def _fits(values: pa.StringArray, type_: pa.DataType) -> bool:
    """Return whether all values can be parsed as a type without loss."""
    if pa.types.is_string(type_) or not len(values):
        return True
    # Leading zeros matter, as in postcodes: 01234 is not 1234.
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if is_number and _any(matches(values, _LEADING_ZERO)):
        return False
    try:
        parsed_values = parse(values, type_)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_floating(type_):
        # Two different integers beyond 2^53 may become the same float.
        large = parsed_values.filter(matches(values, _LONG_INTEGER))
        return not _any(pc.greater(pc.abs(large), float(_EXACT)))
    return True


def _any(mask: pa.BooleanArray) -> bool:
    return bool(pc.any(mask).as_py())
