"""Detection of headers in CSV files.

The decision is certain, or the file is refused.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.reader import CsvReader
from tests.formats.oracle import read_columns


def _read(folder: Path, *contents: str, **options: Any) -> dict[str, list[Any]]:
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_text(content, encoding="utf-8", newline="")
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder), options=options)).snapshot())


_HEADERS = [
    "id,name\n1,bob\n",
    ",a,b\n0,1,2\n",
    ",name\n0,bob\n1,ann\n",
    "Größe,Preis (EUR)\n5,1.5\n",
    '"a b",c\n1,2\n',
    "day,x\n2024-01-02,b\n",
    "flag,x\ntrue,b\nfalse,c\n",
    "x,y\n,1\n,2\n",
    ",0\n0,bob\n1,ann\n",
    "c1,c2\n" + "".join(f"id{number},value{number}\n" for number in range(5)),
    "_c0,_c1\nuser-1,group-1\nuser-2,group-3\n",
    "V1,V2\n1,a\n2,b\n",
    "V1,V2\n1,2\n3,4\n",
    "q1\n5\n",
    "zip,city\n01234,Boston\n02345,Salem\n",
    "day,note\n1/31/2024,a\n2/1/2024,b\n",
    'name,price\nbob,"$1,234.50"\nann,$5\n',
    "name,email\nbob,b@x.org\nann,a@y.org\n",
    "id,2019,2020\n1,yes,no\n2,no,no\n",
    "Year,Population (2019)\n2001,5\n",
    "% change,# of items\n0.5,7\n",
    "id,Sales 2019\n1,5\n2,6\n",
]
_VALUES = [
    "1,bob\n2,ann\n",
    "5\n6\n",
    "5,1.5\n",
    "3,9\n1,9L\n2,27\n",
    "3,9\n1,\n2,\n",
    "true,x\nfalse,y\n",
    "2024-01-01,a\n2024-01-02,b\n",
    "10:30,a\n11:00,b\n",
    ",1\n5,2\n6,3\n",
    "open,x\n" + "closed,y\nopen,z\nopen,y\nclosed,x\n" * 5,
    "user-6,group-3\nuser-7,group-1\nuser-8,group-2\n",
    "01234,Boston\n10001,New York\n",
    "01234,Boston\n02345,Salem\n",
    "b@x.org,bob\na@y.org,ann\n",
    "Toy Story,1995\nHeat,1995\nUp,2009\n",
    "1/31/2024,a\n2/1/2024,b\n",
    "N/A,5\n3,6\n4,7\n",
    "1.5,a\n2,b\n",
    "2024-01-01 10:00:00,a\n2024-01-02,b\n",
]
_UNTOLD = [
    "alice,paris\nbob,rome\n",
    "a,b\nx,y\nx,z\n",
    "country,2020,2021\nFR,1,2\nDE,3,4\n",
    "id,2020\n1,5\n",
    "unknown,5\n3,6\n4,7\n",
    "bob,bob\nann,tim\n",
    "name,city\nbob,rome\nname,city\nann,oslo\n",
    "order_created,eu_west\norder_paid,us_east\n",
    "type,5\n",
    "country,2020\nFR,1\nDE,2\n",
    "0,1,2\n5,6,7\n",
    ",0\n0,5\n1,6\n",
    '"1,234",a\n567,b\n',
    "2024-01-01,a\n5,b\n",
    "true,a\n5,b\n",
    "country,2020\nFR,1\nDE,N/A\n",
    "abc\n",
    "hello\nworld\n",
    "5,abc\n",
    "name,city\nbob,paris\nann,rome\n",
    "first_name,last_name\nBob,Hu\n",
    "Mexico City,Mexico\nLima,Peru\nOslo,Norway\n",
    "Baker Street 221,London\nHigh Street 5,Bath\n",
    "john_doe,Oslo\njane_roe,Bergen\n",
    "unique,first\n" + "open,x\nclosed,y\n" * 10,
    "k,v\n" + "".join(f"{'ab'[number % 2]},{number}x\n" for number in range(30)),
    "apple,12 kg\npear,13\nplum,14\n",
    "apple,EUR 12\npear,13\nplum,14\n",
    "apple,A5\npear,6\n",
    "apple,<5\npear,6\n",
    "open,late\nclosed,5\nopen,6\n",
    "Jan 2020,a\n2020-02-01,b\n",
    "yes,a\ntrue,b\nfalse,c\n",
    "admin,root\nuser1,group1\nuser2,group2\n",
    "c1,c2\nc3,c4\nc5,c6\n",
    "user1,user2\nalice,bob\ncarol,dan\n",
    "0,1\na,b\nc,d\n",
    "0\na\nb\n",
    "country,1,2,3\nFR,10,20,30\nDE,11,21,31\n",
    "the,a\nword,b\nthe,c\nx,d\n",
    ",5\n0,6\n1,7\n",
]


def _rows(content: str) -> list[list[str]]:
    return [row for row in csv.reader(content.splitlines()) if row]


@pytest.mark.parametrize("content", _HEADERS)
def test_a_row_above_values_of_another_kind_is_a_header(tmp_path: Path, content: str) -> None:
    """A first row is a header if its cells are of another kind than the values below them.

    If all columns are text, a row whose cells look like names is a header, too.
    """
    columns = _read(tmp_path, content)
    rows = _rows(content)
    assert list(columns) == rows[0]
    assert {len(values) for values in columns.values()} == {len(rows) - 1}


@pytest.mark.parametrize("content", _VALUES)
def test_a_row_like_the_others_is_no_header(tmp_path: Path, content: str) -> None:
    """A first row with a cell like the values below it is no header.

    Such a cell has the type or pattern of the values, or is a text that occurs again.
    """
    columns = _read(tmp_path, content)
    rows = _rows(content)
    assert list(columns) == [f"f{number}" for number in range(len(rows[0]))]
    assert {len(values) for values in columns.values()} == {len(rows)}


@pytest.mark.parametrize("content", _UNTOLD)
def test_an_ambiguous_first_row_is_refused(tmp_path: Path, content: str) -> None:
    """The error about an ambiguous first row has two lines for the configuration.

    Either line says whether the first row is a header. With it, the file is read.
    """
    with pytest.raises(TableFormatError, match=r"0\.csv.*options\.header") as error:
        _read(tmp_path, content)
    lines = re.findall("`(.*?)`", str(error.value))
    assert [yaml.safe_load(line) for line in lines] == [{"options": {"header": one}} for one in (True, False)]
    rows = _rows(content)
    assert {len(values) for values in _read(tmp_path, content, header=False).values()} == {len(rows)}
    if len(set(rows[0])) == len(rows[0]):
        columns = _read(tmp_path, content, header=True)
        assert list(columns) == rows[0]
        assert {len(values) for values in columns.values()} == {len(rows) - 1}


_TYPED = {
    "number": st.integers(-(10**6), 10**6).map(str),
    "float": st.floats(-1e6, 1e6).map("{:g}".format),
    "year": st.integers(1800, 2099).map(str),
    "small": st.integers(0, 3).map(str),
    "day": st.dates().map(str),
    "instant": st.datetimes().map(str),
    "time": st.times().map(lambda time: time.strftime("%H:%M:%S")),
    "flag": st.sampled_from(["true", "false"]),
}
_TEXTS = {
    "word": st.text("abcdefxyz ,\"'\n", min_size=1, max_size=5),
    "letter": st.sampled_from("abc"),
    "status": st.sampled_from(["open", "closed", "on hold", "type", "status"]),
    "city": st.sampled_from(["Mexico City", "Lima", "Oslo", "New York", "State College", "Code"]),
    "user": st.integers(0, 99).map("user-{}".format),
    "node": st.integers(0, 5).map("n{}".format),
    "login": st.sampled_from(["john_doe", "jane_roe", "admin", "root", "firstName", "user_id"]),
    "street": st.tuples(st.sampled_from(["Baker Street", "High Street"]), st.integers(1, 300)).map(
        "{0[0]} {0[1]}".format
    ),
    "amount": st.integers(1, 50).map("{} kg".format),
    "price": st.integers(1, 9999).map("${:,}.50".format),
    "zip": st.integers(0, 99999).map("{:05}".format),
    "american day": st.dates().map(lambda day: f"{day.month}/{day.day}/{day.year}"),
    "email": st.sampled_from(["ann", "bob", "id"]).map("{}@example.org".format),
    "url": st.sampled_from(["a", "b"]).map("https://example.org/{}".format),
    "uuid": st.uuids().map(str),
    "number or code": st.sampled_from(["7", "12", "A1", "B-2", "12 kg", "<5", "user-6", "unknown", "EUR 5"]),
}
_CELLS = _TYPED | _TEXTS
_NULLS = {name: st.one_of(cells, st.sampled_from(["", "NA"])) for name, cells in _CELLS.items()}
_WORDS = st.from_regex(r"[A-Za-z_][a-z]{2,6}([_ ][a-z]{1,3})?", fullmatch=True)


def _draw_rows(data: st.DataObject, kinds: list[str]) -> list[tuple[str, ...]]:
    cells = [data.draw(st.sampled_from([_CELLS, _NULLS]))[kind] for kind in kinds]
    row = st.tuples(*cells).filter(any)  # A blank line in a file of one column is tested elsewhere.
    return data.draw(st.one_of(st.lists(row, min_size=1, max_size=4), st.lists(row, min_size=20, max_size=30)))


def _planned(rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], int] | None:
    """Return the column names and the row count of a file with these rows; None if it is refused."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    reader = CsvReader(CsvOptions())
    try:
        summary = reader.summarize(lambda: pa.BufferReader(buffer.getvalue().encode()))
        [file], fields, _ = reader.plan("t", [("a.csv", reader, summary)])
    except (pa.ArrowInvalid, TableFormatError):
        return None
    return tuple(field.name for field in fields), file.row_count


@settings(max_examples=max(60, settings().max_examples // 5))
@given(st.data(), st.lists(st.sampled_from(sorted(_CELLS)), min_size=1, max_size=4))
def test_files_without_header_lose_no_row(data: st.DataObject, kinds: list[str]) -> None:
    """In a file without header, every row is read as data, or the file is refused.

    The rows have random values of many kinds.
    """
    rows = _draw_rows(data, kinds)
    assert _planned(rows) in (None, (tuple(f"f{number}" for number in range(len(kinds))), len(rows)))


@settings(max_examples=max(60, settings().max_examples // 5))
@given(st.data(), st.lists(st.sampled_from(sorted(_CELLS)), min_size=1, max_size=4))
def test_headers_are_not_read_as_rows(data: st.DataObject, kinds: list[str]) -> None:
    """If the first row has random words, they become the names of columns, or the file is refused.

    The rows below have random values of many kinds.
    """
    names = data.draw(st.lists(_WORDS, min_size=len(kinds), max_size=len(kinds), unique=True).map(tuple))
    rows = _draw_rows(data, kinds)
    assert _planned([names, *rows]) in (None, (names, len(rows)))


@given(st.data(), st.lists(st.sampled_from(sorted(_CELLS)), max_size=3))
def test_names_above_typed_columns_are_a_header(data: st.DataObject, kinds: list[str]) -> None:
    """A first row of names is a header if a column below it has a type other than text.

    In this test, no name is also a value.
    """
    kinds.insert(data.draw(st.integers(0, len(kinds))), data.draw(st.sampled_from(sorted(_TYPED))))
    rows = _draw_rows(data, kinds)
    rows.append(tuple(data.draw(_CELLS[kind]) for kind in kinds))
    values = {value.lower() for row in rows for value in row}
    name = _WORDS.filter(lambda word: word.lower() not in values | {"yes", "off", "tbd", "tba", "nil", "nan", "inf"})
    names = data.draw(st.lists(name, min_size=len(kinds), max_size=len(kinds), unique=True).map(tuple))
    assert _planned([names, *rows]) == (names, len(rows))


@pytest.mark.parametrize(
    ("first", "rows"),
    [(f"x,{'1' * 5000},3", 2), (f"c1,c{'1' * 5000},c3", 1), (f"{'1' * 5000},{'2' * 5000},1", 2)],
    ids=["text", "names", "numbers"],
)
def test_thousands_of_digits_do_not_change_the_detection(tmp_path: Path, first: str, rows: int) -> None:
    """A header is detected correctly beside texts of thousands of digits.

    Python does not convert so many digits to a number. Only the first row of the case `names` is a header. `rows` is
    the expected number of rows.
    """
    assert {len(values) for values in _read(tmp_path, f"{first}\nx,y,4\n").values()} == {rows}


def test_files_of_one_table_agree(tmp_path: Path) -> None:
    """Headers of the files of one table are compared with one another.

    A file with only one line, which equals the header of another file, has a header and no rows. It is an error if only
    some files have a header, if two headers share no name, or if a header has a name twice.
    """
    assert _read(tmp_path, "a,b\n", "a,b\n1,2\n", "") == {"a": [1], "b": [2]}
    with pytest.raises(TableFormatError, match=r"1\.csv.*2\.csv"):
        _read(tmp_path, "", "a,b\n1,2\n", "3,4\n5,6\n")
    with pytest.raises(TableFormatError, match=r"options\.header"):
        _read(tmp_path, "id,x\n1,2\n", "key,city\nbob,rome\n", "")
    with pytest.raises(FragmentError, match=r"columns.*'a'"):
        _read(tmp_path, "a,a\n1,2\n", "", "")


def test_files_with_the_same_header_share_their_names(tmp_path: Path) -> None:
    """Two files of texts have equal first rows, and the first row of a third file has other names.

    The error names the third file, and not the first.
    """
    people = "name,email\nbob,b@x.org\nann,a@y.org\n"
    with pytest.raises(TableFormatError, match=r"2\.csv.*options\.header") as error_info:
        _read(tmp_path, people, people, people.replace("name,email", "who,mail"))
    assert "0.csv" not in str(error_info.value)
