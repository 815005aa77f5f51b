"""Division of a sequence of items into batches.

(`itertools.batched` needs Python 3.12.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Rows(Protocol):
    """Rows in memory, such as an Arrow array or a record batch."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    def __len__(self) -> int: ...


RowsT = TypeVar("RowsT", bound=Rows)


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size` items.

    The last list may be shorter. The items of a list are taken from `items` when the caller requests the list.
    """
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def group_rows(
    pieces: Iterable[RowsT],
    max_rows: int,
    max_bytes: int,
    can_join: Callable[[RowsT, RowsT], bool] = lambda last, piece: True,
) -> Iterator[Sequence[RowsT]]:
    """Yield groups of adjacent pieces of rows, so that the caller can join the pieces of each group.

    Empty pieces are left out.

    Args:
        pieces: Arrays or record batches, for example, in the order of the rows.
        max_rows: The maximum number of rows of a group. A larger piece is alone in its group.
        max_bytes: The maximum size of a group in bytes. A larger piece is alone in its group.
        can_join: Returns whether a piece may be in the same group as the piece before it.
    """
    group: list[RowsT] = []
    rows = size = 0
    for piece in pieces:
        if not len(piece):
            continue
        is_full = rows + len(piece) > max_rows or size + piece.nbytes > max_bytes
        if group and (is_full or not can_join(group[-1], piece)):
            yield group
            group, rows, size = [], 0, 0
        group.append(piece)
        rows, size = rows + len(piece), size + piece.nbytes
    if group:
        yield group
