"""A profile as people look at it first: what the pictures draw of it, read in a few small pieces."""

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
    """The statistics of all columns, and what is drawn of the interesting ones."""

    rows: tuple[ColumnStatistics, ...]
    columns: tuple[ColumnPicture, ...]
    histograms: tuple[str, ...] = ()
    """The columns that have a histogram; of a partition none are named."""


def glance_at(table: Table, partition: str | None, most_columns: int) -> Glance:
    """Read the statistics of a partition, or with None of the table, and what a picture of them needs."""
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
        top = []  # Bars of ones: which values come first says nothing.
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
    """The histogram to draw. One bar per value where all are known and lie evenly: bins of another width than the
    distance of the values would show a pattern of full and half-full bins that is not in the data."""
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
    """Where the value lies on its line; times as numbers, for Python's own end at the year 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def _ends(low: str, high: str) -> tuple[str, str]:
    """Times to the second, for both have to fit below a histogram; within one second, without the day."""
    low, high = _without_zone(low), _without_zone(high)
    ends = _FRACTION.sub("", low), _FRACTION.sub("", high)
    if ends[0] != ends[1] or ends == (low, high):
        return ends
    return low.rpartition(" ")[2], high.rpartition(" ")[2]


def _named(top: Sequence[tuple[pa.Scalar, int]]) -> list[str]:
    """The values as text; times of one day without the day where there is no room for both."""
    texts = [scalar_text(value) for value, _ in top]
    if top and pa.types.is_timestamp(top[0][0].type):
        texts = list(map(_without_zone, texts))
    if not top or not pa.types.is_timestamp(top[0][0].type) or max(map(len, texts)) <= MOST_CHARACTERS:
        return texts
    days, times = zip(*(text.split(" ") for text in texts), strict=True)
    return [ELLIPSIS + time for time in times] if len(set(days)) == 1 else texts


def _short_times(percentiles: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Times to the second: a percentile of many is not worth more."""
    return tuple((name, _FRACTION.sub("", _without_zone(value))) for name, value in percentiles)


def _without_zone(time: str) -> str:
    """For times that stand below their type, which tells the zone."""
    return _UTC.sub(r"\1", time)
