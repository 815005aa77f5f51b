"""Conversion of days and timestamps from Spark's legacy hybrid calendar to the Gregorian calendar.

Old Spark versions count days before 15 October 1582 in the Julian calendar. The metadata of Parquet and Avro files
record this. Such a day becomes the day with the same year, month and day of the month in the proleptic Gregorian
calendar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.readers.nested_arrays import leaves, map_leaves
from metastore_assets.iso8601 import TICKS
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

GREGORIAN_START = -141_427
"""15 October 1582 in days since 1970-01-01: the first day of the Gregorian calendar."""
_FIRST_UNAMBIGUOUS_DAY = -25_566
"""2 January 1900 in days since 1970-01-01. Before that day, java.util and java.time have different time zone offsets.
"""
_CYCLE_YEAR, _CYCLE_START = -4716, -2_441_989
"""A year whose March begins a Julian cycle of four years, and its 1 March in days since 1970-01-01."""
SPARK_VERSION = "org.apache.spark.version"
"""Key of Spark's version in the metadata of a file."""
_DATES, _INT96, _ZONE = (
    "org.apache.spark.legacyDateTime",
    "org.apache.spark.legacyINT96",
    "org.apache.spark.timeZone",
)
_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich|GMT[+-]?0)|Z|(UTC|GMT|UT)?[+-]00:00")
_DAY_SECONDS = 24 * 60 * 60


@dataclass(frozen=True)
class FileCalendar:
    """The calendar of a file's days and timestamps: Gregorian, or Spark's legacy hybrid calendar.

    The hybrid calendar is Julian before 15 October 1582.
    """

    has_julian_dates: bool = False
    """Whether dates, and timestamps with a time zone except INT96, are in the hybrid calendar."""
    has_julian_int96: bool = False
    zone: str | None = None
    """Time zone in which Spark converted timestamps; None if the file does not name it."""

    @classmethod
    def of(cls, metadata: Mapping[Any, bytes] | None) -> FileCalendar:
        """Return the calendar that the key-value metadata of a file declares.

        Keys may be text or bytes.
        """
        entries = {
            (key.decode("utf-8", "replace") if isinstance(key, bytes) else key): value
            for key, value in (metadata or {}).items()
        }
        version = re.match(rb"(\d{1,9})\.(\d{1,9})", entries.get(SPARK_VERSION, b""))
        number = (int(version[1]), int(version[2])) if version else (9, 0)
        zone = entries.get(_ZONE)
        return cls(
            _DATES in entries or number < (3, 0),
            _INT96 in entries or number < (3, 1),
            None if zone is None else zone.decode("utf-8", "replace"),
        )

    @property
    def is_gregorian(self) -> bool:
        """Whether all days and timestamps are in the Gregorian calendar."""
        return not (self.has_julian_dates or self.has_julian_int96)

    def rebase(self, array: pa.Array, *, has_int96: bool = False) -> pa.Array:
        """Convert the days and timestamps in an array to the Gregorian calendar.

        Args:
            array: values as stored, at any depth.
            has_int96: whether timestamps are stored as INT96.

        Raises:
            UnsupportedError: timestamps depend on a time zone that is unknown or has uncertain offsets.
        """
        if not any(self._is_affected(leaf, has_int96) for leaf in leaves(array)):
            return array
        return map_leaves(array, lambda leaf: self._rebase_leaf(leaf) if self._is_affected(leaf, has_int96) else leaf)

    def affects(self, type_: pa.DataType, *, has_int96: bool = False) -> bool:
        """Return True if values of a leaf type may be in the hybrid calendar.

        Args:
            type_: type of the values.
            has_int96: whether timestamps are stored as INT96.
        """
        if pa.types.is_date(type_):
            return self.has_julian_dates
        if not pa.types.is_timestamp(type_):
            return False
        return self.has_julian_int96 if has_int96 else self.has_julian_dates and type_.tz is not None

    def _is_affected(self, leaf: pa.Array, has_int96: bool) -> bool:
        if not self.affects(leaf.type, has_int96=has_int96):
            return False
        minimum = pc.min(leaf.view(pa.int32() if leaf.type == pa.date32() else pa.int64())).as_py()
        return minimum is not None and minimum < self.first_unambiguous(leaf.type)

    def first_unambiguous(self, type_: pa.DataType) -> int:
        """Return the first date or timestamp from which on no value needs a conversion.

        It is in the unit of the type. For timestamps in a time zone other than UTC, it is 2 January 1900, because
        java.util and java.time have different offsets before that day. Otherwise, it is 15 October 1582.
        """
        # Spark assumes constant offsets too if a file names no time zone.
        is_non_utc = pa.types.is_timestamp(type_) and self._is_non_utc
        return (_FIRST_UNAMBIGUOUS_DAY if is_non_utc else GREGORIAN_START) * _units_per_day(type_)

    @property
    def _is_non_utc(self) -> bool:
        return self.zone is not None and not _UTC.fullmatch(self.zone)

    def _rebase_leaf(self, leaf: pa.Array) -> pa.Array:
        """Convert a leaf array in the hybrid calendar to the Gregorian calendar; see `rebase`."""
        if pa.types.is_timestamp(leaf.type) and (self.zone is None or self._is_non_utc):
            limit = "the year 1900" if self._is_non_utc else "15 October 1582"
            clock = f"the time zone {self.zone!r}" if self._is_non_utc else "a time zone that it does not name"
            raise UnsupportedError(
                f"it holds timestamps before {limit} that an old Spark, or one in its legacy mode, counted in the "
                f"calendar of Java before version 8 in {clock}; have Spark read the files in that zone and write them "
                "again with spark.sql.parquet.datetimeRebaseModeInWrite and spark.sql.parquet.int96RebaseModeInWrite "
                "set to CORRECTED"
            )
        integers = leaf.view(pa.int32() if leaf.type == pa.date32() else pa.int64())
        values = pc.fill_null(integers, 0).to_numpy().astype(np.int64)
        days, unit_of_day = np.divmod(values, _units_per_day(leaf.type))
        values = _gregorian_days(days) * _units_per_day(leaf.type) + unit_of_day
        mask = leaf.is_null().to_numpy(zero_copy_only=False) if leaf.null_count else None
        stored_integers = values.astype(f"int{integers.type.bit_width}")
        return pa.array(stored_integers, integers.type, mask=mask).view(leaf.type)


def _units_per_day(type_: pa.DataType) -> int:
    if type_ == pa.date32():
        return 1
    return _DAY_SECONDS * (10**3 if type_ == pa.date64() else TICKS[type_.unit])


def _gregorian_days(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Convert days since 1970-01-01 from the hybrid to the Gregorian calendar."""
    # A 29 February that the Gregorian calendar lacks becomes 1 March.
    year, month, day = _julian_dates(days)
    return np.where(days < GREGORIAN_START, _month_starts(year, month) + day - 1, days)


def _julian_dates(days: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the Julian (years, months, days of the month) of days since 1970-01-01."""
    # Years begin in March here, so that the leap day is the last day of a year.
    years, within = np.divmod(4 * (days - _CYCLE_START) + 3, 1461)
    day_of_year = within // 4
    part = (5 * day_of_year + 2) // 153
    month = np.where(part < 10, part + 3, part - 9)
    return _CYCLE_YEAR + years + (month <= 2), month, day_of_year - (153 * part + 2) // 5 + 1


def _month_starts(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first days of Gregorian months, in days since 1970-01-01."""
    months = (year - 1970) * 12 + month - 1
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
