"""Minimum and maximum: exact values, or bounds of long strings and binary values.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type. A
*typed union* is a struct with one field per type class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.startup import pc
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext
from metastore_assets.statistics.lengths import has_byte_length
from metastore_assets.statistics.merge_rules import Flags, MergeParts
from metastore_assets.statistics.typed_union import scatter_values, select_class
from metastore_assets.values.physical import comparable, numbers, order_key
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.statistics.blocks import ValueBlock

Side = Literal["minimum", "maximum"]


@dataclass
class ExtremesState:
    """The least and the greatest value so far, NaN excluded; None before the first value."""

    cls: TypeClass
    minimum: pa.Scalar | None = None
    maximum: pa.Scalar | None = None

    def update_bounds(self, minimum: pa.Scalar, maximum: pa.Scalar) -> None:
        """Extend the bounds so that they contain both values."""
        if self.minimum is None or order_key(minimum) < order_key(self.minimum):
            self.minimum = minimum
        if self.maximum is None or order_key(maximum) > order_key(self.maximum):
            self.maximum = maximum


class Extremes(BuiltinStatistic[ExtremesState]):
    """Minimum and maximum, and whether each is exact or only a bound."""

    name = "extremes"
    version = "1"
    columns = ("minimum", "maximum", "minimum_exact", "maximum_exact")

    def initial(self, context: ColumnContext) -> ExtremesState:
        return ExtremesState(context.cls)

    def update(self, state: ExtremesState, block: ValueBlock) -> ExtremesState:
        values = block.without_nan
        if len(values):
            state.update_bounds(*values.min_max())
        return state

    def to_fields(self, state: ExtremesState, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return minimum and maximum, and whether each is exact.

        Long strings and binary values are replaced by shorter bounds.
        """
        minimum, maximum = state.minimum, state.maximum
        minimum_exact = maximum_exact = True
        if minimum is not None and maximum is not None and has_byte_length(state.cls):
            minimum, minimum_exact = truncate_lower(minimum.as_buffer().to_pybytes(), state.cls)
            maximum, maximum_exact = truncate_upper(maximum.as_buffer().to_pybytes(), state.cls)
        return {
            "minimum": minimum,
            "maximum": maximum,
            "minimum_exact": minimum_exact,
            "maximum_exact": maximum_exact,
        }

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return the least minimum and the greatest maximum of the parts, and whether each is exact."""
        columns: dict[str, pa.Array] = {}
        for side in ("minimum", "maximum"):
            columns[side], exact = _merge_side(parts, side)
            columns[f"{side}_exact"] = pa.array(exact)
        return columns


@dataclass(frozen=True)
class MergedBounds:
    """The minimum and the maximum of each of several columns, after a merge of their statistics.

    Each array has one element per column, in a typed union (a struct with a field per type class). An element is null
    if its column has no value, or if the bound is unknown.
    """

    minimum: pa.StructArray
    maximum: pa.StructArray
    both_exact: Sequence[bool]
    """For each column, whether minimum and maximum are both exact."""

    @classmethod
    def of_columns(cls, merged_columns: Mapping[str, Any]) -> MergedBounds:
        """Return the bounds from merged statistics.

        Args:
            merged_columns: The name of each merged statistic, with an array of its values for all columns.
        """
        exact = (merged_columns[f"{side}_exact"].to_pylist() for side in ("minimum", "maximum"))
        return cls(
            merged_columns["minimum"],
            merged_columns["maximum"],
            [low and high for low, high in zip(*exact, strict=True)],
        )

    def value_ranges(self, classes: Sequence[TypeClass | None]) -> list[int | float | None]:
        """Return maximum minus minimum of each column; 0 if both are null, None if only one is null.

        The difference is in days for dates, in the unit of the type for times, and unscaled for decimals. Strings and
        other types without differences have 0 if minimum and maximum are equal, and 1 otherwise.

        Args:
            classes: The type class of each column; None for a column without one.
        """
        ranges: list[int | float | None] = [None] * len(classes)
        is_null = [bound.is_null().to_numpy(zero_copy_only=False) for bound in (self.minimum, self.maximum)]
        for at in np.flatnonzero(is_null[0] & is_null[1]).tolist():
            ranges[at] = 0
        has_both = ~(is_null[0] | is_null[1])
        for cls in {cls for cls in classes if cls is not None}:
            rows = [at for at, column_class in enumerate(classes) if column_class == cls and has_both[at]]
            indices = pa.array(rows, pa.int64())
            low, high = (select_class(bound, cls).take(indices) for bound in (self.minimum, self.maximum))
            if cls.is_ordinal:
                pairs = zip(numbers(high, cls).tolist(), numbers(low, cls).tolist(), strict=True)
                class_ranges: list[int | float] = [0 if high == low else high - low for high, low in pairs]
            else:
                class_ranges = pc.not_equal(comparable(low), comparable(high)).cast(pa.uint8()).to_pylist()
            for at, value_range in zip(rows, class_ranges, strict=True):
                ranges[at] = value_range
        return ranges


def _merge_side(parts: MergeParts, side: Side) -> tuple[pa.StructArray, Flags]:
    """Merge the minima of the parts to the least one of each column, or the maxima to the greatest one.

    The parts are tables with the statistics of disjoint sets of rows. A bound that is null and not exact is unknown. If
    a part has values of a column and its bound is unknown, the merged bound is unknown, too. If no part has a value of
    the column, the merged bound is null and exact.

    Returns:
        (the bound of each column in the typed union, whether each is exact). Columns without a type class have null and
        false.
    """
    classes = parts.classes
    choose = pc.min_element_wise if side == "minimum" else pc.max_element_wise
    exact = np.zeros(len(classes), np.bool_)
    by_class: dict[str, tuple[npt.NDArray[np.intp], pa.Array]] = {}
    part_exact = np.array([table[f"{side}_exact"].fill_null(fill_value=False).to_numpy() for table in parts.tables])
    # The values of all parts in sequence: one call of Arrow costs more than its work on a few values.
    all_values = pa.concat_arrays([table[side].chunk(0) for table in parts.tables])
    for cls in {cls for cls in classes if cls is not None}:
        rows = np.array([at for at, column_class in enumerate(classes) if column_class == cls])
        is_typed = parts.typed[:, rows]
        is_exact = part_exact[:, rows] & is_typed
        indices = (rows + len(classes) * np.arange(len(parts.tables))[:, None]).ravel()
        values = comparable(select_class(all_values, cls).take(pa.array(indices, mask=~is_typed.ravel())))
        if t.is_fixed_size_binary(values.type):
            # Arrow reads slices of fixed-size binary from their first buffer element.
            values = values.cast(pa.binary())
        has_value = values.is_valid().to_numpy(zero_copy_only=False).reshape(is_typed.shape)
        best = choose(*(values.slice(first, len(rows)) for first in range(0, len(values), len(rows))))
        equal = pc.equal(values, pa.concat_arrays([best] * len(parts.tables))).fill_null(fill_value=False)
        is_best = equal.to_numpy(zero_copy_only=False).reshape(is_typed.shape)
        is_unknown = (is_typed & ~has_value & ~is_exact).any(axis=0)
        exact[rows] = ((is_exact & is_best).any(axis=0) | ~has_value.any(axis=0)) & ~is_unknown
        if is_unknown.any():
            best = pc.if_else(pa.array(is_unknown), pa.scalar(None, best.type), best)
        by_class[cls.name] = (rows, _from_comparable(best, cls))
    return scatter_values(by_class, len(classes), parts.union), exact


def _from_comparable(values: pa.Array, cls: TypeClass) -> pa.Array:
    """Convert results of `comparable` back to `cls.arrow`, the Arrow type of the values of a type class."""
    if isinstance(cls.arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(cls.arrow, values.cast(cls.arrow.storage_type))
    if t.is_boolean(cls.arrow):
        return values.cast(pa.bool_())
    return values.view(cls.arrow) if t.is_timestamp(cls.arrow) else values
