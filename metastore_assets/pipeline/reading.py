"""Whole files that planning has to read, such as new CSV and JSON, read by Spark's tasks where they are large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from metastore_assets.errors import WorkerEndedError
from metastore_assets.spark.tasks import run_tasks
from metastore_assets.tasks.child import portable
from metastore_assets.tasks.reading import read_all
from metastore_assets.tasks.running import run_in_children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_A_JOB = 32 << 20
"""Bytes that a job on Spark is worth; less is read sooner by children of this process."""


class TaskReader:
    """Reads files on Spark, one task per file. A `Runner` of formats."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` is asked for a session when there is as much to read as a job is worth."""
        self._spark = spark

    def __call__(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        paths: Sequence[str],
        sizes: Sequence[int],
        *,
        threads: int,
    ) -> list[Any]:
        """As `Runner`. When a file ends its worker, all are read again apart: what they end then is known by name."""
        if sum(sizes) < WORTH_A_JOB:
            return run_in_children(function, tasks, paths, sizes, threads=threads)
        session = self._spark()
        numbered = [(number, task, path) for number, (task, path) in enumerate(zip(tasks, paths, strict=True))]
        weights = [float(size + 1) for size in sizes]
        try:
            found = run_tasks(session, partial(_read, function), numbered, weights)
        except WorkerEndedError:
            found = run_tasks(session, partial(_read_apart, function), numbered, weights)
        return [outcome for _, outcome in sorted(found, key=lambda one: one[0])]


def _read(function: Callable[..., Any], task: tuple[int, tuple[Any, ...], str]) -> tuple[int, Any]:
    number, arguments, _ = task
    try:
        return number, function(*arguments)
    except Exception as error:  # noqa: BLE001 (what it means decides who asked, as of what is read in children)
        return number, portable(error)


def _read_apart(function: Callable[..., Any], task: tuple[int, tuple[Any, ...], str]) -> tuple[int, Any]:
    """The same in a child of the worker."""
    number, arguments, path = task
    return number, read_all(function, [arguments], [path])[0]
