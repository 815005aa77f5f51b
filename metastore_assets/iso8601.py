"""ISO 8601 texts of dates and times, for any year and with nanoseconds, computed with integers.

Python's dates are limited to the years 1 to 9999 and to microseconds, and numpy's overflow silently. The calendar is
the proleptic Gregorian one. Years before 0 or after 9999 have a sign, as in the standard's expanded form:
`-0001-12-31`, `+10000-01-01`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyarrow import types as t

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks per second, by Arrow's name of the unit."""
_DAY_SECONDS = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT = re.compile(
    r"(?P<year>[+-]?\d{4,12})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[Tt ](?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<zone_hour>\d\d)(?::?(?P<zone_minute>\d\d)(?::?(?P<zone_second>\d\d))?)?)?)?",
    re.ASCII,
)


def temporal_text(ticks: int, type: pa.DataType, separator: str = "T", decimals: Sequence[int] = (3, 6, 9)) -> str:
    """Format an Arrow date32, time or timestamp.

    Timestamps with a time zone are in UTC, with a `Z`.

    Args:
        ticks: The integer that Arrow stores.
        type: The Arrow type.
        separator: The text between date and time.
        decimals: The allowed numbers of decimal places of seconds; see `time_text`.
    """
    if t.is_date32(type):
        return date_text(ticks)
    if t.is_time(type):
        return time_text(ticks, type.unit, decimals)
    return timestamp_text(ticks, type.unit, separator, decimals) + ("" if type.tz is None else "Z")


def date_text(days: int) -> str:
    """Format the date that is `days` days after 1970-01-01."""
    year, month, day = _civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 <= year <= 9999 else f"{year:+05d}-{month:02d}-{day:02d}"


def time_text(ticks: int, unit: str, decimals: Sequence[int] = (3, 6, 9)) -> str:
    """Format the time of day that is `ticks` ticks after midnight.

    Args:
        ticks: The number of ticks.
        unit: The unit of a tick: `s`, `ms`, `us` or `ns`.
        decimals: The allowed numbers of decimal places of seconds, ascending. The first one that loses nothing is used.
            Whole seconds have no decimal places.
    """
    seconds, remainder = divmod(ticks, TICKS[unit])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if not remainder:
        return text
    digits = f"{remainder * (10**9 // TICKS[unit]):09d}"
    return f"{text}.{next(digits[:length] for length in decimals if not digits[length:].strip('0'))}"


def timestamp_text(ticks: int, unit: str, separator: str = "T", decimals: Sequence[int] = (3, 6, 9)) -> str:
    """Format the date and time that are `ticks` ticks after 1970-01-01T00:00:00.

    Args:
        ticks: The number of ticks.
        unit: The unit of a tick: `s`, `ms`, `us` or `ns`.
        separator: The text between date and time.
        decimals: As for `time_text`.
    """
    days, remainder = divmod(ticks, _DAY_SECONDS * TICKS[unit])
    return f"{date_text(days)}{separator}{time_text(remainder, unit, decimals)}"


def parse_date(text: str) -> int:
    """Parse a date.

    Return the days since 1970-01-01. Raises ValueError for other texts.
    """
    match = _TEXT.fullmatch(text)
    if match is None or match["hour"] is not None:
        raise ValueError(f"{text!r} is no date")
    return _days(match)


def parse_timestamp(text: str, unit: str) -> tuple[int, int | None]:
    """Parse a timestamp.

    Args:
        text: The timestamp. A date means its midnight. Digits of the fraction that are too fine for the unit are
            truncated.
        unit: The unit of a tick: `s`, `ms`, `us` or `ns`.

    Returns:
        The ticks since 1970-01-01T00:00:00, and the offset of the time zone in seconds. With a time zone, the ticks are
        in UTC. Without one, the offset is None.

    Raises:
        ValueError: The text is no timestamp, or its fraction has a digit other than 0 after the ninth.
    """
    match = _TEXT.fullmatch(text)
    if match is None or (match["fraction"] or "")[9:].strip("0"):
        raise ValueError(f"{text!r} is no timestamp")
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    zone = [int(match[part] or 0) for part in ("zone_hour", "zone_minute", "zone_second")]
    if hour > 23 or minute > 59 or second > 59 or zone[0] > 23 or zone[1] > 59 or zone[2] > 59:
        raise ValueError(f"{text!r} is no timestamp")
    offset = (zone[0] * 3600 + zone[1] * 60 + zone[2]) * (-1 if match["sign"] == "-" else 1)
    seconds = _days(match) * _DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    fraction = int(f"{match['fraction'] or 0:0<9}"[:9]) // (10**9 // TICKS[unit])
    return seconds * TICKS[unit] + fraction, offset if match["zone"] else None


def parse_moment(text: str) -> datetime | None:
    """Return the date or time that a user names, in UTC, with microseconds; None for another text.

    A date means its midnight. A time without an offset is in UTC. Only ISO 8601's extended form is read, because
    `20240101` may be the number of a version or the id of a snapshot. Years before 1 or after 9999 also give None.
    """
    try:
        ticks, _ = parse_timestamp(text, "us")
        return EPOCH + timedelta(microseconds=ticks)
    except (ValueError, OverflowError):
        return None


def parse_time(text: str, unit: str) -> int:
    """Parse a time of day without a time zone.

    Return the ticks since midnight. Raises ValueError for other texts.

    Args:
        text: The time, such as `12:30:00.5`.
        unit: The unit of a tick: `s`, `ms`, `us` or `ns`.
    """
    ticks, offset = parse_timestamp(f"1970-01-01T{text}", unit)
    if offset is not None:
        raise ValueError(f"{text!r} is no time of day")
    return ticks


def _days(match: re.Match[str]) -> int:
    """Return the days since 1970-01-01 for a match of `_TEXT`.

    Raises ValueError if there is no such date.
    """
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    if _civil(days) != (year, month, day):
        raise ValueError(f"{match[0]!r} is no day of the calendar")
    return days


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of the date that is `days` days after 1970-01-01."""
    # Years begin in March here, so that a leap day is the last day of a year. An era is 400 years.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day
