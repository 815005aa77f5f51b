"""The columns of a version that a metastore declares, and the numbers of a table or partition that it stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metastore_assets.exports.declared_statistics import DeclaredStatistics, declare_statistics
from metastore_assets.messages import join_names
from metastore_assets.values.leaf_columns import schema_leaves

if TYPE_CHECKING:
    from metastore_assets.exports.base import ExportedColumn, ExportedVersion

UNKNOWN_ROWS = (None, "-1", "0")
"""The values of `numRows` of tables and partitions whose rows nobody has counted."""


@dataclass(frozen=True)
class Numbers:
    """What is written of a table or of a partition."""

    rows: int
    bytes: int
    columns: list[DeclaredStatistics]

    @property
    def content(self) -> str:
        """A text that differs if the numbers differ, and begins with the number of rows."""
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
            keys: The names of the partition columns, of which metastores have no statistics.
            previous_columns: The columns of which an earlier export wrote statistics.
        """
        self.previous_columns = previous_columns
        """The columns of which an earlier export wrote statistics."""
        self.written: set[str] = set()
        """The columns of which this export writes statistics, so far."""
        self._keys = {key.lower() for key in keys}
        self._types = {name.lower(): (name, type_) for name, type_ in types.items()}
        self._names = top_level_columns(version)
        self._left_out: dict[str, None] = {}

    def declare(self, exported: Iterable[ExportedColumn]) -> list[DeclaredStatistics]:
        """Return the statistics of the columns that the metastore can store."""
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
        """Return sentences about columns without statistics."""
        written = {name.lower() for name in self.written}
        names = [name for name in self._left_out if name not in written]
        reason = "left out, because the metastore has no statistics of their types, or distinct values are not known: "
        return [f"{reason}{join_names(names)}"] if names else []


def properties_digest(properties: Mapping[str, Any]) -> str:
    """Return a digest of some properties, which shows later whether something else has changed them."""
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:32]


def top_level_columns(version: ExportedVersion) -> dict[str, str]:
    """Return the names of top-level columns of a version by dotted path. Metastores have statistics of no others."""
    schema = version.version.schema
    return {leaves[0].path: field.name for field, leaves in zip(schema, schema_leaves(schema), strict=True)}
