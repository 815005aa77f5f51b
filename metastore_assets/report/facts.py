"""Short facts about a column."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from metastore_assets.lookup.json import scalar_json
from metastore_assets.report.text import at_least, at_most, estimate, number, share, typed_value
from metastore_assets.statistics.column import ColumnStatistics, FrequencyState

_FRACTIONS = {0.05: "5% up to", 0.25: "25% up to", 0.5: "median", 0.75: "75% up to", 0.95: "95% up to"}
_FEW_FRACTIONS = (0.05, 0.5, 0.95)
_WHY_NO_VALUES: Mapping[FrequencyState, str] = {
    "enumerated": "no value occurs twice",
    "repeated": "no value is known to occur twice",
    "estimated": "too many values to list them",
    "off": "values are not listed (frequencies: off)",
    "absent": "no values",
}


def scalar_text(value: pa.Scalar) -> str:
    """Format one value of a column, as `text.typed_value` does."""
    return typed_value(scalar_json(value), str(value.type))


def minimum_text(row: ColumnStatistics) -> str:
    """Format the minimum, marked if it is only a bound; empty if unknown."""
    return "" if row.minimum is None else at_least(scalar_text(row.minimum), row.minimum_exact)


def maximum_text(row: ColumnStatistics) -> str:
    """Format the maximum, marked if it is only a bound; empty if unknown."""
    return "" if row.maximum is None else at_most(scalar_text(row.maximum), row.maximum_exact)


def range_text(row: ColumnStatistics) -> str:
    """Format the range from minimum to maximum; empty if unknown."""
    known = row.minimum is not None and row.maximum is not None
    return f"{minimum_text(row)} to {maximum_text(row)}" if known else ""


def distinct_text(row: ColumnStatistics) -> str:
    """Format the number of distinct values, marked if it is an estimate; empty if unknown."""
    return "" if row.distinct_count is None else estimate(number(row.distinct_count), row.distinct_count_guarantee)


def facts_of(row: ColumnStatistics) -> tuple[str, ...]:
    """Return at most three short facts: distinct values, nulls, and a measure of the values."""
    count = row.value_count + row.null_count
    nulls = f"{share(row.null_count, count)} null" if row.null_count else "no nulls"
    if row.nan_count:
        nulls += f", {share(row.nan_count, count)} NaN"
    distinct = distinct_text(row)
    return tuple(fact for fact in (f"{distinct} distinct" if distinct else "", nulls, _measure(row)) if fact)


def percentiles_of(row: ColumnStatistics) -> tuple[tuple[str, str], ...]:
    """Return the name and value of up to five known percentiles, marked if they are estimates."""
    known = dict(row.percentiles or ())
    return tuple(
        (name, estimate(scalar_text(known[at]), row.percentiles_guarantee))
        for at, name in _FRACTIONS.items()
        if at in known
    )


def notes_of(row: ColumnStatistics) -> tuple[str, ...]:
    """Return lines shown in place of values: why there are none, and the range of the values."""
    few = [_FRACTIONS[at] for at in _FEW_FRACTIONS]
    ranks = [f"{name} {value}" for name, value in percentiles_of(row) if name in few]
    if not ranks and row.minimum is not None and row.maximum is not None:
        ranks = [f"from {minimum_text(row)}", f"to {maximum_text(row)}"]
    return (_WHY_NO_VALUES[row.frequencies], *ranks)


def _measure(row: ColumnStatistics) -> str:
    if row.mean is not None:
        spread = "" if row.standard_deviation is None else f" ± {number(row.standard_deviation)}"
        return f"mean {number(row.mean)}{spread}"
    if row.true_count is not None:
        return f"{share(row.true_count, row.value_count)} of the values true"
    if row.minimum_length is not None and row.maximum_length is not None:
        if row.minimum_length == row.maximum_length:
            return f"length {number(row.minimum_length)}"
        return f"length {number(row.minimum_length)} to {number(row.maximum_length)}"
    return ""
