"""Null counts and bounds of a column in each fragment, as the metadata of a table format record them.

A fragment is a data file with the deletes that apply to it. Live rows are those that no delete removes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.formats.base import Snapshot
from metastore_assets.formats.values import Constant, is_nan
from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.values.columns import child_fields

_UNKNOWN: tuple[None, Guarantee] = (None, "absent")


@dataclass(frozen=True)
class FragmentBounds:
    """The null count, minimum and maximum of a leaf column in a fragment, each as (value, guarantee).

    The guarantee is `exact`, `bound` (only a limit of the true value), or `absent`: then the value is None. By default
    all are absent.
    """

    null_count: tuple[int | None, Guarantee] = _UNKNOWN
    minimum: tuple[Any, Guarantee] = _UNKNOWN
    """A Python value or an Arrow scalar of the leaf's type, never NaN."""
    maximum: tuple[Any, Guarantee] = _UNKNOWN


def column_path(schema: pa.Schema, column: str) -> tuple[pa.Field, ...]:
    """Return the fields on the path to a leaf column, from the top-level field down.

    Args:
        schema: the schema of the table.
        column: dotted path of the leaf, which is a column without children. Below a list the path continues with
            `element`, below a map with `key` or `value`.

    Raises:
        KeyError: the schema has no such leaf.
    """
    path = _descend(tuple(schema), column)
    if path is None or pa.types.is_nested(path[-1].type):
        raise KeyError(f"the table has no leaf column {column!r}")
    return path


def _descend(fields: Iterable[pa.Field], path: str) -> tuple[pa.Field, ...] | None:
    """Return the fields on a dotted path, starting with one of `fields`; None if there is no such path."""
    for field in fields:
        if field.name == path:
            return (field,)
        # A name may contain dots.
        if path.startswith(f"{field.name}."):
            lower_fields = _descend(child_fields(field.type), path[len(field.name) + 1 :])
            if lower_fields is not None:
                return (field, *lower_fields)
    return None


def constant_bounds(value: Constant, row_count: int | None) -> FragmentBounds:
    """Return the exact bounds of a column that has the same value in all rows of a file.

    If the value is null or NaN, the minimum and the maximum are absent.

    Args:
        value: the value of the column.
        row_count: the number of live rows; if it is None or 0, all bounds are absent.
    """
    if not row_count:
        return FragmentBounds()
    if value.null_count:
        return FragmentBounds(null_count=(row_count, "exact"))
    extreme: tuple[Any, Guarantee] = _UNKNOWN if is_nan(value) else (value[0], "exact")
    return FragmentBounds((0, "exact"), extreme, extreme)


def bounds_table(snapshot: Snapshot, column: str, bounds: Iterable[FragmentBounds]) -> pa.Table:
    """Return the bounds of a column as a table with one row per fragment of the snapshot, in its order.

    Args:
        snapshot: the snapshot.
        column: dotted path of a leaf column.
        bounds: the column's bounds in each fragment, in the order of the snapshot.

    Returns:
        The columns `fragment_id`, `null_count`, `minimum`, `maximum`, `null_count_guarantee`, `minimum_guarantee` and
            `maximum_guarantee`. A guarantee is `exact`, `bound` or `absent`. An absent value is null.

    Raises:
        KeyError: the snapshot has no such leaf column.
    """
    type_ = column_path(snapshot.schema, column)[-1].type
    rows = list(bounds)
    columns: dict[str, pa.Array] = {"fragment_id": pa.array([fragment.id for fragment in snapshot.fragments])}
    for name, kind in (("null_count", pa.int64()), ("minimum", type_), ("maximum", type_)):
        pairs = [getattr(row, name) for row in rows]
        columns[name] = pa.array([value for value, _ in pairs], kind)
        columns[f"{name}_guarantee"] = pa.array([guarantee for _, guarantee in pairs], pa.string())
    return pa.table(columns)
