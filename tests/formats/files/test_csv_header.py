"""Whether the first row of a CSV file is its header: told by the file, or asked for, and never guessed wrong."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.oracle import read_columns


def _read(folder: Path, *contents: str, **options: Any) -> dict[str, list[Any]]:
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_text(content, encoding="utf-8", newline="")
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder), options=options)).snapshot())


_HEADERS = [
    "id,name\n1,bob\n",
    "name,city\nbob,paris\nann,rome\n",
    "first_name,last_name\nBob,Hu\n",
    "OrderStatus,Note\nopen,x\nopen,y\n",
    ",a,b\n0,1,2\n",
    ",name\n0,bob\n1,ann\n",
    "Größe,Preis (EUR)\n5,1.5\n",
    '"a b",c\n1,2\n',
    "day,x\n2024-01-02,b\n",
    "flag,x\ntrue,b\nfalse,c\n",
    "x,y\n,1\n,2\n",
    "k,v\n" + "".join(f"{'ab'[number % 2]},{number}x\n" for number in range(30)),
]
_VALUES = [
    "1,bob\n2,ann\n",
    "5\n6\n",
    "5,abc\n",
    "true,x\nfalse,y\n",
    "2024-01-01,a\n2024-01-02,b\n",
    "10:30,a\n11:00,b\n",
    ",1\n5,2\n6,3\n",
    "open,x\nclosed,y\nopen,z\n",
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
]


def _rows(content: str) -> list[list[str]]:
    return [row for row in csv.reader(content.splitlines()) if row]


@pytest.mark.parametrize("content", _HEADERS)
def test_a_row_above_values_of_another_kind_holds_names(tmp_path: Path, content: str) -> None:
    """Or one whose cells look like names, where all else is text."""
    columns = _read(tmp_path, content)
    rows = _rows(content)
    assert list(columns) == rows[0]
    assert {len(values) for values in columns.values()} == {len(rows) - 1}


@pytest.mark.parametrize("content", _VALUES)
def test_a_row_like_the_others_is_a_row(tmp_path: Path, content: str) -> None:
    """A number above numbers, or a text that is there again."""
    columns = _read(tmp_path, content)
    rows = _rows(content)
    assert list(columns) == [f"f{number}" for number in range(len(rows[0]))]
    assert {len(values) for values in columns.values()} == {len(rows)}


@pytest.mark.parametrize("content", _UNTOLD)
def test_what_nothing_tells_is_asked_for(tmp_path: Path, content: str) -> None:
    """A wrong number of rows would be worse; the option settles it either way."""
    with pytest.raises(TableFormatError, match=r"0\.csv.*set options\.header to true or false"):
        _read(tmp_path, content)
    rows = _rows(content)
    assert {len(values) for values in _read(tmp_path, content, header=False).values()} == {len(rows)}
    if len(set(rows[0])) == len(rows[0]):
        columns = _read(tmp_path, content, header=True)
        assert list(columns) == rows[0]
        assert {len(values) for values in columns.values()} == {len(rows) - 1}


_NAMES = st.lists(st.text("abcdefxyz_ ", min_size=1, max_size=5), min_size=2, max_size=4, unique=True)
_CELLS = {
    "number": st.integers(-(10**6), 10**6).map(str),
    "float": st.floats(-1e6, 1e6).map("{:g}".format),
    "day": st.dates().map(str),
    "flag": st.sampled_from(["true", "false"]),
    "word": st.text("abcdefxyz ,\"'\n", min_size=1, max_size=5),
}


@given(st.data(), _NAMES, st.booleans())
def test_a_file_with_numbers_or_dates_is_read_right_or_refused(
    data: st.DataObject, names: list[str], has_header: bool
) -> None:
    """With a header or without, whatever is in the other columns."""
    kinds = [data.draw(st.sampled_from(["number", "float", "day", "flag"]))]
    kinds += [data.draw(st.sampled_from(sorted(_CELLS))) for _ in names[1:]]
    rows = data.draw(st.lists(st.tuples(*(_CELLS[kind] for kind in kinds)), min_size=1, max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "a.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([tuple(names)] * has_header + rows)
        try:
            columns = read_columns(open_table_format(TableConfig(name="t", uri=folder)).snapshot())
        except TableFormatError:
            return
    assert list(columns) == (names if has_header else [f"f{number}" for number in range(len(names))])
    assert {len(values) for values in columns.values()} == {len(rows)}


def test_files_of_one_table_agree(tmp_path: Path) -> None:
    """A header alone is told by files that have the same; one with and one without are no table."""
    assert _read(tmp_path, "a,b\n", "a,b\n1,2\n", "") == {"a": [1], "b": [2]}
    with pytest.raises(TableFormatError, match=r"1\.csv seems to have a header and .*2\.csv seems to have none"):
        _read(tmp_path, "", "a,b\n1,2\n", "3,4\n5,6\n")
    with pytest.raises(TableFormatError, match=r"set options\.header"):
        _read(tmp_path, "id,x\n1,2\n", "key,city\nbob,rome\n", "")
    with pytest.raises(FragmentError, match="two columns are named 'a'"):
        _read(tmp_path, "a,a\n1,2\n", "", "")
