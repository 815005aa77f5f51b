"""Which columns of a profile are worth a place in a picture that has few."""

from collections.abc import Sequence

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.types import class_named

MOST_COLUMNS = 7
"""Columns in one picture: what fits on a screen."""


def interesting_columns(rows: Sequence[ColumnStatistics], most: int = MOST_COLUMNS) -> list[ColumnStatistics]:
    """At most `most` of the columns, in table order: those whose picture says something.

    A few values that repeat say most, then a distribution over a line; a constant and near-unique values say little,
    and are taken only where there is nothing better. Columns without a value are left out.
    """
    scores = {row.position: _score(row) for row in rows}
    ranked = sorted((row for row in rows if scores[row.position] > 0), key=lambda row: -scores[row.position])
    return sorted(ranked[:most], key=lambda row: row.position)


def is_ordinal(row: ColumnStatistics) -> bool:
    """Whether the column's values lie on a line, so that there can be a histogram."""
    return row.type_class is not None and class_named(row.type_class).is_ordinal


def _score(row: ColumnStatistics) -> float:
    if row.type_class is None or row.value_count == 0:
        return 0
    distinct = row.distinct_count if row.distinct_count is not None else row.value_count
    if distinct <= 1:
        return 0.5
    unique = distinct / row.value_count
    score = 1.0 + (1 - unique)
    if row.frequencies == "listed" and distinct <= 100:
        score += 2
    elif is_ordinal(row) and class_named(row.type_class).name not in ("int64", "uint64"):
        score += 1.5  # Dates, decimals and floats measure something; whole numbers are often keys.
    elif is_ordinal(row) or row.frequencies == "listed":
        score += 1 - unique
    return score + row.null_count / (row.null_count + row.value_count)
