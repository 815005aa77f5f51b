"""Merging profiles along a tree: what has to be merged for a group, and doing it.

A node of the tree is named by what it merges, so the nodes that a commit did not touch are taken over from the
published version.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from metastore_assets.pipeline.merging.tree import Branch, key_position, merge_tree
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.pipeline.profiles.files import write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.states_writer import StatesWriter, value_union
from metastore_assets.pipeline.profiles.stored_states import read_together
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.states import build_states_table
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

FAN_IN = 6
"""Most profiles that one merge reads. A branch splits into four; those of 4 to 7 children read the same after a commit,
and 6 makes a quarter fewer nodes than 4, and a third of those of 2, which reads least."""
TABLE = "*"
"""The key of the group that is the table's profile; the others are those of partitions."""
_SMALL_NODE = 1 << 20
"""Bytes in memory up to which the states of a node share a file with others."""


@dataclass(frozen=True)
class Child:
    """One profile to be merged."""

    key: str
    """What the profile describes: a fragment id or a partition key."""
    files: ProfileFiles
    spec_id: str
    """Under which the files were made: a key of `SpecCompatibility.specs`."""
    as_wanted: bool
    """Whether it is what is wanted, no more and no less: a single such child is the result, if it is not packed."""
    row_count: int = 0


@dataclass(frozen=True)
class PreviousResult:
    """The published profile of the same group, whose columns are what is wanted."""

    files: ProfileFiles
    without: frozenset[str]
    """Identities of wanted columns that neither it nor any of its children has: their lists are empty."""
    children: tuple[Child, ...]


@dataclass(frozen=True)
class Group:
    """Profiles that become one profile."""

    key: str
    folder: str
    """Folder of the result's files, below the table's."""
    children: tuple[Child, ...]
    former: PreviousResult | None = None
    is_merged_on: bool = True
    """Whether its profile will be merged further, and so needs its states."""
    has_lists: bool = True
    """Whether the profile has lists of its own; else they are the table's, which are kept apart."""


@dataclass(frozen=True)
class Merge:
    """One merge of the tree, of profiles and of what other merges result in: of a node, or of the group itself."""

    group_key: str
    inputs: tuple[ProfileFiles | Merge, ...]
    group: Group | None = None
    """Of the merge that is the last of its group."""
    number: int = 0
    """Tells the tasks of a round apart."""

    @property
    def weight(self) -> int:
        """Number of profiles that are read for it, those of the merges below included."""
        return sum(part.weight if isinstance(part, Merge) else 1 for part in self.inputs)


class NodeFiles:
    """Writes the nodes that one task makes. Small ones share a file."""

    def __init__(self, store: ObjectStore, spec: ProfileSpec) -> None:
        self._store = store
        self._spec = spec
        self._entries: list[NodeEntry] = []
        self._small: list[tuple[str, str, int, pa.Table]] = []

    def add(self, id_: str, row_count: int, states: pa.Table) -> str:
        """Take the states of a node; its profile's name."""
        if states.num_rows and states.nbytes <= _SMALL_NODE:
            self._small.append((id_, uuid.uuid4().hex[:16], row_count, states))
            return self._small[-1][1]
        files = write_states(self._store, "nodes", self._spec, row_count, states)
        self._entries.append(NodeEntry(id_, files, self._spec.id))
        return files.name

    def finish(self) -> list[NodeEntry]:
        """Write what is not written yet; all nodes."""
        if self._small:
            with StatesWriter(self._store, "nodes", value_union(self._spec), lists=False) as writer:
                for _, name, row_count, states in self._small:
                    writer.begin(row_count, name)
                    writer.add_table(states)
            for (id_, *_), files in zip(self._small, writer.files, strict=True):
                self._entries.append(NodeEntry(id_, files, self._spec.id))
            self._small = []
        return self._entries


def planned_merge(
    held: SpecCompatibility, group: Group, known: Mapping[str, NodeEntry], used: list[NodeEntry]
) -> ProfileFiles | Merge:
    """What is to be merged for a group. Known nodes that stand for branches go to `used`."""

    def planned(branch: Branch[Child], whole: Group | None = None) -> tuple[ProfileFiles | Merge, frozenset[str]]:
        """What is to be done for a branch, and the profile specs of the children below it."""
        parts = [
            planned(part) if isinstance(part, Branch) else (part.files, frozenset([part.spec_id]))
            for part in branch.parts
        ]
        inputs = tuple(part for part, _ in parts)
        below = frozenset(spec for _, own in parts for spec in own)
        profiles = [part for part in inputs if isinstance(part, ProfileFiles)]
        node = known.get(node_id(group.key, [part.name for part in profiles]))
        if whole is None and len(profiles) == len(inputs) and node is not None and _still(held, node, below):
            used.append(node)
            return node.files, below
        return Merge(group.key, inputs, whole), below

    children = [(key_position(child.key), child) for child in group.children]
    return planned(merge_tree(children, FAN_IN), group)[0]


def units(merge: Merge, limit: int) -> list[Merge]:
    """The merges that one task each is for: as high up as inputs of that number allow."""
    parts = [part for part in merge.inputs if isinstance(part, Merge)]
    if merge.weight <= limit or not parts:
        return [merge]
    return [unit for part in parts for unit in units(part, limit)]


def with_results(merge: ProfileFiles | Merge, outcome: Mapping[int, ProfileFiles]) -> ProfileFiles | Merge:
    if isinstance(merge, ProfileFiles):
        return merge
    if id(merge) in outcome:
        return outcome[id(merge)]
    return replace(merge, inputs=tuple(with_results(part, outcome) for part in merge.inputs))


def _still(held: SpecCompatibility, node: NodeEntry, below: frozenset[str]) -> bool:
    """Whether a node that was made under its spec, of profiles that were made under those below, is what is wanted:
    columns that it does not have must be missing from all of them."""
    missing = held.missing_columns(node.spec_id)
    return held.equals(node.spec_id) and all(missing <= held.missing_columns(spec) for spec in below)


def node_id(group_key: str, members: Sequence[str]) -> str:
    """What a node of a group is called that merges the profiles of those names."""
    return f"{group_key}:{hashlib.blake2b(chr(0).join(members).encode(), digest_size=16).hexdigest()}"


def merged_states(
    opened: StatesReader, spec: ProfileSpec, merge: Merge, nodes: NodeFiles
) -> tuple[int, pa.Table, list[str]]:
    """Row count and states of a merge, and the names of its inputs, of which those that are merges go to `nodes`."""
    profiles = [part for part in merge.inputs if isinstance(part, ProfileFiles)]
    row_count, read = read_together(opened, profiles, spec)
    stored = iter(read)
    tables, names = [], []
    for part in merge.inputs:
        if isinstance(part, Merge):
            rows, table, below = merged_states(opened, spec, part, nodes)
            names.append(nodes.add(node_id(part.group_key, below), rows, table))
            row_count += rows
        else:
            table = next(stored)
            names.append(part.name)
        tables.append(table)
    if not tables:
        rows_ = [profile_all_null(leaf, 0, policy) for leaf, policy in spec.leaves]
        return 0, build_states_table(rows_, [None] * len(rows_), value_union(spec)), names
    return row_count, merge_states(tables, [leaf.path for leaf, _ in spec.leaves]), names


def node_group(node_id: str) -> str:
    """The key of the group that a node is part of."""
    return node_id.rpartition(":")[0]
