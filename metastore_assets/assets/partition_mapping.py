"""Map the partitions of a table to those of a project's definition: `day=2024-01-01` to 2024-01-01 of a daily one.

Dagster's daemon and pages support only Dagster's own partition mappings. So the profiles of partitions use the
definition of the asset above them, and the keys are mapped one to one.
"""

import string
from collections.abc import Callable, Iterable, Mapping
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

from metastore_assets.errors import ConfigError
from metastore_assets.expressions.partition_keys import decode_partition_key

_FORMATS = ("%Y-%m-%d", "%Y-%m", "%Y-%m-%d-%H", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y")
"""How formats write the start of an hour, a day, a month or a year: Iceberg's transforms, and date columns."""
_DIMENSION_TAG_PREFIX = "dagster/partition/"
"""Prefix of the tag with a partition's key in one dimension, as Dagster documents it."""
_SHOWN = 3


@dataclass(frozen=True)
class TablePartitions:
    """A declaration that the partitions of a table match those of `partitions_def` one to one.

    `key` is a pattern of the table's partition keys, with fields for the parts of Dagster's keys: `country={}` for a
    static or dynamic definition, `day={:%Y-%m-%d}` or `year={:%Y}/month={:%m}` for the start of time windows, and
    dimensions by name for a multi-dimensional definition: `day={date:%Y-%m-%d}/country={country}`. Without `key`, the
    table has one partition column, or one for each dimension with the same name, and writes times as the definition or
    ISO 8601 do.

    Raises ConfigError if `key` does not fit the definition.
    """

    partitions_def: PartitionsDefinition
    key: str | None = None
    _columns: Mapping[str, tuple[str, str]] | None = field(init=False, repr=False, default=None)
    """Dimension (empty if there is only one) and time format, by partition column."""

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "_columns", self._parsed(self.key))

    def key_map(self, keys: Iterable[str], store: DagsterInstance) -> "PartitionKeyMap":
        """Map these partition keys of the table to those of the definition.

        Raises:
            ConfigError: Two keys map to the same partition, or no key can belong to the definition. A time outside the
                definition's windows can belong to it later.
        """
        found: dict[str, str] = {}
        unmapped: list[str] = []
        strangers = 0
        taken: dict[str, str] = {}
        with partition_loading_context(dynamic_partitions_store=store):
            there = {name: _there(definition) for name, definition in _dimensions(self.partitions_def).items()}
            for key in keys:
                told = self._map_key(key, there)
                if not told:
                    unmapped.append(key)
                    strangers += told is None
                    continue
                if told in taken:
                    raise ConfigError(
                        f"the partitions {taken[told]!r} and {key!r} of the table are both partition {told!r} of "
                        f"{self._definition}: give TablePartitions a key that tells them apart"
                    )
                found[key], taken[told] = told, key
        if strangers and strangers == len(unmapped) and not found:
            raise ConfigError(
                f"none of the table's {len(unmapped)} partitions is one of {self._definition}, such as "
                f"{', '.join(map(repr, unmapped[:_SHOWN]))}: give TablePartitions their key, with fields for the "
                "values, or a definition that has them"
            )
        return PartitionKeyMap(found, taken, tuple(unmapped))

    def tags(self, partition: str) -> Mapping[str, str]:
        """Return the tags of an event that tell Dagster the partition's key in each dimension."""
        if not isinstance(self.partitions_def, MultiPartitionsDefinition):
            return {}
        key = self.partitions_def.get_partition_key_from_str(partition)
        return {f"{_DIMENSION_TAG_PREFIX}{name}": own for name, own in key.keys_by_dimension.items()}

    @property
    def _definition(self) -> str:
        return f"{type(self.partitions_def).__name__} ({self.partitions_def})"

    def _map_key(self, key: str, there: Mapping[str, "_Keys"]) -> str | None:
        """Return the definition's key of a table's key: empty for a time outside its windows, None if it cannot belong
        to it.
        """
        values = dict(decode_partition_key(key))
        columns = self._columns if self._columns is not None else self._by_name(values)
        if columns is None or columns.keys() != values.keys() or None in values.values():
            return None
        parts: dict[str, list[tuple[str, str]]] = {}
        for column, (dimension, times) in columns.items():
            parts.setdefault(dimension, []).append((values[column] or "", times))
        keys = {name: there[name](own) for name, own in parts.items() if name in there}
        told = {name: own for name, own in keys.items() if own is not None}
        if len(told) < len(there):
            return None
        if not all(told.values()):
            return ""
        return MultiPartitionKey(told) if isinstance(self.partitions_def, MultiPartitionsDefinition) else told[""]

    def _by_name(self, values: Mapping[str, str | None]) -> Mapping[str, tuple[str, str]] | None:
        if isinstance(self.partitions_def, MultiPartitionsDefinition):
            return {name: (name, "") for name in _dimensions(self.partitions_def)}
        return dict.fromkeys(values, ("", "")) if len(values) == 1 else None

    def _parsed(self, template: str) -> Mapping[str, tuple[str, str]]:
        definitions = _dimensions(self.partitions_def)
        columns: dict[str, tuple[str, str]] = {}
        for segment in template.split("/"):
            column, equals, text = segment.partition("=")
            try:
                (literal, name, times, conversion), *rest = string.Formatter().parse(text)
            except ValueError:
                literal, name, times, conversion, rest = text, None, None, None, []
            if not (column and equals) or literal or name is None or conversion or rest or column in columns:
                raise ConfigError(
                    f"the key {template!r} of TablePartitions is not of the form column={{}} or column={{name:%Y-%m}}, "
                    f"with `/` between columns: {segment!r}"
                )
            dimension = name if isinstance(self.partitions_def, MultiPartitionsDefinition) else ""
            if dimension not in definitions:
                raise ConfigError(
                    f"the key {template!r} of TablePartitions names {name!r}, which is no dimension; there are: "
                    + ", ".join(definitions)
                )
            columns[column] = (dimension, times or "")
        for dimension, definition in definitions.items():
            own = [times for named, times in columns.values() if named == dimension]
            is_time = isinstance(definition, TimeWindowPartitionsDefinition)
            if not own or (len(own) > 1 and not all(own)) or (any(own) and not is_time):
                raise ConfigError(
                    f"the key {template!r} of TablePartitions has to say {dimension or 'the partition'!r} with one "
                    "field, or, of time windows, with fields that all have a format"
                )
        return columns


@dataclass(frozen=True)
class PartitionKeyMap:
    """The partition keys of a table and the matching keys in Dagster."""

    dagster_keys: Mapping[str, str]
    """Dagster's partition key by the table's."""
    table_keys: Mapping[str, str]
    """The table's partition key by Dagster's."""
    unmapped: tuple[str, ...] = ()
    """Partitions of the table without a partition in Dagster."""

    def to_table_keys(self, dagster_keys: Iterable[str]) -> tuple[str, ...]:
        """Return the table's keys of Dagster's keys, without those that the table does not have."""
        return tuple(self.table_keys[key] for key in dagster_keys if key in self.table_keys)


def _dimensions(definition: PartitionsDefinition) -> Mapping[str, PartitionsDefinition]:
    if isinstance(definition, MultiPartitionsDefinition):
        return {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
    return {"": definition}


_Keys = Callable[[list[tuple[str, str]]], str | None]
"""Returns a dimension's key for values with their time formats: empty for a time outside its windows, None if there is
no such key."""


def _there(definition: PartitionsDefinition) -> _Keys:
    if isinstance(definition, TimeWindowPartitionsDefinition):
        return partial(_window, definition)
    keys = frozenset(definition.get_partition_keys())

    def named(parts: list[tuple[str, str]]) -> str | None:
        ((value, _),) = parts
        return value if value and value in keys else None

    return named


def _window(definition: TimeWindowPartitionsDefinition, parts: list[tuple[str, str]]) -> str | None:
    text = " ".join(value for value, _ in parts)
    given = " ".join(times for _, times in parts)
    for times in (given,) if given else (definition.fmt, *_FORMATS):
        time = _time(text, times)
        if time is None:
            continue
        key = time.strftime(definition.fmt)
        # A time inside a window is not the window's key.
        if definition.has_partition_key(key) and _time(key, definition.fmt) == time:
            return key
        first, last = definition.get_first_partition_window(), definition.get_last_partition_window()
        if first is None or last is None:
            return ""
        beyond = time < first.start.replace(tzinfo=None) or time >= last.end.replace(tzinfo=None)
        return "" if beyond else None
    return None


def _time(text: str, times: str) -> datetime | None:
    """Return a time in the definition's time zone; None if the text does not match the format."""
    try:
        return datetime.strptime(text, times)  # noqa: DTZ007
    except ValueError:
        return None
