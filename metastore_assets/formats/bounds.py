"""What table formats themselves know of a column in each fragment, with what each number is worth, as one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.formats.base import Snapshot
from metastore_assets.formats.values import Constant, is_nan
from metastore_assets.statistics.declaration import Guarantee

_UNKNOWN: tuple[None, Guarantee] = (None, "absent")


@dataclass(frozen=True)
class FragmentBounds:
    """Of one leaf column in one fragment: (value, what it is worth) each. The default says that nothing is known."""

    null_count: tuple[int | None, Guarantee] = _UNKNOWN
    minimum: tuple[Any, Guarantee] = _UNKNOWN
    """A Python value or Arrow scalar of the leaf's type. Never NaN."""
    maximum: tuple[Any, Guarantee] = _UNKNOWN


def column_path(schema: pa.Schema, column: str) -> tuple[pa.Field, ...]:
    """The fields from the top-level column down to the leaf of that dotted path. KeyError when there is none.

    Below a list the path goes on with `element`, below a map with `key` or `value`.
    """
    found = _descend(tuple(schema), column)
    if found is None or pa.types.is_nested(found[-1].type):
        raise KeyError(f"the table has no leaf column {column!r}")
    return found


def _descend(fields: Iterable[pa.Field], path: str) -> tuple[pa.Field, ...] | None:
    for field in fields:
        if field.name == path:
            return (field,)
        # A name may hold dots itself.
        if path.startswith(f"{field.name}."):
            rest = _descend(_children(field.type), path[len(field.name) + 1 :])
            if rest is not None:
                return (field, *rest)
    return None


def _children(type_: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(type_):
        return list(type_)
    if pa.types.is_map(type_):
        return [type_.key_field.with_name("key"), type_.item_field.with_name("value")]
    return [type_.value_field.with_name("element")] if pa.types.is_list(type_) else []


def constant_bounds(value: Constant, row_count: int | None) -> FragmentBounds:
    """Of a partition column, which is the same in all rows of a file; `row_count` are the live ones."""
    if not row_count:
        return FragmentBounds()
    if value.null_count:
        return FragmentBounds(null_count=(row_count, "exact"))
    told: tuple[Any, Guarantee] = _UNKNOWN if is_nan(value) else (value[0], "exact")
    return FragmentBounds((0, "exact"), told, told)


def bounds_table(snapshot: Snapshot, column: str, bounds: Iterable[FragmentBounds]) -> pa.Table:
    """One row per fragment of the snapshot: its id, then null count, minimum and maximum with their guarantees.

    The column `x_guarantee` says what `x` is worth: `exact`, `bound` or `absent` (then `x` is null).
    """
    type_ = column_path(snapshot.schema, column)[-1].type
    rows = list(bounds)
    columns: dict[str, pa.Array] = {"fragment_id": pa.array([fragment.id for fragment in snapshot.fragments])}
    for name, kind in (("null_count", pa.int64()), ("minimum", type_), ("maximum", type_)):
        pairs = [getattr(row, name) for row in rows]
        columns[name] = pa.array([value for value, _ in pairs], kind)
        columns[f"{name}_guarantee"] = pa.array([guarantee for _, guarantee in pairs], pa.string())
    return pa.table(columns)
