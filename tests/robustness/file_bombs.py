"""Files and tables that claim or decompress to far more than they contain, or never end.

They are plain files, Hudi tables and folders.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.table_writers import DAYS
from tests.robustness.bomb_encoders import gzipped, long, varint


def _file(name: str, content: Callable[[], bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / name).write_bytes(content())

    return write


def _claimed_rows(folder: Path) -> None:
    """Write a Parquet file of a hundred rows whose footer claims 2^60 rows.

    Another file in the folder has one column more.
    """
    folder.mkdir()
    pq.write_table(pa.table({"a": [1], "b": [2]}), folder / "a.parquet")
    path = folder / "b.parquet"
    pq.write_table(pa.table({"a": list(range(100))}), path)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    old, new = b"\x16" + long(100), b"\x16" + long(1 << 60)
    footer = data[-8 - size : -8].replace(old, new)
    path.write_bytes(data[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _orc(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return a writer of an ORC file with a decimal column and a changed, uncompressed footer."""

    def write(folder: Path) -> None:
        folder.mkdir()
        path = folder / "a.orc"
        decimals = pa.array(range(100)).cast(pa.decimal128(31, 7))
        orc.write_table(pa.table({"a": decimals}), path, compression="uncompressed")
        data = path.read_bytes()
        postscript = data[-1 - data[-1] : -1]
        assert postscript[:1] == b"\x08", "the length of the footer comes first"
        size, width = _number(postscript[1:])
        start = len(data) - 1 - data[-1] - size
        footer = change(data[start : start + size])
        postscript = b"\x08" + varint(len(footer)) + postscript[1 + width :]
        path.write_bytes(data[:start] + footer + postscript + bytes([len(postscript)]))

    return write


def _number(data: bytes) -> tuple[int, int]:
    """Return the varint at the beginning of the data, and its length in bytes."""
    width = next(at for at, byte in enumerate(data, 1) if byte < 0x80)
    return sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(data[:width])), width


def _as_many(footer: bytes, key: bytes) -> bytes:
    """Return the footer with the number 2^40 in place of each 100 that follows `key`.

    Both numbers are varints.
    """
    return footer.replace(key + varint(100), key + varint(1 << 40))


def _replaced(old: bytes, new: bytes, count: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert data.count(old) == count, (old, data)
        return data.replace(old, new)

    return change


def _hudi(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return a writer of a Hudi table that changes the first file that matches the pattern."""

    def write(folder: Path) -> None:
        table = (HudiMergeOnRead if ".log." in pattern else HudiCopyOnWrite)(folder)
        table.append([(0, "a", DAYS[0]), (1, "b", DAYS[0])])
        table.delete([0])
        path = sorted(folder.glob(pattern))[0]
        path.write_bytes(change(path.read_bytes()))

    return write


def _linked(folder: Path) -> None:
    """Write a folder with a link to itself."""
    (folder / "a").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), folder / "a" / "1.parquet")
    (folder / "a" / "b").symlink_to(folder)


def _circle(folder: Path) -> None:
    """Write links that refer to each other."""
    folder.mkdir()
    (folder / "1.parquet").symlink_to(folder / "2.parquet")
    (folder / "2.parquet").symlink_to(folder / "1.parquet")


def _pipe(folder: Path) -> None:
    """Create a pipe without a writer, named like a data file."""
    folder.mkdir()
    os.mkfifo(folder / "1.parquet")


def _endless(folder: Path) -> None:
    """Write a Delta log whose only entry is a link to a file without end."""
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").symlink_to("/dev/zero")


_DEEP = 120

FILE_BOMBS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "parquet rows": (_claimed_rows, r"b\.parquet.*rows in one file; at most"),
    "orc digits": (_orc(_replaced(b"\x28\x1f\x30\x07", b"\x28\x2c\x30\x07", 1)), r"a\.orc.*decimal\(44,7\)"),
    "orc rows": (
        _orc(
            lambda footer: footer.replace(b"\x28\x64", b"\x28" + varint(1 << 40)).replace(
                b"\x30\x64", b"\x30" + varint(1 << 40)
            )
        ),
        r"a\.orc.*",
    ),
    "json line": (
        _file("a.json", lambda: b'{"a": 1}\n{"a": "' + b"x" * (65 << 20) + b'"}\n'),
        r"a\.json.*line 2: it is longer than 67,108,864 bytes",
    ),
    "json packed line": (_file("a.json.gz", gzipped), r"a\.json\.gz.*contains NUL bytes"),
    "json packed blanks": (
        _file("a.json.gz", lambda: gzip.compress(b" " * (64 << 20)) * 13),
        r"a\.json\.gz.*line 1: it is longer than 67,108,864 bytes",
    ),
    "json values": (
        _file("a.json", lambda: b'{"a": [' + b"[]," * 3_000_000 + b"[]]}"),
        r"a\.json.*line 1: it has more than 5,000,000 values",
    ),
    "json deep": (
        _file("a.json", lambda: b'{"a": 1}\n' + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP),
        r"a\.json.*line 2: it is nested too deeply: more than 100 levels",
    ),
    "json deeper": (
        _file("a.json", lambda: b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        r"a\.json.*line 1: it is nested too deeply",
    ),
    "json digits": (_file("a.json", lambda: b'{"a": ' + b"9" * 1_000_000 + b"}"), r"a\.json.*line 1: .*4300 digits"),
    "json keys": (
        _file("a.json", lambda: json.dumps({f"k{number}": 1 for number in range(10_001)}).encode()),
        r"a\.json.*line 1: its objects have more than 10000 different keys",
    ),
    "csv row": (
        _file("a.csv", lambda: b"a,b\n1,2\n3," + b"x" * (17 << 20) + b"\n"),
        r"a\.csv.*line 3: the row is longer than 16,777,216 bytes",
    ),
    "csv packed": (
        _file("a.csv.xz", lambda: lzma.compress(bytes(64 << 20), preset=0) * 13),
        r"a\.csv\.xz.*contains NUL bytes",
    ),
    "csv columns": (
        _file("a.csv", lambda: b"," * 200_000 + b"\n"),
        r"a\.csv.*line 1: it has 200,001 columns; at most 100,000",
    ),
    "hudi commit": (_hudi(".hoodie/*.commit", lambda _: b'{"x":' * 100_000), r"\.commit.*nested too deeply"),
    "hudi numbers": (
        _hudi(".hoodie/*.commit", lambda data: data.replace(b'"numWrites": 2', b'"numWrites": "2"')),
        r"\.commit.*numWrites is '2', not a whole number",
    ),
    "hudi version": (
        _hudi(".hoodie/hoodie.properties", lambda data: data.replace(b"table.version=6", "table.version=²".encode())),
        r"version ²",
    ),
    "hudi log": (
        _hudi("day=*/.*.log.*", lambda data: data[:6] + struct.pack(">Q", 1 << 60) + data[14:]),
        r"\.log\..*ends inside the block at byte 0",
    ),
    "linked": (_linked, r"is a symbolic link to a folder that contains it"),
    "circle": (_circle, r"symbolic links.*1\.parquet"),
    "pipe": (_pipe, r"1\.parquet.*a device or a pipe"),
    "endless": (_endless, r"0\.json.*a device or a pipe"),
}
"""Bombs by name: a function that writes the table, and a pattern of the error."""
