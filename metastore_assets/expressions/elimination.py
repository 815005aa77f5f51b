"""Explanations of pruning: statistics that prove that no row of a set matches a predicate.

A set of rows is, for example, a fragment: a data file with its deletes. A predicate consists of *leaves*, which are
conditions on one column, joined by `and` and `or`. A value filter has short hashes of a column's values in one
fragment, to exclude fragments that lack a value. The value counts of a column are its distinct values with their
frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from metastore_assets.expressions.literals import literal_to_sql
from metastore_assets.expressions.predicates import Leaf, Predicate, StatisticNames
from metastore_assets.expressions.row_bounds import ColumnBounds, Mask, RowCounts, UpperLimits

_NO_FILTERS: Mapping[Leaf, Mask] = {}
_ROW_COUNT = "row_count"
_BY_PARTITION = "partition"
_BY_VALUE_FILTER = "value_filter"


def eliminating_statistics(
    predicate: Predicate,
    columns: Mapping[str, ColumnBounds],
    row_counts: RowCounts,
    limits: UpperLimits,
    filters: Mapping[Leaf, Mask] = _NO_FILTERS,
) -> StatisticNames:
    """Return for each set of rows the names of the statistics that prove that none of its rows matches.

    Args:
        predicate: The predicate.
        columns: Bounds of each referenced column, by its field id.
        row_counts: The number of rows of each set. Sets without rows are eliminated by `row_count`.
        limits: For some leaves, the greatest possible number of matching rows in each set, from value counts by
            partition.
        filters: For some leaves, a mask of the sets whose value filter may contain a matching value.

    Returns:
        One text per set, such as `minimum, null_count`, with a name for each leaf. If leaves are joined by `and`, some
        of these names may prove nothing. For the predicate `false`, the text is `constant`. For a set that may have
        matching rows, the text has no meaning.
    """
    names = [_leaf_statistics(leaf, columns[leaf.column.field_id], limits, filters) for leaf in predicate.leaves()]
    if not names:
        return np.where(row_counts == 0, _ROW_COUNT, "constant")
    joined_names = names[0]
    for leaf_names in names[1:]:
        joined_names = _without_repeats(
            np.where(joined_names == leaf_names, joined_names, np.char.add(np.char.add(joined_names, ", "), leaf_names))
        )
    return np.where(row_counts == 0, _ROW_COUNT, joined_names)


def _without_repeats(joined_names: StatisticNames) -> StatisticNames:
    """Remove repeated names from each text: `minimum, maximum, minimum` becomes `minimum, maximum`."""
    lists, indices = np.unique(joined_names, return_inverse=True)
    return np.array([", ".join(dict.fromkeys(names.split(", "))) for names in lists.tolist()], np.str_)[indices]


def eliminating_value(
    predicate: Predicate, columns: Mapping[str, ColumnBounds], statistic: str, position: int
) -> str | None:
    """Return a statistic's value in one set of rows as SQL text, such as a minimum that excludes a match.

    Args:
        predicate: The predicate that no row matches.
        columns: Bounds of each referenced column, by its field id.
        statistic: The name of the statistic that excludes all matches.
        position: The position of the set in the arrays of `columns`.

    Returns:
        The value as text. None for statistics other than `null_count`, `nan_count`, `minimum` and `maximum`, and for
        predicates with several conditions.
    """
    leaves = list(predicate.leaves())
    if len(leaves) != 1:
        return None
    column = columns[leaves[0].column.field_id]
    counts = {"null_count": column.nulls, "nan_count": column.nans}
    values = {"minimum": column.minimum, "maximum": column.maximum}
    if statistic in counts:
        return str(counts[statistic].least[position])
    return literal_to_sql(values[statistic][position]) if statistic in values else None


def _leaf_statistics(
    leaf: Leaf, column: ColumnBounds, limits: UpperLimits, filters: Mapping[Leaf, Mask]
) -> StatisticNames:
    """Return for each set of rows the statistic that proves that none of its rows matches a leaf.

    The result is the name of the statistic. The name has no meaning for a set that may have matching rows. If several
    statistics prove it, the first of these is named: a bound or a count of the column; value counts by partition; the
    value filter.
    """
    names = leaf.eliminating_statistic(column)
    if leaf not in limits and leaf not in filters:
        return names
    passes_bounds = leaf.bound_column_rows(column).most > 0
    if leaf in filters:
        names = np.where(passes_bounds & ~filters[leaf], _BY_VALUE_FILTER, names)
    return np.where(passes_bounds & (limits[leaf] == 0), _BY_PARTITION, names) if leaf in limits else names
