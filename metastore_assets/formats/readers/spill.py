"""A temporary Parquet file for the rows of Avro, CSV and JSON files, which cannot be read by column."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema
from metastore_assets.storage.temporary_folders import full_folder_errors
from metastore_assets.values.columns import map_child_types

_FILLER = pa.field("", pa.bool_())
"""Placeholder field of a struct without fields, of which Parquet would store nothing."""


class SpilledColumns:
    """Rows that can be read by column.

    The constructor writes them to a temporary Parquet file.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.row_count = 0
        stored_schema = pa.schema([field.with_type(_type_with_fillers(field.type)) for field in schema])
        self._parquet = ParquetColumns(
            write_temporary_parquet(stored_schema, self._with_fillers(stored_schema, batches))
        )
        self._is_filled = [
            stored_field.type != field.type for stored_field, field in zip(stored_schema, schema, strict=True)
        ]
        self.fields: list[pa.Field] = [
            field if is_filled else stored_field
            for field, stored_field, is_filled in zip(schema, self._parquet.fields, self._is_filled, strict=True)
        ]

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the top-level column at position `index`, in row order."""
        for array in self._parquet.read(index):
            yield cast_to_schema(array, self.fields[index].type, FieldMatcher()) if self._is_filled[index] else array

    def close(self) -> None:
        """Delete the temporary file."""
        self._parquet.close()

    def _with_fillers(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, cast to `schema`, and add the number of their rows to `self.row_count`.

        In `schema`, a struct that has no fields in the batches has a placeholder field, because Parquet has no empty
        structs.
        """
        for batch in batches:
            # A Parquet file without columns has no row count.
            self.row_count += batch.num_rows
            if batch.schema.equals(schema):
                yield batch
            else:
                arrays = [
                    column if column.type == field.type else cast_to_schema(column, field.type, FieldMatcher())
                    for column, field in zip(batch.columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_temporary_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.NativeFile:
    """Write the batches to an unnamed temporary Parquet file, and return it opened for reading.

    Raises StoreError if the folder of temporary files is full.
    """
    with full_folder_errors(), tempfile.TemporaryFile(buffering=0) as file:
        path = f"/dev/fd/{file.fileno()}"
        with (
            pa.OSFile(path, "wb") as sink,
            pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        return pa.OSFile(path, "rb")


def _type_with_fillers(type_: pa.DataType) -> pa.DataType:
    """Return the type with a placeholder field in each struct that has no fields."""
    if pa.types.is_struct(type_) and not type_.num_fields:
        return pa.struct([_FILLER])
    return map_child_types(type_, _type_with_fillers)
