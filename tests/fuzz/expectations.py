"""Expected statistics, value counts and quantiles of rows, computed in plain Python.

They are computed one column at a time.

The value counts of a column are its distinct values with the frequency of each. A policy says which statistics and
values of a column are stored. A point is a value in the form that `predicates.point` returns. Python orders points as
the column's type orders the values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.statistics.column import ColumnStatistics
from tests.fuzz.columns import Kind, NodePath
from tests.fuzz.predicates import point

Row = Mapping[int, Any]
_TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_VALUES_OF = ("minimum", "maximum", "percentiles", "sum", "mean", "standard_deviation", "skewness", "kurtosis")


class Difference(AssertionError):
    """A difference between an answer and the value expected from the rows."""


def expect(actual: Any, expected: Any, what: str) -> None:
    """Raise Difference if the values are not equal."""
    if actual != expected:
        raise Difference(f"{what}: found {actual!r}, expected {expected!r}")


def expect_true(condition: object, what: str) -> None:
    """Raise Difference if the condition is false."""
    if not condition:
        raise Difference(what)


def answered_point(kind: Kind, scalar: pa.Scalar) -> Any:
    """Convert a scalar of an answer to a point."""
    if kind.family == "uuid":
        return scalar.value.as_py()
    if kind.family == "date":
        return scalar.value
    if kind.family in ("time", "local", "zoned"):
        return scalar.value * _TICKS[scalar.type.unit]
    return point(kind, scalar.as_py())


@dataclass(frozen=True)
class ColumnTruth:
    """The expected values of one column in some rows.

    Methods return values as points.
    """

    node_path: NodePath
    nulls: int
    values: Sequence[Any]
    """Values other than null."""

    @classmethod
    def of(cls, node_path: NodePath, rows: Iterable[Row]) -> ColumnTruth:
        actual = [value for row in rows for value in node_path.values(row)]
        values = [value for value in actual if value is not None]
        return cls(node_path, len(actual) - len(values), values)

    @property
    def kind(self) -> Kind:
        assert self.node_path.node.kind is not None
        return self.node_path.node.kind

    def points(self) -> list[Any]:
        """Return the points of all values, including NaN."""
        return [point(self.kind, value) for value in self.values]

    def counts(self) -> Counter[Any]:
        """Count the values by point."""
        return Counter(self.points())

    def numbers(self) -> list[Any]:
        """Return the sorted points without NaN."""
        points = self.points()
        return sorted(bound_point for bound_point in points if not (self.kind.family == "float" and bound_point[0]))


def check_row(row: ColumnStatistics, truth: ColumnTruth, where: str) -> None:
    """Check the statistics of a column whose values are shown.

    Raise Difference if they are wrong. `where` begins the message.
    """
    what = f"{where}, column {row.column!r}"
    expect((row.value_count, row.null_count), (len(truth.values), truth.nulls), f"{what}: values and nulls")
    node = truth.node_path.node
    if node.kind is None:
        if node.form != "struct" and truth.values:
            lengths = [len(value) for value in truth.values]
            expect((row.minimum_length, row.maximum_length), (min(lengths), max(lengths)), f"{what}: lengths")
        return
    kind, numbers = node.kind, truth.numbers()
    if kind.family == "float":
        expect(row.nan_count or 0, len(truth.values) - len(numbers), f"{what}: NaN")
    for name, end, is_exact in (("minimum", 0, row.minimum_exact), ("maximum", -1, row.maximum_exact)):
        bound = getattr(row, name)
        if not numbers:
            expect(bound, None, f"{what}: {name}")
        elif is_exact or bound is not None:
            bound_point = answered_point(kind, bound)
            if is_exact:
                expect(bound_point, numbers[end], f"{what}: {name}")
            else:
                expect_true(
                    bound_point <= numbers[0] if end == 0 else bound_point >= numbers[-1], f"{what}: {name} is no bound"
                )
    if row.distinct_count_guarantee == "exact":
        expect(row.distinct_count, len(truth.counts()), f"{what}: distinct")
    if row.duplicate_count is not None:
        expect(row.duplicate_count, sum(count > 1 for count in truth.counts().values()), f"{what}: duplicates")
    if kind.family == "number" and truth.values:
        expect(Fraction(row.sum or 0), sum(map(Fraction, truth.values)), f"{what}: sum")
    if kind.family == "flag" and truth.values:
        expect(row.true_count, sum(truth.values), f"{what}: true")
    if kind.family in ("text", "bytes") and truth.values:
        lengths = [len(value) for value in truth.values]
        actual = (row.minimum_length, row.maximum_length)
        expect(actual, (min(lengths), max(lengths)), f"{what}: lengths")
    if row.percentiles is not None and row.percentiles_guarantee == "exact" and numbers:
        for fraction, value in row.percentiles:
            expected_value = quantile(numbers, Fraction(round(fraction * 100), 100))
            expect(answered_point(kind, value), expected_value, f"{what}: percentile {fraction}")


def quantile(numbers: Sequence[Any], q: Fraction) -> Any:
    """Return the least value such that at least the fraction `q` of the values is not greater."""
    return numbers[max(0, math.ceil(q * len(numbers)) - 1)]


def check_hidden(lookup: Table | FilteredView, row: ColumnStatistics, truth: ColumnTruth, where: str) -> None:
    """Check that statistics and answers about a hidden column reveal no value.

    Raise Difference if they do. `where` begins the message.
    """
    what = f"{where}, hidden column {row.column!r}"
    expect((row.value_count, row.null_count), (len(truth.values), truth.nulls), f"{what}: values and nulls")
    for name in (*_VALUES_OF, "true_count", "nan_count", "moments", "quantile_sketch", "user_states"):
        expect(getattr(row, name), None, f"{what}: {name}")
    for name, ask in {
        "top": lambda: lookup.top(row.column),
        "values": lambda: list(lookup.values(row.column)),
        "quantile": lambda: lookup.quantile(row.column, 0.5),
        "histogram": lambda: lookup.histogram(row.column),
        "spread": lambda: lookup.spread(row.column),
    }.items():
        try:
            actual = ask()
        except NotStoredError:
            continue
        expect_true(not actual, f"{what}: {name} tells {actual!r}")


def check_answers(
    lookup: Table | FilteredView,
    column: str,
    truth: ColumnTruth,
    where: str,
    q: Fraction,
    frequencies: str,
    partition: str | None = None,
) -> None:
    """Check the answers about a column, except those that are not stored.

    The answers are most frequent values, a quantile, frequencies and ranks. Frequencies and ranks that are not exact
    are not compared, and a quantile that is not exact must only lie within the values.

    Args:
        lookup: The table, or a view of it filtered by a predicate, that answers.
        column: The path of the column.
        truth: The values of the column.
        where: The beginning of messages.
        q: The quantile.
        frequencies: The value of the key `frequencies` in the policy of the column.
        partition: The key of a partition if the answers are about one.

    Raises:
        Difference: an answer is wrong.
    """
    what = f"{where}, column {column!r}"
    kind, numbers, counts = truth.kind, truth.numbers(), truth.counts()
    sorted_counts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    row = lookup.statistics([column], partition=partition)[0]
    try:
        top = lookup.top(column, 3, partition=partition)
    except NotStoredError:
        expect_true(row.frequencies != "enumerated" or not truth.values, f"{what}: top is refused of a listed column")
    else:
        actual = [(answered_point(kind, value), count) for value, count in top]
        least = 2 if frequencies == "repeated" else 1
        expected_top = [item for item in sorted_counts if item[1] >= least][: 2 if frequencies == "top(2)" else 3]
        expect(actual, expected_top, f"{what}: top")
    try:
        answer = lookup.quantile(column, q, partition=partition)
    except NotStoredError:
        pass
    else:
        if not numbers:
            expect(answer.value, None, f"{what}: quantile of no values")
        elif answer.guarantee == "exact":
            expect(answered_point(kind, answer.value), quantile(numbers, q), f"{what}: quantile {q}")
        elif answer.value is not None:
            bound_point = answered_point(kind, answer.value)
            expect_true(
                numbers[0] <= bound_point <= numbers[-1],
                f"{what}: quantile {q} is {bound_point}, outside of the values",
            )
    for value, bound_point in list({repr(value): value for value in truth.values}.items())[:2]:
        scalar = kind.array([bound_point])[0]
        for name, ask, wanted_count in (
            ("frequency", lookup.frequency, counts[point(kind, bound_point)]),
            ("rank", lookup.rank, sum(other < point(kind, bound_point) for other in truth.points())),
        ):
            try:
                count = ask(column, scalar, partition=partition)
            except NotStoredError:
                continue
            if count.guarantee == "exact":
                expect(count.value, wanted_count, f"{what}: {name} of {value}")
