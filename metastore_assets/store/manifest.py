"""What one version of a table's Metastore consists of, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar, overload

import pyarrow as pa

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class ProfileFiles:
    """The files of one profile: paths below the table's folder in the root.

    What people read lies apart from the states, which only merges read. A profile that nobody reads is its states
    alone, with the lists of values in the same file: it is *packed*.
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

    @property
    def is_packed(self) -> bool:
        """Whether there is only the file that merges read."""
        return not self.statistics

    def paths(self) -> Iterator[str]:
        """Every file of the profile."""
        return (path for path in (self.statistics, self.histograms, *self.frequencies, self.states) if path)


@dataclass(frozen=True)
class FragmentEntry:
    """One profiled fragment."""

    id: str
    partition_key: str
    path: str
    """The data file, for messages and for people."""
    bytes: int
    row_count: int
    layout: str
    """Key into `Version.layouts`: under which columns and policies the fragment was profiled."""
    unprofiled: tuple[str, ...]
    """Identities of columns that the data file holds and the profile does not."""
    files: ProfileFiles
    retired: int | None = None
    """The version that dropped the fragment from the table, or None while it is live."""


@dataclass(frozen=True)
class PartitionEntry:
    """One partition of the table in a version."""

    key: str
    content_id: str
    """Digest of what determines the profile: equal ids, equal numbers."""
    row_count: int
    bytes: int
    fragments: int
    """Number of live fragments."""
    files: ProfileFiles
    version: int
    """The version in which the profile was computed."""


@dataclass(frozen=True)
class NodeEntry:
    """One intermediate result of merging, kept so that the next version need not merge all again."""

    id: str
    files: ProfileFiles


@dataclass(frozen=True)
class Version:
    """One published state of the Metastore for one table, tied to one snapshot of it.

    Of a version read from a store, `layouts`, `fragments`, `partitions` and `nodes` are read on first use.
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
    layout: str
    """The layout, a key of `layouts`, that the version's profiles were reduced under."""
    layouts: Mapping[str, Mapping[str, str]]
    """By layout id: the signature of each profiled top-level column, by its field id."""
    fragments: Sequence[FragmentEntry]
    partitions: Sequence[PartitionEntry]
    nodes: Sequence[NodeEntry] = ()
    entry_files: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The files that a version read from a store reads its entries from; `publish` takes no notice of it."""
    recorded_fragment_count: int | None = field(default=None, compare=False, repr=False)
    """`fragment_count` as the version's document says it; `publish` takes no notice of it."""

    @property
    def fragment_count(self) -> int:
        """Number of fragments in the snapshot; `fragments` also lists those that left it and are still known."""
        if self.recorded_fragment_count is not None:
            return self.recorded_fragment_count
        return sum(entry.fragments for entry in self.partitions)

    def paths(self) -> Iterator[str]:
        """Every profile file the version consists of."""
        yield from self.files.paths()
        for fragment in self.fragments:
            yield from fragment.files.paths()
        for partition in self.partitions:
            yield from partition.files.paths()
        for node in self.nodes:
            yield from node.files.paths()


class LazyEntries(Sequence[Entry], Generic[Entry]):
    """A known number of entries, read on first use, and picklable unread when `load` is."""

    def __init__(self, count: int, load: Callable[[], Sequence[Entry]]) -> None:
        self._count = count
        self._load = load
        self._entries: tuple[Entry, ...] | None = None

    def _all(self) -> tuple[Entry, ...]:
        if self._entries is None:
            self._entries = tuple(self._load())
        return self._entries

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"<{self._count} entries>"

    def __reduce__(self) -> tuple[object, ...]:
        return LazyEntries, (self._count, self._load)


class LazyLayouts(Mapping[str, Mapping[str, str]]):
    """Layouts, read on first use."""

    def __init__(self, load: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        self._load = load
        self._layouts: Mapping[str, Mapping[str, str]] | None = None

    def _all(self) -> Mapping[str, Mapping[str, str]]:
        if self._layouts is None:
            self._layouts = self._load()
        return self._layouts

    def __getitem__(self, key: str) -> Mapping[str, str]:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __reduce__(self) -> tuple[object, ...]:
        return LazyLayouts, (self._load,)
