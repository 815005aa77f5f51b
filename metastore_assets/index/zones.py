"""Zones: runs of up to 1,024 fragments in the order of their keys, with bounds that cover them.

A fragment is a data file with its deletes. A zone has the columns of a fragment: a row count, and flat columns, which
have bounds and counts of the table's columns (see `index.flat_columns`). So a predicate is evaluated on zones as on
fragments. If no row of a zone may match, no row of its fragments may.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.index.flat_columns import class_of_bound, count_column, is_bound
from metastore_assets.index.row_ranges import Mask, Numbers
from metastore_assets.values.physical import one_chunk

ZONE_COLUMNS = ("fragments", "row_count", "bytes")
"""The columns of a zone besides flat columns: its number of fragments, and the sums of their rows and bytes."""
_MIN_ROWS, _MAX_ROWS = 64, 1024
"""Minimum and maximum number of fragments in a zone. Only the first and the last zone of a file may have fewer."""


def run_lengths(partition_keys: pa.Array) -> Numbers:
    """Return how often each key occurs in a sorted column of partition keys: [2, 1] for [a, a, b]."""
    if not len(partition_keys):
        return np.zeros(0, np.int64)
    differs = pc.not_equal(partition_keys.slice(1), partition_keys.slice(0, len(partition_keys) - 1))
    starts = np.flatnonzero(np.concatenate([[True], differs.to_numpy(zero_copy_only=False)]))
    lengths: Numbers = np.diff(starts, append=len(partition_keys))
    return lengths


def zone_sizes(runs: Numbers) -> Numbers:
    """Return the number of fragments in each zone of a file.

    Consecutive partitions are joined until they have at least 64 fragments, which become one zone. More than 1,024
    fragments are divided into zones of about equal size. The first partition is not joined with the next ones, because
    the previous file may have other fragments of this partition. So the first zone and the last one may have fewer than
    64 fragments. If each partition has at least 64 fragments, no zone has two partitions. A condition on partitions
    then matches each zone completely or not at all.

    Args:
        runs: The number of fragments in each partition of a file.
    """
    sizes: list[int] = []
    size = 0
    for run in runs.tolist():
        size += run
        if size >= _MIN_ROWS or not sizes:
            count = -(-size // _MAX_ROWS)
            sizes += [size // count + (number < size % count) for number in range(count)]
            size = 0
    return np.array([*sizes, size] if size else sizes, np.int64)


def group_sizes(sizes: Iterable[int], most: int) -> list[int]:
    """Group consecutive items up to a total size, and return the number of items of each group.

    Args:
        sizes: The size of each item.
        most: Maximum total size of a group. A larger item is alone in its group.
    """
    groups: list[int] = []
    count = total = 0
    for size in sizes:
        if count and total + size > most:
            groups.append(count)
            count = total = 0
        count += 1
        total += size
    return [*groups, count] if count else groups


def summarize_zones(table: pa.Table, sizes: Numbers) -> pa.Table:
    """Return one row per zone, with bounds and counts that cover all of its fragments.

    The result has ZONE_COLUMNS and the flat columns of `table`. Zones can be summarized again, into groups of zones.
    The column `fragments` of a group is its number of zones.

    Args:
        table: The fragments, with flat columns. `bytes` may be missing.
        sizes: The number of fragments of each zone. They add up to the length of `table`.
    """
    firsts = np.cumsum(sizes) - sizes
    row_counts = table["row_count"].to_numpy()
    columns: dict[str, pa.Array | Numbers] = {"fragments": sizes}
    sums = [name for name in ("row_count", "bytes") if name in table.column_names]
    columns |= {name: np.add.reduceat(table[name].to_numpy(), firsts) for name in sums}
    for name in table.column_names:
        if is_bound(name):
            columns[name] = _bounds(table, name, row_counts, sizes)
        elif name.endswith(("null_count", "nan_count")):
            # The count of a zone is unknown if that of one of its fragments is.
            valid = one_chunk(table[name]).is_valid().to_numpy(zero_copy_only=False)
            counts = np.add.reduceat(table[name].fill_null(0).to_numpy(), firsts)
            columns[name] = pa.array(counts, mask=~np.logical_and.reduceat(valid, firsts))
    return pa.table(columns)


def _bounds(table: pa.Table, name: str, row_counts: Numbers, sizes: Numbers) -> pa.Array:
    """Return the minimum or maximum of each zone; null if it is unknown.

    It is unknown if none of the zone's fragments has a bound, or if a fragment without a bound may have values.

    Args:
        table: The fragments, with flat columns.
        name: Name of the flat column with the bounds of the fragments.
        row_counts: The row count of each fragment.
        sizes: The number of fragments of each zone.
    """
    firsts = np.cumsum(sizes) - sizes
    field_id, side, _ = name.removeprefix("column ").rsplit(".", 2)
    values = one_chunk(table[name])
    if values.null_count == len(values):
        return pa.nulls(len(sizes), values.type)
    numbers = row_counts - _least(table, count_column(field_id, "null_count"))
    if class_of_bound(name).kind == "float":
        numbers = numbers - _least(table, count_column(field_id, "nan_count"))
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    # A fragment that may have values and has no bound may have any value, and so may its zone.
    is_unknown = np.logical_or.reduceat(~valid & (numbers > 0), firsts) | ~np.logical_or.reduceat(valid, firsts)
    extreme = _extremes(values, valid, sizes, is_least=side == "minimum")
    return extreme.take(pa.array(np.arange(len(sizes)), mask=is_unknown)) if is_unknown.any() else extreme


def _least(table: pa.Table, name: str) -> Numbers:
    """Return the smallest possible value of each count: the count itself, or 0 if the count is unknown."""
    if name not in table.column_names:
        return np.zeros(len(table), np.int64)
    least: Numbers = table[name].fill_null(0).to_numpy()
    return least


def _extremes(values: pa.Array, valid: Mask, sizes: Numbers, *, is_least: bool) -> pa.Array:
    """Return the minimum or maximum of the bounds in each zone.

    For a zone without bounds, the result is arbitrary.

    Args:
        values: The bounds of fragments.
        valid: Mask of the bounds that are not null.
        sizes: Number of fragments of each zone.
        is_least: Whether to return minima.
    """
    firsts = np.cumsum(sizes) - sizes
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_temporal(type_):
        # Decoded nulls are arbitrary numbers of the buffer; replace them by the neutral element.
        if pa.types.is_temporal(type_):
            values = values.view(pa.int32() if type_.bit_width == 32 else pa.int64())
        numbers = values.fill_null(0).to_numpy()
        is_float = numbers.dtype.kind == "f"
        limits = np.finfo(numbers.dtype) if is_float else np.iinfo(numbers.dtype)
        neutral = limits.max if is_least else limits.min
        if is_float:
            neutral = np.inf if is_least else -np.inf
        reduce = np.minimum if is_least else np.maximum
        result = pa.array(reduce.reduceat(np.where(valid, numbers, neutral), firsts))
        return result if result.type == type_ else result.view(type_)
    plain = values.storage if isinstance(values, pa.ExtensionArray) else values
    if pa.types.is_boolean(plain.type):
        plain = plain.cast(pa.int8())
    zone = pa.array(np.repeat(np.arange(len(sizes)), sizes))
    # Nulls are the last values of a zone, which is the default.
    keys = [("zone", "ascending"), ("value", "ascending" if is_least else "descending")]
    indices = pc.sort_indices(pa.table({"zone": zone, "value": plain}), sort_keys=keys)
    return values.take(indices.take(pa.array(firsts)))
