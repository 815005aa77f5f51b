"""Doing the same to each of some fragments: in children of this process, or in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from metastore_assets.errors import FatalFileError, FragmentError, MetastoreError, WorkerEndedError
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.engine import Engine
from metastore_assets.spark.tasks import run_tasks
from metastore_assets.storage.process_memory import run_with_memory_limit
from metastore_assets.tasks.reading import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartSpark = Callable[[], "SparkSession"]


def scan_engine(spark: StartSpark | None) -> Engine:
    """Who reads: Spark where there is much, if there is one."""
    return Engine(spark or _no_spark, "auto")


def session_starter(engine: Engine) -> StartSpark:
    """Asks an engine for its session."""
    return lambda: engine.session


def map_fragments(
    engine: Engine, function: Callable[[Fragment], Any], fragments: Sequence[Fragment], *, apart: bool
) -> list[Any]:
    """What a function, which has to be picklable, says of each fragment, in no particular order.

    `apart`: in children of this process, however much there is to read. Raises FragmentError.
    """
    if not fragments:
        return []
    if apart or engine.reads_here(fragments):
        return _apart(function, fragments)
    weights = [float(fragment.bytes + 1) for fragment in fragments]
    try:
        return run_tasks(engine.session, partial(run_with_memory_limit, function), fragments, weights)
    except WorkerEndedError:
        # Which file ended its worker is known when each is read in a child of one.
        lots = [(fragment,) for fragment in fragments]
        return [found for own in run_tasks(engine.session, partial(_apart, function), lots, weights) for found in own]


def _apart(function: Callable[[Fragment], Any], fragments: Sequence[Fragment]) -> list[Any]:
    outcomes = read_all(function, [(own,) for own in fragments], [own.path for own in fragments])
    for outcome in outcomes:
        if isinstance(outcome, FatalFileError):
            raise FragmentError(str(outcome), path=outcome.path, unsupported=outcome.unsupported)
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def _no_spark() -> SparkSession:
    raise MetastoreError("there is more to read than this process does by itself: give a Spark session")
