"""Conversions of value count rows: to frequencies, by column, and filtered by value."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.statistics.frequencies import (
    EMPTY,
    Frequencies,
    run_to_frequencies,
)
from metastore_assets.statistics.runs import sum_counts
from metastore_assets.values.physical import physical_series
from metastore_assets.values.types import class_named


def frequencies_of_rows(rows: pa.Table, type_class: str) -> Frequencies:
    """Return the frequencies of distinct values of one class, given in any order."""
    if not rows.num_rows:
        return EMPTY
    cls = class_named(type_class)
    values, counts = physical_series(rows["value"].combine_chunks(), cls), rows["frequency"].to_numpy()
    return run_to_frequencies(sum_counts(values, counts), cls)


def equal_to(values: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    """Return which values equal one value; NaN equals NaN."""
    if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
        return pc.is_nan(values)
    if isinstance(value, pa.ExtensionScalar):
        return pc.equal(values.cast(value.type.storage_type), value.value)
    return pc.equal(values, value)


def by_column(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each column with its rows. The rows must be ordered by column."""
    ends = pc.run_end_encode(table["column"].combine_chunks())
    start = 0
    for column, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield column, table.slice(start, end - start)
        start = end


def concatenate_rows(tables: list[pa.Table]) -> Frequencies:
    """Return the frequencies of a column from consecutive tables in value order."""
    table = pa.concat_tables(tables).combine_chunks()
    values, counts = table["value"].combine_chunks(), table["frequency"].combine_chunks()
    return Frequencies(values, counts)
