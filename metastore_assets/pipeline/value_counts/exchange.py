"""The rows that Spark shuffles while value counts are summed: opaque blobs with the keys that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from metastore_assets.statistics.frequencies import Frequencies

EXCHANGED = "bucket int, total int, position int, sign int, blob binary"
_ROWS_PER_BLOB = 262_144
_BYTES_PER_BLOB = 4 << 20
"""A blob is one value to Spark, which copies values and holds some of them at once."""


def exchanged_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield the rows of batches."""
    for batch in batches:
        columns = [batch.column(index) for index in range(5)]
        for index in range(batch.num_rows):
            yield tuple(column[index].as_py() for column in columns)  # type: ignore[misc]


def exchanged_row(bucket: int, total: int, position: int, sign: int, blob: bytes) -> pa.RecordBatch:
    """Return a batch of one shuffled row."""
    numbers = [pa.array([number], pa.int32()) for number in (bucket, total, position, sign)]
    return pa.record_batch([*numbers, pa.array([blob], pa.binary())], ["bucket", "total", "position", "sign", "blob"])


def blobs(frequencies: Frequencies) -> Iterator[bytes]:
    """Encode frequencies as compressed Arrow streams of bounded size. Empty frequencies are one empty stream."""
    table = pa.table({"value": frequencies.values, "frequency": frequencies.counts})
    for piece in _pieces(table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(piece)
        yield sink.getvalue().to_pybytes()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Halve a table until each slice has bounded size. A single row may exceed it."""
    rows = table.num_rows
    if rows <= 1 or (rows <= _ROWS_PER_BLOB and table.nbytes <= _BYTES_PER_BLOB):
        yield table
        return
    yield from _pieces(table.slice(0, rows // 2))
    yield from _pieces(table.slice(rows // 2))


def of_blob(blob: bytes) -> Frequencies:
    """Decode one blob of `blobs`."""
    table = pa.ipc.open_stream(blob).read_all().combine_chunks()
    value, frequency = table.column("value"), table.column("frequency")
    return Frequencies(
        value.chunk(0) if value.num_chunks else pa.array([], value.type),
        frequency.chunk(0) if frequency.num_chunks else pa.array([], pa.int64()),
    )
