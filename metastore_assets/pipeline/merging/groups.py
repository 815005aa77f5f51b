"""Groups of profiles that are merged: the fragments of a partition, or the partitions of the table.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. The
profiles to merge are the children of the group. A group knows which children changed since the published version. It
looks up unchanged children when they are needed. A profile spec says which statistics a profile has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.statistics.frequencies import FrequencySummary
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import changed_items
from metastore_assets.store.version import NodeEntry, ProfileFiles

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
    """Id of the fragment, or key of the partition."""
    files: ProfileFiles
    spec_id: str
    """Id of the profile's spec in `SpecCompatibility.specs`."""
    matches_spec: bool
    """Whether the group can use the profile without a merge if it has no other child. True for a fragment's profile
    with exactly the wanted outputs, and for a partition's profile with the current column names. A table with
    fingerprinted columns is merged in any case."""
    row_count: int = 0


class StoredChildren(Protocol):
    """The children that a group has in the published version."""

    def find_all(self, keys: Collection[str]) -> Mapping[str, Child]:
        """Return the children with these keys, by key.

        Keys without a child are omitted.
        """

    def read_all(self) -> Mapping[str, Child]:
        """Return all children, by key."""


@dataclass(frozen=True)
class LoadedChildren:
    """The children that a group has in the published version, in memory."""

    children: Mapping[str, Child] = field(default_factory=dict)
    """The children by key."""

    def find_all(self, keys: Collection[str]) -> Mapping[str, Child]:
        """Return the children with these keys, by key.

        Keys without a child are omitted.
        """
        return {key: self.children[key] for key in keys if key in self.children}

    def read_all(self) -> Mapping[str, Child]:
        """Return all children, by key."""
        return self.children


@dataclass(frozen=True)
class GroupChildren:
    """The children of a group in the next version, as changes since the published version."""

    changed_children: Mapping[str, Child]
    """The new children, and those that differ from the published child of the same key; by key."""
    removed_keys: frozenset[str]
    """Keys of the children that only the published version has."""
    count: int
    """Number of children of the group, changed or not."""
    stored_children: StoredChildren = LoadedChildren()

    @classmethod
    def between(cls, before: Iterable[Child], after: Iterable[Child]) -> GroupChildren:
        """Return how the children of a group change from the published version to the next.

        Args:
            before: The children in the published version.
            after: The children in the next version.
        """
        stored_children = {child.key: child for child in before}
        children = {child.key: child for child in after}
        removed_keys = frozenset(stored_children.keys() - children.keys())
        return cls(
            changed_items(stored_children, children), removed_keys, len(children), LoadedChildren(stored_children)
        )

    @property
    def is_replaced(self) -> bool:
        """Whether all children are new or changed."""
        return len(self.changed_children) == self.count

    def find_all(self, keys: Collection[str]) -> dict[str, Child]:
        """Return the children of the next version with these keys, by key."""
        unchanged_keys = [key for key in keys if key not in self.changed_children and key not in self.removed_keys]
        stored_children = dict(self.stored_children.find_all(unchanged_keys)) if unchanged_keys else {}
        return stored_children | {key: self.changed_children[key] for key in keys if key in self.changed_children}

    def read_all(self) -> dict[str, Child]:
        """Return all children of the next version, by ascending key.

        Raises ValueError if their number differs from `count`.
        """
        stored_children = {} if self.is_replaced else self.stored_children.read_all()
        children = {key: child for key, child in stored_children.items() if key not in self.removed_keys} | dict(
            self.changed_children
        )
        if len(children) != self.count:
            raise ValueError(f"a group of {self.count} children has {len(children)}")
        return {key: children[key] for key in sorted(children)}


@dataclass(frozen=True)
class PreviousResult:
    """The published profile of a group, from which the next one may be computed."""

    files: ProfileFiles
    missing_columns: frozenset[str]
    """Identities of wanted columns that neither this profile nor any child has."""
    outdated_children: tuple[Child, ...]
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
    """Whether the merged profile is merged again later, so that its states are stored."""
    has_value_counts: bool = True
    """Whether value counts are stored with the merged profile. False for the table and for its only partition, whose
    value counts are in the table's value count files."""

    def without_children(self) -> MergeGroup:
        """Return the group as it is sent to tasks: with the number of its children, not the children.

        The result has no `previous`, either.
        """
        return replace(self, children=GroupChildren({}, frozenset(), self.children.count), previous=None)


class NodeLookup(Protocol):
    """A lookup of nodes of the published version.

    A node is a stored intermediate profile of a merge tree.
    """

    def find_all(self, keys: Collection[str]) -> Mapping[str, NodeEntry]:
        """Return the nodes with these keys, by key."""

    def find_prefixes(self, prefixes: Collection[str]) -> Sequence[NodeEntry]:
        """Return the nodes whose keys begin with one of the prefixes."""


@dataclass(frozen=True)
class MergeContext:
    """The inputs that all merges of one version share."""

    engine: Engine
    store: ObjectStore
    """The table's folder."""
    compatibility: SpecCompatibility
    """Compares the specs of stored profiles with the spec of the version."""
    nodes: NodeLookup
    summarize_value_counts: SummarizeValueCounts
    """Summarizes the table's value counts, for groups without their own value counts."""

    @property
    def spec(self) -> ProfileSpec:
        """The profile spec of the version."""
        return self.compatibility.wanted_spec
