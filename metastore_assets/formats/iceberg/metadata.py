"""The content of an Iceberg metadata file: schemas, partition specs and snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.iceberg.metadata_files import read_metadata_json
from metastore_assets.formats.iceberg.metadata_validation import check_metadata
from metastore_assets.formats.metadata_json import format_value
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, unreadable_error
from metastore_assets.storage.location import Location

_TRANSFORM = re.compile(r"(identity|void|year|month|day|hour)|(bucket|truncate)\[\s*\d+\s*\]", re.IGNORECASE)
_MAIN = "main"
_NEWEST_FORMAT = 3
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec."""

    name: str
    field_id: int
    source_id: int | None
    """Field id of the source column; None if the field has no source column or several."""
    transform: str
    """`identity`, `void`, `year`, `month`, `day`, `hour`, `bucket`, `truncate`, or `unknown`."""
    width: int | None = None
    """Number of buckets of a `bucket` transform; None for other transforms."""
    source_ids: tuple[int, ...] = field(default=(), repr=False, compare=False)
    """Field ids of all source columns."""
    written: str = field(default="", repr=False, compare=False)
    """The transform as the metadata file spells it."""


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot in a metadata file."""

    id: int
    parent_id: int | None
    timestamp_ms: int
    schema_id: int | None
    manifest_list: str | None
    manifests: tuple[str, ...]
    """Paths of manifests, if the metadata file lists them itself (format version 1)."""
    is_encrypted: bool
    """Whether the manifest list is encrypted."""


CHANGED_FILE_PROPERTY = "metastore-assets.changed-file"
"""Property of exported statistics: the metadata file that their commit replaced."""
CHANGED_AT_PROPERTY = "metastore-assets.changed-at"
"""Property of exported statistics: the time of the last change before their commit, in milliseconds."""


_MILLISECONDS = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class TableMetadata:
    """The parts of a metadata file that are needed to read the table."""

    format_version: int
    location: str
    last_updated_ms: int
    """Time of the last change in milliseconds, ignoring commits of exported statistics."""
    schemas: Mapping[int, Mapping[str, Any]]
    """All recorded schemas as JSON, by schema id."""
    current_schema_id: int
    specs: Mapping[int, tuple[PartitionField, ...]]
    default_spec_id: int
    snapshots: Mapping[int, IcebergSnapshot]
    current_snapshot_id: int | None
    refs: Mapping[str, tuple[str, int]]
    """Kind (`branch` or `tag`) and snapshot id by name."""
    snapshot_log: tuple[tuple[int, int], ...]
    """(milliseconds, snapshot id) of each change of the current snapshot, oldest first."""
    properties: Mapping[str, str]
    uuid: str = ""
    """The table's UUID, which changes if the table is recreated at the same location; empty if it is not recorded."""


def read_metadata(location: Location, path: str) -> TableMetadata:
    """Read a metadata file, and return its content.

    Raises TableNotFoundError if it does not exist, or TableFormatError if it is invalid, too new, or of a view.
    """
    full_path = location.full_path(path)
    raw = read_metadata_json(location, path)
    if "view-uuid" in raw or "current-version-id" in raw:
        raise TableFormatError(
            f"{full_path} is the metadata file of an Iceberg view, which has no rows of its own: name the tables that "
            "the view selects from"
        )
    version = raw.get("format-version", 1)
    if version not in range(1, _NEWEST_FORMAT + 1):
        raise TableFormatError(
            f"{full_path} is of Iceberg's format version {format_value(version)}; up to {_NEWEST_FORMAT} are read"
        )
    try:
        check_metadata(raw)
        return _parse(raw, version)
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{full_path} is no valid metadata file", error) from error


def _parse(raw: Mapping[str, Any], version: int) -> TableMetadata:
    """Parse a metadata file that `check_metadata` has accepted."""
    schemas = {schema.get("schema-id", 0): schema for schema in raw.get("schemas") or [raw["schema"]]}
    current_schema_id = raw.get("current-schema-id")
    if current_schema_id is None:
        current_schema_id = (raw.get("schema") or {}).get("schema-id", max(schemas))
    specs = {spec.get("spec-id", 0): _parse_spec(spec["fields"]) for spec in raw.get("partition-specs") or ()}
    refs = {name: (ref["type"], ref["snapshot-id"]) for name, ref in (raw.get("refs") or {}).items()}
    current = raw.get("current-snapshot-id")
    if current in (None, -1):
        current = refs[_MAIN][1] if _MAIN in refs else None
    else:
        refs.setdefault(_MAIN, ("branch", current))
    return TableMetadata(
        format_version=version,
        location=raw["location"],
        last_updated_ms=last_changed_ms(raw),
        schemas=schemas,
        current_schema_id=current_schema_id,
        specs=specs or {0: _parse_spec(raw.get("partition-spec") or ())},
        default_spec_id=raw.get("default-spec-id", 0),
        snapshots={snapshot["snapshot-id"]: _parse_snapshot(snapshot) for snapshot in raw.get("snapshots") or ()},
        current_snapshot_id=current,
        refs=refs,
        snapshot_log=tuple((entry["timestamp-ms"], entry["snapshot-id"]) for entry in raw.get("snapshot-log") or ()),
        properties={key: str(value) for key, value in (raw.get("properties") or {}).items() if value is not None},
        uuid=str(raw.get("table-uuid") or ""),
    )


def last_changed_ms(raw: Mapping[str, Any]) -> int:
    """Return the time of the table's last change, in milliseconds since 1970.

    A commit by which this project added its statistics to the table is no change. If it were one, each export of
    statistics would cause a refresh, and each refresh an export.

    Args:
        raw: the content of the metadata file.
    """
    updated_ms: int = raw["last-updated-ms"]
    log = raw.get("metadata-log")
    if not isinstance(log, list) or not log or not isinstance(log[-1], dict):
        return updated_ms
    replaced_file = log[-1].get("metadata-file")
    for properties in _statistics_properties(raw):
        recorded_ms = properties.get(CHANGED_AT_PROPERTY)
        if (
            replaced_file
            and properties.get(CHANGED_FILE_PROPERTY) == replaced_file
            and _MILLISECONDS.fullmatch(str(recorded_ms))
        ):
            return min(updated_ms, int(str(recorded_ms)))
    return updated_ms


def _statistics_properties(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the properties that a metadata file records for each blob of the table's statistics files.

    Invalid records are skipped. `raw` is the content of the metadata file.
    """
    files = raw.get("statistics")
    for file in files if isinstance(files, list) else ():
        blobs = file.get("blob-metadata") if isinstance(file, dict) else None
        for blob in blobs if isinstance(blobs, list) else ():
            if isinstance(blob, dict) and isinstance(blob.get("properties"), dict):
                yield blob["properties"]


def _parse_spec(fields: Sequence[Mapping[str, Any]]) -> tuple[PartitionField, ...]:
    return tuple(
        PartitionField(
            name=field_json["name"],
            field_id=field_json.get("field-id", _FIRST_PARTITION_ID + index),
            source_id=source_ids[0] if len(source_ids := _source_ids(field_json)) == 1 else None,
            transform=(transform := _transform_kind(field_json["transform"], len(source_ids))),
            width=_bucket_count(field_json["transform"]) if transform == "bucket" else None,
            source_ids=source_ids,
            written=field_json["transform"],
        )
        for index, field_json in enumerate(fields)
    )


def _source_ids(field_json: Mapping[str, Any]) -> tuple[int, ...]:
    ids = field_json.get("source-ids") or [field_json.get("source-id")]
    return tuple(source for source in ids if source is not None)


def _transform_kind(name: str, source_count: int) -> str:
    """Return the kind of a transform, such as `bucket` for `bucket[16]`.

    Unknown transforms have the kind `unknown`, and so have transforms of several source columns except `bucket` and
    `void`.
    """
    match = _TRANSFORM.fullmatch(name.strip())
    kind = "unknown" if match is None else (match[1] or match[2]).lower()
    # Later versions of the specification may add transforms. A transform of several columns may have other results than
    # the same transform of one column.
    return "unknown" if source_count != 1 and kind not in ("void", "bucket") else kind


def _bucket_count(name: str) -> int | None:
    digits = name.partition("[")[2].partition("]")[0].strip()
    return int(digits) if digits.isdecimal() and int(digits) else None


def _parse_snapshot(raw: Mapping[str, Any]) -> IcebergSnapshot:
    if raw.get("manifest-list") is None and raw.get("manifests") is None:
        raise ValueError(f"the snapshot {raw['snapshot-id']} names neither a manifest list nor manifests")
    return IcebergSnapshot(
        id=raw["snapshot-id"],
        parent_id=raw.get("parent-snapshot-id"),
        timestamp_ms=raw["timestamp-ms"],
        schema_id=raw.get("schema-id"),
        manifest_list=raw.get("manifest-list"),
        manifests=tuple(raw.get("manifests") or ()),
        is_encrypted=bool(raw.get("key-id")),
    )
