"""A version of a table's Metastore, with its entries and the paths of its files, as plain values.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. States
are statistics in mergeable form. Value counts are the distinct values of a column with their frequencies. The partition
index has copies of the statistics of all partitions, so that a lookup need not open each partition's profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from metastore_assets.errors import StoreError
from metastore_assets.store.segments import SegmentFiles

MetadataCacheEntries: TypeAlias = Mapping[bytes, bytes]
"""Metadata of the table that planning has read before, by key."""


@dataclass(frozen=True)
class ProfileFiles:
    """The paths of the files of one profile, relative to the table's folder in the root.

    Lookups read statistics, histograms and frequencies. Merges read states. A profile that no lookup reads has only a
    file of states, which then includes its value counts. Several profiles may share such a file, with one section each.
    """

    statistics: str
    """Path of the file of statistics; empty if there are only states."""
    histograms: str
    """Path of the file of histograms; empty if no column has one, or if there are only states."""
    frequencies: tuple[str, ...]
    """Paths of the files of frequencies, in column order; empty if no column has value counts, or if there are only
    states. A column may continue in the next file."""
    states: str = ""
    """Path of the file of states; empty if all states are derived from value counts, or if no merge needs them."""
    section: str = ""
    """Name of the profile's section in the file `states`; empty if there is no such file. It stays when the section
    moves to another file."""
    sections: int = 0
    """Number of sections in the file `states` when it was written."""
    states_bytes: int = 0
    """Size of the file `states` in bytes."""

    @property
    def name(self) -> str:
        """An identifier of the profile, which does not change when its states move to another file."""
        return self.statistics or self.section

    @property
    def is_states_only(self) -> bool:
        """Whether the profile has only a file of states.

        Then no lookup reads the profile, only merges do.
        """
        return not self.statistics

    @classmethod
    def of_merge_files(cls, encoded_paths: str) -> ProfileFiles:
        """Decode the result of `encode_merge_files`.

        The path of histograms is empty, because merges read none.
        """
        statistics, states, *frequencies = encoded_paths.split("\n")
        return cls(statistics, "", tuple(frequencies), states)

    def encode_merge_files(self) -> str:
        """Return the paths of the files that a merge reads, one per line.

        If the profile is a section of the file `states`, the text is empty: paths alone would not say which section.
        """
        return "" if self.section else "\n".join((self.statistics, self.states, *self.frequencies))

    def paths(self) -> Iterator[str]:
        """Yield the path of every file of the profile."""
        return (path for path in (self.statistics, self.histograms, *self.frequencies, self.states) if path)


@dataclass(frozen=True)
class ValueCountFiles:
    """The paths of the files with the table's value counts, relative to the table's folder in the root."""

    state: str
    """Path of the JSON file that describes the other files."""
    files: tuple[str, ...]
    frequencies: str = ""
    """Path of a file with all values by decreasing frequency, which `compact` writes; empty before."""
    ranks: str = ""
    """Path of a file with the ranks of values in columns with `ranks: on`, which `compact` writes; empty before."""

    def paths(self) -> Iterator[str]:
        """Yield the path of every file."""
        yield self.state
        yield from self.files
        yield from (path for path in (self.frequencies, self.ranks) if path)


@dataclass(frozen=True)
class UnindexedPartition:
    """A partition whose current statistics are only in its profile, not in the partition index."""

    key: str
    path: str
    """The `statistics` file of the partition's profile."""
    row_count: int


@dataclass(frozen=True)
class PartitionIndex:
    """The files of a partition index, and the partitions that changed after the index was written."""

    files: SegmentFiles
    """The files of the index, with the statistics of all partitions by column."""
    unindexed: tuple[UnindexedPartition, ...] = ()
    """Partitions that the files lack, or have with older statistics."""
    removed: tuple[str, ...] = ()
    """Keys of removed partitions that the files may still have."""


@dataclass(frozen=True)
class ValueFilterFiles:
    """The files of a version's value filters.

    A value filter shows that a fragment does not contain a value.
    """

    files: SegmentFiles
    columns: tuple[str, ...]
    """Field ids of the columns with value filters."""


_KEY_SEPARATOR = "\0"
_NUMBER_DIGITS = 10
"""Number of digits of a version in the key of a retired fragment, with leading zeros. So keys sort by version."""
NODE_BLOCK_DIGITS = 3
"""Number of levels of a merge tree whose nodes have neighboring keys (see `node_key`)."""
LAST_NODE_BLOCK = 2
"""Number of the last block of nodes, which has all deeper levels."""


def fragment_key(partition_key: str, path: str) -> str:
    """Return the key of a fragment's entry: partition key, null character, path of the data file."""
    return f"{partition_key}{_KEY_SEPARATOR}{path}"


def split_fragment_key(key: str) -> tuple[str, str]:
    """Return (partition key, path) of a fragment, given the key of its entry.

    Raises ValueError if `key` contains no null character, so that `fragment_key` cannot have made it.
    """
    partition_key, separator, path = key.partition(_KEY_SEPARATOR)
    if not separator:
        raise ValueError(f"{key!r} is no key of a fragment")
    return partition_key, path


def repeated_fragment_error(table: str, key: str) -> StoreError:
    """Return the error that two fragments of a table have the same key."""
    partition_key, path = split_fragment_key(key)
    return StoreError(
        f"table {table!r}: partition {partition_key!r} has two fragments with the path {path!r}: remove one of them "
        "from the table"
    )


@dataclass(frozen=True)
class FragmentEntry:
    """One profiled fragment of the table."""

    id: str
    partition_key: str
    path: str
    """Path of the data file, for messages and for users."""
    bytes: int
    row_count: int
    spec_id: str
    """Key into `Version.specs`: the spec under which the fragment was profiled."""
    unprofiled: tuple[str, ...]
    """Identities of columns that the data file has and the profile lacks; see `FragmentReader.stored_columns`."""
    files: ProfileFiles
    not_enumerated: tuple[str, ...] = ()
    """Field ids of columns without value counts, although the profile spec allows them, because values hardly
    repeat."""

    @property
    def key(self) -> str:
        """The key of the entry, see `fragment_key`.

        It identifies the fragment within one version.
        """
        return fragment_key(self.partition_key, self.path)

    @property
    def group(self) -> str:
        """Key of the partition to which the fragment belongs."""
        return self.partition_key


@dataclass(frozen=True)
class RetiredFragment:
    """A fragment that a commit removed, whose profile is reused if a restore of the table adds it again."""

    retired: int
    """Number of the version that removed the fragment."""
    fragment: FragmentEntry

    @property
    def key(self) -> str:
        """The number of the version that removed the fragment, a null character, and the fragment's id.

        The number has ten digits.
        """
        return f"{retired_prefix(self.retired)}{self.fragment.id}"

    @property
    def files(self) -> ProfileFiles:
        """The files of the fragment's profile."""
        return self.fragment.files

    @property
    def group(self) -> str:
        """Key of the partition to which the fragment belonged."""
        return self.fragment.partition_key


def retired_prefix(number: int) -> str:
    """Return the start of the keys of the fragments that version `number` removed.

    See `RetiredFragment.key`.
    """
    return f"{number:0{_NUMBER_DIGITS}d}{_KEY_SEPARATOR}"


def least_retiring_version(bound: str) -> int:
    """Return the least number of a version that may have removed a retired fragment.

    `bound` is a lower bound of the keys of retired fragments (see `RetiredFragment.key`). The bound need not be a key:
    it may have only the first digits of a number.
    """
    return int(bound[:_NUMBER_DIGITS].ljust(_NUMBER_DIGITS, "0"))


def split_retired_key(key: str) -> tuple[int, str]:
    """Return (version that removed a fragment, id of the fragment), given the key of its entry.

    Raises ValueError if the text is not the key of a retired fragment.
    """
    number, separator, fragment_id = key.partition(_KEY_SEPARATOR)
    if not separator:
        raise ValueError(f"{key!r} is no key of a removed fragment")
    return int(number), fragment_id


@dataclass(frozen=True)
class PartitionEntry:
    """One partition of a version."""

    key: str
    content_id: str
    """Digest of what determines the profile: equal ids mean equal statistics."""
    row_count: int
    bytes: int
    fragments: int
    """Number of fragments of the partition in this version."""
    files: ProfileFiles
    version: int
    """The version that computed the profile."""
    spec_id: str = ""
    """Key into `Version.specs`: the spec under which the files were written. If later versions use the files, columns
    that were added since are null in all rows, and renamed columns have their old names."""
    members: str = ""
    """Digest of the ids of the partition's fragments. It changes when files are rewritten with the same rows."""

    @property
    def group(self) -> str:
        """Key of the partition."""
        return self.key


@dataclass(frozen=True)
class NodeEntry:
    """A node (branch) of a merge tree: a merged profile that the next version can reuse, and its inputs.

    The profiles of a group are merged along a tree. A group is the fragments of a partition, or all partitions. Only
    large groups store nodes. The position of a fragment or partition in the tree is a hash of its key, as digits.
    """

    key: str
    """Key of the group and name of the branch, as `node_key` joins them. The name consists of the first digits that the
    positions of all fragments or partitions below the branch have in common."""
    files: ProfileFiles
    """The merged profile. The root has none, because its profile is that of the group."""
    spec_id: str = ""
    """Key into `Version.specs`, as for a partition."""
    valid_spec_id: str = ""
    """Key into `Version.specs`: the latest spec under which a merge of the same inputs gives the same profile."""
    children: tuple[str, ...] = ()
    """Keys of the partitions whose profiles the node merges, by increasing position. Empty for a node of a partition:
    the ids of all its fragments are in their entries, and determine those of each node. Stored ids would take more than
    half of the space."""
    branches: tuple[str, ...] = ()
    """Names of the nodes of the same group that the node merges, by increasing position."""
    count: int = 0
    """Number of children below the node, at any depth."""
    child_files: tuple[str, ...] = ()
    """The files of each of the `children`, as `encode_merge_files` returns them. Only nodes of the table have them:
    looking up the entries of partitions with distant keys would read many row groups."""

    @property
    def group(self) -> str:
        """Key of the group whose profiles are merged: a partition key, or `*` for the table."""
        return split_node_key(self.key)[0]

    @property
    def name(self) -> str:
        """Name of the node: the first digits that the positions of all its inputs have in common.

        The name of the root is empty, even if the positions have digits in common.
        """
        return split_node_key(self.key)[1]


def node_key(group_key: str, name: str) -> str:
    """Return the key of a node in a merge tree: the group's key, a block number, and the node's name.

    Block 0 has the nodes with names of up to three digits, block 1 those with four to six, and block 2 all others. So
    the nodes on a path from the root to a leaf, and those beside them, are in three short ranges of keys. Two blocks
    would be worse: with 100,000 partitions, a lookup of 100 paths would read 1.5 times as much.

    Args:
        group_key: The key of the partition whose fragments are merged, or `*` for the tree that merges all partitions.
        name: The name of the node, see `NodeEntry.name`.
    """
    block = min(max(len(name) - 1, 0) // NODE_BLOCK_DIGITS, LAST_NODE_BLOCK)
    return f"{node_key_prefix(group_key)}{block}{name}"


def node_key_prefix(group_key: str) -> str:
    """Return the common prefix of the keys of all nodes of one merge tree (see `NodeEntry`).

    `group_key` is the key of the partition whose fragments are merged, or `*` for the tree that merges all partitions.
    """
    return f"{group_key}{_KEY_SEPARATOR}"


def split_node_key(key: str) -> tuple[str, str]:
    """Return (key of the group, name of the node), given the key of a node in a merge tree."""
    group_key, _, position = key.rpartition(_KEY_SEPARATOR)
    return group_key, position[1:]


def shared_file_key(path: str) -> str:
    """Return the key of a shared file's entry: the name of the file, a slash, and its folder.

    Names begin with the time. So the keys of new files are greater than those of all stored entries, and their lookup
    reads nothing.
    """
    folder, slash, name = path.rpartition("/")
    return f"{name}{slash}{folder}"


def split_shared_file_key(key: str) -> str:
    """Return the path of a shared file, given the key of its entry."""
    name, slash, folder = key.partition("/")
    return f"{folder}{slash}{name}"


@dataclass(frozen=True)
class SharedFileEntry:
    """The number of entries that reference one shared file.

    A file is shared if it contains several profiles, or if several entries reference it. Other files have one
    reference, and no `SharedFileEntry`.
    """

    path: str
    sections: int
    """Number of profiles with which the file was written; 0 for a file of one profile."""
    groups: tuple[str, ...]
    """The groups that reference the file, sorted: keys of partitions, and `*` for the table."""
    group_references: tuple[int, ...]
    """Number of references from each of `groups`."""

    @property
    def key(self) -> str:
        """The key of the entry, see `shared_file_key`."""
        return shared_file_key(self.path)

    @property
    def references(self) -> int:
        """Number of entries that reference the file."""
        return sum(self.group_references)


@dataclass(frozen=True)
class Decision:
    """A refresh's decision how to store the frequencies (numbers of occurrences) of a column's values.

    `enumerated` stores those of all values, `estimated` none, and `fingerprinted` those of hashes of the values. The
    policies `frequencies: auto` and `frequencies: repeated` leave this decision to a refresh.
    """

    frequencies: Literal["enumerated", "estimated", "fingerprinted"]
    reason: str
    """The explanation for users."""
    since: int
    """The number of the version that made the decision."""
    distinct: int
    """The approximate number of distinct values in the version that records the decision; 0 if it is unknown."""
    values: int
    """The number of values in the version that records the decision."""


@dataclass(frozen=True)
class ProfileSpecEntry:
    """A profile spec under which profiles were written: what they contain of each column."""

    spec_id: str
    field_ids: tuple[str, ...]
    """The identities of the profiled top-level columns: field ids, or names of columns without field id."""
    column_specs: tuple[str, ...]
    """The column spec of each column as text (see `pipeline.column_spec`), in the order of `field_ids`."""


@dataclass(frozen=True)
class MetadataCacheEntry:
    """One cached piece of the table's metadata."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class RefreshStats:
    """The fragments and bytes that a refresh read to publish a version, and its duration."""

    fragments: int
    """Number of fragments that were read."""
    bytes: int
    """Stored size in bytes of the fragments that were read."""
    seconds: float


@dataclass(frozen=True)
class Version:
    """One published state of the Metastore for one table, for one snapshot of it.

    Entries of a published version are read on first use. While a version is being built, it may have changes instead:
    the differences from the entries of the previous version (`store.entry_changes.EntryChanges`).
    """

    number: int
    """Number of the version: 1, 2, 3, …"""
    table: str
    """Name of the table in the configuration."""
    format: str
    """Format of the table: `delta`, `files`, `hudi`, `iceberg`, `lance`, or the name of a registered format."""
    snapshot: str
    """The snapshot's id, as the table's format names it."""
    committed_at: datetime | None
    """UTC time when the snapshot was committed; None if the format does not record it."""
    published_at: datetime
    """UTC time when the version was published."""
    schema: pa.Schema = field(repr=False)
    """The table's columns, with the metadata of their fields."""
    partition_columns: tuple[str, ...]
    row_count: int
    """Number of live rows in all fragments."""
    bytes: int
    """Stored size of all fragments in bytes."""
    content_id: str
    """Digest of what determines the statistics: equal ids mean equal statistics."""
    files: ProfileFiles
    """The files of the table's profile."""
    code_version: str
    """Release of this package that published the version."""
    spec_id: str
    """Key into `specs`: the spec under which the partitions and the table were merged."""
    specs: Mapping[str, Mapping[str, str]]
    """The profile specs: {spec id: {identity of a profiled top-level column: text of its column spec}}."""
    fragments: Sequence[FragmentEntry]
    """The fragments of the snapshot."""
    partitions: Sequence[PartitionEntry]
    nodes: Sequence[NodeEntry] = ()
    """Intermediate results of merging profiles, which the next version can reuse."""
    retired: Sequence[RetiredFragment] = ()
    """Fragments that recent versions removed."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """{field id: how the column's frequencies are stored} for the policies `auto` and `repeated`. Always enumerated
    columns have no decision."""
    value_counts: ValueCountFiles | None = None
    """The value counts of the table; None if no column has any."""
    index: SegmentFiles | None = None
    """The files of the fragment index; None if the version was published without one."""
    partition_index: PartitionIndex | None = None
    """The partition index; None if the version was published without one."""
    value_filters: ValueFilterFiles | None = None
    """The value filters; None if no column's policy requests one."""
    buckets: tuple[tuple[str, str, int], ...] = ()
    """Partition columns with hash buckets of another column: (name, field id of that column, number of buckets)."""
    shared_files: Sequence[SharedFileEntry] = field(default=(), compare=False, repr=False)
    """Reference counts of files that several entries reference. `publish` computes them."""
    metadata_cache: MetadataCacheEntries = field(default_factory=dict, compare=False, repr=False)
    """Metadata of the table that planning has read before, by key, as the table's format encodes it."""
    table_location: Mapping[str, Any] | None = field(default=None, compare=False)
    """Location and options of the table, with which a scan can read its rows: JSON fields of its configuration without
    secrets. None if not recorded."""
    refresh_stats: RefreshStats | None = field(default=None, compare=False)
    """The work of publishing the version; None if it was not measured."""
    dropped_columns: tuple[str, ...] = field(default=(), compare=False)
    """Columns that a policy names and that only earlier versions of the table had."""
    policies_id: str | None = field(default=None, compare=False)
    """`TableConfig.policies_id` of the configuration under which the version was made."""
    purged: int = field(default=0, compare=False)
    """Number of the version that the last purge published; 0 before the first purge. A publisher that started before
    the purge must start again, because the purge deleted its files."""
    garbage_manifest: str | None = field(default=None, compare=False, repr=False)
    """Path of the manifest of files that only the previous version references; None if `garbage` lists them, or if they
    are unknown. `publish` ignores this field."""
    garbage: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The files that only the previous version references, if they are few. `publish` ignores this field."""

    @property
    def fragment_count(self) -> int:
        """Number of fragments in the snapshot."""
        return len(self.fragments)

    def auxiliary_files(self) -> tuple[str, ...]:
        """Return the paths of the files of value counts and indexes, and of the garbage manifest.

        The garbage manifest lists the files of the previous version that this one does not reference.
        """
        paths = (*(self.value_counts.paths() if self.value_counts else ()), *self._index_paths())
        return paths if self.garbage_manifest is None else (*paths, self.garbage_manifest)

    def document_paths(self) -> tuple[str, ...]:
        """Return the paths of the files of the table's profile, value counts and indexes."""
        value_counts = () if self.value_counts is None else self.value_counts.paths()
        return (*self.files.paths(), *value_counts, *self._index_paths())

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files of profiles, value counts and indexes.

        All entries are read.
        """
        yield from self.document_paths()
        for entries in (self.fragments, self.retired, self.partitions, self.nodes):
            for entry in entries:
                yield from entry.files.paths()

    def _index_paths(self) -> tuple[str, ...]:
        indexes = [each.files for each in (self.partition_index, self.value_filters) if each is not None]
        return tuple(chain.from_iterable(files.paths() for files in (self.index, *indexes) if files is not None))
