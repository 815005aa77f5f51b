"""The JSON document of a version: everything about it but its many entries, which lie in Parquet files beside it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.store.entries import entries_of, layouts_of
from metastore_assets.store.manifest import (
    FragmentEntry,
    LazyEntries,
    LazyLayouts,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    Version,
)
from metastore_assets.store.objects import ObjectStore

FORMAT_VERSION = 2
"""Of everything under `versions`; raised when older code could not read it correctly."""

_VERSION_FILE = re.compile(r"versions/([1-9][0-9]*)\.json")


def version_path(number: int) -> str:
    """Where the document of a version is, below the table's folder."""
    return f"versions/{number}.json"


def version_number(path: str) -> int | None:
    """The version whose document is at that path; None when it is another kind of file."""
    match = _VERSION_FILE.fullmatch(path)
    return int(match[1]) if match else None


def encode_version(version: Version, entries: Mapping[str, Mapping[str, Any]], publisher: str) -> bytes:
    """The JSON of a version. `entries` names the file and the number of rows of each kind of entry.

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
        "files": {
            "statistics": version.files.statistics,
            "histograms": version.files.histograms,
            "frequencies": list(version.files.frequencies),
            "states": version.files.states,
        },
        "entries": entries,
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
        entries = fields["entries"]
        files = fields["files"]
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
            files=ProfileFiles(
                files["statistics"], files["histograms"], tuple(files["frequencies"]), files.get("states", "")
            ),
            code_version=fields["code_version"],
            layout=fields["layout"],
            layouts=LazyLayouts(partial(_load_layouts, objects, entries["layouts"]["path"])),
            fragments=_lazy(FragmentEntry, objects, entries["fragments"]),
            partitions=_lazy(PartitionEntry, objects, entries["partitions"]),
            nodes=_lazy(NodeEntry, objects, entries["nodes"]),
            entry_files=tuple(entry["path"] for entry in entries.values()),
            recorded_fragment_count=fields.get("fragment_count"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, pa.ArrowException) as error:
        raise CorruptionError(
            f"{objects.uri(path)} is damaged ({type(error).__name__}: {error}); rebuild with "
            "`metastore refresh --full`, or move it away to use the version before"
        ) from error


def _lazy(kind: Any, objects: ObjectStore, entry: Mapping[str, Any]) -> LazyEntries[Any]:
    return LazyEntries(entry["rows"], partial(_load_entries, kind, objects, entry["path"]))


def _load_entries(kind: Any, objects: ObjectStore, path: str) -> list[Any]:
    return entries_of(kind, objects.read_parquet(path))


def _load_layouts(objects: ObjectStore, path: str) -> dict[str, dict[str, str]]:
    return layouts_of(objects.read_parquet(path))
