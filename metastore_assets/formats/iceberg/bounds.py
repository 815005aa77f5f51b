"""The null count and bounds of a column in one data file, from the manifests of an Iceberg table."""

from __future__ import annotations

import math
import struct

import pyarrow as pa

from metastore_assets.formats.bounds import FragmentBounds
from metastore_assets.formats.iceberg.manifests import FileEntry, FileStatistics
from metastore_assets.formats.schema_casting import identity
from metastore_assets.formats.values import Constant, constant, unscaled_decimal
from metastore_assets.statistics.declaration import Guarantee

_ABSENT: tuple[None, Guarantee] = (None, "absent")
_FORMATS = {pa.int32(): ("<i",), pa.int64(): ("<q", "<i"), pa.float32(): ("<f",), pa.float64(): ("<d", "<f")}
"""`struct` formats of numbers in bounds, by type. Files from before a type promotion have the narrower type."""


def fragment_bounds(
    path: tuple[pa.Field, ...], entry: FileEntry, *, has_deletes: bool, is_geospatial: bool = False
) -> FragmentBounds:
    """Return the null count, minimum and maximum of a leaf column in a data file.

    All three are absent if the file has no statistics, or if the column is inside a list or map. They are also absent
    if it is inside a struct, and the file is not Parquet. Minimum and maximum have the guarantee `bound`: no value
    except NaN is outside of them, but the file may contain neither.

    Args:
        path: the fields from the top-level column down to the leaf.
        entry: the manifest entry of the data file, with statistics.
        has_deletes: whether deletes apply to the file. If not, the null count is exact; otherwise it is an upper bound.
        is_geospatial: whether the column is a `geometry` or `geography`. Its bounds are corners of a bounding box, and
            not values: minimum and maximum are absent.
    """
    statistics = entry.statistics
    if statistics is None or not identity(path[-1]).isdecimal() or _has_uncertain_counts(path, entry):
        return FragmentBounds()
    field_id, type_ = int(identity(path[-1])), path[-1].type
    nulls = _null_count(statistics, field_id, entry.record_count)
    lower, upper = (
        None if is_geospatial else decode_bound(bounds.get(field_id), type_)
        for bounds in (statistics.lower_bounds, statistics.upper_bounds)
    )
    # Writers may truncate bounds, and ignore NaN.
    return FragmentBounds(
        null_count=_ABSENT if nulls is None else (nulls, "bound" if has_deletes else "exact"),
        minimum=_ABSENT if lower is None else (lower[0], "bound"),
        maximum=_ABSENT if upper is None else (upper[0], "bound"),
    )


def _has_uncertain_counts(path: tuple[pa.Field, ...], entry: FileEntry) -> bool:
    """Return True if writers count the values of a column in different ways.

    That is so inside lists and maps, and inside structs of files that are not Parquet.
    """
    # Inside lists and maps, all counts differ. Inside structs, only Parquet writers count rows whose struct is null.
    above = path[:-1]
    return any(not pa.types.is_struct(field.type) for field in above) or (bool(above) and entry.format != "parquet")


def _null_count(statistics: FileStatistics, field_id: int, rows: int) -> int | None:
    nulls, values = statistics.null_value_counts.get(field_id), statistics.value_counts.get(field_id)
    if nulls is None or values not in (None, rows) or not 0 <= nulls <= rows:
        return None
    return nulls


def decode_bound(data: bytes | None, type_: pa.DataType) -> Constant | None:
    """Decode a bound in Iceberg's binary single-value form; None for None, NaN and invalid bytes."""
    if data is None:
        return None
    try:
        return _decode_bound(data, type_)
    except (ValueError, ArithmeticError, struct.error, pa.ArrowException):
        return None


def _decode_bound(data: bytes, type_: pa.DataType) -> Constant | None:
    """Decode a bound; None for NaN, and for bytes of a wrong length.

    For other invalid bytes, it raises one of the errors that `decode_bound` catches.
    """
    if pa.types.is_boolean(type_) and len(data) == 1:
        return constant(data != b"\x00", type_)
    if pa.types.is_decimal(type_) and data:
        return unscaled_decimal(int.from_bytes(data, "big", signed=True), type_)
    if pa.types.is_string(type_):
        return constant(data.decode("utf-8"), type_)
    if pa.types.is_binary(type_) or (pa.types.is_fixed_size_binary(type_) and len(data) == type_.byte_width):
        return constant(data, type_)
    if pa.types.is_temporal(type_):
        storage = pa.int32() if type_.bit_width == 32 else pa.int64()
        formats = _FORMATS[storage][:1]
        number = _number(data, formats)
        return None if number is None else constant(number, storage).view(type_)
    number = _number(data, _FORMATS.get(type_, ()))
    return None if number is None or math.isnan(number) else constant(number, type_)


def _number(data: bytes, formats: tuple[str, ...]) -> int | float | None:
    """Decode a number by the first `struct` format of the right size; None if no format fits."""
    for number_format in formats:
        if struct.calcsize(number_format) == len(data):
            number: int | float = struct.unpack(number_format, data)[0]
            return number
    return None
