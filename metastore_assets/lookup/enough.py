"""Enough fragments for so many rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from metastore_assets.expressions.row_bounds import Int64Array, Mask, RowBounds


def enough(bounds: RowBounds, sizes: Int64Array, limit: int) -> Mask:
    """Which sets of rows have `limit` rows between them for sure: as few sets as that takes, of these the smallest.

    All that may have any where it is not sure that there are so many. `sizes`: bytes of each set.
    """
    may = bounds.most > 0
    order = np.lexsort((sizes, -bounds.least))
    order = order[may[order]]
    sure = np.cumsum(bounds.least[order])
    needed: npt.NDArray[np.intp] = order[: int(np.searchsorted(sure, limit)) + 1 if limit else 0]
    if limit and (not len(sure) or sure[-1] < limit):
        return may
    found = np.zeros(len(may), np.bool_)
    found[needed] = True
    return found
