"""Line ends in CSV files: every row is read once, wherever lines and blocks end."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.files.csv import reader as csv_files
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.reader import CsvReader
from metastore_assets.formats.files.csv.summary import CsvSummary
from tests.formats.oracle import read_columns


def _table(folder: Path, *contents: bytes, **options: Any) -> dict[str, list[Any]]:
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_bytes(content)
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder), options=options)).snapshot())


def _summary(content: bytes, **options: Any) -> CsvSummary:
    reader = CsvReader(CsvOptions.of("t", {"header": False, **options}, ""))
    return reader.summarize(lambda: pa.BufferReader(content))


def _rows(content: bytes, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a CSV file without header as texts.

    Check that planning counts as many rows as reading returns.
    """
    reader = CsvReader(CsvOptions.of("t", {"header": False, **options}, ""))
    summary = _summary(content, **options)
    types = {column.name: pa.string() for column in summary.columns}
    _, batches = reader.batches(lambda: pa.BufferReader(content), types)
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert len(rows) == summary.row_count
    return rows


_ENDS = ["", "\n", "\r", "\r\n", "\n\n"]


@pytest.mark.parametrize("end", _ENDS, ids=ascii)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_file_of_one_line_has_one_row(tmp_path: Path, end: str, encoding: str) -> None:
    """A file of one line has one row, with and without a line end, in several encodings.

    A file with only a header has no rows.
    """
    line = f"1,é{end}".encode(encoding)
    options = {"encoding": "utf8" if encoding == "utf-8-sig" else encoding}
    assert _table(tmp_path, line, line, line, header=False, **options) == {"f0": [1] * 3, "f1": ["é"] * 3}
    assert _table(tmp_path, line, b"", line, header=False, **options) == {"f0": [1] * 2, "f1": ["é"] * 2}
    assert _table(tmp_path, line, b"", b"", header=True, **options) == {"1": [], "é": []}
    data_with_header = f"a,b{end or chr(10)}1,é{end}".encode(encoding)
    assert _table(tmp_path, data_with_header, data_with_header, b"", **options) == {"a": [1] * 2, "b": ["é"] * 2}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=ascii)
@pytest.mark.parametrize("last", ["", "end"])
def test_rows_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch, end: str, last: str) -> None:
    """Rows are the same wherever a block ends: in a line, in a quoted line break, or in the last line."""
    rows = [("1", "x"), ("2", 'y""z'.replace('""', '"')), ("3", f"a{end}b"), ("4", "é☃"), ("5", "")]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    text = buffer.getvalue()
    content = (text if last else text.removesuffix(end)).encode()
    longest = max(len(line) for line in text.encode().split(b'"' + end.encode() + b'"')) + 4
    for size in range(longest, len(content) + 3, 2):
        monkeypatch.setattr(csv_files, "_BLOCK", size)
        assert _rows(content) == rows


_CELLS = st.text(st.sampled_from('ab ",\n\r\\é0'), max_size=4)


@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_texts_do_not_depend_on_blocks(rows: list[tuple[str, str]], end: str, data: st.DataObject) -> None:
    """Quoted texts with any special characters are read back for any block size above the longest row."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL)
    longest = 0
    for row in rows:
        start = len(buffer.getvalue().encode())
        writer.writerow(row)
        longest = max(longest, len(buffer.getvalue().encode()) - start)
    content = buffer.getvalue().encode()
    size = data.draw(st.integers(longest + 1, len(content) + 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_BLOCK", size)
        assert _rows(content, escape="") == rows


_PIECES = [
    "1",
    "a",
    '"a"',
    '"a,b"',
    '"a""b"',
    '"a\nb"',
    "",
    '""',
    'a"b',
    " a",
    '"\r"',
    "é",
    'x""',
    '"""q"""',
    'b"',
    " ",
]


@given(st.data())
def test_rows_are_those_of_python_or_refused(data: st.DataObject) -> None:
    """Rows of special characters are read as Python's csv module reads them, or refused.

    In each random text, at most one character was inserted, replaced or removed.
    """
    width = data.draw(st.integers(1, 3))
    row = st.lists(st.sampled_from(_PIECES), min_size=width, max_size=width).map(",".join)
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(data.draw(st.lists(row, min_size=1, max_size=5))) + data.draw(st.sampled_from(["", end, end + end]))
    offset = data.draw(st.integers(0, len(text)))
    text = text[:offset] + data.draw(st.sampled_from(["", *'",\n a'])) + text[offset + data.draw(st.integers(0, 1)) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_BLOCK", data.draw(st.sampled_from([1 << 20, 8, 12, 16, 24, len(text.encode()) + 1])))
        try:
            rows = _rows(text.encode(), escape="", skip_blank_lines=True)
        except pa.ArrowInvalid:
            return
    expected = [tuple(row) for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert [tuple(cell or "" for cell in row) for row in rows] == expected


def test_a_row_longer_than_a_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a row that is longer than a block has the line and the likely reason."""
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    with pytest.raises(pa.ArrowInvalid, match=r"line 3: .*1,000 bytes"):
        _rows(b"a,b\n1,2\n" + b"x" * 1000 + b",3\n")
    with pytest.raises(pa.ArrowInvalid, match=r"line 202: .*options\.quote"):
        _rows(b"a,b\n" * 200 + b'1,2\n3,"x\n' + b"y,4\n" * 300)


def test_blank_lines_between_rows_of_several_columns_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines are ignored with any value of `skip_blank_lines`.

    This option applies only to files of one column.
    """
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    assert _table(tmp_path, b"\r\n\n1,2\n\n\n3,4\n\n", header=False) == {"f0": [1, 3], "f1": [2, 4]}
    (tmp_path / "0.csv").unlink()
    assert _table(tmp_path, b"\n\n5", header=False, skip_blank_lines=True) == {"f0": [5]}
    assert _table(tmp_path, b"\n1,2\n\n3,4\n", skip_blank_lines=False) == {"f0": [1, 3], "f1": [2, 4]}
    for count in range(990, 1010):
        assert _rows(b"\r\n" * count + b"5,6\n" * 300) == [("5", "6")] * 300
        with pytest.raises(pa.ArrowInvalid, match=rf"^line {count + 2}: .*\b2 columns"):
            _rows(b"\r\n" * count + b"5,6\r\n7\r\n")
    assert _table(tmp_path, b"\n\na\n5\n", header=True) == {"a": [5]}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=ascii)
@pytest.mark.parametrize("count", [1, 2, 1005, 70_000])
def test_blank_lines_before_the_first_row_of_one_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, count: int
) -> None:
    """Before a header, blank lines are ignored.

    Without a header, they are an error unless `skip_blank_lines` says whether they are ignored or nulls.
    """
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    content = (end * count + f"15{end}77{end}").encode()
    for header in ({}, {"header": False}):
        with pytest.raises(TableFormatError, match=r"0\.csv.*line 1\b.*options\.skip_blank_lines"):
            _table(tmp_path, content, **header)
        assert _table(tmp_path, content, skip_blank_lines=True, **header) == {"f0": [15, 77]}
        assert _table(tmp_path, content, skip_blank_lines=False, **header) == {"f0": [*[None] * count, 15, 77]}
    data_with_header = (end * count + f"age{end}15{end}").encode()
    for options in ({}, {"skip_blank_lines": False}, {"header": True, "skip_blank_lines": False}):
        assert _table(tmp_path, data_with_header, **options) == {"age": [15]}
    texts = (end * count + f"b{end}").encode()
    options = {"header": False, "skip_blank_lines": False}
    assert _table(tmp_path, texts, empty_text=True, **options) == {"f0": [*[""] * count, "b"]}
    assert _table(tmp_path, texts, null_values=["b"], **options) == {"f0": [*[""] * count, None]}


def test_one_column_of_duckdb_and_polars_is_read_back(tmp_path: Path) -> None:
    """Nulls in a file of one column that DuckDB or Polars wrote are read back, wherever they are.

    The column may have only nulls. The option `skip_blank_lines` is false.
    """
    values = [None, 15, None, None, 77, None]
    options = {"header": False, "skip_blank_lines": False}
    for rows in (values, [None], [None] * 3):
        frame = polars.DataFrame({"a": pa.array(rows, pa.int64())})
        frame.write_csv(tmp_path / "polars.csv", include_header=False)
        with duckdb.connect() as connection:  # The connection that all tests share is not used.
            connection.sql(f"copy (from frame) to '{tmp_path / '0.csv'}' (header false)")
        for content in ((tmp_path / "polars.csv").read_bytes(), (tmp_path / "0.csv").read_bytes()):
            (tmp_path / "polars.csv").unlink(missing_ok=True)
            assert _table(tmp_path, content, **options) == {"f0": rows}


def test_a_file_of_blank_lines(tmp_path: Path) -> None:
    """In a table of one column, each blank line is a null if `skip_blank_lines` is false.

    By default, a blank line is an error. If another file has a header or several columns, blank lines are ignored.
    """
    with pytest.raises(TableFormatError, match=r"0\.csv: line 1\b.*options\.skip_blank_lines"):
        _table(tmp_path, b"\n\n", header=False)
    with pytest.raises(TableFormatError, match=r"0\.csv: line 1\b.*options\.skip_blank_lines"):
        _table(tmp_path, b"\n\n", b"5\n")
    assert Counter(_table(tmp_path, b"\n\n", b"5\n", skip_blank_lines=False)["f0"]) == {None: 2, 5: 1}
    assert _table(tmp_path, b"\n\n", b"5\n", skip_blank_lines=True) == {"f0": [5]}
    assert _table(tmp_path, b"\n\n", b"a\n5\n", skip_blank_lines=False) == {"a": [5]}
    for options in ({}, {"skip_blank_lines": False}, {"columns": ["x", "y"], "header": False}):
        assert list(_table(tmp_path, b"\n\n", b"5,6\n\n7,8\n", **options).values()) == [[5, 7], [6, 8]]
    assert _table(tmp_path, b"\n", b"", skip_blank_lines=False, header=False, columns=["x"]) == {"x": [None]}


@pytest.mark.parametrize(("content", "line"), [(b"a\n1\n\n2\n", 3), (b"a\n1\n2\n\n", 4), (b'a\n"x\ny"\n\n', 4)])
def test_a_blank_line_in_one_column_is_refused(tmp_path: Path, content: bytes, line: int) -> None:
    """A blank line in a file of one column is an error unless the option `skip_blank_lines` is set.

    Such a line may be a null, or have no meaning.
    """
    with pytest.raises(TableFormatError, match=rf"0\.csv.*line {line}\b.*options\.skip_blank_lines"):
        _table(tmp_path, content, header=True)
    without = _table(tmp_path, content, header=True, skip_blank_lines=True)["a"]
    with_null = _table(tmp_path, content, header=True, skip_blank_lines=False)["a"]
    assert None not in without
    assert len(with_null) == len(without) + 1
    assert with_null.count(None) == 1


def test_a_block_of_blank_lines_in_one_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines fill several blocks.

    The error names the number of the first blank line.
    """
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    content = b"5\n" * 500 + b"\n" * 3000 + b"6\n"
    with pytest.raises(pa.ArrowInvalid, match=r"line 501\b.*options\.skip_blank_lines"):
        _rows(content)
    assert len(_rows(content, skip_blank_lines=True)) == 501
    assert len(_rows(content, skip_blank_lines=False)) == 3501


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=ascii)
def test_a_line_of_ignored_blanks_is_a_blank_line(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """With `skip_initial_space`, a line of blanks is a blank line anywhere in a file or a block.

    In a file of one column, `skip_blank_lines` decides whether such a line is ignored or a null. By default, it is an
    error.
    """
    content = f"  {end} \t{end}01{end}  {end}{end}02{end} ".encode()
    for size in range(8, len(content) + 2):
        monkeypatch.setattr(csv_files, "_BLOCK", size)
        assert _rows(content, skip_initial_space=True, skip_blank_lines=True) == [("01",), ("02",)]
        nulls = _rows(content, skip_initial_space=True, skip_blank_lines=False)
        assert nulls == [(None,), (None,), ("01",), (None,), (None,), ("02",), (None,)]
        with pytest.raises(pa.ArrowInvalid, match=r"line [14]\b.*options\.skip_blank_lines"):
            _rows(content, skip_initial_space=True)
        only_blanks = f" {end}{end}  ".encode()
        assert _summary(only_blanks, skip_initial_space=True).blank_lines == 3
        assert _summary(b" " * size, skip_initial_space=True).blank_lines == 1
    columns = f" {end}  01, x{end} {end}02,y{end}".encode()
    assert _rows(columns, skip_initial_space=True) == [("01", "x"), ("02", "y")]
    with pytest.raises(pa.ArrowInvalid, match=r"line 5: Expected 2 columns"):
        _rows(columns + f"3{end}".encode(), skip_initial_space=True)
    monkeypatch.setattr(csv_files, "_BLOCK", 8)
    with pytest.raises(pa.ArrowInvalid, match=r"line 2\b"):
        _rows(f"{end}{' ' * 40}{end}1,2".encode(), skip_initial_space=True)


@pytest.mark.parametrize("content", [b"a\nx\ry\n", b"a,b\r1,x\r2,\n\r", b"a,b\r\n1,x\r\n2,y\r"])
def test_carriage_returns_beside_line_feeds_are_refused(tmp_path: Path, content: bytes) -> None:
    """A file with both line feeds and lone carriage returns outside of quotes is an error."""
    with pytest.raises(TableFormatError, match=r"0\.csv\b.*\bcarriage returns\b"):
        _table(tmp_path, content, header=True)


def test_errors_name_the_line_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in an error is right, even in later blocks and after rows that span several lines."""
    monkeypatch.setattr(csv_files, "_BLOCK", 200)
    good = b'\r\n"a\nb",2\r\n\r\n"c\r\nd",4\r\n'
    for count in (0, 1, 20):
        lines = count * 6 + 2
        for bad, message in (
            (b"5\r\n", "Expected 2 columns, got 1"),
            (b"\xff,6\r\n", "invalid UTF8"),
            (b'"x"y,6', "goes on"),
        ):
            with pytest.raises(pa.ArrowInvalid, match=rf"^line {lines}: .*{message}"):
                _rows(b"a,b\r\n" + good * count + bad + b"7,8\r\n")


def test_text_in_another_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    """A byte that is invalid in the declared encoding is an error with its line.

    For UTF-16 without a declaration, the error is about NUL bytes. Both errors name the option.
    """
    with pytest.raises(TableFormatError, match=r"0\.csv.*line 2: .*'charmap'.*options\.encoding"):
        _table(tmp_path, b"a,b\n\x81,2\n", encoding="cp1252")
    with pytest.raises(TableFormatError, match=r"0\.csv.*\bNUL\b.*options\.encoding"):
        _table(tmp_path, "a,b\n1,2\n".encode("utf-16"))


@pytest.mark.parametrize("content", [b"\n\n5\n", b"\n\n"])
def test_the_error_about_a_blank_line_before_the_first_row_has_its_line(content: bytes) -> None:
    """If a blank first line cannot be read as a number, the error names line 1.

    It does not name the line of the first row.
    """
    options = CsvOptions.of("t", {"header": False, "skip_blank_lines": False, "null_values": ["x"]}, "")
    _, batches = CsvReader(options).batches(lambda: pa.BufferReader(content), {"f0": pa.int64()})
    with pytest.raises(pa.ArrowInvalid, match=r"^line 1: ''.*'f0'"):
        list(batches)
