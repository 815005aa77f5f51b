"""Groups of profiles that are merged: the fragments of a partition, or the partitions of the table.

The profiles to merge are the children of the group. A group is given as its changes since the published version.
Unchanged children are looked up when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.statistics.frequencies import FrequencySummary
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

TABLE = "*"
"""Key of the group that is merged into the table's profile. The keys of other groups are partition keys."""

SummarizeValueCounts: TypeAlias = Callable[
    [Callable[[], Sequence[tuple[str, ProfileFiles]]], Mapping[int, int]], Mapping[int, FrequencySummary]
]
"""Returns {position of the column: summary of its value counts in the table}.

The first argument returns (key, profile) of each child of the group. The second argument has the columns to summarize:
{position of the column: approximate number of distinct values}.
"""


@dataclass(frozen=True)
class Child:
    """One of the profiles that are merged into the profile of a group."""

    key: str
    """Id of the fragment, or key of the partition, whose profile it is."""
    files: ProfileFiles
    spec_id: str
    """Id of the spec that the profile was made under: a key of `SpecCompatibility.specs`."""
    matches_spec: bool
    """Whether the profile has exactly the wanted outputs. If it is the only child of a group, no merge is needed."""
    row_count: int = 0


class StoredChildren(Protocol):
    """The children that a group has in the published version."""

    def find_all(self, keys: Collection[str]) -> Mapping[str, Child]:
        """Return the children that have one of the keys, by key."""

    def read_all(self) -> Mapping[str, Child]:
        """Return all children, by key."""


@dataclass(frozen=True)
class LoadedChildren:
    """The children that a group has in the published version, in memory."""

    children: Mapping[str, Child] = field(default_factory=dict)
    """The children by key."""

    def find_all(self, keys: Collection[str]) -> Mapping[str, Child]:
        """Return the children that have one of the keys, by key."""
        return {key: self.children[key] for key in keys if key in self.children}

    def read_all(self) -> Mapping[str, Child]:
        """Return all children, by key."""
        return self.children


@dataclass(frozen=True)
class GroupChildren:
    """The children of a group in the next version: the changes since the published version."""

    changed: Mapping[str, Child]
    """The children that are new, or that differ from the published child with the same key, by key."""
    removed: frozenset[str]
    """Keys of the children that only the published version has."""
    count: int
    """Number of children of the group, changed or not."""
    stored: StoredChildren = LoadedChildren()

    @classmethod
    def between(cls, before: Iterable[Child], after: Iterable[Child]) -> GroupChildren:
        """Return the children of a group as the differences between the published and the next version."""
        stored = {child.key: child for child in before}
        children = {child.key: child for child in after}
        changed = {key: child for key, child in children.items() if stored.get(key) != child}
        return cls(changed, frozenset(stored.keys() - children.keys()), len(children), LoadedChildren(stored))

    @property
    def is_replaced(self) -> bool:
        """Whether all children are new or changed. Nothing of the published profile can then be reused."""
        return len(self.changed) == self.count

    def find_all(self, keys: Collection[str]) -> dict[str, Child]:
        """Return the children of the next version that have one of the keys, by key."""
        unchanged = [key for key in keys if key not in self.changed and key not in self.removed]
        stored = dict(self.stored.find_all(unchanged)) if unchanged else {}
        return stored | {key: self.changed[key] for key in keys if key in self.changed}

    def read_all(self) -> dict[str, Child]:
        """Return all children of the next version by key, sorted by key."""
        stored = {} if self.is_replaced else self.stored.read_all()
        children = {key: child for key, child in stored.items() if key not in self.removed} | dict(self.changed)
        if len(children) != self.count:
            raise ValueError(f"a group of {self.count} children has {len(children)}")
        return {key: children[key] for key in sorted(children)}


@dataclass(frozen=True)
class PreviousResult:
    """The published profile of a group.

    The next profile may be computed from this profile and the changed children.
    """

    files: ProfileFiles
    missing_columns: frozenset[str]
    """Identities of wanted columns that neither this profile nor a child has. They have no values."""
    outdated: tuple[Child, ...]
    """The children of this profile that were removed or replaced."""


@dataclass(frozen=True)
class MergeGroup:
    """The profiles that are merged into the profile of one partition, or of the table."""

    key: str
    folder: str
    """Folder of the merged profile, below the table's folder."""
    children: GroupChildren
    previous: PreviousResult | None = None
    """The published profile of the group, if the next one may be computed from it; otherwise None."""
    is_input: bool = True
    """Whether the merged profile will be merged again, so that its states are stored."""
    has_value_counts: bool = True
    """Whether value counts are stored with the merged profile. False for the table, and for its only partition: all of
    their value counts are in the table's value count files."""

    def without_children(self) -> MergeGroup:
        """Return the group without its changed and stored children. The result is smaller, and is sent to a task."""
        return replace(self, children=GroupChildren({}, frozenset(), self.children.count), previous=None)


class NodeLookup(Protocol):
    """A lookup of nodes of the published version.

    A node is the stored intermediate profile of a branch of a merge tree.
    """

    def find_all(self, keys: Collection[str]) -> Mapping[str, NodeEntry]:
        """Return the nodes that have one of the keys, by key."""

    def find_prefixes(self, prefixes: Collection[str]) -> Sequence[NodeEntry]:
        """Return the nodes whose keys begin with one of the prefixes."""


@dataclass(frozen=True)
class MergeContext:
    """The objects that every merge of one version needs."""

    engine: Engine
    store: ObjectStore
    """The table's folder."""
    compatibility: SpecCompatibility
    """Compares the specs of stored profiles with the spec of the version."""
    nodes: NodeLookup
    summarize_value_counts: SummarizeValueCounts
    """Summarizes the table's value counts, for groups that do not store value counts themselves."""

    @property
    def spec(self) -> ProfileSpec:
        """The profile spec of the version."""
        return self.compatibility.wanted
