"""Reading the rows of fragments that a predicate is true of, in whatever process: a chunk of some columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from metastore_assets.values.leaf_columns import plain_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartSpark = Callable[[], "SparkSession"]
R = TypeVar("R")


def scan_engine(spark: StartSpark | None) -> Engine:
    """Return the engine that reads fragments: child processes alone, or also Spark when there is a session."""
    return Engine(spark, "auto")


def map_fragments(engine: Engine, function: Callable[[Fragment], R], fragments: Sequence[Fragment]) -> list[R]:
    """Return `function(fragment)` for each fragment, in their order. The function has to be picklable.

    Raises FragmentError where a fragment cannot be read, also where its file crashes its reader.
    """
    paths, costs = [own.path for own in fragments], [float(own.bytes) for own in fragments]
    return engine.reading_runner(fragments).map(function, fragments, paths=paths, costs=costs)


def count_rows(own: RowFilter, fragment: Fragment) -> int:
    """How many rows of a fragment the predicate is true of. Raises FragmentError."""
    with opened_fragment(fragment) as reader:
        return sum(int(mask.sum()) for mask in row_masks(own, reader))


def row_masks(own: RowFilter, reader: FragmentReader) -> Iterator[Mask]:
    """Of the rows of an opened fragment, in their order and in pieces, whether the predicate is true of each."""
    for columns, rows in _chunks(own.schema, own.positions, reader):
        yield own.mask(dict(zip(own.positions, columns, strict=True)), rows)


def matching_rows(
    own: RowFilter | None, schema: pa.Schema, places: Sequence[int], fragment: Fragment
) -> Iterator[pa.RecordBatch]:
    """Some top-level columns of the rows of a fragment that the predicate is true of; of all rows without one.

    Raises FragmentError.
    """
    needed = sorted({*places, *(own.positions if own is not None else ())})
    fields = [schema.field(at) for at in places]
    with opened_fragment(fragment) as reader:
        for columns, rows in _chunks(schema, needed, reader):
            held = dict(zip(needed, columns, strict=True))
            arrays = [held[at] for at in places]
            if not places:
                arrays, fields = [pa.nulls(rows)], [pa.field("", pa.null())]
            batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            yield batch if own is None else batch.filter(pa.array(own.mask(held, rows)))


def _chunks(schema: pa.Schema, places: Sequence[int], reader: FragmentReader) -> Iterator[tuple[list[pa.Array], int]]:
    if not places:
        yield [], reader.row_count
        return
    yield from _aligned(reader, [schema.field(at) for at in places])


@contextmanager
def opened_fragment(fragment: Fragment) -> Iterator[FragmentReader]:
    """A fragment while it is read. Whatever its reader throws is a FragmentError."""
    try:
        with fragment.source.open() as reader:
            yield reader
    except MetastoreError:
        raise
    except CORRUPTION_ERRORS as error:
        # What a reader throws at damaged bytes is not bounded by what it documents.
        missing = isinstance(error, FileNotFoundError)
        unsupported = is_unsupported(error)
        made = FragmentError(
            f"{fragment.path}: {error_reason(error)}", path=fragment.path, missing=missing, unsupported=unsupported
        )
        what = f"{fragment.path} {'is not supported' if unsupported else 'cannot be read'}"
        raise with_redacted_message(made, what, error) from error


def _aligned(reader: FragmentReader, fields: Sequence[pa.Field]) -> Iterator[tuple[list[pa.Array], int]]:
    """The columns side by side: their chunks end where they like."""
    sources = [reader.read(field) for field in fields]
    heads: list[pa.Array | None] = [None] * len(fields)
    while True:
        for at, source in enumerate(sources):
            while (head := heads[at]) is None or not len(head):
                chunk = next(source, None)
                if chunk is None:
                    return
                heads[at] = plain_array(chunk)
        present = [head for head in heads if head is not None]
        rows = min(map(len, present))
        yield [head.slice(0, rows) for head in present], rows
        heads = [head.slice(rows) for head in present]
