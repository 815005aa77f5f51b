"""The shape of the tree along which the profiles of a partition, or of a table, are merged.

A fragment is a data file with its deletes. The leaves of the tree, called children, are the fragments of a partition,
or the partitions of a table. The shape depends only on the keys of the children. The position of a child is a hash of
its key. The tree is a trie over the digits of these positions. A branch is an inner node, and consists of parts:
children and other branches. If it has more than `fan_in` children below it, the next digit divides them into parts.
Adding or removing a child changes about log(n) branches above it. All other branches stay the same.

`TreeShape.update` computes the next tree from few stored branches: those above the changed children, and those directly
below them. The result equals the tree that `TreeShape.build` computes from all keys.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

ROOT = ""
"""Name of the root."""
_BITS = 64
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Branch:
    """The inputs of one merge: children, and the results of other branches."""

    name: str
    """The first digits that the positions of all children below have in common; `ROOT` for the root."""
    children: tuple[str, ...]
    """Keys of the children that the branch merges, by increasing position."""
    branches: tuple[str, ...]
    """Names of the branches whose results the branch merges, by increasing position."""
    count: int
    """Number of children below the branch, at any depth."""


LoadBranches: TypeAlias = Callable[[Collection[str]], Mapping[str, Branch]]
"""Returns the stored branches with the given names. Names without a branch are omitted."""


@dataclass(frozen=True)
class TreeChange:
    """The difference between the next tree and the stored one: branches to merge, and branches to drop."""

    put_branches: Mapping[str, Branch]
    """The branches to merge, by name, each after the branches below it; the root is the last one."""
    dropped_names: frozenset[str]
    """Names of the branches that the next tree does not have."""


class StoredTreeError(Exception):
    """Raised if the stored branches of a group cannot be used, so that its tree must be rebuilt."""


def key_position(key: str) -> int:
    """Return the position of a child: a 64-bit hash of its key that is the same in every process."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class TreeShape:
    """The rule that divides children into branches.

    `build` applies it to all keys, `update` to a change. A branch has at most `fan_in` parts: the children and the
    branches directly below it. Exception: children with equal positions (hashes of their keys) are never divided,
    however many they are.
    """

    fan_in: int
    """The maximum number of parts of a branch: 2 to 63."""
    position: Callable[[str], int] = key_position
    """Returns the 64-bit position of a child, given its key."""

    def build(self, keys: Iterable[str]) -> TreeChange:
        """Return all branches of the tree of some children, as the change from an empty tree.

        `keys` are the keys of the children, in any order.
        """
        return _Update(self).result(_build(self, ROOT, self.sort(keys)))

    def update(self, root: Branch, load: LoadBranches, changes: Mapping[str, bool]) -> TreeChange:
        """Return the difference between a stored tree and the next tree.

        Args:
            root: The root of the stored tree, with more than `fan_in` children.
            load: Loads other branches of the stored tree.
            changes: {key of an added, removed or replaced child: whether the next tree has it}.

        Raises:
            StoredTreeError: A branch is missing, or a removed child is in no branch.
        """
        update = _Update(self, load)
        # Inside the tree, the root has the name that it gets if it becomes a branch below another root.
        name = _common_start([*root.branches, *map(self.digits, root.children)])
        old = _Node(replace(root, name=name), ())
        update.opened_names.add(ROOT)
        sorted_changes = [(digits, key, changes[key]) for digits, key in self.sort(changes)]
        return update.result(update.apply(ROOT, old, sorted_changes))

    def ordered_parts(self, branch: Branch) -> list[tuple[str, bool]]:
        """Return the parts of a branch: the children and the branches directly below it.

        A child is (key, True), a branch (name, False). They are sorted by digits: those of the hash of a child's key,
        or those in the name of a branch.
        """
        parts = [(self.digits(key), key, True) for key in branch.children]
        parts += [(name, name, False) for name in branch.branches]
        return [(part, is_child) for _, part, is_child in sorted(parts)]

    def path(self, key: str, count: int) -> list[str]:
        """Return the possible names of the branches above a child, from the root down.

        Example: "", "7", "7b". The tree has branches for only a few of these names. Names that are too long to be
        likely in a tree with `count` children are omitted.
        """
        digits = self.digits(key)
        length = 4 + count.bit_length() // (self.fan_in.bit_length() - 1)
        return [digits[:end] for end in range(min(length, len(digits)) + 1)]

    def positions_below(self, name: str) -> range:
        """Return the positions that the children below a branch may have, given the branch's name."""
        value, end = 0, _BITS
        for digit, (shift, _) in zip(name, _shifts(self.fan_in.bit_length() - 1), strict=False):
            value, end = value | _DIGITS.index(digit) << shift, shift
        return range(value, value + (1 << end))

    def siblings(self, name: str) -> list[str]:
        """Return the possible names of a branch and of those that differ from it in the last digit.

        Example: "70", "71", "72" and "73" for "71". For the root, only its name is returned.
        """
        digit_count = 1 << (self.fan_in.bit_length() - 1)
        return [name[:-1] + digit for digit in _DIGITS[:digit_count]] if name else [name]

    def digits(self, key: str) -> str:
        """Return the position of a child (a hash of its key) as text, with the highest digit first."""
        return _format_digits(self.position(key), self.fan_in.bit_length() - 1)

    def sort(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return (digits, key) of each child, sorted.

        `digits` returns the digits: a text that is a hash of the key.

        `keys` are the keys of the children, in any order.
        """
        return sorted((self.digits(key), key) for key in keys)


class TreeChildren:
    """All children of a tree, sorted by position.

    They determine the children of each branch, so that branches can be stored without them.
    """

    def __init__(self, shape: TreeShape, keys: Iterable[str]) -> None:
        """Compute the positions of the children with the given keys."""
        self._shape = shape
        children = sorted([(shape.position(key), key) for key in keys])
        self._positions = [position for position, _ in children]
        self._keys = [key for _, key in children]

    def directly_below(self, name: str, branches: Sequence[str]) -> tuple[str, ...]:
        """Return the keys of the children that a branch merges, by increasing position.

        Args:
            name: The name of the branch.
            branches: The names of the branches directly below it, by increasing position.
        """
        below = self._numbers(name)
        start, children = below.start, []
        for numbers in map(self._numbers, branches):
            children += self._keys[start : numbers.start]
            start = numbers.stop
        return (*children, *self._keys[start : below.stop])

    def _numbers(self, name: str) -> range:
        """Return the indexes, in the sorted list of children, of the children at any depth below a branch."""
        positions = self._shape.positions_below(name)
        return range(bisect_left(self._positions, positions.start), bisect_left(self._positions, positions.stop))


@dataclass(frozen=True)
class _Node:
    """A branch of the stored tree or of the next tree."""

    branch: Branch
    parts: tuple[_Node | str, ...] | None
    """The nodes, and the keys of children, directly below a branch that `_join` built.

    Not loaded for a branch of the stored tree: None, or an empty tuple if it is the root.
    """


def _count(part: _Node | str) -> int:
    return 1 if isinstance(part, str) else part.branch.count


def _join(name: str, parts: Sequence[_Node | str]) -> _Node:
    """Return a new branch with this name and these parts.

    A part is a child's key, or a branch below. The caller sorts the parts: keys by their digits (see
    `TreeShape.digits`), branches by their names. So branches with the same parts are equal. The order is not checked.
    """
    children = tuple(part for part in parts if isinstance(part, str))
    branches = tuple(part.branch.name for part in parts if isinstance(part, _Node))
    return _Node(Branch(name, children, branches, sum(map(_count, parts))), tuple(parts))


def _build(shape: TreeShape, name: str, children: Sequence[tuple[str, str]]) -> _Node | str | None:
    """Build the tree of some children, and return its top branch.

    Return the key of the child if there is only one, and None if there is none.

    Args:
        shape: The shape, which has the maximum number of parts of a branch.
        name: Digits with which the positions of all children begin. With at most `fan_in` children, the top branch gets
            this name. With more, its name has all first digits that the positions share: `7b` for `7b0` and `7bf`.
        children: (digits, key) of each child, sorted.
    """
    if len(children) < 2:
        return children[0][1] if children else None
    if len(children) <= shape.fan_in:
        return _join(name, [key for _, key in children])
    name = _common_start([children[0][0], children[-1][0]])
    if len(name) == len(children[0][0]):
        return _join(name, [key for _, key in children])
    end = len(name) + 1
    parts = [_build(shape, digit, list(group)) for digit, group in groupby(children, key=lambda child: child[0][:end])]
    return _join(name, [part for part in parts if part is not None])


@dataclass
class _Update:
    """A builder of the next tree.

    `apply` changes parts of a stored tree, and `result` returns the whole change.
    """

    shape: TreeShape
    load: LoadBranches = field(default=lambda names: {})
    opened_names: set[str] = field(default_factory=set)
    """Names of the stored branches that the next tree changes or does not have."""

    def apply(self, name: str, old: _Node | str | None, changes: Sequence[tuple[str, str, bool]]) -> _Node | str | None:
        """Apply changes to a part of a tree.

        Return the new part; None if no children remain.

        Args:
            name: Some digits. The part has the children whose positions (hashes of their keys) begin with these digits.
            old: The part in the stored tree: a branch, the key of a single child, or None for no children.
            changes: (digits of the position, key, whether the next tree has the child) of each changed child, sorted.

        Raises:
            StoredTreeError: A branch is missing, or a removed child is in no branch.
        """
        if not changes:
            return old
        # A child, or a branch of children only, is built again from its next children.
        if not isinstance(old, _Node) or not old.branch.branches:
            return _build(self.shape, name, self._changed_children(old, changes))
        # The digits that the old branch and all changes share. If the branch's name has more digits, the old branch
        # becomes one part of a new branch. Otherwise its parts are changed one by one.
        start = _common_start([old.branch.name, changes[0][0], changes[-1][0]])
        end = len(start) + 1
        parts_before = self._open(old) if start == old.branch.name else {old.branch.name[:end]: old}
        groups = {digit: list(group) for digit, group in groupby(changes, key=lambda change: change[0][:end])}
        parts: list[_Node | str] = []
        for digit in sorted(parts_before.keys() | groups.keys()):
            part = self.apply(digit, parts_before.get(digit), groups.get(digit, []))
            if part is not None:
                parts.append(part)
        # A branch with few children does not split.
        if sum(map(_count, parts)) <= self.shape.fan_in:
            return _build(self.shape, name, [child for part in parts for child in self._children(part)])
        return parts[0] if len(parts) == 1 and isinstance(parts[0], _Node) else _join(start, parts)

    def result(self, root: _Node | str | None) -> TreeChange:
        """Return the change that leads from the stored tree to the tree with the given root.

        Args:
            root: A branch or the key of a single child; None if no children remain.
        """
        if not isinstance(root, _Node):
            root = _join(ROOT, [] if root is None else [root])
        elif root.branch.name != ROOT:
            if root.parts is None:
                self.opened_names.add(root.branch.name)
            root = _Node(replace(root.branch, name=ROOT), root.parts or ())
        changed_branches: dict[str, Branch] = {}
        _collect(root, changed_branches)
        return TreeChange(changed_branches, frozenset(self.opened_names - changed_branches.keys()))

    def _open(self, node: _Node) -> dict[str, _Node | str]:
        """Return the parts of the branch `node` as {first digits: branch or key of a child}.

        The first digits are the name of `node` and one more digit. For example, a part of the branch `7` may have the
        first digits `7b`. Branches directly below `node` are loaded. If `node` itself is a stored branch, its name is
        added to `opened_names`.

        Raises:
            StoredTreeError: A stored branch is missing.
        """
        branch = node.branch
        self._mark_opened(node)
        loaded_branches = self.load(branch.branches)
        if loaded_branches.keys() != set(branch.branches):
            raise StoredTreeError("a branch of a stored tree is missing")
        end = len(branch.name) + 1
        parts: dict[str, _Node | str] = {key_digits[:end]: key for key_digits, key in self.shape.sort(branch.children)}
        parts |= {name[:end]: _Node(loaded_branches[name], None) for name in branch.branches}
        return parts

    def _mark_opened(self, node: _Node) -> None:
        if node.parts is None:
            self.opened_names.add(node.branch.name)

    def _changed_children(
        self, old: _Node | str | None, changes: Sequence[tuple[str, str, bool]]
    ) -> list[tuple[str, str]]:
        """Apply changes to the children of a part.

        Return (digits, key) of each child that remains or is new, sorted.

        The digits are the position of the child (a hash of its key) as text. If `old` is a stored branch, its name is
        added to `opened_names`, because the next tree changes or drops it.

        Args:
            old: The part in the stored tree: the key of a single child, a branch without branches below it, or None
                for no children.
            changes: (digits, key, whether the next tree has the child) of each changed child.

        Raises:
            StoredTreeError: A removed child is not in the part.
        """
        children = set() if old is None else set(self._children(old))
        for digits, key, is_present in changes:
            if is_present:
                children.add((digits, key))
            elif (digits, key) in children:
                children.remove((digits, key))
            else:
                raise StoredTreeError(f"the removed child {key!r} is in no branch")
        return sorted(children)

    def _children(self, part: _Node | str) -> list[tuple[str, str]]:
        """Return (digits, key) of each child in a part, sorted.

        If the part is a stored branch, add its name to `opened_names`.

        The caller passes the key of a single child, or a branch without branches below it.
        """
        if isinstance(part, str):
            return [(self.shape.digits(part), part)]
        self._mark_opened(part)
        return self.shape.sort(part.branch.children)


def _collect(node: _Node, changed_branches: dict[str, Branch]) -> None:
    """Add a branch and the changed branches below it to `changed_branches`, the lowest first."""
    for part in node.parts or ():
        if isinstance(part, _Node) and part.parts is not None:
            _collect(part, changed_branches)
    changed_branches[node.branch.name] = node.branch


def _common_start(texts: Sequence[str]) -> str:
    """Return the longest common prefix of the texts."""
    first, last = min(texts), max(texts)
    end = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return first[:end]


@lru_cache(16)
def _shifts(bits: int) -> list[tuple[int, int]]:
    """Return (shift, mask) of each digit of a position, the highest digit first.

    A digit is `position >> shift & mask`. A digit has `bits` bits; the lowest one may have fewer.
    """
    ends = [*range(bits, _BITS, bits), _BITS]
    return [(_BITS - end, (1 << (bits if end % bits == 0 else end % bits)) - 1) for end in ends]


def _format_digits(position: int, bits: int) -> str:
    """Return a child's 64-bit position as text: one character per `bits` bits, highest bits first."""
    return "".join([_DIGITS[position >> shift & mask] for shift, mask in _shifts(bits)])
