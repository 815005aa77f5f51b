"""Statistics of a column in the form in which a Hive metastore or Glue stores them.

The form depends on the column's declared type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.physical import physical_value
from metastore_assets.values.types import class_named

Kind = Literal["binary", "boolean", "date", "decimal", "double", "long", "string", "timestamp"]
"""The kinds of statistics. `timestamp` is stored like `long`, without bounds."""
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "integer", "bigint"), "long"),
    **dict.fromkeys(("float", "double"), "double"),
    **dict.fromkeys(("string", "varchar", "char"), "string"),
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "decimal": "decimal",
    "timestamp": "timestamp",
}
"""The kind of statistics by the name of Hive's type."""
_CLASSES: dict[Kind, tuple[str, ...]] = {
    "binary": ("binary", "string", "uuid"),
    "boolean": ("boolean",),
    "date": ("date",),
    "decimal": ("decimal_",),
    "double": ("float64",),
    "long": ("int64", "uint64"),
    "string": ("string", "binary", "uuid"),
    "timestamp": ("timestamp",),
}
"""For each kind, prefixes of the type classes (such as `decimal_2`) that the values of its columns may have."""
_MAX_LONG = 2**63


@dataclass(frozen=True)
class DeclaredStatistics:
    """The statistics of one column.

    A bound is None if it is unknown, or if the declared type has no bounds.
    """

    column: str
    """The name in the catalog."""
    type: str
    """The declared type."""
    kind: Kind
    nulls: int
    distinct: int
    """Number of distinct values; 0 for kinds that have none."""
    minimum: int | float | None = None
    """The least value: a number, the days since 1970-01-01, or the unscaled value of a decimal."""
    maximum: int | float | None = None
    scale: int = 0
    """Digits after the decimal point of a decimal's bounds."""
    maximum_length: int = 0
    mean_length: float = 0.0
    trues: int = 0
    falses: int = 0
    has_exact_bounds: bool = False
    """Whether the bounds are exactly the least and the greatest value. Also true for texts, bytes and booleans, which
    have no bounds."""

    @property
    def counts(self) -> list[int | None]:
        """The numbers of nulls, distinct values and trues, and the maximum length.

        A number that columns of this kind do not have is None, such as the number of trues of texts.
        """
        distinct = None if self.kind in ("binary", "boolean") else self.distinct
        trues = self.trues if self.kind == "boolean" else None
        return [self.nulls, distinct, trues, self.maximum_length if self.kind in ("binary", "string") else None]


def declare_statistics(name: str, type: str, row: ColumnStatistics) -> DeclaredStatistics | None:
    """Convert the statistics of a column to those that a catalog stores for its declared type.

    Args:
        name: The column's name in the catalog.
        type: The declared type, such as `decimal(12,2)`.
        row: The statistics of the column.

    Returns:
        The statistics; None if the catalog has none for the type, if the values have another type, or if a number that
        the catalog requires is unknown, such as the distinct count.
    """
    kind = _KINDS.get(type.lower().partition("(")[0].strip())
    if kind is None or row.type_class is None or not row.type_class.startswith(_CLASSES[kind]):
        return None
    nulls, distinct = row.null_count, row.distinct_count
    if kind == "boolean":
        if row.true_count is None:
            return None
        falses = row.value_count - row.true_count
        return DeclaredStatistics(
            name, type, kind, nulls, 0, trues=row.true_count, falses=falses, has_exact_bounds=True
        )
    if distinct is None:
        return None
    if kind in ("string", "binary"):
        if row.value_count and (row.mean_length is None or row.maximum_length is None):
            return None
        return DeclaredStatistics(
            *(name, type, kind, nulls, distinct),
            maximum_length=row.maximum_length or 0,
            mean_length=row.mean_length or 0.0,
            has_exact_bounds=True,
        )
    if kind == "timestamp":
        return DeclaredStatistics(name, type, kind, nulls, distinct)
    minimum, maximum = (_bound(bound, kind) for bound in (row.minimum, row.maximum))
    is_exact = row.minimum_exact and row.maximum_exact and not row.nan_count
    return DeclaredStatistics(
        *(name, type, kind, nulls, distinct, minimum, maximum),
        scale=class_named(row.type_class).scale,
        has_exact_bounds=is_exact and minimum is not None and maximum is not None,
    )


def _bound(bound: pa.Scalar | None, kind: Kind) -> int | float | None:
    """Return a bound as its physical value.

    It is a double, the days of a date, or the unscaled integer of a decimal. The result is None if the bound is unknown
    or infinite. It is also None for an integer beyond 64 bits, unless the kind is `decimal`.
    """
    if bound is None:
        return None
    value = physical_value(bound)
    is_storable = math.isfinite(value) if kind == "double" else kind == "decimal" or -_MAX_LONG <= value < _MAX_LONG
    return value if is_storable else None
