"""Checks of a column that its statistics answer: nulls, bounds, lengths, duplicates."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa

from metastore_assets.checks.result import Finding, Status, verdict
from metastore_assets.checks.subject import Subject
from metastore_assets.config.check_models import Lengths, NotNull, NullShare, Range, Unique
from metastore_assets.errors import ConfigError, NotKeptError
from metastore_assets.report.facts import maximum_text, minimum_text
from metastore_assets.report.text import number, plural, share, short
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.physical import order_key, physical_value
from metastore_assets.values.types import class_named

_CELL = 40
_ALL_LISTED = "`frequencies: all`"
_REPEATED = "`frequencies: repeated` or `frequencies: all`"


def not_null(check: NotNull, subject: Subject) -> Finding:
    """Whether there is no null."""
    return _nulls(verdict(not subject.row.null_count), subject.row)


def null_share(check: NullShare, subject: Subject) -> Finding:
    """Whether so many are null."""
    row = subject.row
    count = row.null_count + row.value_count
    if not count:
        return Finding("passed", "no rows")
    part = Fraction(row.null_count, count)
    is_within = (check.least is None or part >= Fraction(check.least)) and (
        check.most is None or part <= Fraction(check.most)
    )
    return _nulls(verdict(is_within), row)


def _nulls(status: Status, row: ColumnStatistics) -> Finding:
    count = row.null_count + row.value_count
    if not count:
        return Finding(status, "no rows")
    told = f"no nulls in {plural(count, 'row')}"
    if row.null_count:
        told = f"{plural(row.null_count, 'null')} in {plural(count, 'row')} ({share(row.null_count, count)})"
    return Finding(status, told, measures={"nulls": row.null_count, "null_share": row.null_count / count})


def unique(check: Unique, subject: Subject) -> Finding:
    """Whether no value occurs twice. An estimate of distinct values decides nothing; bounds may."""
    row = subject.row
    if row.value_count <= 1:
        return Finding("passed", plural(row.value_count, "value"))
    if row.type_class is None:
        return Finding("unknown", no_values(row), "absent")
    distinct, guarantee = row.distinct_count, row.distinct_count_guarantee
    if distinct is not None and guarantee == "exact":
        told = f"{number(distinct)} distinct of {plural(row.value_count, 'value')}"
        if row.duplicate_count:
            told += f"; {plural(row.duplicate_count, 'value occurs', 'values occur')} more than once"
        measures = {"values": row.value_count, "distinct": distinct}
        return Finding(verdict(distinct == row.value_count), told, measures=measures)
    most = _most_distinct(row)
    if most is not None and most < row.value_count:
        return Finding(
            "failed", f"{plural(row.value_count, 'value')}, and only {number(most)} can be distinct", "bound"
        )
    about = "" if distinct is None else f"about {number(distinct)} distinct of "
    advice = _REPEATED if subject.partition is None else _ALL_LISTED
    return Finding("unknown", f"{about}{plural(row.value_count, 'value')}", guarantee, advice)


def _most_distinct(row: ColumnStatistics) -> int | None:
    """How many distinct values there can be between the bounds, be they exact or not; None for no limit known."""
    if row.minimum is None or row.maximum is None or row.type_class is None:
        return None
    nan = min(row.nan_count or 0, 1)
    if order_key(row.minimum) == order_key(row.maximum):
        return 1 + nan
    if class_named(row.type_class).kind != "integer":
        # Of NaN all but one are the same value again.
        return row.value_count - (row.nan_count or 0) + nan
    return int(physical_value(row.maximum) - physical_value(row.minimum)) + 1


def value_range(check: Range, subject: Subject) -> Finding:
    """Whether all values lie between two bounds."""
    row = subject.row
    # Also where there is no value: what is no value of the column is a mistake, whatever the column holds.
    low = None if check.minimum is None else subject.literal(check.minimum)
    high = None if check.maximum is None else subject.literal(check.maximum)
    if not row.value_count:
        return Finding("passed", "no values")
    if row.nan_count:
        return Finding("failed", f"{number(row.nan_count)} of {plural(row.value_count, 'value')} are NaN")
    sides = [_side(row, low, least=True), _side(row, high, least=False)]
    told = shown_range(row) or "least and greatest value are not kept"
    measures = _bounds(row)
    if sides == ["passed", "passed"]:
        return Finding("passed", told, measures=measures)
    # Bounds of long texts are cut: where they do not tell, the list of values does.
    outside = _outside(subject, low, high)
    if outside is not None:
        told += f"; {plural(outside, 'value')} outside" if outside else "; none outside"
        return Finding(verdict(not outside), told, measures=measures)
    if "failed" in sides:
        return Finding("failed", told, measures=measures)
    hidden = row.minimum is None and row.maximum is None
    return Finding("unknown", told, "absent" if hidden else "bound", _why_inexact(row))


def _side(row: ColumnStatistics, limit: pa.Scalar | None, *, least: bool) -> Status:
    """Whether the least value is no less than a limit, or the greatest no greater."""
    if limit is None:
        return "passed"
    near, far = (row.minimum, row.maximum) if least else (row.maximum, row.minimum)
    is_exact = row.minimum_exact if least else row.maximum_exact
    if near is not None and _within(near, limit, least=least):
        return "passed"
    if near is not None and is_exact:
        return "failed"
    # No value is beyond the other bound, so that all are outside when that is.
    return "failed" if far is not None and not _within(far, limit, least=least) else "unknown"


def _within(value: pa.Scalar, limit: pa.Scalar, *, least: bool) -> bool:
    return bool(order_key(value) >= order_key(limit) if least else order_key(value) <= order_key(limit))


def _outside(subject: Subject, low: pa.Scalar | None, high: pa.Scalar | None) -> int | None:
    """How many values are outside; None where that is not known exactly."""
    table, row, (column, partition) = subject.table, subject.row, (subject.column, subject.partition)
    outside = 0
    try:
        if low is not None:
            below = table.rank(column, low, partition)
            outside += below.count
            if below.guarantee != "exact":
                return None
        if high is not None:
            within = table.count_between(column, row.minimum, high, partition)
            outside += row.value_count - within.count
            if within.guarantee != "exact":
                return None
    except NotKeptError:
        return None
    return outside


def shown_range(row: ColumnStatistics) -> str:
    """Least and greatest value, each no longer than a line has room for."""
    if row.minimum is None or row.maximum is None:
        return ""
    return f"{short(minimum_text(row), _CELL)} to {short(maximum_text(row), _CELL)}"


def _why_inexact(row: ColumnStatistics) -> str:
    if row.minimum is None and row.maximum is None and row.type_class is not None:
        return "`values: shown`, for hidden values have no bounds"
    return f"{_ALL_LISTED}, with which values are counted"


def _bounds(row: ColumnStatistics) -> dict[str, int | float]:
    """Exact bounds of numbers, to be followed."""
    found: dict[str, int | float] = {}
    for name, value, is_exact in (
        ("minimum", row.minimum, row.minimum_exact),
        ("maximum", row.maximum, row.maximum_exact),
    ):
        if value is not None and is_exact and row.type_class is not None and class_named(row.type_class).is_numeric:
            found[name] = float(value.as_py())
    return found


def lengths(check: Lengths, subject: Subject) -> Finding:
    """Whether all lengths lie between two bounds."""
    row = subject.row
    if not row.value_count:
        return Finding("passed", "no values")
    low, high = row.minimum_length, row.maximum_length
    if low is None or high is None:
        raise ConfigError(
            f"{subject.named} has values of {row.type}, which have no length: only text, binary, lists and maps have"
        )
    is_within = (check.minimum is None or low >= check.minimum) and (check.maximum is None or high <= check.maximum)
    measures = {"minimum_length": low, "maximum_length": high}
    told = f"lengths from {number(low)} to {number(high)}" if low != high else f"all of length {number(low)}"
    return Finding(verdict(is_within), told, measures=measures)


def no_values(row: ColumnStatistics) -> str:
    """Why nothing is known of a column's values: they are hidden, or of a type that has none of its own."""
    return row.reason or f"{row.type} has no values of its own"
