"""Bounds of a column in plain files, from the footers of Parquet and ORC files and from folder names."""

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

from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats.base import Snapshot, TypeReason
from metastore_assets.formats.bounds import FragmentBounds, column_path, constant_bounds
from metastore_assets.formats.files.listing import DataFile
from metastore_assets.formats.files.partitioning import typed_constant
from metastore_assets.formats.files.schemas import FileDescription, file_identity
from metastore_assets.formats.files.source import FilesFragmentSource
from metastore_assets.formats.files.union import canonical_type
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
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema
from metastore_assets.statistics.declaration import Guarantee
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result
from metastore_assets.tasks.runner import with_arguments

_THREADS = 16
_SHARE = 16
"""Files in one task of a thread."""
_WIDE = (pa.int64(), pa.uint64())
_ORC_VALUES, _ORC_INTEGERS, _ORC_DOUBLES, _ORC_STRINGS, _ORC_DATES = 1, 2, 3, 4, 7
_ORC_LOWER, _ORC_UPPER = 4, 5


@dataclass(frozen=True)
class _FileBounds:
    """The bounds of a column in a file's footer; by default unknown."""

    nulls: tuple[int | None, Guarantee] = (None, "absent")
    extremes: pa.Array | None = None
    """A lower and an upper bound. They are an array, because Arrow scalars lose precision between processes."""

    @property
    def bounds(self) -> FragmentBounds:
        if self.extremes is None:
            return FragmentBounds(self.nulls)
        return FragmentBounds(self.nulls, (self.extremes[0], "bound"), (self.extremes[1], "bound"))


def file_bounds(snapshot: Snapshot, column: str) -> list[FragmentBounds]:
    """Return the bounds of a column in each fragment, in the snapshot's order. Uncertain bounds are absent."""
    path = column_path(snapshot.schema, column)
    bounds: dict[int, FragmentBounds] = {}
    reading: dict[int, FilesFragmentSource] = {}
    for place, fragment in enumerate(snapshot.fragments):
        source = fragment.source
        assert isinstance(source, FilesFragmentSource)
        constants = dict(source.file.partition)
        if path[0].name in constants:
            bounds[place] = constant_bounds(
                typed_constant(constants[path[0].name]).cast(path[0].type), fragment.row_count
            )
        elif source.file.kind in _READERS and source.fatal is None:
            reading[place] = source
    outcomes = IsolatedRunner(_THREADS, _SHARE).outcomes(
        with_arguments(partial(_read_bounds, path)),
        [(source.location, source.file) for source in reading.values()],
        paths=[snapshot.fragments[place].path for place in reading],
    )
    for place, outcome in zip(reading, outcomes, strict=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, FragmentError):
            raise outcome
        bounds[place] = FragmentBounds() if isinstance(outcome, FragmentError) else outcome.bounds
    return [bounds.get(place, FragmentBounds()) for place in range(len(snapshot.fragments))]


def check_integers(
    location: Location,
    files: Sequence[DataFile],
    described: Sequence[FileDescription],
    schema: pa.Schema,
    reasons: Iterable[TypeReason],
    cache: MetadataCache,
) -> None:
    """Raise TableFormatError when integers beyond 2^53 are in a column that other files have as floats.

    Only footers of files with 64-bit integers in such columns are read, once per file. What they do not show is
    reported when the file is read.

    Args:
        location: the table's folder.
        files: its data files.
        described: their descriptions, in the same order.
        schema: the schema of the table.
        reasons: why columns are not of narrower types.
        cache: results for files that were read before.
    """
    counterexamples = {reason.column: reason.counterexample for reason in reasons if reason.type in _WIDE}
    columns = [name for name in counterexamples if pa.types.is_floating(schema.field(name).type)]
    if not columns or files[0].kind not in _READERS:
        return
    wanted = [
        (file, description.schema.field(name))
        for file, description in zip(files, described, strict=True)
        for name in columns
        if description.schema is not None
        and name in description.schema.names
        and description.schema.field(name).type in _WIDE
    ]
    keys = [cache_key("beyond 2^53", *file_identity(location, file), field.name) for file, field in wanted]
    are_beyond = [cache.get(key, _flag) for key in keys]
    new = [place for place, cached in enumerate(are_beyond) if cached is None]
    outcomes = IsolatedRunner(_THREADS, _SHARE).outcomes(
        with_arguments(_read_bounds),
        [((wanted[place][1],), location, wanted[place][0]) for place in new],
        paths=[location.full_path(wanted[place][0].stored.path) for place in new],
    )
    for place, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, FragmentError):
            continue
        bounds = metadata_result(outcome).bounds
        extremes = [value for value, _ in (bounds.minimum, bounds.maximum) if value is not None]
        are_beyond[place] = any(abs(value.as_py()) > 2**53 for value in extremes)
        cache.put(keys[place], json.dumps(are_beyond[place]).encode())
    for (file, field), is_beyond in zip(wanted, are_beyond, strict=True):
        if is_beyond:
            raise TableFormatError(
                f"{location.uri}: column {field.name!r} has integers beyond 2^53 in "
                f"{location.full_path(file.stored.path)} and is {counterexamples[field.name]}; "
                "no type holds both without loss: say in the table's `schema` what type the column is to have"
            )


def _flag(data: bytes) -> bool:
    if data not in (b"true", b"false"):
        raise ValueError(data)
    return data == b"true"


def _read_bounds(path: Sequence[pa.Field], location: Location, file: DataFile) -> _FileBounds:
    """Read the bounds in a file's footer. Raises FragmentError."""
    with fragment_errors(location.full_path(file.stored.path)), location.open_stored(file.stored) as source:
        return _READERS[file.kind](source, path)


def _parquet(source: pa.NativeFile, path: Sequence[pa.Field]) -> _FileBounds:
    file = open_parquet(source)
    metadata = file.metadata
    place = _leaf_position(file.schema_arrow, path, leaf_count)
    if place is None:
        return _missing_column_bounds(file.schema_arrow, path, metadata.num_rows)
    leaf, stored = place[0], canonical_type(place[1])
    chunks = [metadata.row_group(group).column(leaf) for group in range(metadata.num_row_groups)]
    statistics = [chunk.statistics for chunk in chunks if chunk.num_values]
    if any(one is None for one in statistics):
        return _FileBounds()
    nulls: tuple[int | None, Guarantee] = (None, "absent")
    if all(one.has_null_count for one in statistics):
        nulls = (sum(one.null_count for one in statistics), "exact")
    # A row group without values has no extremes, and does not change those of the file.
    non_empty = [one for one in statistics if not (one.has_null_count and one.num_values == 0)]
    if not non_empty or not all(one.has_min_max for one in non_empty):
        return _FileBounds(nulls)
    extremes = [_parquet_value(one, stored) for one in non_empty]
    calendar = FileCalendar.of(metadata.metadata)
    if calendar.affects(stored) and any(
        least is None or least < calendar.first_unambiguous(stored) for least, _ in extremes
    ):
        return _FileBounds(nulls)
    return _merged_bounds(nulls, extremes, stored, path[-1].type)


def _parquet_value(statistics: pq.Statistics, stored: pa.DataType) -> tuple[Any, Any]:
    """Return minimum and maximum in Arrow's storage; None where their order or meaning is uncertain."""
    pair = statistics.min_raw, statistics.max_raw
    kind = statistics.physical_type
    if kind in ("INT32", "INT64", "BOOLEAN") and not pa.types.is_unsigned_integer(stored):
        return pair
    if kind in ("FLOAT", "DOUBLE"):
        return (None, None) if any(map(math.isnan, pair)) else pair
    if kind == "BYTE_ARRAY" and (pa.types.is_string(stored) or pa.types.is_binary(stored)):
        return pair
    return None, None


def _orc(source: pa.NativeFile, path: Sequence[pa.Field]) -> _FileBounds:
    import pyarrow.orc as pyarrow_orc

    file = pyarrow_orc.ORCFile(source)
    tail = OrcTail.of(file.reader.serialized_file_tail())
    place = _leaf_position(file.schema, path, _orc_nodes, 1, below=1)
    if place is None:
        return _missing_column_bounds(file.schema, path, file.nrows)
    column, stored = place
    statistics = tail.statistics(column)
    if not statistics or _ORC_VALUES not in statistics:
        return _FileBounds()
    values = decode_integer(statistics[_ORC_VALUES][0])
    nulls: tuple[int | None, Guarantee] = (file.nrows - values, "exact")
    pair: tuple[Any, Any] = (None, None)
    if values and pa.types.is_integer(stored) and _ORC_INTEGERS in statistics:
        pair = _pair(statistics[_ORC_INTEGERS][0], 1, 2, decode_signed)
        if pa.types.is_timestamp(path[-1].type):
            stored = pa.timestamp("us")  # Spark writes timestamps without a zone so
    elif values and pa.types.is_floating(stored) and _ORC_DOUBLES in statistics:
        pair = _pair(statistics[_ORC_DOUBLES][0], 1, 2, decode_double)
        pair = (None, None) if None in pair or any(map(math.isnan, pair)) else pair
    elif values and pa.types.is_date(stored) and _ORC_DATES in statistics:
        pair = _pair(statistics[_ORC_DATES][0], 1, 2, decode_signed)
        pair = (None, None) if None in pair or (pair[0] < GREGORIAN_START and not tail.is_proleptic) else pair
    elif values and pa.types.is_string(stored) and _ORC_STRINGS in statistics:
        texts: Any = statistics[_ORC_STRINGS][0]
        fields = decode_message(texts)
        # Bounds of truncated texts have other field numbers.
        pair = fields.get(1, fields.get(_ORC_LOWER, [None]))[0], fields.get(2, fields.get(_ORC_UPPER, [None]))[0]
    return _merged_bounds(nulls, [pair], stored, path[-1].type)


def _pair(data: Any, least: int, greatest: int, decode: Callable[[Any], Any]) -> tuple[Any, Any]:
    fields = decode_message(data)
    low, high = (decode(fields[number][0]) if number in fields else None for number in (least, greatest))
    return low, high


def _merged_bounds(
    nulls: tuple[int | None, Guarantee],
    extremes: Sequence[tuple[Any, Any]],
    stored: pa.DataType,
    wanted: pa.DataType,
) -> _FileBounds:
    # pyarrow does not show whether an extreme is a value of the column or truncated.
    if any(value is None for pair in extremes for value in pair):
        return _FileBounds(nulls)
    if pa.types.is_string(wanted) != pa.types.is_string(stored):
        # Texts are ordered differently from the values that they are converted from or to.
        return _FileBounds(nulls)
    # The stored numbers have the order of the values, and texts the order of their bytes.
    least, greatest = min(pair[0] for pair in extremes), max(pair[1] for pair in extremes)
    try:
        bounds = cast_to_schema(_array([least, greatest], stored), wanted, FieldMatcher())
    except (pa.ArrowException, UnicodeDecodeError, OverflowError):
        return _FileBounds(nulls)
    return _FileBounds(nulls, bounds)


def _array(values: list[Any], stored: pa.DataType) -> pa.Array:
    if pa.types.is_string(stored):
        return pa.array([value.decode() for value in values], stored)
    if pa.types.is_decimal(stored):
        return pa.array([Decimal(value).scaleb(-stored.scale) for value in values], stored)
    if pa.types.is_temporal(stored):
        return pa.array(values, pa.int32() if stored.bit_width == 32 else pa.int64()).view(stored)
    return pa.array(values, stored)


def _leaf_position(
    fields: Iterable[pa.Field],
    path: Sequence[pa.Field],
    count: Callable[[pa.DataType], int],
    first: int = 0,
    *,
    below: int = 0,
) -> tuple[int, pa.DataType] | None:
    """Return the number and the type of the leaf at a path of structs; None when the file has no such leaf.

    Args:
        fields: The fields of the file, or of a struct in it.
        path: The fields of the table, from one of these down to the leaf.
        count: How many numbers a type takes.
        first: The number of the first field.
        below: How many numbers a struct takes by itself, before those of its children.
    """
    position, found = first, None
    for field in fields:
        if field.name == path[0].name:
            found = position, field.type
            break
        position += count(field.type)
    if found is None or len(path) == 1:
        return None if found is None or pa.types.is_nested(found[1]) else found
    if not (pa.types.is_struct(found[1]) and pa.types.is_struct(path[0].type)):
        return None
    return _leaf_position(list(found[1]), path[1:], count, found[0] + below, below=below)


def _missing_column_bounds(schema: pa.Schema, path: Sequence[pa.Field], rows: int) -> _FileBounds:
    """Return the bounds of a column that the file lacks: all values are null; unknown for a part of a struct."""
    if path[0].name in schema.names or len(path) > 1:
        return _FileBounds()
    return _FileBounds((rows, "exact"))


def _orc_nodes(type_: pa.DataType) -> int:
    if pa.types.is_map(type_):
        return 1 + _orc_nodes(type_.key_type) + _orc_nodes(type_.item_type)
    if not pa.types.is_nested(type_):
        return 1
    return 1 + sum(_orc_nodes(type_.field(index).type) for index in range(type_.num_fields))


_READERS: dict[str, Callable[[pa.NativeFile, Sequence[pa.Field]], _FileBounds]] = {"parquet": _parquet, "orc": _orc}
