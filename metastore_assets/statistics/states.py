"""The mergeable states of the columns of some rows, as an Arrow table: what merges read, and people do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.quantiles import Digest, decode_digest, encode_digest
from metastore_assets.statistics.tables import pack_columns, unpack_columns
from metastore_assets.values.types import class_named

STATE_COLUMNS = tuple(name for name, own in STATISTICS.items() if own.is_state)
"""What merging needs of the columns of `statistics`; the others follow from the states, or from the schema."""

UNION_COLUMNS = tuple(name for name in STATE_COLUMNS if STATISTICS[name].kind in ("value", "percentiles"))
"""Those of them that hold values of the typed union."""

SKETCH_COLUMNS: dict[str, pa.DataType] = {
    "moments": pa.binary(),
    "quantile_minimum": pa.float64(),
    "quantile_maximum": pa.float64(),
    "quantile_means": pa.list_(pa.float64()),
    "quantile_weights": pa.list_(pa.int64()),
    "distinct_sketch": pa.binary(),
    "histogram_exponent": pa.int32(),
    "histogram_first": pa.string(),
    "histogram_capacity": pa.int32(),
    "histogram_counts": pa.list_(pa.int64()),
    "user_states": pa.binary(),
}
"""The other columns of a table of states. `histogram_first` is text, because of decimals of 38 digits."""

Lists = tuple[npt.NDArray[np.int32], npt.NDArray[Any]]
"""Offsets, and the values of all lists."""


def build_states_table(
    rows: Sequence[ColumnStatistics], histograms: Sequence[Histogram | None], union: pa.StructType
) -> pa.Table:
    """One row per column: `STATE_COLUMNS` and `SKETCH_COLUMNS`. `union` has the classes of all values."""
    digests = [None if row.quantile_sketch is None else decode_digest(row.quantile_sketch) for row in rows]
    kept = pack_columns(rows, STATE_COLUMNS, union)
    columns = sketch_columns(
        [row.moments for row in rows],
        digests,
        [row.distinct_sketch for row in rows],
        list(histograms),
        [row.user_states for row in rows],
    )
    return pa.Table.from_arrays([*kept.columns, *columns], names=[*STATE_COLUMNS, *SKETCH_COLUMNS])


@lru_cache(maxsize=64)
def build_states_schema(union: pa.StructType) -> pa.Schema:
    """The columns of `build_states_table`."""
    return build_states_table([], [], union).schema


def sketch_columns(
    moments: Sequence[bytes | None],
    digests: Sequence[Digest | None],
    sketches: Sequence[bytes | None],
    histograms: Sequence[Histogram | None],
    user_states: Sequence[bytes | None],
) -> list[pa.Array]:
    """The arrays of the `SKETCH_COLUMNS`, in their order."""
    return [
        pa.array(moments, pa.binary()),
        pa.array([None if digest is None else digest.minimum for digest in digests], pa.float64()),
        pa.array([None if digest is None else digest.maximum for digest in digests], pa.float64()),
        _list_array([None if digest is None else digest.means for digest in digests], np.float64),
        _list_array([None if digest is None else digest.weights for digest in digests], np.int64),
        pa.array(sketches, pa.binary()),
        pa.array([None if own is None else own.exponent for own in histograms], pa.int32()),
        pa.array([None if own is None else str(own.first) for own in histograms], pa.string()),
        pa.array([None if own is None else own.capacity for own in histograms], pa.int32()),
        _list_array([None if own is None else own.counts for own in histograms], np.int64),
        pa.array(user_states, pa.binary()),
    ]


def read_state_rows(table: pa.Table, columns: Iterable[tuple[str, str]]) -> list[ColumnStatistics]:
    """Return the rows of a table of states. `columns` has the name and the type, as text, of each row.

    What follows from the states is None: see `merge.completed`.
    """
    table = table.combine_chunks()
    held = unpack_columns(table, STATE_COLUMNS)
    held["moments"] = table["moments"].to_pylist()
    held["distinct_sketch"] = table["distinct_sketch"].to_pylist()
    held["user_states"] = table["user_states"].to_pylist()
    held["quantile_sketch"] = [None if own is None else encode_digest(own) for own in decode_digests(table)]
    rows = zip(*held.values(), strict=True)
    return [
        ColumnStatistics(position=at, column=name, type=type_, **dict(zip(held, row, strict=True)))
        for at, (row, (name, type_)) in enumerate(zip(rows, columns, strict=True))
    ]


def decode_digests(table: pa.Table) -> list[Digest | None]:
    """The quantile sketches of a table of states without chunks, row by row."""
    offsets, means = split_lists(table["quantile_means"])
    _, weights = split_lists(table["quantile_weights"])
    bounds = zip(table["quantile_minimum"].to_pylist(), table["quantile_maximum"].to_pylist(), strict=True)
    return [
        None if least is None else Digest(least, greatest, means[start:stop], weights[start:stop])
        for (least, greatest), start, stop in zip(bounds, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]


def decode_histograms(table: pa.Table) -> list[Histogram | None]:
    """The histograms of a table of states without chunks, row by row."""
    offsets, counts = split_lists(table["histogram_counts"])
    named = ("type_class", "histogram_exponent", "histogram_first", "histogram_capacity")
    parts = zip(*(table[name].to_pylist() for name in named), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [
        None if exponent is None else Histogram(class_named(cls), exponent, int(first), counts[start:stop], capacity)
        for cls, exponent, first, capacity, start, stop in parts
    ]


def split_lists(column: pa.ChunkedArray | pa.Array) -> Lists:
    """Offsets and values of lists, from the first list on."""
    array = _one_chunk(column)
    offsets = array.offsets.to_numpy()
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets - start, array.values.slice(start, stop - start).to_numpy()


def combine_to_one_chunk(table: pa.Table) -> pa.Table:
    """The table with one chunk per column, also when it has no rows."""
    if table.num_rows:
        return table.combine_chunks()
    arrays = [_one_chunk(column) for column in table.columns]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _list_array(lists: Sequence[npt.NDArray[Any] | None], kind: type[np.generic]) -> pa.ListArray:
    lengths = [0 if own is None else len(own) for own in lists]
    held = [own for own in lists if own is not None]
    values = np.concatenate(held).astype(kind, copy=False) if held else np.zeros(0, kind)
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    missing = pa.array([own is None for own in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=missing)
