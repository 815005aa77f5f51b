"""Division of a sequence of items into batches. (`itertools.batched` needs Python 3.12.)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size` items. The last list may be shorter.

    `items` is iterated only as far as the lists that the caller has requested.
    """
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
