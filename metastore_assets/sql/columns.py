"""Values of columns of any type as columns of SQL: as text, and as numbers or times where they are some."""

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
LISTED = pa.schema(
    [
        ("column_name", pa.string()),
        ("value", pa.string()),
        ("number", pa.float64()),
        ("time", _TIME),
        ("frequency", pa.int64()),
        ("rank", pa.int64()),
    ]
)
"""`value` is the value as text, as JSON answers have it; `number` of numbers, and `time` of dates and timestamps, in
UTC where these have a zone, are what queries compute with. `rank`: how many values are less."""
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
"""`minimum` is inclusive, `maximum` exclusive; `lower` and `upper` are the same as numbers, of dates days and of times
and timestamps units since 1970."""


def listed_values(table: Table, row: ColumnStatistics) -> Iterator[pa.RecordBatch]:
    """The list of a column, by increasing value."""
    rank = 0
    for piece in table.values(row.column):
        if not len(piece):
            continue
        counts = piece.counts.to_numpy()
        ranks = rank + np.concatenate([[0], np.cumsum(counts)[:-1]])
        rank += int(counts.sum())
        values = piece.values
        arrays = [pa.repeat(row.column, len(values)), texts(values), _numbers(values), _times(values)]
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(counts), pa.array(ranks)], schema=LISTED)


def bins_of_column(column: str, histogram: Histogram) -> pa.RecordBatch:
    """The bins of a histogram."""
    edges = histogram.edges()
    labels = texts(edges)
    numbers = _bounds(histogram, edges)
    arrays = [pa.repeat(column, len(histogram)), labels[:-1], labels[1:], numbers[:-1], numbers[1:]]
    return pa.RecordBatch.from_arrays(
        [own if isinstance(own, pa.Array) else pa.array(own) for own in (*arrays, histogram.counts)], schema=BINS
    )


def _bounds(histogram: Histogram, edges: pa.Array) -> npt.NDArray[np.float64]:
    """Return the edges of the bins as doubles, those of floats clamped to the finite ones as `edges` are."""
    if histogram.type_class.kind == "float":
        return np.asarray(edges)
    divisor = 10**histogram.type_class.scale
    return np.array(
        [rounded_ratio(histogram.first + at, divisor, histogram.exponent) for at in range(len(histogram) + 1)]
    )


def texts(values: pa.Array) -> pa.Array:
    """Values as JSON answers have them, but whole numbers and booleans as text as well."""
    if t.is_integer(values.type) or t.is_boolean(values.type) or t.is_decimal(values.type):
        return values.cast(pa.string())
    if t.is_large_string(values.type):
        try:
            # By way of bytes, for only so it is looked at whether text is text.
            return values.cast(pa.large_binary()).cast(pa.string())
        except pa.ArrowInvalid:
            pass
    return pa.array([str(scalar_json(value)) for value in values], pa.string())


def _numbers(values: pa.Array) -> pa.Array:
    if t.is_integer(values.type) or t.is_floating(values.type) or t.is_decimal(values.type):
        return values.cast(pa.float64(), safe=False)
    return pa.nulls(len(values), pa.float64())


def _times(values: pa.Array) -> pa.Array:
    """Dates and timestamps; null for those that microseconds do not reach."""
    if not t.is_timestamp(values.type) and not t.is_date(values.type):
        return pa.nulls(len(values), _TIME)
    if t.is_timestamp(values.type) and values.type.unit == "ns":
        # Not `floor_temporal`, which wraps around near the ends of 64 bits.
        nanoseconds = values.view(pa.int64())
        microseconds = nanoseconds.fill_null(0).to_numpy() // 1_000
        return pa.array(microseconds, mask=values.is_null().to_numpy(zero_copy_only=False)).view(_TIME)
    wide = values.cast(pa.timestamp("s")) if t.is_date(values.type) else values.view(pa.timestamp(values.type.unit))
    try:
        return wide.cast(_TIME)
    except pa.ArrowInvalid:
        limit = 2**63 // 10**6 - 1
        seconds = wide.cast(pa.timestamp("s"), safe=False).view(pa.int64())
        fits = pc.and_(pc.greater(seconds, -limit), pc.less(seconds, limit))
        return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(_TIME)
