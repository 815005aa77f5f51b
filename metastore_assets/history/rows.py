"""The rows of a history: one per version and column, with plain types that every engine reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, VersionNotFoundError
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.declaration import StatisticKind
from metastore_assets.statistics.json import column_to_json
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.statistics.tables import parse_statistics_rows
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.json import value_json
from metastore_assets.values.leaf_columns import schema_leaves

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
OF_VERSIONS = pa.schema(
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
"""What a row says of its version."""
SCHEMA = pa.schema(
    [
        *OF_VERSIONS,
        ("position", pa.int32()),
        ("field_id", _TEXT),
        *((name, _TYPES[own.kind]) for name, own in STATISTICS.items() if own.is_reported),
        ("user_defined", _TEXT),
    ]
)
"""Values of columns, and sums, are text as `metastore show --json` has it; `user_defined` is JSON."""
TELL_VALUES = (
    "nan_count", "minimum", "maximum", "sum", "mean", "standard_deviation", "skewness", "kurtosis", "true_count",
    "percentiles", "user_defined",
)  # fmt: skip
"""What tells something of a column's values, beyond how many there are and how long: null in hidden columns."""


def rows_of(versions: VersionStore, numbers: Sequence[int], hidden: Collection[str]) -> pa.Table:
    """The rows of those of the versions that are there and can be read, in the order of the numbers.

    Of the columns with the `hidden` field ids nothing is told of values.
    """
    tables = []
    for number in numbers:
        try:
            version = versions.read(number)
            tables.append(_version_rows(version, _statistics(versions, version), hidden))
        except (CorruptionError, ObjectNotFoundError, VersionNotFoundError):
            continue  # removed by somebody, or damaged: nothing is known of it, and the others still are
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def hidden_columns(versions: VersionStore, number: int) -> set[str]:
    """Field ids of the columns whose values are hidden in a version. Raises StoreError where it cannot be read."""
    return {row.field_id for row in _statistics(versions, versions.read(number)) if row.reason == HIDDEN_REASON}


def without_values(rows: pa.Table, chosen: pa.Array) -> pa.Table:
    """The rows, of which the chosen ones tell nothing of values any more. `chosen`: booleans, one per row."""
    import pyarrow.compute as pc

    for name in TELL_VALUES:
        at = rows.schema.get_field_index(name)
        own = rows.column(at)
        rows = rows.set_column(at, rows.field(at), pc.if_else(chosen, pa.scalar(None, own.type), own))
    return rows


def _statistics(versions: VersionStore, version: Version) -> list[ColumnStatistics]:
    """The statistics of a version's columns, by the names that it has for them, in its order."""
    found = {
        row.field_id: row for row in parse_statistics_rows(versions.objects.read_parquet(version.files.statistics))
    }
    leaves = enumerate(leaf for own in schema_leaves(version.schema) for leaf in own)
    return [apply_schema(found[leaf.field_id], position, leaf) for position, leaf in leaves if leaf.field_id in found]


def of_version(version: Version) -> dict[str, Any]:
    """What rows say of a version."""
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


def record(row: ColumnStatistics) -> dict[str, Any]:
    """What a row says of a column: the columns of `SCHEMA` from `position` on."""
    told = column_to_json(row)
    found: dict[str, Any] = {"position": row.position, "field_id": row.field_id}
    for name, own in STATISTICS.items():
        if own.kind == "value":
            found[name] = _text(told[name])
        elif own.kind == "percentiles":
            found[name] = told[name] and [{**entry, "value": _text(entry["value"])} for entry in told[name]]
        elif own.is_reported:
            found[name] = getattr(row, name)
    results = {
        name: {"value": value_json(own.value), "guarantee": own.guarantee} for name, own in row.user_defined.items()
    }
    found["user_defined"] = json.dumps(results) if results else None
    return found


def _version_rows(version: Version, rows: Sequence[ColumnStatistics], hidden: Collection[str]) -> pa.Table:
    beside = of_version(version)
    without = dict.fromkeys(TELL_VALUES)
    records = [{**beside, **record(row), **(without if row.field_id in hidden else {})} for row in rows]
    return pa.Table.from_pylist(records, SCHEMA)


def _text(value: Any) -> str | None:
    """A value as JSON has it, as text: numbers and booleans as JSON writes them."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
