"""Lengths of strings and binary values, the mean length, and the total bytes of all values.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.startup import pc
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext
from metastore_assets.values.physical import storage
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.statistics.blocks import ValueBlock


@dataclass
class LengthState:
    """Totals and extremes of the lengths so far: characters of strings, bytes of binary values."""

    has_lengths: bool
    value_width: int
    total_length: int = 0
    total_bytes: int = 0
    minimum: int | None = None
    maximum: int | None = None


class LengthStatistics(BuiltinStatistic[LengthState]):
    """Minimum, maximum, mean and total length, and total bytes.

    Types other than strings and binary have only total bytes. The profiler computes the lengths of lists and maps,
    which have no type class.
    """

    name = "lengths"
    version = "1"
    columns = ("minimum_length", "maximum_length", "mean_length", "total_length", "total_bytes")

    def initial(self, context: ColumnContext) -> LengthState:
        return LengthState(has_byte_length(context.cls), context.value_width)

    def update(self, state: LengthState, block: ValueBlock) -> LengthState:
        """Add the lengths of a block.

        Raises UnsupportedTypeError for a string that is not UTF-8.
        """
        if not state.has_lengths or not len(block):
            return state
        values = storage(block.values)
        sizes = lengths = pc.binary_length(values).to_numpy()
        if block.cls.name == "string" and not _is_ascii(values):
            try:
                block.values.validate(full=True)
            except pa.ArrowInvalid as error:
                raise UnsupportedTypeError(f"the column holds text that is not UTF-8: {error}") from error
            lengths = pc.utf8_length(block.values).to_numpy()
        shortest, longest = int(lengths.min()), int(lengths.max())
        state.total_length += int(np.dot(lengths, block.counts))
        state.total_bytes += int(np.dot(sizes, block.counts))
        state.minimum = shortest if state.minimum is None else min(state.minimum, shortest)
        state.maximum = longest if state.maximum is None else max(state.maximum, longest)
        return state

    def to_fields(self, state: LengthState, row: ColumnStatistics) -> Mapping[str, Any]:
        if not state.has_lengths:
            return {"total_bytes": row.value_count * state.value_width}
        return {
            "minimum_length": state.minimum,
            "maximum_length": state.maximum,
            "total_length": state.total_length,
            "total_bytes": state.total_bytes,
        }

    def finalize(self, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the field `mean_length`.

        It is None if there are no values, or if their lengths are not stored.
        """
        if row.total_length is None or not row.value_count:
            return {"mean_length": None}
        return {"mean_length": row.total_length / row.value_count}


def has_byte_length(cls: TypeClass) -> bool:
    """Return whether a type class has strings or binary values (also those of fixed size)."""
    return cls.name in ("string", "binary")


def _is_ascii(values: pa.LargeBinaryArray) -> bool:
    start, stop = (values.buffers()[1].slice(8 * (values.offset + at), 8).to_pybytes() for at in (0, len(values)))
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    data = data[int.from_bytes(start, "little") : int.from_bytes(stop, "little")]
    return len(data) == 0 or int(data.max()) < 128
