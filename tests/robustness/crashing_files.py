"""Small files that crash the process that reads them.

Arrow aborts or faults instead of raising an error. Each function returns the bytes of one file, always the same. Do not
read it in the tests' own process. Each file has the column `id`, and another one that causes the crash.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

ROWS = 100


def flipped_repetition() -> bytes:
    """Return a Parquet file with one flipped bit in its footer: the column `s` is declared as required.

    The file was written with the optional column `s`, so its size statistics do not fit.
    `metadata.row_group(0).column(1)`, which has the bounds of `s`, throws an exception that pyarrow does not catch. The
    schema, the number of rows and the column `id` can be read. For the values of `s`, Arrow's reader reports an error.
    """
    sink = io.BytesIO()
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), "s": [f"value {number % 7}" for number in range(ROWS)]})
    pq.write_table(table, sink)
    # Of the column's schema element: its repetition, 1 (optional) or 0 (required) as a zigzag number, then its name.
    return _replaced(sink.getvalue(), b"\x25\x02\x18\x01s", b"\x25\x00\x18\x01s")


def negative_lengths() -> bytes:
    """Return an ORC file with one flipped bit, which gives the maps in `m` negative lengths.

    The lengths are 1, 0, -1, -2, … instead of 1. Reading `m` causes a segmentation fault. The footer and the column
    `id` can be read.
    """
    sink = io.BytesIO()
    maps = pa.array([[(7, number)] for number in range(ROWS)], pa.map_(pa.int32(), pa.int32()))
    orc.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64()), "m": maps}), sink, compression="uncompressed")
    # A run of a hundred numbers: the first one, and the difference between successive ones, both as zigzag numbers.
    return _replaced(sink.getvalue(), b"\xc0\x63\x01\x00", b"\xc0\x63\x01\x01")


def impossible_precision() -> bytes:
    """Return an ORC file with one flipped bit in its footer: the decimals in `m` have 76 digits, not 12.

    Arrow ends the process when it reads the types of the columns, so planning the table crashes.
    """
    sink = io.BytesIO()
    decimals = pa.array(range(ROWS), pa.decimal128(12, 2))
    orc.write_table(
        pa.table({"id": pa.array(range(ROWS), pa.int64()), "m": decimals}), sink, compression="uncompressed"
    )
    # Of the column's type: its kind (14), precision and scale.
    return _replaced(sink.getvalue(), b"\x08\x0e \x00\x28\x0c\x30\x02", b"\x08\x0e \x00\x28\x4c\x30\x02")


def _replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1, "the writer's file layout has changed: update the position"
    return data.replace(old, new)


KILLERS: Mapping[str, Callable[[], bytes]] = {
    "flipped-repetition.parquet": flipped_repetition,
    "negative-lengths.orc": negative_lengths,
    "impossible-precision.orc": impossible_precision,
}
"""Functions that return the bytes of a file, by name of the file."""
