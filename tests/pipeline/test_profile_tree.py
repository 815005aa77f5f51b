"""The tree of merges depends only on the merged profiles, and a change affects few branches.

A child is a profile (statistics of some rows) to merge. Its position is a 64-bit number, by default a hash of its key.
A branch merges children and other branches, which are its parts. The name of a branch is the digits with which the
positions of all children below it begin. The oracle is the trie over the bits of the positions, built from all children
at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metastore_assets.pipeline.merging.tree import (
    ROOT,
    Branch,
    StoredTreeError,
    TreeChange,
    TreeChildren,
    TreeShape,
    key_position,
)

KEYS = st.sets(st.integers(0, 10**6).map(str), max_size=400)
FAN_INS = st.integers(2, 33)
BITS = 64


@dataclass(frozen=True)
class Trie:
    """A branch of the oracle, with its child branches or keys of children."""

    parts: tuple[Trie | str, ...]

    @property
    def children(self) -> list[str]:
        return [key for part in self.parts for key in (part.children if isinstance(part, Trie) else [part])]


def trie(children: list[tuple[int, str]], fan_in: int, low_bits: int = BITS) -> Trie:
    """Return the branch of children whose positions differ only in the last `low_bits` bits.

    `children` are pairs (position, key), sorted. A branch has at most `fan_in` parts, unless it merges children with
    equal positions.
    """
    if len(children) <= fan_in or not low_bits:
        return Trie(tuple(key for _, key in children))
    low_bits = max(0, low_bits - (fan_in.bit_length() - 1))
    parts: dict[int, list[tuple[int, str]]] = {}
    for child in children:
        parts.setdefault(child[0] >> low_bits, []).append(child)
    if len(parts) == 1:
        return trie(children, fan_in, low_bits)
    return Trie(tuple(part[0][1] if len(part) == 1 else trie(part, fan_in, low_bits) for part in parts.values()))


def expected(keys: Collection[str], shape: TreeShape) -> Trie:
    return trie(sorted((shape.position(key), key) for key in keys), shape.fan_in)


def assembled(shape: TreeShape, branches: Mapping[str, Branch], name: str = ROOT) -> Trie:
    """Build the tree from its branches.

    Asserts that the `count` of each branch is the number of children below it.
    """
    parts = shape.ordered_parts(branches[name])
    result = Trie(tuple(part if is_child else assembled(shape, branches, part) for part, is_child in parts))
    assert branches[name].count == len(result.children)
    return result


def reached(branches: Mapping[str, Branch], name: str = ROOT) -> Iterator[str]:
    yield name
    for below in branches[name].branches:
        yield from reached(branches, below)


@given(KEYS, FAN_INS, st.randoms())
def test_a_tree_is_a_function_of_its_children(keys: set[str], fan_in: int, shuffle: random.Random) -> None:
    """The tree equals that of the oracle for any order of the children.

    Each branch comes after those below it.
    """
    shape = TreeShape(fan_in)
    order = sorted(keys)
    shuffle.shuffle(order)
    change = shape.build(order)
    assert assembled(shape, change.put_branches) == expected(keys, shape)
    assert sorted(reached(change.put_branches)) == sorted(change.put_branches)
    assert not change.dropped_names
    merged_names: set[str] = set()
    for name, branch in change.put_branches.items():
        assert name == branch.name
        assert merged_names.issuperset(branch.branches)
        merged_names.add(name)
    assert list(change.put_branches)[-1] == ROOT


@given(KEYS, FAN_INS)
def test_every_child_is_merged_once(keys: set[str], fan_in: int) -> None:
    """No branch is wider than the fan-in, and only the root may have a single part.

    The positions of all children below a branch start with the branch's name.
    """
    shape = TreeShape(fan_in)
    branches = shape.build(keys).put_branches
    assert sorted(key for branch in branches.values() for key in branch.children) == sorted(keys)
    for name, branch in branches.items():
        assert len(branch.children) + len(branch.branches) <= fan_in
        assert name == ROOT or len(branch.children) + len(branch.branches) > 1
        assert all(shape.digits(key).startswith(name) for key in branch.children)
        assert all(below.startswith(name) and below != name for below in branch.branches)
        assert all(name in shape.path(key, len(keys)) for key in branch.children)
        assert all(
            set(shape.siblings(below)) >= {each for each in branches if is_sibling(each, below)}
            for below in branch.branches
        )


def is_sibling(one: str, other: str) -> bool:
    """Return whether two names have equally many digits and differ at most in the last one."""
    return one[:-1] == other[:-1] and len(one) == len(other)


def numbered(bits: int) -> Callable[[str], int]:
    """Return a function from keys to positions that differ only in the highest and the lowest bits.

    Positions then have long common prefixes, and some are equal.
    """

    def position(key: str) -> int:
        number = int(key)
        return (number % 7) << (BITS - 3) | (number // 7) % (1 << bits)

    return position


POSITIONS = st.sampled_from([key_position, key_position, numbered(1), numbered(4), numbered(9)])


@given(KEYS, FAN_INS, POSITIONS)
def test_all_children_of_a_tree_determine_those_of_each_branch(
    keys: set[str], fan_in: int, position: Callable[[str], int]
) -> None:
    """The children of each branch result from all children and the names of branches."""
    shape = TreeShape(fan_in, position)
    children = TreeChildren(shape, keys)
    for name, branch in shape.build(keys).put_branches.items():
        assert children.directly_below(name, branch.branches) == branch.children


class Stored:
    """The branches of a stored tree.

    It records which of them are loaded.
    """

    def __init__(self, branches: Mapping[str, Branch]) -> None:
        self.branches = branches
        self.loaded: set[str] = set()

    def __call__(self, names: Collection[str]) -> dict[str, Branch]:
        self.loaded.update(names)
        return {name: self.branches[name] for name in names if name in self.branches}


def updated(shape: TreeShape, before: Mapping[str, Branch], changes: Mapping[str, bool]) -> tuple[TreeChange, Stored]:
    stored_branches = Stored(before)
    return shape.update(before[ROOT], stored_branches, changes), stored_branches


@given(st.data(), FAN_INS, POSITIONS)
def test_after_any_history_the_tree_is_that_from_scratch(
    data: st.DataObject, fan_in: int, position: Callable[[str], int]
) -> None:
    """After any changes of children, the branches equal those of a tree built at once.

    A stored branch changes only if it is above a changed child.
    """
    shape = TreeShape(fan_in, position)
    numbers = st.integers(0, data.draw(st.sampled_from([60, 400]))).map(str)
    keys = set(data.draw(st.sets(numbers, max_size=200)))
    stored_branches: dict[str, Branch] = dict(shape.build(keys).put_branches)
    for _ in range(data.draw(st.integers(1, 6))):
        removing = st.sets(st.sampled_from(sorted(keys)), max_size=len(keys)) if keys else st.just(set[str]())
        removed_keys = data.draw(removing)
        replaced_keys = data.draw(removing) - removed_keys
        added_keys = data.draw(st.sets(numbers, max_size=30)) - keys
        changes = dict.fromkeys(removed_keys, False) | dict.fromkeys(added_keys | replaced_keys, True)
        keys = (keys - removed_keys) | added_keys
        scratch = shape.build(keys)
        if stored_branches[ROOT].count > fan_in:
            change, loads = updated(shape, stored_branches, changes)
            assert change.dropped_names == stored_branches.keys() - scratch.put_branches.keys()
            above = {ROOT} | {shape.digits(key)[:end] for key in changes for end in range(BITS + 1)}
            # A branch that splits has new branches below it, which are not above a change.
            assert all(name in above or name not in stored_branches for name in change.put_branches)
            assert len(change.put_branches.keys() - above) <= fan_in * len(changes)
            # Only branches above a change, and their parts, are loaded.
            assert all(any(name[:end] in above for end in range(len(name))) for name in loads.loaded)
            stored_branches = {
                name: branch for name, branch in stored_branches.items() if name not in change.dropped_names
            } | dict(change.put_branches)
        else:
            stored_branches = dict(scratch.put_branches)
        assert stored_branches == scratch.put_branches
        assert assembled(shape, stored_branches) == expected(keys, shape)


@given(KEYS, st.sets(st.integers(0, 10**6).map(str), min_size=1, max_size=5), FAN_INS)
@example({str(number) for number in range(200)}, {"200"}, 6)
def test_branches_above_a_replaced_child_are_merged_again(keys: set[str], replaced_keys: set[str], fan_in: int) -> None:
    """Exactly the branches above a replaced child are merged again.

    The shape of the tree stays the same.
    """
    shape = TreeShape(fan_in)
    keys = keys | replaced_keys | {str(number) for number in range(fan_in + 1)}
    before = shape.build(keys).put_branches
    change, _ = updated(shape, before, dict.fromkeys(replaced_keys, True))
    above = {name for name in before if any(shape.digits(key).startswith(name) for key in replaced_keys)}
    assert change.put_branches.keys() == above
    assert not change.dropped_names
    assert {name: before[name] for name in above} == change.put_branches


@given(st.integers(0, 2000), st.integers(0, 10**9), FAN_INS)
def test_an_added_child_changes_only_the_branches_above_it(count: int, seed: int, fan_in: int) -> None:
    """In a tree of several branches, an added child changes the branches above it and few others.

    The number of these other branches is at most the fan-in. Removing the child changes at most the branches above it.
    """
    shape = TreeShape(fan_in)
    keys = {str(number) for number in range(seed, seed + count)}
    extra = str(seed + count)
    before, after = shape.build(keys).put_branches, shape.build(keys | {extra}).put_branches
    way = len({name for name in after if shape.digits(extra).startswith(name)})
    if before[ROOT].count > fan_in:
        change, _ = updated(shape, before, {extra: True})
        assert len(change.put_branches) <= way + fan_in
        change, _ = updated(shape, after, {extra: False})
        assert len(change.put_branches) <= way


@pytest.mark.parametrize("fan_in", [4, *(pytest.param(fan_in, marks=pytest.mark.long) for fan_in in (16, 32))])
def test_the_cost_of_a_change_is_logarithmic_in_the_children(fan_in: int) -> None:
    """A table grows.

    On average, a new partition merges at most two branches more than the height of the tree.
    """
    shape = TreeShape(fan_in)
    height = math.log(3000, 2 ** (fan_in.bit_length() - 1))
    costs = []
    for count in range(fan_in + 1, 3000, 7 if fan_in > 4 else 31):
        before = shape.build(map(str, range(count))).put_branches
        change, _ = updated(shape, before, {str(count): True})
        costs.append(len(change.put_branches))
    assert max(costs) <= fan_in + 1.5 * height + 3
    assert sum(costs) / len(costs) <= height + 2


def test_children_with_equal_positions_share_one_branch() -> None:
    """Children with equal positions share one branch, even if it is wider than the fan-in."""
    shape = TreeShape(4, lambda key: 7)
    change = shape.build(map(str, range(100)))
    assert sorted(assembled(shape, change.put_branches).children) == sorted(map(str, range(100)))
    assert [len(branch.children) for branch in change.put_branches.values()] == [100]


def test_contradictions_are_errors() -> None:
    shape = TreeShape(4)
    keys = {str(number) for number in range(100)}
    before = shape.build(keys).put_branches
    with pytest.raises(StoredTreeError):
        updated(shape, before, {"100": False})
    (name, *_) = before[ROOT].branches
    child = next(key for key in keys if shape.digits(key).startswith(name))
    with pytest.raises(StoredTreeError):
        updated(shape, {key: branch for key, branch in before.items() if key != name}, {child: True})
    above = [key for key in before if shape.digits(child).startswith(key) and key != ROOT]
    lowest = replace(before[max(above, key=len)], children=())
    if not lowest.branches:
        with pytest.raises(StoredTreeError):
            updated(shape, {**before, lowest.name: lowest}, {child: False})
