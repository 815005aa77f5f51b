"""The partitions of a table in Dagster: dynamic, or mapped to a partitions definition of the project.

A mapping is one-to-one: it relates `day=2024-01-01` of the table to `2024-01-01` of a daily definition. The asset with
the statistics of partitions then has the same partitions definition as the asset that writes the table. Dagster itself
supports no user-defined partition mappings, so this module maps the keys.
"""

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from dagster import (
    DagsterInstance,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
    partition_loading_context,
)

from metastore_assets.assets.partition_groups import UNGROUPED, PartitionGrouping
from metastore_assets.errors import ConfigError
from metastore_assets.expressions.partition_keys import decode_partition_key

_FORMATS = ("%Y-%m-%d", "%Y-%m", "%Y-%m-%d-%H", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y")
"""The formats of the start of an hour, day, month or year in partition keys."""
_DIMENSION_TAG_PREFIX = "dagster/partition/"
"""The documented prefix of the tag with a partition's key in one dimension; the dimension follows it."""
_MAX_EXAMPLES = 3
_CHUNK = 1000


@dataclass(frozen=True)
class TablePartitions:
    """A one-to-one mapping of a table's partitions to those of `partitions_def`.

    `key` is a pattern for the table's partition keys. Each field `{…}` stands for Dagster's key, or a part of it:

    - `country={}`: the key of a static or dynamic definition
    - `day={:%Y-%m-%d}` or `year={:%Y}/month={:%m}`: the start of a time window
    - `day={date:%Y-%m-%d}/country={country}`: the key in each dimension, by the name of the dimension

    Without `key`, the table must have a single partition column, or one for each dimension with the dimension's name.
    Times must then have the format of the definition, or a format of ISO 8601. Raises ConfigError if `key` does not fit
    the definition.
    """

    partitions_def: PartitionsDefinition
    key: str | None = None
    _columns: Mapping[str, tuple[str, str]] | None = field(init=False, repr=False, default=None)
    """The dimension (empty if there is only one) and the time format, by partition column; None without `key`."""

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "_columns", self._parse_key_pattern(self.key))

    def key_map(self, keys: Iterable[str], store: DagsterInstance) -> "PartitionKeyMap":
        """Map partition keys of the table to keys of the definition.

        A key that the definition does not have stays unmapped. If its time is outside the definition's windows, a later
        window may cover it.

        Args:
            keys: The partition keys of the table.
            store: The Dagster instance, which has the keys of dynamic partitions.

        Raises:
            ConfigError: Two keys map to the same partition, or none of the keys can ever belong to the definition.
        """
        dagster_keys: dict[str, str] = {}
        table_keys: dict[str, str] = {}
        unmapped_keys: list[str] = []
        unmappable = 0
        with partition_loading_context(dynamic_partitions_store=store):
            mappers = {name: _key_mapper(definition) for name, definition in _dimensions(self.partitions_def).items()}
            for key in keys:
                dagster_key = self._map_key(key, mappers)
                if not dagster_key:
                    unmapped_keys.append(key)
                    unmappable += dagster_key is None
                    continue
                if dagster_key in table_keys:
                    raise ConfigError(
                        f"the partitions {table_keys[dagster_key]!r} and {key!r} of the table are both partition "
                        f"{dagster_key!r} of {self._definition}: give TablePartitions a `key` that distinguishes them"
                    )
                dagster_keys[key], table_keys[dagster_key] = dagster_key, key
        if unmappable and unmappable == len(unmapped_keys) and not dagster_keys:
            raise ConfigError(
                f"none of the table's {len(unmapped_keys)} partitions, such as "
                f"{', '.join(map(repr, unmapped_keys[:_MAX_EXAMPLES]))}, is one of {self._definition}: "
                "give TablePartitions a `key` with fields for the values, or a definition that has these partitions"
            )
        return PartitionKeyMap(dagster_keys, table_keys, tuple(unmapped_keys))

    def tags(self, partition: str) -> Mapping[str, str]:
        """Return Dagster's tags for a multi-dimensional partition: `dagster/partition/country: FR`.

        The result is empty for a definition with one dimension.

        Args:
            partition: Dagster's key of the partition.
        """
        if not isinstance(self.partitions_def, MultiPartitionsDefinition):
            return {}
        key = self.partitions_def.get_partition_key_from_str(partition)
        return {f"{_DIMENSION_TAG_PREFIX}{name}": value for name, value in key.keys_by_dimension.items()}

    @property
    def _definition(self) -> str:
        return f"{type(self.partitions_def).__name__} ({self.partitions_def})"

    def _map_key(self, key: str, mappers: Mapping[str, "_KeyMapper"]) -> str | None:
        """Convert a partition key of the table to the definition's key.

        Args:
            key: The table's key.
            mappers: By dimension of the definition: the function that converts the values of a table's key to the
                dimension's key. If the definition is not multi-dimensional, the mapping has one entry, with an empty
                name.

        Returns:
            The definition's key. It is empty if the definition has no window for the key's time, but may get one later.
            It is None if the definition can never have such a key.
        """
        values = dict(decode_partition_key(key))
        columns = self._columns if self._columns is not None else self._columns_by_name(values)
        if columns is None or columns.keys() != values.keys() or None in values.values():
            return None
        parts: dict[str, list[tuple[str, str]]] = {}
        for column, (dimension, time_format) in columns.items():
            parts.setdefault(dimension, []).append((values[column] or "", time_format))
        optional_keys = {name: mappers[name](values) for name, values in parts.items() if name in mappers}
        keys = {name: dimension_key for name, dimension_key in optional_keys.items() if dimension_key is not None}
        if len(keys) < len(mappers):
            return None
        if not all(keys.values()):
            return ""
        return MultiPartitionKey(keys) if isinstance(self.partitions_def, MultiPartitionsDefinition) else keys[""]

    def _columns_by_name(self, values: Mapping[str, str | None]) -> Mapping[str, tuple[str, str]] | None:
        if isinstance(self.partitions_def, MultiPartitionsDefinition):
            return {name: (name, "") for name in _dimensions(self.partitions_def)}
        return dict.fromkeys(values, ("", "")) if len(values) == 1 else None

    def _parse_key_pattern(self, template: str) -> Mapping[str, tuple[str, str]]:
        """Parse a pattern for the table's partition keys, such as `day={date:%Y}/country={country}`.

        Returns:
            (dimension, time format) by partition column of the table: `{"day": ("date", "%Y"), "country": ("country",
            "")}`. The dimension is empty if the definition is not multi-dimensional. The time format is empty if the
            pattern has none for the column.

        Raises:
            ConfigError: The pattern is invalid, or does not fit the definition.
        """
        definitions = _dimensions(self.partitions_def)
        columns: dict[str, tuple[str, str]] = {}
        for segment in template.split("/"):
            column, equals, text = segment.partition("=")
            try:
                (literal, name, time_format, conversion), *others = string.Formatter().parse(text)
            except ValueError:
                literal, name, time_format, conversion, others = text, None, None, None, []
            if not (column and equals) or literal or name is None or conversion or others or column in columns:
                raise ConfigError(
                    f"the key {template!r} of TablePartitions: {segment!r} must have the form column={{}} or "
                    "column={name:%Y-%m}; separate columns by `/`"
                )
            dimension = name if isinstance(self.partitions_def, MultiPartitionsDefinition) else ""
            if dimension not in definitions:
                raise ConfigError(
                    f"the key {template!r} of TablePartitions: {name!r} is no dimension; dimensions: "
                    + ", ".join(definitions)
                )
            columns[column] = (dimension, time_format or "")
        for dimension, definition in definitions.items():
            formats = [time_format for name, time_format in columns.values() if name == dimension]
            is_time = isinstance(definition, TimeWindowPartitionsDefinition)
            if not formats or (len(formats) > 1 and not all(formats)) or (any(formats) and not is_time):
                raise ConfigError(
                    f"the key {template!r} of TablePartitions: {dimension or 'the partition'!r} needs one field, or, "
                    "for time windows, fields that all have a time format"
                )
        return columns


@dataclass(frozen=True)
class PartitionKeyMap:
    """The keys of a table's partitions, or of groups of them, with the corresponding keys in Dagster."""

    dagster_keys: Mapping[str, str]
    """Dagster's key of each partition, by the table's key."""
    table_keys: Mapping[str, str]
    """The table's key of each partition, by Dagster's key."""
    unmapped: tuple[str, ...] = ()
    """The partition keys of the table that have no key in Dagster."""
    grouping: PartitionGrouping = UNGROUPED
    """The rule by which partitions are grouped. With it, the table's keys in this object are keys of groups."""

    def to_table_keys(self, dagster_keys: Iterable[str]) -> tuple[str, ...]:
        """Convert Dagster's partition keys to the table's partition keys.

        Partitions that the table does not have are omitted.
        """
        return tuple(self.table_keys[key] for key in dagster_keys if key in self.table_keys)


def register_partitions(
    instance: DagsterInstance, name: str, keys: Sequence[str], *, remove: bool = True
) -> tuple[list[str], list[str]]:
    """Register the dynamic partitions of a table in Dagster, and by default unregister all others.

    New keys are registered in ascending order. Dagster resolves ranges of dynamic partitions in this order.

    Args:
        instance: The Dagster instance.
        name: The name of the dynamic partitions definition.
        keys: The keys to register.
        remove: Whether to unregister other keys. False in a backfill, whose queued runs may name other keys.

    Returns:
        The added and the removed keys, both in ascending order.
    """
    registered_keys = set(instance.get_dynamic_partitions(name))
    added_keys = sorted(set(keys) - registered_keys)
    removed_keys = sorted(registered_keys - set(keys)) if remove else []
    for start in range(0, len(added_keys), _CHUNK):
        instance.add_dynamic_partitions(name, added_keys[start : start + _CHUNK])
    for key in removed_keys:  # Dagster removes one key per call.
        instance.delete_dynamic_partition(name, key)
    return added_keys, removed_keys


def _dimensions(definition: PartitionsDefinition) -> Mapping[str, PartitionsDefinition]:
    if isinstance(definition, MultiPartitionsDefinition):
        return {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
    return {"": definition}


_KeyMapper = Callable[[list[tuple[str, str]]], str | None]
"""A function that converts (value, time format) pairs to the key in one dimension. The key is empty for a time outside
the dimension's windows, and None if no such key can exist."""


def _key_mapper(definition: PartitionsDefinition) -> _KeyMapper:
    """Return the function that converts values of partition columns to a key of the definition.

    If the definition has time windows, the function joins all values, such as year and month, and parses them as the
    start of a window. Otherwise, it takes a single value, and returns None if that is no key of the definition.

    Args:
        definition: The definition in Dagster, or one dimension of a definition with several.
    """
    if isinstance(definition, TimeWindowPartitionsDefinition):
        return partial(_map_time, definition)
    keys = frozenset(definition.get_partition_keys())

    def map_value(parts: list[tuple[str, str]]) -> str | None:
        ((value, _),) = parts
        return value if value and value in keys else None

    return map_value


def _map_time(definition: TimeWindowPartitionsDefinition, parts: list[tuple[str, str]]) -> str | None:
    """Return the key of the time window that starts at a time.

    Args:
        definition: The time windows.
        parts: The pieces of the time, each with its time format: `("2024-01-01", "%Y-%m-%d")`. If all formats are
            empty, the format of the definition is tried first, then each of `_FORMATS`.

    Returns:
        The key; empty for a time outside the windows; None for a text that is no time or not the start of a window.
    """
    text = " ".join(value for value, _ in parts)
    explicit_format = " ".join(time_format for _, time_format in parts)
    for time_format in (explicit_format,) if explicit_format else (definition.fmt, *_FORMATS):
        time = _parse_time(text, time_format)
        if time is None:
            continue
        key = time.strftime(definition.fmt)
        # Only the start of a window is its key.
        if definition.has_partition_key(key) and _parse_time(key, definition.fmt) == time:
            return key
        first, last = definition.get_first_partition_window(), definition.get_last_partition_window()
        if first is None or last is None:
            return ""
        is_outside = time < first.start.replace(tzinfo=None) or time >= last.end.replace(tzinfo=None)
        return "" if is_outside else None
    return None


def _parse_time(text: str, time_format: str) -> datetime | None:
    """Parse a time without a time zone; None if the text does not match the format."""
    try:
        return datetime.strptime(text, time_format)  # noqa: DTZ007
    except ValueError:
        return None
