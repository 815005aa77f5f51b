"""Rows that cannot be read column by column, stored on local disk as Parquet for as long as they are read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq


def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.NativeFile:
    """Return the batches as an opened Parquet file.

    The file has no name from the beginning, so nothing is left of it when the process is killed.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        path = f"/dev/fd/{file.fileno()}"
        with (
            pa.OSFile(path, "wb") as sink,
            pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        return pa.OSFile(path, "rb")
