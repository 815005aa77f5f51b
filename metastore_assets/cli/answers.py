"""The answers of the commands that read: what they print as JSON, and what terminal output draws from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metastore_assets.cli.parallel import parallel_map
from metastore_assets.cli.statistics_table import SHAPE_BINS
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import NotStoredError, VersionNotFoundError
from metastore_assets.lookup import FilteredView, Table, TextValue
from metastore_assets.lookup.histograms import merged_frequencies
from metastore_assets.lookup.json import show_json
from metastore_assets.messages import redact
from metastore_assets.metastore import Metastore
from metastore_assets.values.json import integer_json

if TYPE_CHECKING:
    from metastore_assets.statistics.column import ColumnStatistics
    from metastore_assets.store.manifest import Version

Json = dict[str, Any]
_READERS = 16
"""Version documents read at a time: most of it is waiting for the store."""


def table_answers(config: MetastoreConfig) -> list[Json]:
    """The configured tables with their newest versions; null where there is none."""
    metastore = Metastore(config.root, config.storage_options)

    def answer(table: TableConfig) -> Json:
        try:
            version = metastore.table(table.name).version
        except VersionNotFoundError:
            version = None
        told = {} if version is None else _version(version)
        keys = ("version", "snapshot", "committed_at", "published_at", "row_count", "bytes", "partitions", "fragments")
        return {
            "table": table.name,
            "uri": redact(table.uri),
            "format": table.declared_format if version is None else version.format,
            "catalog": getattr(table.catalog, "name", None),
            "gone": table.dropped_reason,
            **{key: told.get(key) for key in keys},
        }

    return parallel_map(answer, config.tables, _READERS)


def version_answers(metastore: Metastore, name: str, newest: Version) -> list[Json]:
    """The published versions of a table up to its newest, which comes first."""
    numbers = [number for number in metastore.versions(name) if number < newest.number]

    def answer(number: int) -> Json | None:
        try:
            return _version(metastore.table(name, number).version)
        except VersionNotFoundError:
            return None  # Expired since it was listed.

    older = parallel_map(answer, reversed(numbers), _READERS)
    return [_version(newest), *(row for row in older if row is not None)]


def partition_answers(table: Table | FilteredView) -> list[Json]:
    """The partitions of a version, in its order."""
    return [
        {
            "partition": entry.key,
            "row_count": integer_json(entry.row_count),
            "bytes": integer_json(entry.bytes),
            "fragments": entry.fragments,
            "version": entry.version,
        }
        for entry in table.partitions()
    ]


def show_answer(
    table: Table | FilteredView,
    rows: Sequence[ColumnStatistics],
    current: bool | None,
    partition: str | None = None,
    *,
    chosen: bool = False,
    complete: bool = True,
) -> Json:
    """The answer of `show`. `current` is null when the table could not be asked.

    Of a partition, singletons and entropy take the whole lists of values: they are told of columns `chosen` by name.
    Of columns that are not, nothing that only programs see is looked up unless the answer is to be `complete`.
    """
    count, spreads, built = table.row_count(partition), {}, {}
    if partition is None and rows and (complete or chosen):
        spreads, built = table.spreads(), table.built()
    elif chosen:
        spreads = {row.column: table.spread(row.column, partition) for row in rows if row.frequencies == "enumerated"}
    answer = show_json(
        table.version,
        rows,
        current=bool(current),
        row_count=count,
        partition=partition,
        spreads=spreads,
        built=built,
    )
    return {**answer, "current": current, "format": table.version.format}


def rank_answer(table: Table | FilteredView, column: str, text: str, partition: str | None) -> Json:
    """The answer of `rank`. `frequency` is null when it is not known."""
    value = TextValue(text)
    found = table.rank(column, value, partition)
    try:
        frequency = integer_json(table.frequency(column, value, partition).count)
    except NotStoredError:
        frequency = None
    return {
        "rank": integer_json(found.count),
        "frequency": frequency,
        "row_count": integer_json(table.row_count(partition)),
        "guarantee": found.guarantee,
    }


def where_answers(table: Table, column: str, text: str) -> list[Json]:
    """The answers of `where`, in the order of the version's partitions."""
    found = table.where_is(column, TextValue(text))
    return [{"partition": key, "frequency": integer_json(frequency)} for key, frequency in found]


def profile_answer(uri: str, table: Table, rows: Sequence[ColumnStatistics]) -> Json:
    """The answer of `profile` for one URI: that of `show`, but nothing of it is kept."""
    answer = show_answer(table, rows, current=True)
    return {"uri": redact(uri), **{key: value for key, value in answer.items() if key not in ("table", "version")}}


def shapes(
    table: Table | FilteredView, rows: Sequence[ColumnStatistics], partition: str | None = None
) -> Mapping[str, Sequence[int]]:
    """By column, the frequencies of a few bins; columns without a histogram are left out."""
    found: dict[str, list[int]] = {}
    for row in rows:
        try:
            histogram = table.dyadic_histogram(row.column, partition)
        except NotStoredError:
            continue
        found[row.column] = [] if histogram is None else merged_frequencies(histogram, SHAPE_BINS)
    return found


def _version(version: Version) -> Json:
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
