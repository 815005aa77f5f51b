"""The partitions that a Hive metastore or Glue registers, and the equal partitions of a version.

Partitions are matched by their values. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metastore_assets.exports.catalog_table import PartitionName
from metastore_assets.expressions.partition_keys import NULL_VALUE, decode_partition_key

PartitionValues = tuple[str | None, ...]
"""The values of a partition in the order of the metastore's partition columns, None for null."""
_INTEGERS = ("tinyint", "smallint", "int", "integer", "bigint")


@dataclass(frozen=True)
class RegisteredPartitions:
    """The partitions that a metastore registers for a table."""

    names: list[str]
    """The names of the partition columns, in lower case; empty if no partitions are exported."""
    types: list[str]
    """The types of the partition columns."""
    partitions: dict[PartitionValues, tuple[PartitionName, str]]
    """The name of each partition in requests and its property `content`, by the values of its partition columns."""


def registered_values(values: Sequence[str], types: Sequence[str]) -> PartitionValues:
    """Normalize the values of a registered partition, so that they can be compared.

    For example, the integer `07` becomes `7`.

    Args:
        values: The values as texts, in the metastore's form.
        types: The types of the partition columns.
    """
    return tuple(_normalize(value, type_) for value, type_ in zip(values, types, strict=True))


def version_values(key: str, names: Sequence[str], types: Sequence[str]) -> PartitionValues | None:
    """Normalize the values in a partition key, so that they equal those of `registered_values`.

    Args:
        key: The key of the partition, such as `day=2024-01-01/country=FR`.
        names: The metastore's names of the partition columns, in lower case.
        types: The metastore's types of these columns.

    Returns:
        The values in the order of `names`; None if the columns of the key are not exactly those in `names`.
    """
    values = {name.lower(): value for name, value in decode_partition_key(key)}
    if set(values) != set(names):
        return None
    return tuple(
        None if values[name] is None else _normalize(str(values[name]), type_)
        for name, type_ in zip(names, types, strict=True)
    )


def _normalize(value: str, type_: str) -> str | None:
    """Return a value in a form to compare: None for null, and integers without leading zeros."""
    if value == NULL_VALUE:
        return None
    try:
        return str(int(value)) if type_.lower() in _INTEGERS else value
    except ValueError:
        return value
