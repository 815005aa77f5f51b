"""The metadata file of an Iceberg table: which one counts, and what it says of schemas, specs and snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.checked import number, shown
from metastore_assets.formats.damage import DAMAGE, naming, reason
from metastore_assets.formats.iceberg.checks import check_metadata
from metastore_assets.formats.metadata_json import parsed_file
from metastore_assets.formats.places.location import Location
from metastore_assets.formats.time_travel import not_found, parse_timestamp

METADATA = "metadata"
"""The folder of a table that holds its metadata files."""
_NAME = re.compile(r"(?P<stem>.+?)(\.gz)?\.metadata\.json(\.gz)?")
_MARKS = frozenset({"format-version", "table-uuid", "schema", "schemas"})
"""Keys of which a metadata file has some beside its location."""
_NUMBER = re.compile(r"v(\d+)|(\d+)(?:-.*)?")
_TRANSFORM = re.compile(r"(identity|void|year|month|day|hour)|(bucket|truncate)\[\s*\d+\s*\]", re.IGNORECASE)
_HINTS = ("version-hint.text", "version-hint.txt")
_VERSIONED = ("v", "w")
"""Between these sort the names `v1`, `v2`, … of tables without a catalog."""
_PROBED = 10_000
"""Names among which a metadata file is looked for: those that catalogs number come early among others."""
_TRIED = 3
"""Files that are read to find out whether they are metadata files."""
_MAIN = "main"
_NEWEST_FORMAT = 3
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec."""

    name: str
    field_id: int
    source_id: int | None
    """Field id of the column that the transform is of; None when it is of several, or of none that is told."""
    transform: str
    """`identity`, `void`, `year`, `month`, `day`, `hour`, `bucket`, `truncate`, or `unknown`."""


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot of the table's history."""

    id: int
    parent_id: int | None
    timestamp_ms: int
    schema_id: int | None
    manifest_list: str | None
    manifests: tuple[str, ...]
    """Paths of manifests, where they are in the metadata file itself (format version 1)."""
    is_encrypted: bool
    """Whether its manifest list is."""


@dataclass(frozen=True)
class TableMetadata:
    """What readers need of a metadata file."""

    format_version: int
    location: str
    last_updated_ms: int
    schemas: Mapping[int, Mapping[str, Any]]
    """The schemas there ever were (as far as they are kept), as JSON, by schema id."""
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
    """What tells the table from another at the same place; empty where old writers do not say."""


@dataclass(frozen=True)
class State:
    """The state of a table that is meant."""

    snapshot: IcebergSnapshot | None
    """None when the table has never had rows."""
    schema: Mapping[str, Any]
    committed_at: datetime

    @property
    def id(self) -> str:
        """The snapshot id as text; empty when there is no snapshot."""
        return "" if self.snapshot is None else str(self.snapshot.id)


def is_metadata_file(path: str) -> bool:
    """Whether a path or URI names a metadata file rather than a table's folder."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def holds_iceberg(location: Location) -> bool:
    """Whether a location is a metadata file, or a folder with metadata files.

    Files are read only where their names are not as writers make them.
    """
    if is_metadata_file(location.uri):
        return True
    names = filter(is_metadata_file, location.names(METADATA))
    return any(_version(name) is not None or _is_metadata(location, f"{METADATA}/{name}") for name in names)


def holds_iceberg_metadata(location: Location) -> bool:
    """Whether a folder has metadata files, as far as a few requests tell: what is named like them may be other JSON."""
    names = list(islice(location.names(METADATA), _PROBED))
    if len(names) == _PROBED:
        names += islice(location.names(METADATA, *_VERSIONED), _TRIED)
    found = sorted(islice(filter(is_metadata_file, names), _TRIED), key=lambda name: _version(name) is None)
    return any(_is_metadata(location, f"{METADATA}/{name}") for name in found)


def newest_metadata(folder: Location) -> str:
    """Path below a table's folder of the metadata file that counts.

    It is the one of the highest version. Of several (two writers without a catalog, or names without a number) it is
    the one that the version hint names, else the one that was updated last. Raises TableNotFoundError without any.
    """
    names = [name for name in folder.names(METADATA) if _NAME.fullmatch(name)]
    if not names:
        raise TableNotFoundError(f"{folder.uri} holds no Iceberg table: there is no {METADATA}/*.metadata.json")
    numbers = {name: _version(name) for name in names}
    highest = max((number for number in numbers.values() if number is not None), default=None)
    candidates = sorted(name for name, number in numbers.items() if number in (None, highest))
    if len(candidates) > 1:
        hint = _hint(folder)
        hinted = [name for name in candidates if hint in (_stem(name), name)]
        candidates = hinted or sorted(candidates, key=lambda name: _age(folder, name))
    return f"{METADATA}/{candidates[-1]}"


def read_metadata(location: Location, path: str) -> TableMetadata:
    """Parse a metadata file. Raises TableFormatError when it is none, or of a format version without a reader."""
    full_path = location.full_path(path)
    raw = _read_json(location, path)
    version = raw.get("format-version", 1)
    if version not in range(1, _NEWEST_FORMAT + 1):
        raise TableFormatError(
            f"{full_path} is of Iceberg's format version {shown(version)}; up to {_NEWEST_FORMAT} are read"
        )
    try:
        check_metadata(raw)
        return _parse(raw, version)
    except DAMAGE as error:
        raise TableFormatError(f"{full_path} is no valid metadata file: {reason(error)}") from error


def resolve_state(name: str, metadata: TableMetadata, at: str | None) -> State:
    """The state that `at` names: a branch, a tag, a snapshot id, or a time in the history of the branch `main`.

    Without `at` it is the table as it is now. `name` is of the table, for SnapshotNotFoundError.
    """
    if at is None:
        return _head(name, metadata)
    if at in metadata.refs:
        kind, snapshot_id = metadata.refs[at]
        return _state(name, metadata, snapshot_id, at, current_schema=kind == "branch")
    if at.isdecimal():
        return _state(name, metadata, int(at), at)
    moment = parse_timestamp(at)
    if moment is None:
        raise _not_found(name, metadata, at)
    before = [entry for entry in _history(metadata) if _time(entry[0]) <= moment]
    if not before:
        raise not_found(name, at, "its first snapshots are of", [_time(ms).isoformat() for ms, _ in _history(metadata)])
    return _state(name, metadata, max(before, key=lambda entry: entry[0])[1], at)


def _head(name: str, metadata: TableMetadata) -> State:
    current = metadata.current_snapshot_id
    snapshot = None if current is None else _snapshot(name, metadata, current, "the current one")
    # A column that is added, renamed or dropped is a commit without a snapshot.
    return State(snapshot, _schema(name, metadata, None), _time(metadata.last_updated_ms))


def _state(name: str, metadata: TableMetadata, snapshot_id: int, at: str, *, current_schema: bool = False) -> State:
    snapshot = _snapshot(name, metadata, snapshot_id, at)
    schema = _schema(name, metadata, None if current_schema else snapshot.schema_id)
    return State(snapshot, schema, _time(snapshot.timestamp_ms))


def _snapshot(name: str, metadata: TableMetadata, snapshot_id: int, at: str) -> IcebergSnapshot:
    if snapshot_id not in metadata.snapshots:
        raise _not_found(name, metadata, at)
    return metadata.snapshots[snapshot_id]


def _not_found(name: str, metadata: TableMetadata, at: str) -> TableNotFoundError:
    known = [*metadata.refs, *metadata.snapshots]
    return not_found(name, at, "a branch, a tag, a snapshot id or a time may be named, of which there are", known)


def _schema(name: str, metadata: TableMetadata, schema_id: int | None) -> Mapping[str, Any]:
    wanted = metadata.current_schema_id if schema_id is None else schema_id
    if wanted not in metadata.schemas:
        raise TableFormatError(f"{name}: the metadata file lacks the schema {wanted} that it refers to")
    return metadata.schemas[wanted]


def _history(metadata: TableMetadata) -> Sequence[tuple[int, int]]:
    if metadata.snapshot_log:
        return metadata.snapshot_log
    # The log is optional: the ancestors of the current snapshot say the same.
    return [(snapshot.timestamp_ms, snapshot.id) for snapshot in _ancestors(metadata)]


def _ancestors(metadata: TableMetadata) -> Iterator[IcebergSnapshot]:
    current = metadata.current_snapshot_id
    seen = set()
    while current is not None and current in metadata.snapshots:
        if current in seen:
            raise ValueError(f"the snapshot {current} is its own ancestor")
        seen.add(current)
        yield metadata.snapshots[current]
        current = metadata.snapshots[current].parent_id


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


def _stem(name: str) -> str:
    match = _NAME.fullmatch(name)
    return match["stem"] if match else name


def _version(name: str) -> int | None:
    match = _NUMBER.fullmatch(_stem(name))
    return int(match[1] or match[2]) if match else None


def _hint(folder: Location) -> str | None:
    for name in _HINTS:
        try:
            text = folder.read(f"{METADATA}/{name}").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            continue
        if text:
            return f"v{text}" if text.isdecimal() else text
    return None


def _age(folder: Location, name: str) -> tuple[int, int, str]:
    path = f"{METADATA}/{name}"
    raw = _read_json(folder, path)
    with naming(folder.full_path(path)):
        updated, sequence = (number(raw.get(key) or 0, key) for key in ("last-updated-ms", "last-sequence-number"))
    return updated, sequence, name


def _is_metadata(location: Location, path: str) -> bool:
    try:
        raw = _json(location, path)
    except TableFormatError:
        # Damaged: then its name decides.
        return _version(path.rpartition("/")[2]) is not None
    except TableNotFoundError:
        return False
    return isinstance(raw, dict) and "location" in raw and not _MARKS.isdisjoint(raw)


def _json(location: Location, path: str) -> Any:
    full_path = location.full_path(path)
    try:
        return parsed_file(location.read(path))
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{full_path} does not exist") from error
    except DAMAGE as error:
        raise TableFormatError(f"{full_path} cannot be read as a metadata file: {reason(error)}") from error


def _read_json(location: Location, path: str) -> Mapping[str, Any]:
    full_path = location.full_path(path)
    raw = _json(location, path)
    if not isinstance(raw, dict) or not isinstance(raw.get("location"), str):
        raise TableFormatError(f"{full_path} is no metadata file of an Iceberg table")
    return raw


def _parse(raw: Mapping[str, Any], version: int) -> TableMetadata:
    schemas = {schema.get("schema-id", 0): schema for schema in raw.get("schemas") or [raw["schema"]]}
    current_schema_id = raw.get("current-schema-id")
    if current_schema_id is None:
        current_schema_id = (raw.get("schema") or {}).get("schema-id", max(schemas))
    specs = {spec.get("spec-id", 0): _spec(spec["fields"]) for spec in raw.get("partition-specs") or ()}
    refs = {name: (ref["type"], ref["snapshot-id"]) for name, ref in (raw.get("refs") or {}).items()}
    current = raw.get("current-snapshot-id")
    if current in (None, -1):
        current = refs[_MAIN][1] if _MAIN in refs else None
    else:
        refs.setdefault(_MAIN, ("branch", current))
    return TableMetadata(
        format_version=version,
        location=raw["location"],
        last_updated_ms=raw["last-updated-ms"],
        schemas=schemas,
        current_schema_id=current_schema_id,
        specs=specs or {0: _spec(raw.get("partition-spec") or ())},
        default_spec_id=raw.get("default-spec-id", 0),
        snapshots={one["snapshot-id"]: _parse_snapshot(one) for one in raw.get("snapshots") or ()},
        current_snapshot_id=current,
        refs=refs,
        snapshot_log=tuple((entry["timestamp-ms"], entry["snapshot-id"]) for entry in raw.get("snapshot-log") or ()),
        properties={key: str(value) for key, value in (raw.get("properties") or {}).items()},
        uuid=str(raw.get("table-uuid") or ""),
    )


def _spec(fields: Sequence[Mapping[str, Any]]) -> tuple[PartitionField, ...]:
    return tuple(
        PartitionField(
            name=field["name"],
            field_id=field.get("field-id", _FIRST_PARTITION_ID + index),
            source_id=(source_id := _source_id(field)),
            transform=_transform(field["transform"], source_id),
        )
        for index, field in enumerate(fields)
    )


def _source_id(field: Mapping[str, Any]) -> int | None:
    ids = field.get("source-ids") or [field.get("source-id")]
    return ids[0] if len(ids) == 1 else None


def _transform(name: str, source_id: int | None) -> str:
    """What is known of a transform. Any may be added to the specification: then readers do without."""
    match = _TRANSFORM.fullmatch(name.strip())
    kind = "unknown" if match is None else (match[1] or match[2]).lower()
    # Of the transforms of one column, those of several may have other results.
    return "unknown" if source_id is None and kind not in ("void", "bucket") else kind


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
