"""The JSON shapes that the `metastore` command prints: stable, valid JSON, every value exact.

Dates, times and timestamps are ISO 8601, to the nanosecond and of any year (see `iso8601`; with a zone: UTC, ending in
`Z`); decimals, and integers beyond 2**53, are text; binary is hexadecimal; floats without a JSON number are "NaN",
"Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.iso8601 import temporal_text
from metastore_assets.lookup.table import Bin, TopValues
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.manifest import Decision, Version

Json = dict[str, Any]

_EXACT = 2**53
"""Integers up to this magnitude are exact in every JSON reader."""


def show_json(
    version: Version,
    statistics: Sequence[ColumnStatistics],
    *,
    current: bool,
    row_count: int | None = None,
    partition: str | None = None,
) -> Json:
    """The shape of `show`. For a partition, its key and row count are given; the key `partition` is there only then."""
    return {
        "table": version.table,
        "version": version.number,
        "snapshot": version.snapshot,
        "current": current,
        **({} if partition is None else {"partition": partition}),
        "row_count": integer_json(version.row_count if row_count is None else row_count),
        "columns": [
            {**column_json(row), "decision": _decision_json(version.decisions.get(row.field_id))} for row in statistics
        ],
    }


def _decision_json(decision: Decision | None) -> Json | None:
    """What `frequencies: auto` was decided to mean, and why; None for a column that it has always listed."""
    if decision is None:
        return None
    return {"frequencies": decision.frequencies, "reason": decision.reason, "since": decision.since}


def column_json(row: ColumnStatistics) -> Json:
    """One column of `show`. null where a statistic is not known or not defined for the type."""
    return {
        "column": row.column,
        "type": row.type,
        "value_count": integer_json(row.value_count),
        "null_count": integer_json(row.null_count),
        "nan_count": integer_json(row.nan_count),
        "minimum": scalar_json(row.minimum),
        "maximum": scalar_json(row.maximum),
        "minimum_exact": row.minimum_exact,
        "maximum_exact": row.maximum_exact,
        "distinct_count": integer_json(row.distinct_count),
        "distinct_count_guarantee": row.distinct_count_guarantee,
        "duplicate_count": integer_json(row.duplicate_count),
        "sum": _sum_json(row),
        "mean": float_json(row.mean),
        "standard_deviation": float_json(row.standard_deviation),
        "skewness": float_json(row.skewness),
        "kurtosis": float_json(row.kurtosis),
        "minimum_length": integer_json(row.minimum_length),
        "maximum_length": integer_json(row.maximum_length),
        "mean_length": float_json(row.mean_length),
        "true_count": integer_json(row.true_count),
        "total_bytes": integer_json(row.total_bytes),
        "percentiles": None
        if row.percentiles is None
        else [{"fraction": fraction, "value": scalar_json(value)} for fraction, value in row.percentiles],
        "percentiles_guarantee": row.percentiles_guarantee,
        "frequencies": row.frequencies,
        "reason": row.reason,
    }


def top_json(top: TopValues) -> list[Json]:
    """The shape of `top`: by decreasing frequency, then value."""
    return [{"value": scalar_json(value), "frequency": integer_json(frequency)} for value, frequency in top.values]


def histogram_json(bins: Sequence[Bin]) -> list[Json]:
    """The shape of `histogram`: by increasing minimum, which is inclusive; the maximum is exclusive."""
    return [
        {
            "minimum": scalar_json(part.minimum),
            "maximum": scalar_json(part.maximum),
            "frequency": integer_json(part.frequency),
        }
        for part in bins
    ]


def scalar_json(value: pa.Scalar | None) -> Any:
    """One value of a column as JSON; None for None and null."""
    if value is None or not value.is_valid:
        return None
    if isinstance(value, pa.ExtensionScalar):
        return str(value.as_py())
    if t.is_boolean(value.type):
        return value.as_py()
    if t.is_integer(value.type):
        return integer_json(value.as_py())
    if t.is_floating(value.type):
        return float_json(value.as_py())
    if t.is_decimal(value.type):
        return f"{value.as_py():f}"
    if t.is_temporal(value.type):
        return temporal_text(value.value, value.type)
    data = value.as_buffer().to_pybytes()
    if t.is_string(value.type) or t.is_large_string(value.type):
        # Parquet files may call bytes text that are none; they are shown, not refused.
        return data.decode("utf-8", "backslashreplace")
    return data.hex()


def integer_json(value: int | None) -> int | str | None:
    """An integer, as text beyond 2**53."""
    return value if value is None or abs(value) <= _EXACT else str(value)


def float_json(value: float | None) -> float | str | None:
    """A float, as text when it is not finite."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _sum_json(row: ColumnStatistics) -> int | float | str | None:
    if row.sum is None or row.type_class is None:
        return row.sum
    if row.type_class == "float64":
        return float_json(float(row.sum))
    return integer_json(int(row.sum)) if row.type_class in ("int64", "uint64") else row.sum
