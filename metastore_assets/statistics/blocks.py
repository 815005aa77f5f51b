"""Blocks of values with their counts: what statistics are computed of at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.startup import lazy_module
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.hashing import Words, hash_numbers, hash_values
from metastore_assets.statistics.runs import SortedValues, count_values
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
class Block:
    """Values of one class, no nulls among them, with their counts: numbers ascending, NaN last; others in any order."""

    cls: TypeClass
    counts: npt.NDArray[np.int64]
    numbers: Numbers | None
    """Physical values, where they are numbers."""
    values: pa.Array
    """Of the canonical type; all null where the numbers say it all."""

    def __len__(self) -> int:
        return len(self.counts)

    def array(self) -> pa.Array:
        """The values, of the canonical type."""
        if self.numbers is None or self.values.type == self.cls.arrow:
            return self.values
        return canonical_array(pl.Series(self.numbers), self.cls)

    def hashes(self) -> tuple[Words, Words]:
        """Two hashes of each value."""
        if self.numbers is not None and self.numbers.dtype != object:
            return hash_numbers(self.numbers, self.cls)
        return hash_values(self.values, self.cls)

    def without_nan(self) -> tuple[Block, int]:
        """The values but NaN, and how often that occurs."""
        if self.cls.kind != "float" or self.numbers is None:
            return self, 0
        end = len(self) - int(np.isnan(self.numbers).sum())
        nans = int(self.counts[end:].sum())
        return Block(self.cls, self.counts[:end], self.numbers[:end], self.values.slice(0, end)), nans

    def extent(self) -> tuple[pa.Scalar, pa.Scalar]:
        """Least and greatest of one value or more, as scalars of the class."""
        if self.numbers is not None:
            return self._scalar(self.numbers[0]), self._scalar(self.numbers[-1])
        if self.cls.kind == "boolean":
            return pc.min(self.values), pc.max(self.values)
        found = pc.min_max(storage(self.values))
        ends = pa.array([found["min"], found["max"]], pa.large_binary())
        if self.cls.name == "uuid":
            ends = pa.ExtensionArray.from_storage(self.cls.arrow, ends.cast(self.cls.arrow.storage_type))
        ends = ends.view(self.cls.arrow)
        return ends[0], ends[1]

    def _scalar(self, number: int | float) -> pa.Scalar:
        if self.cls.kind == "float":
            return pa.scalar(float(number), self.cls.arrow)
        return integers_array([int(number)], self.cls)[0]


def listed_block(frequencies: Frequencies) -> Block:
    """A list of distinct values, or a part of one, as a block."""
    cls, values = frequencies.type_class, frequencies.values
    return Block(cls, frequencies.counts.to_numpy(), numbers(values, cls) if cls.is_ordinal else None, values)


def passing_block(run: SortedValues, cls: TypeClass) -> Block:
    """Values in any order that were not counted, or counted ones, as a block. Numbers are counted, so as to ascend."""
    if run.counts is None and cls.is_ordinal:
        run = count_values(
            pl.Series(positive_zeros(run.values.to_numpy())) if run.values.dtype == pl.Float64 else run.values
        )
    counts = np.ones(len(run), np.int64) if run.counts is None else run.counts
    if not cls.is_ordinal:
        return Block(cls, counts, None, canonical_array(run.values, cls))
    if run.values.dtype == pl.Int128:
        values = canonical_array(run.values, cls)
        return Block(cls, counts, numbers(values, cls), values)
    physical = run.values.to_numpy()
    return Block(cls, counts, positive_zeros(physical) if cls.kind == "float" else physical, pa.nulls(len(run)))
