"""JSON documents that several commands write, and parallel requests to a store that Ctrl-C can end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from metastore_assets.cli.statistics_table import SHAPE_BINS
from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.histograms import merge_bin_frequencies
from metastore_assets.lookup.json import columns_json, show_json
from metastore_assets.values.json import integer_json, time_json

if TYPE_CHECKING:
    from metastore_assets.statistics.column import ColumnStatistics
    from metastore_assets.store.manifest import Version

Json = dict[str, Any]
Detail = Literal["summary", "selected", "full"]
"""The columns for which `show` reads singleton counts and entropy: none, those that the user named, or all."""
_THREADS = 16
"""The number of parallel requests; they mostly wait for the store."""
_WAIT_SECONDS = 0.2

T = TypeVar("T")
R = TypeVar("R")


def show_answer(
    table: Table | FilteredView,
    rows: Sequence[ColumnStatistics],
    current: bool | None,
    partition: str | None = None,
    detail: Detail = "full",
) -> Json:
    """Return column statistics as the JSON document of `show`.

    Args:
        table: The table or filtered view that the statistics are from.
        rows: The statistics of the columns to show.
        current: Whether the version describes the current snapshot; None when that is unknown.
        partition: The key of the partition that the statistics are of; None for the whole table.
        detail: Which columns have singleton counts and entropy. For a partition, they are computed from all of its
            value counts, so only `selected` gives them.
    """
    spreads, built = {}, {}
    if partition is None and rows and detail != "summary":
        spreads, built = {spread.column: spread for spread in table.spread()}, table.built()
    elif detail == "selected":
        spreads = {
            row.column: table.spread(row.column, partition=partition) for row in rows if row.frequencies == "enumerated"
        }
    answer = show_json(
        table.version,
        columns_json(table.version, rows, spreads, built),
        current=bool(current),
        row_count=table.count(partition=partition).value,
        partition=partition,
    )
    return {**answer, "current": current, "format": table.version.format}


def read_shapes(
    table: Table | FilteredView, rows: Sequence[ColumnStatistics], partition: str | None = None
) -> Mapping[str, Sequence[int]]:
    """Return a small histogram of each column: the frequencies of at most `SHAPE_BINS` bins, by column name.

    Columns without a stored histogram are omitted. The list is empty for a column without finite values.
    """
    shapes: dict[str, list[int]] = {}
    for row in rows:
        try:
            histogram = table.dyadic_histogram(row.column, partition=partition)
        except NotStoredError:
            continue
        shapes[row.column] = [] if histogram is None else merge_bin_frequencies(histogram, SHAPE_BINS)
    return shapes


def version_to_json(version: Version) -> Json:
    """Return number, snapshot, times and sizes of a version as the JSON object that `tables` and `versions` list."""
    return {
        "version": version.number,
        "snapshot": version.snapshot,
        "committed_at": time_json(version.committed_at),
        "published_at": time_json(version.published_at),
        "row_count": integer_json(version.row_count),
        "bytes": integer_json(version.bytes),
        "partitions": len(version.partitions),
        "fragments": version.fragment_count,
    }


def parallel_map(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return `[function(item) for item in items]`, computed on several threads.

    The threads are daemons: pool threads would keep an interrupted command alive until the store responds. Raises the
    error of the first item that failed.
    """
    tasks = [(Future[R](), item) for item in items]
    queue: SimpleQueue[tuple[Future[R], T]] = SimpleQueue()
    for task in tasks:
        queue.put(task)

    def work() -> None:
        """Take items from the queue and compute their results until the queue is empty."""
        while True:
            try:
                future, item = queue.get_nowait()
            except Empty:
                return
            try:
                future.set_result(function(item))
            except Exception as error:  # noqa: BLE001 (the caller raises it again)
                future.set_exception(error)

    for _ in range(min(_THREADS, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    return [_wait_for(future) for future, _ in tasks]


def _wait_for(future: Future[R]) -> R:
    # An endless wait might not notice a signal; see `install_signal_handlers`.
    while not future.done():
        wait([future], _WAIT_SECONDS)
    return future.result()
