"""JSON lines have one type per key that holds every value exactly, or are refused.

If no type holds two values, the error has the positions of both.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.formats.files.json import reader as json_lines
from metastore_assets.storage.compression import open_decompressed
from tests.formats.oracle import read_columns


def test_many_blank_lines_are_skipped_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 million blank lines, in a small compressed file, are skipped in less than three seconds.

    The error about a bad line has the number of that line, whatever the size of reads.
    """
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"\n" * 30_000_000 + b'{"a": 1}\n'))
    start = process_time()
    summary = json_lines.JsonReader().summarize(
        lambda: open_decompressed(pa.OSFile(str(tmp_path / "a.json.gz")), "a.json.gz")
    )
    assert summary.row_count == 1
    assert process_time() - start < 3
    content = b'\xef\xbb\xbf\n \r\n{"a": 1}\r\n\n\t\n  {"a": 2} \n\n' + b" " * 50 + b'\n{"a": 3}\n{"a": }'
    for size in range(1, 40):
        monkeypatch.setattr(json_lines, "_BUFFER", size)
        with pytest.raises(pa.ArrowInvalid, match=r"^line 10: "):
            json_lines.JsonReader().summarize(lambda: pa.BufferReader(content))
        assert json_lines.JsonReader().summarize(lambda: pa.BufferReader(content[:-7])).row_count == 3


def _snapshot(folder: Path, *contents: str) -> Snapshot:
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(content, encoding="utf-8", newline="")
    return open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()


_LIST = pa.list_(pa.field("element", pa.int64()))
_TYPED: list[tuple[list[str], pa.DataType, list[Any]]] = [
    (["1", "null", "-9223372036854775808"], pa.int64(), [1, None, -(2**63)]),
    (["9007199254740993", "18446744073709551615"], pa.uint64(), [2**53 + 1, 2**64 - 1]),
    (["-1", "18446744073709551615"], pa.decimal128(38, 0), [Decimal(-1), Decimal(2**64 - 1)]),
    (["1", "1.5", "-1e3", "9007199254740992"], pa.float64(), [1.0, 1.5, -1000.0, 2.0**53]),
    (["NaN", "-Infinity"], pa.float64(), None),
    (["true", "null"], pa.bool_(), [True, None]),
    (['"2024-01-01T00:00:00Z"', '""', '"é\\u00e9\\n"'], pa.string(), ["2024-01-01T00:00:00Z", "", "éé\n"]),
    (["null", "null"], pa.null(), [None, None]),
    (["[1, null]", "[]", "null"], _LIST, [[1, None], [], None]),
    (
        ['{"x": 1}', '{"y": "a", "x": 2.5}', "{}", "null"],
        pa.struct([("x", pa.float64()), ("y", pa.string())]),
        [{"x": 1.0, "y": None}, {"x": 2.5, "y": "a"}, {"x": None, "y": None}, None],
    ),
    (["{}", "null"], pa.string(), ["{}", None]),
]


@pytest.mark.parametrize(("texts", "type_", "values"), _TYPED, ids=[" ".join(texts) for texts, _, _ in _TYPED])
def test_the_inferred_type_represents_every_value(
    tmp_path: Path, texts: list[str], type_: pa.DataType, values: list[Any] | None
) -> None:
    """The type of a key holds all its values exactly, and is the same for one file per value.

    A missing key is null. Columns have the order of the keys.
    """
    together, separate = tmp_path / "together", tmp_path / "apart"
    for folder in (together, separate):
        folder.mkdir()
    lines = [f'{{"k": {row}, "a": {text}}}\n' for row, text in enumerate(texts)]
    snapshot = _snapshot(together, "".join(lines) + '\n \r\n{"k": 99}')
    assert snapshot.schema == pa.schema([("k", pa.int64()), ("a", type_)])
    columns = read_columns(snapshot)
    assert columns["k"] == [*range(len(texts)), 99]
    if values is not None:
        assert columns["a"] == [*values, None]
    assert snapshot.fragments[0].row_count == len(texts) + 1
    split = _snapshot(separate, *lines)
    assert split.schema == snapshot.schema
    if values is not None:
        read = read_columns(split)
        assert [
            value for _, value in sorted(zip(read["k"], read["a"], strict=True), key=lambda pair: pair[0])
        ] == values


_CONFLICTS = [
    ("1", '"x"', "number .*0.json, line 1.*text .*1.json, line 2"),
    ("true", "1.5", "boolean .*0.json, line 1.*number .*1.json, line 2"),
    ("[]", "{}", "array .*object "),
    ('{"b": [1, 2.5]}', '{"b": ["x"]}', "'a.b.element'.*number .*text "),
    ("9007199254740993", "0.5", r"2\^53 .*0.json, line 1"),
    ("1", "1" + "0" * 38, r"\b39\b"),
]


@pytest.mark.parametrize(("one", "other", "message"), _CONFLICTS)
def test_values_without_a_common_type_are_refused(tmp_path: Path, one: str, other: str, message: str) -> None:
    """The error for values without a common type says where each kind of value occurs first.

    It also has the column.
    """
    with pytest.raises(TableFormatError, match=f"column .*{message}"):
        _snapshot(tmp_path, f'{{"a": {one}}}\n', f'{{"b": 1}}\n{{"a": {other}}}\n')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1}, {"a": 2}]', r"line 1 is no object\b"),
        ('{\n "a": 1\n}\n', r"line 1: .*\bcolumn 2\b"),
        ('{"a": 1}\n{"a": 2', r"line 2: .*\bcolumn 8\b"),
        ('{"a": 1} {"a": 2}\n', r"line 1: .*\bcolumn 10\b"),
        ('{"a": 1},\n{"a": 2},\n', r"line 1: .*\bcolumn 9\b"),
        ('{"a": 1}{"a": 2}', r"line 1\b.*AppendDelimiterToRecord"),
        ('{"a": 1}\n5\n', r"line 2 is no object\b"),
        ('{"a": 1, "a": 2}\n', r"line 1: an object\b.*\bkey\b"),
        ('{"a": 1e400}\n', r"line 1\b.*\b1e400\b"),
        (
            '{"a": 0e-400}\n{"a": -0.01e-400}\n',
            r"line 2\b.*-0\.01e-400\b",
        ),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
        ("".join(f'{{"k{number}": 1}}\n' for number in range(10_001)), r"\b10000\b"),
    ],
)
def test_malformed_lines_are_refused_with_the_line(tmp_path: Path, content: str, message: str) -> None:
    """If the only file of a table is malformed, planning the table is an error with file and message.

    If there is a valid file, too, the table can be planned. Opening the malformed file is then an error.
    """
    with pytest.raises(TableFormatError, match=rf"0\.json.*{message}"):
        _snapshot(tmp_path, content)
    snapshot = _snapshot(tmp_path, content, '{"a": 7}\n')
    bad, good = sorted(snapshot.fragments, key=lambda fragment: fragment.path)
    assert read_columns(snapshot, [good]) == {"a": [7]}
    with pytest.raises(FragmentError, match=rf"0\.json.*{message}") as error_info:
        bad.source.open()
    assert error_info.value.path == str(tmp_path / "0.json")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.ndjson.zst", "a.json.bz2", "a.json.lz4"])
def test_compressed_files(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file is read in batches.

    A truncated file is an error.
    """
    monkeypatch.setattr(json_lines, "_BATCH_ROWS", 10)
    content = "".join(f'{{"a": {number}}}\n' for number in range(1000)).encode()
    codec = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "lz4": "lz4"}[name.rpartition(".")[2]]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    data = sink.getvalue().to_pybytes()
    (tmp_path / name).write_bytes(data)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    assert read_columns(table.snapshot()) == {"a": list(range(1000))}
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(TableFormatError, match=name):
        table.snapshot()


def test_files_that_contradict_their_names(tmp_path: Path) -> None:
    """Plain text in .gz, and text after a byte order mark, are read.

    UTF-16, other bytes that are not UTF-8, and gzip in gzip are refused.
    """
    (tmp_path / "a.json.gz").write_bytes(b'{"a": 1}\n')
    assert read_columns(_snapshot(tmp_path)) == {"a": [1]}
    (tmp_path / "a.json.gz").write_bytes(gzip.compress('{"a": 1}\n'.encode("utf-16")))
    with pytest.raises(TableFormatError, match="UTF-16"):
        _snapshot(tmp_path)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": "\xe9"}\n'))
    with pytest.raises(TableFormatError, match=r"a\.json\.gz.*line 2: .*'utf-8'"):
        _snapshot(tmp_path)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(gzip.compress(b'{"a": 1}\n')))
    with pytest.raises(TableFormatError, match=r"a\.json\.gz.*\bgzip\b"):
        _snapshot(tmp_path)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress('{"a": 1}\n'.encode("utf-8-sig")))
    assert read_columns(_snapshot(tmp_path)) == {"a": [1]}


_SCALARS = st.none() | st.integers(-(2**63), 2**63 - 1)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        "i": _SCALARS,
        "t": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "b": st.none() | st.booleans(),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "l": st.none() | st.lists(_SCALARS, max_size=3),
        "s": st.fixed_dictionaries({}, optional={"x": _SCALARS, "l": st.lists(st.booleans(), max_size=2)}),
    },
)


@given(st.lists(_ROWS, min_size=1, max_size=8).filter(any))
def test_rows_that_python_writes_are_read_back(rows: list[dict[str, Any]]) -> None:
    """Random rows that Python writes as JSON lines are read back.

    Missing keys are null. An object without keys is an object of nulls, or the text `{}` if no object of the column has
    keys.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        snapshot = open_table_format(TableConfig(name="t", uri=folder)).snapshot()
        columns = read_columns(snapshot)
    for name, values in columns.items():
        expected = [row.get(name) for row in rows]
        if pa.types.is_struct(snapshot.schema.field(name).type):
            keys = snapshot.schema.field(name).type.names
            expected = [row and {key: row.get(key) for key in keys} if row is not None else None for row in expected]
            expected = [dict.fromkeys(keys) if row == {} else row for row in expected]
        elif name == "s":
            expected = [None if row is None else "{}" for row in expected]
        assert values == expected
    assert set(columns) == {name for row in rows for name in row}


def test_objects_without_keys_are_refused(tmp_path: Path) -> None:
    """A table is refused if no object in its files has keys, because it would have no columns.

    Otherwise, `{}` is a row of nulls.
    """
    with pytest.raises(TableFormatError, match=r"\bkey\b"):
        _snapshot(tmp_path, "{}\n{}\n")
    assert read_columns(_snapshot(tmp_path, "{}\n{}\n", '{"a": 1}\n'))["a"].count(None) == 2


def test_partition_columns_are_text(tmp_path: Path) -> None:
    """The partition column is text, even if a file above the partition folders stores numbers in it."""
    (tmp_path / "d=1").mkdir()
    (tmp_path / "d=1" / "a.json").write_text('{"a": 1}\n')
    (tmp_path / "b.json").write_text('{"a": 2, "d": 7}\n')
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot())
    assert sorted(zip(columns["a"], columns["d"], strict=True)) == [(1, "1"), (2, "7")]
