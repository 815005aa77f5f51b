"""Functions that read or count the rows of fragments for which a predicate is true.

A fragment is a data file of the table, together with the deletes that apply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from metastore_assets.errors import FragmentError, MetastoreError
from metastore_assets.expressions.row_bounds import Mask
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats.base import Fragment, FragmentReader
from metastore_assets.pipeline.engine import Engine
from metastore_assets.storage.corrupt_input import (
    CORRUPTION_ERRORS,
    error_reason,
    is_unsupported,
    with_redacted_message,
)
from metastore_assets.values.columns import plain_array, plain_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartSpark = Callable[[], "SparkSession"]
"""A function that returns a Spark session, and starts it if there is none."""
Result = TypeVar("Result")


def create_scan_engine(spark: StartSpark | None) -> Engine:
    """Return an engine that reads in child processes if fragments are few and small, otherwise in Spark.

    If `spark` is None, child processes read all fragments.
    """
    return Engine(spark, "auto")


def map_fragments(
    engine: Engine, function: Callable[[Fragment], Result], fragments: Sequence[Fragment]
) -> list[Result]:
    """Call a function for each fragment in other processes.

    Return the results in the order of the fragments.

    Args:
        engine: Runs the calls.
        function: A function that can be pickled.
        fragments: The fragments.

    Raises:
        FragmentError: A fragment cannot be read, or its file crashes the process that reads it.
    """
    paths, costs = [fragment.path for fragment in fragments], [float(fragment.bytes) for fragment in fragments]
    return engine.reading_runner(fragments).map(function, fragments, paths=paths, costs=costs)


def count_rows(row_filter: RowFilter, fragment: Fragment) -> int:
    """Return the number of matching rows of a fragment.

    Raises FragmentError if it cannot be read.
    """
    with open_fragment(fragment) as reader:
        return sum(int(mask.sum()) for mask in compute_row_masks(row_filter, reader))


def compute_row_masks(row_filter: RowFilter, reader: FragmentReader) -> Iterator[Mask]:
    """Yield a mask of the matching rows for each chunk of a fragment, in the order of the rows."""
    for columns, row_count in _read_chunks(row_filter.schema, row_filter.positions, reader):
        yield row_filter.mask(dict(zip(row_filter.positions, columns, strict=True)), row_count)


def matching_rows(
    row_filter: RowFilter | None, schema: pa.Schema, positions: Sequence[int], fragment: Fragment
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the matching rows of a fragment, chunk by chunk, in the types of `plain_schema`.

    Args:
        row_filter: The filter; None if all rows match.
        schema: The schema of the table.
        positions: Positions of the top-level columns to return. If there are none, batches have one column of nulls.
        fragment: The fragment.

    Raises:
        FragmentError: The fragment cannot be read.
    """
    read_positions = sorted({*positions, *(row_filter.positions if row_filter is not None else ())})
    read_schema = plain_schema([schema.field(position) for position in positions])
    with open_fragment(fragment) as reader:
        for columns, row_count in _read_chunks(schema, read_positions, reader):
            by_position = dict(zip(read_positions, columns, strict=True))
            arrays = [by_position[position] for position in positions]
            if not positions:
                arrays, read_schema = [pa.nulls(row_count)], pa.schema([pa.field("", pa.null())])
            batch = pa.RecordBatch.from_arrays(arrays, schema=read_schema)
            yield batch if row_filter is None else batch.filter(pa.array(row_filter.mask(by_position, row_count)))


def plain_schema(schema: Iterable[pa.Field]) -> pa.Schema:
    """Return the fields with the types that rows have after reading, and without metadata.

    For example, a dictionary of strings becomes a string, and an extension type other than `arrow.uuid` becomes its
    storage type.
    """
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _without_metadata(plain_type(field.type)), field.nullable)


def _without_metadata(type_: pa.DataType) -> pa.DataType:
    """Return the same type without the metadata of nested fields."""
    if pa.types.is_struct(type_):
        return pa.struct([_nested_field(field) for field in type_])
    if pa.types.is_map(type_):
        key, item = _nested_field(type_.key_field), _nested_field(type_.item_field)
        return pa.map_(key, item, keys_sorted=type_.keys_sorted)
    if pa.types.is_list(type_):
        return pa.list_(_nested_field(type_.value_field))
    return type_


def _nested_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _without_metadata(field.type), field.nullable)


@contextmanager
def open_fragment(fragment: Fragment) -> Iterator[FragmentReader]:
    """Open a fragment for reading, and yield its reader.

    Errors of the reader become FragmentErrors, also those within the `with` block.
    """
    try:
        with fragment.source.open() as reader:
            yield reader
    except MetastoreError:
        raise
    except CORRUPTION_ERRORS as error:
        # For corrupt bytes, readers raise more kinds of errors than they document.
        missing = isinstance(error, FileNotFoundError)
        is_unsupported_file = is_unsupported(error)
        fragment_error = FragmentError(
            f"{fragment.path}: {error_reason(error)}",
            path=fragment.path,
            missing=missing,
            unsupported=is_unsupported_file,
        )
        problem = f"{fragment.path} {'is not supported' if is_unsupported_file else 'cannot be read'}"
        raise with_redacted_message(fragment_error, problem, error) from error


def _read_chunks(
    schema: pa.Schema, positions: Sequence[int], reader: FragmentReader
) -> Iterator[tuple[list[pa.Array], int]]:
    """Read columns of a fragment, and yield (one array per column, row count) for consecutive rows.

    The reader cuts each column into chunks at different rows. This function cuts all columns at the same rows. Without
    columns, it yields one pair for all rows.

    Args:
        schema: The top-level columns of the table.
        positions: The positions in `schema` of the columns to read.
        reader: The reader of the fragment.
    """
    if not positions:
        yield [], reader.row_count
        return
    sources = [reader.read(schema.field(position)) for position in positions]
    pending: list[pa.Array] = [pa.nulls(0)] * len(sources)
    while True:
        for index, source in enumerate(sources):
            while not len(pending[index]):
                chunk = next(source, None)
                if chunk is None:
                    return
                pending[index] = plain_array(chunk)
        row_count = min(map(len, pending))
        yield [array.slice(0, row_count) for array in pending], row_count
        pending = [array.slice(row_count) for array in pending]
