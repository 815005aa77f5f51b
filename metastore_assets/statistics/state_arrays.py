"""Lists and chunks of tables of states as numpy arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.values.physical import one_chunk

ListParts = tuple[npt.NDArray[np.int32], npt.NDArray[Any]]
"""Offsets of lists, one more than there are lists, and the elements of all lists."""


def split_lists(column: pa.ChunkedArray | pa.Array) -> ListParts:
    """Return the offsets and the elements of a column of lists; the first offset is 0."""
    array = one_chunk(column)
    offsets = array.offsets.to_numpy()
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets - start, array.values.slice(start, stop - start).to_numpy()


def build_list_array(lists: Sequence[npt.NDArray[Any] | None], dtype: type[np.generic]) -> pa.ListArray:
    """Return a column of lists, null for None, whose elements are of a numpy type."""
    lengths = [0 if elements is None else len(elements) for elements in lists]
    present = [elements for elements in lists if elements is not None]
    values = np.concatenate(present).astype(dtype, copy=False) if present else np.zeros(0, dtype)
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    is_null = pa.array([elements is None for elements in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=is_null)


def combine_to_one_chunk(table: pa.Table) -> pa.Table:
    """Return the table with one chunk per column, also if it has no rows."""
    if table.num_rows:
        return table.combine_chunks()
    arrays = [one_chunk(column) for column in table.columns]
    return pa.Table.from_arrays(arrays, schema=table.schema)
