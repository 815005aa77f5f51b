"""The shape of a merge tree depends only on the profiles that are merged.

A profile is the statistics of a set of rows. The children of a group are the profiles to merge, such as those of all
partitions. A node is the stored merge of some of them. A spec says which statistics of which columns a profile has. The
tests read no profiles: in their model, a merge only records its inputs. The oracle is the tree that is built from all
children.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.pipeline.merging import merge_plan
from metastore_assets.pipeline.merging.groups import Child, GroupChildren, MergeContext, MergeGroup
from metastore_assets.pipeline.merging.merge_plan import (
    MergePlan,
    TreeMerge,
    find_group_nodes,
    insert_results,
    plan_merges,
    split_into_tasks,
    tree_shape,
)
from metastore_assets.pipeline.merging.tree import ROOT
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility, table_profile_spec
from metastore_assets.store.version import NodeEntry, ProfileFiles, node_key, split_node_key
from tests.pipeline.test_profile_tree import Trie, expected

Merged: TypeAlias = "str | tuple[Merged, ...]"
"""The name of a child's profile, or the inputs of a merge."""
_POLICIES = ("all", "off")
SPECS: dict[str, ProfileSpec] = {}
for names in (("a",), ("a", "b"), ("a", "b", "c")):
    for policy in _POLICIES:
        config = TableConfig.model_validate(
            {"name": "t", "uri": "none", "columns": {"default": {"frequencies": policy}}}
        )
        spec = table_profile_spec(pa.schema([(name, pa.int64()) for name in names]), config)
        SPECS[f"{''.join(names)} {policy}"] = spec
COLUMNS = {spec.id: name for name, spec in SPECS.items()}
assert len(COLUMNS) == len(SPECS)
"""The columns and the policy of each spec, by id."""
KEYS = st.sampled_from(["*", "p=1"])
"""Keys of groups: the table, and a partition."""


def profile(name: str) -> ProfileFiles:
    return ProfileFiles("", "", (), f"{name}.states", name, 1)


def oracle(tree: Trie, children: Mapping[str, Child]) -> Merged:
    return tuple(oracle(part, children) if isinstance(part, Trie) else children[part].files.name for part in tree.parts)


@dataclass
class Children:
    """The children of a group in the published version.

    Records which keys are requested, and whether all are read.
    """

    children: dict[str, Child]
    requested_keys: set[str] = field(default_factory=set)
    was_read: bool = False

    def find_all(self, keys: Collection[str]) -> dict[str, Child]:
        self.requested_keys.update(keys)
        return {key: self.children[key] for key in keys if key in self.children}

    def read_all(self) -> dict[str, Child]:
        self.was_read = True
        return self.children


@dataclass
class Nodes:
    """The tree nodes of the published version.

    Records the requested keys and the number of requests.
    """

    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    requested_keys: set[str] = field(default_factory=set)
    requests: int = 0

    def find_all(self, keys: Collection[str]) -> dict[str, NodeEntry]:
        self.requests += 1
        self.requested_keys.update(keys)
        return {key: self.nodes[key] for key in keys if key in self.nodes}

    def find_prefixes(self, prefixes: Collection[str]) -> list[NodeEntry]:
        return [node for key, node in self.nodes.items() if key.startswith(tuple(prefixes))]


@dataclass
class Table:
    """A group of profiles (children), and the nodes of the tree along which they were merged."""

    spec: ProfileSpec
    key: str = "*"
    """Key of the group: that of the table or of a partition. Nodes of partitions do not store their children."""
    children: dict[str, Child] = field(default_factory=dict)
    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    merged: dict[str, Merged] = field(default_factory=dict)
    """The inputs from which the profile of each node was merged, by name of the profile."""
    specs: dict[str, set[str]] = field(default_factory=dict)
    """The spec ids of the children of each node, by name of the node's profile."""
    written: int = 0

    def child(self, key: str) -> Child:
        self.written += 1
        name = f"{key}-{self.written}"
        separate = ProfileFiles(
            f"{name}.statistics", "", (f"{name}.frequencies",) * (self.written % 3), f"{name}.states"
        )
        files = profile(name) if self.written % 2 else separate
        return Child(key, files, self.spec.id, matches_spec=True)

    def run(self, merge: TreeMerge, nodes: list[NodeEntry]) -> tuple[Merged, set[str]]:
        """Return the inputs of a merge, and the spec ids of all children below it.

        Nodes of inner merges are added to `nodes`.
        """
        merged_values: list[Merged] = []
        spec_ids: set[str] = set()
        by_name = {child.files.name: child for child in self.children.values()}
        for part in merge.inputs:
            if isinstance(part, TreeMerge):
                value, below = self.run(part, nodes)
                self.written += 1
                files = profile(f"node-{self.written}")
                nodes.append(part.node(files, self.spec.id))
                self.merged[files.name], self.specs[files.name] = value, below
            elif part.name in by_name:
                value, below = part.name, {by_name[part.name].spec_id}
            else:
                value, below = self.merged[part.name], self.specs[part.name]
                node = next(node for node in self.nodes.values() if node.files.name == part.name)
                self.assert_valid(node, below)
            merged_values.append(value)
            spec_ids |= below
        return tuple(merged_values), spec_ids

    def assert_valid(self, node: NodeEntry, child_specs: set[str]) -> None:
        """Assert that a reused node has the policy of the current spec.

        The node may lack a column of this spec only if all children below the node lack the column, too.
        """
        expected_columns, policy = COLUMNS[self.spec.id].split()
        columns, node_policy = COLUMNS[node.spec_id].split()
        assert policy == node_policy
        for spec_id in child_specs:
            assert not (set(expected_columns) - set(columns)) & set(COLUMNS[spec_id].split()[0])

    def plan(self, changes: Mapping[str, bool]) -> tuple[MergePlan, Children, Nodes]:
        """Apply changes to the children (True adds or replaces one, False removes it), and plan the merges."""
        stored_children = Children(dict(self.children))
        changed_children = {name: self.child(name) for name, is_present in changes.items() if is_present}
        removed_names = frozenset(name for name, is_present in changes.items() if not is_present)
        self.children = {
            name: child for name, child in self.children.items() if name not in removed_names
        } | changed_children
        group = MergeGroup(
            self.key, "table", GroupChildren(changed_children, removed_names, len(self.children), stored_children)
        )
        nodes = Nodes(self.nodes)
        (plan,) = plan_merges(self.context(nodes), [group])
        return plan, stored_children, nodes

    def context(self, nodes: Nodes) -> MergeContext:
        nothing: Any = None
        compatibility = SpecCompatibility({spec.id: spec.column_specs for spec in SPECS.values()}, self.spec)
        return MergeContext(nothing, nothing, compatibility, nodes, nothing)

    def apply(self, plan: MergePlan) -> tuple[Merged, list[NodeEntry]]:
        """Execute the merges and store the nodes.

        Return the inputs of the root, and the written nodes.
        """
        written_nodes: list[NodeEntry] = []
        root, _ = self.run(plan.root, written_nodes)
        new_nodes = {node.key: node for node in (*plan.put_entries, *written_nodes)}
        assert not new_nodes.keys() & plan.dropped_keys
        assert plan.dropped_keys <= self.nodes.keys()
        self.nodes = {key: node for key, node in self.nodes.items() if key not in plan.dropped_keys} | new_nodes
        return root, written_nodes

    def assert_complete(self) -> None:
        """Assert that the nodes equal those of a tree that is built from scratch.

        The compared properties of a node are its key, the children and nodes that it merges, the number of children
        below it, and the recorded inputs. The files that a node stores for its children are checked, too.
        """
        shape = tree_shape()
        branches = shape.build(self.children).put_branches if len(self.children) > shape.fan_in else {}
        assert self.nodes.keys() == {node_key(self.key, name) for name in branches}
        for name, branch in branches.items():
            node = self.nodes[node_key(self.key, name)]
            children = branch.children if self.key == "*" else ()
            assert (node.children, node.branches, node.count) == (children, branch.branches, branch.count)
            # Profiles that share no file are stored in a node of the table.
            stored_files = [
                list(ProfileFiles.of_merge_files(files).paths()) if files else [] for files in node.child_files
            ]
            assert stored_files == [
                [] if files.section else list(files.paths()) for files in (self.children[key].files for key in children)
            ]
            assert (node.files.name == "") == (name == ROOT)
            if name != ROOT:
                parts = [
                    self.children[part].files.name
                    if is_child
                    else self.merged[self.nodes[node_key(self.key, part)].files.name]
                    for part, is_child in shape.ordered_parts(branch)
                ]
                assert self.merged[node.files.name] == tuple(parts)


def draw_changes(data: st.DataObject, table: Table, most: int) -> dict[str, bool]:
    """Draw changes for `Table.plan`: at most `most` additions, `most` replacements and `most` removals."""
    present = sorted(table.children)
    removing = st.sets(st.sampled_from(present), max_size=most) if present else st.just(set[str]())
    removed_names, replaced_names = data.draw(removing), data.draw(removing)
    added_names = data.draw(st.sets(st.integers(0, 300).map(str), max_size=most))
    return dict.fromkeys(added_names | replaced_names, True) | dict.fromkeys(removed_names, False)


@pytest.fixture(params=[2, 6], autouse=True)
def fan_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_plan, "FAN_IN", request.param)


@pytest.mark.parametrize("damaged_text", ["no line break", ""])
def test_damaged_files_in_a_node_are_replaced_by_those_of_the_children(damaged_text: str) -> None:
    """A merge equals one from scratch even if stored nodes have damaged lists of their children's files.

    In each list, no entry can be parsed, or there is one entry too many.
    """
    table = Table(next(iter(SPECS.values())))
    plan, *_ = table.plan({str(at): True for at in range(40)})
    table.apply(plan)
    for key, node in table.nodes.items():
        if node.children:
            table.nodes[key] = replace(node, child_files=(damaged_text,) * (len(node.children) + (not damaged_text)))
    plan, *_ = table.plan({"7": True})
    root, _ = table.apply(plan)
    assert root == oracle(expected(table.children, tree_shape()), table.children)


@given(st.data(), KEYS)
def test_after_any_history_the_plan_is_that_from_scratch(data: st.DataObject, key: str) -> None:
    """After random changes of children and specs, the tree equals one from scratch.

    Its shape, nodes and inputs are equal. The plan of a small change reads only the nodes above the changed children,
    and what these nodes merge. In the tree of a partition, the plan also reads all earlier fragments, which are in
    memory.
    """
    specs = st.sampled_from(list(SPECS.values()))
    table = Table(data.draw(specs), key)
    valid_spec = ""
    for _ in range(data.draw(st.integers(1, 7))):
        if data.draw(st.integers(0, 3)) == 0:
            table.spec = data.draw(specs)
        changes = draw_changes(data, table, data.draw(st.sampled_from([3, 60])))
        nodes_before = dict(table.nodes)
        plan, children, nodes = table.plan(changes)
        root, written_nodes = table.apply(plan)
        shape = tree_shape()
        assert root == oracle(expected(table.children, shape), table.children)
        table.assert_complete()
        # The root and its parts are looked up without changes, too.
        above = {ROOT, *(shape.digits(key)[:end] for key in changes for end in range(65))}
        if valid_spec == table.spec.id:
            names = {split_node_key(node.key)[1] for node in written_nodes}
            assert all(name in above or node_key(key, name) not in nodes_before for name in names)
        if valid_spec == table.spec.id and nodes_before and 4 * len(changes) <= len(table.children):
            assert children.was_read == (key != "*")
            assert children.requested_keys.isdisjoint(changes)
            groups = {split_node_key(key)[1] for key in nodes.requested_keys}
            assert all(name in above or any(name[:end] in above for end in range(len(name))) for name in groups)
            assert nodes.requests <= 3
        valid_spec = table.spec.id


@given(st.data())
def test_the_nodes_of_a_changed_spec_are_compared_once(data: st.DataObject) -> None:
    """The spec of the table and of one child gets another column; all other children retain their spec.

    The first plan reads all children, to compare their specs with those of their nodes. Only the nodes above the
    changed child are written. The next plan does not read the children.
    """
    table = Table(SPECS["a all"])
    table.apply(table.plan(dict.fromkeys(map(str, range(100)), True))[0])
    table.spec = SPECS["ab all"]
    plan, children, _ = table.plan({"3": True})
    _, written_nodes = table.apply(plan)
    assert children.was_read
    shape = tree_shape()
    assert {split_node_key(node.key)[1] for node in written_nodes} == {
        name for name in shape.build(table.children).put_branches if name != ROOT and shape.digits("3").startswith(name)
    }
    key = str(data.draw(st.integers(0, 99)))
    plan, children, _ = table.plan({key: True})
    table.apply(plan)
    assert not children.was_read
    table.assert_complete()
    assert {node.spec_id for node in table.nodes.values()} == {SPECS["a all"].id, SPECS["ab all"].id}


@given(st.data(), KEYS)
def test_missing_and_wrong_nodes_are_recomputed(data: st.DataObject, group_key: str) -> None:
    """The merges are those from scratch, even if stored nodes are missing or lack a child."""
    table = Table(SPECS["a all"], group_key)
    table.apply(table.plan(dict.fromkeys(map(str, range(data.draw(st.integers(0, 100)))), True))[0])
    for key in data.draw(st.sets(st.sampled_from(sorted(table.nodes)), max_size=5)) if table.nodes else ():
        node = table.nodes[key]
        if data.draw(st.booleans()):
            del table.nodes[key]
        else:
            is_shorter = bool(node.children) or group_key != "*"
            table.nodes[key] = replace(node, children=node.children[1:], count=node.count - is_shorter)
    changes = draw_changes(data, table, 3)
    plan, _, _ = table.plan(changes)
    written_nodes: list[NodeEntry] = []
    root, _ = table.run(plan.root, written_nodes)
    assert root == oracle(expected(table.children, tree_shape()), table.children)


def test_groups_share_requests() -> None:
    """A plan makes one request for the nodes of all changed groups.

    With a small fan-in, names of nodes are long, and a plan makes two requests.
    """
    tables = {key: Table(SPECS["a all"], key) for key in (f"p={number}" for number in range(20))}
    stored_nodes: dict[str, NodeEntry] = {}
    for table in tables.values():
        table.apply(table.plan(dict.fromkeys(map(str, range(100)), True))[0])
        stored_nodes |= table.nodes
    groups = []
    for key, table in tables.items():
        before = Children(dict(table.children))
        changed_children = {"7": table.child("7")}
        groups.append(MergeGroup(key, "partitions", GroupChildren(changed_children, frozenset(), 100, before)))
    nodes = Nodes(stored_nodes)
    plans = plan_merges(table.context(nodes), groups)
    assert [plan.root.group_key for plan in plans] == list(tables)
    assert nodes.requests == (1 if merge_plan.FAN_IN == 6 else 2)
    assert find_group_nodes(nodes, ["p=3", "p=x"]) == {key for key in stored_nodes if key.startswith("p=3\0")}


@given(st.integers(0, 200), st.integers(1, 50))
def test_tasks_cover_the_tree(count: int, most: int) -> None:
    """A tree merged in rounds of bounded tasks has the same root inputs as one merged at once."""
    table = Table(SPECS["a all"])
    plan, _, _ = table.plan(dict.fromkeys(map(str, range(count)), True))
    expected_root = oracle(expected(table.children, tree_shape()), table.children)
    merge: Any = plan.root
    while True:
        tasks = split_into_tasks(merge, most)
        if tasks == [merge]:
            break
        results: dict[int, ProfileFiles] = {}
        for task in tasks:
            assert task.weight <= most or not any(isinstance(part, TreeMerge) for part in task.inputs)
            nodes: list[NodeEntry] = []
            value, spec_ids = table.run(task, nodes)
            table.written += 1
            files = profile(f"node-{table.written}")
            table.merged[files.name], table.specs[files.name] = value, spec_ids
            table.nodes[task.node_key] = task.node(files, table.spec.id)
            results[id(task)] = files
        merge = insert_results(merge, results)
    assert table.run(merge, [])[0] == expected_root
