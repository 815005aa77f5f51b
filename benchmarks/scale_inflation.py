"""Copies of stored rows for more partitions, so that a very large version is made within minutes.

A refresh publishes a version of the touched partitions: those that the benchmark's commits change. Then the rows of one
partition are copied for each untouched partition, column by column in Arrow. In a copy, the partition's name, all
digests and all random names are replaced. Equal names get equal replacements. The copies differ from what a refresh
would store in one point: their digests are not digests of any content. No commit compares them, because no commit
changes these partitions.

A version is the published statistics of a table at one snapshot. A fragment is a data file with the deletes that apply
to it. A profile is the stored statistics of a fragment, a partition or the table. A node is a stored merge of profiles.
The nodes of a table form a tree over its partitions. An entry is a row that a version stores about a partition,
fragment, node or shared file. A segment is a set of entries in files sorted by key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.scale_profiles import FIRST_TIME, TIME_PER_DAY, SyntheticProfiles
from benchmarks.scale_tables import SyntheticTable
from metastore_assets.index import IndexRows, fragment_writer, update_partitions
from metastore_assets.index.flat_columns import complete_columns, flatten_rows, merge_flat_schemas
from metastore_assets.index.fragment_directories import SegmentDirectory
from metastore_assets.index.fragment_index import join_keys
from metastore_assets.pipeline import partition_index
from metastore_assets.pipeline.merging.groups import TABLE
from metastore_assets.pipeline.merging.merge_plan import tree_shape
from metastore_assets.pipeline.merging.tree import ROOT
from metastore_assets.store.entries import (
    FRAGMENTS,
    NODES,
    PARTITIONS,
    SHARED_FILES,
    EntryKind,
    StoredEntries,
    decode_entries,
    derive_paths,
    encode_entries,
)
from metastore_assets.store.segment_levels import SegmentMerge, SegmentPart
from metastore_assets.store.segment_merge import MergeSource, merge_segments, shorten_bounds, write_segment
from metastore_assets.store.segments import EMPTY, KeyChanges, SegmentFiles
from metastore_assets.store.version import (
    NodeEntry,
    PartitionEntry,
    PartitionIndex,
    ProfileFiles,
    SharedFileEntry,
    Version,
    node_key,
    node_key_prefix,
)
from metastore_assets.store.version_document import encode_version, stored_entries
from metastore_assets.store.versions import VersionStore

_PART = re.compile(r"day=\d{6}|(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{16})(?![0-9a-f])")
"""Matches what differs between partitions: the partition key, and digests and names of 16 or 32 hexadecimal digits."""
_SPEC_IDS = frozenset({"spec_id", "valid_spec_id"})
"""Columns with ids of profile specs, which all partitions share."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
DAYS_AT_ONCE = 1000
_MAX_DAYS = 1 << 20
"""More partitions than any table has."""


def inflate(versions: VersionStore, table: SyntheticTable, profiles: SyntheticProfiles) -> None:
    """Add the untouched partitions of a table to its newest version, which has only the touched ones.

    Args:
        versions: The versions of the table.
        table: The table.
        profiles: Makes the names of profiles.
    """
    version = versions.latest()
    assert version is not None
    inflation = _Inflation(versions, version, table, profiles)
    files = inflation.entry_files()
    partitions = version.row_count // len(table.touched) * table.partitions, version.bytes // len(table.touched)
    new_version = replace(
        version,
        row_count=partitions[0],
        bytes=partitions[1] * table.partitions,
        index=inflation.index(),
        partition_index=inflation.partition_index(),
    )
    document = encode_version(replace(new_version, garbage_manifest=None, garbage=()), files)
    versions.objects.write(versions.documents.path(version.number), json.dumps(document).encode())


class _Inflation:
    """A writer that extends a version of the touched partitions to a version of all partitions."""

    def __init__(
        self, versions: VersionStore, version: Version, table: SyntheticTable, profiles: SyntheticProfiles
    ) -> None:
        self._objects = versions.objects
        self._version = version
        self._count = table.partitions
        self._days = [day for day in range(table.partitions) if day not in table.touched]
        self._group = f"day={table.partitions // 3:06}"
        """The partition whose rows are copied."""
        self._profiles = profiles
        self._shared: list[SharedFileEntry] = []
        self._partitions: StoredEntries[PartitionEntry]

    def entry_files(self) -> dict[str, SegmentFiles]:
        """Write the entries of all partitions.

        Return their files by kind of entry, such as `partitions`.
        """
        entries_by_kind = {entries.kind.name: entries for entries in stored_entries(self._version)}
        files = {name: entries.files for name, entries in entries_by_kind.items()}
        # The kinds in this order: the nodes of the table's tree add shared files.
        for kind in (FRAGMENTS, PARTITIONS, NODES, SHARED_FILES):
            files[kind.name] = self._write(kind, entries_by_kind[kind.name])
            if kind is PARTITIONS:
                self._partitions = StoredEntries(PARTITIONS, self._objects, files[kind.name])
        return files

    def _write(self, kind: EntryKind[Any], template_entries: StoredEntries[Any]) -> SegmentFiles:
        """Write the entries of one kind for all partitions as one segment, and return its files.

        The segment has the stored entries, and a copy of one partition's entries for each untouched partition. For
        nodes and shared files, a tree over all partitions replaces the stored tree of the table.
        """
        rows = template_entries.read_rows()
        rows = rows.take(pc.sort_indices(rows.column(0)))
        template = self._template(kind, rows)
        sources = [template_copies := copies(template, self._days)]
        if kind is NODES:
            rows = rows.filter(pc.invert(pc.starts_with(rows.column(0), node_key_prefix(TABLE))))
            sources.append(iter([self._table_nodes()]))
        if kind is SHARED_FILES:
            tree_files = pc.ends_with(rows.column(0), "/nodes")
            groups = pa.array([value == [TABLE] for value in rows["groups"].to_pylist()])
            rows = rows.filter(pc.invert(pc.and_(tree_files, groups)))
            shared_rows = encode_entries(SHARED_FILES, self._shared)
            unsorted_rows = pa.concat_tables([shared_rows, *template_copies])
            sources = [iter([unsorted_rows.take(pc.sort_indices(unsorted_rows.column(0)))])]
        all_sources = [MergeSource(tables, iter(())) for tables in (iter([rows]), *sources)]
        count = 0

        def counted() -> Iterator[tuple[pa.Table, pa.Array]]:
            nonlocal count
            for merged_rows, removed_keys in merge_segments(all_sources, kind.schema):
                count += len(merged_rows)
                yield merged_rows, removed_keys

        expected = len(rows) + len(template) * len(self._days)
        written_files = write_segment(self._objects, kind.segments, counted(), expected)
        return SegmentFiles(count, tuple(shorten_bounds(written_files)))

    def _template(self, kind: EntryKind[Any], rows: pa.Table) -> pa.Table:
        if kind is SHARED_FILES:
            return rows.filter(pa.array([value == [self._group] for value in rows["groups"].to_pylist()]))
        keys = rows.column(0)
        return rows.filter(
            pc.equal(keys, self._group) if kind is PARTITIONS else pc.starts_with(keys, f"{self._group}\0")
        )

    def _table_nodes(self) -> pa.Table:
        """Return the nodes of the tree over all partitions.

        Up to 64 nodes share one file. Entries of these files are added to `_shared`.
        """
        spec_id = self._version.spec_id
        keys = [f"day={day:06}" for day in range(self._count)]
        branches = list(tree_shape().build(keys).put_branches.values())
        columns = derive_paths(self._partitions.read_rows(["key", "statistics", "states"])).columns
        files_of = {
            key: ProfileFiles(statistics, "", (), states).encode_merge_files()
            for key, statistics, states in zip(*(column.to_pylist() for column in columns), strict=True)
        }
        nodes = []
        for start in range(0, len(branches), 64):
            batch = branches[start : start + 64]
            files = self._profiles._shared_files("nodes", len(batch))
            self._shared.append(SharedFileEntry(files[0].states, len(batch), (TABLE,), (len(batch),)))
            for branch, profile in zip(batch, files, strict=True):
                node_files = ProfileFiles("", "", ()) if branch.name == ROOT else profile
                key = node_key(TABLE, branch.name)
                children = tuple(files_of[child] for child in branch.children)
                nodes.append(
                    NodeEntry(
                        key, node_files, spec_id, spec_id, branch.children, branch.branches, branch.count, children
                    )
                )
        return encode_entries(NODES, sorted(nodes, key=lambda node: node.key))

    def index(self) -> SegmentFiles:
        """Write the fragment index of all partitions as one segment; return its files.

        `update_index` would write the rows of so many fragments several times. The segment has no tombstones (keys of
        removed fragments), because the index of the version has none.
        """
        rows = self._template(FRAGMENTS, self._version.fragments.read_rows())  # type: ignore[attr-defined]
        entries = decode_entries(FRAGMENTS, rows)
        template = flatten_rows(self._profiles._read_index_rows(None, self._objects, 0, entries))  # type: ignore[arg-type]
        base = self._version.index or EMPTY
        parts = [SegmentPart(files) for files in base.segments]
        merge: SegmentMerge[IndexRows] = SegmentMerge(parts, None, (), False, fragment_writer._FILE_ROWS)
        directories: dict[str, SegmentDirectory] = {}
        writer = fragment_writer._IndexMerge(self._objects, merge, base, directories)
        schema = merge_flat_schemas([template.schema, *(segment.flat_schema for segment in writer._segments)])
        window_rows = fragment_writer._WINDOW_ROWS
        sources = [writer._stored_source(*part, schema, window_rows) for part in merge.numbered_parts()]
        sources.append(MergeSource(self._index_rows(complete_columns(template, schema)), ()))
        written_files = merge.write_files(sources, pa.schema([fragment_writer._KEY, *schema]), writer._write_range)
        count = self._version.fragment_count + len(entries) * len(self._days)
        files = SegmentFiles(count, tuple(shorten_bounds(written_files)))
        return replace(files, directories=fragment_writer._write_directories(self._objects, base, files, directories))

    def _index_rows(self, template: pa.Table) -> Iterator[pa.Table]:
        """Yield copies of the index rows of one partition, for the untouched partitions, sorted by key.

        They are rows of the fragment index. The key is the first column.
        """
        for table in copies(template, self._days, sort=False):
            keyed_rows = table.add_column(0, fragment_writer._KEY, join_keys(table))
            yield keyed_rows.take(pc.sort_indices(keyed_rows.column(0)))

    def partition_index(self) -> PartitionIndex:
        """Write the partition index of all partitions; return it."""
        rows = self._template(PARTITIONS, self._version.partitions.read_rows())  # type: ignore[attr-defined]
        entries: list[PartitionEntry] = [
            entry for table in copies(rows, self._days) for entry in decode_entries(PARTITIONS, table)
        ]
        changed_partitions = {entry.key: partition_index._unindexed(entry) for entry in entries}

        def read(partitions: Sequence[Any]) -> Iterator[Any]:
            for start in range(0, len(partitions), 1000):
                yield self._profiles._read_statistics(self._objects, partitions[start : start + 1000])

        changes = KeyChanges(changed_partitions.keys(), (), self._count, may_merge=True)
        return update_partitions(self._objects, self._version.partition_index, changed_partitions, changes, read)


def copies(rows: pa.Table, days: Sequence[int], *, sort: bool = True) -> Iterator[pa.Table]:
    """Yield copies of the rows of one partition for other partitions.

    Args:
        rows: The rows of one partition.
        days: The other partitions, ascending.
        sort: Whether to sort the rows of each table by the first column.
    """
    for start in range(0, len(days), DAYS_AT_ONCE):
        batch = np.array(days[start : start + DAYS_AT_ONCE], np.uint64)
        columns = [
            _copy_column(rows.column(name).combine_chunks(), batch, is_unchanged=name in _SPEC_IDS)
            for name in rows.schema.names
        ]
        table = pa.Table.from_arrays(columns, schema=rows.schema)
        yield table.take(pc.sort_indices(table.column(0))) if sort else table


def _copy_column(column: pa.Array, days: npt.NDArray[np.uint64], *, is_unchanged: bool = False) -> pa.Array:
    """Return copies of a column's values for each partition, one partition after the other.

    In each copy, the partition's name, digests and random names inside texts are replaced, unless `is_unchanged`.
    """
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        lengths = np.tile(pc.list_value_length(column).fill_null(0).to_numpy(), len(days))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), _copy_column(column.flatten(), days))
    if pa.types.is_large_string(column.type):
        return _copy_column(column.cast(pa.string()), days).cast(pa.large_string())
    if is_unchanged or not pa.types.is_string(column.type):
        return column.take(pa.array(np.tile(np.arange(len(column)), len(days))))
    texts = column.to_pylist()
    copied_texts = [_copy_text(text, days) for text in texts]
    # Row by row for all partitions; then partition by partition.
    order = np.arange(len(texts) * len(days)).reshape(len(texts), len(days)).T.ravel()
    return pa.concat_arrays([pa.array([], pa.string()), *copied_texts]).take(pa.array(order))


def _copy_text(text: str | None, days: npt.NDArray[np.uint64]) -> pa.Array:
    if text is None or not (matches := list(_PART.finditer(text))):
        return pa.array([text] * len(days), pa.string())
    parts: list[pa.Array | pa.Scalar] = []
    end = 0
    for match in matches:
        parts += [pa.scalar(text[end : match.start()]), _replacement(match[0], days)]
        end = match.end()
    return pc.binary_join_element_wise(*parts, pa.scalar(text[end:]), "")


def _replacement(part: str, days: npt.NDArray[np.uint64]) -> pa.Array:
    if part.startswith("day="):
        return pa.array([f"day={day:06}" for day in days.tolist()])
    words = [_mix(np.uint64(int(part[at : at + 16], 16)) ^ _mix(days)) for at in range(0, len(part), 16)]
    time = int(part[:16], 16) - FIRST_TIME
    if 0 <= time < TIME_PER_DAY * _MAX_DAYS:
        words[0] = np.uint64(FIRST_TIME + time % TIME_PER_DAY) + days * np.uint64(TIME_PER_DAY)
    digits = np.stack(words, axis=1).astype(">u8").view(np.uint8).reshape(len(days), -1)
    text = np.stack([_HEX[digits >> 4], _HEX[digits & 15]], axis=2).reshape(len(days), -1)
    offsets = np.arange(len(days) + 1, dtype=np.int32) * text.shape[1]
    return pa.StringArray.from_buffers(len(days), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def _mix(words: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random word for each word, by splitmix64.

    Distinct words give distinct results.
    """
    with np.errstate(over="ignore"):
        mixed_words = np.asarray(words, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed_words = (mixed_words ^ (mixed_words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_words = (mixed_words ^ (mixed_words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed_words ^ (mixed_words >> np.uint64(31))
