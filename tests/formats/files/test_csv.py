"""CSV files: options, types that fit every value of every file, and rows that cannot be parsed.

A fragment is one data file of a table.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import tempfile
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, FragmentError, TableFormatError
from metastore_assets.formats import Snapshot, TableFormat, open_table_format
from metastore_assets.formats.files.csv import reader as csv_files
from metastore_assets.formats.files.csv import types
from metastore_assets.formats.files.csv.types import ALL, misfits
from tests.formats.oracle import read_columns


def _table(folder: Path, **options: Any) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), options=options))


def _read(folder: Path, **options: Any) -> dict[str, list[Any]]:
    return read_columns(_table(folder, **options).snapshot())


def _snapshot_of(folder: Path, *contents: str) -> Snapshot:
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_text(content, encoding="utf-8", newline="")
    return _table(folder).snapshot()


_NAIVE = "2024-01-01 10:00:00"
_TYPED = [
    (["1", "-9223372036854775808", ""], pa.int64(), [1, -(2**63), None]),
    ([" 7\t", " 8 ", "+9", "-0"], pa.int64(), [7, 8, 9, 0]),
    (["007", " 8 "], pa.string(), ["007", " 8 "]),
    (["1", "01234"], pa.string(), ["1", "01234"]),
    (["00"], pa.string(), ["00"]),
    (["-01"], pa.string(), ["-01"]),
    (["+07", "1"], pa.string(), ["+07", "1"]),
    (["007.5"], pa.string(), ["007.5"]),
    (["01e5"], pa.string(), ["01e5"]),
    (["0.5", "0", "-0", "1e05", "1E-07"], pa.float64(), [0.5, 0.0, 0.0, 1e5, 1e-7]),
    (["1", "18446744073709551615"], pa.uint64(), [1, 2**64 - 1]),
    (["-1", "18446744073709551615"], pa.string(), ["-1", "18446744073709551615"]),
    (["1", "1.5", ""], pa.float64(), [1.0, 1.5, None]),
    (["9007199254740993", "1.5"], pa.string(), ["9007199254740993", "1.5"]),
    (["9007199254740992", "-9007199254740992", "1.5"], pa.float64(), [2.0**53, -(2.0**53), 1.5]),
    (["1" + "0" * 30, "1.5"], pa.string(), ["1" + "0" * 30, "1.5"]),
    (["1e-400", "1.5"], pa.string(), ["1e-400", "1.5"]),
    (["nan(1)"], pa.string(), ["nan(1)"]),
    (["1e3", "-inf", "0.1"], pa.float64(), [1000.0, float("-inf"), 0.1]),
    (["true", "False", ""], pa.bool_(), [True, False, None]),
    ([" true", "false ", "\tTRUE"], pa.bool_(), [True, False, True]),
    (["0", "true"], pa.string(), ["0", "true"]),
    (["0x10", "1"], pa.string(), ["0x10", "1"]),
    (["1e400", "1.5"], pa.string(), ["1e400", "1.5"]),
    (["Infinity", "-inf"], pa.float64(), [float("inf"), float("-inf")]),
    (["2024-01-01", "0001-12-31", ""], pa.date32(), [date(2024, 1, 1), date(1, 12, 31), None]),
    ([_NAIVE, "2024-01-02"], pa.timestamp("us"), [datetime(2024, 1, 1, 10), datetime(2024, 1, 2)]),
    (
        [_NAIVE + ".123456", _NAIVE],
        pa.timestamp("us"),
        [datetime(2024, 1, 1, 10, 0, 0, 123456), datetime(2024, 1, 1, 10)],
    ),
    (
        [_NAIVE + "Z", _NAIVE + "+02:00"],
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 1, 10, tzinfo=UTC), datetime(2024, 1, 1, 8, tzinfo=UTC)],
    ),
    ([_NAIVE + "Z", _NAIVE], pa.string(), [_NAIVE + "Z", _NAIVE]),
    ([" 2024-01-01", "2024-01-02 "], pa.date32(), [date(2024, 1, 1), date(2024, 1, 2)]),
    ([f" {_NAIVE}"], pa.timestamp("us"), [datetime(2024, 1, 1, 10)]),
    (["10:00", "23:59:59.5", ""], pa.time64("us"), [time(10), time(23, 59, 59, 500000), None]),
    ([" 10:00 "], pa.time64("us"), [time(10)]),
    (["24:00"], pa.string(), ["24:00"]),
    (["a", "", "NA", "null"], pa.string(), ["a", None, "NA", "null"]),
    (["a", '""', ""], pa.string(), ["a", "", None]),
    (["1", '""', ""], pa.int64(), [1, None, None]),
    (['""', ""], pa.string(), ["", None]),
    ([" a ", " ", "b"], pa.string(), [" a ", " ", "b"]),
    (["1", " "], pa.string(), ["1", " "]),
    (["", ""], pa.null(), [None, None]),
    (["1", "NA"], pa.string(), ["1", "NA"]),
]


@pytest.mark.parametrize(("texts", "type_", "values"), _TYPED, ids=[" ".join(texts) for texts, _, _ in _TYPED])
def test_a_type_fits_every_value(tmp_path: Path, texts: list[str], type_: pa.DataType, values: list[Any]) -> None:
    """The type of a column is the narrowest one without loss.

    The type is the same for values in one file and for one file per value.
    """
    together = tmp_path / "together"
    separate = tmp_path / "apart"
    for folder in (together, separate):
        folder.mkdir()
    snapshot = _snapshot_of(together, "k,value\n" + "".join(f"{row},{text}\n" for row, text in enumerate(texts)))
    assert snapshot.schema.field("value").type == type_
    assert read_columns(snapshot)["value"] == values
    split = _snapshot_of(separate, *(f"k,value\n{row},{text}\n" for row, text in enumerate(texts)))
    assert split.schema == snapshot.schema
    columns = read_columns(split)
    assert [
        value for _, value in sorted(zip(columns["k"], columns["value"], strict=True), key=lambda pair: pair[0])
    ] == values


def test_types_are_inferred_from_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The types of columns are inferred from all rows of all blocks, including the last row."""
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    snapshot = _snapshot_of(tmp_path, "a,b\n" + "1,2\n" * 2000 + "x,2.5\n")
    assert snapshot.schema == pa.schema([("a", pa.string()), ("b", pa.float64())])
    columns = read_columns(snapshot)
    assert columns["a"] == ["1"] * 2000 + ["x"]
    assert columns["b"] == [2.0] * 2000 + [2.5]
    assert snapshot.fragments[0].row_count == 2001


_CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=10))
def test_texts_that_python_writes_are_read_back(rows: list[tuple[str, str]]) -> None:
    """Values with quotes, delimiters and newlines are read back, if the columns are recognised as text."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["n", "a", "b"])
    writer.writerows([("x", *row) for row in rows])
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.csv").write_text(buffer.getvalue(), encoding="utf-8", newline="")
        table = _table(Path(name), header=True)
        snapshot = table.snapshot()
        expected_schema = pa.schema([(column, pa.string()) for column in "nab"])
        for field, actual in zip(expected_schema, snapshot.schema, strict=True):
            if actual.type != field.type:
                return  # Texts that are all numbers or empty get another type.
        columns = read_columns(snapshot)
    assert list(zip(columns["a"], columns["b"], strict=True)) == rows


def test_a_file_without_header_has_numbered_columns(tmp_path: Path) -> None:
    """The columns of a file without a header are named f0, f1, …, as by pyarrow."""
    (tmp_path / "a.csv").write_text("1,x\n2,y\n")
    assert _read(tmp_path, header=False) == {"f0": [1, 2], "f1": ["x", "y"]}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_delimiter_and_quote(tmp_path: Path, name: str) -> None:
    """The options `delimiter` and `quote` apply to .csv and .tsv files.

    The default delimiter of .tsv files is a tab. Without a quote character, quotes are part of values.
    """
    (tmp_path / name).write_text("a\tb\n1\t'x\ty'\n")
    assert _read(tmp_path, delimiter=r"\t", quote="'") == {"a": [1], "b": ["x\ty"]}
    (tmp_path / name).write_text('a;b\n1;"x\n')
    assert _read(tmp_path, delimiter=";", quote=None) == {"a": [1], "b": ['"x']}
    if name == "a.tsv":
        (tmp_path / name).write_text("a\tb\n1\t2\n")
        assert _read(tmp_path) == {"a": [1], "b": [2]}


def test_an_escape_takes_the_next_character_as_it_is(tmp_path: Path) -> None:
    """A delimiter, quote or line end after an escape is part of the value.

    The options `escape` and `escape_unquoted` are set.
    """
    (tmp_path / "a.csv").write_text('a,b\n1,x\\,y\n2,"q\\"r"\n3,s\\\nt\n')
    assert _read(tmp_path, escape="\\", escape_unquoted=True) == {"a": [1, 2, 3], "b": ["x,y", 'q"r', "s\nt"]}


@pytest.mark.parametrize("content", ['a,b\n1,"x\n2,y\n', 'a,b\n1,"x, y', 'a,b\n1,z\n2,"x\n3,y\n\n'])
def test_an_unclosed_quote_is_refused(tmp_path: Path, content: str) -> None:
    """A quote that is not closed is an error, which names `options.quote`.

    If the quote is closed, the file is read.
    """
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(TableFormatError, match=r"a\.csv.*options\.quote"):
        _table(tmp_path).snapshot()
    (tmp_path / "a.csv").write_text(content.rstrip("\n") + '"')
    assert _table(tmp_path).snapshot().fragments[0].row_count in (1, 2)


@pytest.mark.parametrize(
    ("content", "spelled_delimiter"), [("a;b\n1;2\n", "';'"), ("x|y\nz|\n", r"'\|'"), ("a\tb\n1\t2\n", r"'\\\\t'")]
)
def test_a_column_with_another_delimiter_is_refused(tmp_path: Path, content: str, spelled_delimiter: str) -> None:
    """A file of one column is refused if it seems to have another delimiter.

    This is so if every row has the same number of semicolons, bars or tabs, at least one.
    """
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(
        TableFormatError, match=rf"\b1 {spelled_delimiter}.*','.*options\.delimiter.*{spelled_delimiter}"
    ):
        _table(tmp_path, header=True).snapshot()


@pytest.mark.parametrize("content", ["name;price\n", "name;price\nfoo;1,5\nbar;2,5\n", "a,b;c\nx;1,5,6\n"])
@pytest.mark.parametrize("options", [{}, {"header": True}], ids=str)
def test_errors_of_row_widths_name_another_delimiter(tmp_path: Path, content: str, options: dict[str, Any]) -> None:
    """An error of row widths names the delimiter to set.

    The file has a header alone, or rows that are wider or narrower than the header.
    """
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(TableFormatError, match=r"options\.delimiter.*';'"):
        _table(tmp_path, **options).snapshot()
    assert _table(tmp_path, delimiter=";", header=True).snapshot().fragments[0].row_count == content.count("\n") - 1


@given(
    st.lists(st.from_regex(r"-?[0-9]{1,3}|-?[0-9]{14,20}|[0-9].[0-9]|true||", fullmatch=True), min_size=1, max_size=4)
)
def test_short_integers_get_the_types_that_arrow_finds(texts: list[str]) -> None:
    """`misfits` parses a few short texts in Python, and finds the same types as with Arrow.

    The result has, for each candidate type, the index of the first text that does not fit.
    """
    for candidates in (ALL, frozenset([pa.int64(), pa.string()])):
        few = misfits(pa.array(texts), candidates)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(types, "_MAX_PYTHON_VALUES", 0)
            assert few == misfits(pa.array(texts), candidates)


def test_null_values(tmp_path: Path) -> None:
    """Configured texts mean null in every column.

    With the option `null_values`, an empty text is null only if it is one of the configured texts.
    """
    (tmp_path / "a.csv").write_text("a,b,c\n1,NA,x\nNA,y,\n-,NA,z\n")
    assert _read(tmp_path, null_values=["NA", "-"]) == {
        "a": [1, None, None],
        "b": [None, "y", None],
        "c": ["x", "", "z"],
    }
    assert _read(tmp_path, null_values=["", "NA", "-"])["c"] == ["x", None, "z"]
    (tmp_path / "a.csv").write_text('a,b,c\n1,"NA",\n2,NA,3\n')
    assert _read(tmp_path, null_values=["NA"]) == {"a": [1, 2], "b": [None, None], "c": ["", "3"]}
    assert _read(tmp_path, null_values=[]) == {"a": [1, 2], "b": ["NA", "NA"], "c": ["", "3"]}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "cp1252", "utf-8-sig"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    """Names and values are decoded, including a quoted value at the end of a long file."""
    content = "b,né\n" + "1,façon\n" * 100 + '2,"x, y"\n'
    (tmp_path / "a.csv").write_text(content, encoding=encoding)
    columns = _read(tmp_path, encoding="utf8" if encoding == "utf-8-sig" else encoding)
    assert columns == {"b": [1] * 100 + [2], "né": ["façon"] * 100 + ["x, y"]}


def test_a_wrong_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    """The error for a byte that is invalid in the encoding names the line and `options.encoding`."""
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,"x\ny"\n\n2,fa\xe7on\n')
    with pytest.raises(TableFormatError, match=r"a\.csv: .*line 5\b.*options\.encoding"):
        _table(tmp_path).snapshot()


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", None)])
def test_compressed_files(tmp_path: Path, suffix: str, pack: Any) -> None:
    """A compressed file is read.

    The size of its fragment is that of the compressed file.
    """
    content = b"a,b\n" + b"1,x\n" * 1000
    data = pa.compress(content, codec="zstd", asbytes=True) if pack is None else pack(content)
    (tmp_path / f"a.csv{suffix}").write_bytes(data)
    snapshot = _table(tmp_path).snapshot()
    assert snapshot.fragments[0].bytes == len(data)
    assert read_columns(snapshot) == {"a": [1] * 1000, "b": ["x"] * 1000}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a,b\n1,2\n3\n", "line 3: Expected 2 columns, got 1"),
        ("a,b\n1,2,3\n", "line 2: Expected 2 columns, got 3"),
        ('a,b\n"x\ny",2\n\n"p""q\n",2\n3\n', "line 7: Expected 2 columns, got 1"),
        ("a,b\n" + "1,2\n" * 5000 + "3\n", "line 5002: Expected 2 columns, got 1"),
    ],
)
def test_a_malformed_row_is_refused_with_file_and_line(
    tmp_path: Path, content: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the only file of a table is malformed, planning the table is an error, which names the line.

    If there is a valid file, too, the table can be planned. Opening the malformed file is then an error.
    """
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(TableFormatError, match=rf"bad\.csv.*{line}"):
        _table(tmp_path).snapshot()
    (tmp_path / "good.csv").write_text("a,b\n5,6\n")
    snapshot = _table(tmp_path).snapshot()
    bad, good = sorted(snapshot.fragments, key=lambda fragment: fragment.path)
    assert read_columns(snapshot, [good]) == {"a": [5], "b": [6]}
    assert bad.row_count is None
    with pytest.raises(FragmentError, match=rf"bad\.csv.*{line}") as error_info:
        bad.source.open()
    assert error_info.value.path == str(tmp_path / "bad.csv")


def test_columns_by_name(tmp_path: Path) -> None:
    """Files may have columns in another order, or lack some.

    A duplicate name is refused.
    """
    columns = read_columns(_snapshot_of(tmp_path, "a,b\n1,2\n", "b,c\n3,4\n", "a,b\n", ""))
    rows = sorted(zip(columns["a"], columns["b"], columns["c"], strict=True), key=str)
    assert rows == [(1, 2, None), (None, 3, 4)]
    (tmp_path / "9.csv").write_text("a,a\n1,2\n")
    snapshot = _table(tmp_path).snapshot()
    with pytest.raises(FragmentError, match=r"columns.*'a'"):
        read_columns(snapshot)


def test_partition_columns_stay_text(tmp_path: Path) -> None:
    """A partition column is text, even if a file above the partition folders stores numbers in it."""
    (tmp_path / "day=01").mkdir()
    (tmp_path / "day=01" / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a,day\n2,02\n")
    columns = _read(tmp_path)
    assert sorted(zip(columns["a"], columns["day"], strict=True)) == [(1, "01"), (2, "02")]


def test_other_options_are_other_fragments(tmp_path: Path) -> None:
    """Options change the fragment id, because the same file then has other rows."""
    (tmp_path / "a.csv").write_text("a;b\n1;2\n3;4\n")
    ids = {
        _table(tmp_path, **options).snapshot().fragments[0].id
        for options in ({"delimiter": ";"}, {"delimiter": ",", "header": True}, {"delimiter": ",", "header": False})
    }
    assert len(ids) == 3


def test_the_temporary_folder_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a CSV file is open, its rows are in a temporary file that has no name in any folder.

    So no temporary file remains if the process is killed.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (tmp_path / "a.csv").write_text("a\n1\n")
    snapshot = _table(tmp_path / "a.csv").snapshot()
    with snapshot.fragments[0].source.open() as reader:
        assert list(scratch.iterdir()) == []
        assert reader.row_count == 1
        assert reader.stored_columns == {"a"}
    (tmp_path / "a.csv").write_text("a\n1\n1,2\n")
    with pytest.raises(FragmentError):
        snapshot.fragments[0].source.open()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headr": True}, r"options\.headr = .*header, delimiter"),
        ({"header": "yes"}, r"options\.header = 'yes'"),
        ({"delimiter": "||"}, r"options\.delimiter = '\|\|'"),
        ({"delimiter": ""}, r"options\.delimiter = ''"),
        ({"delimiter": None}, r"options\.delimiter = None"),
        ({"delimiter": "\n"}, r"options\.delimiter = '\\n'"),
        ({"delimiter": '"'}, r"options\.quote = '\"'"),
        ({"escape": ","}, r"options\.escape = ','"),
        ({"quote": 1}, r"options\.quote = 1"),
        ({"encoding": "klingon"}, r"options\.encoding = 'klingon'"),
        ({"encoding": "hex"}, r"options\.encoding = 'hex'"),
        ({"encoding": "a\0b"}, r"options\.encoding = .*"),
        ({"null_values": "NA"}, r"options\.null_values = 'NA'"),
    ],
)
def test_invalid_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error for an invalid option has the table and the option, and for known options the value."""
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(ConfigError, match=f"'t'.*{message}"):
        _table(tmp_path, **options)
