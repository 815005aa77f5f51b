"""One row of `statistics.parquet`: what is known of one column, what each number is worth, and how to merge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from metastore_assets.statistics.frequencies import Percentiles

Guarantee = Literal["exact", "bound", "estimate", "absent"]
"""`exact`; `bound`: the true value is no further out; `estimate`; `absent`: not known, which never means zero."""

FrequencyState = Literal["listed", "estimated", "off", "absent"]
"""`listed`: every value with its frequency in frequencies.parquet. `estimated`: `auto` found that listing is not worth
while; distinct values and percentiles are estimates. `off`: the policy lists none; estimates likewise. `absent`: the
column has no values of a class."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of one leaf column over some rows. None means not known or not defined for the type.

    Scalars are of the canonical Arrow type of the column's class (`TypeClass.arrow`).
    """

    position: int
    """0-based place in table order, over all leaf columns; set by the caller."""
    column: str
    """Dotted leaf path."""
    field_id: str
    """Dotted identities; what a column is followed by through renames."""
    type: str
    """Arrow type as text."""
    type_class: str | None
    """Name of the class its values widen into; None for containers and types that are not profiled."""
    value_count: int
    """Values that are not null, NaN included."""
    null_count: int
    nan_count: int | None = None
    """Floats only."""
    minimum: pa.Scalar | None = None
    """Least value, NaN left out; a lower bound if not `minimum_exact`. None: no such value if exact, else unknown."""
    maximum: pa.Scalar | None = None
    """Greatest value or upper bound, likewise."""
    minimum_exact: bool = False
    maximum_exact: bool = False
    distinct_count: int | None = None
    """Distinct values; NaN is one, null is none. An estimate is no less than the greatest number of a part that was
    merged, and no more than the sum of theirs."""
    distinct_count_guarantee: Guarantee = "absent"
    duplicate_count: int | None = None
    """Distinct values that occur more than once; exact when not None. None where `distinct_count` is an estimate."""
    sum: str | None = None
    """Integers and decimals: exact, of any size. Floats: the exact sum, rounded once; NaN left out."""
    mean: float | None = None
    standard_deviation: float | None = None
    """Of the sample (divided by n - 1), as SQL's stddev; None for fewer than two numbers or with infinities."""
    skewness: float | None = None
    """Of the population, as Spark SQL's; None for constants."""
    kurtosis: float | None = None
    """Excess kurtosis of the population, as Spark SQL's; None for constants."""
    minimum_length: int | None = None
    """Strings: characters (code points). Binary: bytes. Lists and maps: elements."""
    maximum_length: int | None = None
    mean_length: float | None = None
    total_length: int | None = None
    """Sum of the lengths, which `mean_length` merges by."""
    true_count: int | None = None
    """Booleans only."""
    total_bytes: int | None = None
    """Bytes of the values: of strings and binary their length in bytes; else values times the width of the type."""
    percentiles: Percentiles | None = None
    percentiles_guarantee: Guarantee = "absent"
    frequencies: FrequencyState = "absent"
    reason: str | None = None
    """Why nothing but counts is known of the column, for people."""
    moments: bytes | None = None
    """Mergeable state of sum, mean, deviation, skewness, kurtosis: see moments.py."""
    quantile_sketch: bytes | None = None
    """Mergeable state of the percentiles, a t-digest of Apache DataSketches: see quantiles.py."""
    distinct_sketch: bytes | None = None
    """Mergeable state of the distinct count, a HyperLogLog: see distinct.py."""
    fingerprint: bytes | None = None
    """16 bytes, equal for equal multisets of values and nulls, whatever the order of rows: see distinct.py."""
