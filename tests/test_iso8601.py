"""Dates and times are formatted and parsed correctly.

The oracles are Python, or numpy and Arrow for years that Python does not have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metastore_assets.iso8601 import (
    TICKS,
    date_text,
    parse_date,
    parse_moment,
    parse_time,
    parse_timestamp,
    temporal_text,
)

DAYS = st.integers(-(2**31), 2**31 - 1)
TICKS_OF_64_BITS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-2000, 2000))
UNITS = st.sampled_from(list(TICKS))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@given(DAYS)
@example(2_932_897)
@example(-719_529)
def test_dates_of_all_years_round_trip(days: int) -> None:
    text = date_text(days)
    assert parse_date(text) == days
    assert int(np.datetime64(text.removeprefix("+"), "D").astype(np.int64)) == days
    year = text[:-6]
    assert len(year) == 4 if year.isdigit() else len(year) >= 5 and year[0] in "+-"


@given(st.dates())
def test_dates_equal_those_of_python(value: dt.date) -> None:
    assert date_text((value - dt.date(1970, 1, 1)).days) == value.isoformat()
    assert parse_date(value.isoformat()) == (value - dt.date(1970, 1, 1)).days


@given(TICKS_OF_64_BITS, UNITS, st.sampled_from([None, "UTC", "Europe/Paris", "+05:30"]))
def test_timestamps_round_trip_and_equal_those_of_arrow(ticks: int, unit: str, zone: str | None) -> None:
    text = temporal_text(ticks, pa.timestamp(unit, zone))
    assert parse_timestamp(text, unit) == (ticks, None if zone is None else 0)
    output = str(pc.cast(pa.array([ticks], pa.timestamp(unit)), pa.string())[0].as_py())
    if not output.startswith("<"):  # beyond the year 32767 Arrow prints no date
        full, _, fraction = output.partition(".")
        assert text.removeprefix("+").removesuffix("Z").partition(".")[0] == full.replace(" ", "T")
        assert text.removesuffix("Z").partition(".")[2].rstrip("0") == fraction.rstrip("0")


@given(st.integers(0, 86_400 * 10**9 - 1))
def test_times_round_trip(ticks: int) -> None:
    text = temporal_text(ticks, pa.time64("ns"))
    assert parse_time(text, "ns") == ticks
    assert dt.time.fromisoformat(text[:15]).isoformat("microseconds")[:8] == text[:8]
    assert parse_time(text, "us") == ticks // 1000


@given(st.datetimes(timezones=st.none() | st.timezones().filter(lambda zone: zone.key != "localtime")))
def test_texts_of_python_are_parsed(value: dt.datetime) -> None:
    zoned_time = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
    offset = None if value.tzinfo is None else int(value.utcoffset().total_seconds())  # type: ignore[union-attr]
    expected = ((zoned_time - EPOCH) // dt.timedelta(microseconds=1), offset)
    for separator in "T ":
        assert parse_timestamp(value.isoformat(separator), "us") == expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("1970-01-01", "ns", (0, None)),
        ("1970-01-01T01", "s", (3600, None)),
        ("1970-01-01 00:01Z", "ms", (60_000, 0)),
        ("1969-12-31T23:59:59.9999999", "us", (-1, None)),
        ("1970-01-01T00:00:00,000000001", "ns", (1, None)),
        ("1970-01-01T05:30:00.5+05:30", "ms", (500, 19_800)),
        ("+10000-01-01T00:00:00Z", "us", (253_402_300_800_000_000, 0)),
        ("10000-01-01", "us", (253_402_300_800_000_000, None)),
        ("-0001-12-31", "s", (-719_529 * 86_400, None)),
    ],
)
def test_all_forms_are_parsed(text: str, unit: str, expected: tuple[int, int | None]) -> None:
    """Timestamps are parsed in all documented forms.

    The forms are a date alone, omitted parts, zones, and years of more than four digits. Digits of a fraction that are
    finer than the unit are truncated.
    """
    assert parse_timestamp(text, unit) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "24-01-01",
        "2024-1-1",
        "20240101",
        "2024-02-30",
        "2023-02-29",
        "2024-13-01",
        "2024-00-01",
        "2024-01-00",
        "2024-01-01T",
        "2024-01-01T24:00:00",
        "2024-01-01T00:60",
        "2024-01-01T00:00:60",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00 Europe/Paris",
        "٢٠٢٤-01-01",
        " 2024-01-01",
        "2024-01-01\n",
    ],
)
@pytest.mark.parametrize("parse", [parse_date, lambda text: parse_timestamp(text, "us")])
def test_invalid_dates_are_refused(text: str, parse: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_invalid_times_of_day_are_refused() -> None:
    for text in ("", "1:2:3", "25:00:00", "00:00:00Z", "noon"):
        with pytest.raises(ValueError):
            parse_time(text, "us")
    with pytest.raises(ValueError):
        parse_date("2024-01-01T00:00:00")


@pytest.mark.parametrize(("digits", "is_accepted"), [("123456789", True), ("12345678900", True), ("1234567891", False)])
def test_fractions_of_nanoseconds_are_refused(digits: str, is_accepted: bool) -> None:
    """A fraction of a second with a digit other than zero after the ninth is refused.

    If such digits were cut off, a literal would be equal to a different time.
    """
    for parse in (parse_time, parse_timestamp):
        text = f"{'2024-01-01T' if parse is parse_timestamp else ''}00:00:01.{digits}"
        if is_accepted:
            assert parse(text, "ns") in (1_123_456_789, (1_704_067_201_123_456_789, None))
        else:
            with pytest.raises(ValueError, match=digits):
                parse(text, "ns")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-31", dt.datetime(2024, 1, 31, tzinfo=dt.UTC)),
        ("2024-01-31 12:30", dt.datetime(2024, 1, 31, 12, 30, tzinfo=dt.UTC)),
        ("2024-01-31T12:30:00.5Z", dt.datetime(2024, 1, 31, 12, 30, 0, 500_000, tzinfo=dt.UTC)),
        ("2024-01-31T12:30:00+02:00", dt.datetime(2024, 1, 31, 10, 30, tzinfo=dt.UTC)),
        ("20240131123000000", None),
        ("20240131", None),
        ("20240131T123000-05:00", None),
        ("2024-W05-3", None),
        ("2024-01-31x12:30", None),
        ("0001-01-01T00:00+01:00", None),
        ("+10000-01-01", None),
        ("17", None),
        ("-17", None),
        ("main", None),
        ("audit-2024", None),
    ],
)
def test_users_name_times_in_the_extended_form(text: str, moment: dt.datetime | None) -> None:
    """`parse_moment` parses only times in the extended form, and returns None for all other texts.

    Other texts may be names of a version, a snapshot, or a branch such as `2024-W05-3`.
    """
    assert parse_moment(text) == moment
