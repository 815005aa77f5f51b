"""The columns that a Hive metastore or Glue declares for a table, and the statistics to write of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metastore_assets.exports.declared_statistics import DeclaredStatistics, declare_statistics
from metastore_assets.exports.table_properties import properties_digest
from metastore_assets.messages import join_names
from metastore_assets.values.leaf_columns import schema_leaves

if TYPE_CHECKING:
    from metastore_assets.exports.base import ExportedColumn, ExportedVersion

UNKNOWN_ROWS = (None, "-1", "0")
"""The values of the property `numRows` which mean that the number of rows is unknown."""


@dataclass(frozen=True)
class Numbers:
    """The statistics to write for a table or a partition."""

    rows: int
    bytes: int
    columns: list[DeclaredStatistics]

    @property
    def content(self) -> str:
        """The number of rows, and a digest of all statistics: `<rows>:<digest>`."""
        return f"{self.rows}:{properties_digest({'bytes': self.bytes, 'columns': [vars(one) for one in self.columns]})}"


class DeclaredColumns:
    """The columns of a version that the metastore declares."""

    def __init__(
        self, version: ExportedVersion, types: Mapping[str, str], keys: Sequence[str], previous_columns: Sequence[str]
    ) -> None:
        """Match the columns of a version with those of the metastore, ignoring case.

        Args:
            version: The version.
            types: The type of each column except partition columns, by the name in the metastore.
            keys: The names of the partition columns. Metastores store no statistics of them.
            previous_columns: The columns whose statistics an earlier export wrote.
        """
        self.previous_columns = previous_columns
        """The columns whose statistics an earlier export wrote."""
        self.written: set[str] = set()
        """The columns whose statistics this export has returned so far."""
        self._keys = {key.lower() for key in keys}
        self._types = {name.lower(): (name, type_) for name, type_ in types.items()}
        self._names = top_level_columns(version)
        self._left_out: dict[str, None] = {}

    def declare(self, exported: Iterable[ExportedColumn]) -> list[DeclaredStatistics]:
        """Return the statistics of the columns, without those that the metastore cannot store."""
        result = []
        for column in exported:
            name = self._names.get(column.path, "").lower()
            if not name or name in self._keys:
                continue
            declared = self._types.get(name)
            statistics = None if declared is None else declare_statistics(*declared, column.statistics)
            if statistics is None:
                self._left_out[name] = None
            else:
                self.written.add(statistics.column)
                result.append(statistics)
        return result

    def notes(self) -> list[str]:
        """Return a note for users that names the columns without statistics; empty if all have some."""
        written = {name.lower() for name in self.written}
        names = [name for name in self._left_out if name not in written]
        reason = "left out, because the metastore has no statistics of their types, or distinct values are not known: "
        return [f"{reason}{join_names(names)}"] if names else []


def top_level_columns(version: ExportedVersion) -> dict[str, str]:
    """Return the names of the top-level columns of a version, by dotted path.

    Metastores store no statistics of nested columns.
    """
    schema = version.version.schema
    return {leaves[0].path: field.name for field, leaves in zip(schema, schema_leaves(schema), strict=True)}
