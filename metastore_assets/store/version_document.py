"""The JSON document of a version.

It contains everything except the entries, and names the files with the entries.

There is an entry for each fragment (a data file with its deletes), each partition, and so on (see `store.entries`). The
entries of each kind, and each index, are stored in segments, which are sorted and have one or more files. A segment of
many files is packed: the document has its list of files in a compressed form (see `store.packed_segments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from metastore_assets.errors import StoreError
from metastore_assets.store import json_fields
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import (
    FRAGMENTS,
    KINDS,
    METADATA_CACHE,
    NODES,
    PARTITIONS,
    PROFILE_SPECS,
    RETIRED,
    SHARED_FILES,
    StoredEntries,
    StoredMetadataCache,
    StoredProfileSpecs,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.packed_segments import compress, decompress, pack_segment, unpack_segment
from metastore_assets.store.segments import PackedSegment, SegmentFile, SegmentFiles
from metastore_assets.store.version import (
    Decision,
    PartitionIndex,
    ProfileFiles,
    RefreshStats,
    UnindexedPartition,
    ValueCountFiles,
    ValueFilterFiles,
    Version,
)

_ADVICE = "rebuild with `metastore refresh NAME --full`, or move it away to use the previous version"
FORMAT_VERSION = 25
"""Version of the file format of everything that a version references. It rises if older code would misread files."""


class OlderFormatError(StoreError):
    """Raised for a version that an earlier release wrote in a format that this release cannot read."""


def encode_version(
    version: Version, entries: Mapping[str, SegmentFiles], base: Version | None = None
) -> dict[str, Any]:
    """Return the fields of a version's JSON document.

    Args:
        version: The version.
        entries: The files of its entries, by name of the kind (such as `fragments`).
        base: The previous version. If a segment is also in `base`, its packed list of files is copied. None: all lists
            are packed again.
    """
    packed = {} if base is None else _packed_segments(base)
    fields = {
        "format_version": FORMAT_VERSION,
        "number": version.number,
        "table": version.table,
        "format": version.format,
        "snapshot": version.snapshot,
        "committed_at": version.committed_at and version.committed_at.isoformat(),
        "published_at": version.published_at.isoformat(),
        "code_version": version.code_version,
        "spec_id": version.spec_id,
        "row_count": version.row_count,
        "bytes": version.bytes,
        "content_id": version.content_id,
        "partition_columns": list(version.partition_columns),
        "files": vars(version.files),
        "entries": {kind: _segments_json(files, packed) for kind, files in entries.items()},
        "garbage_manifest": version.garbage_manifest,
    }
    optional = {
        "value_counts": version.value_counts and vars(version.value_counts),
        "index": version.index and _segments_json(version.index, packed),
        "partition_index": version.partition_index and _partition_index_json(version.partition_index, packed),
        "value_filters": version.value_filters and _value_filters_json(version.value_filters, packed),
        "buckets": version.buckets,
        "decisions": {field_id: vars(decision) for field_id, decision in version.decisions.items()},
        "table_location": version.table_location and dict(version.table_location),
        "refresh_stats": version.refresh_stats and vars(version.refresh_stats),
        "dropped_columns": version.dropped_columns,
        "policies_id": version.policies_id,
        "purged": version.purged,
        "garbage": version.garbage,
    }
    fields |= {name: value for name, value in optional.items() if value}
    fields["schema"] = compress(version.schema.serialize().to_pybytes())
    return fields


def load_version(documents: Documents, number: int) -> Version:
    """Return one version of a table.

    Its entries are read on first use.

    Raises:
        VersionNotFoundError: There is no such version.
        CorruptionError: The document of the version is damaged.
        OlderFormatError: An earlier release wrote the version in a format that this one cannot read.
        StoreError: A later release of metastore-assets wrote the version, or the document cannot be read.
    """

    def decode(fields: Mapping[str, Any]) -> Version:
        version = _decode_version(fields, documents.objects)
        if version.number != number:
            raise ValueError(f"it is that of version {version.number}")  # Copied by hand, perhaps to undo a refresh.
        return version

    return documents.load(number, decode, _ADVICE)


def _decode_version(fields: Mapping[str, Any], objects: ObjectStore) -> Version:
    """Return the version in a JSON document.

    Raises StoreError if a release with another format wrote it.
    """
    format_version = json_fields.count(fields["format_version"], "format_version")
    if format_version > FORMAT_VERSION:
        raise StoreError(
            f"format_version is {format_version}, and this release of metastore-assets reads up to {FORMAT_VERSION}: "
            "upgrade it"
        )
    if format_version < FORMAT_VERSION:
        # Not a CorruptionError: with files that this release cannot read, it must not compare or expire any.
        raise OlderFormatError(
            f"format_version is {format_version}, of an earlier release of metastore-assets, whose files this release "
            f"does not read: remove {objects.uri()} and refresh the table"
        )
    return _decode_fields(fields, objects)


def _decode_fields(fields: Mapping[str, Any], objects: ObjectStore) -> Version:
    """Return the version in a document with the current `FORMAT_VERSION`.

    Damaged fields raise ValueError, KeyError, TypeError, AttributeError or CorruptionError (see `Documents.load`).
    """
    stored_kinds = json_fields.mapping(fields["entries"], "entries")
    entries = {
        kind: StoredEntries(kind, objects, _segments(stored_kinds[kind.name], f"entries.{kind.name}")) for kind in KINDS
    }
    committed_at, garbage_manifest = fields["committed_at"], fields["garbage_manifest"]
    location, stats = fields.get("table_location"), fields.get("refresh_stats")
    decisions = json_fields.mapping(fields.get("decisions", {}), "decisions")
    return Version(
        number=json_fields.count(fields["number"], "number"),
        table=json_fields.text(fields["table"], "table"),
        format=json_fields.text(fields["format"], "format"),
        snapshot=json_fields.text(fields["snapshot"], "snapshot"),
        row_count=json_fields.count(fields["row_count"], "row_count"),
        bytes=json_fields.count(fields["bytes"], "bytes"),
        content_id=json_fields.text(fields["content_id"], "content_id"),
        code_version=json_fields.text(fields["code_version"], "code_version"),
        spec_id=json_fields.text(fields["spec_id"], "spec_id"),
        committed_at=None if committed_at is None else json_fields.moment(committed_at, "committed_at"),
        published_at=json_fields.moment(fields["published_at"], "published_at"),
        schema=_schema(json_fields.text(fields["schema"], "schema")),
        partition_columns=json_fields.texts(fields["partition_columns"], "partition_columns"),
        files=_profile_files(json_fields.mapping(fields["files"], "files")),
        specs=StoredProfileSpecs(entries[PROFILE_SPECS]),
        fragments=entries[FRAGMENTS],
        partitions=entries[PARTITIONS],
        nodes=entries[NODES],
        retired=entries[RETIRED],
        shared_files=entries[SHARED_FILES],
        metadata_cache=StoredMetadataCache(entries[METADATA_CACHE]),
        garbage_manifest=None if garbage_manifest is None else json_fields.path(garbage_manifest, "garbage_manifest"),
        value_counts=_value_counts(value) if (value := fields.get("value_counts")) else None,
        buckets=tuple(map(_bucket, json_fields.items(fields.get("buckets", []), "buckets"))),
        index=_segments(value, "index") if (value := fields.get("index")) else None,
        partition_index=_partition_index(value) if (value := fields.get("partition_index")) else None,
        value_filters=_value_filters(value) if (value := fields.get("value_filters")) else None,
        decisions={key: json_fields.record(Decision, decision, "decisions") for key, decision in decisions.items()},
        table_location=dict(json_fields.mapping(location, "table_location")) if location else None,
        refresh_stats=json_fields.record(RefreshStats, stats, "refresh_stats") if stats else None,
        dropped_columns=json_fields.texts(fields.get("dropped_columns", []), "dropped_columns"),
        policies_id=json_fields.text(value, "policies_id") if (value := fields.get("policies_id")) else None,
        purged=json_fields.count(fields.get("purged", 0), "purged"),
        garbage=json_fields.paths(fields.get("garbage", []), "garbage"),
    )


def stored_entries(version: Version) -> list[StoredEntries[Any]]:
    """Return the stored entries of a version, as one object per kind of entries.

    Kinds with entries in memory are omitted. So the list is empty for a version that was not read from a store.
    """
    entries = [getattr(version, kind.name) for kind in KINDS]
    entries = [
        kind_entries.entries if isinstance(kind_entries, StoredProfileSpecs | StoredMetadataCache) else kind_entries
        for kind_entries in entries
    ]
    return [kind_entries for kind_entries in entries if isinstance(kind_entries, StoredEntries)]


def _schema(encoded_schema: str) -> pa.Schema:
    """Decode the schema of a version.

    Raises ValueError if it is corrupt or too large.
    """
    data = decompress(encoded_schema, "the schema")
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (OSError, pa.ArrowException) as error:
        # OSError: the bytes are no schema, or are nested deeply. ArrowInvalid is a ValueError as well.
        raise ValueError(f"the schema: {error}") from error


def _profile_files(fields: Mapping[str, Any]) -> ProfileFiles:
    return ProfileFiles(
        json_fields.path(fields["statistics"], "files.statistics"),
        json_fields.path(fields["histograms"], "files.histograms"),
        json_fields.paths(fields["frequencies"], "files.frequencies"),
        json_fields.path(fields["states"], "files.states"),
        json_fields.text(fields["section"], "files.section"),
        json_fields.count(fields["sections"], "files.sections"),
        json_fields.count(fields["states_bytes"], "files.states_bytes"),
    )


def _value_counts(value: object) -> ValueCountFiles:
    """Return the files of value counts from their JSON, after a check of its types."""
    fields = json_fields.mapping(value, "value_counts")
    return ValueCountFiles(
        json_fields.path(fields["state"], "value_counts.state"),
        json_fields.paths(fields["files"], "value_counts.files"),
        json_fields.path(fields.get("frequencies", ""), "value_counts.frequencies"),
        json_fields.path(fields.get("ranks", ""), "value_counts.ranks"),
    )


def _bucket(value: object) -> tuple[str, str, int]:
    name, field_id, number = json_fields.items(value, "buckets")
    return (
        json_fields.text(name, "buckets"),
        json_fields.text(field_id, "buckets"),
        json_fields.count(number, "buckets"),
    )


def _packed_segments(version: Version) -> dict[str, PackedSegment]:
    """Return the segments whose lists of files a version has in packed form, by path of the first file."""
    indexes = [each.files for each in (version.partition_index, version.value_filters) if each is not None]
    sets = [version.index, *indexes, *(entries.files for entries in stored_entries(version))]
    return {segment.files[0].path: segment for files in sets if files is not None for segment in files.packed}


def _segments_json(segments: SegmentFiles, packed: Mapping[str, PackedSegment]) -> dict[str, Any]:
    """Return segments as JSON.

    Args:
        segments: The segments.
        packed: Segments whose lists of files are already packed, by path of the first file.
    """
    files: list[Any] = []
    for segment in segments.segments:
        packed_segment = packed.get(segment[0].path)
        if packed_segment is None or packed_segment.files != segment:
            packed_segment = pack_segment(segment)
        files += map(_segment_json, segment) if packed_segment is None else [packed_segment.fields]
    fields: dict[str, Any] = {"rows": segments.rows, "files": files}
    if segments.directories:
        fields["directories"] = [_segment_json(file) for file in segments.directories]
    return fields


def _segment_json(file: SegmentFile) -> dict[str, Any]:
    return {name: value for name, value in file._asdict().items() if name in ("path", "rows") or value}


def _segments(value: object, name: str) -> SegmentFiles:
    """Return segments from their JSON, after a check of its types.

    `name` is the field's name in errors.
    """
    fields = json_fields.mapping(value, name)
    files: list[SegmentFile] = []
    packed: list[PackedSegment] = []
    for stored_file in json_fields.items(fields["files"], name):
        file_fields = json_fields.mapping(stored_file, name)
        if "columns" in file_fields:
            packed.append(unpack_segment(file_fields, name))
            files += packed[-1].files
        else:
            files.append(_segment(file_fields, name))
    directories = json_fields.items(fields.get("directories") or [], f"{name}.directories")
    return SegmentFiles(
        json_fields.count(fields["rows"], f"{name}.rows"),
        tuple(files),
        tuple(_segment(json_fields.mapping(file, name), f"{name}.directories") for file in directories),
        tuple(packed),
    )


def _segment(fields: Mapping[str, Any], name: str) -> SegmentFile:
    """Return one file of a segment from its JSON, after a check of its types.

    `name` is the field's name in errors.
    """
    if not fields["path"]:
        raise ValueError(f"{name} has an empty path")
    first, last = fields.get("first"), fields.get("last")
    for key in (first, last):
        if key is not None:
            json_fields.text(key, name)
    path, rows = json_fields.path(fields["path"], name), json_fields.count(fields["rows"], name)
    footer_bytes = json_fields.count(fields.get("footer_bytes") or 0, name)
    compact_footer_start = json_fields.count(fields.get("compact_footer_start") or 0, name)
    companion = json_fields.path(fields.get("companion") or "", name) or None
    flags = {key: fields.get(key) is True for key in ("continues", "absorbed")}
    return SegmentFile(
        path,
        rows,
        first,
        last,
        footer_bytes=footer_bytes,
        companion=companion,
        compact_footer_start=compact_footer_start,
        **flags,
    )


def _partition_index_json(index: PartitionIndex, packed: Mapping[str, PackedSegment]) -> dict[str, Any]:
    unindexed_partitions = [[partition.key, partition.path, partition.row_count] for partition in index.unindexed]
    return {**_segments_json(index.files, packed), "unindexed": unindexed_partitions, "removed": list(index.removed)}


def _partition_index(value: object) -> PartitionIndex:
    name = "partition_index"
    fields = json_fields.mapping(value, name)
    partitions = [json_fields.items(partition, name) for partition in json_fields.items(fields["unindexed"], name)]
    unindexed_partitions = tuple(
        UnindexedPartition(json_fields.text(key, name), json_fields.path(path, name), json_fields.count(rows, name))
        for key, path, rows in partitions
    )
    return PartitionIndex(_segments(fields, name), unindexed_partitions, json_fields.texts(fields["removed"], name))


def _value_filters_json(filters: ValueFilterFiles, packed: Mapping[str, PackedSegment]) -> dict[str, Any]:
    return {**_segments_json(filters.files, packed), "columns": list(filters.columns)}


def _value_filters(value: object) -> ValueFilterFiles:
    fields = json_fields.mapping(value, "value_filters")
    return ValueFilterFiles(
        _segments(fields, "value_filters"), json_fields.texts(fields["columns"], "value_filters.columns")
    )
