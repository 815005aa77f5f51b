"""Reading of Avro records by the field ids in their schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.iceberg.metadata import PartitionField
from metastore_assets.formats.readers.avro import read_avro_records

_UNWANTED = "unwanted_"


def records_by_id(
    data: bytes, names: Mapping[int, str], spec: tuple[PartitionField, ...] = (), *, skip_others: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the records of an Avro file with the requested fields, under the requested names.

    Args:
        data: the content of the file.
        names: the name of each requested field, by field id.
        spec: the partition spec of the file, if its records have the struct `partition`. The fields of this struct
            are named `partition_0`, `partition_1` and so on, in the order of the spec.
        skip_others: whether to skip other fields. Otherwise the records have them too, under names that start with
            `unwanted_`. With skipping, decoding of the requested fields takes twice as long. So skip only if the other
            fields have most of the bytes.
    """

    def schemas(field: Any) -> tuple[Any, Any | None]:
        written_schema = _rename_fields(field, _Naming(names, spec))
        pruned_schema = _prune_fields(written_schema, dict(_definitions(written_schema))) if skip_others else None
        return written_schema, pruned_schema

    return read_avro_records(data, schemas)


def partition_name(index: int) -> str:
    """Return the name of a partition field in records: `partition_0` for the first field of the spec."""
    return f"partition_{index}"


@dataclass(frozen=True)
class _Naming:
    """A rule that gives new names to the fields of a record, by their field ids; see `of`."""

    names: Mapping[int, str]
    spec: tuple[PartitionField, ...]

    def of(self, fields: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the new name of each field, by the first of these rules that applies:

        1. A field with an id gets the name that `names` has for the id.
        2. A field without an id keeps its name, if `names` has this name, and rule 1 gives it to no other field.
        3. `key` and `value`, the fields of a map, keep their names.
        4. Any other field gets a name such as `unwanted_2`, which marks it for removal.
        """
        by_id = [self._by_id(field["field-id"]) if "field-id" in field else None for field in fields]
        names = []
        for index, (field, name) in enumerate(zip(fields, by_id, strict=True)):
            if "field-id" not in field:
                # It retains a requested name that no other field gets.
                name = self._by_name(field["name"], index, any("field-id" in other for other in fields))
                name = None if name in by_id else name
            names.append(name or self._otherwise(field["name"], index))
        return names

    def below(self, name: str) -> _Naming:
        """Return the rule that names the fields inside the field `name`.

        For `partition`, it is a `_PartitionNaming`, which names fields by their position in the partition spec. For any
        other field, it is this rule.
        """
        if name != "partition":
            return self
        return _PartitionNaming({}, self.spec)

    def _by_id(self, field_id: int) -> str | None:
        return self.names.get(field_id)

    def _by_name(self, name: str, index: int, others_have_ids: bool) -> str | None:
        return name if name in self.names.values() else None

    def _otherwise(self, name: str, index: int) -> str:
        return name if name in ("key", "value") else f"{_UNWANTED}{index}"  # `key` and `value` are the fields of a map


class _PartitionNaming(_Naming):
    """A rule that names the fields inside `partition` by their positions in the partition spec.

    The names are `partition_0`, `partition_1` and so on. A field is looked up in the spec by its id or, if it has no
    id, by its name. If no field inside `partition` has an id, a field whose name is not in the spec gets its position
    inside `partition`.
    """

    def _by_id(self, field_id: int) -> str | None:
        return next(
            (partition_name(index) for index, field in enumerate(self.spec) if field.field_id == field_id), None
        )

    def _by_name(self, name: str, index: int, others_have_ids: bool) -> str | None:
        matches = [index for index, field in enumerate(self.spec) if field.name == name]
        if not matches and not others_have_ids and index < len(self.spec):
            matches = [index]
        return partition_name(matches[0]) if matches else None

    def _otherwise(self, name: str, index: int) -> str:
        return f"{_UNWANTED}{index}"


def _rename_fields(type_: Any, naming: _Naming) -> Any:
    """Return an Avro type without logical types, whose fields have the names that `naming` gives them."""
    if isinstance(type_, list):
        return [_rename_fields(branch, naming) for branch in type_]
    if not isinstance(type_, dict):
        return type_
    # Dates and times stay numbers, because Python has no dates after the year 9999.
    result = {key: value for key, value in type_.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if isinstance(result.get(key), dict | list):
            result[key] = _rename_fields(result[key], naming)
    if "fields" in type_:
        names = naming.of(type_["fields"])
        result["fields"] = [
            {"name": name, "type": _rename_fields(field["type"], naming.below(name))}
            for name, field in zip(names, type_["fields"], strict=True)
        ]
    return result


def _prune_fields(type_: Any, definitions: dict[str, Any]) -> Any:
    """Return an Avro type without the fields that were not requested.

    A schema defines a named type where it is first used, and later uses have only the name. If the field with the
    definition is removed, the definition moves to the first use that remains.

    Args:
        type_: the type.
        definitions: the named types of the schema, by name. Each type that the result defines is removed from this
            dict.
    """
    if isinstance(type_, list):
        return [_prune_fields(branch, definitions) for branch in type_]
    if isinstance(type_, str):
        return _prune_fields(definitions.pop(type_), definitions) if type_ in definitions else type_
    if not isinstance(type_, dict):
        return type_
    for name in _names_of(type_):
        definitions.pop(name, None)
    result = {
        key: _prune_fields(value, definitions) if key in ("type", "items", "values") else value
        for key, value in type_.items()
    }
    if "fields" in type_:
        result["fields"] = [
            {"name": field["name"], "type": _prune_fields(field["type"], definitions)}
            for field in type_["fields"]
            if not field["name"].startswith(_UNWANTED)
        ]
    return result


def _definitions(type_: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the definition of each named type in a type."""
    if isinstance(type_, list):
        for branch in type_:
            yield from _definitions(branch)
    elif isinstance(type_, dict):
        for name in _names_of(type_):
            yield name, type_
        for inner in (*(type_.get(key) for key in ("type", "items", "values")), *type_.get("fields", ())):
            yield from _definitions(inner)


def _names_of(type_: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which other fields may refer to a record, enum or fixed type.

    A type with a namespace has two names, such as `file` and `iceberg.file`. The result is empty for any other type.
    """
    if type_.get("type") not in ("record", "fixed", "enum") or "name" not in type_:
        return ()
    name = type_["name"]
    return (name, f"{type_['namespace']}.{name}") if type_.get("namespace") else (name,)
