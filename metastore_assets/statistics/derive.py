"""What follows from the list of a column's values: all of its statistics, by the same hands that profile the column."""

from __future__ import annotations

from metastore_assets.config import ResolvedPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import ColumnProfiler
from metastore_assets.statistics.current_schema import value_width
from metastore_assets.statistics.frequencies import Frequencies, count_nan
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import class_named, type_text


def profile_frequencies(
    leaf: LeafColumn, policy: ResolvedPolicy, type_class: str, null_count: int, frequencies: Frequencies
) -> tuple[ColumnStatistics, Histogram | None]:
    """Statistics, states included, and histogram of a column of that class, whose values are all in the list."""
    cls = class_named(type_class)
    values = sum(frequencies.counts.to_numpy().tolist())
    describer = ColumnProfiler(cls, policy, values - count_nan(frequencies))
    if len(frequencies):
        describer.add(frequencies)
    row = ColumnStatistics(
        position=0,
        column=leaf.path,
        field_id=leaf.field_id,
        type=type_text(leaf.type),
        type_class=type_class,
        value_count=values,
        null_count=null_count,
        frequencies="enumerated",
    )
    return describer.finish(row, value_width(leaf.type)), describer.histogram()
