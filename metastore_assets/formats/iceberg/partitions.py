"""Partitions of an Iceberg table.

Manifests store partition values. This module converts them to texts for partition keys, and to values of columns.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import DerivedColumn
from metastore_assets.formats.iceberg.bounds import decode_bound
from metastore_assets.formats.iceberg.metadata import PartitionField, TableMetadata
from metastore_assets.formats.iceberg.schema import field_paths, primitive_type
from metastore_assets.formats.values import Constant, constant, unscaled_decimal, value_text
from metastore_assets.iso8601 import date_text, timestamp_text

_UNITS: Mapping[str, Any] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_TRANSFORM_TYPES = {"year": pa.int32(), "day": pa.date32(), "bucket": pa.int32()}
"""Types of transformed values in partition keys. Months and hours are texts."""
_SUFFIXES = {"year": "-01-01", "month": "-01", "day": ""}
"""Suffixes that turn the text of a period into the date of its first day: `-01` for the month `2024-01`."""
_NAN = math.nan
"""A single NaN object. Tuples with this object are equal, although NaN does not equal itself."""


class _NegativeZero(float):
    """Minus zero in partition values.

    It does not equal zero: in Iceberg, the two are different partitions.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


_NEGATIVE_ZERO = _NegativeZero(-0.0)
_OF_SOURCE_TYPE = ("identity", "truncate")
"""Transforms whose values have the type of the source column."""


@dataclass(frozen=True)
class Partition:
    """A partition of the table."""

    key: str
    items: tuple[tuple[str, str | None], ...]
    """The (partition field, text) pairs of the partition key."""
    constants: tuple[tuple[str, Constant], ...]
    """Field id and value of each top-level column that an identity transform makes constant."""

    @cached_property
    def constant_texts(self) -> tuple[tuple[str, str | None], ...]:
        """The items of `constants` as (field id, text); the text is None for null.

        Distinct values have distinct texts.
        """
        return tuple((field_id, value_text(value)) for field_id, value in self.constants)


class Partitions:
    """The partition fields of all partition specs of a table, with conversions of their stored values.

    Fields with the transform `void` have no values. Methods that return fields omit them.
    """

    def __init__(self, table: str, metadata: TableMetadata, schema: Mapping[str, Any]) -> None:
        """Collect the types of the source columns.

        Args:
            table: name of the table, for messages.
            metadata: the table's metadata.
            schema: the schema with which the table is read. A column's type comes from this schema. If it lacks the
                column, the type comes from the newest schema in the metadata that has the column.
        """
        self.specs = metadata.specs
        self._default_spec_id = metadata.default_spec_id
        self._table = table
        # Current types come first: a value of an older, narrower type is also a value of the current type.
        newest_first = sorted(metadata.schemas.items(), reverse=True)
        schemas = [schema, *(older for _, older in newest_first)]
        self._sources: dict[int | None, tuple[str, Any]] = {}
        for path in (path for schema_json in schemas for path in field_paths(schema_json["fields"])):
            self._sources.setdefault(path[-1]["id"], (path[-1]["name"], path[-1]["type"]))
        self._paths: dict[int, tuple[str, str]] = {}
        """(dotted path of field ids, dotted path of names) of each field of all schemas, by field id."""
        for path in (path for schema_json in schemas for path in field_paths(schema_json["fields"])):
            id_and_name = ".".join(str(field["id"]) for field in path), ".".join(field["name"] for field in path)
            self._paths.setdefault(path[-1]["id"], id_and_name)
        self._top_level = {field["id"] for schema_json in schemas for field in schema_json["fields"]}
        types = {spec_id: tuple(map(self._type, spec)) for spec_id, spec in self.specs.items()}
        self._types_to_normalize = {
            spec_id: spec_types
            for spec_id, spec_types in types.items()
            if any(map(_needs_normalization, spec_types))
            or any(field.transform == "unknown" for field in self.specs[spec_id])
        }
        """Types of the partition fields by spec id, for the specs whose stored values need `normalize`."""
        self._partitions_by_values: dict[tuple[int, tuple[Any, ...]], Partition] = {}
        self._max_cached: int | None = None

    def columns(self) -> tuple[str, ...]:
        """Return the names of the partition fields.

        Fields of the default spec come first.
        """
        order = sorted(self.specs, key=lambda spec_id: (spec_id != self._default_spec_id, spec_id))
        fields = [field for spec_id in order for field in self.specs[spec_id] if field.transform != "void"]
        return tuple(dict.fromkeys(field.name for field in fields))

    def types(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Return each partition field with the type of its values in partition keys.

        For example, days are dates, and months (`2024-01`) are texts. A field is text if its type is unknown or differs
        between specs.
        """
        types_by_name: dict[str, set[pa.DataType]] = {name: set() for name in self.columns()}
        for field in (field for spec in self.specs.values() for field in spec if field.transform != "void"):
            types_by_name[field.name].add(_TRANSFORM_TYPES.get(field.transform) or self._type(field) or pa.string())
        return tuple((name, types.pop() if len(types) == 1 else pa.string()) for name, types in types_by_name.items())

    def buckets(self) -> tuple[tuple[str, str, int], ...]:
        """Return (name, field id of the source column, number of buckets) of each bucket field.

        Nested source columns, and fields whose definition differs between specs, are omitted.
        """
        fields: dict[str, set[PartitionField]] = {}
        for field in (field for spec in self.specs.values() for field in spec if field.transform != "void"):
            fields.setdefault(field.name, set()).add(replace(field, field_id=0))
        return tuple(
            (name, str(field.source_id), field.width)
            for name, (field, *other_fields) in ((name, tuple(same_name)) for name, same_name in fields.items())
            if not other_fields and field.transform == "bucket" and field.width and field.source_id in self._top_level
        )

    def derived(self, specs: Collection[int]) -> tuple[DerivedColumn, ...]:
        """Return the partition fields of the specs with the given ids, and their source columns."""
        fields = {field: None for spec_id in sorted(specs) for field in self.specs[spec_id]}
        return tuple(
            DerivedColumn(
                field.name,
                tuple(self._paths.get(source, (str(source), f"(field {source})")) for source in field.source_ids),
                field.written,
                is_partition_field=True,
            )
            for field in fields
            if field.transform != "void"
        )

    def constant_columns(self) -> tuple[int, ...]:
        """Return the ascending ids of the top-level columns with the transform `identity` in some spec."""
        fields = (field for spec in self.specs.values() for field in spec if field.transform == "identity")
        return tuple(sorted(self._top_level & {field.source_id for field in fields}))

    def is_unpartitioned(self, spec_id: int) -> bool:
        """Return True if a spec has no partition fields, or only void ones."""
        return all(field.transform == "void" for field in self.specs[spec_id])

    def partition(self, spec_id: int, raw: tuple[Any, ...]) -> Partition:
        """Return the partition with the given stored values, one for each field of the spec."""
        partition = self._partitions_by_values.get((spec_id, raw))
        if partition is None:
            if len(self._partitions_by_values) == self._max_cached:
                self._partitions_by_values.clear()
            partition = self._partitions_by_values[spec_id, raw] = self._create_partition(self.specs[spec_id], raw)
        return partition

    def limit_cache(self, max_partitions: int) -> None:
        """Limit the number of partitions that `partition` caches, and empty its cache."""
        self._max_cached = max_partitions
        self._partitions_by_values.clear()

    def normalize(self, spec_id: int, raw: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return stored values in a form that is equal for all files of a partition.

        For example, the bytes of a decimal become an integer.
        """
        types = self._types_to_normalize.get(spec_id)
        return raw if types is None else tuple(map(_normalize, raw, types))

    def text(self, field: PartitionField, raw: Any) -> str | None:
        """Return a stored value as text of a partition key; None for null.

        An hour is `2024-01-01-08`, a bucket `3`.
        """
        if raw is None:
            return None
        if field.transform in _UNITS:
            return _period_text(raw, field.transform)
        return value_text(_typed_constant(raw, self._type(field)))

    def bound_item(self, field: PartitionField, bound: bytes) -> tuple[str, str | None] | None:
        """Return the (field, text) pair of the only value that a partition field has in a manifest.

        The result is None for floats, because the manifest may also have NaN. It is also None if the type of the values
        is unknown, or if the bound cannot be decoded.

        Args:
            field: The partition field. The caller has checked that no file of the manifest has a null in this field.
            bound: The lower bound in the manifest list. The caller has checked that the upper bound is equal.
        """
        type_ = self.stored_type(field)
        if type_ is None or pa.types.is_floating(type_):
            return None  # manifest lists do not always record NaN
        value = decode_bound(bound, type_)
        if value is None:
            return None
        is_number = field.transform not in _OF_SOURCE_TYPE
        return field.name, self.text(field, value[0].as_py()) if is_number else value_text(value)

    def stored_type(self, field: PartitionField) -> pa.DataType | None:
        """Return the type of the values that manifests store for a partition field; None if unknown."""
        return pa.int32() if field.transform in _UNITS or field.transform == "bucket" else self._type(field)

    def _create_partition(self, spec: Sequence[PartitionField], raw: tuple[Any, ...]) -> Partition:
        """Create the partition with the given stored values, one for each field of the spec."""
        pairs = [(field, value) for field, value in zip(spec, raw, strict=True) if field.transform != "void"]
        items = tuple((field.name, self.text(field, value)) for field, value in pairs)
        constants = tuple(
            (str(field.source_id), _typed_constant(value, type_))
            for field, value in pairs
            if field.transform == "identity"
            and field.source_id in self._top_level
            and (type_ := self._type(field)) is not None
        )
        return Partition(encode_partition_key(items), items, constants)

    def _type(self, field: PartitionField) -> pa.DataType | None:
        """Return the type of a field's values for `identity` and `truncate`: that of the source column.

        The result is None for any other transform, and if the source column is unknown.
        """
        if field.source_id not in self._sources or field.transform not in _OF_SOURCE_TYPE:
            return None
        name, type_ = self._sources[field.source_id]
        return primitive_type(self._table, name, type_)


def _period_text(number: int, transform: str) -> str:
    """Return the text of a period, such as `2024-01` for the month 648 after January 1970."""
    if transform == "hour":
        return timestamp_text(number * 3600, "s", "-").removesuffix(":00:00")
    first_day = np.datetime64(number, _UNITS[transform]).astype("datetime64[D]").astype(np.int64)
    return date_text(int(first_day)).removesuffix(_SUFFIXES[transform])


def _needs_normalization(type_: pa.DataType | None) -> bool:
    return type_ is not None and (pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _normalize(raw: Any, type_: pa.DataType | None) -> Any:
    """Return a hashable form of a partition value.

    NaN equals NaN, -0.0 differs from 0.0, and decimals are integers.
    """
    if isinstance(raw, bytes) and type_ is not None and pa.types.is_decimal(type_):
        return int.from_bytes(raw, "big", signed=True)
    if isinstance(raw, float) and math.isnan(raw):
        return _NAN
    return _NEGATIVE_ZERO if isinstance(raw, float) and not raw and math.copysign(1, raw) < 0 else raw


def _typed_constant(raw: Any, type_: pa.DataType | None) -> Constant:
    """Return the partition value `raw` as a constant of a type."""
    if raw is None or type_ is None:
        return constant(raw, type_)
    if pa.types.is_decimal(type_):
        return unscaled_decimal(raw, type_)
    if pa.types.is_temporal(type_):
        return constant(raw, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    if type_ == pa.uuid() and isinstance(raw, str):
        return constant(uuid.UUID(raw).bytes, type_)
    return constant(raw, type_)
