"""Bounds of a column in plain files: from Parquet and ORC footers, or from partition values.

Each data file is one fragment of the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.batching import batched
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats.base import Snapshot
from metastore_assets.formats.bounds import FragmentBounds, column_path, constant_bounds
from metastore_assets.formats.files.listed_files import DataFile
from metastore_assets.formats.files.partitioning import typed_constant
from metastore_assets.formats.files.schemas import TableSchema, file_identity
from metastore_assets.formats.files.source import FilesFragmentSource
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.readers.calendars import GREGORIAN_START, FileCalendar
from metastore_assets.formats.readers.orc_tail import (
    OrcTail,
    decode_double,
    decode_integer,
    decode_message,
    decode_signed,
)
from metastore_assets.formats.readers.parquet import leaf_count, open_parquet
from metastore_assets.formats.readers.reader import fragment_errors
from metastore_assets.formats.schema_casting import FieldMatcher, canonical_type, cast_to_schema
from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result
from metastore_assets.tasks.runner import with_arguments

_THREADS = 16
_FILES_PER_TASK = 16
"""Number of files that one task reads."""
_FILES_AT_ONCE = 4096
"""Number of files that are checked together."""
_WIDE = (pa.int64(), pa.uint64())
"""Integer types with values that no float equals."""
# Field numbers in ORC's column statistics, and in its string statistics.
_ORC_VALUES, _ORC_INTEGERS, _ORC_DOUBLES, _ORC_STRINGS, _ORC_DATES = 1, 2, 3, 4, 7
_ORC_SUM = 3
_ORC_LOWER, _ORC_UPPER = 4, 5


@dataclass(frozen=True)
class _FileBounds:
    """The bounds of a column in one file, from its footer.

    By default they are unknown.
    """

    nulls: tuple[int | None, Guarantee] = (None, "absent")
    extremes: pa.Array | None = None
    """The lower and the upper bound, as an array of two values; None if unknown. Arrow scalars would lose precision
    between processes."""

    @property
    def bounds(self) -> FragmentBounds:
        if self.extremes is None:
            return FragmentBounds(self.nulls)
        return FragmentBounds(self.nulls, (self.extremes[0], "bound"), (self.extremes[1], "bound"))


def read_file_bounds(snapshot: Snapshot, column: str) -> list[FragmentBounds]:
    """Return the bounds of a column in each fragment of a snapshot, in the order of the fragments.

    Both bounds of a partition column are its value in the fragment. Those of other columns come from the footer. They
    are absent if the file cannot be read, if its footer lacks them, or if their meaning is uncertain.
    """
    path = column_path(snapshot.schema, column)
    bounds: dict[int, FragmentBounds] = {}
    reading: dict[int, FilesFragmentSource] = {}
    for index, fragment in enumerate(snapshot.fragments):
        source = fragment.source
        assert isinstance(source, FilesFragmentSource)
        constants = dict(source.reading.partition)
        if path[0].name in constants:
            bounds[index] = constant_bounds(
                typed_constant(constants[path[0].name]).cast(path[0].type), fragment.row_count
            )
        elif source.reading.kind in _BOUNDS_READERS and source.reading.fatal is None:
            reading[index] = source
    outcomes = IsolatedRunner(_THREADS, _FILES_PER_TASK).outcomes(
        with_arguments(partial(_read_bounds, path)),
        [(source.reading.location, source.file) for source in reading.values()],
        paths=[snapshot.fragments[index].path for index in reading],
    )
    for index, outcome in zip(reading, outcomes, strict=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, FragmentError):
            raise outcome
        bounds[index] = FragmentBounds() if isinstance(outcome, FragmentError) else outcome.bounds
    return [bounds.get(index, FragmentBounds()) for index in range(len(snapshot.fragments))]


def check_integers(
    location: Location, files: Iterable[tuple[DataFile, pa.Schema]], table_schema: TableSchema, cache: MetadataCache
) -> None:
    """Raise TableFormatError if a float column of the table has integers beyond 2^53 in some file.

    Floats would round such integers. Only footers are read: Avro files, and files whose footers have no bounds of the
    column, are not checked.

    Args:
        location: the folder of the table.
        files: the readable data files of the table with their schemas. Few of them are in memory at a time.
        table_schema: the schema that was derived from these files.
        cache: caches the result for each file.
    """
    counterexamples = {
        reason.column: reason.counterexample for reason in table_schema.type_reasons if reason.type in _WIDE
    }
    columns = [name for name in counterexamples if pa.types.is_floating(table_schema.schema.field(name).type)]
    if not columns:
        return
    integer_columns = (
        (file, schema.field(name))
        for file, schema in files
        if file.kind in _BOUNDS_READERS
        for name in columns
        if name in schema.names and schema.field(name).type in _WIDE
    )
    for batch in batched(integer_columns, _FILES_AT_ONCE):
        for (file, field), is_beyond in zip(batch, _have_large_integers(location, batch, cache), strict=True):
            if is_beyond:
                raise TableFormatError(
                    f"{location.uri}: column {field.name!r} has integers beyond 2^53 in "
                    f"{location.full_path(file.stored.path)} and is {counterexamples[field.name]}; "
                    "no type holds both without loss: say in the table's `schema` what type the column is to have"
                )


def _have_large_integers(
    location: Location, columns: Sequence[tuple[DataFile, pa.Field]], cache: MetadataCache
) -> list[bool | None]:
    """Return for each (file, column) whether its bounds are beyond 2^53; None for an unreadable file.

    If the footer of the file has no bounds, the result is False.
    """
    keys = [cache_key("beyond 2^53", *file_identity(location, file), field.name) for file, field in columns]
    are_beyond = [cache.get(key, _decode_flag) for key in keys]
    new = [index for index, is_beyond in enumerate(are_beyond) if is_beyond is None]
    outcomes = IsolatedRunner(_THREADS, _FILES_PER_TASK).outcomes(
        with_arguments(_read_bounds),
        [((columns[index][1],), location, columns[index][0]) for index in new],
        paths=[location.full_path(columns[index][0].stored.path) for index in new],
    )
    for index, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, FragmentError):
            continue
        bounds = metadata_result(outcome).bounds
        extremes = [value for value, _ in (bounds.minimum, bounds.maximum) if value is not None]
        are_beyond[index] = any(abs(value.as_py()) > 2**53 for value in extremes)
        cache.put(keys[index], json.dumps(are_beyond[index]).encode())
    return are_beyond


def _decode_flag(data: bytes) -> bool:
    if data not in (b"true", b"false"):
        raise ValueError(data)
    return data == b"true"


def _read_bounds(path: Sequence[pa.Field], location: Location, file: DataFile) -> _FileBounds:
    """Return the bounds of the column at `path` from the footer of a file.

    Raises FragmentError.
    """
    with fragment_errors(location.full_path(file.stored.path)), location.open_stored(file.stored) as source:
        return _BOUNDS_READERS[file.kind](source, path)


def _read_parquet_bounds(source: pa.NativeFile, path: Sequence[pa.Field]) -> _FileBounds:
    """Return the bounds and the null count of the column at `path` from the statistics of a Parquet file.

    What the statistics do not show with certainty is unknown.
    """
    file = open_parquet(source)
    metadata = file.metadata
    leaf = _leaf_position(file.schema_arrow, path, leaf_count)
    if leaf is None:
        return _missing_column_bounds(file.schema_arrow, path, metadata.num_rows)
    leaf_number, stored_type = leaf[0], canonical_type(leaf[1])
    chunks = [metadata.row_group(group).column(leaf_number) for group in range(metadata.num_row_groups)]
    statistics = [chunk.statistics for chunk in chunks if chunk.num_values]
    if any(group is None for group in statistics):
        return _FileBounds()
    nulls: tuple[int | None, Guarantee] = (None, "absent")
    if all(group.has_null_count for group in statistics):
        nulls = (sum(group.null_count for group in statistics), "exact")
    # A row group without values has no minimum and maximum, and does not change those of the file.
    non_empty = [group for group in statistics if not (group.has_null_count and group.num_values == 0)]
    if not non_empty or not all(group.has_min_max for group in non_empty):
        return _FileBounds(nulls)
    extremes = [_parquet_extremes(group, stored_type) for group in non_empty]
    calendar = FileCalendar.of(metadata.metadata)
    if calendar.affects(stored_type) and any(
        minimum is None or minimum < calendar.first_unambiguous(stored_type) for minimum, _ in extremes
    ):
        return _FileBounds(nulls)
    return _merge_bounds(nulls, extremes, stored_type, path[-1].type)


def _parquet_extremes(statistics: pq.Statistics, stored_type: pa.DataType) -> tuple[Any, Any]:
    """Return (minimum, maximum) of a row group as the file stores them.

    Return (None, None) if one of them is NaN, or if writers order the values of the type in different ways.
    """
    pair = statistics.min_raw, statistics.max_raw
    kind = statistics.physical_type
    if kind in ("INT32", "INT64", "BOOLEAN") and not pa.types.is_unsigned_integer(stored_type):
        return pair
    if kind in ("FLOAT", "DOUBLE"):
        return (None, None) if any(map(math.isnan, pair)) else pair
    if kind == "BYTE_ARRAY" and (pa.types.is_string(stored_type) or pa.types.is_binary(stored_type)):
        return pair
    return None, None


def _read_orc_bounds(source: pa.NativeFile, path: Sequence[pa.Field]) -> _FileBounds:
    """Return the bounds and the null count of the column at `path` from the statistics of an ORC file.

    What the statistics do not show with certainty is unknown.
    """
    import pyarrow.orc as pyarrow_orc

    file = pyarrow_orc.ORCFile(source)
    tail = OrcTail.of(file.reader.serialized_file_tail())
    leaf = _leaf_position(file.schema, path, _orc_nodes, 1, below=1)
    if leaf is None:
        return _missing_column_bounds(file.schema, path, file.nrows)
    column, stored_type = leaf
    statistics = tail.statistics(column)
    if not statistics or _ORC_VALUES not in statistics:
        return _FileBounds()
    values = decode_integer(statistics[_ORC_VALUES][0])
    nulls: tuple[int | None, Guarantee] = (file.nrows - values, "exact")
    pair: tuple[Any, Any] = (None, None)
    if values and pa.types.is_integer(stored_type) and _ORC_INTEGERS in statistics:
        pair = _decode_pair(statistics[_ORC_INTEGERS][0], 1, 2, decode_signed)
        if pa.types.is_timestamp(path[-1].type):
            stored_type = pa.timestamp("us")  # Spark stores timestamps without a zone as such integers.
    elif values and pa.types.is_floating(stored_type) and _ORC_DOUBLES in statistics:
        pair = _decode_pair(statistics[_ORC_DOUBLES][0], 1, 2, decode_double)
        # Writers lose the bounds of a row group that begins with NaN when they merge it. Only the sum shows the NaN.
        total, _ = _decode_pair(statistics[_ORC_DOUBLES][0], _ORC_SUM, _ORC_SUM, decode_double)
        pair = (None, None) if None in pair or any(map(math.isnan, (*pair, total or 0.0))) else pair
    elif values and pa.types.is_date(stored_type) and _ORC_DATES in statistics:
        pair = _decode_pair(statistics[_ORC_DATES][0], 1, 2, decode_signed)
        pair = (None, None) if None in pair or (pair[0] < GREGORIAN_START and not tail.is_proleptic) else pair
    elif values and pa.types.is_string(stored_type) and _ORC_STRINGS in statistics:
        texts: Any = statistics[_ORC_STRINGS][0]
        fields = decode_message(texts)
        # The bounds of long texts are truncated, and have other field numbers.
        pair = fields.get(1, fields.get(_ORC_LOWER, [None]))[0], fields.get(2, fields.get(_ORC_UPPER, [None]))[0]
    return _merge_bounds(nulls, [pair], stored_type, path[-1].type)


def _decode_pair(data: Any, minimum: int, maximum: int, decode: Callable[[Any], Any]) -> tuple[Any, Any]:
    fields = decode_message(data)
    low, high = (decode(fields[number][0]) if number in fields else None for number in (minimum, maximum))
    return low, high


def _merge_bounds(
    nulls: tuple[int | None, Guarantee],
    extremes: Sequence[tuple[Any, Any]],
    stored_type: pa.DataType,
    table_type: pa.DataType,
) -> _FileBounds:
    """Return the least minimum and the greatest maximum of a file's row groups, cast to the table's type.

    The bounds are unknown if a row group has none, if the table's type orders the values differently, or if they cannot
    be cast.

    Args:
        nulls: the null count of the file with its guarantee. It becomes part of the result unchanged.
        extremes: (minimum, maximum) of each row group, or of the whole file, as stored; None if unknown.
        stored_type: the type in the file.
        table_type: the type in the table.
    """
    # These are bounds, not extremes: pyarrow does not show whether a value was truncated.
    if any(value is None for pair in extremes for value in pair):
        return _FileBounds(nulls)
    if pa.types.is_string(table_type) != pa.types.is_string(stored_type):
        # Texts and the values that they are converted to or from are ordered differently.
        return _FileBounds(nulls)
    # Stored numbers have the order of the values, and texts have the order of their bytes.
    minimum, maximum = min(pair[0] for pair in extremes), max(pair[1] for pair in extremes)
    try:
        bounds = cast_to_schema(_to_array([minimum, maximum], stored_type), table_type, FieldMatcher())
    except (pa.ArrowException, UnicodeDecodeError, OverflowError):
        return _FileBounds(nulls)
    return _FileBounds(nulls, bounds)


def _to_array(values: list[Any], stored_type: pa.DataType) -> pa.Array:
    """Return stored minima or maxima as an array of the stored type.

    Footers store texts as bytes, decimals without their scale, and numbers as they are.
    """
    if pa.types.is_string(stored_type):
        return pa.array([value.decode() for value in values], stored_type)
    if pa.types.is_decimal(stored_type):
        return pa.array([Decimal(value).scaleb(-stored_type.scale) for value in values], stored_type)
    if pa.types.is_temporal(stored_type):
        return pa.array(values, pa.int32() if stored_type.bit_width == 32 else pa.int64()).view(stored_type)
    return pa.array(values, stored_type)


def _leaf_position(
    fields: Iterable[pa.Field],
    path: Sequence[pa.Field],
    count: Callable[[pa.DataType], int],
    first: int = 0,
    *,
    below: int = 0,
) -> tuple[int, pa.DataType] | None:
    """Return the column number and the type of a leaf (a column without children) in a file.

    The result is None if the file lacks the leaf, if it is inside a list or a map, or if the column has children in the
    file. Parquet numbers the leaves of a file. ORC numbers all columns, parents before their children.

    Args:
        fields: the fields of the file, or of a struct in it.
        path: the fields of the table, from the level of `fields` down to the leaf.
        count: returns how many column numbers a type takes.
        first: the number of the first field.
        below: how many column numbers a struct itself takes: 0 in Parquet, 1 in ORC.
    """
    position, match = first, None
    for field in fields:
        if field.name == path[0].name:
            match = position, field.type
            break
        position += count(field.type)
    if match is None or len(path) == 1:
        return None if match is None or pa.types.is_nested(match[1]) else match
    if not (pa.types.is_struct(match[1]) and pa.types.is_struct(path[0].type)):
        return None
    return _leaf_position(list(match[1]), path[1:], count, match[0] + below, below=below)


def _missing_column_bounds(schema: pa.Schema, path: Sequence[pa.Field], rows: int) -> _FileBounds:
    """Return the bounds of a column that the file lacks.

    A missing top-level column has `rows` nulls.

    For a field inside of a struct, the bounds are unknown. They are also unknown if the file has a nested column of the
    same name.
    """
    if path[0].name in schema.names or len(path) > 1:
        return _FileBounds()
    return _FileBounds((rows, "exact"))


def _orc_nodes(type_: pa.DataType) -> int:
    """Return how many column numbers a type takes in an ORC file: its own and those of its children."""
    if pa.types.is_map(type_):
        return 1 + _orc_nodes(type_.key_type) + _orc_nodes(type_.item_type)
    if not pa.types.is_nested(type_):
        return 1
    return 1 + sum(_orc_nodes(type_.field(index).type) for index in range(type_.num_fields))


_BOUNDS_READERS: dict[str, Callable[[pa.NativeFile, Sequence[pa.Field]], _FileBounds]] = {
    "parquet": _read_parquet_bounds,
    "orc": _read_orc_bounds,
}
