"""Rows that cannot be read column by column, kept once on local disk as Parquet for as long as they are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq


def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.NativeFile:
    """The batches as an opened Parquet file without a name, which goes when it is closed or the process ends."""
    descriptor, name = tempfile.mkstemp(suffix=".parquet")
    os.close(descriptor)
    try:
        with pq.ParquetWriter(name, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return pa.OSFile(name, "rb")
    finally:
        os.unlink(name)
