"""Conversion of value counts and histograms to columns of SQL views: text, numbers and times.

The value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.lookup import Table
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.moments import rounded_ratio
from metastore_assets.values.json import scalar_json

_TIME = pa.timestamp("us")
VALUE_COUNTS = pa.schema(
    [
        ("column_name", pa.string()),
        ("value", pa.string()),
        ("number", pa.float64()),
        ("time", _TIME),
        ("frequency", pa.int64()),
        ("rank", pa.int64()),
    ]
)
"""The columns of value counts. `value` is text as in JSON answers. `number` is the same value as a number, and `time`
is the same value as a time; they are null for values of other types. Times are in UTC if the column's type has a
zone. `rank` is the number of rows with a lesser value."""
BINS = pa.schema(
    [
        ("column_name", pa.string()),
        ("minimum", pa.string()),
        ("maximum", pa.string()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("frequency", pa.int64()),
    ]
)
"""The columns of histograms, with a row for each bin. `minimum` is inclusive. `maximum` is exclusive, or inclusive if
it is the greatest value of the type. `lower` and `upper` are the same as numbers: days since 1970 for dates, and the
type's unit since 1970 or midnight for timestamps and times."""


def value_count_batches(table: Table, row: ColumnStatistics) -> Iterator[pa.RecordBatch]:
    """Yield the value counts of a column by increasing value, as batches of the schema `VALUE_COUNTS`."""
    rank = 0
    for piece in table.value_batches(row.column):
        if not len(piece):
            continue
        counts = piece.counts.to_numpy()
        ranks = rank + np.concatenate([[0], np.cumsum(counts)[:-1]])
        rank += int(counts.sum())
        values = piece.values
        arrays = [pa.repeat(row.column, len(values)), to_texts(values), _to_numbers(values), _to_times(values)]
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(counts), pa.array(ranks)], schema=VALUE_COUNTS)


def histogram_batch(column: str, histogram: Histogram) -> pa.RecordBatch:
    """Return the bins of a column's histogram as a batch of the schema `BINS`."""
    edges = histogram.edges()
    labels = to_texts(edges)
    numbers = _edge_numbers(histogram, edges)
    arrays = [pa.repeat(column, len(histogram)), labels[:-1], labels[1:], numbers[:-1], numbers[1:]]
    return pa.RecordBatch.from_arrays(
        [column if isinstance(column, pa.Array) else pa.array(column) for column in (*arrays, histogram.counts)],
        schema=BINS,
    )


def _edge_numbers(histogram: Histogram, edges: pa.Array) -> npt.NDArray[np.float64]:
    """Return the edges of a histogram's bins as doubles: one more than there are bins."""
    if histogram.type_class.kind == "float":
        return np.asarray(edges)
    divisor = 10**histogram.type_class.scale
    return np.array(
        [rounded_ratio(histogram.first + at, divisor, histogram.exponent) for at in range(len(histogram) + 1)]
    )


def to_texts(values: pa.Array) -> pa.Array:
    """Convert values to the texts that JSON answers have.

    Integers and booleans become texts too.
    """
    if t.is_integer(values.type) or t.is_boolean(values.type) or t.is_decimal(values.type):
        return values.cast(pa.string())
    if t.is_large_string(values.type):
        try:
            # Cast through bytes, because only this cast validates the encoding.
            return values.cast(pa.large_binary()).cast(pa.string())
        except pa.ArrowInvalid:
            pass
    return pa.array([str(scalar_json(value)) for value in values], pa.string())


def _to_numbers(values: pa.Array) -> pa.Array:
    if t.is_integer(values.type) or t.is_floating(values.type) or t.is_decimal(values.type):
        return values.cast(pa.float64(), safe=False)
    return pa.nulls(len(values), pa.float64())


def _to_times(values: pa.Array) -> pa.Array:
    """Convert dates and timestamps to timestamps in microseconds.

    A value becomes null if it does not fit into 64 bits of microseconds. For other types, all values are null.
    """
    if not t.is_timestamp(values.type) and not t.is_date(values.type):
        return pa.nulls(len(values), _TIME)
    if t.is_timestamp(values.type) and values.type.unit == "ns":
        # `floor_temporal` would overflow near the ends of 64 bits.
        nanoseconds = values.view(pa.int64())
        microseconds = nanoseconds.fill_null(0).to_numpy() // 1_000
        return pa.array(microseconds, mask=values.is_null().to_numpy(zero_copy_only=False)).view(_TIME)
    times = values.cast(pa.timestamp("s")) if t.is_date(values.type) else values.view(pa.timestamp(values.type.unit))
    try:
        return times.cast(_TIME)
    except pa.ArrowInvalid:
        limit = 2**63 // 10**6 - 1
        seconds = times.cast(pa.timestamp("s"), safe=False).view(pa.int64())
        fits = pc.and_(pc.greater(seconds, -limit), pc.less(seconds, limit))
        return pc.if_else(fits, times, pa.scalar(None, times.type)).cast(_TIME)
