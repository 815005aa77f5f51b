"""Runs of value counts by partition, built from the profiles of all partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts.deltas import CountedProfile, read_value_count_rows
from metastore_assets.produce import Dataflow
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.rows import frame_of, table_of
from metastore_assets.produce.runs import Run
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.graph import BY_PARTITION, rows_of, stage_name

_ROWS_PER_TASK = 4_000_000
"""The number of table rows whose columns one task takes. A single column is never split."""


@dataclass(frozen=True)
class _Task:
    """Adjacent columns of one class."""

    number: int
    type_class: str
    columns: tuple[str, ...]
    loader: Loader


def runs_by_partition(
    engine: Engine,
    store: ObjectStore,
    flow: Dataflow,
    columns: Mapping[str, str],
    partitions: Sequence[CountedProfile],
    rows: int,
) -> dict[str, list[Run]]:
    """Return the runs of value counts by partition, by stage.

    Args:
        engine: Runs the tasks.
        store: The folder of the table.
        flow: The dataflow of the value counts.
        columns: The columns by field id, with the classes of their values.
        partitions: The profiles of all partitions.
        rows: The number of rows of the table.

    Raises:
        CorruptionError: A profile is damaged.
    """
    tasks = _tasks(flow, columns, rows)
    lists, values = len(columns) * len(partitions), rows * len(columns)
    write = partial(_write, store, tuple(partitions))
    runner = engine.summing_runner(lists, values)
    written = runner.map(write, tasks, costs=[float(len(task.columns)) for task in tasks])
    found: dict[str, list[Run]] = {stage_name(BY_PARTITION, name): [] for name in columns.values()}
    for number, runs in written:
        found[stage_name(BY_PARTITION, tasks[number].type_class)] += runs
    return found


def _tasks(flow: Dataflow, columns: Mapping[str, str], rows: int) -> list[_Task]:
    """Return the tasks in key order, so that the runs of a task follow those of the previous one."""
    together = max(1, _ROWS_PER_TASK // max(1, rows))
    ordered = sorted(columns.items(), key=lambda own: (own[1], own[0].encode()))
    tasks: list[_Task] = []
    for name, group in groupby(ordered, key=lambda own: own[1]):
        own = [field_id for field_id, _ in group]
        loader = flow.loader(stage_name(BY_PARTITION, name))
        for at in range(0, len(own), together):
            tasks.append(_Task(len(tasks), name, tuple(own[at : at + together]), loader))
    return tasks


def _write(store: ObjectStore, partitions: Sequence[CountedProfile], task: _Task) -> tuple[int, list[Run]]:
    """Return the number of the task and its runs.

    May run in a worker process. Holds all rows of the task's columns.
    """
    tables = [rows_of(task.type_class, by_partition=True).schema.empty_table()]
    with StatesReader(store) as opened:
        for own in partitions:
            with FrequencyReader(opened, own.files) as reader:
                tables += read_value_count_rows(reader, task.columns, task.type_class, own.partition)
    run_schema = task.loader.run_schema
    rows = run_schema.order.sort(frame_of(pa.concat_tables(tables)))
    return task.number, task.loader.write(table_of(rows, run_schema.schema))
