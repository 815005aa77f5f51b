"""Quotes and escapes in CSV files are read as their writer meant them, or refused.

The error names the option that decides.
"""

from __future__ import annotations

import csv
import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.reader import CsvReader
from tests.formats.oracle import read_columns

_Texts = list[str | None]


def _texts(content: bytes, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows below the header, with every column as text.

    Raises the errors of planning and reading.
    """
    reader = CsvReader(CsvOptions.of("t", {"header": True, **options}, ""))
    summary = reader.summarize(lambda: pa.BufferReader(content))
    planned_files, fields, _ = reader.plan("t", [("a.csv", reader, summary)])
    _, batches = planned_files[0].reader.batches(
        lambda: pa.BufferReader(content), {field.name: pa.string() for field in fields}
    )
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (rb'"a\"b",c', r"options.escape.*'\\'"),
        (rb'"\"",c' + b"\n" + rb'"\"",d', r"options.escape.*'\\'"),
        (rb'"a\"b, c",d', r"options.escape.*'\\'"),
        (rb'1,"a\"b"', r"options.escape.*'\\'"),
        (b'"abc"def,c', r"options.quote.*''"),
        (b'""abc"",c', r"options.quote.*''"),
        (b'1,"x"y', r"options.quote.*''"),
        (b'"x" ,c', "options.skip_initial_space"),
        (b'1, "x"', r"options.skip_initial_space.*true"),
        (b'1,\t"x, y"', r"options.skip_initial_space.*true"),
        (rb"1,a\"b", r"options.escape.*'\\'"),
        (b'1,"x', "options.quote"),
        (rb"\\srv,1", r"options.escape.*'\\'"),
        (rb'1,"C:\\dir, x"', r"options.escape.*'\\'"),
    ],
)
def test_ambiguous_quotes_and_escapes_are_refused(line: bytes, message: str) -> None:
    """The error for ambiguous quotes or escapes has the line and the option that decides.

    The value is in the first or in the last column.
    """
    with pytest.raises((pa.ArrowInvalid, TableFormatError), match=rf"line 3.*{message}"):
        _texts(b"a,b\n1,2\n" + line + b"\n")


@pytest.mark.parametrize(
    ("line", "options", "row"),
    [
        (b'5" pipe,"a"', {}, ('5" pipe', "a")),
        (b'x"y",z""', {}, ('x"y"', 'z""')),
        (b'"a""b","""c"""', {}, ('a"b', '"c"')),
        (b'"","""', {"quote": ""}, ('""', '"""')),
        (b'"","x"', {}, ("", "x")),
        (b",", {}, (None, None)),
        (b"'a\"',\"b'", {"quote": "'"}, ('a"', "\"b'")),
        (rb'"a\"b",c\d', {"escape": "\\", "escape_unquoted": False}, ('a"b', r"c\d")),
        (rb'"a\\b",\\c\\', {"escape": "\\", "escape_unquoted": False}, (r"a\b", r"\\c" + "\\\\")),
        (rb'"a\nb",c', {"escape": "\\"}, (r"a\nb", "c")),
        (rb"a\,b,c\"d", {"escape": "\\", "escape_unquoted": True}, ("a,b", 'c"d')),
        (rb"a\\b,\N", {"escape": "\\", "escape_unquoted": True}, (r"a\b", r"\N")),
        (rb"a\\,\N", {"escape": "\\", "escape_unquoted": True, "null_values": [r"\N"]}, ("a\\", None)),
        (rb'x\,"y",z', {"escape": "\\", "escape_unquoted": True}, ('x,"y"', "z")),
        (
            b"x\\, y\\\n z, a",
            {"escape": "\\", "escape_unquoted": True, "skip_initial_space": True},
            ("x, y\n z", "a"),
        ),
        (b'"a""b",c', {"escape": '"'}, ('a"b', "c")),
        (rb'x\,"y"', {"escape": "\\", "escape_unquoted": False}, ("x\\", "y")),
        (rb"x\,y\\,z", {"escape": "\\", "quote": ""}, ("x,y\\", "z")),
        (rb'"C:\\dir, x",y', {"escape": "\\"}, (r"C:\dir, x", "y")),
        (rb'"C:\\dir, x",y', {"escape": ""}, (r"C:\\dir, x", "y")),
        (rb'"C:\dir, x",y', {}, (r"C:\dir, x", "y")),
        (rb'"{""a"": ""\\n""}",y', {}, (r'{"a": "\\n"}', "y")),
        (rb"C:\dir,\\srv\x", {}, (r"C:\dir", r"\\srv\x")),
        (rb"1,a\"b", {"escape": ""}, ("1", r"a\"b")),
        (b' x, "y, z" ', {"skip_initial_space": True}, ("x", "y, z")),
        (b'"x" \t,\t "y"', {"skip_initial_space": True}, ("x", "y")),
        (b' x, "y"', {"skip_initial_space": False}, (" x", ' "y"')),
        (b' x," y "', {}, (" x", " y ")),
        (b'x,"a\n\nb\r"', {}, ("x", "a\n\nb\r")),
    ],
)
def test_unambiguous_quotes_and_escapes_are_read(
    line: bytes, options: dict[str, Any], row: tuple[str | None, ...]
) -> None:
    """A line whose quotes and escapes have only one meaning is read with this meaning.

    Some lines need options to have only one meaning.
    """
    assert _texts(b"a,b\nx,y\n" + line + b"\n" + b"z,z\n", **options) == [("x", "y"), row, ("z", "z")]
    assert _texts(b"a,b\n" + line, **options) == [row]


def test_one_file_decides_what_backslashes_mean(tmp_path: Path) -> None:
    """A pair of backslashes in quotes is refused, because it may stand for one backslash or for two.

    It is read as two if a file of the table has a quoted value with a single backslash or a doubled quote. A backslash
    outside of quotes does not decide it.
    """
    (tmp_path / "1.csv").write_bytes(rb"a,b" + b"\n" + rb'1,"C:\\dir, x"' + b"\n")
    config = TableConfig(name="t", uri=str(tmp_path), options={"header": True})
    with pytest.raises(TableFormatError, match=r"1\.csv, line 2: .*\bbackslashes\b.*\boptions\.escape\b"):
        open_table_format(config).snapshot()
    for content in (rb'2,"C:\dir, y"', rb'2,"say ""hi"""'):
        (tmp_path / "2.csv").write_bytes(b"a,b\n" + content + b"\n")
        assert r"C:\\dir, x" in read_columns(open_table_format(config).snapshot())["b"]
    (tmp_path / "2.csv").write_bytes(b"a,b\n" + rb"2,C:\dir" + b"\n")
    with pytest.raises(TableFormatError, match=r"1\.csv, line 2: .*\bbackslashes\b.*\boptions\.escape\b"):
        open_table_format(config).snapshot()


@pytest.mark.parametrize("line", [rb"\\N,x", rb"x,\\N"])
def test_an_escaped_null_text_is_refused(line: bytes) -> None:
    r"""The value `\\N` is refused if the backslash is an escape and `\N` is a null value.

    MySQL and Hive write null as `\N`, and the text `\N` as `\\N`. Without the escape, both would be null. Without this
    null value, or as a part of a longer text, `\\N` is read as `\N`.
    """
    options: dict[str, Any] = {"escape": "\\", "escape_unquoted": True, "quote": "", "null_values": [r"\N"]}
    with pytest.raises(pa.ArrowInvalid, match=r"line 2: \\\\N .*options\.null_values"):
        _texts(b"a,b\n" + line + b"\n", **options)
    assert r"\N" in _texts(b"a,b\n" + line + b"\n", **options | {"null_values": [""]})[0]
    row = (rb"x\\N".decode().replace(r"\\", "\\"), None)
    assert _texts(b"a,b\n" + rb"x\\N,\N" + b"\n", **options) == [row]


@pytest.mark.parametrize("text", [rb"a\b", rb"a\\b", rb"\N", rb"C:\x", rb"a" + b"\\"])
def test_an_escape_outside_of_quotes_is_refused(text: bytes) -> None:
    """A backslash outside of quotes is an error unless the option `escape_unquoted` decides.

    Such a backslash is an escape for Python and MySQL, but not for Spark. If it is an escape, it may not stand before a
    letter such as `t`.
    """
    with pytest.raises(pa.ArrowInvalid, match=r"line 2: .*options\.escape_unquoted"):
        _texts(b"a,b\n" + text + b',"x\\"y"\n', escape="\\")
    assert _texts(b"a,b\n" + text + b',"x\\"y"\n', escape="\\", escape_unquoted=False) == [(text.decode(), 'x"y')]
    with pytest.raises(pa.ArrowInvalid, match=r"line 2: \\t"):
        _texts(b"a,b\nx,y\\tz\n", escape="\\", escape_unquoted=True)


def _python(**how: Any) -> Any:
    def write(columns: dict[str, _Texts]) -> bytes:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, **how)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return buffer.getvalue().encode()

    return write


def _pandas(**how: Any) -> Any:
    return lambda columns: pd.DataFrame(columns, dtype=object).to_csv(index=False, **how).encode()


def _polars(**how: Any) -> Any:
    return lambda columns: pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)).write_csv(**how).encode()


_connected = cache(duckdb.connect)


def _duckdb(columns: dict[str, _Texts], how: str = "") -> bytes:
    table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    with tempfile.TemporaryDirectory() as folder:
        _connected().from_arrow(table).query("t", f"copy t to '{folder}/a.csv' (header true{how})")
        return (Path(folder) / "a.csv").read_bytes()


def _arrow(columns: dict[str, _Texts]) -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns])), sink)
    return bytes(sink.getvalue())


_BACKSLASH = {"escape": "\\", "escape_unquoted": True}
_EMPTY, _NULL = "an empty text", "null"
_WRITERS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "python": (_python(), {"escape": ""}, (_EMPTY, _NULL)),
    "python all": (_python(quoting=csv.QUOTE_ALL), {"escape": ""}, (_NULL, _EMPTY)),
    "python nonnumeric": (_python(quoting=csv.QUOTE_NONNUMERIC), {"escape": ""}, (_NULL, _EMPTY)),
    "python none": (_python(quoting=csv.QUOTE_NONE, escapechar="\\"), _BACKSLASH, (_EMPTY, _NULL)),
    "python escape": (_python(escapechar="\\", doublequote=False), _BACKSLASH, (_EMPTY, _NULL)),
    "python semicolon": (
        _python(delimiter=";", quotechar="'"),
        {"delimiter": ";", "quote": "'", "escape": ""},
        (_EMPTY, _NULL),
    ),
    "pandas": (_pandas(lineterminator="\r\n"), {"escape": ""}, (_EMPTY, _NULL)),
    "pandas escape": (_pandas(lineterminator="\r\n", escapechar="\\", doublequote=False), _BACKSLASH, (_EMPTY, _NULL)),
    "polars": (_polars(), {"escape": ""}, ()),
    "polars always": (_polars(quote_style="always"), {"escape": ""}, (_NULL, _EMPTY)),
    "duckdb": (_duckdb, {"escape": ""}, ()),
    "duckdb all": (lambda columns: _duckdb(columns, ", force_quote *"), {"escape": ""}, ()),
    "duckdb escape": (lambda columns: _duckdb(columns, r", escape '\'"), {**_BACKSLASH, "escape_unquoted": False}, ()),
    "arrow": (_arrow, {"escape": ""}, ()),
}
"""By name: the function that writes, the options that describe it, and which values it writes alike."""
_ODD = [
    *(
        "a",
        "é☃",
        "😀",
        'a"b',
        'say "hi"',
        '"',
        '""',
        "a\\",
        "\\",
        "a\\b",
        'a\\"b',
        "x,y",
        'x, "y"\\',
        "a,b\\",
        "\\\\srv",
    ),
    *("l1\nl2", "l1\r\nl2", "l1\rl2", " lead", "trail ", " ", "", None, "a\\nb, c", "\\N", "NULL", "None", "NA", "nan"),
    *("'", "#c", "a;b", "x|y", "\u2028", "1", "01", "true", '"x" y', ' "q"', ",", "\n", "\r", "\t"),
]


@pytest.mark.parametrize("writer", _WRITERS)
@given(st.lists(st.tuples(st.sampled_from(_ODD), st.sampled_from(_ODD)), min_size=1, max_size=5))
def test_texts_are_read_back_with_all_options(writer: str, rows: list[tuple[str | None, str | None]]) -> None:
    """With options that describe the writer, all texts are read back exactly.

    Some writers write null and an empty text alike. Depending on the writer, both are read as null, or both as an
    empty text.
    """
    write, options, confused_values = _WRITERS[writer]
    columns: dict[str, _Texts] = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    texts = _texts(write(columns), **options)
    if confused_values:
        one, other = ({_EMPTY: "", _NULL: None}[what] for what in confused_values)
        rows = [tuple(other if text == one else text for text in row) for row in rows]
    assert texts == rows


@pytest.mark.parametrize("writer", _WRITERS)
@given(st.lists(st.tuples(st.sampled_from(_ODD), st.sampled_from(_ODD)), min_size=1, max_size=5))
def test_texts_are_read_back_or_refused_without_options(writer: str, rows: list[tuple[str | None, str | None]]) -> None:
    """Without options, texts are read back exactly or refused, if delimiter and quote are the usual ones.

    Some writers write null and an empty text alike. Depending on the writer, both are read as null, or both as an
    empty text.
    """
    write, options, confused_values = _WRITERS[writer]
    if "delimiter" in options:
        return
    columns: dict[str, _Texts] = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    try:
        texts = _texts(write(columns))
    except (pa.ArrowInvalid, TableFormatError) as error:
        expected_messages = ("set options.", "Expected 2 columns", "lines end in carriage returns")
        assert any(part in str(error) for part in expected_messages)  # noqa: PT017
        return
    nothing = confused_values[1:] == (_EMPTY,)
    assert texts == [
        tuple("" if nothing and not text else text or None if confused_values else text for text in row) for row in rows
    ]


@pytest.mark.parametrize("writer", [name for name, (_, options, _) in _WRITERS.items() if "escape_unquoted" in options])
@given(st.lists(st.tuples(st.sampled_from(_ODD), st.sampled_from(_ODD)), min_size=1, max_size=5))
def test_texts_are_read_back_or_refused_with_some_options(
    writer: str, rows: list[tuple[str | None, str | None]]
) -> None:
    """With only the escape as an option, texts are read back exactly or refused.

    If a writer writes null and an empty text alike, both are read as null.
    """
    write, _, confused_values = _WRITERS[writer]
    columns: dict[str, _Texts] = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    try:
        texts = _texts(write(columns), escape="\\")
    except (pa.ArrowInvalid, TableFormatError) as error:
        assert "options.escape_unquoted" in str(error)  # noqa: PT017
        return
    if confused_values:
        rows = [tuple(text or None for text in row) for row in rows]
    assert texts == rows
