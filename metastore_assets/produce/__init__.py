"""Incremental MapReduce over sorted, versioned Parquet files: updates recompute only changed keys.

A dataflow is a graph of stages. A stage computes rows by key from its input: rows of other stages, or of roots, which
receive rows from outside. The package is independent of tables and statistics.
"""

from metastore_assets.produce.complete_load import Loader
from metastore_assets.produce.dataflow import Dataflow
from metastore_assets.produce.environment import Settings
from metastore_assets.produce.graph import TypedNode, typed_graph
from metastore_assets.produce.per_key import Port
from metastore_assets.produce.ranks import Ranks
from metastore_assets.produce.runs import Run
from metastore_assets.produce.stages import Batch, Delta, DeltaRoot, Preserve, Root, Stage, SumStage, SurrogateKey
from metastore_assets.produce.state import FlowState
from metastore_assets.produce.typed_rows import Rows
from metastore_assets.produce.view import View
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

__all__ = [
    "Batch",
    "Dataflow",
    "Delta",
    "DeltaRoot",
    "FlowState",
    "InProcessRunner",
    "Loader",
    "Port",
    "Preserve",
    "Ranks",
    "Root",
    "Rows",
    "Run",
    "Settings",
    "Stage",
    "SumStage",
    "SurrogateKey",
    "TaskRunner",
    "TypedNode",
    "View",
    "typed_graph",
]
