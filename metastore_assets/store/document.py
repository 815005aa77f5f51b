"""The JSON document of a version: everything about it but its many entries, which lie in Parquet files beside it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.store.entries import FRAGMENTS, KINDS, LAYOUTS, MEMORY, NODES, PARTITIONS
from metastore_assets.store.entry_files import EntryFile, EntryFiles
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
from metastore_assets.store.stored_entries import StoredEntries, StoredLayouts, StoredMemory

FORMAT_VERSION = 9
"""Of everything that a version names; raised when older code could not read it correctly."""


def encode_version(version: Version, entries: Mapping[str, EntryFiles], released: str | None, publisher: str) -> bytes:
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
        "layout": version.layout,
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
        "schema": base64.b64encode(zlib.compress(version.schema.serialize().to_pybytes())).decode(),
    }
    return json.dumps(fields, indent=1, ensure_ascii=False).encode()


def decode_version(data: bytes, objects: ObjectStore, path: str) -> Version:
    """The version written as JSON at that path. Raises StoreError when a newer release wrote it."""
    try:
        fields = json.loads(data)
        format_version = fields["format_version"]
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
        entries = {kind: StoredEntries(kind, objects, _files(fields["entries"][kind.name])) for kind in KINDS}
        return Version(
            number=fields["number"],
            table=fields["table"],
            format=fields["format"],
            snapshot=fields["snapshot"],
            committed_at=fields["committed_at"] and datetime.fromisoformat(fields["committed_at"]),
            published_at=datetime.fromisoformat(fields["published_at"]),
            schema=pa.ipc.read_schema(pa.py_buffer(zlib.decompress(base64.b64decode(fields["schema"])))),
            partition_columns=tuple(fields["partition_columns"]),
            row_count=fields["row_count"],
            bytes=fields["bytes"],
            content_id=fields["content_id"],
            files=ProfileFiles(**{**fields["files"], "frequencies": tuple(fields["files"]["frequencies"])}),
            code_version=fields["code_version"],
            layout=fields["layout"],
            layouts=StoredLayouts(entries[LAYOUTS]),
            fragments=entries[FRAGMENTS],
            partitions=entries[PARTITIONS],
            nodes=entries[NODES],
            memory=StoredMemory(entries[MEMORY]),
            released=fields["released"],
            lists=ListFiles(**{**lists, "files": tuple(lists["files"])}) if (lists := fields.get("lists")) else None,
            buckets=tuple((name, own, count) for name, own, count in fields.get("buckets", ())),
            index=_files(index) if (index := fields.get("index")) else None,
            partition_files=_partition_files(own) if (own := fields.get("partition_files")) else None,
            membership=_membership(held) if (held := fields.get("membership")) else None,
            decisions={key: Decision(**own) for key, own in fields.get("decisions", {}).items()},
            place=dict(place) if (place := fields.get("place")) else None,
            effort=Effort(**effort) if (effort := fields.get("effort")) else None,
            recorded_fragment_count=fields.get("fragment_count"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, pa.ArrowException) as error:
        raise CorruptionError(
            f"{objects.uri(path)} is damaged ({type(error).__name__}: {error}); rebuild with "
            "`metastore refresh NAME --full`, or move it away to use the version before"
        ) from error


def stored_entries(version: Version) -> list[StoredEntries[Any]]:
    """The entries of a version that was read from a store, kind by kind; none of one that was not."""
    found = [getattr(version, kind.name) for kind in KINDS]
    found = [entries.entries if isinstance(entries, StoredLayouts | StoredMemory) else entries for entries in found]
    return [entries for entries in found if isinstance(entries, StoredEntries)]


def _files_json(entries: EntryFiles) -> dict[str, Any]:
    files = [{"path": file.path, "rows": file.rows} for file in entries.files]
    return {"rows": entries.rows, "files": files}


def _files(fields: Mapping[str, Any]) -> EntryFiles:
    return EntryFiles(fields["rows"], tuple(EntryFile(file["path"], file["rows"]) for file in fields["files"]))


def _partition_files_json(own: PartitionFiles) -> dict[str, Any]:
    apart = [list(vars(one).values()) for one in own.apart]
    return {**_files_json(own.files), "apart": apart, "gone": list(own.gone)}


def _partition_files(fields: Mapping[str, Any]) -> PartitionFiles:
    apart = tuple(OwnStatistics(key, path, rows) for key, path, rows in fields["apart"])
    return PartitionFiles(_files(fields), apart, tuple(fields["gone"]))


def _membership_json(own: MembershipFiles) -> dict[str, Any]:
    return {**_files_json(own.files), "columns": list(own.columns)}


def _membership(fields: Mapping[str, Any]) -> MembershipFiles:
    return MembershipFiles(_files(fields), tuple(fields["columns"]))
