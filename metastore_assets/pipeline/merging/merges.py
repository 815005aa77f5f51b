"""Plan and run the merges of one group of profiles along a tree.

The profiles of a partition's fragments, or of all partitions, are a group: they are merged into one profile. A node is
a stored intermediate result. The id of a node is a digest of its inputs, so nodes that a commit does not touch are
reused from the published version.
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
"""Maximum number of inputs of one merge. A branch with more inputs splits into four. As measured, a commit reads
equally much with 4 to 7, and 6 needs a quarter fewer nodes than 4. A commit reads least with 2, but 2 needs three
times as many nodes as 6."""
TABLE = "*"
"""Key of the group that is merged into the table's profile. The keys of other groups are partition keys."""
_SMALL_NODE = 1 << 20
"""Maximum size in memory, in bytes, of the states of a node that shares a file with other nodes."""


SummarizeValueCounts: TypeAlias = Callable[
    [Callable[[], Sequence[tuple[str, ProfileFiles]]], Mapping[int, int]], Mapping[int, FrequencySummary]
]
"""Returns the summaries of the table's value counts, by position of the column.

The first argument returns the profiles of the group, with their keys. The second has the columns to summarize, by
position, with their approximate numbers of distinct values.
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


@dataclass(frozen=True)
class PreviousResult:
    """The published profile of a group.

    The next profile may be computed from it and from the changed children.
    """

    files: ProfileFiles
    missing_columns: frozenset[str]
    """Identities of wanted columns that neither this profile nor a child has. They have no values."""
    children: tuple[Child, ...]


@dataclass(frozen=True)
class MergeGroup:
    """Profiles that are merged into one profile, either of a partition or of the table."""

    key: str
    folder: str
    """Folder of the merged profile, below the table's folder."""
    children: tuple[Child, ...]
    previous: PreviousResult | None = None
    is_input: bool = True
    """Whether the merged profile will be merged again, so that its states are stored."""
    has_value_counts: bool = True
    """Whether value counts are stored with the merged profile. If not, they are those of the table."""


@dataclass(frozen=True)
class TreeMerge:
    """One merge of a tree. Its inputs are stored profiles, and the results of merges below it."""

    group_key: str
    inputs: tuple[ProfileFiles | TreeMerge, ...]
    group: MergeGroup | None = None
    """The group, if this merge is the root of its tree; else None."""
    number: int = 0
    """Number of the task that runs the merge. Tasks are numbered from 0 in each round."""

    @property
    def weight(self) -> int:
        """Number of stored profiles that this merge and the merges below it read."""
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
    """The nodes of the published version, by id."""
    summarize_value_counts: SummarizeValueCounts
    """Summarizes the table's value counts, for groups that do not store value counts themselves."""

    @property
    def spec(self) -> ProfileSpec:
        """The profile spec of the version."""
        return self.compatibility.wanted


class NodeWriter:
    """Writes the nodes that one task computes. Small nodes share a file."""

    def __init__(self, store: ObjectStore, spec: ProfileSpec) -> None:
        self._store = store
        self._spec = spec
        self._entries: list[NodeEntry] = []
        self._small: list[tuple[str, str, int, pa.Table]] = []

    def add(self, id_: str, row_count: int, states: pa.Table) -> str:
        """Add a node; return the name of its profile. A small node is written by `finish`, others at once.

        Args:
            id_: Id of the node, see `node_id`.
            row_count: Number of rows that the node describes.
            states: The merged states.
        """
        if states.num_rows and states.nbytes <= _SMALL_NODE:
            self._small.append((id_, uuid.uuid4().hex[:16], row_count, states))
            return self._small[-1][1]
        files = write_states(self._store, "nodes", self._spec, row_count, states)
        self._entries.append(NodeEntry(id_, files, self._spec.id))
        return files.name

    def finish(self) -> list[NodeEntry]:
        """Write the small nodes to a shared file; return the entries of all added nodes."""
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
    """Return the tree of merges of a group.

    Branches below the root that are stored as reusable nodes are replaced by these nodes.

    Args:
        context: The objects that merges need.
        group: The group.
        reused: A list. The reused nodes are appended to it.
    """

    def plan_branch(
        branch: Branch[Child], root: MergeGroup | None = None
    ) -> tuple[ProfileFiles | TreeMerge, frozenset[str]]:
        """Return the merge of a branch, or its reusable node, and the spec ids of all children below it."""
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
    """Return the largest merges of a tree that read at most `max_inputs` stored profiles each.

    A merge without merges below it is returned even if it reads more. The merges above the returned ones are left out.

    Args:
        merge: The root of the tree.
        max_inputs: Maximum number of stored profiles.
    """
    parts = [part for part in merge.inputs if isinstance(part, TreeMerge)]
    if merge.weight <= max_inputs or not parts:
        return [merge]
    return [task for part in parts for task in split_into_tasks(part, max_inputs)]


def insert_results(merge: ProfileFiles | TreeMerge, results: Mapping[int, ProfileFiles]) -> ProfileFiles | TreeMerge:
    """Replace the finished merges in a tree by their results; return the new tree.

    If the root is finished, the root's result is returned instead.

    Args:
        merge: The root of the tree.
        results: The results of finished merges, by `id()` of the merge.
    """
    if isinstance(merge, ProfileFiles):
        return merge
    if id(merge) in results:
        return results[id(merge)]
    return replace(merge, inputs=tuple(insert_results(part, results) for part in merge.inputs))


def _is_reusable(compatibility: SpecCompatibility, node: NodeEntry, spec_ids: frozenset[str]) -> bool:
    """Return whether a stored node is what a new merge of the same inputs would give.

    The node must have exactly the wanted outputs. A wanted column that the node lacks must be missing from all
    children.

    Args:
        compatibility: Compares the specs of stored profiles with the wanted spec.
        node: The node.
        spec_ids: The spec ids of the children below the node.
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
    """Run a merge after all merges below it; return the merged states.

    The results of the merges below are added as nodes. The result of the merge itself is not.

    Args:
        reader: Reads the states files of the store.
        spec: The profile spec of the version.
        merge: The merge.
        nodes: Writes the nodes.

    Returns:
        The row count, the merged states, and the names of the inputs.
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
    """Return the key of the group that a node belongs to, from the id of the node."""
    return node_id.rpartition(":")[0]
