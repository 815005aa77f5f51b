"""Which columns of a profile are worth a place in a picture that has few."""

from collections.abc import Sequence

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.types import class_named

_MANY = 60
"""Distinct values, above which there are more than bars in a picture."""
_STANDS_OUT = 20
"""One in so many is a value that stands out."""


def interesting_columns(rows: Sequence[ColumnStatistics], most: int) -> list[ColumnStatistics]:
    """At most `most` of the columns, in table order: those whose picture says something.

    Half are distributions over a line, half are values that repeat, each as far as there are enough. A constant and
    near-unique values say little, and are taken only where there is nothing better. Columns without a value are left
    out.
    """
    scores = {row.position: _score(row) for row in rows}
    ranked = sorted((row for row in rows if scores[row.position] > 0), key=lambda row: -scores[row.position])
    lines = [row for row in ranked if is_ordinal(row)]
    others = [row for row in ranked if not is_ordinal(row)]
    chosen = [*lines[: (most + 1) // 2], *others[: most // 2]]
    # By position: rows hold Arrow scalars, which are not compared for equality here.
    taken = {row.position for row in chosen}
    chosen += [row for row in ranked if row.position not in taken][: most - len(chosen)]
    return sorted(chosen, key=lambda row: row.position)


def is_ordinal(row: ColumnStatistics) -> bool:
    """Whether the column's values lie on a line, so that there can be a histogram."""
    return row.type_class is not None and class_named(row.type_class).is_ordinal


def is_continuous(row: ColumnStatistics, most_frequent: int) -> bool:
    """Whether a column's percentiles say more than its most frequent values: it lies on a line, has many values, and
    none of them stands out. `most_frequent`: how often the most frequent one occurs, 0 where that is not known."""
    is_many = row.distinct_count is None or row.distinct_count > _MANY
    return is_ordinal(row) and bool(row.percentiles) and is_many and most_frequent * _STANDS_OUT <= row.value_count


def _score(row: ColumnStatistics) -> float:
    if row.type_class is None or row.value_count == 0:
        return 0
    distinct = row.distinct_count if row.distinct_count is not None else row.value_count
    if distinct <= 1:
        return 0.5
    nulls = row.null_count / (row.null_count + row.value_count)
    repeated = 1 - distinct / row.value_count
    if not is_ordinal(row):
        return 1 + nulls + repeated + (2 if row.frequencies == "enumerated" and distinct <= 100 else 0)
    if row.type_class in ("int64", "uint64"):
        return 1 + nulls + repeated  # Whole numbers are often keys; the more they repeat, the less.
    # Dates, decimals and floats measure something, all the more when they take many values.
    return 2 + nulls + (1 if distinct > 20 else 0)
