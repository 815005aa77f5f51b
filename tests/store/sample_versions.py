"""Small, distinct versions to publish in tests.

A version describes a table's fragments (data files with their deletes) and partitions. A profile is the statistics of
one of them, in several files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.store import entries, sections, segment_levels, segment_merge
from metastore_assets.store.version import Decision, FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles, Version
from metastore_assets.store.version_document import stored_entries

SMALL = (
    (entries, {"_REWRITE_BELOW": 1, "_MAX_DELTAS": 3, "_MERGE_BELOW": 1, "_ROW_GROUP_ROWS": 2, "_FILE_ROWS": 3}),
    (segment_levels, {"_WORK_PER_KEY": 1}),
    (segment_merge, {"_BATCH_ROWS": 2}),
    (sections, {"_STREAMED_BYTES": 1}),
)
"""Limits with which few rows are written and read in the same way as many rows usually are."""
SCHEMA = pa.schema([pa.field("a", pa.int64(), metadata={b"metastore.field_id": b"1"}), ("b", pa.list_(pa.string()))])


def files(name: str) -> ProfileFiles:
    """Return the files of a profile.

    Their names contain `name`.
    """
    path = f"fragments/{hashlib.md5(name.encode()).hexdigest()}-{name}"
    return ProfileFiles(f"{path}.s", f"{path}.h", (f"{path}.f0", f"{path}.f1"))


def fragment(name: str) -> FragmentEntry:
    """Return a fragment with the files `files(name)`."""
    return FragmentEntry(
        name, "day=1", f"s3://lake/{name}.parquet", 1000, 10, "spec", ("7",), files(name), not_enumerated=("7",)
    )


def version(number: int, tag: str = "", fragments: int = 3) -> Version:
    """Return a version that differs from versions with another number or tag.

    It has `fragments` fragments.
    """
    name = f"{number}{tag}"
    return Version(
        number=number,
        table="orders",
        format="delta",
        snapshot=f"snapshot {name}",
        committed_at=None,
        published_at=datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        schema=SCHEMA,
        partition_columns=("day",),
        row_count=30,
        bytes=3000,
        content_id=name,
        files=files(f"table-{name}"),
        code_version="0.1.0",
        spec_id="spec",
        specs={"spec": {"1": "int64", "2": "list"}, "empty": {}},
        fragments=[fragment(f"fragment-{name}-{i}") for i in range(fragments)],
        partitions=[
            PartitionEntry("day=1", f"content {name}", 30, 3000, fragments, files(f"day-{name}"), number, "spec")
        ],
        nodes=[NodeEntry(f"node-{name}", files(f"node-{name}"), "spec")],
        decisions={"1": Decision("estimated", "about 200,000 distinct", 1, 200_000, 300_000)},
    )


def write_small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch limits so that small sets of entries are written as several segments, files and row groups."""
    for module, limits in SMALL:
        for name, value in limits.items():
            monkeypatch.setattr(module, name, value)


def forbid_complete_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the test fail if it reads all fragments, partitions or nodes of a version at once.

    Nodes are stored merges of profiles. Single columns of partitions may be read.
    """
    read_rows = entries.StoredEntries.read_rows

    def read(stored_entries: entries.StoredEntries[Any], columns: Sequence[str] | None = None) -> pa.Table:
        kind = stored_entries.kind
        if kind in (entries.FRAGMENTS, entries.NODES) or (kind == entries.PARTITIONS and columns is None):
            pytest.fail(f"all {kind.name} are read at once")
        return read_rows(stored_entries, columns)

    monkeypatch.setattr(entries.StoredEntries, "read_rows", read)


def files_of(version: Version) -> Iterator[str]:
    """Yield the paths of all files that a table has if this version, read from a store, is its only one."""
    yield from version.paths()
    yield from version.auxiliary_files()
    yield from (path for entries in stored_entries(version) for path in entries.files.paths())
    yield f"versions/{version.number}.json"
    yield "versions/newest"
