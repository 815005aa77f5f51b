"""One row of `statistics.parquet`: what is known of one column, what each number is worth, and how to merge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from metastore_assets.statistics.declaration import Guarantee as Guarantee
from metastore_assets.statistics.declaration import declare_statistic, list_declared
from metastore_assets.statistics.frequencies import Percentiles
from metastore_assets.statistics.user_defined.results import UserResult

FrequencyState = Literal["enumerated", "repeated", "estimated", "off", "absent"]
"""How the values of a column are stored.

- `enumerated`: every value with its frequency, in frequencies.parquet.
- `repeated`: for the table, every value that occurs at least twice and the number of others; for partitions, estimates.
- `estimated`: `auto` decided against enumeration; the distinct count and the percentiles are estimates.
- `off`: the policy stores no values; the distinct count and the percentiles are estimates.
- `absent`: the type of the column has no value class.
"""


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of one leaf column over some rows. None means not known or not defined for the type.

    Scalars are of the canonical Arrow type of the column's class (`TypeClass.arrow`).

    A field with a declaration is a column of `statistics.parquet`, and in JSON; one without is a mergeable state. To
    add a statistic is to add a field here, and its number where those like it are computed: from values in
    `describe.Describer.finish`, or from states in `told.completed`; and in `merge.py` if it merges like no other.
    """

    position: int = field(metadata=declare_statistic("place", "position", "named", told=False))
    """0-based place in table order, over all leaf columns; set by the caller."""
    column: str = field(metadata=declare_statistic("text", "column", "named"))
    """Dotted leaf path."""
    field_id: str = field(metadata=declare_statistic("text", "field id", "together", told=False))
    """Dotted identities; what a column is followed by through renames."""
    type: str = field(metadata=declare_statistic("text", "type", "named"))
    """Arrow type as text."""
    type_class: str | None = field(metadata=declare_statistic("text", "type class", "together", told=False))
    """Name of the class its values widen into; None for containers and types that are not profiled."""
    value_count: int = field(metadata=declare_statistic("count", "values", "together"))
    """Values that are not null, NaN included."""
    null_count: int = field(metadata=declare_statistic("count", "nulls", "together"))
    nan_count: int | None = field(default=None, metadata=declare_statistic("count", "NaN", "sum"))
    """Floats only."""
    minimum: pa.Scalar | None = field(default=None, metadata=declare_statistic("value", "minimum", "together"))
    """Least value, NaN left out; a lower bound if not `minimum_exact`. None: no such value if exact, else unknown."""
    maximum: pa.Scalar | None = field(default=None, metadata=declare_statistic("value", "maximum", "together"))
    """Greatest value or upper bound, likewise."""
    minimum_exact: bool = field(default=False, metadata=declare_statistic("flag", "minimum is exact", "together"))
    maximum_exact: bool = field(default=False, metadata=declare_statistic("flag", "maximum is exact", "together"))
    distinct_count: int | None = field(default=None, metadata=declare_statistic("count", "distinct", "together"))
    """Distinct values; NaN is one, null is none. An estimate is no less than the greatest number of a part that was
    merged, and no more than the sum of theirs."""
    distinct_count_guarantee: Guarantee = field(
        default="absent", metadata=declare_statistic("text", "distinct is worth", "together")
    )
    duplicate_count: int | None = field(default=None, metadata=declare_statistic("count", "duplicates", "together"))
    """Distinct values that occur more than once; exact when not None. None where `distinct_count` is an estimate."""
    sum: str | None = field(default=None, metadata=declare_statistic("sum", "sum", "derived"))
    """Integers and decimals: exact, of any size. Floats: the exact sum, rounded once; NaN left out."""
    mean: float | None = field(default=None, metadata=declare_statistic("measure", "mean", "derived"))
    standard_deviation: float | None = field(default=None, metadata=declare_statistic("measure", "std dev", "derived"))
    """Of the sample (divided by n - 1), as SQL's stddev; None for fewer than two numbers or with infinities."""
    skewness: float | None = field(default=None, metadata=declare_statistic("measure", "skewness", "derived"))
    """Of the population, as Spark SQL's; None for constants."""
    kurtosis: float | None = field(default=None, metadata=declare_statistic("measure", "kurtosis", "derived"))
    """Excess kurtosis of the population, as Spark SQL's; None for constants."""
    minimum_length: int | None = field(default=None, metadata=declare_statistic("count", "minimum length", "least"))
    """Strings: characters (code points). Binary: bytes. Lists and maps: elements."""
    maximum_length: int | None = field(default=None, metadata=declare_statistic("count", "maximum length", "greatest"))
    mean_length: float | None = field(default=None, metadata=declare_statistic("measure", "mean length", "derived"))
    total_length: int | None = field(
        default=None, metadata=declare_statistic("count", "total length", "sum of lengths", told=False)
    )
    """Sum of the lengths, which `mean_length` merges by."""
    true_count: int | None = field(default=None, metadata=declare_statistic("count", "true", "sum"))
    """Booleans only."""
    total_bytes: int | None = field(default=None, metadata=declare_statistic("count", "bytes", "sum"))
    """Bytes of the values: of strings and binary their length in bytes; else values times the width of the type."""
    percentiles: Percentiles | None = field(
        default=None, metadata=declare_statistic("percentiles", "percentiles", "together")
    )
    percentiles_guarantee: Guarantee = field(
        default="absent", metadata=declare_statistic("text", "percentiles are worth", "together")
    )
    frequencies: FrequencyState = field(default="absent", metadata=declare_statistic("text", "frequencies", "together"))
    reason: str | None = field(default=None, metadata=declare_statistic("text", "reason", "together"))
    """Why nothing but counts is known of the column, for people."""
    moments: bytes | None = None
    """Mergeable state of sum, mean, deviation, skewness, kurtosis: see moments.py."""
    quantile_sketch: bytes | None = None
    """Mergeable state of the percentiles, a t-digest of Apache DataSketches: see quantiles.py."""
    distinct_sketch: bytes | None = None
    """Mergeable state of the distinct count, a HyperLogLog: see distinct.py."""
    multiset_hash: bytes | None = field(
        default=None, metadata=declare_statistic("bytes", "multiset hash", "together", told=False)
    )
    """16 bytes, equal for equal multisets of values and nulls, whatever the order of rows: see distinct.py."""

    user_defined: Mapping[str, UserResult] = field(default_factory=dict)
    """By name, the user-defined statistics that the column's policy asks for and its type allows."""
    user_states: bytes | None = None
    """Mergeable states of those that have them: see user_defined/states.py."""


STATISTICS = list_declared(ColumnStatistics)
"""The columns of `statistics.parquet` by name, in file order."""
