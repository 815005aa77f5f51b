"""One version of a table's Metastore, and the entries and files that it consists of, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from metastore_assets.store.segments import SegmentFiles

MetadataCacheEntries: TypeAlias = Mapping[bytes, bytes]
"""Metadata of the table's files that planning has read, by key."""


@dataclass(frozen=True)
class ProfileFiles:
    """The files of one profile: paths below the table's folder in the root.

    People and lookups read statistics, histograms and frequencies; only merges read the states. A profile that no
    lookup reads has only states, and the value counts in the same file. Several profiles may share a file of states,
    with a section each.
    """

    statistics: str
    """Empty when there are only states."""
    histograms: str
    """Empty when no column has a histogram, or there are only states."""
    frequencies: tuple[str, ...]
    """Parts in column order; the rows of a column may continue in the next part. Empty when no column has value counts,
    or there are only states."""
    states: str = ""
    """Empty when all states can be derived from the value counts, and of a table, which is not merged further."""
    section: str = ""
    """Name of the profile's section in `states`. It stays when the section moves to another file. Empty without one."""
    sections: int = 0
    """Number of sections that were written to the file."""

    @property
    def name(self) -> str:
        """An identifier of the profile that does not depend on the file it is in."""
        return self.statistics or self.section

    @property
    def is_states_only(self) -> bool:
        """Whether the profile has only the file that merges read."""
        return not self.statistics

    def paths(self) -> Iterator[str]:
        """Yield the path of every file of the profile."""
        return (path for path in (self.statistics, self.histograms, *self.frequencies, self.states) if path)


@dataclass(frozen=True)
class ValueCountFiles:
    """The files of the table's value counts: paths below the table's folder in the root."""

    state: str
    """The file that says what the others are."""
    files: tuple[str, ...]
    frequencies: str = ""
    """After `compact`: one file of all values by decreasing frequency. Empty otherwise."""
    ranks: str = ""
    """After `compact`: one file of the sorted values of columns with `ranks: on`, with their ranks. Empty otherwise."""

    def paths(self) -> Iterator[str]:
        """Yield the path of every file."""
        yield self.state
        yield from self.files
        yield from (path for path in (self.frequencies, self.ranks) if path)


@dataclass(frozen=True)
class UnindexedPartition:
    """A partition whose statistics are read from its own file, because the partition index lacks its current state."""

    key: str
    path: str
    """The file `statistics` of its profile."""
    row_count: int


@dataclass(frozen=True)
class PartitionIndex:
    """The partition index of a version, and how the version differs from it."""

    files: SegmentFiles
    """The statistics of partitions by (column, partition)."""
    unindexed: tuple[UnindexedPartition, ...] = ()
    """Partitions that the files lack, or have in an older state."""
    removed: tuple[str, ...] = ()
    """Keys of partitions that the files may have and the version has not."""


@dataclass(frozen=True)
class ValueFilterFiles:
    """The value filters of a version: they tell which values occur in no row of a fragment."""

    files: SegmentFiles
    columns: tuple[str, ...]
    """Field ids of the columns with filters."""


@dataclass(frozen=True)
class FragmentEntry:
    """One profiled fragment."""

    id: str
    partition_key: str
    path: str
    """The data file, for messages and for people."""
    bytes: int
    row_count: int
    spec_id: str
    """Key into `Version.specs`: the columns and policies that the fragment was profiled under."""
    unprofiled: tuple[str, ...]
    """Identities of columns that the data file has and the profile lacks."""
    files: ProfileFiles
    retired: int | None = None
    """The version that removed the fragment; None while the fragment is live."""
    not_enumerated: tuple[str, ...] = ()
    """Field ids of columns with too many values to enumerate, where the profile spec leaves that open."""


@dataclass(frozen=True)
class PartitionEntry:
    """One partition of the table in a version."""

    key: str
    content_id: str
    """Digest of all that determined the profile: equal ids mean equal numbers."""
    row_count: int
    bytes: int
    fragments: int
    """Number of live fragments."""
    files: ProfileFiles
    version: int
    """The version that computed the profile."""
    spec_id: str = ""
    """Key into `Version.specs`: the columns and policies that the files were written under. Later versions may use
    the files still: columns that were added since are null in all rows, and renamed columns have their old names."""
    members: str = ""
    """Digest of the ids of the partition's fragments. Other fragments may hold the same rows."""


@dataclass(frozen=True)
class NodeEntry:
    """One intermediate result of merging, stored so that the next version does not merge everything again."""

    id: str
    files: ProfileFiles
    spec_id: str = ""
    """Key into `Version.specs`, as for a partition."""


@dataclass(frozen=True)
class Decision:
    """How the frequencies of a column are stored whose policy leaves that open."""

    frequencies: Literal["enumerated", "estimated", "fingerprinted"]
    reason: str
    """An explanation for people."""
    since: int
    """The version that made the decision."""
    distinct: int
    """The approximate number of distinct values then. When the column has changed much, the decision is made again."""
    values: int
    """The number of values then."""


@dataclass(frozen=True)
class ProfileSpecEntry:
    """One profile spec that profiles were written under."""

    spec_id: str
    field_ids: tuple[str, ...]
    """The profiled top-level columns."""
    column_specs: tuple[str, ...]
    """The column spec fingerprint of each."""


@dataclass(frozen=True)
class MetadataCacheEntry:
    """One piece of metadata that planning has read."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class RefreshStats:
    """The work that a version took."""

    fragments: int
    """Number of fragments that were read."""
    bytes: int
    """Stored size of these fragments."""
    seconds: float


@dataclass(frozen=True)
class Version:
    """One published state of the Metastore for one table, tied to one snapshot of it.

    When a version is read from a store, `specs`, `fragments`, `partitions`, `nodes` and `metadata_cache` are read on
    first use.
    """

    number: int
    """1, 2, 3, …"""
    table: str
    format: str
    snapshot: str
    """The snapshot's id, as the table's format names it."""
    committed_at: datetime | None
    """UTC time when the snapshot was committed; None when the format does not record it."""
    published_at: datetime
    """UTC."""
    schema: pa.Schema
    """The table's columns, with the metadata of their fields."""
    partition_columns: tuple[str, ...]
    row_count: int
    bytes: int
    content_id: str
    files: ProfileFiles
    """The table's profile."""
    code_version: str
    spec_id: str
    """Key into `specs`: the profile spec that the partitions and the table were merged under."""
    specs: Mapping[str, Mapping[str, str]]
    """By profile spec id, then by field id: the column spec fingerprint of each profiled top-level column."""
    fragments: Sequence[FragmentEntry]
    partitions: Sequence[PartitionEntry]
    nodes: Sequence[NodeEntry] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """By field id: the columns whose policy leaves open whether their values are enumerated, and that are not
    enumerated, or once were not."""
    value_counts: ValueCountFiles | None = None
    """The value counts of the table; None when no column has any."""
    index: SegmentFiles | None = None
    """The fragment index; None when the version was published without one."""
    partition_index: PartitionIndex | None = None
    """The partition index; None when the version was published without one."""
    value_filters: ValueFilterFiles | None = None
    """The value filters; None when no column's policy asks for one."""
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Partition columns that are hashes of a column: name, the column's field id, number of buckets."""
    metadata_cache: MetadataCacheEntries = field(default_factory=dict, compare=False, repr=False)
    """Metadata of the table's files that planning has read. Its readers give it a meaning."""
    table_location: Mapping[str, Any] | None = field(default=None, compare=False)
    """Where the table is and which of its rows count: fields of its configuration as JSON, without secrets. None when
    that was not recorded."""
    refresh_stats: RefreshStats | None = field(default=None, compare=False)
    """None when the work was not measured."""
    dropped_columns: tuple[str, ...] = field(default=(), compare=False)
    """Columns that a policy names and the table has no more. They were in an earlier version, so they are no typos."""
    purged: int = field(default=0, compare=False)
    """The version that the last purge published; 0 before the first one. The purge removed what was written before that
    version and is in no version. A publisher that started before it starts again."""
    garbage_manifest: str | None = field(default=None, compare=False, repr=False)
    """The file that lists the paths of the version before that this one does not use. None when there are none, or they
    are not known. `publish` ignores this field and the next one."""
    recorded_fragment_count: int | None = field(default=None, compare=False, repr=False)
    """`fragment_count` as the version's document has it."""

    @property
    def fragment_count(self) -> int:
        """Number of fragments in the snapshot. `fragments` also has removed fragments whose profiles are retained."""
        if self.recorded_fragment_count is not None:
            return self.recorded_fragment_count
        return sum(entry.fragments for entry in self.partitions)

    def auxiliary_files(self) -> tuple[str, ...]:
        """Return the paths of the files that are neither of a profile nor of entries."""
        paths = (*(self.value_counts.paths() if self.value_counts else ()), *self._index_paths())
        return paths if self.garbage_manifest is None else (*paths, self.garbage_manifest)

    def paths(self) -> Iterator[str]:
        """Yield the path of every file of profiles, value counts and indexes."""
        yield from self.files.paths()
        if self.value_counts is not None:
            yield from self.value_counts.paths()
        yield from self._index_paths()
        for entries in (self.fragments, self.partitions, self.nodes):
            for entry in entries:
                yield from entry.files.paths()

    def _index_paths(self) -> Iterator[str]:
        if self.index is not None:
            yield from self.index.paths()
        if self.partition_index is not None:
            yield from self.partition_index.files.paths()
        if self.value_filters is not None:
            yield from self.value_filters.files.paths()
