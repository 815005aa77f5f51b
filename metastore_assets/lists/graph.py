"""The dataflow of a table's lists, declared: one set of stages for each type class that has listed columns.

    lists of the fragments that came (+) and went (−)
      → values        sum, by (column, value): frequency            the primary order: ranks come from it
          → frequencies   by (column, frequency ↓, value)           the order that people and planners ask for
                          of values that occur twice or more: the others follow, in the order of `values`
          → facts         sum, by (column, frequency): values       distinct, duplicates and entropy follow

`column` is the field id: it stays when a column is renamed. A column whose type widens into another class goes over to
the stages of that class.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from metastore_assets.produce import Dataflow, DeltaRoot, Executor, Rows, Settings, SumStage
from metastore_assets.produce.stages import Node
from metastore_assets.statistics.types import class_named
from metastore_assets.store.objects import ObjectStore

FOLDER = "lists"
VALUES, FREQUENCIES, FACTS = "values", "frequencies", "facts"
DELTAS = "deltas"
SETTINGS = Settings(row_group_rows=4_096, target_rows=1_000_000, single_run_rows=50_000)
"""Row groups are what a lookup reads at least: some tens of kilobytes. Footers, which say what
is in each, have a thousand of them at most."""


def stage_name(kind: str, type_class: str) -> str:
    """The stage of one kind (`VALUES`, `FREQUENCIES`, `FACTS`) that has the columns of one class."""
    return f"{kind}.{type_class}"


def delta_name(type_class: str) -> str:
    """The root that the lists of columns of one class come in by."""
    return stage_name(DELTAS, type_class)


def rows_of(type_class: str) -> Rows:
    """The rows that come and go: `column`, `value`, `frequency`."""
    key = pa.schema({"column": pa.string(), "value": class_named(type_class).arrow})
    return Rows(key, pa.schema({"frequency": pa.int64()}))


def list_flow(store: ObjectStore, classes: Iterable[str], *, executor: Executor | None = None) -> Dataflow:
    """The dataflow of a table's lists, whose files lie in `FOLDER` below the table's; `classes` by name."""
    nodes = [node for name in sorted(classes) for node in _stages(name)]
    return Dataflow(store, nodes, executor=executor, settings=SETTINGS, folder=FOLDER)


def _stages(type_class: str) -> list[Node]:
    deltas, values = delta_name(type_class), stage_name(VALUES, type_class)
    return [
        DeltaRoot(deltas, rows_of(type_class)),
        SumStage(values, (deltas,), ("column", "value"), ("frequency",)),
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
