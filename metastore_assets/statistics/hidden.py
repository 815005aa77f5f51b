"""What is kept of values that must not be shown: how many distinct ones there are, about, and a fingerprint, keyed."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.statistics.blocks import passing_block
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import Fold
from metastore_assets.statistics.distinct import (
    EMPTY_SKETCH,
    add_multiset_hashes,
    distinct_sketch,
    estimate_distinct,
    merge_distinct_sketches,
    multiset_hash,
    multiset_hash_of_nulls,
)
from metastore_assets.statistics.keyed_hashing import keyed
from metastore_assets.statistics.runs import BLOCK, SortedValues
from metastore_assets.values.types import TypeClass


class HiddenValues:
    """Takes a column's values, and keeps nothing of them that can be told without the key."""

    def __init__(self, cls: TypeClass, key: bytes) -> None:
        self._class = cls
        self._key = key
        self._sketches: Fold[bytes] = Fold(merge_distinct_sketches)
        self._prints: Fold[bytes] = Fold(add_multiset_hashes)

    def take(self, run: SortedValues) -> bool:
        """Take values in any order, or counted ones. True: they need not be counted."""
        for start in range(0, len(run), BLOCK):
            block = passing_block(run.part(start, min(start + BLOCK, len(run))), self._class)
            hashes = keyed(block.hashes(), self._key)
            self._sketches.add(distinct_sketch(hashes[0]))
            self._prints.add(multiset_hash(hashes, block.counts))
        return True

    def finish(self, row: ColumnStatistics) -> ColumnStatistics:
        """`row`, which has the counts of values and nulls, with the number of distinct values."""
        self._prints.add(multiset_hash_of_nulls(row.null_count))
        sketch = self._sketches.total() or EMPTY_SKETCH
        return replace(
            row,
            distinct_count=max(1, min(estimate_distinct(sketch), row.value_count)) if row.value_count else 0,
            distinct_count_guarantee="estimate" if row.value_count else "exact",
            distinct_sketch=sketch,
            multiset_hash=self._prints.total(),
        )
