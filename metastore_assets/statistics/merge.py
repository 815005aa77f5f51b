"""Merging of the statistics of disjoint sets of rows, the parts, for all columns at once.

- Counts (except distinct counts), bounds, sums, means, deviations, lengths, distinct sketches and multiset hashes are
  exact.
- Skewness and kurtosis are exact up to rounding.
- Distinct counts and percentiles become estimates, unless other exact numbers determine them. For columns whose values
  are all stored with their counts, `finalize.apply_summary` replaces these estimates by exact numbers.
- An estimated distinct count lies between the largest count of a part and the sum of the counts of all parts.

The order of parts does not matter. The grouping of merges changes only rounding and estimates. Input and output are
tables of states: the mergeable form of statistics, with one row per column of the data table.
`finalize.finalize_statistics` computes the other statistics from states.

A *type class* is a group of column types, such as all signed integers. Containers, and types that are not profiled,
have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import FrequencyState, statistic_type
from metastore_assets.statistics.merge_rules import Flags, Integers, MergeParts, chain_column, integer_matrix, to_matrix
from metastore_assets.statistics.multiset_hash import sum_multiset_hashes
from metastore_assets.statistics.registry import BUILTIN_STATISTICS
from metastore_assets.statistics.states import SKETCH_COLUMNS, STATE_COLUMNS, UNION_COLUMNS
from metastore_assets.statistics.typed_union import cast_to_union, merge_unions
from metastore_assets.values.physical import combine_to_one_chunk
from metastore_assets.values.types import class_named

_FREQUENCY_STATES: tuple[FrequencyState, ...] = ("enumerated", "repeated", "estimated", "off", "absent")
"""The values of the field `frequencies`, from all values stored to none. If parts have different ones, the merged row
gets the one that is last in this order."""
_NO_CLASS = -1
"""The code of a missing type class in a matrix of type class codes."""


def merge_states(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """Merge tables of states.

    Row i of every table belongs to the same column.

    A part without values of a column contributes only its null count and its multiset hash. If only one part has values
    of a column, all other fields are copied from the row of that part.

    Args:
        parts: One table of states or more.
        columns: The path of each column, for messages.

    Returns:
        The table of states of all rows of the parts.

    Raises:
        CorruptionError: Parts have values of different type classes in one column.
        ValueError: There are no parts.
    """
    if not parts:
        raise ValueError("merge_states requires at least one table of states")
    if len(parts) == 1:
        return parts[0]
    tables = [combine_to_one_chunk(part) for part in parts]
    union = merge_unions([table.schema.field("minimum").type for table in tables])
    tables = [_with_union(table, union) for table in tables]
    codes, class_names = _class_codes(tables)
    value_counts, _ = integer_matrix(tables, "value_count")
    non_empty = value_counts > 0
    non_empty_count = non_empty.sum(axis=0)
    merged_codes = np.where(non_empty, codes, _NO_CLASS).max(axis=0)
    has_untyped_part: Flags = np.logical_or.reduce(non_empty & (codes == _NO_CLASS), axis=0)
    if (has_conflict := (non_empty & (codes != merged_codes) & ~has_untyped_part).any(axis=0)).any():
        at = int(has_conflict.argmax())
        names = sorted({class_names[code] for code in codes[non_empty[:, at], at]})
        raise CorruptionError(
            f"column {columns[at]!r}: profiles of the type classes {', '.join(names)} cannot be merged; "
            "`metastore refresh NAME --full` rebuilds"
        )
    representative = _choose_representatives(tables, non_empty, codes, class_names)
    to_merge = np.flatnonzero(non_empty_count > 1)
    column_count = len(representative)
    rows = representative * column_count + np.arange(column_count)
    candidates = tables
    if len(to_merge):
        subset = tables
        if len(to_merge) < column_count:
            subset = [combine_to_one_chunk(table.take(pa.array(to_merge))) for table in tables]
        classes = [
            None if is_untyped else class_names[code]
            for is_untyped, code in zip(has_untyped_part[to_merge], merged_codes[to_merge], strict=True)
        ]
        candidates = [
            *tables,
            _merge_columns(subset, non_empty[:, to_merge], has_untyped_part[to_merge], classes, union),
        ]
        rows[to_merge] = len(tables) * column_count + np.arange(len(to_merge))
    if len(to_merge) == column_count > 0:
        table = candidates[-1]
    else:
        table = combine_to_one_chunk(pa.concat_tables(candidates))
        if table.num_rows != column_count:
            table = combine_to_one_chunk(table.take(pa.array(rows)))
    null_counts, _ = integer_matrix(tables, "null_count")
    table = _replace_column(table, "null_count", pa.array(null_counts.sum(axis=0)))
    # Hashes of hidden values, which have no type class, and hashes of other values do not add up.
    hashes = sum_multiset_hashes(tables, has_untyped_part & (merged_codes != _NO_CLASS))
    return _replace_column(table, "multiset_hash", hashes)


def _merge_columns(
    tables: Sequence[pa.Table],
    non_empty: Flags,
    has_untyped_part: Flags,
    class_names: Sequence[str | None],
    union: pa.StructType,
) -> pa.Table:
    """Return the merged rows of columns that have values in several tables.

    A merged column without a type class has at most counts, lengths (of lists, maps, and hidden strings or bytes), the
    distinct sketch of hidden values, and the reason why all other statistics are missing.

    Args:
        tables: Tables of states that have rows only for these columns.
        non_empty: Matrix of tables by columns: whether the table has values of the column.
        has_untyped_part: For each column, whether a table that has values of the column has no type class for it.
        class_names: The name of the type class of each merged column; None for a column with `has_untyped_part`.
        union: The typed union of all tables.
    """
    has_class = np.array([table["type_class"].is_valid().to_numpy() for table in tables]) & non_empty
    parts = MergeParts(
        tables=tables,
        non_empty=non_empty,
        untyped=has_untyped_part,
        has_lengths=~has_untyped_part | ~has_class.any(axis=0),
        classes=[None if name is None else class_named(name) for name in class_names],
        union=union,
    )
    merged_columns: dict[str, Any] = {
        name: pa.nulls(len(parts), _column_type(name, union)) for name in (*STATE_COLUMNS, *SKETCH_COLUMNS)
    }
    frequencies = np.where(parts.typed, _to_codes(tables, "frequencies", _FREQUENCY_STATES), -1).max(axis=0)
    merged_columns |= {
        "field_id": tables[0]["field_id"],
        "value_count": pa.array(integer_matrix(tables, "value_count")[0].sum(axis=0)),
        "type_class": pa.array(class_names, pa.string()),
        "reason": _merge_reasons(parts, non_empty & ~has_class),
        "frequencies": pa.array([_FREQUENCY_STATES[code] for code in frequencies], pa.string()),
    }
    for statistic in BUILTIN_STATISTICS:
        merged_columns |= statistic.merge(parts, merged_columns)
    return combine_to_one_chunk(pa.table(merged_columns))


def _class_codes(tables: Sequence[pa.Table]) -> tuple[Integers, list[str]]:
    """Return (codes, names).

    `names` are the names of all type classes that occur. `codes[part, column]` is the index in `names` of the column's
    type class in the part, or `_NO_CLASS` if it has none there.
    """
    names = sorted({name for table in tables for name in table["type_class"].unique().to_pylist() if name is not None})
    return _to_codes(tables, "type_class", names), names


def _choose_representatives(
    tables: Sequence[pa.Table], non_empty: Flags, codes: Integers, class_names: Sequence[str]
) -> npt.NDArray[np.intp]:
    """Return for each column the index of the table from which its merged row is taken.

    Only the null count and the multiset hash of the row are then replaced.

    - If exactly one table has values of the column, the index is that of this table.
    - If no table has values, it is that of the table with the most specific row. A row with a type class other than
      `null` is most specific, then one with `null`, then one without a type class. So the order of tables does not
      matter.
    - If several tables have values, their rows must be merged, and the caller ignores the index.
    """
    # The most specific row is the first by type class (`null` and none are last), then by `frequencies`.
    rank = {name: at for at, name in enumerate(class_names)} | {"null": len(class_names)}
    ranks = np.array([*(rank[name] for name in class_names), len(class_names) + 1])  # the last is that of _NO_CLASS
    states = _to_codes(tables, "frequencies", sorted(_FREQUENCY_STATES))
    most_specific = (ranks[codes] * (len(_FREQUENCY_STATES) + 1) + states).argmin(axis=0)
    return np.where(non_empty.sum(axis=0) == 1, non_empty.argmax(axis=0), most_specific)


def _to_codes(tables: Sequence[pa.Table], name: str, values: Sequence[str]) -> Integers:
    """Return a text column of all tables as a matrix of indices into `values`, with a row per table.

    The index is -1 for null, and for a text that is not in `values`.
    """
    indices = pc.index_in(chain_column(tables, name), pa.array(values, pa.string())).fill_null(-1)
    return to_matrix(tables, indices).astype(np.int64, copy=False)


def _merge_reasons(parts: MergeParts, has_reason: Flags) -> pa.Array:
    """Return why each merged column has no type class; null for columns with a type class.

    The reasons come from the field `reason` of the parts. If these differ, the alphabetically first is returned.
    """
    if not parts.untyped.any():
        return pa.nulls(len(parts), pa.string())
    reasons = parts.states_by_column("reason", has_reason)
    return pa.array(
        [
            min(filter(None, column_reasons), default=None) if is_untyped else None
            for column_reasons, is_untyped in zip(reasons, parts.untyped.tolist(), strict=True)
        ],
        pa.string(),
    )


def _with_union(table: pa.Table, union: pa.StructType) -> pa.Table:
    """Return a table of states whose minima, maxima and percentiles are cast to a typed union.

    Raises ValueError if the union lacks the type class of one of these values.
    """
    for name in UNION_COLUMNS:
        type_ = statistic_type(name, union)
        if table.schema.field(name).type != type_:
            values = cast_to_union(table[name].chunk(0), union) if table.num_rows else pa.nulls(0, type_)
            table = _replace_column(table, name, values)
    return table


def _column_type(name: str, union: pa.StructType) -> pa.DataType:
    return SKETCH_COLUMNS[name] if name in SKETCH_COLUMNS else statistic_type(name, union)


def _replace_column(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, array)
