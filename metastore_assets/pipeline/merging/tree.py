"""The tree of merges of a group: a pure function of the group's children, which changes locally.

The tree is a trie over the bits of the children's positions. A branch with more than `fan_in` children splits into a
power of two of parts; a part with one child is that child. Adding or removing a child changes the branches above it,
about log(n) of them, and at most `fan_in` more if a branch splits or merges. All other branches stay the same, whatever
the number of children. (If the width depended on the number of children, each change of it would rebuild the tree.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

_BITS = 64


@dataclass(frozen=True)
class Branch(Generic[Item]):
    """The inputs of one merge: at most `fan_in` children and results of other branches."""

    parts: tuple[Branch[Item] | Item, ...]
    """By increasing position."""


def levels(root: Branch[Item]) -> list[list[Branch[Item]]]:
    """Return the branches below the root by height: first those with children only."""
    found: list[list[Branch[Item]]] = []

    def height(branch: Branch[Item]) -> int:
        own = max((height(part) + 1 for part in branch.parts if isinstance(part, Branch)), default=0)
        if branch is not root:
            found.extend([] for _ in range(len(found), own + 1))
            found[own].append(branch)
        return own

    height(root)
    return found


def key_position(key: str) -> int:
    """Return the position of a child: a hash of its key with 64 bits, the same in every process."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return int.from_bytes(digest, "big")


def merge_tree(children: Sequence[tuple[int, Item]], fan_in: int) -> Branch[Item]:
    """Return the root of the tree of (position, child) pairs, in any order; `fan_in` is at least 2.

    Only children that share all 64 bits of their position make a branch wider than `fan_in`.
    """
    return _branch(sorted(children, key=lambda child: child[0]), _BITS, fan_in.bit_length() - 1, fan_in)


def _branch(children: Sequence[tuple[int, Item]], left: int, bits: int, fan_in: int) -> Branch[Item]:
    """Return the branch of sorted children that differ only in the last `left` bits."""
    if len(children) <= fan_in or not left:
        return Branch(tuple(child for _, child in children))
    left = max(0, left - bits)
    parts: dict[int, list[tuple[int, Item]]] = {}
    for child in children:
        parts.setdefault(child[0] >> left, []).append(child)
    if len(parts) == 1:
        return _branch(children, left, bits, fan_in)
    return Branch(tuple(own[0][1] if len(own) == 1 else _branch(own, left, bits, fan_in) for own in parts.values()))
