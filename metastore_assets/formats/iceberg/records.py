"""Records of Avro files whose fields are known by the ids in their schema, whatever they are named there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.iceberg.metadata import PartitionField
from metastore_assets.formats.readers.avro import avro_records

_UNWANTED = "unwanted_"


def records_by_id(
    data: bytes, names: Mapping[int, str], spec: tuple[PartitionField, ...] = ()
) -> Iterator[dict[str, Any]]:
    """The records of an Avro file with their fields named by id, without those that are not asked for."""

    def schemas(own: Any) -> tuple[Any, Any]:
        written = _named(own, _Naming(names, spec))
        return written, _pruned(written)

    return avro_records(data, schemas)


def partition_name(index: int) -> str:
    """What the field of a partition spec at that place is called in records."""
    return f"partition_{index}"


@dataclass(frozen=True)
class _Naming:
    """What the fields of a record are called here."""

    names: Mapping[int, str]
    spec: tuple[PartitionField, ...]

    def of(self, fields: Sequence[Mapping[str, Any]]) -> list[str]:
        """A name for each field of a record: by its id, without one by its own name unless another has that id."""
        by_id = [self._by_id(field["field-id"]) if "field-id" in field else None for field in fields]
        names = []
        for index, (field, name) in enumerate(zip(fields, by_id, strict=True)):
            if "field-id" not in field:
                name = self._by_name(field["name"], index, any("field-id" in other for other in fields))
                name = None if name in by_id else name
            names.append(name or self._otherwise(field["name"], index))
        return names

    def below(self, name: str) -> _Naming:
        """The naming inside a field."""
        if name != "partition":
            return self
        return _PartitionNaming({}, self.spec)

    def _by_id(self, field_id: int) -> str | None:
        return self.names.get(field_id)

    def _by_name(self, name: str, index: int, others_have_ids: bool) -> str | None:
        return name if name in self.names.values() else None

    def _otherwise(self, name: str, index: int) -> str:
        return name if name in ("key", "value") else f"{_UNWANTED}{index}"  # Of a map.


class _PartitionNaming(_Naming):
    def _by_id(self, field_id: int) -> str | None:
        return next((partition_name(place) for place, own in enumerate(self.spec) if own.field_id == field_id), None)

    def _by_name(self, name: str, index: int, others_have_ids: bool) -> str | None:
        found = [place for place, own in enumerate(self.spec) if own.name == name]
        if not found and not others_have_ids and index < len(self.spec):
            found = [index]
        return partition_name(found[0]) if found else None

    def _otherwise(self, name: str, index: int) -> str:
        return f"{_UNWANTED}{index}"


def _named(type_: Any, naming: _Naming) -> Any:
    """An Avro type with other names of fields.

    Logical types are left out: what they make of a value does not hold all values there are.
    """
    if isinstance(type_, list):
        return [_named(one, naming) for one in type_]
    if not isinstance(type_, dict):
        return type_
    result = {key: value for key, value in type_.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if isinstance(result.get(key), dict | list):
            result[key] = _named(result[key], naming)
    if "fields" in type_:
        names = naming.of(type_["fields"])
        result["fields"] = [
            {"name": name, "type": _named(field["type"], naming.below(name))}
            for name, field in zip(names, type_["fields"], strict=True)
        ]
    return result


def _pruned(type_: Any) -> Any:
    """An Avro type without the fields that are not asked for."""
    if isinstance(type_, list):
        return [_pruned(one) for one in type_]
    if not isinstance(type_, dict):
        return type_
    result = {key: _pruned(value) if key in ("type", "items", "values") else value for key, value in type_.items()}
    if "fields" in type_:
        result["fields"] = [
            {"name": field["name"], "type": _pruned(field["type"])}
            for field in type_["fields"]
            if not field["name"].startswith(_UNWANTED)
        ]
    return result
