"""Errors about invalid deletion vectors of Delta and Iceberg tables name the files and the fault."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.delta.log_writer import add_file, commit, encode_array, encode_z85, field, metadata, newest, protocol
from tests.formats.iceberg.writer import IcebergWriter, column

_ROWS = pa.table({"a": list(range(10))})
_NAME = "00000000-0000-0000-0000-000000000000"
_GOOD = encode_array([0, 3])


def _bitmaps(*bitmaps: tuple[int, bytes]) -> bytes:
    start = struct.pack("<Iq", 1681511377, len(bitmaps))
    return start + b"".join(struct.pack("<I", key) + bitmap for key, bitmap in bitmaps)


def _arrays(*containers: tuple[int, int, list[int]]) -> bytes:
    """Encode a Roaring bitmap of array containers, given as tuples.

    A tuple has the key, the declared number of values, and the values.
    """
    header = b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    body = b"".join(struct.pack(f"<{len(values)}H", *values) for _, _, values in containers)
    return struct.pack("<II", 12346, len(containers)) + header + b"\0" * 4 * len(containers) + body


def _runs(count: int, *pairs: tuple[int, int]) -> bytes:
    """Encode a Roaring bitmap of one run container.

    `count` is its declared number of values. A pair has the first value of a run and the number of further ones.
    """
    header = struct.pack("<IBHHH", 12347, 1, 0, count - 1, len(pairs))
    return header + b"".join(struct.pack("<HH", *pair) for pair in pairs)


_BROKEN = {
    "empty": (b"", 0, "1681511377"),
    "cut in the head": (_GOOD[:10], 2, r"\b10 bytes\b.*Roaring bitmap"),
    "cut in the values": (_GOOD[:-1], 2, rf"\b{len(_GOOD) - 1} bytes\b.*Roaring bitmap"),
    "longer": (_GOOD + b"\0\0", 2, rf"\b{len(_GOOD) + 2} bytes\b.*\b{len(_GOOD)}$"),
    "magic": (b"\0" + _GOOD[1:], 2, "1681511168.*1681511377"),
    "format": (_bitmaps((0, struct.pack("<II", 99, 0))), 0, "Roaring bitmap"),
    "containers": (_bitmaps((0, struct.pack("<II", 12346, 2**31))), 2, "Roaring bitmap"),
    "claimed bitmaps": (struct.pack("<Iq", 1681511377, 2**40), 2, "Roaring bitmap"),
    "fewer rows": (_GOOD, 3, r"\b2 rows\b.*\b3$"),
    "more rows": (_GOOD, 1, r"\b2 rows\b.*\b1$"),
    "beyond the file": (encode_array([0, 10]), 2, r"\brow 10\b.*\b10 rows\b"),
    "far beyond the file": (encode_array([2**40]), 1, r"\brow 1099511627776\b"),
    "descending": (_bitmaps((0, _arrays((0, 2, [3, 0])))), 2, "Roaring bitmap"),
    "twice": (_bitmaps((0, _arrays((0, 2, [3, 3])))), 2, "Roaring bitmap"),
    "containers in disorder": (_bitmaps((0, _arrays((1, 1, [0]), (0, 1, [0])))), 2, "Roaring bitmap"),
    "bitmaps in disorder": (
        _bitmaps((1, _arrays((0, 1, [0]))), (0, _arrays((0, 1, [0])))),
        2,
        "Roaring bitmap",
    ),
    "bits": (
        _bitmaps((0, struct.pack("<IIHHI", 12346, 1, 0, 4999, 0) + b"\xff" + b"\0" * 8191)),
        5000,
        "Roaring bitmap",
    ),
    "runs": (_bitmaps((0, _runs(2, (0, 65_535), (0, 65_535)))), 2, "Roaring bitmap"),
    "no runs": (_bitmaps((0, _runs(1))), 1, "Roaring bitmap"),
    "runs beyond a container": (_bitmaps((0, _runs(2, (65_535, 1)))), 2, "Roaring bitmap"),
}


def _delta(folder: Path, data: bytes, cardinality: int, storage: str, **changes: Any) -> None:
    """Write a Delta table of one file of ten rows with a deletion vector.

    Args:
        folder: The folder of the table.
        data: The bytes of the deletion vector.
        cardinality: The number of deleted rows that the log records.
        storage: How the vector is stored: `u` with a relative path, `p` with an absolute path, or `i` inline.
        changes: Fields of the vector's descriptor that are overwritten.
    """
    add = add_file(folder, _ROWS, "data.parquet")
    features = protocol("deletionVectors")
    file_data = b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    file = folder / f"deletion_vector_{_NAME}.bin"
    file.write_bytes(file_data)
    path = {"u": encode_z85(bytes(16)), "p": file.as_uri(), "i": encode_z85(data + b"\0" * (-len(data) % 4))}[storage]
    vector = {"storageType": storage, "pathOrInlineDv": path, "sizeInBytes": len(data), "cardinality": cardinality}
    vector |= {} if storage == "i" else {"offset": 1}
    add["add"] |= {"deletionVector": vector | changes}
    commit(folder, features, metadata([field("a", "long")], **{"delta.enableDeletionVectors": "true"}), add)


def _iceberg(folder: Path, data: bytes, cardinality: int, **changes: Any) -> None:
    writer = IcebergWriter(folder, [column(1, "a", "long")], version=3)
    rows = writer.data(_ROWS)
    vector = writer.deletion_vector(rows["file_path"], [0])
    blob = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    Path(vector["file_path"]).write_bytes(b"PFA1" + blob)
    blob_location = {"content_offset": 4, "content_size_in_bytes": len(blob), "record_count": cardinality}
    writer.commit(rows, vector | blob_location | changes)


def _error(folder: Path) -> str:
    (fragment,) = open_table_format(TableConfig(name="t", uri=str(folder))).snapshot().fragments
    assert fragment.row_count is None or fragment.row_count >= 0
    with pytest.raises(FragmentError) as error_info:
        fragment.source.open()
    assert error_info.value.path == fragment.path
    assert not error_info.value.missing
    return str(error_info.value)


@pytest.mark.parametrize("storage", ["u", "p", "i", "iceberg"])
@pytest.mark.parametrize(("data", "cardinality", "message"), _BROKEN.values(), ids=_BROKEN)
def test_an_invalid_vector_is_an_error(
    tmp_path: Path, data: bytes, cardinality: int, message: str, storage: str
) -> None:
    """The error for a deletion vector with invalid bytes names the data file and the fault.

    The checksum of the bytes is right. If the vector is not inline, the error also names its file.
    """
    if storage == "iceberg":
        _iceberg(tmp_path / "t", data, cardinality)
        where = r"\.parquet: .*\.puffin"
    else:
        _delta(tmp_path / "t", data, cardinality, storage)
        where = r"data\.parquet: .*\bdeletion vector\b" + ("" if storage == "i" else rf".*{_NAME}\.bin\b")
    if storage == "iceberg" and not data:
        message = r"\bcontent_size_in_bytes is 8\b"
    assert re.search(f"{where}.*{message}", _error(tmp_path / "t"))


@pytest.mark.parametrize(
    ("storage", "changes", "message"),
    [
        (
            "u",
            {"sizeInBytes": 2**31 - 9},
            rf"\b{2**31 - 1} bytes at 1\b.*\b{len(_GOOD) + 9} bytes\b",
        ),
        ("u", {"offset": 2**31}, r"\bat 2147483648\b"),
        ("p", {"offset": -1}, r"\bat -1\b"),
        ("p", {"sizeInBytes": -7}, "-7 bytes"),
        (
            "u",
            {"sizeInBytes": len(_GOOD) - 2},
            rf"\b{len(_GOOD) - 2} bytes\b.*\bat 1\b.*\b{len(_GOOD)}\b",
        ),
        ("u", {"offset": 0}, r"\bat 0\b.*\b16777216\b"),
        ("u", {"pathOrInlineDv": "abc"}, "'abc'"),
        ("u", {"pathOrInlineDv": "~" * 20}, "'~'"),
        ("u", {"pathOrInlineDv": "#" * 20}, r"\bcharacters exceed\b"),
        ("i", {"pathOrInlineDv": "0" * 11}, r"\b11 characters\b"),
        ("i", {"sizeInBytes": 1000}, r"\b1000 bytes\b"),
        ("i", {"sizeInBytes": 4}, r"\b4 bytes\b"),
        ("u", {"storageType": "x"}, "'x'"),
    ],
)
def test_an_invalid_descriptor_is_an_error(tmp_path: Path, storage: str, changes: dict[str, Any], message: str) -> None:
    """A descriptor whose size, position, path or storage type is invalid is an error.

    A size or position is invalid if it does not fit the vector.
    """
    _delta(tmp_path / "t", _GOOD, 2, storage, **changes)
    assert re.search(rf"data\.parquet: .*\bdeletion vector\b.*{message}", _error(tmp_path / "t"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content_size_in_bytes": 2**62}, rf"\b{2**62} bytes at 4\b.*\b{len(_GOOD) + 12} bytes\b"),
        ({"content_offset": 2**62}, rf"\bat {2**62}\b"),
        ({"content_offset": -4}, r"\bat -4\b"),
        ({"content_size_in_bytes": None}, "content_offset is 4, content_size_in_bytes is None"),
        ({"content_size_in_bytes": -1}, "content_size_in_bytes is -1"),
    ],
)
def test_an_invalid_manifest_entry_is_an_error(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """An Iceberg manifest entry with an invalid position or size of a deletion vector is an error.

    The position or size is outside the file, negative or missing.
    """
    _iceberg(tmp_path / "t", _GOOD, 2, **changes)
    assert re.search(rf"\bdeletion vector\b.*puffin.*{message}", _error(tmp_path / "t"))


def _cut(data: bytes) -> bytes:
    return data[:-3]


def _flipped(data: bytes) -> bytes:
    return data[:-6] + bytes([data[-6] ^ 1]) + data[-5:]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [(_cut, r"\bhas {size} bytes$"), (_flipped, "checksum"), (lambda _: b"", r"\bhas 0 bytes$")],
)
def test_a_damaged_vector_file_is_an_error(
    tmp_path: Path, kind: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    """A truncated, altered or empty file of a deletion vector is an error, which names the file.

    The file is truncated by three bytes, or has a flipped bit. `message` has a placeholder for the size of the damaged
    file.
    """
    if kind == "delta":
        _delta(tmp_path / "t", _GOOD, 2, "u")
    else:
        _iceberg(tmp_path / "t", _GOOD, 2)
    (path,) = (tmp_path / "t").rglob("*.bin" if kind == "delta" else "*.puffin")
    path.write_bytes(damage(path.read_bytes()))
    error = _error(tmp_path / "t")
    assert re.search(message.format(size=path.stat().st_size), error)
    assert path.name in error


def test_the_error_for_positions_beyond_the_data_file_names_the_delete_file(tmp_path: Path) -> None:
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long")])
    rows = writer.data(_ROWS)
    deletes = writer.position_deletes([(rows["file_path"], 2), (rows["file_path"], 77)])
    writer.commit(rows, deletes)
    assert re.search(rf"{re.escape(deletes['file_path'])}\b.*\b77\b", _error(tmp_path / "t"))


def test_a_descriptor_without_a_number_is_an_error(tmp_path: Path) -> None:
    _delta(tmp_path / "t", _GOOD, 2, "u", sizeInBytes=None)
    assert newest(tmp_path / "t", "add")["deletionVector"]["sizeInBytes"] is None
    with pytest.raises(TableFormatError, match=r"0000\.json.*storageType"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path / "t"))).snapshot()
