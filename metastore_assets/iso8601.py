"""Dates and times as text by ISO 8601 and back: of any year and to the nanosecond, computed from integers.

Python's own dates end at the years 1 and 9999 and at microseconds, and numpy's wrap around without a word. The
calendar is the proleptic Gregorian one; years beyond four digits have a sign, as in the standard's expanded form:
`+10000-01-01`, `-0001-12-31`. No room of its own: `formats` writes partition keys with it, `lookup` answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as t

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of a second by Arrow's name of the unit."""
_DAY = 86_400
_TEXT = re.compile(
    r"(?P<year>[+-]?\d{4,12})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[Tt ](?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<zone_hour>\d\d)(?::?(?P<zone_minute>\d\d)(?::?(?P<zone_second>\d\d))?)?)?)?",
    re.ASCII,
)


def temporal_text(ticks: int, type: pa.DataType, separator: str = "T", places: Sequence[int] = (3, 6, 9)) -> str:
    """A value of Arrow's date32, of a time or of a timestamp from the integer that it is stored as; with a zone, in UTC
    and with a `Z`."""
    if t.is_date32(type):
        return date_text(ticks)
    if t.is_time(type):
        return time_text(ticks, type.unit, places)
    return timestamp_text(ticks, type.unit, separator, places) + ("" if type.tz is None else "Z")


def date_text(days: int) -> str:
    """The date so many days after 1970-01-01."""
    year, month, day = _civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 <= year <= 9999 else f"{year:+05d}-{month:02d}-{day:02d}"


def time_text(ticks: int, unit: str, places: Sequence[int] = (3, 6, 9)) -> str:
    """The time of day so many ticks after midnight: with the least of the numbers of places that is exact, or none."""
    seconds, rest = divmod(ticks, TICKS[unit])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if not rest:
        return text
    digits = f"{rest * (10**9 // TICKS[unit]):09d}"
    return f"{text}.{next(digits[:length] for length in places if not digits[length:].strip('0'))}"


def timestamp_text(ticks: int, unit: str, separator: str = "T", places: Sequence[int] = (3, 6, 9)) -> str:
    """Date and time so many ticks after 1970-01-01T00:00:00; places as in `time_text`."""
    days, rest = divmod(ticks, _DAY * TICKS[unit])
    return f"{date_text(days)}{separator}{time_text(rest, unit, places)}"


def parse_date(text: str) -> int:
    """Days from 1970-01-01 to a date. Raises ValueError for anything else."""
    match = _TEXT.fullmatch(text)
    if match is None or match["hour"] is not None:
        raise ValueError(f"{text!r} is no date")
    return _days(match)


def parse_timestamp(text: str, unit: str) -> tuple[int, int | None]:
    """Ticks from 1970-01-01T00:00:00, in UTC where the text names a zone, and that zone's offset in seconds.

    A date alone is its midnight; what is finer than the unit is cut off. Raises ValueError for anything else.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp")
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    zone = [int(match[part] or 0) for part in ("zone_hour", "zone_minute", "zone_second")]
    if hour > 23 or minute > 59 or second > 59 or zone[0] > 23 or zone[1] > 59 or zone[2] > 59:
        raise ValueError(f"{text!r} is no timestamp")
    offset = (zone[0] * 3600 + zone[1] * 60 + zone[2]) * (-1 if match["sign"] == "-" else 1)
    seconds = _days(match) * _DAY + hour * 3600 + minute * 60 + second - offset
    fraction = int(f"{match['fraction'] or 0:0<9}"[:9]) // (10**9 // TICKS[unit])
    return seconds * TICKS[unit] + fraction, offset if match["zone"] else None


def parse_time(text: str, unit: str) -> int:
    """Ticks from midnight to a time of day without zone; as `parse_timestamp` else."""
    ticks, offset = parse_timestamp(f"1970-01-01T{text}", unit)
    if offset is not None:
        raise ValueError(f"{text!r} is no time of day")
    return ticks


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    if _civil(days) != (year, month, day):
        raise ValueError(f"{match[0]!r} is no day of the calendar")
    return days


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day, counted in eras of 400 years (146,097 days) of years that begin in March: leap days last."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day
