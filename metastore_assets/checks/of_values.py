"""Checks of a column that its list of values answers; bounds and counts decide some of them without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.checks.of_columns import no_values, shown_range
from metastore_assets.checks.result import Finding, verdict
from metastore_assets.checks.subject import Subject
from metastore_assets.config.check_models import AcceptedValues, Matches
from metastore_assets.errors import ConfigError, NotKeptError
from metastore_assets.report.facts import scalar_text
from metastore_assets.report.text import number, plural, share, short
from metastore_assets.values.physical import order_key

_MOST_NAMED = 3
_CELL = 40
_ADVICE = "`frequencies: all`"


@dataclass(frozen=True)
class ExactCount:
    """How many rows have values that are as a check wants them, of those that are listed."""

    fit: int
    listed: int
    others: Sequence[pa.Scalar]
    """Some of the values that are not."""


def accepted_values(check: AcceptedValues, subject: Subject) -> Finding:
    """Whether all values are among those given."""
    row = subject.row
    accepted = [subject.literal(value) for value in check.values]
    if not row.value_count:
        return Finding("passed", "no values")
    keys = {_key(value) for value in accepted}
    if row.distinct_count_guarantee == "exact" and (row.distinct_count or 0) > len(keys):
        others = _most_frequent_others(subject, keys)
        named = f"; not {_named(others)}" if others else ""
        accepted_count = "1 is" if len(keys) == 1 else f"{len(keys):,} are"
        told = f"{number(row.distinct_count)} distinct values, and {accepted_count} accepted{named}"
        return Finding("failed", told)
    outside = [
        bound
        for bound, is_exact in ((row.minimum, row.minimum_exact), (row.maximum, row.maximum_exact))
        if bound is not None and is_exact and _key(bound) not in keys
    ]
    if outside:
        return Finding("failed", f"{_named(outside)} not accepted; {shown_range(row)}")
    if row.nan_count and "NaN" not in keys:
        return Finding("failed", f"{number(row.nan_count)} NaN")
    if _is_beyond(subject, accepted):
        return Finding("failed", f"no value is accepted; {shown_range(row)}", "bound")
    try:
        # No more than are accepted.
        counted = _count(subject, lambda values: _among(values, keys))
    except NotKeptError as error:
        return Finding("unknown", str(error), "absent", _ADVICE)
    return decided(counted, row.value_count, Fraction(1), "accepted")


def _most_frequent_others(subject: Subject, keys: Collection[object]) -> list[pa.Scalar]:
    try:
        top = subject.table.top(subject.column, len(keys) + _MOST_NAMED, subject.partition).values
    except NotKeptError:
        return []
    return [value for value, _ in top if _key(value) not in keys][:_MOST_NAMED]


def matches(check: Matches, subject: Subject) -> Finding:
    """Whether so many values are what a pattern describes."""
    row = subject.row
    like = _like(check.pattern)
    if row.type_class is None:
        return Finding("unknown", no_values(row), "absent")
    if row.type_class not in ("string", "null"):
        raise ConfigError(f"{subject.named} has values of {row.type}: patterns are of texts")
    if not row.value_count:
        return Finding("passed", "no values")
    try:
        counted = _count(subject, like)
    except NotKeptError as error:
        return Finding("unknown", str(error), "absent", _ADVICE)
    return decided(counted, row.value_count, Fraction(check.least), "as described")


def _like(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Which texts are what a pattern describes, from beginning to end. Raises ConfigError."""
    whole = rf"\A(?:{pattern})\z"
    try:
        pc.match_substring_regex(pa.array([""]), whole)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{pattern!r} is no regular expression (RE2): {error}") from None
    return lambda values: pc.match_substring_regex(values, whole)


def decided(counted: ExactCount, values: int, least: Fraction, what: str) -> Finding:
    """What is found where so many of `values` rows fit; those that are not listed may or may not."""
    unlisted = values - counted.listed
    others = f"; not {_named(counted.others)}" if counted.others else ""
    told = f"{share(counted.fit, values)} of {plural(values, 'value')} {what}{others}"
    measures = {"matching_share": counted.fit / values}
    if not unlisted:
        is_enough = Fraction(counted.fit, values) >= least
        return Finding(verdict(is_enough), told, measures=measures)
    told = f"of {plural(values, 'value')} {number(counted.fit)} are {what}, {number(unlisted)} are not listed{others}"
    if Fraction(counted.fit, values) >= least:
        return Finding("passed", told, "bound")
    if Fraction(counted.fit + unlisted, values) < least:
        return Finding("failed", told, "bound")
    return Finding("unknown", told, "bound", _ADVICE)


def _count(subject: Subject, fits: Callable[[pa.Array], pa.Array]) -> ExactCount:
    fit, listed = 0, 0
    others: list[pa.Scalar] = []
    for own in subject.table.values(subject.column, subject.partition):
        mask = fits(own.values)
        fit += pc.sum(own.counts.filter(mask), min_count=0).as_py()
        listed += pc.sum(own.counts, min_count=0).as_py()
        if len(others) < _MOST_NAMED:
            others += list(own.values.filter(pc.invert(mask))[:_MOST_NAMED])
    return ExactCount(fit, listed, others[:_MOST_NAMED])


def _among(values: pa.Array, keys: Collection[object]) -> pa.Array:
    return pa.array([_key(value) in keys for value in values], pa.bool_())


def _is_beyond(subject: Subject, accepted: Sequence[pa.Scalar]) -> bool:
    """Whether every accepted value is less than all that there are, or greater."""
    row = subject.row
    keys = [order_key(value) for value in accepted]
    if row.nan_count or any(key != key for key in keys):
        return False
    return (row.minimum is not None and max(keys) < order_key(row.minimum)) or (
        row.maximum is not None and min(keys) > order_key(row.maximum)
    )


def _key(value: pa.Scalar) -> object:
    """Equal for equal values of one class, NaN among them."""
    key = order_key(value)
    return "NaN" if key != key else key


def _named(values: Sequence[pa.Scalar]) -> str:
    return ", ".join(short(scalar_text(value), _CELL) for value in values)
