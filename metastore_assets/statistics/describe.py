"""The numbers of a statistics row, computed from the exact frequencies of all the values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.config import ColumnPolicy
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.bounds import lower_bound, upper_bound
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distinct import distinct_sketch, fingerprint
from metastore_assets.statistics.frequencies import Frequencies, frequency_facts, nan_frequency
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.statistics.leaves import plain_type
from metastore_assets.statistics.moments import encode_moments, moment_facts, moments_of
from metastore_assets.statistics.physical import numbers, storage
from metastore_assets.statistics.quantiles import build_quantile_sketch
from metastore_assets.statistics.types import TypeClass


def describe(
    row: ColumnStatistics, type: pa.DataType, frequencies: Frequencies, policy: ColumnPolicy
) -> ColumnStatistics:
    """`row` with everything that the frequencies of all its values say. `type` is the column's own type."""
    cls = frequencies.type_class
    counts = frequencies.counts.to_numpy()
    if cls.name in ("string", "binary"):
        row = replace(row, **_lengths(frequencies, cls, counts))
    else:
        row = replace(row, total_bytes=row.value_count * _width(type))
    hashes = hash_values(frequencies.values, cls)
    facts = frequency_facts(frequencies)
    row = replace(
        row,
        nan_count=nan_frequency(frequencies) if cls.kind == "float" else None,
        distinct_count=facts.distinct_count,
        distinct_count_guarantee="exact",
        duplicate_count=facts.duplicate_count,
        percentiles=facts.percentiles,
        percentiles_guarantee="exact",
        distinct_sketch=distinct_sketch(hashes[0]),
        fingerprint=fingerprint(hashes, counts, row.null_count),
        true_count=_true_count(frequencies) if cls.kind == "boolean" else None,
        **_bounds(frequencies, cls),
    )
    return replace(row, **_numeric(frequencies, cls, counts, policy)) if cls.is_ordinal else row


def _numeric(
    frequencies: Frequencies, cls: TypeClass, counts: npt.NDArray[np.int64], policy: ColumnPolicy
) -> dict[str, Any]:
    values = numbers(frequencies.values, cls)
    if nan_frequency(frequencies):
        values, counts = values[:-1], counts[:-1]
    found: dict[str, Any] = {}
    if cls.is_numeric:
        moments = moments_of(values, counts)
        found |= vars(moment_facts(moments, scale=None if cls.kind == "float" else cls.scale))
        found["moments"] = encode_moments(moments)
    if policy.quantiles != "off":
        points = values.astype(np.float64)
        finite = np.isfinite(points)
        found["quantile_sketch"] = build_quantile_sketch(points[finite], counts[finite])
    return found


def _bounds(frequencies: Frequencies, cls: TypeClass) -> dict[str, Any]:
    last = len(frequencies) - 1 - (1 if nan_frequency(frequencies) else 0)
    if last < 0:
        return {"minimum_exact": True, "maximum_exact": True}
    least, greatest = frequencies.values[0], frequencies.values[last]
    if cls.name not in ("string", "binary"):
        return {"minimum": least, "maximum": greatest, "minimum_exact": True, "maximum_exact": True}
    minimum, minimum_exact = lower_bound(least.as_buffer().to_pybytes(), cls)
    maximum, maximum_exact = upper_bound(greatest.as_buffer().to_pybytes(), cls)
    return {
        "minimum": minimum,
        "maximum": maximum,
        "minimum_exact": minimum_exact,
        "maximum_exact": maximum_exact,
    }


def _lengths(frequencies: Frequencies, cls: TypeClass, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
    values = storage(frequencies.values)
    sizes = lengths = pc.binary_length(values).to_numpy()
    if cls.name == "string" and not _is_ascii(values):
        try:
            frequencies.values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UnsupportedTypeError(f"the column holds text that is not UTF-8: {error}") from error
        lengths = pc.utf8_length(frequencies.values).to_numpy()
    total = int(np.dot(lengths, counts))
    n = int(counts.sum())
    return {
        "minimum_length": int(lengths.min()) if n else None,
        "maximum_length": int(lengths.max()) if n else None,
        "mean_length": total / n if n else None,
        "total_length": total,
        "total_bytes": int(np.dot(sizes, counts)),
    }


def _is_ascii(values: pa.LargeBinaryArray) -> bool:
    start, stop = (values.buffers()[1].slice(8 * (values.offset + at), 8).to_pybytes() for at in (0, len(values)))
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    data = data[int.from_bytes(start, "little") : int.from_bytes(stop, "little")]
    return len(data) == 0 or int(data.max()) < 128


def _true_count(frequencies: Frequencies) -> int:
    return sum(
        count
        for value, count in zip(frequencies.values.to_pylist(), frequencies.counts.to_pylist(), strict=True)
        if value
    )


def _width(type: pa.DataType) -> int:
    """Bytes of one value; a boolean counts as one."""
    plain = plain_type(type)
    if t.is_null(plain):
        return 0
    return 16 if plain == pa.uuid() else max(1, plain.bit_width // 8)
