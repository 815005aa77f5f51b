"""The rows that match a predicate, as a Spark DataFrame.

Only fragments that may have such rows are opened.

A fragment is a data file of the table, together with the deletes that apply to it. A version has the statistics of one
snapshot of the table.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.lookup import Table
from metastore_assets.lookup.table import ScanRequest
from metastore_assets.reads.matching_rows import matching_rows
from metastore_assets.reads.scan_plan import ScanTask, find_column_positions, plan_scan, plan_tasks
from metastore_assets.scan.spark_types import to_spark_array, to_spark_type
from metastore_assets.spark.runner import SizedRunner, balance_bins, count_slots, pack, prepare_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_SLOT = 4


class ScanSchema(NamedTuple):
    """The columns that a scan returns."""

    table_schema: pa.Schema
    positions: Sequence[int]
    """Positions of the top-level columns in the table's schema."""
    spark_schema: pa.Schema
    """The columns in the Arrow types in which they are sent to Spark."""


def scan(lookup: Table, table: TableConfig, spark: SparkSession, request: ScanRequest) -> DataFrame:
    """Return the rows that match a predicate as a Spark DataFrame, in no particular order.

    The rows are the same as if all rows were scanned and filtered. When the frame is evaluated, Spark's tasks read the
    rows with the readers of the table's format, so deletes and renames are applied. Fragments whose statistics exclude
    a matching row are not opened.

    Args:
        lookup: The version with the statistics.
        table: The location of the table.
        spark: The session.
        request: The requested columns, predicate and limit. With a limit of n, the scan reads as few fragments as
            possible whose statistics guarantee n matching rows in total. If the statistics do not guarantee n
            matching rows for the table, the scan can read every fragment that may have matching rows.

    Raises:
        UnsupportedTypeError: Spark has no type for a column.
        MetastoreError: For the reasons of `plan_scan`.
    """
    limit = request.limit
    plan = plan_scan(lookup, table, request.where, request.snapshot, SizedRunner(lambda: spark))
    table_schema = plan.snapshot.schema
    positions = find_column_positions(table, table_schema, request.columns)
    fields = [table_schema.field(position) for position in positions]
    types = [to_spark_type(table, field) for field in fields]
    spark_schema = pa.schema([pa.field(field.name, type_) for field, type_ in zip(fields, types, strict=True)])
    tasks = plan_tasks(plan, limit)
    from pyspark.sql.pandas.types import from_arrow_schema

    struct = from_arrow_schema(spark_schema)
    if not tasks:
        return spark.createDataFrame([], struct)
    sizes = [float(task.fragment.bytes + 1) for task in tasks]
    bins = balance_bins(sizes, count_slots(spark) * _TASKS_PER_SLOT)
    packed_tasks = [pack([tasks[position] for position in group]) for group in bins]
    read = partial(_read_partition, packed_tasks, pack(ScanSchema(table_schema, positions, spark_schema)), limit)
    frame = spark.range(0, len(packed_tasks), 1, len(packed_tasks)).mapInArrow(read, struct)
    return frame if limit is None else frame.limit(limit)


def _read_partition(
    packed_tasks: Sequence[bytes], packed_schema: bytes, limit: int | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows of one Spark partition, at most `limit`.

    Args:
        packed_tasks: The pickled tasks of all Spark partitions, one item per partition.
        packed_schema: The pickled `ScanSchema`.
        limit: The maximum number of rows; None for all.
        batches: The input of the partition. Its column `id` has the index in `packed_tasks` of the tasks to run.
    """
    prepare_task()
    rows = _read_all(packed_tasks, pickle.loads(packed_schema), batches)
    if limit is None:
        yield from rows
        return
    while limit > 0 and (batch := next(rows, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows


def _read_all(
    packed_tasks: Sequence[bytes], schema: ScanSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for position in batch.column("id").to_pylist():
            yield from read_scan_tasks(pickle.loads(packed_tasks[position]), schema)


def read_scan_tasks(tasks: Sequence[ScanTask], schema: ScanSchema) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows of fragments in types that Spark has.

    Raises FragmentError if a fragment cannot be read.
    """
    for row_filter, fragment in tasks:
        for batch in matching_rows(row_filter, schema.table_schema, schema.positions, fragment):
            if batch.num_rows:
                arrays = [
                    to_spark_array(array, field.type)
                    for array, field in zip(batch.columns, schema.spark_schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema.spark_schema)
