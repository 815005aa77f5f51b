"""What one version of a table's Metastore consists of, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from metastore_assets.store.segments import SegmentFiles

Learnt: TypeAlias = Mapping[bytes, bytes]
"""What planning learnt, by key."""


@dataclass(frozen=True)
class ProfileFiles:
    """The files of one profile: paths below the table's folder in the root.

    What people read lies apart from the states, which only merges read. A profile that nobody reads is its states
    alone, with the lists of values in the same file: it is *packed*. Profiles may share a file of states, a section
    each.
    """

    statistics: str
    """Empty when packed."""
    histograms: str
    """Empty when no column has one, or packed."""
    frequencies: tuple[str, ...]
    """Parts in column order; a column's rows may continue in the next part. Empty when no column is listed, or packed.
    """
    states: str = ""
    """Empty where all of them follow from the lists, and of a table, which nothing merges any further."""
    section: str = ""
    """Name of the profile's section in `states`, which it keeps when it is moved to another file; empty without one."""
    sections: int = 0
    """How many sections were written to that file."""

    @property
    def name(self) -> str:
        """Tells a profile from all others, wherever it lies."""
        return self.statistics or self.section

    @property
    def is_packed(self) -> bool:
        """Whether there is only the file that merges read."""
        return not self.statistics

    def paths(self) -> Iterator[str]:
        """Every file of the profile."""
        return (path for path in (self.statistics, self.histograms, *self.frequencies, self.states) if path)


@dataclass(frozen=True)
class ListFiles:
    """The lists of a table's values: paths below the table's folder in the root."""

    state: str
    """The file that says what the others are."""
    files: tuple[str, ...]
    frequencies: str = ""
    """Of compacted lists: one file of all values by decreasing frequency. Empty where there is none."""
    ranks: str = ""
    """Of compacted lists: one file of the values of columns with `ranks: on`, in their order, with their ranks."""

    def paths(self) -> Iterator[str]:
        """Every file."""
        yield self.state
        yield from self.files
        yield from (path for path in (self.frequencies, self.ranks) if path)


@dataclass(frozen=True)
class OwnStatistics:
    """A partition whose statistics are read from its own file."""

    key: str
    path: str
    """Of the file `statistics` of its profile."""
    row_count: int


@dataclass(frozen=True)
class PartitionFiles:
    """What tells of one column in all partitions."""

    files: SegmentFiles
    """The statistics of partitions by (column, partition)."""
    apart: tuple[OwnStatistics, ...] = ()
    """Partitions of which the files tell nothing, or nothing that is still true."""
    gone: tuple[str, ...] = ()
    """Keys of partitions that the files may have and that are gone."""


@dataclass(frozen=True)
class MembershipFiles:
    """Filters that tell which values are in no row of a fragment."""

    files: SegmentFiles
    columns: tuple[str, ...]
    """Field ids of the columns that they are of."""


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
    """Key into `Version.specs`: under which columns and policies the fragment was profiled."""
    unprofiled: tuple[str, ...]
    """Identities of columns that the data file holds and the profile does not."""
    files: ProfileFiles
    retired: int | None = None
    """The version that dropped the fragment from the table, or None while it is live."""
    unlisted: tuple[str, ...] = ()
    """Field ids of the columns whose values are too many to be listed, although the profile spec leaves that open."""


@dataclass(frozen=True)
class PartitionEntry:
    """One partition of the table in a version."""

    key: str
    content_id: str
    """Digest of what determined the profile when it was computed: equal ids, equal numbers."""
    row_count: int
    bytes: int
    fragments: int
    """Number of live fragments."""
    files: ProfileFiles
    version: int
    """The version in which the profile was computed."""
    spec_id: str = ""
    """Key into `Version.specs`: under which columns and policies the files were made, which later versions may
    name on: columns that were added since are null in all rows, and renamed ones go by their old names."""
    members: str = ""
    """Digest of which fragments the partition consists of: other ones may hold the same rows."""


@dataclass(frozen=True)
class NodeEntry:
    """One intermediate result of merging, kept so that the next version need not merge all again."""

    id: str
    files: ProfileFiles
    spec_id: str = ""
    """Key into `Version.specs`, as of a partition."""


@dataclass(frozen=True)
class Decision:
    """What was decided to be kept of one column whose policy leaves that open."""

    frequencies: Literal["enumerated", "estimated", "fingerprinted"]
    reason: str
    """Why, for people."""
    since: int
    """The version that the decision was made in."""
    distinct: int
    """About how many distinct values there are, by which it is decided whether to decide anew."""
    values: int


@dataclass(frozen=True)
class ProfileSpecEntry:
    """One profile spec that profiles were made under."""

    spec_id: str
    field_ids: tuple[str, ...]
    """Of the profiled top-level columns."""
    column_specs: tuple[str, ...]


@dataclass(frozen=True)
class MemoryEntry:
    """One thing that planning learnt."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class Effort:
    """What it took to make a version."""

    fragments: int
    """Fragments that were read."""
    bytes: int
    """Stored size of these."""
    seconds: float


@dataclass(frozen=True)
class Version:
    """One published state of the Metastore for one table, tied to one snapshot of it.

    Of a version read from a store, `specs`, `fragments`, `partitions`, `nodes` and `memory` are read on first use.
    """

    number: int
    """1, 2, 3, …"""
    table: str
    format: str
    snapshot: str
    """The snapshot's id, as the table's format names it."""
    committed_at: datetime | None
    """When the snapshot was committed, UTC, where the format records it."""
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
    """The profile spec, a key of `specs`, that the version's profiles were reduced under."""
    specs: Mapping[str, Mapping[str, str]]
    """By profile spec id: the signature of each profiled top-level column, by its field id."""
    fragments: Sequence[FragmentEntry]
    partitions: Sequence[PartitionEntry]
    nodes: Sequence[NodeEntry] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """By field id, columns whose policy leaves it open whether they are listed, that are not, or were not once."""
    lists: ListFiles | None = None
    """The lists of the table's values; None where no column is listed."""
    index: SegmentFiles | None = None
    """The index of the fragments; None of a version that was made without one."""
    partition_files: PartitionFiles | None = None
    """The statistics of the partitions by column; None of a version that was made without them."""
    membership: MembershipFiles | None = None
    """The filters of columns whose policy asks for them; None without such a column."""
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Partition columns that are hashes of a column: name, the column's field id, number of buckets."""
    memory: Learnt = field(default_factory=dict, compare=False, repr=False)
    """What planning learnt of the table's files; what reads them gives it a meaning."""
    place: Mapping[str, Any] | None = field(default=None, compare=False)
    """Where the table was found, and which rows of what lies there are meant: fields of its configuration as JSON, none
    of them secret. None where that is not known."""
    effort: Effort | None = field(default=None, compare=False)
    """None where it was not measured."""
    dropped_columns: tuple[str, ...] = field(default=(), compare=False)
    """Columns that a policy names and the table does not have, but had in an earlier version: no typing errors."""
    purged: int = field(default=0, compare=False)
    """The version that the last purge published; 0 before the first one. What was written before that version, and is
    in none, is gone: publishers that have begun before it begin again."""
    released: str | None = field(default=None, compare=False, repr=False)
    """The file with the paths of all that the version before names and this one does not; None where there is nothing,
    or it is not known what. `publish` takes no notice of it, nor of what follows."""
    recorded_fragment_count: int | None = field(default=None, compare=False, repr=False)
    """`fragment_count` as the version's document says it."""

    def own_files(self) -> tuple[str, ...]:
        """The files that a version names beside its profiles and entries."""
        own = (*(self.lists.paths() if self.lists else ()), *self._index_paths())
        return own if self.released is None else (*own, self.released)

    @property
    def fragment_count(self) -> int:
        """Number of fragments in the snapshot; `fragments` also lists those that left it and are still known."""
        if self.recorded_fragment_count is not None:
            return self.recorded_fragment_count
        return sum(entry.fragments for entry in self.partitions)

    def paths(self) -> Iterator[str]:
        """Every profile file the version consists of."""
        yield from self.files.paths()
        if self.lists is not None:
            yield from self.lists.paths()
        yield from self._index_paths()
        for entries in (self.fragments, self.partitions, self.nodes):
            for entry in entries:
                yield from entry.files.paths()

    def _index_paths(self) -> Iterator[str]:
        if self.index is not None:
            yield from self.index.paths()
        if self.partition_files is not None:
            yield from self.partition_files.files.paths()
        if self.membership is not None:
            yield from self.membership.files.paths()
