"""The tree of merges: its shape is a pure function of the children, and one child more or less is a local change."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.pipeline.merging.tree import Branch, key_position, levels, merge_tree

KEYS = st.sets(st.integers(0, 10**6), max_size=400)
FAN_INS = st.integers(2, 33)


def tree(keys: set[int], fan_in: int) -> Branch[int]:
    return merge_tree([(key_position(str(key)), key) for key in keys], fan_in)


def branches(root: Branch[int]) -> Iterator[Branch[int]]:
    yield root
    for part in root.parts:
        if isinstance(part, Branch):
            yield from branches(part)


def leaves(branch: Branch[int]) -> list[int]:
    return [key for part in branch.parts for key in (leaves(part) if isinstance(part, Branch) else [part])]


@given(KEYS, FAN_INS)
def test_every_child_is_merged_once(keys: set[int], fan_in: int) -> None:
    """Below the root are exactly the children; no branch is wider than the fan-in, and none has a single part."""
    root = tree(keys, fan_in)
    assert sorted(leaves(root)) == sorted(keys)
    assert all(len(branch.parts) <= fan_in for branch in branches(root))
    assert all(len(branch.parts) > 1 for branch in branches(root) if branch is not root)


@given(KEYS, FAN_INS, st.randoms())
def test_the_shape_depends_only_on_the_children(keys: set[int], fan_in: int, shuffle: random.Random) -> None:
    """Neither the order in which they are given nor what was there before matters."""
    order = [(key_position(str(key)), key) for key in keys]
    shuffle.shuffle(order)
    assert merge_tree(order, fan_in) == tree(keys, fan_in)


@given(KEYS, FAN_INS)
def test_levels_hold_every_branch_after_what_it_holds(keys: set[int], fan_in: int) -> None:
    root = tree(keys, fan_in)
    done: set[int] = set()
    for level in levels(root):
        assert all(id(part) in done for branch in level for part in branch.parts if isinstance(part, Branch))
        done |= {id(branch) for branch in level}
    assert done == {id(branch) for branch in branches(root) if branch is not root}


def changed(before: Branch[int], after: Branch[int]) -> int:
    """Number of merges of the tree after that the tree before has not."""
    known = set(branches(before))
    return sum(branch not in known for branch in branches(after))


@given(st.integers(0, 2000), st.integers(0, 10**9), FAN_INS)
def test_one_child_more_changes_the_branches_on_its_way(count: int, seed: int, fan_in: int) -> None:
    """Those on the way, which has the length of the longest common start of positions, and at most a fan-in more."""
    keys = set(range(seed, seed + count))
    before, after = tree(keys, fan_in), tree(keys | {seed + count}, fan_in)
    way = len(levels(after)) + 1
    assert changed(before, after) <= way + fan_in
    assert changed(after, before) <= way + fan_in


@pytest.mark.parametrize("fan_in", [4, 16, 32])
def test_at_every_size_a_change_costs_the_logarithm(fan_in: int) -> None:
    """A table that grows by one partition after another: no size is a cliff, and the mean is about the height."""
    ceiling = fan_in + 1.5 * math.log(3000, 2 ** (fan_in.bit_length() - 1)) + 3
    costs = []
    before = tree(set(), fan_in)
    for count in range(1, 3000, 7 if fan_in > 4 else 31):
        keys = set(range(count))
        before, after = tree(keys - {count - 1}, fan_in), tree(keys, fan_in)
        costs.append(changed(before, after))
    assert max(costs) <= ceiling
    assert sum(costs) / len(costs) <= math.log(3000, 2 ** (fan_in.bit_length() - 1)) + 2


def test_children_of_one_position_are_one_branch() -> None:
    """Where no bit tells children apart, the branch is as wide as it must be."""
    root = merge_tree([(7, number) for number in range(100)], 4)
    assert sorted(leaves(root)) == list(range(100))
