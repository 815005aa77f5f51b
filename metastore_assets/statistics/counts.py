"""Counts of special values: NaN among floats, true among booleans.

`value_count` and `null_count` are not computed here: the profiler computes them from validity bitmaps, even if the
values of a column are not profiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.blocks import ValueBlock


class NanCount(BuiltinStatistic[int]):
    """The number of NaN among floats."""

    name = "nan_count"
    version = "1"
    columns = ("nan_count",)

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        return cls.kind == "float"

    def initial(self, context: ColumnContext) -> int:
        return 0

    def update(self, state: int, block: ValueBlock) -> int:
        return state + block.nan_count

    def to_fields(self, state: int, row: ColumnStatistics) -> Mapping[str, Any]:
        return {"nan_count": state}


class TrueCount(BuiltinStatistic[int]):
    """The number of true booleans."""

    name = "true_count"
    version = "1"
    columns = ("true_count",)

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        return cls.kind == "boolean"

    def initial(self, context: ColumnContext) -> int:
        return 0

    def update(self, state: int, block: ValueBlock) -> int:
        return state + int(block.counts[block.values.to_numpy(zero_copy_only=False)].sum())

    def to_fields(self, state: int, row: ColumnStatistics) -> Mapping[str, Any]:
        return {"true_count": state}
