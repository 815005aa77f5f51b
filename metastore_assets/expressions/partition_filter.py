"""Filters of a table's partitions: patterns by column, or a condition, evaluated as soon as values are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.expressions.partition_keys import NULL_VALUE
from metastore_assets.expressions.wildcards import matches_any_pattern

if TYPE_CHECKING:
    from metastore_assets.expressions.partition_condition import PartitionCondition
    from metastore_assets.expressions.unbound import UnboundPredicate


@dataclass(frozen=True)
class PartitionFilter:
    """A filter by partition values. Without patterns and condition it selects all partitions."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By column, patterns of which the value must match one."""
    condition: UnboundPredicate | None = None
    """A condition on the values. `current_date` was resolved when it was parsed."""

    @classmethod
    def of(cls, partitions: Mapping[str, tuple[str, ...]] | str) -> PartitionFilter:
        """Parse a configuration's `partitions`. Raises PredicateError for an invalid condition."""
        if not isinstance(partitions, str):
            return cls(tuple(sorted(partitions.items())))
        from metastore_assets.expressions.sql_parser import parse_sql  # importing the parser takes 90 ms

        return cls(condition=parse_sql(partitions))

    @property
    def excludes_partitions(self) -> bool:
        """Whether the filter may exclude partitions."""
        return bool(self.patterns) or self.condition is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the filter, as it spells them."""
        named = [column for column, _ in self.patterns]
        if self.condition is not None:
            named += self.condition.column_names()
        return tuple(dict.fromkeys(named))

    def unknown(self, columns: Collection[str]) -> list[str]:
        """Return the names that match none of a table's partition columns, or several, ascending."""
        return sorted(name for name in self.columns if _resolved(name, columns) is None)

    def bind(self, table: str, types: Mapping[str, pa.DataType]) -> BoundPartitionFilter:
        """Return the filter for a table.

        Args:
            table: Its name or location, for messages.
            types: Of all its partition columns. Each name of the filter matches one of them: the same name, or
                the only one that differs in case alone. See `unknown`.

        Raises:
            LiteralError: A literal of the condition is no value of its column.
            PredicateError: The condition compares what does not compare.
        """
        patterns = tuple((_resolved(column, types) or column, fitting) for column, fitting in self.patterns)
        if self.condition is None:
            return BoundPartitionFilter(patterns)
        from metastore_assets.expressions.partition_condition import PartitionCondition  # most tables have no condition

        return BoundPartitionFilter(patterns, PartitionCondition(self.condition, table, types))


@dataclass(frozen=True)
class BoundPartitionFilter:
    """A filter that is bound to one table."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    condition: PartitionCondition | None = None

    def may_match(self, items: Iterable[tuple[str, str | None]]) -> bool:
        """Return whether a partition with these (column, value) pairs may match. Missing columns are unknown.

        Values are texts as in partition keys. Patterns have the wildcards `*`, `?` and `[…]`. Null is
        `__HIVE_DEFAULT_PARTITION__`, which no wildcard matches.
        """
        values = dict(items)
        if self.condition is not None and not self.condition.may_match(values):
            return False
        return all(
            matches_value_patterns(values[column], patterns) for column, patterns in self.patterns if column in values
        )


def matches_value_patterns(value: str | None, patterns: Iterable[str]) -> bool:
    """Return whether a value matches one of the patterns. Null matches only `__HIVE_DEFAULT_PARTITION__`."""
    if value is None:
        return NULL_VALUE in patterns
    return matches_any_pattern(value, patterns)


def _resolved(name: str, columns: Collection[str]) -> str | None:
    """Return the column of that name, or the only one that differs from it in case alone."""
    if name in columns:
        return name
    alike = [column for column in columns if column.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
