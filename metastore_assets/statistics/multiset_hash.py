"""A hash of the multiset of a column's values and nulls, which does not depend on the order of rows.

A *table of states* has the statistics of a set of rows in mergeable form, with one row per column of the data table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.hashing import Words, mix_bits
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext, Fold

if TYPE_CHECKING:
    from metastore_assets.statistics.blocks import ValueBlock

_NULL_HASHES = mix_bits(np.array([0x6E756C6C, 0x4E554C4C], np.uint64))  # of "null" and "NULL"


def multiset_hash(hashes: tuple[Words, Words], counts: npt.NDArray[np.int64]) -> bytes:
    """Return a 128-bit hash of a multiset.

    Each half is the sum of hash * count over all values, modulo 2**64.

    Equal multisets have equal hashes, and the hash of a union is the sum of hashes. Different multisets have equal
    hashes with a probability of about 2**-64, unless they were chosen to collide.

    Args:
        hashes: The two 64-bit hashes of each value.
        counts: How often each value occurs.
    """
    weights = counts.view(np.uint64)
    sums = [int((half * weights).sum(dtype=np.uint64)) for half in hashes]
    return struct.pack("<2Q", *sums)


def multiset_hash_of_nulls(count: int) -> bytes:
    """Return the hash of a multiset of `count` nulls."""
    return struct.pack("<2Q", *(null * count % 2**64 for null in _NULL_HASHES.tolist()))


def add_multiset_hashes(hashes: Sequence[bytes]) -> bytes:
    """Return the hash of the union of the hashed multisets."""
    halves = [struct.unpack("<2Q", each) for each in hashes]
    return struct.pack("<2Q", *(sum(column) % 2**64 for column in zip(*halves, strict=True)))


class MultisetHash(BuiltinStatistic[Fold[bytes]]):
    """The multiset hash of a column.

    If it is equal before and after a commit, the column has the same values.

    The hash covers nulls, too. This class does not override `merge`, because the function `merge_states` itself adds
    the hashes of all tables.
    """

    name = "multiset_hash"
    version = "1"
    columns = ("multiset_hash",)

    def initial(self, context: ColumnContext) -> Fold[bytes]:
        return Fold(add_multiset_hashes)

    def update(self, state: Fold[bytes], block: ValueBlock) -> Fold[bytes]:
        state.add(multiset_hash(block.hashes, block.counts))
        return state

    def to_fields(self, state: Fold[bytes], row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the field `multiset_hash`: the hash of the state's values and of `row.null_count` nulls."""
        state.add(multiset_hash_of_nulls(row.null_count))
        return {"multiset_hash": state.total()}


def sum_multiset_hashes(tables: Sequence[pa.Table], is_undefined: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the sum of each column's multiset hashes in all tables; null if any hash is null.

    Args:
        tables: Tables of states. Row i of each belongs to the same column of the data table.
        is_undefined: Mask of columns whose sum is null in any case.
    """
    is_null = is_undefined.copy()
    total = np.zeros((len(is_undefined), 2), np.uint64)
    for table in tables:
        column = table["multiset_hash"].chunk(0) if table.num_rows else pa.array([], pa.binary())
        is_null |= column.is_null().to_numpy(zero_copy_only=False)
        halves = column.fill_null(bytes(16)).cast(pa.binary(16))
        total += np.frombuffer(halves.buffers()[1], "<u8", 2 * len(halves), 16 * halves.offset).reshape(-1, 2)
    sums = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(is_undefined), [None, pa.py_buffer(total)])
    return pc.if_else(pa.array(is_null), None, sums.cast(pa.binary()))
