"""The live rows of one snapshot of a table as Arrow batches, read by child processes.

A fragment is a data file of the table, together with the deletes that apply to it. A version has the statistics of one
snapshot of the table. The policy `values: hidden` of a column says that its values may not be shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.batching import group_rows
from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.lookup import Table
from metastore_assets.lookup.table import SnapshotChoice
from metastore_assets.reads.matching_rows import matching_rows, plain_schema
from metastore_assets.reads.scan_plan import (
    ScanTask,
    find_column_positions,
    load_snapshot,
    plan_snapshot_scan,
    plan_tasks,
)
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.tasks.runner import limit_arrow_threads
from metastore_assets.tasks.streams import PathTask, stream_parallel
from metastore_assets.values.columns import columns_by_field, schema_columns

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.dataset as ds

_MAX_PROCESSES = 8
_MAX_THREADS = 8
"""Maximum number of small fragments that one child reads at the same time. It mostly waits for their storage."""
_CHILD_BYTES = 32 << 20
"""Maximum bytes of data files that one child reads at the same time, unless a single file is larger."""
_GROUP_BYTES, _GROUP_FILES = 8 << 20, 16
"""Maximum bytes and files in one message to a child, unless a single file is larger."""
_OPEN_COST, _PROCESS_COST = 256 << 10, 16 << 20
"""The time of opening a file, and of starting a child, as the number of bytes that could be read in that time."""
_MIN_GROUPS = 256
"""Tasks are sent in at least this many messages, if there are enough of them, so that all children have work."""
_BATCH_ROWS, _BATCH_BYTES = 65_536, 8 << 20
"""Small batches are joined until they have this many rows or bytes."""


class SnapshotRows:
    """The rows of one snapshot of a table.

    Each read opens only the fragments that may have matching rows.

    The snapshot stays the same. If its data files are cleaned up after a later commit, reads fail.
    """

    def __init__(self, lookup: Table, table: TableConfig, choice: SnapshotChoice) -> None:
        """Load the snapshot; data files are not read.

        Args:
            lookup: The version with the statistics.
            table: The location of the table.
            choice: `now` for the table's current snapshot, `version` for the snapshot of the version.

        Raises:
            MetastoreError: The snapshot of the version no longer exists.
        """
        self._lookup = lookup
        self._table = table
        self._choice = choice
        self._loaded = load_snapshot(lookup, table, choice)
        self.schema = plain_schema(self._loaded[1].schema)
        """The columns of the rows: the table's top-level columns under their names in the snapshot."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    def list_shown_columns(self) -> list[str]:
        """Return the top-level columns whose values may be shown, by their names in the snapshot.

        Columns with hidden values, at any depth, are left out. So are columns that the version lacks, or that have a
        field that the version lacks, because it is unknown whether these are hidden.
        """
        hidden_ids = {row.field_id for row in self._lookup.statistics() if row.reason == HIDDEN_REASON}
        shown_ids = {column.field_id for column in schema_columns(self._lookup.version.schema)} - hidden_ids
        table_schema = self._loaded[1].schema
        columns_by_name = zip(table_schema.names, columns_by_field(table_schema), strict=True)
        return [name for name, columns in columns_by_name if all(column.field_id in shown_ids for column in columns)]

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | pc.Expression | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a stream of the matching rows, in no particular order.

        Child processes read a few batches ahead of the caller. Closing the stream ends them.

        Args:
            columns: Names of top-level columns; None for all.
            where: A predicate, as SQL text or a pyarrow expression; None for all rows.
            limit: The maximum number of rows; None for all.

        Raises:
            PredicateError: The predicate does not parse, or compares a column whose values cannot be compared.
            ColumnNotFoundError: There is no such column.
            LiteralError: A literal is not a value of its column.

        Reading the stream raises FragmentError if a file cannot be read.
        """
        positions = find_column_positions(self._table, self._loaded[1].schema, columns)
        plan = plan_snapshot_scan(self._lookup, self._table, self._loaded, "true" if where is None else where)
        request = _RowRequest(plan.snapshot.schema, tuple(positions))
        schema = pa.schema([self.schema.field(position) for position in positions])
        batches = self._read_batches(plan_tasks(plan, limit), request)
        if not positions:
            batches = map(_without_columns, batches)
        return pa.RecordBatchReader.from_batches(schema, batches if limit is None else _take(batches, limit))

    def lazy(self) -> pl.LazyFrame:
        """Return the rows as a lazy frame of Polars.

        Raises UnsupportedTypeError if Polars has no type for a column.
        """
        from metastore_assets.reads.polars_frames import lazy_frame  # Polars takes 100 ms to be imported

        return lazy_frame(self)

    def dataset(self, where: str | pc.Expression | None = None) -> ds.Dataset:
        """Return a pyarrow dataset of the data files that may have matching rows.

        Each file has a partition expression, which states what is known of its columns: bounds, and values that are the
        same in all rows. If the filter of a query contradicts this expression, Arrow skips the file.

        Raises MetastoreError if Arrow alone cannot read the rows of a file, and the errors of `read` for the predicate.
        """
        from metastore_assets.reads.arrow_datasets import build_dataset  # pyarrow.dataset takes time to be imported

        plan = plan_snapshot_scan(self._lookup, self._table, self._loaded, "true" if where is None else where)
        fragments = [task.fragment for task in plan_tasks(plan, None)]
        return build_dataset(self, plan.snapshot, fragments, self._lookup.pruner)

    def explain_missing(self) -> str:
        """Return why a data file of the snapshot may be missing, and what to do, for an error message."""
        version = self._lookup.version
        if self._choice == "version":
            return (
                f"a cleanup of the table (such as VACUUM) has removed data files of the snapshot {version.snapshot}, "
                f"which version {version.number} describes: read a later version, or the current rows"
            )
        return "a commit may have replaced the file meanwhile: read again"

    def _read_batches(self, tasks: Sequence[ScanTask], request: _RowRequest) -> Iterator[pa.RecordBatch]:
        """Read fragments in child processes, and yield their rows.

        Raises FragmentError if a file cannot be read.
        """
        if not tasks:
            return
        groups = list(_group_tasks(tasks))
        cost = sum(task.fragment.bytes + _OPEN_COST for task in tasks)
        processes = min(os.cpu_count() or 1, _MAX_PROCESSES, len(groups), 1 + cost // _PROCESS_COST)
        largest = max(sum(task.fragment.bytes for task in group) for group in groups)
        threads = max(1, min(_MAX_THREADS, _CHILD_BYTES // max(1, largest), len(groups) // processes))
        path_tasks = (PathTask(group[0].fragment.path, group) for group in groups)
        try:
            yield from stream_parallel(partial(_read_group, request), path_tasks, processes, threads)
        except FragmentError as error:
            if not error.missing:
                raise
            raise FragmentError(
                f"table {self.name!r}: {error}: {self.explain_missing()}", path=error.path, missing=True
            ) from error


@dataclass(frozen=True)
class _RowRequest:
    """The columns to read, and their types."""

    table_schema: pa.Schema
    positions: tuple[int, ...]
    """Positions of the top-level columns in the table's schema."""


def _group_tasks(tasks: Sequence[ScanTask]) -> Iterator[list[ScanTask]]:
    """Yield the tasks in groups, each of which is sent to a child process in one message.

    Small files may share a group.
    """
    most_files = max(1, min(_GROUP_FILES, len(tasks) // _MIN_GROUPS))
    group: list[ScanTask] = []
    size = 0
    for task in tasks:
        if group and (len(group) == most_files or size + task.fragment.bytes > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(task)
        size += task.fragment.bytes
    if group:
        yield group


def _read_group(request: _RowRequest, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows of a group of fragments.

    Called in a child process.

    Raises FragmentError if a fragment cannot be read.
    """
    limit_arrow_threads()
    rows = chain.from_iterable(
        matching_rows(task.filter, request.table_schema, request.positions, task.fragment) for task in tasks
    )
    groups = group_rows(rows, _BATCH_ROWS, _BATCH_BYTES)
    return (group[0] if len(group) == 1 else pa.concat_batches(group) for group in groups)


def _without_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with no columns, but with as many rows as `batch`."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), batch.num_rows, [None]))


def _take(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
