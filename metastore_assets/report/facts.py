"""Short texts about a column: its range, its distinct values, and other facts from its statistics.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from metastore_assets.lookup.json import scalar_json
from metastore_assets.report.text import (
    format_number,
    format_share,
    format_typed_value,
    mark_estimate,
    mark_lower_bound,
    mark_upper_bound,
)
from metastore_assets.statistics.column import ColumnStatistics, FrequencyState

_FRACTIONS = {0.05: "5% up to", 0.25: "25% up to", 0.5: "median", 0.75: "75% up to", 0.95: "95% up to"}
_FEW_FRACTIONS = (0.05, 0.5, 0.95)
_REASONS_WITHOUT_VALUES: Mapping[FrequencyState, str] = {
    "enumerated": "no value occurs twice",
    "repeated": "no value is known to occur twice",
    "estimated": "too many values to list them",
    "off": "values are not listed (frequencies: off)",
    "absent": "no values",
}


def scalar_text(value: pa.Scalar) -> str:
    """Format an Arrow value for users, as `format_typed_value` does."""
    return format_typed_value(scalar_json(value), str(value.type))


def null_share(record: Mapping[str, Any]) -> float | None:
    """Return the null count divided by the number of values and nulls; None if there are neither.

    `record` is the row of a history for a column in one version.
    """
    rows = record["null_count"] + record["value_count"]
    return record["null_count"] / rows if rows else None


def minimum_text(row: ColumnStatistics) -> str:
    """Format the minimum, with `≥` if it is only a lower bound; an empty text if it is unknown."""
    return "" if row.minimum is None else mark_lower_bound(scalar_text(row.minimum), row.minimum_exact)


def maximum_text(row: ColumnStatistics) -> str:
    """Format the maximum, with `≤` if it is only an upper bound; an empty text if it is unknown."""
    return "" if row.maximum is None else mark_upper_bound(scalar_text(row.maximum), row.maximum_exact)


def range_text(row: ColumnStatistics) -> str:
    """Format the range of values: `1 to 50`; an empty text if minimum or maximum is unknown."""
    if row.minimum is None or row.maximum is None:
        return ""
    return f"{minimum_text(row)} to {maximum_text(row)}"


def distinct_text(row: ColumnStatistics) -> str:
    """Format the number of distinct values, with `~` if it is an estimate.

    Returns an empty text if the number is unknown.
    """
    return (
        ""
        if row.distinct_count is None
        else mark_estimate(format_number(row.distinct_count), row.distinct_count_guarantee)
    )


def short_facts(row: ColumnStatistics) -> tuple[str, ...]:
    """Return up to three short texts about a column, such as `50 distinct`, `1.2% null` and the mean."""
    count = row.value_count + row.null_count
    nulls = f"{format_share(row.null_count, count)} null" if row.null_count else "no nulls"
    if row.nan_count:
        nulls += f", {format_share(row.nan_count, count)} NaN"
    distinct = distinct_text(row)
    return tuple(fact for fact in (f"{distinct} distinct" if distinct else "", nulls, _measure(row)) if fact)


def percentile_texts(row: ColumnStatistics) -> tuple[tuple[str, str], ...]:
    """Return (name, formatted value) of up to five percentiles, with `~` before estimates."""
    percentiles = dict(row.percentiles or ())
    return tuple(
        (name, mark_estimate(scalar_text(percentiles[at]), row.percentiles_guarantee))
        for at, name in _FRACTIONS.items()
        if at in percentiles
    )


def notes_without_values(row: ColumnStatistics) -> tuple[str, ...]:
    """Return lines for a column without frequent values: why it has none, then percentiles or its range.

    The range is returned only if there are no percentiles.
    """
    few = [_FRACTIONS[at] for at in _FEW_FRACTIONS]
    ranks = [f"{name} {value}" for name, value in percentile_texts(row) if name in few]
    if not ranks and row.minimum is not None and row.maximum is not None:
        ranks = [f"from {minimum_text(row)}", f"to {maximum_text(row)}"]
    return (_REASONS_WITHOUT_VALUES[row.frequencies], *ranks)


def _measure(row: ColumnStatistics) -> str:
    """Return the mean, the share of true values, or the lengths as text; empty if none of these is known."""
    if row.mean is not None:
        spread = "" if row.standard_deviation is None else f" ± {format_number(row.standard_deviation)}"
        return f"mean {format_number(row.mean)}{spread}"
    if row.true_count is not None:
        return f"{format_share(row.true_count, row.value_count)} of the values true"
    if row.minimum_length is not None and row.maximum_length is not None:
        if row.minimum_length == row.maximum_length:
            return f"length {format_number(row.minimum_length)}"
        return f"length {format_number(row.minimum_length)} to {format_number(row.maximum_length)}"
    return ""
