"""Compressed text files are recognised by their first bytes and read completely.

Truncated files are an error.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.oracle import read_columns

_CONTENTS = {"csv": b"a,b\n1,x\n", "json": b'{"a": 1, "b": "x"}\n'}


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return pack


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": _arrow("zstd"),
    "lz4": _arrow("lz4"),
}
_SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
_DAMAGED = r"\b(damaged|Truncated|decompress failed)\b"
"""Pattern of the errors of readers for damaged compressed data."""


def _read(path: Path, data: bytes) -> dict[str, list[object]]:
    path.write_bytes(data)
    return read_columns(open_table_format(TableConfig(name="t", uri=str(path.parent))).snapshot())


@pytest.mark.parametrize("compression", _PACK)
@pytest.mark.parametrize("kind", _CONTENTS)
@pytest.mark.parametrize("suffix", ["", ".gz", ".lz4"])
def test_content_decides_and_not_the_name(tmp_path: Path, kind: str, compression: str, suffix: str) -> None:
    """A gzip file named `.csv` is decompressed, and plain text named `.csv.gz` is read."""
    path = tmp_path / f"x.{kind}{suffix}"
    assert _read(path, _PACK[compression](_CONTENTS[kind])) == {"a": [1], "b": ["x"]}
    assert _read(path, _CONTENTS[kind]) == {"a": [1], "b": ["x"]}


@pytest.mark.parametrize("compression", _PACK)
@pytest.mark.parametrize("kind", _CONTENTS)
def test_concatenated_files_are_read_completely(tmp_path: Path, kind: str, compression: str) -> None:
    """A file that is a concatenation of compressed files, some of them empty, is read completely."""
    pack, content = _PACK[compression], _CONTENTS[kind]
    more = content.splitlines(keepends=True)[-1]
    members = [content, b"", more * 5_000, more]
    columns = _read(tmp_path / f"x.{kind}", b"".join(map(pack, members)))
    assert columns == {"a": [1] * 5_002, "b": ["x"] * 5_002}


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_zeros_after_a_member_are_ignored(tmp_path: Path, compression: str) -> None:
    """Zeros after a compressed member are ignored.

    Other bytes after them are an error.
    """
    pack, content = _PACK[compression], _CONTENTS["json"]
    padded_data = pack(content) + bytes(512) + pack(content * 50_000) + bytes(3 << 20)
    assert _read(tmp_path / "x.json", padded_data) == {"a": [1] * 50_001, "b": ["x"] * 50_001}
    with pytest.raises(TableFormatError, match=rf"x\.json: .*{_DAMAGED}"):
        _read(tmp_path / "x.json", pack(content) + bytes(512) + b"garbage")


@pytest.mark.parametrize("compression", ["zst", "lz4"])
def test_empty_frames_are_ignored(tmp_path: Path, compression: str) -> None:
    """Frames without data around the first frame with data are ignored.

    Parallel compressors write such frames.
    """
    data = _PACK[compression](_CONTENTS["csv"])
    assert _read(tmp_path / f"x.csv.{compression}", _SKIPPABLE + data + _SKIPPABLE) == {"a": [1], "b": ["x"]}


@pytest.mark.parametrize("compression", _PACK)
@pytest.mark.parametrize("kind", _CONTENTS)
def test_truncated_files_are_refused(tmp_path: Path, kind: str, compression: str) -> None:
    """A file that ends within its first or second member is an error, never fewer rows."""
    data = _PACK[compression](_CONTENTS[kind] * 3)
    all_rows = _read(tmp_path / f"x.{kind}.{compression}", data + data) if kind == "json" else None
    assert all_rows is None or all_rows["a"] == [1] * 6
    for end in {1, 2, 3, 5, 9, len(data) // 2, len(data) - 4, len(data) - 1, len(data) + 2, 2 * len(data) - 1}:
        with pytest.raises(TableFormatError, match=rf"x\.{kind}\.{compression}: .*\bTruncated\b"):
            _read(tmp_path / f"x.{kind}.{compression}", (data + data)[:end])


@pytest.mark.parametrize("compression", _PACK)
def test_corrupt_files_are_refused(tmp_path: Path, compression: str) -> None:
    """A row of plain text after the last compressed member is an error."""
    data = _PACK[compression](_CONTENTS["csv"])
    with pytest.raises(TableFormatError, match=rf"x\.csv: .*{_DAMAGED}"):
        _read(tmp_path / "x.csv", data + b"1,y\n")


def _zip(data: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.csv", data)
    return buffer.getvalue()


def _hadoop(data: bytes) -> bytes:
    packed_data = pa.compress(data, codec="snappy", asbytes=True)
    return len(data).to_bytes(4, "big") + len(packed_data).to_bytes(4, "big") + packed_data


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv.zip", _zip(_CONTENTS["csv"]), r"\bzip\b"),
        ("x.csv", _zip(_CONTENTS["csv"]), r"\bzip\b"),
        ("x.csv.deflate", zlib.compress(_CONTENTS["csv"]), r"\bdeflate\b"),
        ("x.csv", zlib.compress(_CONTENTS["csv"]), r"\bdeflate\b"),
        ("x.csv.snappy", _hadoop(_CONTENTS["csv"]), r"\bsnappy\b.*Hadoop"),
        ("x.csv.lz4", _hadoop(_CONTENTS["csv"]), r"\blz4\b.*Hadoop"),
        ("x.json.br", b"\x0b\x05\x80", r"\bbrotli\b"),
        ("x.csv", b"\xff\x06\0\0sNaPpY", r"\bsnappy\b"),
        ("x.csv.gz", gzip.compress(gzip.compress(_CONTENTS["csv"])), r"\bgzip\b"),
        ("x.csv", b"PAR1\x15\0\x15", "NUL bytes"),
        ("x.json", '{"a": 1}'.encode("utf-16"), "UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsupported_compressions_are_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """The error for an unsupported compression names the file and the compression.

    The compression is known from the file's bytes or its name. For content that is no text in UTF-8, the error says so.
    """
    with pytest.raises(TableFormatError, match=f"{name}: .*{message}"):
        _read(tmp_path / name, data)


def test_the_long_suffix_of_gzip_is_known(tmp_path: Path) -> None:
    """A Parquet file named `.parquet.gzip`, as in the documentation of pandas, is read.

    A CSV file named `.csv.gzip` is decompressed.
    """
    frame = pl.DataFrame({"a": [1]})
    frame.write_parquet(tmp_path / "x.parquet.gzip", compression="gzip")
    (tmp_path / "x.parquet.bak.gzip").write_bytes(b"ignored")
    assert read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()) == {"a": [1]}
    (tmp_path / "csv").mkdir()
    assert _read(tmp_path / "csv" / "x.csv.gzip", gzip.compress(b"id,s\n1,a\n")) == {"id": [1], "s": ["a"]}


def test_parquet_with_the_suffix_of_a_compression(tmp_path: Path) -> None:
    """A Parquet file named `.parquet.gz` is read.

    Parquet inside of a compressed file is refused, because columns cannot be read one by one.
    """
    frame = pl.DataFrame({"a": [1]})
    frame.write_parquet(tmp_path / "x.parquet.gz")
    assert read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()) == {"a": [1]}
    (tmp_path / "x.parquet.gz").write_bytes(gzip.compress((tmp_path / "x.parquet.gz").read_bytes()))
    with pytest.raises(TableFormatError, match=r"x\.parquet\.gz.*\bgzip\b"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
