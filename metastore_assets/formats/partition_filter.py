"""Which partitions of a table are meant: patterns by partition column, asked as early as a column's value is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from metastore_assets.formats.partition_keys import NULL_VALUE


@dataclass(frozen=True)
class PartitionFilter:
    """For some partition columns, the patterns of which a value must fit one. Without any, all partitions are meant."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, patterns: Mapping[str, tuple[str, ...]]) -> PartitionFilter:
        """From a configuration's `partitions`."""
        return cls(tuple(sorted(patterns.items())))

    def keeps(self, items: Iterable[tuple[str, str | None]]) -> bool:
        """Whether a partition with these (column, value) pairs may be meant; columns not yet known do not decide.

        Values are texts as in partition keys. `*`, `?` and `[…]` are wildcards; null is
        `__HIVE_DEFAULT_PARTITION__`, which no wildcard fits.
        """
        values = dict(items)
        return all(_fits(values[column], patterns) for column, patterns in self.patterns if column in values)

    def unknown(self, columns: Iterable[str]) -> list[str]:
        """Columns that are filtered by but are no partition columns: they would be ignored without a word."""
        return sorted({column for column, _ in self.patterns} - set(columns))


def _fits(value: str | None, patterns: tuple[str, ...]) -> bool:
    if value is None:
        return NULL_VALUE in patterns
    return any(fnmatchcase(value, pattern) for pattern in patterns)
