"""Merging the bounds of many columns at once: the outermost of each, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.statistics.union import scatter_values, select_class
from metastore_assets.values.physical import comparable, numbers
from metastore_assets.values.types import TypeClass

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bounds:
    """The minimum or maximum of columns."""

    values: pa.StructArray
    """Typed union; null: there is no such value if exact, else it is not known."""
    exact: Flags

    def distances_to(self, upper: Bounds, classes: Sequence[TypeClass | None]) -> list[int | float | None]:
        """How far these are from `upper`, in physical units; for classes without any, 0 if they are equal and 1 if not.

        None where one of the two is missing, but 0 where both are.
        """
        found: list[int | float | None] = [None] * len(classes)
        missing = [bounds.values.is_null().to_numpy(zero_copy_only=False) for bounds in (self, upper)]
        for at in np.flatnonzero(missing[0] & missing[1]).tolist():
            found[at] = 0
        here = ~(missing[0] | missing[1])
        for cls in {cls for cls in classes if cls is not None}:
            rows = [at for at, own in enumerate(classes) if own == cls and here[at]]
            low, high = (select_class(bounds.values, cls).take(pa.array(rows, pa.int64())) for bounds in (self, upper))
            if cls.is_ordinal:
                pairs = zip(numbers(high, cls).tolist(), numbers(low, cls).tolist(), strict=True)
                spans: list[int | float] = [0 if high == low else high - low for high, low in pairs]
            else:
                spans = pc.not_equal(comparable(low), comparable(high)).cast(pa.uint8()).to_pylist()
            for at, span in zip(rows, spans, strict=True):
                found[at] = span
        return found


def merge_bounds(
    parts: Sequence[pa.Table],
    side: Literal["minimum", "maximum"],
    typed: Flags,
    classes: Sequence[TypeClass | None],
    union: pa.StructType,
) -> Bounds:
    """The outermost bounds of the columns of tables of states, of the parts that have a say in each (`typed`).

    Exact if one of the equal ones is: an inexact one then stands for a value further in. Without a value, and not
    exact, if one of them is.
    """
    choose = pc.min_element_wise if side == "minimum" else pc.max_element_wise
    exact = np.zeros(len(classes), np.bool_)
    found: dict[str, tuple[npt.NDArray[np.intp], pa.Array]] = {}
    told = np.array([part[f"{side}_exact"].fill_null(fill_value=False).to_numpy() for part in parts])
    every = pa.concat_arrays([part[side].chunk(0) for part in parts])
    for cls in {cls for cls in classes if cls is not None}:
        rows = np.array([at for at, own in enumerate(classes) if own == cls])
        says = typed[:, rows]
        sure = told[:, rows] & says
        # The values of all parts, one after the other: a call of Arrow costs more than what it does to some values.
        places = (rows + len(classes) * np.arange(len(parts))[:, None]).ravel()
        values = comparable(select_class(every, cls).take(pa.array(places, mask=~says.ravel())))
        if t.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())  # of slices of the others Arrow takes the first values for the least
        here = values.is_valid().to_numpy(zero_copy_only=False).reshape(says.shape)
        best = choose(*(values.slice(first, len(rows)) for first in range(0, len(values), len(rows))))
        equal = pc.equal(values, pa.concat_arrays([best] * len(parts))).fill_null(fill_value=False)
        is_best = equal.to_numpy(zero_copy_only=False).reshape(says.shape)
        unknown = (says & ~here & ~sure).any(axis=0)
        exact[rows] = ((sure & is_best).any(axis=0) | ~here.any(axis=0)) & ~unknown
        if unknown.any():
            best = pc.if_else(pa.array(unknown), pa.scalar(None, best.type), best)
        found[cls.name] = (rows, _canonical(best, cls))
    return Bounds(scatter_values(found, len(classes), union), exact)


def _canonical(values: pa.Array, cls: TypeClass) -> pa.Array:
    """The inverse of `comparable`."""
    if isinstance(cls.arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(cls.arrow, values.cast(cls.arrow.storage_type))
    if t.is_boolean(cls.arrow):
        return values.cast(pa.bool_())
    return values.view(cls.arrow) if t.is_timestamp(cls.arrow) else values
