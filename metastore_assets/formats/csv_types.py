"""Types of CSV columns: those that every value of a column fits."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.formats.text_values import first_misfit, matches, parse

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
"""Types of a CSV column, the preferred first. A column gets the first one that every value of every file fits."""

ALL = frozenset(CANDIDATES)
_EMPTY_TEXTS = ALL - {pa.null()}
"""What a column of nothing but empty texts fits: they are null in every column but text."""
_FIRST = 64
_LEADING_ZERO = r"^[ \t]*[+-]?0[0-9]"
_LONG_INTEGER = r"^[ \t]*[+-]?[0-9]{16,}[ \t]*$"
_EXACT = 2**53


@dataclass(frozen=True)
class RuledOut:
    """The first value of a file that is why a column is not of a type."""

    type: pa.DataType
    text: str
    line: int


def fitting(texts: pa.StringArray, candidates: frozenset[pa.DataType]) -> frozenset[pa.DataType]:
    """Those of the candidates that every text fits. Nulls fit all; so do empty texts, but no null type."""
    values = texts.drop_null()
    if not len(values):
        return candidates
    candidates -= {pa.null()}
    values = values.filter(pc.not_equal(values, ""))
    # Arrow takes long to say of many values that they do not fit: mostly the first ones do not, either.
    for some in (values.slice(0, _FIRST), values) if len(values) else ():
        candidates = frozenset(type_ for type_ in candidates if _fits(some, type_))
    return candidates


def preferred(candidates: frozenset[pa.DataType]) -> pa.DataType:
    """The type of a column that these fit: null when nothing is known because it has no value."""
    if candidates == _EMPTY_TEXTS:
        return pa.string()
    return next(type_ for type_ in CANDIDATES if type_ in candidates)


def ruled_out(texts: pa.StringArray, type_: pa.DataType) -> int:
    """The place of the first text because of which a column is not of that type."""
    return first_misfit(texts, lambda part: _fits(part.filter(pc.not_equal(part, "")), type_))


def _fits(values: pa.StringArray, type_: pa.DataType) -> bool:
    """Whether a column of these values may be of the type: they can be read so, and nothing of them would be lost."""
    if pa.types.is_string(type_) or not len(values):
        return True
    if pa.types.is_null(type_):
        return False
    # Postcodes and the like: 01234 is another one than 1234.
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if is_number and _any(matches(values, _LEADING_ZERO)):
        return False
    try:
        parsed = parse(values, type_)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_floating(type_):
        # Integers and fractions in one column: no two different integers may become equal.
        large = parsed.filter(matches(values, _LONG_INTEGER))
        return not _any(pc.greater(pc.abs(large), float(_EXACT)))
    return True


def _any(mask: pa.BooleanArray) -> bool:
    return bool(pc.any(mask).as_py())
