"""Equi-height histograms of Spark, and their encoding as text for a table property.

All bins of an equi-height histogram have the same number of rows. In Spark, the class is
`org.apache.spark.sql.catalyst.plans.logical.Histogram`, and `HistogramSerializer` decodes the text. A version is the
published statistics of a table at one snapshot.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.exports.spark.catalog_columns import SparkColumn, find_bounds, value_as_double
from metastore_assets.lookup.relation import Relation
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies

MAX_BINS = 2_500
"""The greatest number of bins, so that a histogram fits into one block of LZ4."""
_MAX_ENUMERATED = 5_000_000
"""The greatest number of distinct values that are read for the histogram of one column."""
_MAGIC = b"LZ4Block"
_LEVEL = 6
"""The code of blocks of 64 KiB. Readers of the LZ4 stream compute the size of their buffer from it."""
_STORED, _COMPRESSED = 0x10 | _LEVEL, 0x20 | _LEVEL
_SEED = 0x9747B28C
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class EquiHeightHistogram:
    """A histogram whose bins have the same number of rows.

    A frequent value can fill several bins. The value is then both the lower and the upper edge of each of these bins.
    """

    height: float
    """Number of rows of each bin."""
    edges: tuple[float, ...]
    """The edges of the bins, ascending, one more than there are bins. Bin i has the values above `edges[i]` up to
    `edges[i + 1]`, inclusive; the first bin also has its lower edge."""
    distinct_counts: tuple[int, ...]
    """Number of distinct values of each bin, at least 1."""


def compute_histogram(
    lookup: Relation, column: SparkColumn, row: ColumnStatistics, bins: int
) -> EquiHeightHistogram | None:
    """Return the equi-height histogram of a column.

    It is exact if the column has at most 5 million distinct values, and the version stores all of them with their
    counts. Otherwise, the edges are quantiles, which may be estimates, and the distinct values are spread evenly over
    the bins.

    Args:
        lookup: The table, opened at the version.
        column: The column in Spark's catalog.
        row: The statistics of the column.
        bins: The number of bins, from 1 to `MAX_BINS`.

    Returns:
        The histogram; None for texts, bytes and booleans, and if bounds or quantiles are unknown.
    """
    bounds = find_bounds(column, row)
    rows = row.value_count - (row.nan_count or 0)
    if column.is_text or column.type == "boolean" or bounds is None or rows < 1:
        return None
    least, greatest = (value_as_double(column, bound) for bound in bounds)
    if row.frequencies == "enumerated" and (row.distinct_count or 0) <= _MAX_ENUMERATED:
        values, positions = find_edges(lookup.value_batches(row.column), rows, bins)
    else:
        try:
            quantiles = lookup.quantile(row.column, [index / bins for index in range(bins + 1)])
        except NotStoredError:
            return None
        values, positions = [quantile.value for quantile in quantiles if quantile.value is not None], []
    edges = np.maximum.accumulate([value_as_double(column, value) for value in values])
    edges[0], edges[-1] = least, greatest  # Spark fails if a bound is beyond the edges
    edges = edges.clip(least, greatest)
    if not positions:
        is_integer = not column.type.startswith(("decimal", "double", "float"))
        positions = spread_distinct_values(edges, row.distinct_count or 1, is_integer=is_integer)
    return build_histogram(edges.tolist(), positions, rows)


def find_edges(pieces: Iterable[Frequencies], rows: int, bins: int) -> tuple[list[pa.Scalar], list[int]]:
    """Return (the `bins + 1` values at the edges of bins of equal height, their positions).

    The values ascend from minimum to maximum. The positions are those among the sorted distinct values, counted from 0.

    Args:
        pieces: All values of a column with their frequencies, ascending, in pieces of any size.
        rows: The sum of the frequencies without NaN, at least 1.
        bins: The number of bins, at least 1.
    """
    ranks = np.maximum(-(-np.arange(bins + 1, dtype=np.int64) * rows // bins), 1)
    values: list[pa.Scalar] = []
    positions: list[int] = []
    rows_before = values_before = 0
    for piece in pieces:
        ends = rows_before + np.cumsum(piece.counts.to_numpy())
        indices: npt.NDArray[np.int64] = np.searchsorted(ends, ranks[len(values) :], "left")
        for index in indices[indices < len(ends)].tolist():
            values.append(piece.values[index])
            positions.append(values_before + index)
        if len(ends):
            rows_before, values_before = int(ends[-1]), values_before + len(ends)
    return values, positions


def build_histogram(edges: Sequence[float], positions: Sequence[int], rows: int) -> EquiHeightHistogram:
    """Create a histogram from the edges of its bins.

    Args:
        edges: The edges, ascending, one more than there are bins.
        positions: The 0-based position of each edge among the sorted distinct values of the column. The difference of
            neighbouring positions is the number of distinct values in a bin.
        rows: The number of rows in all bins together.
    """
    distinct = [max(1, upper - lower) for lower, upper in pairwise(positions)]
    if edges[0] < edges[1]:
        distinct[0] += 1  # the first bin also has its lower edge
    return EquiHeightHistogram(rows / len(distinct), tuple(edges), tuple(distinct))


def spread_distinct_values(edges: npt.NDArray[np.float64], distinct: int, *, is_integer: bool) -> list[int]:
    """Estimate the position of each edge among the sorted distinct values.

    The first position is 0.

    Args:
        edges: The edges of the bins, ascending. A bin with two equal edges gets no values.
        distinct: The number of distinct values of the column, which are shared equally among all other bins. Each of
            these gets at least one value, so the last position can differ from `distinct`.
        is_integer: Whether values are whole numbers. A bin then gets at most as many values as its width.
    """
    widths = np.diff(edges)
    counts = np.where(widths > 0, distinct / max(1, int((widths > 0).sum())), 0.0)
    if is_integer:
        counts = np.minimum(counts, widths)
    counts = np.where(widths > 0, np.maximum(np.rint(counts), 1), 0)
    return [0, *np.cumsum(counts).astype(np.int64).tolist()]


def encode_histogram(histogram: EquiHeightHistogram) -> str:
    """Encode a histogram as the text that Spark's `HistogramSerializer.deserialize` reads: LZ4 in base64."""
    bins = len(histogram.distinct_counts)
    data = b"".join(
        (
            struct.pack(">di", histogram.height, bins),
            struct.pack(f">{bins}d", *histogram.edges[:-1]),
            struct.pack(f">{bins}d", *histogram.edges[1:]),
            struct.pack(f">{bins}q", *histogram.distinct_counts),
            struct.pack(">i", -1),
        )
    )
    return base64.b64encode(_lz4_stream(data)).decode("ascii")


def _lz4_stream(data: bytes) -> bytes:
    """Compress data to one block in the format of lz4-java's `LZ4BlockOutputStream`.

    The caller must pass at most 64 KiB, because readers allocate this much for a block. The length is not checked.
    """
    compressed_data = pa.compress(data, codec="lz4_raw", asbytes=True)
    head = struct.pack("<BIII", _COMPRESSED, len(compressed_data), len(data), _xxhash32(data) & 0x0FFFFFFF)
    return _MAGIC + head + compressed_data + _MAGIC + struct.pack("<BIII", _STORED, 0, 0, 0)


def _xxhash32(data: bytes) -> int:
    """Return the XXH32 hash of data with the seed of lz4-java."""
    first, second, third, fourth, fifth = _PRIMES
    position = 0
    if len(data) >= 16:
        lanes = [(_SEED + start) & _MASK for start in (first + second, second, 0, -first)]
        while position <= len(data) - 16:
            for lane, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[lane] = _rotate(lanes[lane] + word * second, 13) * first & _MASK
            position += 16
        digest = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = _SEED + fifth
    digest += len(data)
    while position <= len(data) - 4:
        digest = _rotate(digest + struct.unpack_from("<I", data, position)[0] * third, 17) * fourth
        position += 4
    for byte in data[position:]:
        digest = _rotate(digest + byte * fifth, 11) * first
    digest &= _MASK
    digest = (digest ^ digest >> 15) * second & _MASK
    digest = (digest ^ digest >> 13) * third & _MASK
    return digest ^ digest >> 16


def _rotate(value: int, bits: int) -> int:
    """Rotate the lower 32 bits of a number to the left, and return them."""
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
