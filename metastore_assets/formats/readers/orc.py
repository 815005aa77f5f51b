"""Reader of ORC files, one column and one stripe at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.orc as pyarrow_orc

from metastore_assets.formats.readers.calendars import FileCalendar
from metastore_assets.formats.readers.chunks import split_array
from metastore_assets.formats.readers.nested_arrays import leaf_types, leaves, map_leaves
from metastore_assets.formats.readers.orc_tail import OrcTail
from metastore_assets.formats.readers.orc_zones import Clock, WriterZones
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

_FIELD_ID = b"iceberg.id"
_SPARK_TYPE = b"spark.sql.catalyst.type"
_ACID = {"hive.acid.key.index", "hive.acid.version"}
_GREGORIAN_START = date(1582, 10, 15)
_HYBRID = FileCalendar(has_julian_dates=True)
_CHECKS_RANGE = int(pa.__version__.partition(".")[0]) >= 26
"""Whether Arrow refuses timestamps out of range. Versions before 26 return wrong timestamps."""


class OrcColumns:
    """The top-level columns of an opened ORC file.

    Timestamps are in nanoseconds, except those of Spark's type `timestamp_ntz`, which are in microseconds. A union
    becomes a struct: `tag` is the number of the alternative, and `field0`, `field1`, … are the alternatives.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        """Open the file without reading rows.

        Raises UnsupportedError for a file of a transactional Hive table.
        """
        self._source = source
        self._file = pyarrow_orc.ORCFile(source)
        self.tail = OrcTail.of(self._file.reader.serialized_file_tail())
        self._stored: pa.Schema = self._file.schema
        if _ACID & self.tail.metadata_keys:
            raise UnsupportedError("it belongs to a transactional Hive table, which has no reader")
        self.fields: list[pa.Field] = [_field(field) for field in self._stored]
        # Iceberg's files are always in the Gregorian calendar.
        self._is_gregorian = self.tail.is_proleptic or any(field.metadata for field in self.fields)
        self.row_count: int = self._file.nrows
        # pyarrow selects columns by name. A duplicate name, or a name like a path, would select several columns.
        names = self._stored.names
        self._selectable = len(set(names)) == len(names) and not any("." in name or not name for name in names)

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the top-level column with number `index`, in file order.

        Timestamps without a zone are the clock times that the writer had. Dates and timestamps of the hybrid calendar
        are converted to the Gregorian calendar.

        Raises ArrowInvalid for a corrupt file. Raises UnsupportedError for dates of an uncertain calendar, and for
        timestamps that are out of range or in an uncertain time zone. If pyarrow is older than 26, UnsupportedError is
        raised for every column with timestamps.
        """
        field = self.fields[index]
        if not _CHECKS_RANGE and any(map(pa.types.is_timestamp, leaf_types(field.type))):
            raise UnsupportedError(
                f"it holds timestamps, which need pyarrow 26 or newer in ORC files, and {pa.__version__} is installed: "
                "earlier versions read those out of range as other timestamps"
            )
        rows = 0
        file, clocks = self._local_time_file if self._has_clock_times(field.type) else (self._file, None)
        for stripe in range(self._file.nstripes):
            with _range_errors():
                if self._selectable:
                    array = file.read_stripe(stripe, columns=[field.name]).column(0)
                else:
                    array = file.read_stripe(stripe).column(index)
            if array.type != self._stored.field(index).type:
                raise pa.ArrowInvalid(f"column {field.name!r} of stripe {stripe} is not the requested one")
            if clocks is not None:
                array = map_leaves(array, partial(_to_local, clocks[stripe]))
            array = _convert(array, field.type)
            if not self._is_gregorian:
                if self.tail.is_julian:
                    array = _HYBRID.rebase(array)
                else:
                    _check_calendar(array)
            rows += len(array)
            yield from split_array(array)
        if rows != self.row_count:
            raise pa.ArrowInvalid(f"column {field.name!r} has {rows} rows of the file's {self.row_count}")

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _has_clock_times(self, type_: pa.DataType) -> bool:
        return self.tail.has_clock_times and any(
            pa.types.is_timestamp(leaf) and leaf.tz is None for leaf in leaf_types(type_)
        )

    @cached_property
    def _local_time_file(self) -> tuple[pyarrow_orc.ORCFile, list[Clock] | None]:
        """The file from which timestamps without a zone are read, and the clock of each stripe.

        A clock converts the timestamps to the local time of the writer. If every stripe names UTC as Arrow knows it,
        the result is (the original file, None). Otherwise, the file is a copy with the zone GMT in every stripe.
        """
        zones = WriterZones(self._source, self.tail)
        return (self._file, None) if zones.are_utc else (pyarrow_orc.ORCFile(zones.without_zones()), zones.clocks())


@contextmanager
def _range_errors() -> Iterator[None]:
    """Convert Arrow's errors about timestamps out of range to UnsupportedError."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "out of range" not in str(error):
            raise
        raise UnsupportedError(
            "it holds timestamps that are out of range: before 1678 or after 2261, which nanoseconds do not reach; "
            "write such values as nulls, or the column as a date"
        ) from error


def _to_local(clock: Clock, leaf: pa.Array) -> pa.Array:
    return clock.to_local(leaf) if pa.types.is_timestamp(leaf.type) and leaf.type.tz is None else leaf


def _field(stored_field: pa.Field, name: str | None = None) -> pa.Field:
    """Return a field of an ORC file with its field id, and with the type in which the reader returns it.

    Args:
        stored_field: The field in the file.
        name: The name of the returned field; None for the name in the file.
    """
    metadata = None
    attributes = stored_field.metadata or {}
    if _FIELD_ID in attributes:
        metadata = {PARQUET_FIELD_ID: attributes[_FIELD_ID]}
    type_ = _read_type(stored_field.type)
    if type_ == pa.int64() and attributes.get(_SPARK_TYPE) == b"timestamp_ntz":
        # Spark writes timestamps without a zone as integers in microseconds, and their type as an attribute.
        type_ = pa.timestamp("us")
    return pa.field(stored_field.name if name is None else name, type_, metadata=metadata)


def _read_type(stored_type: pa.DataType) -> pa.DataType:
    """Return the type in which the reader returns values of a stored type.

    Fields at every depth get their field ids. A union becomes a struct with the fields `tag`, `field0`, `field1`, …
    """
    if pa.types.is_struct(stored_type):
        return pa.struct([_field(field) for field in stored_type])
    if pa.types.is_map(stored_type):
        return pa.map_(
            _field(stored_type.key_field, "key").with_nullable(False), _field(stored_type.item_field, "value")
        )
    if pa.types.is_list(stored_type):
        return pa.list_(_field(stored_type.value_field, "element"))
    if pa.types.is_union(stored_type):
        alternatives = [_field(stored_type.field(index), f"field{index}") for index in range(stored_type.num_fields)]
        return pa.struct([pa.field("tag", pa.int32()), *alternatives])
    return stored_type


def _convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a stored array to the type in which the reader returns it."""
    if not pa.types.is_nested(target):
        return array if array.type == target else array.cast(target)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_union(array.type):
        return _union_struct(array, target)
    if pa.types.is_struct(target):
        children = [_convert(array.field(index), field.type) for index, field in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_map(target):
        keys, items = _convert(array.keys, target.key_type), _convert(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, _convert(array.values, target.value_type), type=target, mask=mask)


def _union_struct(array: pa.UnionArray, target: pa.StructType) -> pa.Array:
    """Convert a union to a struct with the number of the alternative and one field per alternative."""
    codes = array.type_codes
    tags = pc.index_in(codes, pa.array(array.type.type_codes, pa.int8()))
    children = []
    is_present = pa.array([False] * len(array))
    for index, field in enumerate(list(target)[1:]):
        child = _convert(array.field(index), field.type)
        is_chosen = pc.equal(tags, index)
        children.append(pc.if_else(is_chosen, child, pa.scalar(None, field.type)))
        is_present = pc.or_(is_present, pc.and_(is_chosen, child.is_valid()))
    # Arrow does not distinguish a null union from a null in an alternative, so both become null.
    return pa.StructArray.from_arrays(
        [tags.cast(pa.int32()), *children], fields=list(target), mask=pc.invert(is_present)
    )


def _check_calendar(array: pa.Array) -> None:
    """Raise UnsupportedError if an array has a date before 15 October 1582, which may be Julian."""
    # Timestamps need no check, because Arrow refuses those before 1677.
    for days in leaves(array):
        if pa.types.is_date(days.type) and pc.any(pc.less(days, pa.scalar(_GREGORIAN_START))).as_py():
            raise UnsupportedError(
                "it holds days before 15 October 1582 and does not say that it counts them in the Gregorian calendar"
            )
