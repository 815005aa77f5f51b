"""The quantile sketch: a t-digest of a column's finite values, in the form of Apache DataSketches.

A profile has its values sorted and counted, so its digest is cut from them directly: clusters of neighbours, none
wider than one step of the scale function k1 (Dunning, "Computing extremely accurate quantiles using t-digests",
2019), each as its mean and weight. That is a function of the multiset of values, whatever the order of the rows.
Merging is DataSketches' own; it is deterministic, but its outcome depends on how merges were grouped, so that
quantiles of merged digests are estimates.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import datasketches
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.statistics.frequencies import PERCENTS, Percentiles, nearest_ranks
from metastore_assets.statistics.physical import physical_value, scalar
from metastore_assets.statistics.types import TypeClass

COMPRESSION = 200
_STEPS = 200
"""Steps of the scale function: the most clusters of a digest cut here; DataSketches holds up to 2 * COMPRESSION."""
_HEADER = struct.Struct("<BBBHBHIIdd")


def build_quantile_sketch(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> bytes | None:
    """The digest of finite values in ascending order with their counts; None when there are none."""
    if len(values) == 0:
        return None
    ends = np.cumsum(counts)
    starts = np.arange(len(values))
    if len(values) > _STEPS:
        # Step j of k1 ends at this share of the weight; a value belongs to the step that its middle falls into.
        shares = (np.sin(math.pi * (np.arange(_STEPS) / _STEPS - 0.5)) + 1) / 2
        starts = np.unique(np.searchsorted(ends - counts / 2, shares * ends[-1]))
        starts = starts[starts < len(values)]
    weights = np.add.reduceat(counts, starts)
    shrink = 2.0**-64 if max(abs(values[0]), abs(values[-1])) > 1e288 else 1.0  # keep sums finite
    means = np.add.reduceat(values * shrink * counts, starts) / weights / shrink
    lasts = np.append(starts[1:], len(values)) - 1
    return _serialise(float(values[0]), float(values[-1]), np.clip(means, values[starts], values[lasts]), weights)


def merge_quantile_sketches(sketches: Sequence[bytes]) -> bytes:
    """The digest of the values of several digests (one or more). Independent of their order, not of their grouping."""
    if len(sketches) == 1:
        return sketches[0]
    merged = datasketches.tdigest_double(COMPRESSION)
    for sketch in sorted(sketches):
        merged.merge(datasketches.tdigest_double.deserialize(sketch))
    merged.compress()
    return bytes(merged.serialize())


def estimated_percentiles(
    sketch: bytes | None, cls: TypeClass, infinities: tuple[int, int], minimum: pa.Scalar, maximum: pa.Scalar
) -> Percentiles:
    """Percentiles estimated from a digest of the finite values, between `minimum` and `maximum`.

    `infinities`: how often -inf and +inf occur, which the digest does not hold.
    """
    below, above = infinities
    least, greatest = physical_value(minimum), physical_value(maximum)
    digest = None if sketch is None else datasketches.tdigest_double.deserialize(sketch)
    finite = 0 if digest is None else int(digest.get_total_weight())
    result = []
    for percent, rank in zip(PERCENTS, nearest_ranks(below + finite + above).tolist(), strict=True):
        if rank <= below:
            value = scalar(-math.inf, cls)
        elif rank > below + finite or digest is None:
            value = scalar(math.inf, cls)
        else:
            estimate = digest.get_quantile((rank - below - 0.5) / finite)
            value = scalar(max(least, min(estimate if cls.kind == "float" else round(estimate), greatest)), cls)
        result.append((percent / 100, value))
    return tuple(result)


def _serialise(minimum: float, maximum: float, means: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> bytes:
    # DataSketches' layout, version 1 (tdigest.hpp): preamble longs, serial version, family 20, k, flags, two unused
    # bytes, number of centroids, of buffered values, minimum, maximum; then (mean, weight) per centroid.
    centroids = np.empty(len(means), [("mean", "<f8"), ("weight", "<u8")])
    centroids["mean"] = means
    centroids["weight"] = weights
    return _HEADER.pack(2, 1, 20, COMPRESSION, 0, 0, len(means), 0, minimum, maximum) + centroids.tobytes()
