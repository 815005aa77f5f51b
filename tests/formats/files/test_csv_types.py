"""Types of CSV columns: reading returns the types of planning, and the values that were written."""

from __future__ import annotations

import csv
import io
import math
import re
from datetime import UTC, date, datetime, time
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.reader import CsvReader

_SPELLINGS = [
    *(
        "0",
        "1",
        "-1",
        "+1",
        "-0",
        "00",
        "01",
        "-01",
        "+07",
        "007.5",
        "0.5",
        "00.5",
        "1.50",
        "1.",
        ".5",
        "1e5",
        "1e05",
        "01e5",
    ),
    *(
        "1E+20",
        "1e400",
        "1e-400",
        "0e-400",
        "9007199254740992",
        "9007199254740993",
        "-9007199254740993",
        "0x10",
        "1_0",
        "1 0",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1" + "0" * 40,
        "5e-324",
    ),
    *(
        "nan",
        "NaN",
        "-nan",
        "nan(1)",
        "inf",
        "-Infinity",
        "INF",
        "NA",
        "None",
        "null",
        "true",
        "False",
        "TRUE",
        "tRue",
        "T",
    ),
    *(
        "2024-01-01",
        "2024-02-30",
        "0001-01-01",
        "10000-01-01",
        "20240101",
        "2024-01-01T10:00",
        "2024-01-01 10:00:00.123456",
    ),
    *(
        "2024-01-01 10:00:00.123456789",
        "2024-01-01 10:00:00Z",
        "2024-01-01 10:00:00+02:00",
        "1600-01-01 00:00:00.123456789",
    ),
    *("10:00", "23:59:59.5", "24:00", "1:00", "10:00:00.123456789", "１", "½", "-", " ", "\u00a0" + "1", "", None),
]
_BLANK = st.sampled_from(["", "", "", " ", "\t", "  "])
_TEXTS = st.sampled_from(_SPELLINGS).flatmap(
    lambda text: st.tuples(_BLANK, _BLANK).map(lambda blanks: text and blanks[0] + text + blanks[1])
)
_LIKE = st.one_of(
    st.lists(_TEXTS, min_size=1, max_size=6),
    st.lists(st.integers(-(10**20), 10**20).map(str), min_size=1, max_size=6),
    st.lists(st.floats().map(repr), min_size=1, max_size=6),
    st.lists(st.datetimes(datetime(1, 1, 1)).map(str), min_size=1, max_size=6),
    st.lists(st.dates().map(str), min_size=1, max_size=6),
    st.lists(st.times().map(str), min_size=1, max_size=6),
)


def _parsed_by_python(text: str | None, type_: pa.DataType) -> Any:
    """Return the value of a text in a type, parsed by Python.

    Raise an error if the text is no value of the type.
    """
    if text is None or (text == "" and not pa.types.is_string(type_)):
        return None
    if pa.types.is_string(type_):
        return text
    text = text.strip(" \t")
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        assert not re.match(r"[+-]?0[0-9]", text)
        assert "_" not in text
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_floating(type_):
        value = float(text)
        if re.fullmatch(r"[+-]?[0-9]+", text):
            assert Fraction(text) == Fraction(value)
            assert abs(int(text)) <= 2**53
        assert not math.isinf(value) or "inf" in text.lower()
        assert value or not re.match(r"[+-]?[0.]*[1-9]", text)
        return value
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_time(type_):
        return _split_nanoseconds(text, time, type_.unit)
    moment = _split_nanoseconds(text, datetime, type_.unit)
    return moment.astimezone(UTC) if type_.tz else moment


def _split_nanoseconds(text: str, kind: type[datetime] | type[time], unit: str) -> Any:
    """Parse a timestamp or a time of day with Python, without the digits below a microsecond.

    Asserts that the unit can represent all digits.
    """
    digits = re.search(r"\.([0-9]+)", text)
    assert digits is None or len(digits[1]) <= (9 if unit == "ns" else 6)
    value = kind.fromisoformat(re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text))
    assert not digits or not digits[1][6:] or unit == "ns"
    return value


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(actual, float) and math.isnan(actual)
    return type(actual) is type(expected) and actual == expected


@given(_LIKE, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.integers(0, 6))
def test_reading_returns_the_planned_types(texts: list[str | None], quoting: int, cut: int) -> None:
    """Reading one or two files returns the planned number of rows and the planned types.

    Values equal those that Python parses.
    """
    columns = {"key": [f"k{number}x" for number in range(len(texts))], "a": texts}
    readers = []
    for part in (slice(0, cut), slice(cut, None)):
        rows = list(zip(columns["key"][part], columns["a"][part], strict=True))
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, quoting=quoting, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        content = buffer.getvalue().encode()
        reader = CsvReader(CsvOptions(header=True))
        readers.append((rows, content, reader, reader.summarize(lambda content=content: pa.BufferReader(content))))
    planned_files, fields, _ = CsvReader.plan("t", [("f", reader, summary) for _, _, reader, summary in readers])
    types = {field.name: field.type for field in fields}
    for (rows, content, _, _), file in zip(readers, planned_files, strict=True):
        _, batches = file.reader.batches(lambda content=content: pa.BufferReader(content), types)
        tables = [pa.table(batch) for batch in batches]
        actual = pa.concat_tables(tables)["a"] if tables else []
        assert len(actual) == len(rows) == file.row_count
        if pa.types.is_null(types["a"]):
            assert not any(text for _, text in rows)
            continue
        # With quotes around all values, null is the empty text; without quotes, the empty text is null.
        nothing = "" if quoting == csv.QUOTE_ALL else None
        for (_, text), value in zip(rows, actual, strict=True):
            plain = _plain(value)
            assert _same(plain, _parsed_by_python(text or nothing, types["a"])), (text, plain, types["a"])


def _plain(value: pa.Scalar) -> Any:
    """Return a scalar as a Python value.

    Times are cut to microseconds, and converted to UTC if they have a zone.
    """
    if (
        value.is_valid
        and (pa.types.is_timestamp(value.type) or pa.types.is_time(value.type))
        and value.type.unit == "ns"
    ):
        micros = value.value // 1000
        micros_type = pa.timestamp("us", value.type.tz) if pa.types.is_timestamp(value.type) else pa.time64("us")
        plain = pa.scalar(micros, pa.int64()).cast(micros_type).as_py()
    else:
        plain = value.as_py()
    return plain.astimezone(UTC) if isinstance(plain, datetime) and plain.tzinfo else plain
