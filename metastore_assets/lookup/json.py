"""The JSON documents that the command `metastore` prints.

The module `metastore_assets.values.json` describes how these documents represent values. A version has the statistics
of one snapshot of the table. Value counts are the distinct values of a column with their frequencies. The policy of a
column decides which of its statistics and values are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from metastore_assets.lookup.histograms import Bin
from metastore_assets.lookup.results import Count, Quantile, Spread, ValueFrequency
from metastore_assets.statistics.column import ColumnStatistics, column_to_json
from metastore_assets.store.version import Decision, Version
from metastore_assets.values.json import Json, float_json, integer_json, scalar_json

if TYPE_CHECKING:
    from metastore_assets.value_counts import Built

__all__ = [
    "Json",
    "column_to_json",
    "columns_json",
    "count_json",
    "float_json",
    "histogram_json",
    "integer_json",
    "quantiles_json",
    "scalar_json",
    "show_json",
    "top_json",
]


def show_json(
    version: Version,
    columns: Sequence[Json],
    *,
    current: bool,
    row_count: int | None = None,
    partition: str | None = None,
) -> Json:
    """Return the document that `metastore show` prints.

    Args:
        version: The version.
        columns: The documents of the columns to show: a result of `columns_json`.
        current: Whether the version describes the current snapshot of the table.
        row_count: The row count of the partition; None for the row count of the version.
        partition: The key of the partition that the columns describe; None for the table.
    """
    return {
        "table": version.table,
        "version": version.number,
        "snapshot": version.snapshot,
        "current": current,
        **({} if partition is None else {"partition": partition}),
        "row_count": integer_json(version.row_count if row_count is None else row_count),
        "columns": list(columns),
    }


def columns_json(
    version: Version,
    statistics: Sequence[ColumnStatistics],
    spreads: Mapping[str, Spread] | None = None,
    builds: Mapping[str, Built] | None = None,
) -> list[Json]:
    """Return a JSON document per column, for the document of `show`.

    Args:
        version: The version.
        statistics: The statistics of the columns, in the table or in a partition.
        spreads: Distinct counts and entropy, by column name; None for no columns. For a column that is missing here,
            the document has nulls.
        builds: How value counts were built, by column name; None for no columns. For a column that is missing here, the
            document has null.
    """
    return [
        {
            **column_to_json(row),
            **_spread_json((spreads or {}).get(row.column)),
            "decision": _decision_json(version.decisions.get(row.field_id)),
            "built": vars(builds[row.column]) if builds and row.column in builds else None,
        }
        for row in statistics
    ]


def _decision_json(decision: Decision | None) -> Json | None:
    """Return the decision about the value counts of a column as JSON, or None if there is no decision.

    With the policies `frequencies: auto` and `frequencies: repeated`, a refresh decides in which form a column's value
    counts are stored. The JSON has this form, the reason, and the version since which the decision holds.
    """
    if decision is None:
        return None
    return {"frequencies": decision.frequencies, "reason": decision.reason, "since": decision.since}


def _spread_json(spread: Spread | None) -> Json:
    return {
        "singleton_count": None if spread is None else integer_json(spread.singleton_count),
        "entropy": None if spread is None else float_json(spread.entropy),
    }


def count_json(count: Count) -> Json:
    """Return the document that `metastore count` prints."""
    return {
        "count": count.value,
        **({} if count.cost is None else vars(count.cost)),
        "version": count.as_of.version,
        "snapshot": count.as_of.snapshot,
    }


def top_json(top: Iterable[ValueFrequency]) -> list[Json]:
    """Return the document that `metastore top` prints, with one item per value in the given order."""
    return [{"value": scalar_json(value), "frequency": integer_json(frequency)} for value, frequency in top]


def quantiles_json(quantiles: Sequence[Quantile]) -> list[Json]:
    """Return the document that `metastore quantile` prints.

    It has one item per quantile, in the given order.
    """
    return [
        {"q": quantile.q, "value": scalar_json(quantile.value), "guarantee": quantile.guarantee}
        for quantile in quantiles
    ]


def histogram_json(bins: Sequence[Bin]) -> list[Json]:
    """Return the document that `metastore histogram` prints, with one item per bin in the given order."""
    return [
        {
            "minimum": scalar_json(bin_.minimum),
            "maximum": scalar_json(bin_.maximum),
            "frequency": integer_json(bin_.frequency),
        }
        for bin_ in bins
    ]
