"""Functions that build JSON documents for several commands.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from metastore_assets.cli.statistics_table import SHAPE_BINS
from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.histograms import merge_bin_frequencies
from metastore_assets.lookup.json import columns_json, show_json
from metastore_assets.values.json import integer_json, time_json

if TYPE_CHECKING:
    from metastore_assets.lookup.summaries import VersionSummary
    from metastore_assets.statistics.column import ColumnStatistics

Json = dict[str, Any]
Detail = Literal["summary", "selected", "full"]
"""What `show` prints: all columns briefly (`summary`), all columns as JSON (`full`), or named columns (`selected`)."""


def show_answer(
    table: Table | FilteredView,
    rows: Sequence[ColumnStatistics],
    current: bool | None,
    partition: str | None = None,
    detail: Detail = "full",
) -> Json:
    """Return column statistics as the JSON document of `show`.

    Args:
        table: The table or filtered view to which the statistics belong.
        rows: The statistics of the columns to show.
        current: Whether the version describes the current snapshot; None if unknown.
        partition: The key of the partition to which the statistics belong; None for the whole table.
        detail: When to read the entropy and the number of values that occur once: never (`summary`), only for the
            whole table (`full`), or always (`selected`). The document has nulls in their place if they are not read.
    """
    spreads, builds = {}, {}
    if partition is None and rows and detail != "summary":
        spreads, builds = {spread.column: spread for spread in table.spread()}, table.built()
    elif detail == "selected":
        spreads = {
            row.column: table.spread(row.column, partition=partition) for row in rows if row.frequencies == "enumerated"
        }
    answer = show_json(
        table.version,
        columns_json(table.version, rows, spreads, builds),
        current=bool(current),
        row_count=table.count(partition=partition).value,
        partition=partition,
    )
    return {**answer, "current": current, "format": table.version.format}


def read_shapes(
    table: Table | FilteredView, rows: Sequence[ColumnStatistics], partition: str | None = None
) -> Mapping[str, Sequence[int]]:
    """Return the number of rows per bin of each column's histogram, by column name.

    `partition` is the key of a partition; None for the whole table. Bins are ascending. Neighbouring bins are merged
    until at most `SHAPE_BINS` remain. A column without finite values has no bins. Columns without a stored histogram
    are left out.
    """
    shapes: dict[str, list[int]] = {}
    for row in rows:
        try:
            histogram = table.dyadic_histogram(row.column, partition=partition)
        except NotStoredError:
            continue
        shapes[row.column] = [] if histogram is None else merge_bin_frequencies(histogram, SHAPE_BINS)
    return shapes


def version_to_json(version: VersionSummary) -> Json:
    """Return a version as a JSON object for `tables` and `versions`.

    It has the number, snapshot, times and sizes.
    """
    return {
        "version": version.version,
        "snapshot": version.snapshot,
        "committed_at": time_json(version.committed_at),
        "published_at": time_json(version.published_at),
        "row_count": integer_json(version.row_count),
        "bytes": integer_json(version.bytes),
        "partitions": version.partitions,
        "fragments": version.fragments,
    }
