"""A summary of a profile for pictures: statistics of all columns, and histograms and values of the interesting ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import Table
from metastore_assets.report.facts import facts_of, maximum_text, minimum_text, notes_of, percentiles_of, scalar_text
from metastore_assets.report.interest import interesting_columns, is_continuous, is_ordinal
from metastore_assets.report.picture import MOST_BINS, MOST_CHARACTERS, MOST_VALUES, ColumnPicture
from metastore_assets.report.text import ELLIPSIS, type_name
from metastore_assets.statistics.column import ColumnStatistics

_FRACTION = re.compile(r"(?<=:\d\d)\.\d+$")
_UTC = re.compile(r"(?<=:\d\d)(\.\d+)?Z$")


@dataclass(frozen=True)
class Glance:
    """The statistics of all columns, with the data that pictures of the interesting columns need."""

    rows: tuple[ColumnStatistics, ...]
    columns: tuple[ColumnPicture, ...]
    histograms: tuple[str, ...] = ()
    """The columns that have a histogram; empty for a partition."""


def glance_at(table: Table, partition: str | None, most_columns: int) -> Glance:
    """Read the summary of a partition, or of the table if `partition` is None."""
    rows = table.statistics(partition=partition)
    chosen = interesting_columns(rows, most_columns)
    histograms = table.histogram_columns() if partition is None else ()
    return Glance(tuple(rows), tuple(_column(table, partition, row) for row in chosen), tuple(histograms))


def _column(table: Table, partition: str | None, row: ColumnStatistics) -> ColumnPicture:
    listed = row.frequencies == "enumerated" or (row.frequencies == "repeated" and partition is None)
    top = table.top(row.column, MOST_BINS, partition).values if listed else []
    bins = _bins(table, partition, row, top)
    most_frequent = top[0][1] if top else 0
    top = top[: MOST_VALUES if bins else 2 * MOST_VALUES]
    if not any(frequency > 1 for _, frequency in top):
        top = []  # The order of values that occur once means nothing.
    low, high = _ends(minimum_text(row), maximum_text(row))
    return ColumnPicture(
        name=row.column,
        type=type_name(row.type),
        facts=facts_of(row),
        rows=row.value_count + row.null_count,
        bins=bins,
        low=low,
        high=high,
        top=tuple(zip(_named(top), (frequency for _, frequency in top), strict=True)),
        notes=notes_of(row),
        percentiles=_short_times(percentiles_of(row)) if bins and is_continuous(row, most_frequent) else (),
    )


def _bins(
    table: Table, partition: str | None, row: ColumnStatistics, top: Sequence[tuple[pa.Scalar, int]]
) -> tuple[int, ...]:
    """Return the histogram to draw, with one bar per value if all values are known and evenly spaced.

    Bins of another width than the distance of the values would show a pattern that is not in the data.
    """
    if not is_ordinal(row):
        return ()
    if row.distinct_count == len(top) and not row.nan_count:
        values = sorted((_place(value), frequency) for value, frequency in top)
        if len({b - a for (a, _), (b, _) in pairwise(values)}) == 1:
            return tuple(frequency for _, frequency in values)
    try:
        return tuple(part.frequency for part in table.histogram(row.column, MOST_BINS, partition))
    except NotStoredError:
        return ()


def _place(value: pa.Scalar) -> Any:
    """Return the position of a value on its axis. Times are numbers, because Python's end at the year 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def _ends(low: str, high: str) -> tuple[str, str]:
    """Format both ends of a histogram: times to the second, without the day if both are within one second."""
    low, high = _without_zone(low), _without_zone(high)
    ends = _FRACTION.sub("", low), _FRACTION.sub("", high)
    if ends[0] != ends[1] or ends == (low, high):
        return ends
    return low.rpartition(" ")[2], high.rpartition(" ")[2]


def _named(top: Sequence[tuple[pa.Scalar, int]]) -> list[str]:
    """Format values as labels; times of one day omit the day if there is no room for it."""
    texts = [scalar_text(value) for value, _ in top]
    if top and pa.types.is_timestamp(top[0][0].type):
        texts = list(map(_without_zone, texts))
    if not top or not pa.types.is_timestamp(top[0][0].type) or max(map(len, texts)) <= MOST_CHARACTERS:
        return texts
    days, times = zip(*(text.split(" ") for text in texts), strict=True)
    return [ELLIPSIS + time for time in times] if len(set(days)) == 1 else texts


def _short_times(percentiles: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Format times to the second."""
    return tuple((name, _FRACTION.sub("", _without_zone(value))) for name, value in percentiles)


def _without_zone(time: str) -> str:
    """Format times without the zone, which their column's type shows."""
    return _UTC.sub(r"\1", time)
