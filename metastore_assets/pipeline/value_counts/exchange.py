"""What Spark exchanges while lists are summed: opaque blobs, each of one column's values, with what they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from metastore_assets.statistics.frequencies import Frequencies

EXCHANGED = "bucket int, total int, position int, sign int, blob binary"
_ROWS_PER_BLOB = 262_144
_BYTES_PER_BLOB = 4 << 20
"""A blob is one value to Spark, which copies values and holds some of them at once."""


def exchanged_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, int, int, bytes]]:
    """The rows of batches, one after the other."""
    for batch in batches:
        columns = [batch.column(index) for index in range(5)]
        for index in range(batch.num_rows):
            yield tuple(column[index].as_py() for column in columns)  # type: ignore[misc]


def exchanged_row(bucket: int, total: int, position: int, sign: int, blob: bytes) -> pa.RecordBatch:
    """One row of what is exchanged."""
    numbers = [pa.array([number], pa.int32()) for number in (bucket, total, position, sign)]
    return pa.record_batch([*numbers, pa.array([blob], pa.binary())], ["bucket", "total", "position", "sign", "blob"])


def blobs(frequencies: Frequencies) -> Iterator[bytes]:
    """A list as compressed Arrow streams of bounded length; an empty list is one empty stream."""
    table = pa.table({"value": frequencies.values, "frequency": frequencies.counts})
    for piece in _pieces(table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(piece)
        yield sink.getvalue().to_pybytes()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Slices of bounded length, halved until they are; a single row may be longer."""
    rows = table.num_rows
    if rows <= 1 or (rows <= _ROWS_PER_BLOB and table.nbytes <= _BYTES_PER_BLOB):
        yield table
        return
    yield from _pieces(table.slice(0, rows // 2))
    yield from _pieces(table.slice(rows // 2))


def of_blob(blob: bytes) -> Frequencies:
    """The list, or the piece of one, that a blob is."""
    table = pa.ipc.open_stream(blob).read_all().combine_chunks()
    value, frequency = table.column("value"), table.column("frequency")
    return Frequencies(
        value.chunk(0) if value.num_chunks else pa.array([], value.type),
        frequency.chunk(0) if frequency.num_chunks else pa.array([], pa.int64()),
    )
