"""The JSON document of a version: everything about it but its many entries, which lie in Parquet files beside it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.store import json_fields
from metastore_assets.store.entries import (
    FRAGMENTS,
    KINDS,
    MEMORY,
    NODES,
    PARTITIONS,
    PROFILE_SPECS,
    StoredEntries,
    StoredMemory,
    StoredProfileSpecs,
)
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.manifest import (
    Decision,
    Effort,
    ListFiles,
    MembershipFiles,
    OwnStatistics,
    PartitionFiles,
    ProfileFiles,
    Version,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFile, SegmentFiles

_LARGEST_SCHEMA = 128 << 20
"""Bytes of a schema: of hundreds of thousands of columns. A small compressed text may stand for gigabytes."""
FORMAT_VERSION = 10
"""Of everything that a version names; raised when older code could not read it correctly."""


def encode_version(
    version: Version, entries: Mapping[str, SegmentFiles], released: str | None, publisher: str
) -> bytes:
    """The JSON of a version. `entries` gives the files of each kind of entry, `released` is as `Version` says.

    `publisher` is unique to the attempt: it makes the JSON of two attempts differ, whatever else they agree on.
    """
    fields = {
        "format_version": FORMAT_VERSION,
        "publisher": publisher,
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
        "fragment_count": sum(entry.fragments for entry in version.partitions),
        "content_id": version.content_id,
        "partition_columns": list(version.partition_columns),
        "files": vars(version.files),
        "entries": {kind: _files_json(files) for kind, files in entries.items()},
        "released": released,
        **({"lists": {**vars(version.lists), "files": list(version.lists.files)}} if version.lists else {}),
        **({"index": _files_json(version.index)} if version.index else {}),
        **({"partition_files": _partition_files_json(own)} if (own := version.partition_files) else {}),
        **({"membership": _membership_json(held)} if (held := version.membership) else {}),
        **({"buckets": [list(own) for own in version.buckets]} if version.buckets else {}),
        **({"decisions": {key: vars(own) for key, own in version.decisions.items()}} if version.decisions else {}),
        **({"place": dict(version.place)} if version.place else {}),
        **({"effort": vars(version.effort)} if version.effort else {}),
        **({"dropped_columns": list(version.dropped_columns)} if version.dropped_columns else {}),
        **({"purged": version.purged} if version.purged else {}),
        "schema": base64.b64encode(zlib.compress(version.schema.serialize().to_pybytes())).decode(),
    }
    return json.dumps(fields, indent=1, ensure_ascii=False).encode()


def decode_version(data: bytes, objects: ObjectStore, path: str) -> Version:
    """The version written as JSON at that path. Raises StoreError when a newer release wrote it."""
    try:
        fields = json_fields.mapping(parse_json(data), "the document")
        format_version = json_fields.count(fields["format_version"], "format_version")
        if format_version > FORMAT_VERSION:
            raise StoreError(
                f"{objects.uri(path)} has format {format_version}, and this release of metastore-assets reads up to "
                f"{FORMAT_VERSION}: upgrade it"
            )
        if format_version < FORMAT_VERSION:
            # Not as if it were damaged: beside files that nobody reads any more, nothing can be compared or expired.
            raise StoreError(
                f"{objects.uri(path)} was written by an earlier release of metastore-assets, whose files this one does "
                f"not read: remove {objects.uri()} and refresh the table"
            )
        return _version(fields, objects)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error, pa.ArrowException) as error:
        cause = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise CorruptionError(
            f"{objects.uri(path)} is damaged ({cause}); rebuild with `metastore refresh NAME --full`, or move it away "
            "to use the version before"
        ) from error


def _version(fields: Mapping[str, Any], objects: ObjectStore) -> Version:
    stored = json_fields.mapping(fields["entries"], "entries")
    entries = {kind: StoredEntries(kind, objects, _files(stored[kind.name], f"entries.{kind.name}")) for kind in KINDS}
    committed_at, fragment_count = fields["committed_at"], fields.get("fragment_count")
    released, lists, place = fields["released"], fields.get("lists"), fields.get("place")
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
        memory=StoredMemory(entries[MEMORY]),
        released=None if released is None else json_fields.path(released, "released"),
        lists=_list_files(json_fields.mapping(lists, "lists")) if lists else None,
        buckets=tuple(map(_bucket, json_fields.items(fields.get("buckets", []), "buckets"))),
        index=_files(index, "index") if (index := fields.get("index")) else None,
        partition_files=_partition_files(own) if (own := fields.get("partition_files")) else None,
        membership=_membership(held) if (held := fields.get("membership")) else None,
        decisions={key: json_fields.record(Decision, own, "decisions") for key, own in decisions.items()},
        place=dict(json_fields.mapping(place, "place")) if place else None,
        effort=json_fields.record(Effort, effort, "effort") if (effort := fields.get("effort")) else None,
        dropped_columns=json_fields.texts(fields.get("dropped_columns", []), "dropped_columns"),
        purged=json_fields.count(fields.get("purged", 0), "purged"),
        recorded_fragment_count=None if fragment_count is None else json_fields.count(fragment_count, "fragment_count"),
    )


def _schema(encoded: str) -> pa.Schema:
    """The schema. Raises ValueError where it takes more memory than any schema does."""
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(encoded), _LARGEST_SCHEMA)
    if not inflater.eof:
        raise ValueError(f"the schema is cut short, or has more than {_LARGEST_SCHEMA:,} bytes")
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except OSError as error:  # of what is no schema, or is nested too deeply
        raise ValueError(f"the schema: {error}") from error


def _profile_files(fields: Mapping[str, Any]) -> ProfileFiles:
    return ProfileFiles(
        json_fields.path(fields["statistics"], "files.statistics"),
        json_fields.path(fields["histograms"], "files.histograms"),
        json_fields.paths(fields["frequencies"], "files.frequencies"),
        json_fields.path(fields["states"], "files.states"),
        json_fields.text(fields["section"], "files.section"),
        json_fields.count(fields["sections"], "files.sections"),
    )


def _list_files(fields: Mapping[str, Any]) -> ListFiles:
    return ListFiles(
        json_fields.path(fields["state"], "lists.state"),
        json_fields.paths(fields["files"], "lists.files"),
        json_fields.path(fields.get("frequencies", ""), "lists.frequencies"),
        json_fields.path(fields.get("ranks", ""), "lists.ranks"),
    )


def _bucket(value: object) -> tuple[str, str, int]:
    name, field_id, number = json_fields.items(value, "buckets")
    return (
        json_fields.text(name, "buckets"),
        json_fields.text(field_id, "buckets"),
        json_fields.count(number, "buckets"),
    )


def stored_entries(version: Version) -> list[StoredEntries[Any]]:
    """The entries of a version that was read from a store, kind by kind; none of one that was not."""
    found = [getattr(version, kind.name) for kind in KINDS]
    found = [
        entries.entries if isinstance(entries, StoredProfileSpecs | StoredMemory) else entries for entries in found
    ]
    return [entries for entries in found if isinstance(entries, StoredEntries)]


def _files_json(entries: SegmentFiles) -> dict[str, Any]:
    files = [{"path": file.path, "rows": file.rows} for file in entries.files]
    return {"rows": entries.rows, "files": files}


def _files(value: object, name: str) -> SegmentFiles:
    fields = json_fields.mapping(value, name)
    files = [_segment(json_fields.mapping(file, name), name) for file in json_fields.items(fields["files"], name)]
    return SegmentFiles(json_fields.count(fields["rows"], f"{name}.rows"), tuple(files))


def _segment(fields: Mapping[str, Any], name: str) -> SegmentFile:
    if not fields["path"]:
        raise ValueError(f"{name} has an empty path")
    return SegmentFile(json_fields.path(fields["path"], name), json_fields.count(fields["rows"], name))


def _partition_files_json(own: PartitionFiles) -> dict[str, Any]:
    apart = [list(vars(one).values()) for one in own.apart]
    return {**_files_json(own.files), "apart": apart, "gone": list(own.gone)}


def _partition_files(value: object) -> PartitionFiles:
    name = "partition_files"
    fields = json_fields.mapping(value, name)
    apart = tuple(
        OwnStatistics(json_fields.text(key, name), json_fields.path(path, name), json_fields.count(rows, name))
        for key, path, rows in (json_fields.items(own, name) for own in json_fields.items(fields["apart"], name))
    )
    return PartitionFiles(_files(fields, name), apart, json_fields.texts(fields["gone"], name))


def _membership_json(own: MembershipFiles) -> dict[str, Any]:
    return {**_files_json(own.files), "columns": list(own.columns)}


def _membership(value: object) -> MembershipFiles:
    fields = json_fields.mapping(value, "membership")
    return MembershipFiles(_files(fields, "membership"), json_fields.texts(fields["columns"], "membership.columns"))
