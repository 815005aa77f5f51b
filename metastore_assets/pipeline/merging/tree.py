"""The shape of the tree along which the profiles of a group are merged.

The shape depends only on the group's children.

The tree is a trie over the bits of the children's positions. A branch with more than `fan_in` children splits into a
power of two of parts. A part with one child is that child. Adding or removing a child changes about log(n) branches
above it, and at most `fan_in` more if a branch splits or merges. All other branches stay the same. (If the width
depended on the number of children, a change of the width would rebuild the tree.)
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
    """The inputs of one merge: at most `fan_in` parts, which are children or other branches."""

    parts: tuple[Branch[Item] | Item, ...]
    """The parts, by increasing position."""


def levels(root: Branch[Item]) -> list[list[Branch[Item]]]:
    """Return all branches except the root, grouped by height: the first list has the lowest branches."""
    by_height: list[list[Branch[Item]]] = []

    def height(branch: Branch[Item]) -> int:
        result = max((height(part) + 1 for part in branch.parts if isinstance(part, Branch)), default=0)
        if branch is not root:
            by_height.extend([] for _ in range(len(by_height), result + 1))
            by_height[result].append(branch)
        return result

    height(root)
    return by_height


def key_position(key: str) -> int:
    """Return the position of a child: a 64-bit hash of its key that is the same in every process."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return int.from_bytes(digest, "big")


def merge_tree(children: Sequence[tuple[int, Item]], fan_in: int) -> Branch[Item]:
    """Return the root of the tree of some children.

    Only children that share all 64 bits of their position make a branch wider than `fan_in`.

    Args:
        children: (position, child) pairs, in any order.
        fan_in: The maximum number of parts of a branch; at least 2.
    """
    return _branch(sorted(children, key=lambda child: child[0]), _BITS, fan_in.bit_length() - 1, fan_in)


def _branch(children: Sequence[tuple[int, Item]], low_bits: int, bits: int, fan_in: int) -> Branch[Item]:
    """Build the branch of sorted children whose positions differ only in the last `low_bits` bits.

    Each level splits by `bits` bits.
    """
    if len(children) <= fan_in or not low_bits:
        return Branch(tuple(child for _, child in children))
    low_bits = max(0, low_bits - bits)
    parts: dict[int, list[tuple[int, Item]]] = {}
    for child in children:
        parts.setdefault(child[0] >> low_bits, []).append(child)
    if len(parts) == 1:
        return _branch(children, low_bits, bits, fan_in)
    return Branch(
        tuple(part[0][1] if len(part) == 1 else _branch(part, low_bits, bits, fan_in) for part in parts.values())
    )
