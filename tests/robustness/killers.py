"""Files that end the process that reads them: what Arrow answers them with is an abort, not an exception.

Each maker returns the bytes of one file, always the same. Reading it in the tests' own process would end the tests.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 100


def flipped_repetition() -> bytes:
    """A Parquet file of two columns, `id` and `s`, with one flipped bit in its footer: `s` is said to be required.

    Its size statistics then have a level too many. Arrow throws where pyarrow does not catch: at
    `metadata.row_group(0).column(1)`. Schema, number of rows and the column `id` can be read.
    """
    sink = io.BytesIO()
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), "s": [f"value {number % 7}" for number in range(ROWS)]})
    pq.write_table(table, sink)
    # Of the column's schema element: its repetition, 1 (optional) or 0 (required) as a zigzag number, then its name.
    optional, required = b"\x25\x02\x18\x01s", b"\x25\x00\x18\x01s"
    data = sink.getvalue()
    assert data.count(optional) == 1
    return data.replace(optional, required)


KILLERS: Mapping[str, Callable[[], bytes]] = {"flipped repetition": flipped_repetition}
"""Makers by what is wrong with the file; all are Parquet."""
