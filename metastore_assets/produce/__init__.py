"""Incremental MapReduce over sorted Parquet: keyed, sorted, versioned. Knows nothing of what is computed with it."""

from metastore_assets.produce.dataflow import Dataflow
from metastore_assets.produce.executor import Executor, LocalExecutor
from metastore_assets.produce.perkey import Port
from metastore_assets.produce.rows import Rows
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Batch, Preserve, Root, Stage, SumStage, SurrogateKey
from metastore_assets.produce.view import View

__all__ = [
    "Batch",
    "Dataflow",
    "Executor",
    "LocalExecutor",
    "Port",
    "Preserve",
    "Root",
    "Rows",
    "Settings",
    "Stage",
    "SumStage",
    "SurrogateKey",
    "View",
]
