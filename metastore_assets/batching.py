"""Division of a sequence of items into batches. (`itertools.batched` needs Python 3.12.)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size` items. The last list may be shorter. A batch is taken when it is needed."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
