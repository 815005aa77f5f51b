"""The JSON answers that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metastore_assets.cli.statistics_table import SHAPE_BINS
from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.histograms import merge_bin_frequencies
from metastore_assets.lookup.json import columns_json, show_json
from metastore_assets.values.json import integer_json

if TYPE_CHECKING:
    from metastore_assets.statistics.column import ColumnStatistics
    from metastore_assets.store.manifest import Version

Json = dict[str, Any]
CONCURRENT_READS = 16
"""The number of version documents to read at a time: reading them mostly waits for the store."""


def show_answer(
    table: Table | FilteredView,
    rows: Sequence[ColumnStatistics],
    current: bool | None,
    partition: str | None = None,
    *,
    selected: bool = False,
    complete: bool = True,
) -> Json:
    """Return the answer of `show`.

    Singleton counts and entropy of a partition need all value counts, so only `selected` columns have them.

    Args:
        table: The table or filtered view that the statistics are from.
        rows: The statistics of the columns to show.
        current: Whether the version describes the current snapshot; None when that is unknown.
        partition: The key of the partition that the statistics are of; None for the whole table.
        selected: Whether the user named the columns.
        complete: Whether to read what only programs see, even of columns that are not selected.
    """
    spreads, built = {}, {}
    if partition is None and rows and (complete or selected):
        spreads, built = table.spreads(), table.built()
    elif selected:
        spreads = {row.column: table.spread(row.column, partition) for row in rows if row.frequencies == "enumerated"}
    answer = show_json(
        table.version,
        columns_json(table.version, rows, spreads, built),
        current=bool(current),
        row_count=table.row_count(partition),
        partition=partition,
    )
    return {**answer, "current": current, "format": table.version.format}


def read_shapes(
    table: Table | FilteredView, rows: Sequence[ColumnStatistics], partition: str | None = None
) -> Mapping[str, Sequence[int]]:
    """Return the frequencies of up to `SHAPE_BINS` bins for each column that has a histogram."""
    shapes: dict[str, list[int]] = {}
    for row in rows:
        try:
            histogram = table.dyadic_histogram(row.column, partition)
        except NotStoredError:
            continue
        shapes[row.column] = [] if histogram is None else merge_bin_frequencies(histogram, SHAPE_BINS)
    return shapes


def version_to_json(version: Version) -> Json:
    """Return the facts of a version that `tables` and `versions` list."""
    return {
        "version": version.number,
        "snapshot": version.snapshot,
        "committed_at": version.committed_at and version.committed_at.isoformat(),
        "published_at": version.published_at.isoformat(),
        "row_count": integer_json(version.row_count),
        "bytes": integer_json(version.bytes),
        "partitions": len(version.partitions),
        "fragments": version.fragment_count,
    }
