"""The rows of a history: one per version and column, with types that every engine reads.

A version has the statistics of one snapshot of the table. A hidden column has the policy `values: hidden`: new versions
have no values of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, VersionNotFoundError
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics, column_to_json, format_sum
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.declaration import StatisticKind
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.statistics.profile_tables import parse_statistics_rows
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.json import value_json

_TEXT = pa.string()
_PERCENTILES = pa.list_(pa.struct([("fraction", pa.float64()), ("value", _TEXT)]))
_TYPES: Mapping[StatisticKind, pa.DataType] = {
    "count": pa.int64(),
    "measure": pa.float64(),
    "flag": pa.bool_(),
    "text": _TEXT,
    "sum": _TEXT,
    "value": _TEXT,
    "percentiles": _PERCENTILES,
}
VERSION_COLUMNS = pa.schema(
    [
        ("version", pa.int64()),
        ("snapshot", _TEXT),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("published_at", pa.timestamp("us", "UTC")),
        ("row_count", pa.int64()),
        ("bytes", pa.int64()),
        ("partitions", pa.int64()),
        ("fragments", pa.int64()),
    ]
)
"""The columns that describe a row's version."""
SCHEMA = pa.schema(
    [
        *VERSION_COLUMNS,
        ("position", pa.int32()),
        ("field_id", _TEXT),
        *((name, _TYPES[declaration.kind]) for name, declaration in STATISTICS.items() if declaration.is_reported),
        ("user_defined", _TEXT),
    ]
)
"""The columns of a history. Column values and sums are text, as in `metastore show --json`; `user_defined` is JSON."""
_SHOWN_OF_HIDDEN = frozenset(
    (
        *VERSION_COLUMNS.names, "position", "field_id", "column", "type", "value_count", "null_count", "minimum_exact",
        "maximum_exact", "distinct_count", "distinct_count_guarantee", "duplicate_count", "minimum_length",
        "maximum_length", "mean_length", "total_bytes", "percentiles_guarantee", "frequencies", "reason",
    )
)  # fmt: skip
"""Columns that are not null if values are hidden. They reveal only numbers and lengths of values."""
_REVEALS_VALUES = tuple(name for name in SCHEMA.names if name not in _SHOWN_OF_HIDDEN)
"""The other columns, such as `minimum` and new statistics. They are null if values are hidden."""


def read_rows(versions: VersionStore, numbers: Sequence[int], hidden_columns: Collection[str]) -> pa.Table:
    """Return the rows of versions, in the order of `numbers`.

    Versions that cannot be read are omitted.

    Args:
        versions: The versions of the table.
        numbers: The numbers of the versions.
        hidden_columns: Field ids of hidden columns. Their statistics that reveal values are null.
    """
    tables = []
    for number in numbers:
        try:
            version = versions.read(number)
            tables.append(_version_rows(version, _statistics(versions, version), hidden_columns))
        except (CorruptionError, ObjectNotFoundError, VersionNotFoundError):
            continue  # The version expired meanwhile, or is corrupt.
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def find_hidden_columns(versions: VersionStore, number: int) -> set[str]:
    """Return the field ids of a version's columns with the policy `values: hidden`.

    Raises StoreError if the version does not exist or cannot be read.
    """
    return {row.field_id for row in _statistics(versions, versions.read(number)) if row.reason == HIDDEN_REASON}


def remove_values_of(rows: pa.Table, mask: pa.Array) -> pa.Table:
    """Return all rows, without statistics that reveal values in the rows where `mask` is true.

    These statistics, such as `minimum`, become null.
    """
    import pyarrow.compute as pc

    for name in _REVEALS_VALUES:
        at = rows.schema.get_field_index(name)
        column = rows.column(at)
        rows = rows.set_column(at, rows.field(at), pc.if_else(mask, pa.scalar(None, column.type), column))
    return rows


def _statistics(versions: VersionStore, version: Version) -> list[ColumnStatistics]:
    """Return the statistics of a version's columns, with paths and order as in the version's schema."""
    rows = {row.field_id: row for row in parse_statistics_rows(versions.objects.read_parquet(version.files.statistics))}
    numbered_columns = enumerate(schema_columns(version.schema))
    return [
        apply_schema(rows[column.field_id], position, column)
        for position, column in numbered_columns
        if column.field_id in rows
    ]


def version_record(version: Version) -> dict[str, Any]:
    """Return the values of `VERSION_COLUMNS` for a version, by column name."""
    return {
        "version": version.number,
        "snapshot": version.snapshot,
        "committed_at": version.committed_at,
        "published_at": version.published_at,
        "row_count": version.row_count,
        "bytes": version.bytes,
        "partitions": len(version.partitions),
        "fragments": version.fragment_count,
    }


def column_record(row: ColumnStatistics) -> dict[str, Any]:
    """Return the statistics of a column as values of the fields of `SCHEMA`, by field name.

    The fields in `VERSION_COLUMNS` are left out.
    """
    values = column_to_json(row)
    record: dict[str, Any] = {"position": row.position, "field_id": row.field_id}
    for name, declaration in STATISTICS.items():
        if declaration.kind == "value":
            record[name] = _to_text(values[name])
        elif declaration.kind == "percentiles":
            record[name] = values[name] and [{**each, "value": _to_text(each["value"])} for each in values[name]]
        elif declaration.kind == "sum":
            record[name] = format_sum(getattr(row, name))
        elif declaration.is_reported:
            record[name] = getattr(row, name)
    results = {
        name: {"value": value_json(result.value), "guarantee": result.guarantee}
        for name, result in row.user_defined.items()
    }
    record["user_defined"] = json.dumps(results) if results else None
    return record


def _version_rows(version: Version, rows: Sequence[ColumnStatistics], hidden_columns: Collection[str]) -> pa.Table:
    of_version = version_record(version)
    nulls = dict.fromkeys(_REVEALS_VALUES)
    records = [
        {**of_version, **column_record(row), **(nulls if row.field_id in hidden_columns else {})} for row in rows
    ]
    return pa.Table.from_pylist(records, SCHEMA)


def _to_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
