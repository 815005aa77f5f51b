"""Pieces of bounded size of arrays that a library hands out as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from metastore_assets.formats.readers.dictionaries import CHUNK_BYTES, CHUNK_ROWS


def sliced(array: pa.Array) -> Iterator[pa.Array]:
    """The same rows in chunks of no more than CHUNK_ROWS, and about CHUNK_BYTES by the array's average."""
    average = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // average))
    for start in range(0, len(array), rows):
        yield array.slice(start, rows)
