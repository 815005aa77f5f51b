"""`HistoryRow`: the statistics of one column in one version of a table, as a Python object.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.statistics.column import Guarantee


@dataclass(frozen=True)
class HistoryRow:
    """The statistics of one column in one version.

    Minima, maxima, percentiles and sums are text.
    """

    version: int
    snapshot: str
    committed_at: datetime | None = field(repr=False)
    """Time of the snapshot, in UTC; None if the format does not record it."""
    published_at: datetime
    """Time when the version was published, in UTC."""
    row_count: int
    """The number of rows of the table."""
    bytes: int = field(repr=False)
    """The size of the table's data files in bytes."""
    partitions: int = field(repr=False)
    fragments: int = field(repr=False)
    position: int = field(repr=False)
    """The position of the column among the columns and nested fields of its version, from 0."""
    field_id: str = field(repr=False)
    """Identifies the column across renames."""
    column: str
    """The dotted path of the column in that version."""
    type: str
    value_count: int
    """The number of values that are not null, NaN included."""
    null_count: int
    nan_count: int | None = field(repr=False)
    minimum: str | None
    """The least value other than NaN; only a lower bound if `minimum_exact` is false. None without values, or if
    unknown."""
    maximum: str | None
    """The greatest value other than NaN; only an upper bound if `maximum_exact` is false. None without values, or if
    unknown."""
    minimum_exact: bool = field(repr=False)
    maximum_exact: bool = field(repr=False)
    distinct_count: int | None
    distinct_count_guarantee: Guarantee = field(repr=False)
    duplicate_count: int | None = field(repr=False)
    """The number of distinct values that occur more than once."""
    sum: str | None = field(repr=False)
    mean: float | None
    standard_deviation: float | None = field(repr=False)
    skewness: float | None = field(repr=False)
    kurtosis: float | None = field(repr=False)
    minimum_length: int | None = field(repr=False)
    maximum_length: int | None = field(repr=False)
    mean_length: float | None = field(repr=False)
    true_count: int | None = field(repr=False)
    total_bytes: int | None = field(repr=False)
    """The size of all values in bytes."""
    percentiles: Mapping[float, str | None] | None = field(repr=False)
    """The value at each fraction from 0 to 1; None if the column has no percentiles."""
    percentiles_guarantee: Guarantee = field(repr=False)
    frequencies: str = field(repr=False)
    """Which value counts are stored: see `ColumnStatistics.frequencies`."""
    reason: str | None = field(repr=False)
    """Why the column has no statistics besides counts and lengths; None if it has them."""
    user_defined: Mapping[str, Any] = field(repr=False)
    """The `value` and `guarantee` of each user-defined statistic, by name."""


_NAMES = tuple(each.name for each in fields(HistoryRow))


def parse_history(rows: pa.Table) -> Iterator[HistoryRow]:
    """Yield a `HistoryRow` for each row of an Arrow table with the columns `version_rows.SCHEMA`."""
    for record in rows.select(_NAMES).to_pylist():
        percentiles = record["percentiles"]
        record["percentiles"] = percentiles and {each["fraction"]: each["value"] for each in percentiles}
        record["user_defined"] = json.loads(record["user_defined"] or "{}")
        yield HistoryRow(**record)
