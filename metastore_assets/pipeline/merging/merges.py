"""Merging of the profiles of a group along a tree: planning the merges, and running them.

A node's id is a digest of its inputs, so nodes that a commit did not touch are reused from the published version.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging.tree import Branch, key_position, merge_tree
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.pipeline.profiles.files import write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.states_writer import StatesContent, StatesWriter, value_union
from metastore_assets.pipeline.profiles.stored_states import read_states_together
from metastore_assets.statistics.frequencies import FrequencySummary
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.states import build_states_table
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

FAN_IN = 6
"""Most profiles that one merge reads. A branch splits into four. With 4 to 7 children, a commit reads the same; 6 gives
a quarter fewer nodes than 4, and a third of the nodes of 2, which reads least."""
TABLE = "*"
"""Key of the group whose result is the table's profile. The keys of other groups are partition keys."""
_SMALL_NODE = 1 << 20
"""Most bytes in memory of the states of a node that shares a file with other nodes."""


SummarizeValueCounts: TypeAlias = Callable[[Sequence[ProfileFiles], Mapping[int, int]], Mapping[int, FrequencySummary]]
"""Returns summaries of the table's value counts, by position of the column. The arguments are the profiles of a group,
and by position of the columns to summarize the approximate number of distinct values."""


@dataclass(frozen=True)
class Child:
    """One profile that is merged into a group."""

    key: str
    """Fragment id or partition key."""
    files: ProfileFiles
    spec_id: str
    """The profile spec of the files: a key of `SpecCompatibility.specs`."""
    matches_spec: bool
    """Whether the profile equals what the version's spec wants. Such a child needs no merge if it is the only one."""
    row_count: int = 0


@dataclass(frozen=True)
class PreviousResult:
    """The published profile of a group, whose columns equal what the version's spec wants."""

    files: ProfileFiles
    missing_columns: frozenset[str]
    """Identities of wanted columns that neither the profile nor a child has, so that they have no values."""
    children: tuple[Child, ...]


@dataclass(frozen=True)
class MergeGroup:
    """Profiles that are merged into one."""

    key: str
    folder: str
    """Folder of the merged profile, below the table's folder."""
    children: tuple[Child, ...]
    previous: PreviousResult | None = None
    is_input: bool = True
    """Whether the merged profile is an input of other merges, so that its states are stored."""
    has_value_counts: bool = True
    """Whether value counts are stored with the profile. Else they are the table's, which are stored separately."""


@dataclass(frozen=True)
class TreeMerge:
    """One merge of a tree, whose inputs are profiles and results of other merges."""

    group_key: str
    inputs: tuple[ProfileFiles | TreeMerge, ...]
    group: MergeGroup | None = None
    """The group, for the root of the tree."""
    number: int = 0
    """Number of the task in its round."""

    @property
    def weight(self) -> int:
        """Number of profiles that the merge and the merges below it read."""
        return sum(part.weight if isinstance(part, TreeMerge) else 1 for part in self.inputs)


@dataclass(frozen=True)
class MergeContext:
    """The objects that every merge of one version needs."""

    engine: Engine
    store: ObjectStore
    """The table's folder."""
    compatibility: SpecCompatibility
    """Compares the specs of stored profiles with the spec of the version."""
    reusable_nodes: Mapping[str, NodeEntry]
    """Nodes of the published version, by id."""
    summarize_value_counts: SummarizeValueCounts
    """Summarizes the table's value counts for groups that have none themselves."""

    @property
    def spec(self) -> ProfileSpec:
        """The profile spec of the version."""
        return self.compatibility.wanted


class NodeWriter:
    """Writes the states of the nodes of one merge task. Small nodes share a file."""

    def __init__(self, store: ObjectStore, spec: ProfileSpec) -> None:
        self._store = store
        self._spec = spec
        self._entries: list[NodeEntry] = []
        self._small: list[tuple[str, str, int, pa.Table]] = []

    def add(self, id_: str, row_count: int, states: pa.Table) -> str:
        """Add the states of a node. Return the name of its profile."""
        if states.num_rows and states.nbytes <= _SMALL_NODE:
            self._small.append((id_, uuid.uuid4().hex[:16], row_count, states))
            return self._small[-1][1]
        files = write_states(self._store, "nodes", self._spec, row_count, states)
        self._entries.append(NodeEntry(id_, files, self._spec.id))
        return files.name

    def finish(self) -> list[NodeEntry]:
        """Write the nodes that wait for a shared file. Return all nodes."""
        if self._small:
            with StatesWriter(self._store, "nodes", StatesContent(value_union(self._spec))) as writer:
                for _, name, row_count, states in self._small:
                    writer.begin(row_count, name)
                    writer.add_table(states)
            for (id_, *_), files in zip(self._small, writer.files, strict=True):
                self._entries.append(NodeEntry(id_, files, self._spec.id))
            self._small = []
        return self._entries


def plan_merge(context: MergeContext, group: MergeGroup, reused: list[NodeEntry]) -> ProfileFiles | TreeMerge:
    """Return the tree of merges of a group, in which reusable nodes replace branches.

    Args:
        context: The version's merge context.
        group: The group.
        reused: The reusable nodes that were used are appended here.
    """

    def plan_branch(
        branch: Branch[Child], root: MergeGroup | None = None
    ) -> tuple[ProfileFiles | TreeMerge, frozenset[str]]:
        """Return the merge of a branch, and the ids of the profile specs of the children below it."""
        parts = [
            plan_branch(part) if isinstance(part, Branch) else (part.files, frozenset([part.spec_id]))
            for part in branch.parts
        ]
        inputs = tuple(part for part, _ in parts)
        spec_ids = frozenset(spec_id for _, ids in parts for spec_id in ids)
        profiles = [part for part in inputs if isinstance(part, ProfileFiles)]
        node = context.reusable_nodes.get(node_id(group.key, [part.name for part in profiles]))
        if (
            root is None
            and len(profiles) == len(inputs)
            and node is not None
            and _is_reusable(context.compatibility, node, spec_ids)
        ):
            reused.append(node)
            return node.files, spec_ids
        return TreeMerge(group.key, inputs, root), spec_ids

    children = [(key_position(child.key), child) for child in group.children]
    return plan_branch(merge_tree(children, FAN_IN), group)[0]


def split_into_tasks(merge: TreeMerge, max_inputs: int) -> list[TreeMerge]:
    """Return the largest merges of a tree that have at most `max_inputs` profiles below them.

    A merge of profiles only is returned even if it has more.
    """
    parts = [part for part in merge.inputs if isinstance(part, TreeMerge)]
    if merge.weight <= max_inputs or not parts:
        return [merge]
    return [task for part in parts for task in split_into_tasks(part, max_inputs)]


def insert_results(merge: ProfileFiles | TreeMerge, results: Mapping[int, ProfileFiles]) -> ProfileFiles | TreeMerge:
    """Return a tree of merges in which finished merges are replaced by their results.

    Args:
        merge: The root of the tree.
        results: The results, by `id()` of the merge.
    """
    if isinstance(merge, ProfileFiles):
        return merge
    if id(merge) in results:
        return results[id(merge)]
    return replace(merge, inputs=tuple(insert_results(part, results) for part in merge.inputs))


def _is_reusable(compatibility: SpecCompatibility, node: NodeEntry, spec_ids: frozenset[str]) -> bool:
    """Return whether a node equals a new merge of children with these specs.

    Columns that the node does not have must be missing from all children.
    """
    missing = compatibility.missing_columns(node.spec_id)
    return compatibility.equals(node.spec_id) and all(
        missing <= compatibility.missing_columns(spec_id) for spec_id in spec_ids
    )


def node_id(group_key: str, members: Sequence[str]) -> str:
    """Return the id of a node: a digest of its inputs.

    Args:
        group_key: The key of the node's group.
        members: The names of the profiles that the node merges.
    """
    return f"{group_key}:{hashlib.blake2b(chr(0).join(members).encode(), digest_size=16).hexdigest()}"


def merge_node_states(
    reader: StatesReader, spec: ProfileSpec, merge: TreeMerge, nodes: NodeWriter
) -> tuple[int, pa.Table, list[str]]:
    """Merge the states of a branch of the tree, and first those of the branches below.

    Args:
        reader: Reads the states files of the store.
        spec: The profile spec of the version.
        merge: The branch.
        nodes: The results of the branches below are added here.

    Returns:
        The row count, the states, and the names of the inputs.
    """
    profiles = [part for part in merge.inputs if isinstance(part, ProfileFiles)]
    row_count, stored_tables = read_states_together(reader, profiles, spec)
    stored = iter(stored_tables)
    tables, names = [], []
    for part in merge.inputs:
        if isinstance(part, TreeMerge):
            part_rows, table, part_inputs = merge_node_states(reader, spec, part, nodes)
            names.append(nodes.add(node_id(part.group_key, part_inputs), part_rows, table))
            row_count += part_rows
        else:
            table = next(stored)
            names.append(part.name)
        tables.append(table)
    if not tables:
        rows = [profile_all_null(leaf, 0, policy) for leaf, policy in spec.leaves]
        return 0, build_states_table(rows, [None] * len(rows), value_union(spec)), names
    return row_count, merge_states(tables, [leaf.path for leaf, _ in spec.leaves]), names


def node_group(node_id: str) -> str:
    """Return the key of the group that the node with this id belongs to."""
    return node_id.rpartition(":")[0]
