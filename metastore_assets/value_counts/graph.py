"""The dataflow of a table's value counts: one set of stages per type class of enumerated columns.

An enumerated column stores each distinct value with its frequency. A type class is a group of column types whose values
are stored as one type. A fragment is the smallest unit of rows that a table format adds or removes.
A stage computes rows by key from its input. A sum stage adds up the numbers in its input by key.

    value counts of the fragments that were added (+) and removed (−)
      → values        sum, by (column, value): frequency            for ranks: how many rows have smaller values
          → frequencies   by (column, frequency ↓, value)           the order that most queries need, with the values
                                                                    that occur at least twice; the others are read
                                                                    from `values`
          → frequency_counts  sum, by (column, frequency): values   distinct, duplicates and entropy derive from it

    the same value counts with their partition, for columns with `by_partition: on`
      → by_partition  sum, by (column, value, partition): frequency   which partitions hold a value

Counts by partition have separate roots (inputs of the dataflow), so that they add no cost to the totals. A partition is
stored as its partition key: a text such as `day=1`, which compresses as well as a number, and which any tool can read.

`column` is the field id, which does not change when a column is renamed. A column whose type widens into another class
moves to the stages of that class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa

from metastore_assets.produce import Dataflow, DeltaRoot, Rows, Settings, SumStage, TaskRunner, TypedNode, typed_graph
from metastore_assets.produce.stages import Node
from metastore_assets.produce.typed_rows import FEW_VALUES
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import class_named

FOLDER = "value_counts"
"""The folder of value counts below the table's folder."""
VALUES, FREQUENCIES, FREQUENCY_COUNTS, BY_PARTITION = "values", "frequencies", "frequency_counts", "by_partition"
"""Kinds of stages."""
DELTAS, PARTITION_DELTAS = "deltas", "partition_deltas"
"""Kinds of roots. They receive deltas: added and removed rows."""
SETTINGS = Settings(row_group_rows=4_096, target_rows=1_000_000, single_run_rows=50_000)
"""Sizes of runs, which are the sorted files of stages. A lookup reads at least a row group of some tens of kilobytes.
"""


def stage_name(kind: str, type_class: str) -> str:
    """Return the name of a stage: `values.int64` for the kind `values` and the type class `int64`."""
    return f"{kind}.{type_class}"


def delta_name(type_class: str, *, by_partition: bool = False) -> str:
    """Return the name of the root that receives the added and removed values of a type class.

    A root is an input of the dataflow. With `by_partition`, it is the root that feeds the counts by partition.
    """
    return stage_name(PARTITION_DELTAS if by_partition else DELTAS, type_class)


def rows_of(type_class: str, *, by_partition: bool = False) -> Rows:
    """Return the columns of added and removed values.

    The key columns are `column` and `value`. The only other column is `frequency`, which is summed. `value` has the
    type of the class. With `by_partition`, the key also has `partition`.
    """
    key = pa.schema({"column": pa.string(), "value": class_named(type_class).arrow})
    if by_partition:
        key = key.append(pa.field("partition", pa.string(), metadata=FEW_VALUES))
    return Rows(key, pa.schema({"frequency": pa.int64()}))


def value_count_dataflow(
    store: ObjectStore, classes: Iterable[str], by_partition: Iterable[str] = (), *, runner: TaskRunner | None = None
) -> Dataflow:
    """Return the dataflow that reads and updates the value counts of enumerated columns.

    The files of the dataflow are in `FOLDER` below the table's folder. See `produce.dataflow`.

    Args:
        store: The folder of the table.
        classes: The names of the type classes of enumerated columns.
        by_partition: The names of the type classes of columns that are also counted by partition.
        runner: Runs the tasks; None runs them in this process.
    """
    graph = _graph(tuple(sorted(classes)), tuple(sorted(by_partition)))
    return Dataflow(store, graph, runner=runner, settings=SETTINGS, folder=FOLDER)


@lru_cache(maxsize=64)
def _graph(classes: tuple[str, ...], by_partition: tuple[str, ...]) -> Mapping[str, TypedNode]:
    nodes = [node for name in classes for node in value_count_stages(name)]
    return typed_graph(nodes + [node for name in by_partition for node in _stages_by_partition(name)])


def value_count_stages(type_class: str, rows: Rows | None = None) -> list[Node]:
    """Return the nodes of one type class: the root, then its stages.

    The stages are `values`, `frequencies` and `frequency_counts`. The root is their input: value counts that were added
    or removed.

    Args:
        type_class: The name of the class.
        rows: The columns of the root; None for `rows_of(type_class)`.
    """
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
        SumStage(
            stage_name(FREQUENCY_COUNTS, type_class),
            (values,),
            ("column", "frequency"),
            count="values",
            is_followed=False,
        ),
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
