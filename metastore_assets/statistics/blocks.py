"""Blocks: batches of a column's values with their counts.

Statistics are updated block by block.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type,
the *canonical type*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.startup import lazy_module
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.hashing import Words, hash_numbers, hash_values
from metastore_assets.statistics.value_runs import ValueRun, count_values
from metastore_assets.values.physical import (
    Numbers,
    canonical_array,
    integers_array,
    numbers,
    positive_zeros,
    storage,
)
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_module("polars")


@dataclass(frozen=True)
class ValueBlock:
    """Some of a column's values, without nulls, with their counts.

    Numbers, dates and times are always in ascending order, NaN last. Other values are ascending only if `is_sorted`.
    """

    cls: TypeClass
    counts: npt.NDArray[np.int64]
    numbers: Numbers | None
    """The values as integers or doubles: dates in days, times in their unit, decimals unscaled. None for other types.
    """
    values: pa.Array
    """The values in the canonical type. An unsorted block with `numbers` may have only nulls here, as placeholders.
    `canonical_values()` then converts `numbers`."""
    is_sorted: bool
    """Whether all blocks of the column together are one ascending sequence, in which each value occurs once."""

    def __len__(self) -> int:
        return len(self.counts)

    def canonical_values(self) -> pa.Array:
        """Return the values as an Arrow array of the canonical type."""
        if self.numbers is None or self.values.type == self.cls.arrow:
            return self.values
        return canonical_array(pl.Series(self.numbers), self.cls)

    # The cached properties have no lock, because one thread updates all statistics of a column.
    @cached_property
    def hashes(self) -> tuple[Words, Words]:
        """Two 64-bit hashes of each value."""
        if self.numbers is not None and self.numbers.dtype != object:
            return hash_numbers(self.numbers, self.cls)
        return hash_values(self.values, self.cls)

    @property
    def nan_count(self) -> int:
        """The number of NaN values: the sum of their counts."""
        return int(self.counts[len(self.without_nan) :].sum())

    @cached_property
    def without_nan(self) -> ValueBlock:
        """The block without NaN."""
        if self.cls.kind != "float" or self.numbers is None:
            return self
        end = len(self) - int(np.isnan(self.numbers).sum())
        return ValueBlock(self.cls, self.counts[:end], self.numbers[:end], self.values.slice(0, end), self.is_sorted)

    def min_max(self) -> tuple[pa.Scalar, pa.Scalar]:
        """Return the least and the greatest value as scalars of the canonical type.

        Call it only for a block that has values and no NaN, such as a non-empty `without_nan`. This is not checked.
        """
        if self.numbers is not None:
            return self._scalar(self.numbers[0]), self._scalar(self.numbers[-1])
        if self.cls.kind == "boolean":
            return pc.min(self.values), pc.max(self.values)
        extremes = pc.min_max(storage(self.values))
        pair = pa.array([extremes["min"], extremes["max"]], pa.large_binary())
        if self.cls.name == "uuid":
            pair = pa.ExtensionArray.from_storage(self.cls.arrow, pair.cast(self.cls.arrow.storage_type))
        pair = pair.view(self.cls.arrow)
        return pair[0], pair[1]

    def _scalar(self, number: int | float) -> pa.Scalar:
        if self.cls.kind == "float":
            return pa.scalar(float(number), self.cls.arrow)
        return integers_array([int(number)], self.cls)[0]


def sorted_block(frequencies: Frequencies) -> ValueBlock:
    """Return a sorted block of values.

    Args:
        frequencies: Ascending values with their counts in the whole column. The values must be greater than those in
            earlier blocks of the column, because distinct values are counted block by block. This is not checked.
    """
    cls, values = frequencies.type_class, frequencies.values
    ordinals = numbers(values, cls) if cls.is_ordinal else None
    return ValueBlock(cls, frequencies.counts.to_numpy(), ordinals, values, is_sorted=True)


def unsorted_block(run: ValueRun, cls: TypeClass) -> ValueBlock:
    """Return a block whose values may also occur in other blocks of the column (`is_sorted` is false).

    Other blocks may have smaller values, too. Within the block, numbers, dates and times are nevertheless in ascending
    order.

    Args:
        run: Distinct values with their counts, or one value per row in any order.
        cls: The type class of the column.
    """
    if run.counts is None and cls.is_ordinal:
        is_float = run.values.dtype == pl.Float64
        run = count_values(pl.Series(positive_zeros(run.values.to_numpy())) if is_float else run.values)
    counts = np.ones(len(run), np.int64) if run.counts is None else run.counts
    if not cls.is_ordinal:
        return ValueBlock(cls, counts, None, canonical_array(run.values, cls), is_sorted=False)
    if run.values.dtype == pl.Int128:
        values = canonical_array(run.values, cls)
        return ValueBlock(cls, counts, numbers(values, cls), values, is_sorted=False)
    physical = run.values.to_numpy()
    numeric = positive_zeros(physical) if cls.kind == "float" else physical
    return ValueBlock(cls, counts, numeric, pa.nulls(len(run)), is_sorted=False)
