"""The Arrow tables of the files `statistics`, `frequencies` and `histograms`, which people read, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.startup import pc
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics, statistic_type
from metastore_assets.statistics.declaration import ARROW_TYPES
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, Percentiles, run_to_frequencies
from metastore_assets.statistics.histogram import Histogram, bin_numbers
from metastore_assets.statistics.runs import sum_counts
from metastore_assets.statistics.union import (
    cast_to_union,
    pack_scalars,
    pack_values,
    union_type,
    unpack_scalars,
    unpack_values,
)
from metastore_assets.statistics.user_defined.results import build_result_columns, normalize_results, read_results
from metastore_assets.values.physical import numbers, one_chunk, physical_series
from metastore_assets.values.types import class_named, type_class

ValueCountRows = tuple[pa.Array, pa.Int64Array]
"""Values of one column, in any order, and how often each occurs."""

_REPEATS = 1 << 20
"""Repetitions of a path in one chunk: strings with 32-bit offsets end at 2 GB."""

HISTOGRAMS = "metastore.histograms"
"""Metadata key of `histograms`: by path of the column its lattice, as JSON."""


def build_statistics_table(rows: Sequence[ColumnStatistics]) -> pa.Table:
    """One row per column, in the order given, without mergeable states. `minimum`, `maximum` and the values of
    `percentiles` are of the typed union of the classes that occur in these rows. The last columns are the user-defined
    statistics, by name: struct(value, guarantee, reason)."""
    names = {row.type_class for row in rows if row.type_class is not None}
    table = pack_columns(rows, list(STATISTICS), union_type(class_named(name) for name in names))
    for name, array in build_result_columns([row.user_defined for row in rows]).items():
        table = table.append_column(name, array)
    return table


def parse_statistics_rows(table: pa.Table) -> list[ColumnStatistics]:
    """Return the rows of a table of statistics. Unknown columns are ignored."""
    columns: dict[str, Iterable[Any]] = {name: repeat(value) for name, value in _STATES.items()}
    columns |= unpack_columns(table, list(STATISTICS))
    columns["user_defined"] = read_results(table, list(STATISTICS))
    names = list(columns)
    return [_made(dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=False)]


def normalize_statistics_table(table: pa.Table) -> pa.Table:
    """Return the table that `build_statistics_table` would build from the same rows.

    The typed union has the classes that occur in these rows; user-defined statistics that no row has are left out."""
    names = pc.unique(table["type_class"]).drop_null().to_pylist()
    union = union_type(class_named(name) for name in names)
    columns: dict[str, pa.Array] = {}
    for name, statistic in STATISTICS.items():
        own, type_ = one_chunk(table[name]), statistic_type(name, union)
        if statistic.kind in ("value", "percentiles"):
            own = cast_to_union(own, union)
        columns[name] = own if own.type == type_ else own.cast(type_)
    return pa.table(columns | normalize_results(table, list(STATISTICS)))


def _made(told: dict[str, Any]) -> ColumnStatistics:
    """A row. Of thousands, to set forty fields of a frozen object one by one is most of the work."""
    row = object.__new__(ColumnStatistics)
    object.__setattr__(row, "__dict__", told)
    return row


_STATES = {own.name: own.default for own in fields(ColumnStatistics) if own.name not in STATISTICS}
"""What a row has that a table does not tell."""


def pack_columns(rows: Sequence[ColumnStatistics], names: Sequence[str], union: pa.StructType) -> pa.Table:
    """Some of the `STATISTICS` of rows, as a table. `union` has the classes of all values."""
    arrays = []
    for name in names:
        held, kind = [getattr(row, name) for row in rows], STATISTICS[name].kind
        if kind == "value":
            arrays.append(pack_scalars(held, union))
        elif kind == "percentiles":
            arrays.append(_pack_percentiles(held, union))
        else:
            arrays.append(pa.array(held, ARROW_TYPES[kind]))
    return pa.Table.from_arrays(arrays, names=list(names))


def unpack_columns(table: pa.Table, names: Sequence[str]) -> dict[str, list[Any]]:
    """The values of some of the `STATISTICS` of a table, by name."""
    columns: dict[str, list[Any]] = {}
    for name in names:
        column, kind = one_chunk(table.column(name)), STATISTICS[name].kind
        if kind == "value":
            columns[name] = unpack_scalars(column)
        elif kind == "percentiles":
            columns[name] = _unpack_percentiles(column)
        else:
            columns[name] = column.to_pylist()
    return columns


def build_frequencies_table(path: str, frequencies: Frequencies, union: pa.StructType) -> pa.Table:
    """`column` (path, on every row), `value` (typed union), `frequency`: by decreasing frequency, then value."""
    order = np.argsort(-frequencies.counts.to_numpy(), kind="stable")
    values, counts = frequencies.values.take(pa.array(order)), frequencies.counts.take(pa.array(order))
    return build_value_counts_table(path, values, counts, union)


def build_value_counts_table(path: str, values: pa.Array, counts: pa.Array, union: pa.StructType) -> pa.Table:
    """The same of values of one class, in the order that they have."""
    paths = [pa.repeat(pa.scalar(path), min(_REPEATS, len(values) - at)) for at in range(0, len(values), _REPEATS)]
    value = pack_values(values, type_class(values.type), union)
    return pa.table({"column": pa.chunked_array(paths, pa.string()), "value": value, "frequency": counts})


def parse_frequencies(table: pa.Table) -> Frequencies:
    """The frequencies of one column from its rows in frequencies.parquet, in any order."""
    return sum_value_counts([parse_value_counts(table)])


def parse_value_counts(table: pa.Table) -> ValueCountRows:
    """Values and frequencies from rows of one column in frequencies.parquet."""
    return unpack_values(one_chunk(table.column("value"))), one_chunk(table.column("frequency")).cast(pa.int64())


def sum_value_counts(lists: Sequence[ValueCountRows]) -> Frequencies:
    """The frequencies of one column from lists of its values, in any order, of one class."""
    held = [own for own in lists if len(own[0])]
    if not held:
        return EMPTY
    values, counts = (pa.concat_arrays([own[at] for own in held]) if len(held) > 1 else held[0][at] for at in (0, 1))
    cls = type_class(values.type)
    run = sum_counts(physical_series(values, cls), counts.to_numpy())
    return run_to_frequencies(run, cls)


def build_histograms_table(histograms: Mapping[str, Histogram]) -> pa.Table:
    """One column per histogram, named by its path: struct(minimum, frequency), a row per bin that is not empty, padded
    with nulls.

    The table's metadata holds by path: class, exponent, index of the first bin, number of bins, and capacity.
    """
    filled = {path: np.flatnonzero(histogram.counts) for path, histogram in histograms.items()}
    longest = max(map(len, filled.values()), default=0)
    arrays, lattices = [], {}
    for path, histogram in histograms.items():
        own = filled[path]
        bins = pa.StructArray.from_arrays(
            [histogram.minima(own), pa.array(histogram.counts[own])], names=["minimum", "frequency"]
        )
        arrays.append(pa.concat_arrays([bins, pa.nulls(longest - len(own), bins.type)]))
        lattices[path] = [
            histogram.type_class.name,
            histogram.exponent,
            histogram.first,
            len(histogram),
            histogram.capacity,
        ]
    schema = pa.schema([pa.field(path, array.type) for path, array in zip(histograms, arrays, strict=True)])
    text = json.dumps(lattices, separators=(",", ":"))
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata({HISTOGRAMS: text}))


@lru_cache(maxsize=4)
def _lattices(text: bytes) -> Mapping[str, tuple[Any, ...]]:
    """The lattice of every column of a file; parsed once, where a wide file is read column by column."""
    lattices: dict[str, tuple[Any, ...]] = json.loads(text)
    return lattices


def parse_histograms(table: pa.Table) -> dict[str, Histogram]:
    """The histograms by path, of all columns that `table` holds."""
    lattices = _lattices((table.schema.metadata or {}).get(HISTOGRAMS.encode(), b"{}"))
    found = {}
    for path, column in zip(table.column_names, table.columns, strict=True):
        if path not in lattices:
            raise CorruptionError(f"histogram column {path!r} has no metadata of its lattice")
        name, exponent, first, bins, capacity = lattices[path]
        cls, held = class_named(name), one_chunk(column)
        parts = {field.name: _without_nulls(part) for field, part in zip(held.type, held.flatten(), strict=True)}
        frequencies, minima = parts["frequency"], parts["minimum"]
        minima = minima if minima.type == cls.arrow else minima.cast(cls.arrow)
        counts = np.zeros(bins, np.int64)
        counts[bin_numbers(numbers(minima, cls), exponent, first)] = frequencies.to_numpy()
        found[path] = Histogram(cls, exponent, first, counts, capacity)
    return found


def _pack_percentiles(held: Sequence[Percentiles | None], union: pa.StructType) -> pa.ListArray:
    flat = [pair for percentiles in held for pair in percentiles or ()]
    entries = pa.StructArray.from_arrays(
        [pa.array([fraction for fraction, _ in flat], pa.float64()), pack_scalars([v for _, v in flat], union)],
        names=["fraction", "value"],
    )
    offsets = np.cumsum([0, *(len(percentiles or ()) for percentiles in held)], dtype=np.int32)
    missing = pa.array([percentiles is None for percentiles in held], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), entries, mask=missing)


def _unpack_percentiles(column: pa.ListArray) -> list[Percentiles | None]:
    # Not flattened: Arrow has no kernel for that where a list is null and there are UUIDs in the values.
    first, last = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    entries = column.values.slice(first, last - first)
    parts = {field.name: part for field, part in zip(entries.type, entries.flatten(), strict=True)}
    pairs = list(zip(parts["fraction"].to_pylist(), unpack_scalars(parts["value"]), strict=True))
    starts = (column.offsets.to_numpy() - first).tolist()
    valid = [own.is_valid for own in column] if column.null_count else [True] * len(column)
    return [
        tuple(pairs[start:end]) if there else None
        for start, end, there in zip(starts[:-1], starts[1:], valid, strict=True)
    ]


def _without_nulls(array: pa.Array) -> pa.Array:
    """What is there. Where columns of more rows are beside, nulls follow: no kernel is needed then, nor imported."""
    head = array.slice(0, len(array) - array.null_count)
    return array.drop_null() if head.null_count else head
