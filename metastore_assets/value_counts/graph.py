"""The dataflow of a table's lists, declared: one set of stages for each type class that has listed columns.

    lists of the fragments that came (+) and went (−)
      → values        sum, by (column, value): frequency            the primary order: ranks come from it
          → frequencies   by (column, frequency ↓, value)           the order that people and planners ask for
                          of values that occur twice or more: the others follow, in the order of `values`
          → facts         sum, by (column, frequency): values       distinct, duplicates and entropy follow

    the same lists, with the partition that they are of, of columns with `by_partition: on`
      → by_partition  sum, by (column, value, partition): frequency   which partitions hold a value

What is kept by partition is fed apart, so that totals cost nothing for its sake. Partitions go by their keys: as texts
they take the bytes that numbers would, and any tool reads them.

`column` is the field id: it stays when a column is renamed. A column whose type widens into another class goes over to
the stages of that class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa

from metastore_assets.produce import Dataflow, DeltaRoot, Rows, Settings, SumStage, TaskRunner, Typed, typed_graph
from metastore_assets.produce.rows import FEW
from metastore_assets.produce.stages import Node
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import class_named

FOLDER = "lists"
VALUES, FREQUENCIES, FACTS, BY_PARTITION = "values", "frequencies", "facts", "by_partition"
DELTAS, PARTITION_DELTAS = "deltas", "partition_deltas"
SETTINGS = Settings(row_group_rows=4_096, target_rows=1_000_000, single_run_rows=50_000)
"""Row groups are what a lookup reads at least: some tens of kilobytes. Footers, which say what
is in each, have a thousand of them at most."""


def stage_name(kind: str, type_class: str) -> str:
    """The stage of one kind (`VALUES`, `FREQUENCIES`, `FACTS`, `BY_PARTITION`) that has the columns of one class."""
    return f"{kind}.{type_class}"


def delta_name(type_class: str, *, by_partition: bool = False) -> str:
    """The root that the lists of columns of one class come in by."""
    return stage_name(PARTITION_DELTAS if by_partition else DELTAS, type_class)


def rows_of(type_class: str, *, by_partition: bool = False) -> Rows:
    """The rows that come and go: `column`, `value`, and by partition its key as `partition`; `frequency`."""
    key = pa.schema({"column": pa.string(), "value": class_named(type_class).arrow})
    if by_partition:
        key = key.append(pa.field("partition", pa.string(), metadata=FEW))
    return Rows(key, pa.schema({"frequency": pa.int64()}))


def value_count_dataflow(
    store: ObjectStore, classes: Iterable[str], by_partition: Iterable[str] = (), *, runner: TaskRunner | None = None
) -> Dataflow:
    """The dataflow of a table's lists, whose files lie in `FOLDER` below the table's.

    `classes`, by name, are those of listed columns; `by_partition` those of columns that are kept by partition as well.
    """
    graph = _graph(tuple(sorted(classes)), tuple(sorted(by_partition)))
    return Dataflow(store, graph, runner=runner, settings=SETTINGS, folder=FOLDER)


@lru_cache(maxsize=64)
def _graph(classes: tuple[str, ...], by_partition: tuple[str, ...]) -> Mapping[str, Typed]:
    nodes = [node for name in classes for node in value_count_stages(name)]
    return typed_graph(nodes + [node for name in by_partition for node in _stages_by_partition(name)])


def value_count_stages(type_class: str, rows: Rows | None = None) -> list[Node]:
    """The stages that have the columns of one class. `rows`: what comes and goes, where that is not `rows_of` it; the
    key of `values` is theirs."""
    deltas, values = delta_name(type_class), stage_name(VALUES, type_class)
    rows = rows_of(type_class) if rows is None else rows
    return [
        DeltaRoot(deltas, rows),
        SumStage(values, (deltas,), tuple(rows.key.names), ("frequency",)),
        SumStage(
            stage_name(FREQUENCIES, type_class),
            (values,),
            ("column", "frequency", "value"),
            count="values",
            descending=("frequency",),
            least=("frequency", 2),
            is_followed=False,
        ),
        SumStage(stage_name(FACTS, type_class), (values,), ("column", "frequency"), count="values", is_followed=False),
    ]


def _stages_by_partition(type_class: str) -> list[Node]:
    deltas = delta_name(type_class, by_partition=True)
    return [
        DeltaRoot(deltas, rows_of(type_class, by_partition=True)),
        SumStage(
            stage_name(BY_PARTITION, type_class),
            (deltas,),
            ("column", "value", "partition"),
            ("frequency",),
            is_followed=False,
        ),
    ]
