"""The checks of a column: nulls, uniqueness, ranges, accepted values, patterns, lengths, and drift.

The value counts of a column are its distinct values with their frequencies. They may be stored for all values,
only for values that occur at least twice, or not at all. A version is the published statistics of a table at one
snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field

from metastore_assets.checks.base import (
    BoundedCheck,
    Check,
    Finding,
    Status,
    describe_baseline,
    describe_bounds,
    describe_share,
    describe_value,
    nothing_to_check,
    status_of,
)
from metastore_assets.checks.settings import Baseline, ColumnValue, Count, Limit, UnitShare, parse_share
from metastore_assets.checks.subject import Subject
from metastore_assets.errors import ConfigError, NotStoredError
from metastore_assets.lookup.distances import ComparedColumn, measure_distances
from metastore_assets.lookup.results import explain_no_values
from metastore_assets.report.facts import maximum_text, minimum_text, scalar_text
from metastore_assets.report.text import format_count, format_number, format_share, shorten
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.finalize import max_distinct
from metastore_assets.values.physical import identity_key, order_key
from metastore_assets.values.types import class_named

DistanceMeasure: TypeAlias = Literal["stability_index", "kolmogorov_smirnov", "jensen_shannon"]

_MEASURE_NAMES: Mapping[DistanceMeasure, str] = {
    "stability_index": "stability index",
    "kolmogorov_smirnov": "Kolmogorov–Smirnov distance",
    "jensen_shannon": "Jensen–Shannon distance",
}
_MAX_VALUE_CELLS = 40
"""The maximum terminal cells of a value in a finding."""
_MAX_EXPECTED_CELLS = 60
"""The maximum terminal cells of a value or pattern in a description."""
_MAX_EXPECTED_VALUES = 8
_MAX_EXAMPLES = 3
"""The maximum number of unaccepted values that a finding names."""
_ALL_VALUES = "`frequencies: all`"
_REPEATED_VALUES = "`frequencies: repeated` or `frequencies: all`"


class NotNull(Check):
    """No value is null."""

    kind = "not_null"
    universal = True
    drill_down = "statistics"

    def evaluate(self, subject: Subject) -> Finding:
        row = subject.row
        if not row.null_count + row.value_count:
            return nothing_to_check("rows")
        return _null_finding(status_of(not row.null_count), row)

    def describe(self) -> str:
        return "no nulls"

    def excess(self, measures: Mapping[str, float]) -> float:
        return measures.get("nulls", 0)


class NullShare(BoundedCheck):
    """The share of rows that are null is from `least` to `most`, both inclusive."""

    kind = "null_share"
    main = "most"
    bounds = ("least", "most")
    drill_down = "statistics"
    least: UnitShare | None = None
    most: UnitShare | None = None

    def evaluate(self, subject: Subject) -> Finding:
        row = subject.row
        count = row.null_count + row.value_count
        if not count:
            return nothing_to_check("rows")
        return _null_finding(status_of(self.is_within(Fraction(row.null_count, count))), row)

    def describe(self) -> str:
        return f"{describe_bounds(describe_share(self.least), describe_share(self.most))} null"

    def excess(self, measures: Mapping[str, float]) -> float:
        return self.excess_of(measures.get("null_share"), measures.get("null_share"))


def _null_finding(status: Status, row: ColumnStatistics) -> Finding:
    count = row.null_count + row.value_count
    observation = f"no nulls in {format_count(count, 'row')}"
    if row.null_count:
        share = format_share(row.null_count, count)
        observation = f"{format_count(row.null_count, 'null')} in {format_count(count, 'row')} ({share})"
    return Finding(status, observation, measures={"nulls": row.null_count, "null_share": row.null_count / count})


class Unique(Check):
    """No value occurs twice.

    Nulls are ignored.
    """

    kind = "unique"
    universal = True
    drill_down = "statistics"

    def evaluate(self, subject: Subject) -> Finding:
        """Compare the exact distinct count with the number of values.

        A column with at most one value passes. If the distinct count is an estimate or missing, only minimum, maximum
        and the number of NaN are used. The finding is then `failed` if they allow fewer distinct values than there are
        values, otherwise `unknown`.
        """
        row = subject.row
        if not row.value_count:
            return nothing_to_check("values")
        if row.value_count == 1:
            return Finding("passed", "1 value")
        if row.type_class is None:
            return Finding("unknown", explain_no_values(row), "absent")
        distinct, guarantee = row.distinct_count, row.distinct_count_guarantee
        if distinct is not None and guarantee == "exact":
            observation = f"{format_number(distinct)} distinct of {format_count(row.value_count, 'value')}"
            if row.duplicate_count:
                observation += f"; {format_count(row.duplicate_count, 'value occurs', 'values occur')} more than once"
            measures = {"values": row.value_count, "distinct": distinct}
            return Finding(status_of(distinct == row.value_count), observation, measures=measures)
        limit = max_distinct(row)
        if limit < row.value_count:
            return Finding(
                "failed",
                f"{format_count(row.value_count, 'value')}, and only {format_number(limit)} can be distinct",
                "bound",
            )
        # An estimate of the distinct count does not decide the check.
        about = "" if distinct is None else f"about {format_number(distinct)} distinct of "
        advice = _REPEATED_VALUES if subject.partition is None else _ALL_VALUES
        return Finding("unknown", f"{about}{format_count(row.value_count, 'value')}", guarantee, advice)

    def describe(self) -> str:
        return "no value twice"

    def excess(self, measures: Mapping[str, float]) -> float:
        return measures.get("values", 0) - measures.get("distinct", 0)


class Range(BoundedCheck):
    """Every value lies from `minimum` to `maximum`, both inclusive.

    NaN lies in no range.
    """

    kind = "range"
    universal = True
    drill_down = "values"
    minimum: Limit = None
    maximum: Limit = None

    def evaluate(self, subject: Subject) -> Finding:
        """Compare minimum and maximum with the limits.

        Any NaN fails the check.

        The minimum or maximum of long texts is only a bound, which sometimes does not decide. Then the value counts
        decide. If no value counts are stored, the finding is unknown.
        """
        row = subject.row
        # Converted first: a limit that does not fit the column's type is an error, even without values.
        low = None if self.minimum is None else subject.literal(self.minimum)
        high = None if self.maximum is None else subject.literal(self.maximum)
        if not row.value_count:
            return nothing_to_check("values")
        if row.nan_count:
            return Finding(
                "failed", f"{format_number(row.nan_count)} of {format_count(row.value_count, 'value')} are NaN"
            )
        sides = [_side_status(row, low, is_lower=True), _side_status(row, high, is_lower=False)]
        observation = _shown_range(row) or "minimum and maximum are not stored"
        measures = _exact_numeric_bounds(row)
        if sides == ["passed", "passed"]:
            return Finding("passed", observation, measures=measures)
        # The bounds of long texts are truncated. Value counts, if stored, decide then.
        outside = _count_outside(subject, low, high)
        if outside is not None:
            observation += f"; {format_count(outside, 'value')} outside" if outside else "; none outside"
            return Finding(status_of(not outside), observation, measures=measures)
        if "failed" in sides:
            return Finding("failed", observation, measures=measures)
        has_bounds = row.minimum is not None or row.maximum is not None
        advice = f"{_ALL_VALUES}, with which values are counted"
        if not has_bounds and row.type_class is not None:
            advice = "`values: shown`, because hidden values have no bounds"
        return Finding("unknown", observation, "bound" if has_bounds else "absent", advice)

    def describe(self) -> str:
        bounds = (None if bound is None else _describe_column_value(bound) for bound in (self.minimum, self.maximum))
        return f"values {describe_bounds(*bounds)}"

    def excess(self, measures: Mapping[str, float]) -> float:
        return self.excess_of(measures.get("minimum"), measures.get("maximum"))


def _side_status(row: ColumnStatistics, limit: pa.Scalar | None, *, is_lower: bool) -> Status:
    """Return `passed` if all values satisfy one limit of a range, and `failed` if some value violates it.

    The result is `unknown` if minimum and maximum do not decide.

    Args:
        row: The statistics of the column.
        limit: The limit; None for an open side, which always passes.
        is_lower: Whether it is the lower limit.
    """
    if limit is None:
        return "passed"
    near_bound, far_bound = (row.minimum, row.maximum) if is_lower else (row.maximum, row.minimum)
    is_exact = row.minimum_exact if is_lower else row.maximum_exact
    if near_bound is not None and _satisfies(near_bound, limit, is_lower=is_lower):
        return "passed"
    if near_bound is not None and is_exact:
        return "failed"
    # If even the opposite bound violates the limit, all values do.
    return "failed" if far_bound is not None and not _satisfies(far_bound, limit, is_lower=is_lower) else "unknown"


def _satisfies(value: pa.Scalar, limit: pa.Scalar, *, is_lower: bool) -> bool:
    return bool(order_key(value) >= order_key(limit) if is_lower else order_key(value) <= order_key(limit))


def _count_outside(subject: Subject, low: pa.Scalar | None, high: pa.Scalar | None) -> int | None:
    """Return how many values are less than `low` or greater than `high`.

    Returns None if the exact number is unknown. If `low` or `high` is None, there is no limit on that side.
    """
    table, row, (column, partition) = subject.table, subject.row, (subject.column, subject.partition)
    outside = 0
    try:
        if low is not None:
            below = table.rank(column, low, partition=partition)
            outside += below.value
            if below.guarantee != "exact":
                return None
        if high is not None:
            within = table.frequency_between(column, row.minimum, high, partition=partition)
            outside += row.value_count - within.value
            if within.guarantee != "exact":
                return None
    except NotStoredError:
        return None
    return outside


def _exact_numeric_bounds(row: ColumnStatistics) -> dict[str, int | float]:
    """Return the exact bounds of a numeric column as floats, such as `{"minimum": 1.0, "maximum": 9.0}`.

    A bound that is inexact or unknown is left out. The result is empty for a column that is not numeric.
    """
    bounds: dict[str, int | float] = {}
    for name, value, is_exact in (
        ("minimum", row.minimum, row.minimum_exact),
        ("maximum", row.maximum, row.maximum_exact),
    ):
        if value is not None and is_exact and row.type_class is not None and class_named(row.type_class).is_numeric:
            bounds[name] = float(value.as_py())
    return bounds


def _shown_range(row: ColumnStatistics) -> str:
    """Return minimum and maximum as text; empty if either is not stored."""
    if row.minimum is None or row.maximum is None:
        return ""
    return f"{shorten(minimum_text(row), _MAX_VALUE_CELLS)} to {shorten(maximum_text(row), _MAX_VALUE_CELLS)}"


class ValueLengths(BoundedCheck):
    """Every length is from `minimum` to `maximum`, both inclusive, in characters, bytes or elements."""

    kind = "lengths"
    universal = True
    drill_down = "statistics"
    minimum: Count | None = None
    maximum: Count | None = None

    def evaluate(self, subject: Subject) -> Finding:
        """Test whether the minimum and the maximum length are within the limits.

        Raises ConfigError if the column has values, and its type has no lengths.
        """
        row = subject.row
        if not row.value_count:
            return nothing_to_check("values")
        low, high = row.minimum_length, row.maximum_length
        if low is None or high is None:
            raise ConfigError(
                f"{subject.label} has values of {row.type}, which have no length: only text, binary, lists and maps "
                "have one"
            )
        measures = {"minimum_length": low, "maximum_length": high}
        observation = (
            f"lengths from {format_number(low)} to {format_number(high)}"
            if low != high
            else f"all of length {format_number(low)}"
        )
        return Finding(status_of(self.is_within(low) and self.is_within(high)), observation, measures=measures)

    def describe(self) -> str:
        return f"lengths {describe_bounds(self.minimum, self.maximum)}"

    def excess(self, measures: Mapping[str, float]) -> float:
        return self.excess_of(measures.get("minimum_length"), measures.get("maximum_length"))


class AcceptedValues(Check):
    """Every value is one of `values`.

    Nulls are ignored.
    """

    kind = "accepted_values"
    universal = True
    main = "values"
    drill_down = "values"
    values: Annotated[tuple[ColumnValue, ...], Field(min_length=1)]

    def evaluate(self, subject: Subject) -> Finding:
        """Test whether all values are accepted.

        If value counts are needed but not stored, the finding is unknown.
        """
        row = subject.row
        accepted_values = [subject.literal(value) for value in self.values]
        if not row.value_count:
            return nothing_to_check("values")
        keys = {identity_key(value) for value in accepted_values}
        if row.distinct_count_guarantee == "exact" and (row.distinct_count or 0) > len(keys):
            examples = _most_frequent_others(subject, keys)
            suffix = f"; not {_join_values(examples)}" if examples else ""
            accepted_text = "1 is" if len(keys) == 1 else f"{len(keys):,} are"
            return Finding(
                "failed", f"{format_number(row.distinct_count)} distinct values, and {accepted_text} accepted{suffix}"
            )
        outside = [
            bound
            for bound, is_exact in ((row.minimum, row.minimum_exact), (row.maximum, row.maximum_exact))
            if bound is not None and is_exact and identity_key(bound) not in keys
        ]
        if outside:
            return Finding("failed", f"{_join_values(outside)} not accepted; {_shown_range(row)}")
        if row.nan_count and "NaN" not in keys:
            return Finding("failed", f"{format_number(row.nan_count)} NaN")
        if _is_disjoint(row, accepted_values):
            return Finding("failed", f"no value is accepted; {_shown_range(row)}", "bound")
        try:
            # At this point there are at most as many distinct values as accepted ones.
            match_count = _count_matches(
                subject, lambda values: pa.array([identity_key(value) in keys for value in values], pa.bool_())
            )
        except NotStoredError as error:
            return Finding("unknown", str(error), "absent", _ALL_VALUES)
        return decide_share(match_count, row.value_count, Fraction(1), "accepted")

    def describe(self) -> str:
        shown_values = ", ".join(
            shorten(_describe_column_value(value), _MAX_EXPECTED_CELLS) for value in self.values[:_MAX_EXPECTED_VALUES]
        )
        more = len(self.values) - _MAX_EXPECTED_VALUES
        return f"only {shown_values}" + (f" and {more} more" if more > 0 else "")


def _describe_column_value(value: object) -> str:
    """Format a configured value.

    Numbers have no thousands separators, because they may be codes or years.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else describe_value(value)


def _most_frequent_others(subject: Subject, keys: Collection[object]) -> list[pa.Scalar]:
    """Return the values that are not accepted: at most three, the most frequent first.

    The list is empty if no value counts are stored.

    Args:
        subject: The column.
        keys: The `identity_key` of each accepted value.
    """
    try:
        top = subject.table.top(subject.column, len(keys) + _MAX_EXAMPLES, partition=subject.partition)
    except NotStoredError:
        return []
    return [value for value, _ in top if identity_key(value) not in keys][:_MAX_EXAMPLES]


def _is_disjoint(row: ColumnStatistics, accepted_values: Sequence[pa.Scalar]) -> bool:
    """Return whether all accepted values are below the column's minimum, or all above its maximum.

    The result is False if NaN is among the values or the accepted values.
    """
    keys = [order_key(value) for value in accepted_values]
    if row.nan_count or any(key != key for key in keys):
        return False
    return (row.minimum is not None and max(keys) < order_key(row.minimum)) or (
        row.maximum is not None and min(keys) > order_key(row.maximum)
    )


class Matches(Check):
    """At least the share `least` of the values matches a regular expression (RE2) from beginning to end."""

    kind = "matches"
    main = "pattern"
    drill_down = "values"
    pattern: Annotated[str, Field(min_length=1)]
    least: UnitShare = Decimal(1)

    @property
    def holds_for_subsets(self) -> bool:
        return self.least == 1

    def evaluate(self, subject: Subject) -> Finding:
        """Return the finding: whether enough of the values in the value counts match the pattern.

        Without value counts, the finding is unknown. Raises ConfigError if the column's type is not text.
        """
        row = subject.row
        matcher = _matcher(self.pattern)
        if row.type_class is None:
            return Finding("unknown", explain_no_values(row), "absent")
        if row.type_class not in ("string", "null"):
            raise ConfigError(f"{subject.label} has values of {row.type}: only texts match patterns")
        if not row.value_count:
            return nothing_to_check("values")
        try:
            match_count = _count_matches(subject, matcher)
        except NotStoredError as error:
            return Finding("unknown", str(error), "absent", _ALL_VALUES)
        return decide_share(match_count, row.value_count, Fraction(self.least), "as described")

    def describe(self) -> str:
        share_text = "" if self.least == 1 else f"at least {describe_share(self.least)} "
        return f"{share_text}like {shorten(self.pattern, _MAX_EXPECTED_CELLS)}"

    def excess(self, measures: Mapping[str, float]) -> float:
        return 1 - measures.get("matching_share", 1)


def _matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that maps each text to whether it matches the pattern from beginning to end.

    Raises ConfigError for an invalid pattern.
    """
    anchored_pattern = rf"\A(?:{pattern})\z"
    try:
        # By itself first: `a)|(?:b` would be valid only between the parentheses.
        for expression in (pattern, anchored_pattern):
            pc.match_substring_regex(pa.array([""]), expression)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{pattern!r} is no regular expression (RE2): {error}") from None
    return lambda values: pc.match_substring_regex(values, anchored_pattern)


@dataclass(frozen=True)
class MatchCount:
    """The number of values that a condition was tested on, and the number that satisfy it.

    A value that occurs three times counts three times.
    """

    matching: int
    """The number of values that satisfy the condition."""
    enumerated: int
    """The number of values that were tested."""
    examples: Sequence[pa.Scalar]
    """Some values that do not satisfy the condition."""


def _count_matches(subject: Subject, matcher: Callable[[pa.Array], pa.Array]) -> MatchCount:
    """Return how many values the matcher accepts, how many were tested, and examples of rejected values.

    The values come from the column's value counts. Raises NotStoredError if there are none.

    Args:
        subject: The column.
        matcher: Maps values to booleans.
    """
    matching_count, enumerated_count = 0, 0
    examples: list[pa.Scalar] = []
    for block in subject.table.value_batches(subject.column, partition=subject.partition):
        mask = matcher(block.values)
        matching_count += pc.sum(block.counts.filter(mask), min_count=0).as_py()
        enumerated_count += pc.sum(block.counts, min_count=0).as_py()
        if len(examples) < _MAX_EXAMPLES:
            examples += list(block.values.filter(pc.invert(mask))[:_MAX_EXAMPLES])
    return MatchCount(matching_count, enumerated_count, examples[:_MAX_EXAMPLES])


def decide_share(match_count: MatchCount, value_count: int, least: Fraction, what: str) -> Finding:
    """Decide whether at least a given share of the values satisfies a condition.

    The finding is `unknown` if values that are not in the value counts could change the decision.

    Args:
        match_count: The result for the values in the value counts.
        value_count: The number of all values.
        least: The share of all values that must satisfy the condition, from 0 to 1.
        what: The condition as an adjective, such as `accepted`.
    """
    other_count = value_count - match_count.enumerated
    examples = f"; not {_join_values(match_count.examples)}" if match_count.examples else ""
    if not other_count:
        share = format_share(match_count.matching, value_count)
        observation = f"{share} of {format_count(value_count, 'value')} {what}{examples}"
        measures = {"matching_share": match_count.matching / value_count}
        return Finding(status_of(Fraction(match_count.matching, value_count) >= least), observation, measures=measures)
    observation = (
        f"of {format_count(value_count, 'value')} {format_number(match_count.matching)} are {what}, "
        f"{format_number(other_count)} are not enumerated{examples}"
    )
    if Fraction(match_count.matching, value_count) >= least:
        return Finding("passed", observation, "bound")
    if Fraction(match_count.matching + other_count, value_count) < least:
        return Finding("failed", observation, "bound")
    return Finding("unknown", observation, "bound", _ALL_VALUES)


class Drift(Check):
    """The distance between the distribution of values and that in an earlier version is at most `most`."""

    kind = "drift"
    main = "most"
    most: Annotated[Decimal, BeforeValidator(parse_share), Field(ge=0)]
    measure: DistanceMeasure = "stability_index"
    against: Baseline = "previous"
    groups: Annotated[int, Field(ge=2, le=1000, strict=True)] = 10
    """For the stability index: the number of groups. Numbers and times are grouped by quantiles of the earlier version.
    Other values are grouped by the most frequent values of the earlier version, with one group for all the rest."""

    def evaluate(self, subject: Subject) -> Finding:
        """Measure the distance to the earlier version.

        If it cannot be measured, the finding is `unknown`.

        A new partition passes. So does a column that has no values in either version.
        """
        earlier = subject.earlier(self.against)
        if earlier is None:
            return Finding("passed", "a new partition")
        row, before = subject.row, earlier.row
        since = f"since version {earlier.table.version.number}"
        if not row.value_count and not before.value_count:
            return Finding("passed", f"no values, as {since}")
        columns = (
            ComparedColumn(earlier.table, before, subject.partition),
            ComparedColumn(subject.table, row, subject.partition),
        )
        result = measure_distances(*columns, groups=self.groups)
        if isinstance(result, str):
            return Finding("unknown", f"{result}, {since}", "absent")
        distance: float = getattr(result, self.measure)
        return Finding(
            status_of(distance <= float(self.most)),
            f"{_MEASURE_NAMES[self.measure]} {format_number(distance)} {since}, over {result.over}",
            # The stability index is defined on the groups. The others would not be smaller with finer bins.
            "exact" if self.measure == "stability_index" else result.guarantee,
            measures={"distance": distance},
        )

    def describe(self) -> str:
        most = f"{self.most.normalize():f}"
        return f"{_MEASURE_NAMES[self.measure]} of at most {most} against {describe_baseline(self.against)}"


def _join_values(values: Sequence[pa.Scalar]) -> str:
    return ", ".join(shorten(scalar_text(value), _MAX_VALUE_CELLS) for value in values)
