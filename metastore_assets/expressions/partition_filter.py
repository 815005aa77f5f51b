"""Filters of a table's partitions: patterns for the values of columns, or a condition.

A filter can exclude a partition even if only some of the partition's values are known.
"""

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
    """A filter by partition values.

    A filter without patterns and condition selects all partitions.
    """

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(column, its patterns). The value of each of these columns must match at least one of its patterns."""
    condition: UnboundPredicate | None = None
    """A condition on the values. `current_date` was replaced by the date of parsing."""

    @classmethod
    def of(cls, partitions: Mapping[str, tuple[str, ...]] | str) -> PartitionFilter:
        """Create a filter from the value of the configuration key `partitions`.

        Args:
            partitions: Patterns by column, or the text of a condition.

        Raises:
            PredicateError: The condition does not parse.
        """
        if not isinstance(partitions, str):
            return cls(tuple(sorted(partitions.items())))
        from metastore_assets.expressions.sql_parser import parse_sql  # importing the parser takes 90 ms

        return cls(condition=parse_sql(partitions))

    @property
    def excludes_partitions(self) -> bool:
        """Whether the filter may exclude partitions, because it has patterns or a condition."""
        return bool(self.patterns) or self.condition is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of columns in the filter, spelled as in the configuration."""
        pattern_columns = [column for column, _ in self.patterns]
        if self.condition is not None:
            pattern_columns += self.condition.column_names()
        return tuple(dict.fromkeys(pattern_columns))

    def unknown_columns(self, columns: Collection[str]) -> list[str]:
        """Return the names in the filter that refer to no partition column of a table, sorted.

        A name refers to the column with exactly this name. If there is none, `DAY` also refers to `day`, unless several
        columns differ from it only in upper and lower case.

        Args:
            columns: The names of the table's partition columns.
        """
        return sorted(name for name in self.columns if _resolve_name(name, columns) is None)

    def bind(self, table: str, types: Mapping[str, pa.DataType]) -> BoundPartitionFilter:
        """Return the filter bound to the partition columns of a table.

        Args:
            table: The table's name or location, for messages.
            types: The type of each partition column. This method ignores patterns for other columns, so callers report
                `unknown_columns(types)` as an error.

        Raises:
            ColumnNotFoundError: The condition names a column that is not in `types`.
            LiteralError: A literal of the condition is not a value of its column.
            PredicateError: The condition compares a column whose values cannot be compared.
        """
        patterns = tuple(
            (_resolve_name(column, types) or column, column_patterns) for column, column_patterns in self.patterns
        )
        if self.condition is None:
            return BoundPartitionFilter(patterns)
        from metastore_assets.expressions.partition_condition import PartitionCondition  # most tables have no condition

        return BoundPartitionFilter(patterns, PartitionCondition(self.condition, table, types))


@dataclass(frozen=True)
class BoundPartitionFilter:
    """A filter for one table, with the table's column names and a condition on typed columns."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    condition: PartitionCondition | None = None

    def may_match(self, items: Iterable[tuple[str, str | None]]) -> bool:
        """Return whether a partition may match.

        Args:
            items: The partition as (column, value) pairs. A value is the text in partition keys; None for null.
                Leave out a column if its value is unknown: any value of it matches.

        Raises:
            LiteralError: The condition of the filter needs the value of a column, but the text cannot be parsed.
        """
        values = dict(items)
        if self.condition is not None and not self.condition.may_match(values):
            return False
        return all(
            matches_value_patterns(values[column], patterns) for column, patterns in self.patterns if column in values
        )


def matches_value_patterns(value: str | None, patterns: Iterable[str]) -> bool:
    """Return whether a value matches at least one of the patterns, which may have wildcards.

    The wildcards are `*`, `?` and `[…]`. Null matches only the pattern `__HIVE_DEFAULT_PARTITION__`.
    """
    if value is None:
        return NULL_VALUE in patterns
    return matches_any_pattern(value, patterns)


def _resolve_name(name: str, columns: Collection[str]) -> str | None:
    """Return the column with a name; None if there is none.

    If no column has exactly this name, case is ignored. If several columns match then, the result is None, too.
    """
    if name in columns:
        return name
    matching = [column for column in columns if column.lower() == name.lower()]
    return matching[0] if len(matching) == 1 else None
