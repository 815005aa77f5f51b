"""Which files the versions of a table name: what `expire` must leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import FILES, StoredEntries
from metastore_assets.store.expire import without
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version_document import decode_version, stored_entries


def not_named(documents: Documents, paths: pa.Array, numbers: Sequence[int]) -> pa.Array:
    """Those of the paths that none of some versions names. Raises StoreError when one of them cannot be read."""
    objects = documents.objects
    seen: set[SegmentFiles] = set()
    for number in numbers:
        try:
            version = decode_version(documents.read(number), objects, documents.path(number))
        except ObjectNotFoundError:
            continue  # removed by another expire
        paths = without(paths, pa.array([*version.files.paths(), *version.auxiliary_files()], pa.string()))
        for entries in stored_entries(version):
            paths = without(paths, pa.array(entries.files.paths(), pa.string()))
            if len(paths) and len(entries) and entries.kind.names_files and entries.files not in seen:
                seen.add(entries.files)
                paths = _not_in_entries(paths, entries)
    return paths


def not_in_file(objects: ObjectStore, paths: pa.Array, file: str) -> pa.Array:
    """Those of the paths that no entry in one file names."""
    try:
        return _not_in_columns(paths, objects.read_parquet(file))
    except ObjectNotFoundError:
        return paths  # it was cleared since it was listed


def _not_in_entries(paths: pa.Array, entries: StoredEntries[Any]) -> pa.Array:
    try:
        return _not_in_columns(paths, entries.read_rows(FILES))
    except ObjectNotFoundError:
        return paths  # its version went since it was listed


def _not_in_columns(paths: pa.Array, table: pa.Table) -> pa.Array:
    for name in set(FILES) & set(table.column_names):
        for chunk in table.column(name).chunks:
            paths = without(paths, chunk.flatten() if pa.types.is_list(chunk.type) else chunk)
    return paths
