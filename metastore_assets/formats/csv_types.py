"""Types of CSV columns: those that every value of a column fits."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

TRUE = ["true", "True", "TRUE"]
FALSE = ["false", "False", "FALSE"]
CANDIDATES: tuple[pa.DataType, ...] = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.time64("us"),
    pa.string(),
)
"""Types of a CSV column, the preferred first. A column gets the first one that every value of every file fits."""

ALL = frozenset(CANDIDATES)
_WORDS = f"^({'|'.join(TRUE + FALSE)})$"
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_LONG_INTEGER = r"^[+-]?[0-9]{16,}$"


def fitting(
    texts: pa.StringArray, candidates: frozenset[pa.DataType], null_values: Iterable[str]
) -> frozenset[pa.DataType]:
    """Those of the candidates that every text which is no null fits."""
    values = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(null_values, pa.string()))))
    if not len(values):
        return candidates
    values = pc.utf8_trim(values, " \t")
    return frozenset(type_ for type_ in candidates if _fits(values, type_))


def preferred(candidates: frozenset[pa.DataType]) -> pa.DataType:
    """The type of a column that these fit: null when nothing is known because it has no value."""
    if candidates == ALL:
        return pa.null()
    return next(type_ for type_ in CANDIDATES if type_ in candidates)


def _fits(values: pa.StringArray, type_: pa.DataType) -> bool:
    if pa.types.is_string(type_):
        return True
    if pa.types.is_boolean(type_):
        return _all_match(values, _WORDS)
    if pa.types.is_time(type_):
        return _all_match(values, _TIME)
    if pa.types.is_integer(type_) and _any_match(values, "[xX]"):
        # Arrow takes 0x10 for 16; such texts are codes.
        return False
    if pa.types.is_floating(type_) and _any_match(values, _LONG_INTEGER):
        # Beyond 2^53 not every integer is a float: two different ones would become equal.
        return False
    try:
        parsed = pc.cast(values, type_)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_floating(type_):
        # 1e400 is not infinite.
        infinite = values.filter(pc.is_inf(parsed))
        return not len(infinite) or _all_match(infinite, "(?i)inf")
    return True


def _all_match(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _any_match(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())
