"""Incremental MapReduce: a graph of stages over sorted, versioned Parquet files, in which an update recomputes only
changed keys.

The package is independent of tables and statistics.
"""

from metastore_assets.produce.dataflow import Dataflow
from metastore_assets.produce.environment import Settings
from metastore_assets.produce.graph import Typed, typed_graph
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.per_key import Port
from metastore_assets.produce.ranks import Ranks
from metastore_assets.produce.rows import Rows
from metastore_assets.produce.runs import Run
from metastore_assets.produce.stages import Batch, Delta, DeltaRoot, Preserve, Root, Stage, SumStage, SurrogateKey
from metastore_assets.produce.state import FlowState
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
    "Typed",
    "View",
    "typed_graph",
]
