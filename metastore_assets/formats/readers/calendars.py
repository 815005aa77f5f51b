"""Days and times of old Spark, which counted days before 15 October 1582 in the Julian calendar, as java.util does.

Spark says so in the metadata of Parquet and Avro files. Here such a day becomes the day of the same name in the
Gregorian calendar, which is what Spark's own reader does.
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
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

GREGORIAN_START = -141_427
"""15 October 1582 as days from 1970: the first day that has one name in both calendars."""
_FIRST_SURE_DAY = -25_566
"""2 January 1900 as days from 1970: before it java.util has other offsets of time zones than java.time."""
_CYCLE_YEAR, _CYCLE_START = -4716, -2_441_989
"""A year whose March begins a cycle of four years in the Julian calendar, and its 1 March as days from 1970."""
SPARK_VERSION = "org.apache.spark.version"
"""Name of the entry in the metadata of a file that Spark adds to what it writes."""
_DATES, _INT96, _ZONE = (
    "org.apache.spark.legacyDateTime",
    "org.apache.spark.legacyINT96",
    "org.apache.spark.timeZone",
)
_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich|GMT[+-]?0)|Z|(UTC|GMT|UT)?[+-]00:00")
_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS = 24 * 60 * 60


@dataclass(frozen=True)
class FileCalendar:
    """What the metadata of a file say of the calendar of its days. The default: Gregorian, as all others write it."""

    has_julian_dates: bool = False
    """Of dates and of timestamps that are instants, INT96 excepted."""
    has_julian_int96: bool = False
    zone: str | None = None
    """The time zone whose clock the days of timestamps go by; None where the file does not say."""

    @classmethod
    def of(cls, metadata: Mapping[Any, bytes] | None) -> FileCalendar:
        """From the entries that a writer added to a file, by name as text or bytes."""
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
        """Whether nothing is counted in the Julian calendar."""
        return not (self.has_julian_dates or self.has_julian_int96)

    def rebased(self, array: pa.Array, *, has_int96: bool = False) -> pa.Array:
        """Return an array, nested or not, with its days in the Gregorian calendar.

        `has_int96` says that its timestamps are stored as INT96. Raises UnsupportedError for timestamps whose time zone
        decides their day and is not known well enough.
        """
        if not any(self._is_affected(leaf, has_int96) for leaf in leaves(array)):
            return array
        return map_leaves(array, lambda leaf: self._leaf(leaf) if self._is_affected(leaf, has_int96) else leaf)

    def affects(self, type_: pa.DataType, *, has_int96: bool = False) -> bool:
        """Return whether values of a type without parts may be counted in the Julian calendar."""
        if pa.types.is_date(type_):
            return self.has_julian_dates
        if not pa.types.is_timestamp(type_):
            return False
        return self.has_julian_int96 if has_int96 else self.has_julian_dates and type_.tz is not None

    def _is_affected(self, leaf: pa.Array, has_int96: bool) -> bool:
        if not self.affects(leaf.type, has_int96=has_int96):
            return False
        least = pc.min(leaf.view(pa.int32() if leaf.type == pa.date32() else pa.int64())).as_py()
        return least is not None and least < self.first_sure(leaf.type)

    def first_sure(self, type_: pa.DataType) -> int:
        """Return the first value of a date or timestamp that means the same in both calendars, as Arrow stores it."""
        # The offsets of a zone that is not known, Spark does not know either.
        is_other = pa.types.is_timestamp(type_) and self._is_other_zone
        return (_FIRST_SURE_DAY if is_other else GREGORIAN_START) * _day(type_)

    @property
    def _is_other_zone(self) -> bool:
        return self.zone is not None and not _UTC.fullmatch(self.zone)

    def _leaf(self, leaf: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(leaf.type) and (self.zone is None or self._is_other_zone):
            limit = "the year 1900" if self._is_other_zone else "15 October 1582"
            clock = f"the time zone {self.zone!r}" if self._is_other_zone else "a time zone that it does not name"
            raise UnsupportedError(
                f"it holds timestamps before {limit} that an old Spark, or one in its legacy mode, counted in the "
                f"calendar of Java before version 8 in {clock}; have Spark read the files in that zone and write them "
                "again with spark.sql.parquet.datetimeRebaseModeInWrite and spark.sql.parquet.int96RebaseModeInWrite "
                "set to CORRECTED"
            )
        integers = leaf.view(pa.int32() if leaf.type == pa.date32() else pa.int64())
        values = pc.fill_null(integers, 0).to_numpy().astype(np.int64)
        days, rest = np.divmod(values, _day(leaf.type))
        values = _gregorian_days(days) * _day(leaf.type) + rest
        mask = leaf.is_null().to_numpy(zero_copy_only=False) if leaf.null_count else None
        stored = values.astype(f"int{integers.type.bit_width}")
        return pa.array(stored, integers.type, mask=mask).view(leaf.type)


def _day(type_: pa.DataType) -> int:
    """Return how many units of a date or timestamp are a day."""
    if type_ == pa.date32():
        return 1
    return _DAY_SECONDS * (10**3 if type_ == pa.date64() else _SECONDS[type_.unit])


def _gregorian_days(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for days from 1970, those whose name in the Gregorian calendar is theirs in the hybrid one.

    A 29 February that the Gregorian calendar lacks becomes the 1 March.
    """
    year, month, day = _julian(days)
    return np.where(days < GREGORIAN_START, _days_of(year, month) + day - 1, days)


def _julian(days: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return year, month and day of days from 1970 in the Julian calendar."""
    # Years begin in March here, so that the day that some have more is their last.
    years, within = np.divmod(4 * (days - _CYCLE_START) + 3, 1461)
    day_of_year = within // 4
    part = (5 * day_of_year + 2) // 153
    month = np.where(part < 10, part + 3, part - 9)
    return _CYCLE_YEAR + years + (month <= 2), month, day_of_year - (153 * part + 2) // 5 + 1


def _days_of(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first days of months in the Gregorian calendar, as days from 1970."""
    months = (year - 1970) * 12 + month - 1
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
