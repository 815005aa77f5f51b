"""The rows of a table that a predicate is true of, as a Spark DataFrame over the fragments that may have any."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import ColumnNotFoundError
from metastore_assets.expressions.row_bounds import RowBounds
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats.base import Fragment
from metastore_assets.lookup import Table
from metastore_assets.lookup.pruning import fragments_for_limit
from metastore_assets.messages import close_names
from metastore_assets.scan.matching_rows import matching_rows
from metastore_assets.scan.scan_plan import ScanPlan, Which, plan_scan
from metastore_assets.scan.spark_types import sent_array, spark_arrow_type
from metastore_assets.spark.runner import SizedRunner, balance_bins, count_slots, pack, prepare_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BINS_PER_SLOT = 4
Work: TypeAlias = tuple[RowFilter | None, Fragment]
"""A fragment, and the filter of its rows; None where all of them are meant."""


def scan(
    lookup: Table,
    table: TableConfig,
    spark: SparkSession,
    where: str | pc.Expression,
    columns: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    snapshot: Which = "now",
) -> DataFrame:
    """The rows that a predicate is true of, in no particular order, with all top-level columns or those named.

    They are those of a full scan with that filter. The format's own readers read them in Spark's tasks, when the frame
    is asked for its rows: deletes and renames are applied, and fragments that cannot have any such row are not opened.
    With `limit` no more fragments are read than are sure to have so many rows, and no more rows of each.
    Raises as `plan_scan`; UnsupportedTypeError for a column of a type that Spark does not have.
    """
    chosen = plan_scan(lookup, table, where, snapshot, SizedRunner(lambda: spark))
    schema = chosen.snapshot.schema
    places = column_positions(table, schema, columns)
    fields = [schema.field(at) for at in places]
    types = [spark_arrow_type(table, field) for field in fields]
    sent = pa.schema([pa.field(field.name, type_) for field, type_ in zip(fields, types, strict=True)])
    work = scan_tasks(chosen, limit)
    from pyspark.sql.pandas.types import from_arrow_schema

    shown = from_arrow_schema(sent)
    if not work:
        return spark.createDataFrame([], shown)
    bins = balance_bins([float(own.bytes + 1) for _, own in work], count_slots(spark) * _BINS_PER_SLOT)
    packed = [pack([work[at] for at in group]) for group in bins]
    frame = spark.range(0, len(packed), 1, len(packed)).mapInArrow(
        partial(_read, packed, pack((schema, places, sent)), limit), shown
    )
    return frame if limit is None else frame.limit(limit)


def scan_tasks(chosen: ScanPlan, limit: int | None) -> list[Work]:
    """Which fragments are read, and with which filter. With a limit as few as are sure to have so many rows."""
    work: list[Work] = [(None, fragment) for fragment in chosen.whole]
    work += [(chosen.filter, fragment) for fragment in chosen.undecided]
    if limit is None:
        return work
    least = np.array([chosen.sure.get(fragment.id, 0) for _, fragment in work], np.int64)
    sizes = np.array([fragment.bytes for _, fragment in work], np.int64)
    kept = fragments_for_limit(RowBounds(least, np.maximum(least, 1)), sizes, limit)
    return [work[at] for at in np.flatnonzero(kept)]


def _read(
    packed: Sequence[bytes], shape: bytes, limit: int | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's fragments, no more of them than the limit."""
    rows = _all_rows(packed, shape, batches)
    if limit is None:
        yield from rows
        return
    while limit > 0 and (batch := next(rows, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows


def _all_rows(packed: Sequence[bytes], shape: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prepare_task()
    schema, places, sent = pickle.loads(shape)
    for batch in batches:
        for index in batch.column("id").to_pylist():
            yield from read_scan_tasks(pickle.loads(packed[index]), schema, places, sent)


def read_scan_tasks(
    work: Sequence[Work], schema: pa.Schema, places: Sequence[int], sent: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The columns at some places of a table's schema, as they are sent to Spark. Raises FragmentError."""
    for own, fragment in work:
        for found in matching_rows(own, schema, places, fragment):
            if found.num_rows:
                arrays = [sent_array(array, field.type) for array, field in zip(found.columns, sent, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=sent)


def column_positions(table: TableConfig, schema: pa.Schema, columns: Sequence[str] | None) -> list[int]:
    if columns is None:
        return list(range(len(schema)))
    found = []
    for name in columns:
        at = schema.get_field_index(name)
        if at < 0:
            raise ColumnNotFoundError(
                f"table {table.name!r} has no top-level column {name!r}"
                + close_names(name, schema.names, "; they are: {}")
            )
        found.append(at)
    return found
