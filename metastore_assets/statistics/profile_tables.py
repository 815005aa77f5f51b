"""The Arrow tables of the files `statistics`, `frequencies` and `histograms`: building and parsing.

One Arrow column holds the values of columns of different types. Its type is the *typed union*: a struct with one field
per type class. A *type class* is a group of column types, such as all signed integers, whose values are converted to
one Arrow type, the *canonical type*.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.startup import pc
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics, format_sum, parse_sum, statistic_type
from metastore_assets.statistics.declaration import ARROW_TYPES
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, Percentiles, run_to_frequencies
from metastore_assets.statistics.histogram import Histogram, bin_numbers
from metastore_assets.statistics.typed_union import (
    cast_to_union,
    pack_scalars,
    pack_values,
    union_type,
    unpack_scalars,
    unpack_values,
)
from metastore_assets.statistics.user_defined.results import build_result_columns, normalize_results, read_results
from metastore_assets.statistics.value_runs import sum_counts
from metastore_assets.values.physical import numbers, one_chunk, physical_series
from metastore_assets.values.types import DECIMAL_DIGITS, TypeClass, class_named, type_class

ValueCountRows = tuple[pa.Array, pa.Int64Array]
"""(values of one column, how often each occurs), in any order. Values may repeat."""

_REPEATS = 1 << 20
"""Maximum number of repetitions of a path in one chunk, because strings with 32-bit offsets are limited to 2 GB."""

COLUMNS = "metastore.columns"
"""Metadata key of the file `statistics`. The value has path and field id of each row: see `encode_columns`."""
HISTOGRAMS = "metastore.histograms"
"""Metadata key of the file `histograms`. The value is JSON: the bins of each column, by its path."""


def encode_columns(columns: Sequence[tuple[str, str]]) -> str:
    """Encode (path, field id) pairs as text: zlib-compressed JSON in base 64."""
    return base64.b64encode(zlib.compress(json.dumps(columns).encode())).decode()


def decode_columns(encoded_columns: bytes) -> list[tuple[str, str]]:
    """Return the (path, field id) pairs that `encode_columns` has encoded.

    Raises ValueError for corrupt bytes.
    """
    try:
        return [(path, field_id) for path, field_id in json.loads(zlib.decompress(base64.b64decode(encoded_columns)))]
    except zlib.error as error:
        raise ValueError(f"its list of columns: {error}") from error


def build_statistics_table(rows: Sequence[ColumnStatistics]) -> pa.Table:
    """Return rows as the table `statistics`, without mergeable states.

    `minimum`, `maximum` and `percentiles` have a typed union of the type classes in these rows. The last columns are
    the user-defined statistics, each as struct(value, guarantee, reason).
    """
    names = {row.type_class for row in rows if row.type_class is not None}
    table = pack_columns(rows, list(STATISTICS), union_type(class_named(name) for name in names))
    for name, array in build_result_columns([row.user_defined for row in rows]).items():
        table = table.append_column(name, array)
    return table


def parse_statistics_rows(table: pa.Table) -> list[ColumnStatistics]:
    """Return the rows of a table `statistics`.

    Their mergeable states are None.

    Columns that are neither built-in nor user-defined statistics are ignored.
    """
    columns: dict[str, Iterable[Any]] = {name: repeat(value) for name, value in _STATES.items()}
    columns |= unpack_columns(table, list(STATISTICS))
    columns["user_defined"] = read_results(table, list(STATISTICS))
    names = list(columns)
    return [_build_row(dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=False)]


def with_partition(row: ColumnStatistics, partition: str) -> ColumnStatistics:
    """Return a copy of a row, with its field `partition` set to the given partition key."""
    return _build_row({**vars(row), "partition": partition})


def normalize_statistics_table(table: pa.Table) -> pa.Table:
    """Return a table `statistics` in the schema that `build_statistics_table` would give to its rows.

    Its typed unions get exactly the type classes of its rows. Columns of user-defined statistics that have only nulls
    are removed.
    """
    names = pc.unique(table["type_class"]).drop_null().to_pylist()
    union = union_type(class_named(name) for name in names)
    columns: dict[str, pa.Array] = {}
    for name, statistic in STATISTICS.items():
        column, type_ = one_chunk(table[name]), statistic_type(name, union)
        if statistic.kind in ("value", "percentiles"):
            column = cast_to_union(column, union)
        columns[name] = column if column.type == type_ else column.cast(type_)
    return pa.table(columns | normalize_results(table, list(STATISTICS)))


def build_typed_table(table: pa.Table) -> pa.Table:
    """Return a table `statistics` for users: without columns of bytes, and if possible without unions.

    If all columns have one type class, `minimum`, `maximum` and the values of `percentiles` have its canonical type,
    and `sum` is a double, a decimal or null. Otherwise, `sum` remains text, and the others remain unions.

    Args:
        table: A result of `build_statistics_table`.
    """
    table = table.drop_columns([name for name, statistic in STATISTICS.items() if statistic.kind == "bytes"])
    names = [name for name in pc.unique(table["type_class"]).drop_null().to_pylist() if name != "null"]
    if len(names) > 1:
        return table
    cls = class_named(names[0]) if names else class_named("null")
    for name, statistic in STATISTICS.items():
        if statistic.kind not in ("value", "percentiles", "sum"):
            continue
        column = one_chunk(table[name])
        if statistic.kind == "sum":
            plain = _sums_of_class(column, cls)
        elif statistic.kind == "value":
            plain = _values_of_class(column, cls)
        else:
            entries = column.values
            parts = {field.name: part for field, part in zip(entries.type, entries.flatten(), strict=True)}
            pairs = pa.StructArray.from_arrays(
                [parts["fraction"], _values_of_class(parts["value"], cls)], names=["fraction", "value"]
            )
            plain = pa.ListArray.from_arrays(column.offsets, pairs, mask=column.is_null())
        table = table.set_column(table.schema.get_field_index(name), name, plain)
    return table


def _values_of_class(column: pa.StructArray, cls: TypeClass) -> pa.Array:
    values = unpack_values(column)
    return values if values.type == cls.arrow else pa.nulls(len(column), cls.arrow)


def _sums_of_class(column: pa.StringArray, cls: TypeClass) -> pa.Array:
    """Convert the texts of sums: to doubles for a class of floats, to decimals for other numeric classes.

    The decimals are of 38 digits, or of 76 if a sum needs more. For other classes, all results are null.
    """
    if not cls.is_numeric:
        return pa.nulls(len(column), pa.null())
    if cls.kind == "float":
        return column.cast(pa.float64())
    try:
        return column.cast(pa.decimal128(DECIMAL_DIGITS, cls.scale))
    except pa.ArrowInvalid:
        return column.cast(pa.decimal256(76, cls.scale))


def _build_row(values: dict[str, Any]) -> ColumnStatistics:
    # `__init__` would take most of the time, because it sets forty fields one by one.
    row = object.__new__(ColumnStatistics)
    object.__setattr__(row, "__dict__", values)
    return row


_STATES = {field.name: field.default for field in fields(ColumnStatistics) if field.name not in STATISTICS}
"""The fields of `ColumnStatistics` that are no columns of a table `statistics`, with their default values."""


def pack_columns(rows: Sequence[ColumnStatistics], names: Sequence[str], union: pa.StructType) -> pa.Table:
    """Return a table with one column for each name in `names`, and one row for each item of `rows`.

    Args:
        rows: The statistics of columns.
        names: The statistics to return, as keys of `STATISTICS`.
        union: The result of `union_type` for the type classes of the columns.
    """
    arrays = []
    for name in names:
        values, kind = [getattr(row, name) for row in rows], STATISTICS[name].kind
        if kind == "value":
            arrays.append(pack_scalars(values, union))
        elif kind == "percentiles":
            arrays.append(_pack_percentiles(values, union))
        else:
            texts = list(map(format_sum, values)) if kind == "sum" else values
            arrays.append(pa.array(texts, ARROW_TYPES[kind]))
    return pa.Table.from_arrays(arrays, names=list(names))


def unpack_columns(table: pa.Table, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of columns of a table as lists, by column name.

    The names are keys of `STATISTICS`.
    """
    columns: dict[str, list[Any]] = {}
    for name in names:
        column, kind = one_chunk(table.column(name)), STATISTICS[name].kind
        if kind == "value":
            columns[name] = unpack_scalars(column)
        elif kind == "percentiles":
            columns[name] = _unpack_percentiles(column)
        elif kind == "sum":
            columns[name] = list(map(parse_sum, column.to_pylist(), table.column("type_class").to_pylist()))
        else:
            columns[name] = column.to_pylist()
    return columns


def build_frequencies_table(path: str, frequencies: Frequencies, union: pa.StructType) -> pa.Table:
    """Return the rows of one column for the table `frequencies`.

    They are ordered by decreasing frequency, then by increasing value.

    Args:
        path: The column's path.
        frequencies: All distinct values of the column with their counts.
        union: The typed union of the table.

    Returns:
        The columns `column` (the path), `value` (typed union) and `frequency`.
    """
    order = np.argsort(-frequencies.counts.to_numpy(), kind="stable")
    values, counts = frequencies.values.take(pa.array(order)), frequencies.counts.take(pa.array(order))
    return build_value_counts_table(path, values, counts, union)


def build_value_counts_table(path: str, values: pa.Array, counts: pa.Array, union: pa.StructType) -> pa.Table:
    """Return the rows of one column for the table `frequencies`, in the order of the given values.

    Args:
        path: The column's path.
        values: Values of one type class.
        counts: How often each value occurs.
        union: The type of the column `value` of the table: a struct with one field per type class.
    """
    paths = [pa.repeat(pa.scalar(path), min(_REPEATS, len(values) - at)) for at in range(0, len(values), _REPEATS)]
    value = pack_values(values, type_class(values.type), union)
    return pa.table({"column": pa.chunked_array(paths, pa.string()), "value": value, "frequency": counts})


def parse_frequencies(table: pa.Table) -> Frequencies:
    """Return the frequencies of one column, by ascending value, from its rows in the table `frequencies`.

    The rows may be in any order.
    """
    return sum_value_counts([parse_value_counts(table)])


def parse_value_counts(table: pa.Table) -> ValueCountRows:
    """Return (values, counts) of one column from its rows in the table `frequencies`, in the same order."""
    return unpack_values(one_chunk(table.column("value"))), one_chunk(table.column("frequency")).cast(pa.int64())


def sum_value_counts(parts: Sequence[ValueCountRows]) -> Frequencies:
    """Return the frequencies of one column from parts in which values are in any order and may repeat."""
    nonempty_parts = [part for part in parts if len(part[0])]
    if not nonempty_parts:
        return EMPTY
    values, counts = (
        pa.concat_arrays([part[at] for part in nonempty_parts]) if len(nonempty_parts) > 1 else nonempty_parts[0][at]
        for at in (0, 1)
    )
    cls = type_class(values.type)
    run = sum_counts(physical_series(values, cls), counts.to_numpy())
    return run_to_frequencies(run, cls)


def build_histograms_table(histograms: Mapping[str, Histogram]) -> pa.Table:
    """Return a table with one column per histogram, named by the path of the profiled column.

    A column has struct(minimum, frequency) for each bin that is not empty. Nulls after these structs make all columns
    equally long. The table's metadata describes the bins of each path.
    """
    nonempty_bins = {path: np.flatnonzero(histogram.counts) for path, histogram in histograms.items()}
    longest = max(map(len, nonempty_bins.values()), default=0)
    arrays, bins_by_path = [], {}
    for path, histogram in histograms.items():
        bin_numbers_used = nonempty_bins[path]
        bins = pa.StructArray.from_arrays(
            [histogram.minima(bin_numbers_used), pa.array(histogram.counts[bin_numbers_used])],
            names=["minimum", "frequency"],
        )
        arrays.append(pa.concat_arrays([bins, pa.nulls(longest - len(bin_numbers_used), bins.type)]))
        bins_by_path[path] = [
            histogram.type_class.name,
            histogram.exponent,
            histogram.first,
            len(histogram),
            histogram.capacity,
        ]
    schema = pa.schema([pa.field(path, array.type) for path, array in zip(histograms, arrays, strict=True)])
    text = json.dumps(bins_by_path, separators=(",", ":"))
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata({HISTOGRAMS: text}))


@lru_cache(maxsize=4)  # because files are read column by column
def _parse_bins(text: bytes) -> Mapping[str, tuple[Any, ...]]:
    bins_by_path: dict[str, tuple[Any, ...]] = json.loads(text)
    return bins_by_path


def parse_histograms(table: pa.Table) -> dict[str, Histogram]:
    """Return the histograms in a table of `build_histograms_table`, by the path of the profiled column.

    Raises:
        CorruptionError: The metadata of the table does not describe a column.
    """
    bins_by_path = _parse_bins((table.schema.metadata or {}).get(HISTOGRAMS.encode(), b"{}"))
    histograms = {}
    for path, column in zip(table.column_names, table.columns, strict=True):
        if path not in bins_by_path:
            raise CorruptionError(f"histogram column {path!r} has no metadata of its bins")
        name, exponent, first, bins, capacity = bins_by_path[path]
        cls, chunk = class_named(name), one_chunk(column)
        parts = {field.name: _without_nulls(part) for field, part in zip(chunk.type, chunk.flatten(), strict=True)}
        frequencies, minima = parts["frequency"], parts["minimum"]
        minima = minima if minima.type == cls.arrow else minima.cast(cls.arrow)
        counts = np.zeros(bins, np.int64)
        counts[bin_numbers(numbers(minima, cls), exponent, first)] = frequencies.to_numpy()
        histograms[path] = Histogram(cls, exponent, first, counts, capacity)
    return histograms


def _pack_percentiles(rows: Sequence[Percentiles | None], union: pa.StructType) -> pa.ListArray:
    """Return the percentiles of each row as a list of struct(fraction, value).

    The values are in the typed union.
    """
    flat = [pair for percentiles in rows for pair in percentiles or ()]
    entries = pa.StructArray.from_arrays(
        [pa.array([fraction for fraction, _ in flat], pa.float64()), pack_scalars([v for _, v in flat], union)],
        names=["fraction", "value"],
    )
    offsets = np.cumsum([0, *(len(percentiles or ()) for percentiles in rows)], dtype=np.int32)
    missing = pa.array([percentiles is None for percentiles in rows], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), entries, mask=missing)


def _unpack_percentiles(column: pa.ListArray) -> list[Percentiles | None]:
    """Return the percentiles of each row, as pairs (fraction, value); None for null."""
    # Not `flatten`: Arrow cannot flatten lists with nulls whose values contain UUIDs.
    first, last = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    entries = column.values.slice(first, last - first)
    parts = {field.name: part for field, part in zip(entries.type, entries.flatten(), strict=True)}
    pairs = list(zip(parts["fraction"].to_pylist(), unpack_scalars(parts["value"]), strict=True))
    starts = (column.offsets.to_numpy() - first).tolist()
    is_valid = [element.is_valid for element in column] if column.null_count else [True] * len(column)
    return [
        tuple(pairs[start:end]) if valid else None
        for start, end, valid in zip(starts[:-1], starts[1:], is_valid, strict=True)
    ]


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return the elements that are not null."""
    # If nulls are only at the end, Arrow's compute kernels are not imported, which would take 30 ms.
    head = array.slice(0, len(array) - array.null_count)
    return array.drop_null() if head.null_count else head
