"""Lazy frames of Polars over the rows of a table.

Only the files and columns that a query needs are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from metastore_assets.errors import ColumnNotFoundError, LiteralError, PredicateError, UnsupportedTypeError
from metastore_assets.formats.readers.nested_arrays import leaf_types
from metastore_assets.reads.polars_predicates import weaken_predicate

if TYPE_CHECKING:
    from metastore_assets.reads.snapshot_rows import SnapshotRows


def lazy_frame(rows: SnapshotRows) -> pl.LazyFrame:
    """Return the rows of a snapshot as a lazy frame.

    Nothing is read before the frame is collected.

    Raises UnsupportedTypeError if Polars has no type for a column.
    """
    schema = pa.schema([_with_known_zone(field) for field in rows.schema])
    return register_io_source(_FrameSource(rows, schema).read, schema=_to_polars_schema(rows.name, schema))


class _FrameSource:
    """The rows of a snapshot as a data source of Polars.

    Its method `read` is passed to `register_io_source`.
    """

    def __init__(self, rows: SnapshotRows, schema: pa.Schema) -> None:
        """Create a source.

        Args:
            rows: The rows of the snapshot.
            schema: The columns of the rows, with the types that Polars gets.
        """
        self._rows = rows
        self._schema = schema

    def read(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield frames with the matching rows.

        Polars' `register_io_source` defines the arguments. Raises FragmentError if a file cannot be read.
        """
        columns = self._schema.names if with_columns is None else with_columns
        needed_columns = list(dict.fromkeys([*columns, *(() if predicate is None else predicate.meta.root_names())]))
        schema = pa.schema([self._schema.field(name) for name in needed_columns])
        remaining = n_rows
        batches = self._open(needed_columns, predicate, n_rows)
        frame = _empty_frame(schema)
        while True:
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(columns)
            if remaining is not None:
                frame = frame.head(remaining)
                remaining -= frame.height
            yield frame
            if remaining == 0 or (batch := next(batches, None)) is None:
                return
            frame = _to_frame(batch if batch.schema == schema else batch.cast(schema))

    def _open(self, columns: Sequence[str], predicate: pl.Expr | None, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Return all rows for which the predicate is true, and possibly others.

        The caller must remove the other rows.

        Args:
            columns: The columns to read.
            predicate: The predicate; None for all rows.
            limit: The maximum number of rows; None for all. It is ignored if there is a predicate.
        """
        where = None if predicate is None else weaken_predicate(predicate, self._schema)
        if where is not None:
            try:
                return iter(self._rows.read(columns, where))
            except (ColumnNotFoundError, LiteralError, PredicateError):
                pass  # the predicate has no form that prunes
        return iter(self._rows.read(columns, None, limit if predicate is None else None))


def _with_known_zone(field: pa.Field) -> pa.Field:
    """Return the field with UTC in place of time zones that Polars lacks, such as `+05:30`.

    Time zones inside structs, maps and lists are replaced, too.
    """
    type_ = field.type
    if pa.types.is_struct(type_):
        return field.with_type(pa.struct([_with_known_zone(child) for child in type_]))
    if pa.types.is_map(type_):
        key, item = _with_known_zone(type_.key_field), _with_known_zone(type_.item_field)
        return field.with_type(pa.map_(key, item, type_.keys_sorted))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_with_known_zone(type_.value_field)))
    if not pa.types.is_timestamp(type_) or type_.tz is None:
        return field
    try:
        _empty_frame(pa.schema([field]))
    except pl.exceptions.ComputeError:
        return field.with_type(pa.timestamp(type_.unit, "UTC"))
    return field


def _empty_frame(schema: pa.Schema) -> pl.DataFrame:
    # Arrow builds no empty arrays of UUIDs inside lists and structs from Python values.
    return _to_frame(pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))


def _to_frame(batch: pa.RecordBatch) -> pl.DataFrame:
    frame = cast(pl.DataFrame, pl.from_arrow(batch))
    if "" in batch.schema.names:  # Polars renames such a column
        frame = frame.rename(dict(zip(frame.columns, batch.schema.names, strict=True)))
    return frame


def _to_polars_schema(table: str, schema: pa.Schema) -> pl.Schema:
    """Return the schema in Polars' types.

    Raises UnsupportedTypeError if a column is or contains a decimal of 256 bits, for which Polars has no type.
    """
    for field in schema:
        if any(map(pa.types.is_decimal256, leaf_types(field.type))):
            raise UnsupportedTypeError(
                f"column {field.name!r} of table {table!r}: Polars has no type for {field.type}; read the other "
                "columns with `read(columns=…)`"
            )
    return _empty_frame(schema).schema
