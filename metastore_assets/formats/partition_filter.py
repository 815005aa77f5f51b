"""Which partitions of a table are meant: patterns by partition column, or a condition on partition columns, asked as
early as a column's value is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from metastore_assets.formats.partition_keys import NULL_VALUE

if TYPE_CHECKING:
    from metastore_assets.expressions.syntax import Syntax


@dataclass(frozen=True)
class PartitionFilter:
    """What the values of partition columns have to be. Without patterns and a condition, all partitions are meant."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By column, patterns of which its value must fit one."""
    condition: Syntax | None = None
    """What has to be true of the values. What day it is was asked when it was parsed."""

    @classmethod
    def of(cls, partitions: Mapping[str, tuple[str, ...]] | str) -> PartitionFilter:
        """From a configuration's `partitions`. Raises PredicateError for a condition that does not parse."""
        if not isinstance(partitions, str):
            return cls(tuple(sorted(partitions.items())))
        from metastore_assets.expressions.sql import parse_sql  # the parser takes 90 ms to be imported

        return cls(condition=parse_sql(partitions))

    @property
    def leaves_out(self) -> bool:
        """Whether there may be partitions that are not meant."""
        return bool(self.patterns) or self.condition is not None

    def keeps(self, items: Iterable[tuple[str, str | None]]) -> bool:
        """Whether a partition with these (column, value) pairs may be meant; columns not yet known do not decide.

        Values are texts as in partition keys. In patterns `*`, `?` and `[…]` are wildcards; null is
        `__HIVE_DEFAULT_PARTITION__`, which no wildcard fits. Raises ConfigError for a value that a condition cannot be
        asked of.
        """
        values = dict(items)
        if self.condition is not None:
            from metastore_assets.expressions.texts import may_hold  # most tables are without

            if not may_hold(self.condition, values):
                return False
        return all(_fits(values[column], patterns) for column, patterns in self.patterns if column in values)

    def unknown(self, columns: Iterable[str]) -> list[str]:
        """Columns that are filtered by but are no partition columns: they would be ignored without a word."""
        named = {column for column, _ in self.patterns}
        if self.condition is not None:
            from metastore_assets.expressions.texts import columns_named

            named |= set(columns_named(self.condition))
        return sorted(named - set(columns))


def _fits(value: str | None, patterns: tuple[str, ...]) -> bool:
    if value is None:
        return NULL_VALUE in patterns
    return any(fnmatchcase(value, pattern) for pattern in patterns)
