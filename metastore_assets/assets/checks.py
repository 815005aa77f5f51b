"""Checks of a published version that cost nothing: its own numbers against each other."""

from collections.abc import Sequence

from dagster import AssetCheckKey, AssetCheckResult, MetadataValue

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.types import leaf_columns
from metastore_assets.store.manifest import Version

_MOST_PROBLEMS = 10


def check_result(key: AssetCheckKey, version: Version, rows: Sequence[ColumnStatistics]) -> AssetCheckResult:
    """The result of the one check there is."""
    problems = row_problems(version, rows)
    return AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=not problems,
        description="; ".join(problems[:_MOST_PROBLEMS]) or None,
        metadata={
            "version": MetadataValue.int(version.number),
            "dagster/row_count": MetadataValue.int(version.row_count),
            "partitions": MetadataValue.int(len(version.partitions)),
            "columns": MetadataValue.int(len(version.schema)),
        },
    )


def row_problems(version: Version, rows: Sequence[ColumnStatistics]) -> list[str]:
    """What does not add up, for people; empty when all does. `rows` are the table-level statistics."""
    problems = []
    partitions = sum(entry.row_count for entry in version.partitions)
    if partitions != version.row_count:
        problems.append(f"the partitions have {partitions} rows and the table has {version.row_count}")
    known = {row.column: row for row in rows}
    for field in version.schema:
        column = leaf_columns(field)[0].path
        row = known.get(column)
        if row is None:
            problems.append(f"column {column!r} has no statistics")
        elif row.value_count + row.null_count != version.row_count:
            problems.append(
                f"column {column!r} has {row.value_count} values and {row.null_count} nulls in {version.row_count} rows"
            )
    return problems
