"""Select the columns of a profile that are worth showing in a small picture."""

from collections.abc import Sequence

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.types import class_named

_MANY = 60
"""Number of distinct values above which a picture has too few bars for them."""
_STANDS_OUT = 20
"""A value stands out if at least one in so many rows has it."""


def interesting_columns(rows: Sequence[ColumnStatistics], most: int) -> list[ColumnStatistics]:
    """Return at most `most` columns, in table order, whose picture is informative.

    Half of them are distributions on an axis, half are columns with repeated values, as far as available. Constant and
    near-unique columns are used only to fill up. Columns without values are left out.
    """
    scores = {row.position: _score(row) for row in rows}
    ranked = sorted((row for row in rows if scores[row.position] > 0), key=lambda row: -scores[row.position])
    lines = [row for row in ranked if is_ordinal(row)]
    others = [row for row in ranked if not is_ordinal(row)]
    chosen = [*lines[: (most + 1) // 2], *others[: most // 2]]
    # Compare positions: rows hold Arrow scalars, which have no equality here.
    taken = {row.position for row in chosen}
    chosen += [row for row in ranked if row.position not in taken][: most - len(chosen)]
    return sorted(chosen, key=lambda row: row.position)


def is_ordinal(row: ColumnStatistics) -> bool:
    """Return whether the column's values lie on an axis, so that it can have a histogram."""
    return row.type_class is not None and class_named(row.type_class).is_ordinal


def is_continuous(row: ColumnStatistics, most_frequent: int) -> bool:
    """Return whether a column's percentiles say more than its most frequent values.

    That is so if its values lie on an axis, are many, and none of them stands out. `most_frequent` is the frequency of
    the most frequent value, 0 if unknown.
    """
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
        return 1 + nulls + repeated  # Integers are often keys; the more they repeat, the less interesting they are.
    # Dates, decimals and floats are measures; many values make them more interesting.
    return 2 + nulls + (1 if distinct > 20 else 0)
