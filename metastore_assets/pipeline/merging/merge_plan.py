"""Planning of merges: which stored results are reused, and which are merged again.

A fragment is a data file with its deletes. A group is a set of profiles (statistics) that are merged into one: those of
a partition's fragments, or of all partitions. A profile spec says which statistics a profile has. A group is merged as
a tree. The leaves are the profiles, which are called the children of the group. Each branch merges what is below it.
The stored result of a branch is a node.

Usually, only the branches above a changed profile are merged again, from the profiles and nodes directly below them. In
some cases, the shape of the tree is computed again from all profiles: if the tree is not stored, if much of the group
changed, if a node is missing or contradicts the changes, or if a node was merged under another profile spec. Stored
nodes that are still valid are then reused, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from metastore_assets.pipeline.merging.groups import TABLE, MergeContext, MergeGroup, NodeLookup
from metastore_assets.pipeline.merging.tree import ROOT, Branch, StoredTreeError, TreeChildren, TreeShape
from metastore_assets.pipeline.profile_spec import SpecCompatibility
from metastore_assets.store.version import NodeEntry, ProfileFiles, node_key, node_key_prefix

FAN_IN = 6
"""Maximum number of inputs of one merge. A branch with more inputs splits into four. As measured, a commit reads the
same amount with 4 to 7, and 6 needs a quarter fewer nodes than 4. With 2, a commit reads least, but needs three times
as many nodes as with 6. If it changes, stored trees have another shape: increase the version of merging, too."""
_REBUILD_SHARE = 4
"""If more than one in this many children of a tree changed, the tree is rebuilt from all children."""
_NO_FILES = ProfileFiles("", "", ())


@dataclass(frozen=True)
class TreeMerge:
    """One merge of a tree.

    Its inputs are stored profiles, and the results of merges below it.
    """

    group_key: str
    branch: Branch
    """The branch of the tree whose parts are merged."""
    inputs: tuple[ProfileFiles | TreeMerge, ...]
    group: MergeGroup | None = None
    """The group if this merge is the root of its tree, else None. Without value counts to store, it has no children
    but only their number."""
    child_files: tuple[str, ...] = ()
    """One text per child directly below the branch: the paths of its files, for `NodeEntry.child_files`. Empty for a
    partition's tree."""
    number: int = 0
    """Number of the task that runs the merge. A tree is merged in rounds of parallel tasks; each counts from 0."""

    @property
    def weight(self) -> int:
        """Number of stored profiles that this merge and the merges below it read."""
        return sum(part.weight if isinstance(part, TreeMerge) else 1 for part in self.inputs)

    @property
    def node_key(self) -> str:
        """The key of the node that stores the result."""
        return node_key(self.group_key, self.branch.name)

    def node(self, files: ProfileFiles, spec_id: str) -> NodeEntry:
        """Return the node that stores the result.

        Args:
            files: The merged profile.
            spec_id: The id of the profile spec that the profile was merged under.
        """
        branch = self.branch
        children = branch.children if self.group_key == TABLE else ()
        return NodeEntry(
            self.node_key, files, spec_id, spec_id, children, branch.branches, branch.count, self.child_files
        )


@dataclass(frozen=True)
class MergePlan:
    """The merges of one group, and the nodes to store and to drop."""

    root: TreeMerge
    """The merge of the whole group."""
    put_entries: tuple[NodeEntry, ...]
    """Entries to store for the root and for reused nodes that were merged under an older profile spec."""
    dropped_keys: frozenset[str]
    """Keys of the stored nodes that the tree no longer has."""


def tree_shape() -> TreeShape:
    """Return the rule by which every merge tree divides its children into branches."""
    return TreeShape(FAN_IN)


def plan_merges(context: MergeContext, groups: Sequence[MergeGroup]) -> list[MergePlan]:
    """Plan the merges of each group.

    Args:
        context: The objects that merges need.
        groups: The groups.

    Returns:
        The plans, in the order of the groups.
    """
    shape = tree_shape()
    nodes = _StoredNodes(context.nodes)
    paths = {(group.key, name) for group in groups for name in _path_names(shape, group)}
    # Branches beside those of a path are merged with them. One lookup of both seldom leaves any to `load_parts`.
    nodes.load(node_key(key, sibling) for key, name in paths for sibling in shape.siblings(name))
    has_nodes = {group.key: nodes.find(group.key, ROOT) is not None for group in groups}
    nodes.load_groups([group.key for group in groups if has_nodes[group.key] and _is_rebuilt(group)])
    nodes.load_parts(node_key(*path) for path in paths)
    plans = []
    for group in groups:
        if has_nodes[group.key] and not _is_rebuilt(group):
            try:
                plans.append(_update(context, group, nodes))
                continue
            except StoredTreeError:
                nodes.load_groups([group.key])
        plans.append(_rebuild(context, group, nodes))
    return plans


def find_group_nodes(nodes: NodeLookup, group_keys: Collection[str]) -> frozenset[str]:
    """Return the keys of all stored nodes of these groups."""
    roots = nodes.find_all([node_key(key, ROOT) for key in group_keys])
    prefixes = [node_key_prefix(root.group) for root in roots.values()]
    return frozenset(node.key for node in nodes.find_prefixes(prefixes)) if prefixes else frozenset()


def split_into_tasks(merge: TreeMerge, max_inputs: int) -> list[TreeMerge]:
    """Return the largest merges of a tree that read at most `max_inputs` stored profiles each.

    A merge that reads more is returned, too, if it has no merges below it: it cannot be split.

    Args:
        merge: The root of the tree.
        max_inputs: Maximum number of stored profiles.
    """
    parts = [part for part in merge.inputs if isinstance(part, TreeMerge)]
    if merge.weight <= max_inputs or not parts:
        return [merge]
    return [task for part in parts for task in split_into_tasks(part, max_inputs)]


def insert_results(merge: ProfileFiles | TreeMerge, results: Mapping[int, ProfileFiles]) -> ProfileFiles | TreeMerge:
    """Return a tree in which results replace finished merges.

    If the root is finished, its result is returned.

    Args:
        merge: The root of the tree.
        results: The results of finished merges, by `id()` of the merge.
    """
    if isinstance(merge, ProfileFiles):
        return merge
    if id(merge) in results:
        return results[id(merge)]
    return replace(merge, inputs=tuple(insert_results(part, results) for part in merge.inputs))


class _StoredNodes:
    """A cache of the nodes of the published version."""

    def __init__(self, lookup: NodeLookup) -> None:
        self._lookup = lookup
        self._loaded_nodes: dict[str, NodeEntry | None] = {}
        self._groups: dict[str, dict[str, NodeEntry]] = {}

    def load(self, keys: Iterable[str]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._loaded_nodes]
        if missing:
            nodes = self._lookup.find_all(missing)
            self._loaded_nodes |= {key: nodes.get(key) for key in missing}

    def load_parts(self, keys: Iterable[str]) -> None:
        """Load the nodes directly below the nodes with the given keys.

        The nodes with these keys must have been loaded before.
        """
        self.load([
            node_key(node.group, name)
            for key in keys if (node := self._loaded_nodes[key]) is not None for name in node.branches
        ])  # fmt: skip

    def load_groups(self, group_keys: Collection[str]) -> None:
        """Load all nodes of the merge trees of these groups.

        A group is a partition or the table (see the module). Afterwards, `group` returns its nodes.
        """
        self._groups |= {key: {} for key in group_keys}
        prefixes = [node_key_prefix(key) for key in group_keys]
        for node in self._lookup.find_prefixes(prefixes) if prefixes else ():
            self._groups[node.group][node.name] = self._loaded_nodes[node.key] = node

    def group(self, group_key: str) -> Mapping[str, NodeEntry]:
        """Return {name: node} of a group; empty if `load_groups` has not loaded the group."""
        return self._groups.get(group_key, {})

    def child_files(self, group_key: str) -> dict[str, ProfileFiles]:
        """Return {key of a child: files of its profile} from the cached nodes of a group.

        Children whose profile the nodes do not name are omitted.

        Raises:
            StoredTreeError: The nodes are corrupt.
        """
        nodes = [node for node in self._loaded_nodes.values() if node is not None and node.group == group_key]
        try:
            return {
                child: ProfileFiles.of_merge_files(files)
                for node in nodes
                for child, files in (zip(node.children, node.child_files, strict=True) if node.child_files else ())
                if files
            }
        except ValueError as error:
            raise StoredTreeError("a node names the files of its children wrongly") from error

    def find(self, group_key: str, name: str) -> NodeEntry | None:
        return self.find_all(group_key, [name]).get(name)

    def find_all(self, group_key: str, names: Collection[str]) -> dict[str, NodeEntry]:
        """Return {name of a branch: its node}.

        Branches without a node are omitted.
        """
        keys = {name: node_key(group_key, name) for name in names}
        self.load(keys.values())
        return {name: node for name, key in keys.items() if (node := self._loaded_nodes[key]) is not None}


def _path_names(shape: TreeShape, group: MergeGroup) -> set[str]:
    """Return the names of the root and of the branches likely to be above changed or removed children.

    A child is a fragment or a partition. The names are computed from hashes of the children's keys, so some names may
    have no stored branch. If the tree is rebuilt, only the name of the root is returned.
    """
    if _is_rebuilt(group):
        return {ROOT}
    children = group.children
    return {
        ROOT,
        *(
            name
            for key in (*children.changed_children, *children.removed_keys)
            for name in shape.path(key, children.count)
        ),
    }


def _is_rebuilt(group: MergeGroup) -> bool:
    """Return whether so many children changed that the tree is rebuilt from all children."""
    children = group.children
    return _REBUILD_SHARE * (len(children.changed_children) + len(children.removed_keys)) > children.count


def _update(context: MergeContext, group: MergeGroup, nodes: _StoredNodes) -> MergePlan:
    """Plan the merges of a group from its changed children and the stored nodes.

    Raises:
        StoredTreeError: A stored node is missing, contradicts the changes, or is valid for another profile spec. The
            caller then calls `_rebuild` instead.
    """
    shape, children = tree_shape(), group.children
    root = nodes.find(group.key, ROOT)
    assert root is not None

    stored_children = _tree_children(group)

    def load(names: Collection[str]) -> dict[str, Branch]:
        return {name: node_branch(node, stored_children) for name, node in nodes.find_all(group.key, names).items()}

    changes = dict.fromkeys(children.removed_keys, False) | dict.fromkeys(children.changed_children, True)
    change = shape.update(node_branch(root, stored_children), load, changes)
    if change.put_branches[ROOT].count != children.count:
        raise StoredTreeError(f"the tree of {children.count} children has {change.put_branches[ROOT].count}")
    names = {
        name for branch in change.put_branches.values() for name in branch.branches if name not in change.put_branches
    }
    reused_nodes = nodes.find_all(group.key, names)
    # Whether a node is valid for another spec depends on all children below it.
    if len(reused_nodes) < len(names) or any(node.valid_spec_id != context.spec.id for node in reused_nodes.values()):
        raise StoredTreeError("a node is missing, or was valid for another profile spec")
    keys = [key for branch in change.put_branches.values() for key in branch.children]
    files = nodes.child_files(group.key) if group.key == TABLE else {}
    files = {key: files[key] for key in keys if key in files and key not in children.changed_children}
    files |= {key: child.files for key, child in children.find_all([key for key in keys if key not in files]).items()}
    if len(files) < len(keys):
        raise StoredTreeError("a node has a child that the group does not have")
    merge = _merge(group, change.put_branches, files, _files(reused_nodes))
    return _plan(context, merge, root, (), change.dropped_names)


def _rebuild(context: MergeContext, group: MergeGroup, nodes: _StoredNodes) -> MergePlan:
    """Plan the merges of a group from all its children.

    Stored nodes of the group are reused if they fit the profile spec and nothing below them changed. The
    caller calls `nodes.load_groups` first. This is not checked: without that call, no node is reused, and old nodes
    are not dropped.
    """
    children, stored_nodes = group.children.read_all(), nodes.group(group.key)
    branches = tree_shape().build(children).put_branches
    # A node is reused if its branch is the same, no child below it changed, and all nodes below it are reused.
    stored_children = _tree_children(group) if stored_nodes else None
    outdated_names = _names_above(group, stored_nodes)
    spec_ids: dict[str, frozenset[str]] = {}
    reused_nodes: dict[str, NodeEntry] = {}
    for name, branch in branches.items():
        spec_ids[name] = frozenset(children[key].spec_id for key in branch.children).union(
            *(spec_ids[below] for below in branch.branches)
        )
        node = stored_nodes.get(name)
        if (
            name != ROOT
            and node is not None
            and node_branch(node, stored_children) == branch
            and name not in outdated_names
            and reused_nodes.keys() >= set(branch.branches)
            and _is_reusable(context.compatibility, node, spec_ids[name])
        ):
            reused_nodes[name] = node
    branches_to_merge = {name: branch for name, branch in branches.items() if name not in reused_nodes}
    merge = _merge(
        group, branches_to_merge, {key: child.files for key, child in children.items()}, _files(reused_nodes)
    )
    renewed_nodes = tuple(
        replace(node, valid_spec_id=context.spec.id)
        for node in reused_nodes.values()
        if node.valid_spec_id != context.spec.id
    )
    return _plan(context, merge, stored_nodes.get(ROOT), renewed_nodes, stored_nodes.keys() - branches.keys())


def _names_above(group: MergeGroup, names: Collection[str]) -> set[str]:
    """Return the possible names of the branches above the changed and removed children of a group.

    The name of a branch above a child consists of the first digits of the hash of the child's key. For a child with the
    digits `3a07`, and `names` with one and three digits, `3` and `3a0` are returned.

    Args:
        group: The group.
        names: Names of stored branches. Only names with as many digits as one of these are returned.
    """
    shape, children = tree_shape(), group.children
    lengths = {len(name) for name in names}
    keys = (*children.changed_children, *children.removed_keys) if lengths else ()
    return {digits[:length] for digits in map(shape.digits, keys) for length in lengths}


def _merge(
    group: MergeGroup,
    branches_to_merge: Mapping[str, Branch],
    children: Mapping[str, ProfileFiles],
    reused_files: Mapping[str, ProfileFiles],
) -> TreeMerge:
    """Return the merge of the root of a group's tree.

    Its inputs contain the merges of the branches below it.

    Args:
        group: The group.
        branches_to_merge: The branches to merge, by name, each after the branches below it. The last one is the root.
        children: The profiles of the fragments or partitions directly below branches of `branches_to_merge`, by key.
        reused_files: The profiles of the stored nodes directly below branches of `branches_to_merge`, by name.
    """
    shape = tree_shape()
    merges: dict[str, TreeMerge] = {}
    for name, branch in branches_to_merge.items():
        inputs = tuple(
            children[part] if is_child else merges[part] if part in merges else reused_files[part]
            for part, is_child in shape.ordered_parts(branch)
        )
        child_files = tuple(children[key].encode_merge_files() for key in branch.children) if group.key == TABLE else ()
        merges[name] = TreeMerge(group.key, branch, inputs, child_files=child_files)
    return replace(merges[ROOT], group=group if group.has_value_counts else group.without_children())


def _plan(
    context: MergeContext,
    merge: TreeMerge,
    stored_root: NodeEntry | None,
    renewed_nodes: tuple[NodeEntry, ...],
    dropped_names: Collection[str],
) -> MergePlan:
    """Return the plan of a group, with the nodes to store and to drop.

    The root is stored as a node only if more than `FAN_IN` profiles are below it.

    Args:
        context: The objects that merges need.
        merge: The merge of the group.
        stored_root: The root in the published version; None if it has none.
        renewed_nodes: Reused nodes that were published with the `valid_spec_id` of an older profile spec. These entries
            have the id of the current spec, and replace the published ones.
        dropped_names: Names of the branches that the tree no longer has.
    """
    keys = {node_key(merge.group_key, name) for name in dropped_names}
    root = merge.node(_NO_FILES, context.spec.id)
    if root.count > FAN_IN:
        return MergePlan(merge, renewed_nodes if root == stored_root else (*renewed_nodes, root), frozenset(keys))
    return MergePlan(merge, renewed_nodes, frozenset(keys if stored_root is None else keys | {root.key}))


def node_branch(node: NodeEntry, children: TreeChildren | None) -> Branch:
    """Return the branch whose result a node stores.

    Args:
        node: The node.
        children: The children of the node's tree in the version of the node; None for the table's tree, whose nodes
            store their children.
    """
    direct_children = node.children if children is None else children.directly_below(node.name, node.branches)
    return Branch(node.name, direct_children, node.branches, node.count)


def _tree_children(group: MergeGroup) -> TreeChildren | None:
    """Return the children of the stored tree of a group, for `node_branch`."""
    return None if group.key == TABLE else TreeChildren(tree_shape(), group.children.stored_children.read_all())


def _files(nodes: Mapping[str, NodeEntry]) -> dict[str, ProfileFiles]:
    return {name: node.files for name, node in nodes.items()}


def _is_reusable(compatibility: SpecCompatibility, node: NodeEntry, spec_ids: frozenset[str]) -> bool:
    """Return whether a stored node has the same content as a new merge of its inputs.

    Args:
        compatibility: Compares the specs of stored profiles with the wanted spec.
        node: The node.
        spec_ids: The spec ids of the children below the node.
    """
    missing = compatibility.missing_columns(node.spec_id)
    return compatibility.equals(node.spec_id) and all(
        missing <= compatibility.missing_columns(spec_id) for spec_id in spec_ids
    )
