"""What a metadata file of an Iceberg table has to be like before anything in it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore_assets.formats.checked import distinct, items, number, record, records, text
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import FIELDS, MANIFESTS, NESTING

_OPTIONAL_NUMBERS = ("current-schema-id", "default-spec-id")


def check_metadata(raw: Mapping[str, Any]) -> None:
    """Raise ValueError that names a key whose value is of another kind than it has to be, or that contradicts itself.

    Keys that may be missing are looked at where they are there.
    """
    text(raw.get("location"), "location")
    number(raw.get("last-updated-ms"), "last-updated-ms")
    for key in _OPTIONAL_NUMBERS:
        if raw.get(key) is not None:
            number(raw[key], key)
    _snapshot_id(raw, "current-snapshot-id", required=False)
    own = raw.get("schemas") or [raw.get("schema")]
    schemas = records(own, "schemas")
    distinct((number(schema.get("schema-id", 0), "schema-id") for schema in schemas), "schema-id")
    for schema in schemas:
        check_schema(schema)
    for spec in records(raw.get("partition-specs") or [], "partition-specs"):
        number(spec.get("spec-id", 0), "spec-id")
        _check_spec(spec.get("fields"))
    _check_spec(raw.get("partition-spec") or [])
    _check_snapshots(raw)
    for key, value in record(raw.get("properties") or {}, "properties").items():
        if isinstance(value, dict | list):
            text(value, f"the property {key[:100]!r}")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise ValueError for a schema whose fields are not told apart by number and by name, or that is beyond limits."""
    ids: list[int] = []
    _check_fields(schema.get("fields"), ids, 1)
    distinct(ids, "the field id")


def _check_fields(fields: Any, ids: list[int], depth: int) -> None:
    check_limit(NESTING, depth, "types inside of each other in a schema")
    own = records(fields, "the fields of a schema")
    distinct((text(field.get("name"), "the name of a field") for field in own), "a field named")
    for field in own:
        _check_type(field.get("id"), field.get("type"), ids, depth)


def _check_type(field_id: Any, type_: Any, ids: list[int], depth: int) -> None:
    ids.append(number(field_id, "the id of a field"))
    check_limit(FIELDS, len(ids), "fields in a schema")
    if isinstance(type_, str):
        return
    kind = text(record(type_, "the type of a field").get("type"), "the type of a field")
    if kind == "struct":
        _check_fields(type_.get("fields"), ids, depth + 1)
    check_limit(NESTING, depth, "types inside of each other in a schema")
    for part in {"list": ("element",), "map": ("key", "value")}.get(kind, ()):
        _check_type(type_.get(f"{part}-id"), type_.get(part), ids, depth + 1)


def _check_spec(fields: Any) -> None:
    own = records(fields, "the fields of a partition spec")
    for field in own:
        text(field.get("name"), "the name of a partition field")
        text(field.get("transform"), "a transform")
        for key in ("field-id", "source-id"):
            if field.get(key) is not None:
                number(field[key], key)
        for one in items(field.get("source-ids") or [], "source-ids"):
            number(one, "source-ids")
    distinct((field["name"] for field in own), "the partition field")


def _snapshot_id(raw: Mapping[str, Any], key: str, *, required: bool = True) -> None:
    # Some writers draw them from all numbers of 64 bits.
    if required or raw.get(key) is not None:
        number(raw.get(key), key, unsigned=True)


def _check_snapshots(raw: Mapping[str, Any]) -> None:
    snapshots = records(raw.get("snapshots") or [], "snapshots")
    for snapshot in snapshots:
        _snapshot_id(snapshot, "snapshot-id")
        number(snapshot.get("timestamp-ms"), "timestamp-ms")
        _snapshot_id(snapshot, "parent-snapshot-id", required=False)
        if snapshot.get("schema-id") is not None:
            number(snapshot["schema-id"], "schema-id")
        if snapshot.get("manifest-list") is not None:
            text(snapshot["manifest-list"], "manifest-list")
        manifests = items(snapshot.get("manifests") or [], "manifests")
        check_limit(MANIFESTS, len(manifests), "manifests of one snapshot")
        distinct((text(path, "manifests") for path in manifests), "the manifest")
    distinct((snapshot["snapshot-id"] for snapshot in snapshots), "the snapshot")
    for name, ref in record(raw.get("refs") or {}, "refs").items():
        text(name, "the name of a branch or tag")
        text(record(ref, "refs").get("type"), "the type of a branch or tag")
        _snapshot_id(ref, "snapshot-id")
    for entry in records(raw.get("snapshot-log") or [], "snapshot-log"):
        number(entry.get("timestamp-ms"), "timestamp-ms")
        _snapshot_id(entry, "snapshot-id")
