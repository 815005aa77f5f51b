"""A summary of a profile: statistics of all columns, and picture data of the most informative ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import Table
from metastore_assets.report.facts import (
    maximum_text,
    minimum_text,
    notes_without_values,
    percentile_texts,
    scalar_text,
    short_facts,
)
from metastore_assets.report.picture import MAX_BINS, MAX_CHARACTERS, MAX_VALUES, ColumnPicture
from metastore_assets.report.text import ELLIPSIS, format_type
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.types import class_named

_MANY_VALUES = 60
"""The maximum number of distinct values that a picture can show as one bar each."""
_FREQUENT_VALUE = 20
"""A value is frequent if more than a twentieth of all values equals it."""
_FRACTION = re.compile(r"(?<=:\d\d)\.\d+$")
_UTC = re.compile(r"(?<=:\d\d)(\.\d+)?Z$")


@dataclass(frozen=True)
class ProfileSummary:
    """Statistics of a profile's columns, and data for pictures of the most informative ones.

    A profile describes a table or a partition.
    """

    rows: tuple[ColumnStatistics, ...]
    """The statistics of all columns, in the order of the table."""
    columns: tuple[ColumnPicture, ...]
    """The most informative columns."""
    histograms: tuple[str, ...] = ()
    """The names of all columns that have a histogram; empty for a partition."""


def read_summary(table: Table, partition: str | None, max_columns: int) -> ProfileSummary:
    """Read the statistics, histograms and value counts for the summary of a table or partition.

    Args:
        table: The table.
        partition: The key of the partition; None for the whole table.
        max_columns: The maximum number of columns with data for a picture.
    """
    rows = table.statistics(partition=partition)
    selected_rows = select_informative_columns(rows, max_columns)
    histograms = table.histogram_columns() if partition is None else ()
    pictures = tuple(_read_column(table, partition, row) for row in selected_rows)
    return ProfileSummary(tuple(rows), pictures, tuple(histograms))


def _read_column(table: Table, partition: str | None, row: ColumnStatistics) -> ColumnPicture:
    """Read the data for the picture of one column.

    Frequent values are left out if each value occurs only once.
    """
    has_values = row.frequencies == "enumerated" or (row.frequencies == "repeated" and partition is None)
    top = [(value, n) for value, n in table.top(row.column, MAX_BINS, partition=partition)] if has_values else []
    bins = _read_bins(table, partition, row, top)
    most_frequent = top[0][1] if top else 0
    top = top[: MAX_VALUES if bins else 2 * MAX_VALUES]
    if not any(frequency > 1 for _, frequency in top):
        top = []  # The order of values that occur once is arbitrary.
    low, high = _format_ends(minimum_text(row), maximum_text(row))
    return ColumnPicture(
        name=row.column,
        type=format_type(row.type),
        facts=short_facts(row),
        rows=row.value_count + row.null_count,
        bins=bins,
        low=low,
        high=high,
        top=tuple(zip(_format_labels(top), (frequency for _, frequency in top), strict=True)),
        notes=notes_without_values(row),
        percentiles=_truncate_times(percentile_texts(row)) if bins and is_continuous(row, most_frequent) else (),
    )


def _read_bins(
    table: Table, partition: str | None, row: ColumnStatistics, top: Sequence[tuple[pa.Scalar, int]]
) -> tuple[int, ...]:
    """Return the frequencies of a histogram's bars.

    If `top` has all values of the column, and they are evenly spaced, there is one bar per value. Otherwise, the bars
    are bins of the stored histogram. The result is empty if no histogram is stored, or if the column's values cannot be
    drawn on an axis.

    Args:
        table: The table.
        partition: The key of the partition; None for the whole table.
        row: The statistics of the column.
        top: The most frequent values with their frequencies.
    """
    if not is_ordinal(row):
        return ()
    if row.distinct_count == len(top) and not row.nan_count:
        values = sorted((_axis_position(value), frequency) for value, frequency in top)
        # Bins whose width is no multiple of the spacing would show a pattern that is not in the data.
        if len({b - a for (a, _), (b, _) in pairwise(values)}) == 1:
            return tuple(frequency for _, frequency in values)
    try:
        return tuple(part.frequency for part in table.histogram(row.column, bins=MAX_BINS, partition=partition))
    except NotStoredError:
        return ()


def _axis_position(value: pa.Scalar) -> Any:
    """Return the position of a value on an axis, as a number."""
    # `as_py` fails for times after the year 9999.
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def _format_ends(low: str, high: str) -> tuple[str, str]:
    """Shorten the formatted values at both ends of a histogram.

    Times lose their zone and the fractions of seconds: `2024-01-31 09:00:00.25` becomes `2024-01-31 09:00:00`. If both
    ends would become equal, they keep the fractions and lose the day: `09:00:00.25`.
    """
    low, high = _remove_zone(low), _remove_zone(high)
    ends = _FRACTION.sub("", low), _FRACTION.sub("", high)
    # Times that differ only in the fractions lose the day instead.
    if ends[0] != ends[1] or ends == (low, high):
        return ends
    return low.rpartition(" ")[2], high.rpartition(" ")[2]


def _format_labels(top: Sequence[tuple[pa.Scalar, int]]) -> list[str]:
    """Format the values of `top` as labels of bars.

    If a timestamp is too long for a label, and all timestamps are of one day, `…` replaces the day in all labels.
    """
    texts = [scalar_text(value) for value, _ in top]
    if top and pa.types.is_timestamp(top[0][0].type):
        texts = list(map(_remove_zone, texts))
    if not top or not pa.types.is_timestamp(top[0][0].type) or max(map(len, texts)) <= MAX_CHARACTERS:
        return texts
    days, times = zip(*(text.split(" ") for text in texts), strict=True)
    return [ELLIPSIS + time for time in times] if len(set(days)) == 1 else texts


def _truncate_times(percentiles: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Remove zones and fractions of seconds from formatted percentiles."""
    return tuple((name, _FRACTION.sub("", _remove_zone(value))) for name, value in percentiles)


def _remove_zone(time: str) -> str:
    """Remove the `Z` from a formatted time."""
    return _UTC.sub(r"\1", time)


def select_informative_columns(rows: Sequence[ColumnStatistics], max_columns: int) -> list[ColumnStatistics]:
    """Return up to `max_columns` columns with the most informative pictures, in the order of the table.

    If possible, half of them are ordinal, such as numbers and times. Columns without values are never selected.
    """
    scores = {row.position: _informativeness(row) for row in rows}
    ranked_rows = sorted((row for row in rows if scores[row.position] > 0), key=lambda row: -scores[row.position])
    ordinal = [row for row in ranked_rows if is_ordinal(row)]
    nominal = [row for row in ranked_rows if not is_ordinal(row)]
    selected_rows = [*ordinal[: (max_columns + 1) // 2], *nominal[: max_columns // 2]]
    # Compare positions, because comparing rows would compare Arrow scalars.
    positions = {row.position for row in selected_rows}
    selected_rows += [row for row in ranked_rows if row.position not in positions][: max_columns - len(selected_rows)]
    return sorted(selected_rows, key=lambda row: row.position)


def is_ordinal(row: ColumnStatistics) -> bool:
    """Return whether the values of a column, such as numbers or times, can be drawn on an axis."""
    return row.type_class is not None and class_named(row.type_class).is_ordinal


def is_continuous(row: ColumnStatistics, most_frequent: int) -> bool:
    """Return whether percentiles say more about a column than its most frequent values.

    This needs percentiles, values that can be drawn on an axis, and more than `_MANY_VALUES` or an unknown number of
    distinct values. No value may be frequent (see `_FREQUENT_VALUE`).

    Args:
        row: The statistics of the column.
        most_frequent: The frequency of the most frequent value; 0 if unknown.
    """
    has_many_values = row.distinct_count is None or row.distinct_count > _MANY_VALUES
    return (
        is_ordinal(row)
        and bool(row.percentiles)
        and has_many_values
        and most_frequent * _FREQUENT_VALUE <= row.value_count
    )


def _informativeness(row: ColumnStatistics) -> float:
    """Return how informative a column's picture is.

    The number is 0 without values, 0.5 for a constant, and at least 1 otherwise.
    """
    if row.type_class is None or row.value_count == 0:
        return 0
    distinct = row.distinct_count if row.distinct_count is not None else row.value_count
    if distinct <= 1:
        return 0.5
    nulls = row.null_count / (row.null_count + row.value_count)
    repeated_share = 1 - distinct / row.value_count
    if not is_ordinal(row):
        return 1 + nulls + repeated_share + (2 if row.frequencies == "enumerated" and distinct <= 100 else 0)
    if row.type_class in ("int64", "uint64"):
        return 1 + nulls + repeated_share  # Integers are often keys, which are informative only if they repeat.
    # Dates, decimals and floats are measures; many values make them more interesting.
    return 2 + nulls + (1 if distinct > 20 else 0)
