"""Validation of an Iceberg metadata file before its content is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore_assets.formats.metadata_json import as_integer, as_list, as_object, as_objects, as_text, check_distinct
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import FIELDS, MANIFESTS, NESTING

_OPTIONAL_NUMBERS = ("current-schema-id", "default-spec-id")


def check_metadata(raw: Mapping[str, Any]) -> None:
    """Raise ValueError if a metadata file is invalid, for example if it lacks a key or repeats an id."""
    as_text(raw.get("location"), "location")
    as_integer(raw.get("last-updated-ms"), "last-updated-ms")
    for key in _OPTIONAL_NUMBERS:
        if raw.get(key) is not None:
            as_integer(raw[key], key)
    _snapshot_id(raw, "current-snapshot-id", is_required=False)
    schemas = raw.get("schemas") or [raw.get("schema")]
    schemas = as_objects(schemas, "schemas")
    check_distinct((as_integer(schema.get("schema-id", 0), "schema-id") for schema in schemas), "schema-id")
    for schema in schemas:
        check_schema(schema)
    specs = as_objects(raw.get("partition-specs") or [], "partition-specs")
    check_distinct((as_integer(spec.get("spec-id", 0), "spec-id") for spec in specs), "spec-id")
    for spec in specs:
        _check_spec(spec.get("fields"))
    _check_spec(raw.get("partition-spec") or [])
    _check_snapshots(raw)
    for key, value in as_object(raw.get("properties") or {}, "properties").items():
        if isinstance(value, dict | list):
            as_text(value, f"the property {key[:100]!r}")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise ValueError if a schema is invalid, repeats field ids or names, or exceeds the limits."""
    ids: list[int] = []
    _check_fields(schema.get("fields"), ids, 1)
    check_distinct(ids, "the field id")


def _check_fields(fields: Any, ids: list[int], depth: int) -> None:
    check_limit(NESTING, depth, "types inside of each other in a schema")
    objects = as_objects(fields, "the fields of a schema")
    check_distinct((as_text(field.get("name"), "the name of a field") for field in objects), "a field named")
    for field in objects:
        _check_type(field.get("id"), field.get("type"), ids, depth)


def _check_type(field_id: Any, type_: Any, ids: list[int], depth: int) -> None:
    """Append the ids of a field and of its nested fields to `ids`.

    `depth` is the number of structs, lists and maps around the field. The schema itself is the first struct.

    Raises ValueError for an invalid id or nested type, or if the schema exceeds a limit. The names of primitive types
    are not checked.
    """
    ids.append(as_integer(field_id, "the id of a field"))
    check_limit(FIELDS, len(ids), "fields in a schema")
    if isinstance(type_, str):
        return
    kind = as_text(as_object(type_, "the type of a field").get("type"), "the type of a field")
    if kind == "struct":
        _check_fields(type_.get("fields"), ids, depth + 1)
    check_limit(NESTING, depth, "types inside of each other in a schema")
    for part in {"list": ("element",), "map": ("key", "value")}.get(kind, ()):
        _check_type(type_.get(f"{part}-id"), type_.get(part), ids, depth + 1)


def _check_spec(fields: Any) -> None:
    """Raise ValueError if a field of a partition spec has a wrong type, or if two have the same name."""
    objects = as_objects(fields, "the fields of a partition spec")
    for field in objects:
        as_text(field.get("name"), "the name of a partition field")
        as_text(field.get("transform"), "a transform")
        for key in ("field-id", "source-id"):
            if field.get(key) is not None:
                as_integer(field[key], key)
        for source_id in as_list(field.get("source-ids") or [], "source-ids"):
            as_integer(source_id, "source-ids")
    check_distinct((field["name"] for field in objects), "the partition field")


def _snapshot_id(raw: Mapping[str, Any], key: str, *, is_required: bool = True) -> None:
    # Snapshot ids may use all 64 bits without a sign.
    if is_required or raw.get(key) is not None:
        as_integer(raw.get(key), key, unsigned=True)


def _check_snapshots(raw: Mapping[str, Any]) -> None:
    """Raise ValueError for invalid snapshots, branches, tags, or snapshot log entries.

    They are invalid if a value has a wrong type, if snapshot ids are repeated, or if a snapshot lists a manifest twice
    or too many manifests.
    """
    snapshots = as_objects(raw.get("snapshots") or [], "snapshots")
    for snapshot in snapshots:
        _snapshot_id(snapshot, "snapshot-id")
        as_integer(snapshot.get("timestamp-ms"), "timestamp-ms")
        _snapshot_id(snapshot, "parent-snapshot-id", is_required=False)
        if snapshot.get("schema-id") is not None:
            as_integer(snapshot["schema-id"], "schema-id")
        if snapshot.get("manifest-list") is not None:
            as_text(snapshot["manifest-list"], "manifest-list")
        manifests = as_list(snapshot.get("manifests") or [], "manifests")
        check_limit(MANIFESTS, len(manifests), "manifests of one snapshot")
        check_distinct((as_text(path, "manifests") for path in manifests), "the manifest")
    check_distinct((snapshot["snapshot-id"] for snapshot in snapshots), "the snapshot")
    for name, ref in as_object(raw.get("refs") or {}, "refs").items():
        as_text(name, "the name of a branch or tag")
        as_text(as_object(ref, "refs").get("type"), "the type of a branch or tag")
        _snapshot_id(ref, "snapshot-id")
    for entry in as_objects(raw.get("snapshot-log") or [], "snapshot-log"):
        as_integer(entry.get("timestamp-ms"), "timestamp-ms")
        _snapshot_id(entry, "snapshot-id")
