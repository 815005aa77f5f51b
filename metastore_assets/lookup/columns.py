"""The leaf columns of a version: resolving names, and naming columns in messages."""

from __future__ import annotations

from collections.abc import Iterable

from metastore_assets.errors import ColumnNotFoundError
from metastore_assets.messages import close_names
from metastore_assets.store.manifest import Version
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves


class VersionColumns:
    """The leaf columns of one version, in table order."""

    def __init__(self, version: Version) -> None:
        self._table = version.table
        self.leaves: tuple[LeafColumn, ...] = tuple(leaf for leaves in schema_leaves(version.schema) for leaf in leaves)
        self._by_path = {leaf.path: leaf for leaf in self.leaves}

    def leaf(self, column: str) -> LeafColumn:
        """Return the column with a dotted path. Raises ColumnNotFoundError."""
        leaf = self._by_path.get(column)
        if leaf is None:
            raise ColumnNotFoundError(
                f"table {self._table!r} has no column {column!r}"
                + close_names(column, list(self._by_path), "; its columns are: {}")
            )
        return leaf

    def resolve(self, columns: str | Iterable[str] | None) -> list[str] | None:
        """Return the names as a list, None for all columns. A single text is one name. Raises ColumnNotFoundError."""
        if columns is None:
            return None
        names = [columns] if isinstance(columns, str) else list(columns)
        for name in names:
            self.leaf(name)
        return names

    def subject(self, column: str) -> str:
        """Return how messages refer to a column."""
        return f"column {column!r} of table {self._table!r}"
