"""The differences between a version and the version reported before, as a short table."""

from collections.abc import Collection, Iterator

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema

from metastore_assets.assets.metadata import Metadata
from metastore_assets.errors import StoreError
from metastore_assets.lookup import Table
from metastore_assets.report.text import format_number, format_size, shorten
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import count_changes

CHANGES = "changes"
_MOST = 24
_CELL = 120
_SCHEMA = TableSchema([TableColumn(name, "string") for name in ("what", "before", "now", "change")])


def commit_metadata(objects: ObjectStore, before: Version | None, now: Table, columns: Collection[str]) -> Metadata:
    """Return the changes of rows, files, partitions, columns, value counts, nulls and distinct values as metadata.

    Args:
        objects: The table's folder in the root.
        before: The version reported before.
        now: The table at the version to report.
        columns: Columns whose nulls and distinct values are compared.

    Returns:
        Empty without an earlier version, or if its files have expired.
    """
    if before is None or before.number >= now.version.number:
        return {}
    try:
        records = [*_of_table(objects, before, now.version), *_of_columns(now.at(before), now, columns)]
    except StoreError:
        return {}
    told = [TableRecord(dict(zip(("what", "before", "now", "change"), row, strict=True))) for row in records[:_MOST]]
    return {
        CHANGES: MetadataValue.table(told, _SCHEMA),
        "rows_changed": MetadataValue.int(now.version.row_count - before.row_count),
    }


_Row = tuple[str, str, str, str]


def _of_table(objects: ObjectStore, before: Version, now: Version) -> Iterator[_Row]:
    yield "version", format_number(before.number), format_number(now.number), ""
    yield _counted("rows", before.row_count, now.row_count)
    yield _counted("files", before.fragment_count, now.fragment_count)
    yield "bytes", format_size(before.bytes), format_size(now.bytes), ""
    then = {entry.key: entry.content_id for entry in before.partitions}
    own = {entry.key: entry.content_id for entry in now.partitions}
    both = then.keys() & own.keys()
    changed = sum(then[key] != own[key] for key in both)
    counts = {"new": len(own) - len(both), "changed": changed, "gone": len(then) - len(both)}
    if before.partition_columns or now.partition_columns:
        yield "partitions", format_number(len(then)), format_number(len(own)), _format_counts(counts)
    columns = [{field.name: field.type for field in version.schema} for version in (before, now)]
    if columns[0] != columns[1]:
        retyped = [name for name in columns[1] if name in columns[0] and columns[0][name] != columns[1][name]]
        news = {"new": columns[1].keys() - columns[0].keys(), "gone": columns[0].keys() - columns[1].keys()}
        named = [f"{what}: {', '.join(sorted(names))}" for what, names in {**news, "retyped": retyped}.items() if names]
        yield (
            "columns",
            format_number(len(columns[0])),
            format_number(len(columns[1])),
            shorten("; ".join(named), _CELL),
        )
    if now.number == before.number + 1:
        # Only consecutive versions record which value counts changed.
        lists = count_changes(objects, before.value_counts, now.value_counts)
        if lists is not None:
            told = _format_counts({"new": lists.added, "changed": lists.changed, "gone": lists.removed})
            yield "listed values", "", "", told or "none"


def _of_columns(before: Table, now: Table, columns: Collection[str]) -> Iterator[_Row]:
    then = {row.field_id: row for row in before.statistics()}
    for row in now.statistics(columns):
        old = then.get(row.field_id)
        if old is None:
            continue
        name = shorten(row.column, _CELL)
        if old.null_count != row.null_count:
            yield _counted(f"{name}: nulls", old.null_count, row.null_count)
        if old.distinct_count != row.distinct_count and _is_exact(old) and _is_exact(row):
            yield _counted(f"{name}: distinct values", old.distinct_count or 0, row.distinct_count or 0)


def _is_exact(row: ColumnStatistics) -> bool:
    return row.distinct_count is not None and row.distinct_count_guarantee == "exact"


def _counted(what: str, before: int, now: int) -> _Row:
    return what, format_number(before), format_number(now), f"{now - before:+,}" if now != before else ""


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
