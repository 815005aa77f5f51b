"""Read one column at a time of a Parquet file, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

CHUNK_ROWS = 131_072
"""Most rows in one chunk."""
_CHUNK_BYTES = 32 << 20
"""Bytes of values aimed at in one chunk, by the average that the footer tells."""


def open_parquet(source: pa.NativeFile) -> pq.ParquetFile:
    """The file with its footer read. INT96 timestamps come as microseconds, which hold the years 1 to 9999."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=True)


class ParquetColumns:
    """The top-level columns of an opened Parquet file."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self.fields: list[pa.Field] = list(file.schema_arrow)
        self.row_count: int = file.metadata.num_rows
        self._leaves = _leaf_ranges(self.fields)
        if self._leaves and self._leaves[-1].stop != file.metadata.num_columns:
            raise pa.ArrowNotImplementedError("the columns of the file's schema cannot be told apart")

    def read(self, index: int) -> Iterator[pa.Array]:
        """All values of the top-level column at that index, in file order, as the file's own type."""
        leaves = self._leaves[index]
        for group in range(self._file.num_row_groups):
            # One row group at a time: the reader fetches all it is asked for at once.
            batches = self._file.reader.iter_batches(
                self._chunk_rows(group, leaves), row_groups=[group], column_indices=list(leaves), use_threads=False
            )
            for batch in batches:
                yield batch.column(0)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close(force=True)

    def _chunk_rows(self, group: int, leaves: range) -> int:
        metadata = self._file.metadata.row_group(group)
        total = sum(metadata.column(leaf).total_uncompressed_size for leaf in leaves)
        average = max(1, total // max(1, metadata.num_rows))
        return max(1, min(CHUNK_ROWS, _CHUNK_BYTES // average))


def _leaf_ranges(fields: list[pa.Field]) -> list[range]:
    # By position: a dotted path does not tell a column named `a.b` from the field `b` of a column `a`.
    ranges = []
    start = 0
    for field in fields:
        stop = start + _leaf_count(field.type)
        ranges.append(range(start, stop))
        start = stop
    return ranges


def _leaf_count(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaf_count(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _leaf_count(type_.value_type)
    if pa.types.is_nested(type_):
        return sum(_leaf_count(type_.field(index).type) for index in range(type_.num_fields))
    return 1
