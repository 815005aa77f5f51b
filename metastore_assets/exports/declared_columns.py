"""The columns that a Hive metastore or Glue declares for a table, and their statistics to write.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metastore_assets.digests import digest_json
from metastore_assets.exports.declared_statistics import DeclaredStatistics, declare_statistics
from metastore_assets.messages import join_names
from metastore_assets.values.columns import columns_by_field

if TYPE_CHECKING:
    from metastore_assets.exports.base import ExportedColumn, ExportedVersion

UNKNOWN_ROWS = (None, "-1", "0")
"""The values of the property `numRows` which mean that the number of rows is unknown."""


@dataclass(frozen=True)
class Numbers:
    """The statistics to write for a table or for one partition."""

    rows: int
    bytes: int
    columns: list[DeclaredStatistics]

    @property
    def content(self) -> str:
        """The text that identifies these statistics: `<rows>:<digest of all numbers>`."""
        return f"{self.rows}:{digest_json({'bytes': self.bytes, 'columns': [vars(one) for one in self.columns]})}"


class DeclaredColumns:
    """The columns of a version that Hive or Glue also declares for the table.

    `declare` converts their statistics, and records which columns get statistics.
    """

    def __init__(
        self, version: ExportedVersion, types: Mapping[str, str], keys: Sequence[str], previous_columns: Sequence[str]
    ) -> None:
        """Match the columns of a version with those of the metastore, ignoring case.

        Args:
            version: The version.
            types: The declared type by the column's name in the metastore, without partition columns.
            keys: The names of the partition columns, for which metastores store no statistics.
            previous_columns: The columns whose statistics an earlier export wrote.
        """
        self.previous_columns = previous_columns
        """The columns whose statistics an earlier export wrote."""
        self.written: set[str] = set()
        """The columns for which `declare` has returned statistics so far."""
        self._keys = {key.lower() for key in keys}
        self._types = {name.lower(): (name, type_) for name, type_ in types.items()}
        self._names = top_level_columns(version)
        self._undeclared: dict[str, None] = {}
        self._unsupported: dict[str, str] = {}
        """The metastore's names of the columns without statistics, by lower-case name."""
        self._twins = case_twins(self._names.values())

    @property
    def matched(self) -> list[str]:
        """The metastore's names of the columns that the version has too, with or without statistics."""
        names = {name.lower() for name in self._names.values()} - self._keys
        return [declared_name for lower, (declared_name, _) in self._types.items() if lower in names]

    def declare(self, exported_columns: Iterable[ExportedColumn]) -> list[DeclaredStatistics]:
        """Convert the statistics of columns to the metastore's form.

        Nested columns and partition columns are omitted. So are columns that the metastore does not declare or cannot
        store, and columns whose names differ only in case: `notes` reports these.
        """
        result = []
        for column in exported_columns:
            name = self._names.get(column.path, "")
            lower = name.lower()
            if not name or lower in self._keys or lower in self._twins:
                continue
            if lower not in self._types:
                self._undeclared[name] = None
                continue
            statistics = declare_statistics(*self._types[lower], column.statistics)
            if statistics is None:
                self._unsupported[lower] = self._types[lower][0]
            else:
                self.written.add(statistics.column)
                result.append(statistics)
        return result

    def notes(self) -> list[str]:
        """Return a text per reason for which `declare` omitted columns, with their names.

        Example: `left out, because …: a, b`. The reasons are:

        - The metastore does not declare the column.
        - The column has no statistics that the metastore can store.
        - The column's name differs from another one only in case.
        """
        unsupported_names = [name for name in self._unsupported.values() if name not in self.written]
        undeclared_reason = "left out, because the metastore does not declare them: "
        reason = "left out, because the metastore has no statistics of their types, or distinct values are not known: "
        return [
            *([f"{undeclared_reason}{join_names(list(self._undeclared))}"] if self._undeclared else []),
            *([f"{reason}{join_names(unsupported_names)}"] if unsupported_names else []),
            *twins_note(name for name in self._names.values() if name.lower() in self._twins),
        ]


def case_twins(names: Iterable[str]) -> set[str]:
    """Return the names that several columns share if case is ignored: `{"id"}` for `id`, `ID` and `name`."""
    return {name for name, number in Counter(name.lower() for name in names).items() if number > 1}


def twins_note(names: Iterable[str]) -> list[str]:
    """Return a sentence about `names`, the columns left out because their names differ only in case.

    The result is empty if there are no names.
    """
    omitted_names = list(names)
    return [f"left out, because their names differ only in case: {join_names(omitted_names)}"] if omitted_names else []


def top_level_columns(version: ExportedVersion) -> dict[str, str]:
    """Return the name of each top-level column by its path, such as `{"id": "id", "address": "address"}`.

    The path of a column is its name, except in two cases. If a column is named `a.b`, and a struct `a` has a field `b`,
    the path of the column is its name in backticks. If several columns have the same name, the second and later ones
    have a path that ends in a number, such as `[2]`. See `columns_by_field`.
    """
    schema = version.version.schema
    return {columns[0].path: field.name for field, columns in zip(schema, columns_by_field(schema), strict=True)}
