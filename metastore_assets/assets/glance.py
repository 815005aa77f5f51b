"""A profile as people look at it first: what the pictures draw of it, read in a few small pieces."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from metastore_assets.assets.interest import interesting_columns, is_ordinal
from metastore_assets.assets.picture import MOST_BINS, MOST_CHARACTERS, MOST_VALUES, ColumnPicture
from metastore_assets.assets.text import ELLIPSIS, count_text, number_text, scalar_text, share_text
from metastore_assets.errors import NotKeptError
from metastore_assets.lookup import TableLookup
from metastore_assets.statistics.column import ColumnStatistics, FrequencyState

_FRACTIONS = {0.05: "5% up to", 0.5: "median", 0.95: "95% up to"}
_FRACTION = re.compile(r"(?<=:\d\d)\.\d+$")
_WHY_NO_VALUES: Mapping[FrequencyState, str] = {
    "listed": "no value occurs twice",
    "estimated": "too many values to list them",
    "off": "values are not listed (frequencies: off)",
    "absent": "no values",
}


@dataclass(frozen=True)
class Glance:
    """The statistics of all columns, and what is drawn of the interesting ones."""

    rows: tuple[ColumnStatistics, ...]
    columns: tuple[ColumnPicture, ...]


def glance_at(table: TableLookup, partition: str | None, most_columns: int) -> Glance:
    """Read the statistics of a partition, or with None of the table, and what a picture of them needs."""
    rows = table.statistics(partition=partition)
    chosen = interesting_columns(rows, most_columns)
    return Glance(tuple(rows), tuple(_column(table, partition, row) for row in chosen))


def _column(table: TableLookup, partition: str | None, row: ColumnStatistics) -> ColumnPicture:
    top = table.top(row.column, MOST_BINS, partition).values if row.frequencies == "listed" else []
    bins = _bins(table, partition, row, top)
    top = top[: MOST_VALUES if bins else 2 * MOST_VALUES]
    if not any(frequency > 1 for _, frequency in top):
        top = []  # Bars of ones: which values come first says nothing.
    low, high = _ends(_minimum(row), _maximum(row))
    return ColumnPicture(
        name=row.column,
        type=row.type,
        facts=facts_of(row),
        rows=row.value_count + row.null_count,
        bins=bins,
        low=low,
        high=high,
        top=tuple(zip(_named(top), (frequency for _, frequency in top), strict=True)),
        notes=_notes(row),
    )


def _bins(
    table: TableLookup, partition: str | None, row: ColumnStatistics, top: Sequence[tuple[pa.Scalar, int]]
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
    except NotKeptError:
        return ()


def _place(value: pa.Scalar) -> Any:
    """Where the value lies on its line; times as numbers, for Python's own end at the year 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def bound_text(value: pa.Scalar | None, exact: bool, mark: str) -> str:
    """A least or greatest value, marked when it is only a bound; empty when not known."""
    return "" if value is None else ("" if exact else mark) + scalar_text(value)


def range_text(row: ColumnStatistics) -> str:
    """From the least to the greatest value; empty when not known."""
    return f"{_minimum(row)} to {_maximum(row)}" if row.minimum is not None and row.maximum is not None else ""


def distinct_text(row: ColumnStatistics) -> str:
    """The number of distinct values, marked when it is an estimate; empty when not known."""
    if row.distinct_count is None:
        return ""
    return ("" if row.distinct_count_guarantee == "exact" else "≈ ") + count_text(row.distinct_count)


def facts_of(row: ColumnStatistics) -> tuple[str, ...]:
    """At most three short facts: distinct values, nulls, and a measure of the values."""
    count = row.value_count + row.null_count
    nulls = f"{share_text(row.null_count, count)} null" if row.null_count else "no nulls"
    if row.nan_count:
        nulls += f", {share_text(row.nan_count, count)} NaN"
    distinct = distinct_text(row)
    return tuple(fact for fact in (f"{distinct} distinct" if distinct else "", nulls, _measure(row)) if fact)


def _measure(row: ColumnStatistics) -> str:
    if row.mean is not None:
        spread = "" if row.standard_deviation is None else f" ± {number_text(row.standard_deviation)}"
        return f"mean {number_text(row.mean)}{spread}"
    if row.true_count is not None:
        return f"{share_text(row.true_count, row.value_count)} of the values true"
    if row.minimum_length is not None and row.maximum_length is not None:
        if row.minimum_length == row.maximum_length:
            return f"length {count_text(row.minimum_length)}"
        return f"length {count_text(row.minimum_length)} to {count_text(row.maximum_length)}"
    return ""


def _notes(row: ColumnStatistics) -> tuple[str, ...]:
    known = dict(row.percentiles or ())
    mark = "" if row.percentiles_guarantee == "exact" else "≈ "
    ranks = [f"{name} {mark}{scalar_text(known[at])}" for at, name in _FRACTIONS.items() if at in known]
    if not ranks and row.minimum is not None and row.maximum is not None:
        ranks = [f"from {_minimum(row)}", f"to {_maximum(row)}"]
    return (_WHY_NO_VALUES[row.frequencies], *ranks)


def _ends(low: str, high: str) -> tuple[str, str]:
    """Times to the second, for both have to fit below a histogram; within one second, without the day."""
    ends = _FRACTION.sub("", low), _FRACTION.sub("", high)
    if ends[0] != ends[1] or ends == (low, high):
        return ends
    return low.rpartition(" ")[2], high.rpartition(" ")[2]


def _named(top: Sequence[tuple[pa.Scalar, int]]) -> list[str]:
    """The values as text; times of one day without the day where there is no room for both."""
    texts = [scalar_text(value) for value, _ in top]
    if not top or not pa.types.is_timestamp(top[0][0].type) or max(map(len, texts)) <= MOST_CHARACTERS:
        return texts
    days, times = zip(*(text.split(" ") for text in texts), strict=True)
    return [ELLIPSIS + time for time in times] if len(set(days)) == 1 else texts


def _minimum(row: ColumnStatistics) -> str:
    return bound_text(row.minimum, row.minimum_exact, "≥ ")


def _maximum(row: ColumnStatistics) -> str:
    return bound_text(row.maximum, row.maximum_exact, "≤ ")
