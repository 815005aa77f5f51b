"""The statistics of one column: a row of the file `statistics`, with mergeable states, and its JSON.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type,
the *canonical type*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from metastore_assets.statistics.declaration import ARROW_TYPES, StatisticKind, declare_statistic, list_declared
from metastore_assets.statistics.declaration import Guarantee as Guarantee
from metastore_assets.statistics.frequencies import Percentiles
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.values.json import Json, ScalarFieldsRepr, float_json, integer_json, scalar_json, value_json

FrequencyState = Literal["enumerated", "repeated", "estimated", "off", "absent"]
"""Which of a column's values are stored with their frequencies.

- `enumerated`: every value.
- `repeated`: values that occur at least twice in the table, and the number of other values. They are stored for the
  table only, not for its partitions.
- `estimated`: none, because the policy `auto` decided so.
- `off`: none, because the policy is `off`.
- `absent`: none, because values of the type are not profiled, or the policy hides them.

With `estimated` and `off`, the distinct count and the percentiles are estimates, unless other statistics determine
them, as for a constant column."""


@dataclass(frozen=True, repr=False)
class ColumnStatistics(ScalarFieldsRepr):
    """Statistics of one column, a top-level column or nested field, over some rows.

    None means unknown, or not defined for the type. Scalars are of the canonical Arrow type of the column's type class
    (`TypeClass.arrow`). Fields with `declare_statistic` are columns of the file `statistics`. The other fields are
    mergeable states, and results of user-defined statistics. A new statistic needs fields here, and a class in
    `registry.BUILTIN_STATISTICS`.
    """

    position: int = field(metadata=declare_statistic("position", "position", "schema", is_reported=False))
    """0-based position in table order, over all columns and nested fields. A struct, list or map precedes its
    children."""
    column: str = field(metadata=declare_statistic("text", "column", "schema"))
    """Dotted path of the column or nested field: `address.city`, `tags.element`."""
    field_id: str = field(metadata=declare_statistic("text", "field id", "statistic", is_reported=False))
    """Dotted field ids, which identify the column across renames."""
    type: str = field(metadata=declare_statistic("text", "type", "schema"))
    """Arrow type as text."""
    type_class: str | None = field(metadata=declare_statistic("text", "type class", "statistic", is_reported=False))
    """Name of the type class; None for containers and for types that are not profiled."""
    value_count: int = field(metadata=declare_statistic("count", "values", "statistic"))
    """The number of values that are not null, NaN included."""
    null_count: int = field(metadata=declare_statistic("count", "nulls", "statistic"))
    """The number of nulls."""
    nan_count: int | None = field(default=None, metadata=declare_statistic("count", "NaN", "sum"))
    """Number of NaN values; None for types other than floats."""
    minimum: pa.Scalar | None = field(default=None, metadata=declare_statistic("value", "minimum", "statistic"))
    """The least value other than NaN, or a lower bound if `minimum_exact` is false. None means no values if
    `minimum_exact` is true, and unknown if it is false."""
    maximum: pa.Scalar | None = field(default=None, metadata=declare_statistic("value", "maximum", "statistic"))
    """The greatest value other than NaN, or an upper bound if `maximum_exact` is false. None means no values if
    `maximum_exact` is true, and unknown if it is false."""
    minimum_exact: bool = field(default=False, metadata=declare_statistic("flag", "minimum is exact", "statistic"))
    """False if `minimum` is only a lower bound, as for texts and bytes over 4,096 bytes, or if it is unknown."""
    maximum_exact: bool = field(default=False, metadata=declare_statistic("flag", "maximum is exact", "statistic"))
    """False if `maximum` is only an upper bound, as for texts and bytes over 4,096 bytes, or if it is unknown."""
    distinct_count: int | None = field(default=None, metadata=declare_statistic("count", "distinct", "statistic"))
    """Number of distinct values. NaN counts as one value, null does not count."""
    distinct_count_guarantee: Guarantee = field(
        default="absent", metadata=declare_statistic("text", "distinct guarantee", "statistic")
    )
    """`exact`; `estimate`, from a HyperLogLog with a standard error of 1.6 %; or `absent` if the count is unknown. The
    estimate of merged parts is at least the greatest count of a part, and at most the sum of their counts."""
    duplicate_count: int | None = field(default=None, metadata=declare_statistic("count", "duplicates", "statistic"))
    """Exact number of distinct values that occur more than once; None if `distinct_count` is not exact."""
    sum: int | Decimal | float | None = field(default=None, metadata=declare_statistic("sum", "sum", "derived"))
    """The exact sum; for floats, without NaN and rounded once. Files store it as text."""
    mean: float | None = field(default=None, metadata=declare_statistic("measure", "mean", "derived"))
    """The mean, without NaN."""
    standard_deviation: float | None = field(default=None, metadata=declare_statistic("measure", "std dev", "derived"))
    """The standard deviation of the sample (divisor n - 1), like SQL's stddev; None for fewer than two numbers or if a
    value is infinite."""
    skewness: float | None = field(default=None, metadata=declare_statistic("measure", "skewness", "derived"))
    """The skewness of the population, as in Spark SQL; None for constants or if a value is infinite."""
    kurtosis: float | None = field(default=None, metadata=declare_statistic("measure", "kurtosis", "derived"))
    """The excess kurtosis of the population, as in Spark SQL; None for constants or if a value is infinite."""
    minimum_length: int | None = field(
        default=None, metadata=declare_statistic("count", "minimum length", "length_minimum")
    )
    """The length of the shortest value: characters (code points) of a string, bytes of binary, elements of a list or
    map."""
    maximum_length: int | None = field(
        default=None, metadata=declare_statistic("count", "maximum length", "length_maximum")
    )
    """The length of the longest value."""
    mean_length: float | None = field(default=None, metadata=declare_statistic("measure", "mean length", "derived"))
    """The mean of the lengths."""
    total_length: int | None = field(
        default=None, metadata=declare_statistic("count", "total length", "length_sum", is_reported=False)
    )
    """Sum of the lengths, from which `mean_length` is computed."""
    true_count: int | None = field(default=None, metadata=declare_statistic("count", "true", "sum"))
    """Number of true values; None for types other than booleans."""
    total_bytes: int | None = field(default=None, metadata=declare_statistic("count", "bytes", "sum"))
    """The size of all values: the bytes of strings and binary values; for other types, the value count times the width
    of the type in bytes."""
    percentiles: Percentiles | None = field(
        default=None, metadata=declare_statistic("percentiles", "percentiles", "statistic")
    )
    """A list of (fraction, value) at .01 .05 .1 .25 .5 .75 .9 .95 .99. The value is the smallest *v* for which at least
    this fraction of the values is ≤ *v*."""
    percentiles_guarantee: Guarantee = field(
        default="absent", metadata=declare_statistic("text", "percentiles guarantee", "statistic")
    )
    """`exact` if all values are stored with their frequencies, or if other statistics determine them, as for a constant
    column. Otherwise `estimate` for numbers and times with a quantile sketch, and `absent` for other columns."""
    frequencies: FrequencyState = field(
        default="absent", metadata=declare_statistic("text", "frequencies", "statistic")
    )
    """Which values are stored with their frequencies: `enumerated` (all), `repeated` (those that occur at least twice
    in the table), `estimated` (none, as the policy `auto` decided), `off` (none, by policy), or `absent` (none, because
    values of the type are not profiled, or are hidden)."""
    reason: str | None = field(default=None, metadata=declare_statistic("text", "reason", "statistic"))
    """Why the column has no statistics besides counts and lengths, as text for users; None if it has them."""
    moments: bytes | None = field(default=None, repr=False)
    """State of sum, mean, deviation, skewness and kurtosis: see moments.py."""
    quantile_sketch: bytes | None = field(default=None, repr=False)
    """State of the percentiles, a t-digest of Apache DataSketches: see quantiles.py."""
    distinct_sketch: bytes | None = field(default=None, repr=False)
    """State of the distinct count, a HyperLogLog: see distinct.py."""
    multiset_hash: bytes | None = field(
        default=None, repr=False, metadata=declare_statistic("bytes", "multiset hash", "statistic", is_reported=False)
    )
    """A hash of 16 bytes of all values and nulls, which does not depend on the order of rows. A key enters the hash of
    hidden values."""

    user_defined: Mapping[str, UserResult] = field(default_factory=dict)
    """Results of the user-defined statistics that the policy requests and that apply to the column's type, by name."""
    user_states: bytes | None = field(default=None, repr=False)
    """States of the mergeable user-defined statistics, encoded together: see user_defined/states.py."""
    partition: str | None = field(default=None, compare=False)
    """The key of the partition that the row describes; None for a table, and for rows of files."""


STATISTICS = list_declared(ColumnStatistics)
"""The columns of `statistics` by name, in file order."""


def statistic_type(name: str, union: pa.StructType) -> pa.DataType:
    """Return the Arrow type of one column of the file `statistics`.

    Args:
        name: The name of the column, a key of `STATISTICS`.
        union: The typed union of all values in the file, which has one field per type class. It is the type of
            `minimum`.
    """
    kind = STATISTICS[name].kind
    if kind == "percentiles":
        return pa.list_(pa.struct([("fraction", pa.float64()), ("value", union)]))
    return union if kind == "value" else ARROW_TYPES[kind]


def column_to_json(row: ColumnStatistics) -> Json:
    """Return a row of statistics as a JSON object, by name.

    Statistics that are unknown or not defined are null.

    User-defined statistics are under the key `user_defined`, by name.
    """
    fields = {
        name: _FORMATTERS[statistic.kind](getattr(row, name), row)
        for name, statistic in STATISTICS.items()
        if statistic.is_reported
    }
    return {**fields, "user_defined": {name: _result_json(result) for name, result in row.user_defined.items()}}


def _result_json(result: UserResult) -> Json:
    return {"value": value_json(result.value), "guarantee": result.guarantee, "reason": result.reason}


def parse_sum(text: str | None, type_class: str | None) -> int | Decimal | float | None:
    """Parse the text of a sum: an int, a float or a Decimal, depending on the column's type class.

    None stays None.
    """
    if text is None:
        return None
    if type_class == "float64":
        return float(text)
    return int(text) if type_class in ("int64", "uint64") else Decimal(text)


def format_sum(value: int | Decimal | float | None) -> str | None:
    """Return a sum as the text that files store.

    None stays None. `parse_sum` is the inverse.
    """
    if value is None:
        return None
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _sum_json(value: int | Decimal | float | None) -> int | float | str | None:
    if isinstance(value, Decimal):
        return format_sum(value)
    return integer_json(value) if isinstance(value, int) else float_json(value)


def _percentiles_json(percentiles: Percentiles | None) -> list[Json] | None:
    if percentiles is None:
        return None
    return [{"fraction": fraction, "value": scalar_json(value)} for fraction, value in percentiles]


_FORMATTERS: Mapping[StatisticKind, Callable[[Any, ColumnStatistics], Any]] = {
    "position": lambda value, row: value,
    "count": lambda value, row: integer_json(value),
    "measure": lambda value, row: float_json(value),
    "flag": lambda value, row: value,
    "text": lambda value, row: value,
    "bytes": lambda value, row: None if value is None else value.hex(),
    "sum": lambda value, row: _sum_json(value),
    "value": lambda value, row: scalar_json(value),
    "percentiles": lambda value, row: _percentiles_json(value),
}
"""Functions (value, its row) -> the value as JSON, by kind of statistic."""
