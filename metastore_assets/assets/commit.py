"""Metadata that describes a commit: the differences between two versions that runs report.

A version is the published statistics of a table at one snapshot. Runs report versions to Dagster. The two compared
versions are the one that a run reports now, and the one that was reported before.
"""

from collections.abc import Collection, Iterator

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema

from metastore_assets.assets.metadata import Metadata
from metastore_assets.errors import StoreError
from metastore_assets.lookup import Table
from metastore_assets.lookup.diff import diff_partitions
from metastore_assets.report.text import format_number, format_size, shorten
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.value_counts import ValueCountChanges, count_changes

CHANGES = "changes"
_MAX_ROWS = 24
_MAX_CELLS = 120
_COLUMNS = ("what", "before", "now", "change")
_SCHEMA = TableSchema([TableColumn(name, "string") for name in _COLUMNS])


def commit_metadata(objects: ObjectStore, before: Version | None, now: Table, columns: Collection[str]) -> Metadata:
    """Return metadata with a table of differences between two versions.

    The differences are in rows, files, partitions, columns and values.

    Args:
        objects: The table's folder below the root of the Metastore.
        before: The version reported before; None if there is none.
        now: The table at the version to report.
        columns: The names, in `now`, of the columns whose nulls and distinct values are compared.

    Returns:
        Metadata with at most 24 differences, and `rows_changed`. Empty if `before` is None, not older than `now`, or
        expired.
    """
    if before is None or before.number >= now.version.number:
        return {}
    try:
        rows = [*_table_changes(objects, before, now.version), *_column_changes(now.at(before), now, columns)]
    except StoreError:
        return {}
    records = [TableRecord(dict(zip(_COLUMNS, row, strict=True))) for row in rows[:_MAX_ROWS]]
    return {
        CHANGES: MetadataValue.table(records, _SCHEMA),
        "rows_changed": MetadataValue.int(now.version.row_count - before.row_count),
    }


_Row = tuple[str, str, str, str]
"""A row of the table of changes, with a cell for each of `_COLUMNS`."""


def _table_changes(objects: ObjectStore, before: Version, now: Version) -> Iterator[_Row]:
    """Yield a row for each fact of the table to compare.

    The facts are version, rows, files, bytes, partitions, columns and value counts. There is no row for partitions if
    the table has none, and none for columns if they are the same. There is a row for value counts only if the versions
    are consecutive, and the changes of value counts are known.
    """
    yield "version", format_number(before.number), format_number(now.number), ""
    yield _count_change("rows", before.row_count, now.row_count)
    yield _count_change("files", before.fragment_count, now.fragment_count)
    yield "bytes", format_size(before.bytes), format_size(now.bytes), ""
    if before.partition_columns or now.partition_columns:
        partitions = diff_partitions(before, now)
        counts = {"added": partitions.added, "changed": partitions.changed, "removed": partitions.removed}
        yield (
            "partitions",
            format_number(len(before.partitions)),
            format_number(len(now.partitions)),
            _format_counts(counts),
        )
    columns = [{field.name: field.type for field in version.schema} for version in (before, now)]
    if columns[0] != columns[1]:
        retyped_columns = [name for name in columns[1] if name in columns[0] and columns[0][name] != columns[1][name]]
        names = {
            "added": columns[1].keys() - columns[0].keys(),
            "removed": columns[0].keys() - columns[1].keys(),
            "retyped": retyped_columns,
        }
        changes = [f"{change}: {', '.join(sorted(group))}" for change, group in names.items() if group]
        yield (
            "columns",
            format_number(len(columns[0])),
            format_number(len(columns[1])),
            shorten("; ".join(changes), _MAX_CELLS),
        )
    if now.number == before.number + 1:
        # Only consecutive versions record which value counts changed. A version of the same content, which a compaction
        # or a purge published, still has the record of the previous version.
        is_same = before.content_id == now.content_id
        values = ValueCountChanges() if is_same else count_changes(objects, before.value_counts, now.value_counts)
        if values is not None:
            counts = {"added": values.added, "changed": values.changed, "removed": values.removed}
            yield "value counts", "", "", _format_counts(counts) or "none"


def _column_changes(before: Table, now: Table, columns: Collection[str]) -> Iterator[_Row]:
    """Yield a row for each changed null count, and for each changed exact distinct count.

    A distinct count has a row only if it is exact in both versions. Columns are matched by field id, so a renamed
    column is compared too. New columns have no rows.
    """
    rows_before = {row.field_id: row for row in before.statistics()}
    for row in now.statistics(columns):
        row_before = rows_before.get(row.field_id)
        if row_before is None:
            continue
        name = shorten(row.column, _MAX_CELLS)
        if row_before.null_count != row.null_count:
            yield _count_change(f"{name}: nulls", row_before.null_count, row.null_count)
        is_exact = _is_exact(row_before) and _is_exact(row)
        if is_exact and row_before.distinct_count != row.distinct_count:
            yield _count_change(f"{name}: distinct values", row_before.distinct_count or 0, row.distinct_count or 0)


def _is_exact(row: ColumnStatistics) -> bool:
    return row.distinct_count is not None and row.distinct_count_guarantee == "exact"


def _count_change(what: str, before: int, now: int) -> _Row:
    return what, format_number(before), format_number(now), f"{now - before:+,}" if now != before else ""


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
