"""The shape of a tree of merges: a pure function of its children that splits locally.

A trie over the bits of the children's positions. A branch that holds more than `fan_in` children splits into as many
parts as a power of two allows, each of which is a branch of its own; a part with a single child is that child. So a
child that comes or goes touches the branches on its way, about log(n) of them, and where one splits or closes, at most
a fan-in more; none of the others, whatever the number of children. (A width that follows from the number of all
children would rebuild the whole tree wherever it changes.)
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
    """What one merge reads: at most `fan_in` children and results of other branches."""

    parts: tuple[Branch[Item] | Item, ...]
    """By increasing position."""


def levels(root: Branch[Item]) -> list[list[Branch[Item]]]:
    """The branches below the root by height: first those that hold nothing but children; each after what it holds."""
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
    """Where a child with that key stands: 64 bits that are as good as random, the same in every process."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return int.from_bytes(digest, "big")


def merge_tree(children: Sequence[tuple[int, Item]], fan_in: int) -> Branch[Item]:
    """The root of the tree over (position, child), in any order; `fan_in` is 2 or more.

    Only children that share all 64 bits of their position make a branch wider than `fan_in`.
    """
    return _branch(sorted(children, key=lambda child: child[0]), _BITS, fan_in.bit_length() - 1, fan_in)


def _branch(children: Sequence[tuple[int, Item]], left: int, bits: int, fan_in: int) -> Branch[Item]:
    """The branch over children, sorted, that agree in all but the last `left` bits."""
    if len(children) <= fan_in or not left:
        return Branch(tuple(child for _, child in children))
    left = max(0, left - bits)
    parts: dict[int, list[tuple[int, Item]]] = {}
    for child in children:
        parts.setdefault(child[0] >> left, []).append(child)
    if len(parts) == 1:
        return _branch(children, left, bits, fan_in)
    return Branch(tuple(own[0][1] if len(own) == 1 else _branch(own, left, bits, fan_in) for own in parts.values()))
