"""Building of value counts by partition: the frequency of each value of a column in each partition.

The counts are read from the profiles (statistics) of all partitions, and written as runs: sorted, immutable Parquet
files. Columns whose values have the same type class (physical type) share runs. A stage has the runs of one type class.
The stages of all type classes are part of a dataflow, which passes changes from stage to stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts.deltas import CountedProfile, CountSource, read_value_count_rows
from metastore_assets.produce import Dataflow
from metastore_assets.produce.complete_load import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.produce.typed_rows import frame_of, table_of
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.graph import BY_PARTITION, rows_of, stage_name

_ROWS_PER_TASK = 4_000_000
"""Maximum number of values that one task writes, unless it has a single column."""


@dataclass(frozen=True)
class _ColumnsTask:
    """A task that writes the value counts by partition of some columns of one type class."""

    number: int
    type_class: str
    columns: tuple[str, ...]
    loader: Loader


def write_runs_by_partition(
    engine: Engine,
    store: ObjectStore,
    flow: Dataflow,
    source: CountSource,
) -> dict[str, list[Run]]:
    """Count the values of columns by partition.

    Return {name of the stage: written runs}.

    Args:
        engine: Runs the tasks.
        store: The folder of the table.
        flow: The dataflow of the value counts. It provides the writers of its stages.
        source: The columns, and the profiles of all partitions with their partition keys.

    Raises:
        CorruptionError: A profile is damaged.
    """
    columns = source.columns
    tasks = _tasks(flow, columns, source.row_count)
    profiles = source.profiles()
    reads, values = len(columns) * len(profiles), source.row_count * len(columns)
    write = partial(_write_runs, store, tuple(profiles))
    runner = engine.summing_runner(reads, values)
    results = runner.map(write, tasks, costs=[float(len(task.columns)) for task in tasks])
    runs_by_stage: dict[str, list[Run]] = {stage_name(BY_PARTITION, name): [] for name in columns.values()}
    for number, runs in results:
        runs_by_stage[stage_name(BY_PARTITION, tasks[number].type_class)] += runs
    return runs_by_stage


def _tasks(flow: Dataflow, columns: Mapping[str, str], rows: int) -> list[_ColumnsTask]:
    """Split columns into tasks, ordered by type class, then field id.

    All columns of a task have one type class.

    A task has one column, or several that together have at most `_ROWS_PER_TASK` values. A column is assumed to have as
    many values as the table has rows.

    Args:
        flow: The dataflow of the value counts.
        columns: {field id: type class} of the columns.
        rows: Number of rows of the table.
    """
    columns_per_task = max(1, _ROWS_PER_TASK // max(1, rows))
    sorted_columns = sorted(columns.items(), key=lambda column: (column[1], column[0].encode()))
    tasks: list[_ColumnsTask] = []
    for name, group in groupby(sorted_columns, key=lambda column: column[1]):
        loader = flow.loader(stage_name(BY_PARTITION, name))
        for field_ids in batched((field_id for field_id, _ in group), columns_per_task):
            tasks.append(_ColumnsTask(len(tasks), name, tuple(field_ids), loader))
    return tasks


def _write_runs(store: ObjectStore, partitions: Sequence[CountedProfile], task: _ColumnsTask) -> tuple[int, list[Run]]:
    """Write the value counts by partition of a task's columns as runs (sorted Parquet files).

    Returns (number of the task, runs). May run in a worker process.
    """
    tables = [rows_of(task.type_class, by_partition=True).schema.empty_table()]
    with StatesReader(store) as states_reader:
        for profile in partitions:
            with FrequencyReader(states_reader, profile.files) as reader:
                tables += read_value_count_rows(reader, task.columns, task.type_class, profile.partition)
    run_schema = task.loader.run_schema
    rows = run_schema.order.sort(frame_of(pa.concat_tables(tables)))
    return task.number, task.loader.write(table_of(rows, run_schema.schema))
