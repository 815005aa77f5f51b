"""Percentiles, and the quantile sketch: a t-digest of finite values in Apache DataSketches' format.

Sorted and counted values are divided into clusters of neighbours. A cluster has the values whose middle rank lies in
one step of the scale function k1 (Dunning, "Computing extremely accurate quantiles using t-digests", 2019), or a single
frequent value. A cluster is stored as its mean and its weight (number of values). A merge treats the clusters of its
parts as values, and clusters them again. A *table of states* has the statistics of a set of rows in mergeable form,
with one row per column of the data table.

A digest that was not merged depends only on the multiset of values. A merge does not depend on the order of its parts.
The grouping of several merges changes the last digits of quantiles. `benchmarks/quantile_errors.py` measures the errors
of quantiles.

DataSketches can read and merge these digests, but this module uses its own code. Merges of the Python package of
DataSketches (5.2) have a rank error that is several times larger. Its `get_quantile` interpolates towards the wrong
neighbour, so quantiles do not ascend (corrected for Java in apache/datasketches-java#755).

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type. A
*block* is a batch of a column's values with their counts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.statistics.column import ColumnStatistics, statistic_type
from metastore_assets.statistics.frequencies import (
    PERCENTS,
    Percentiles,
    derive_frequencies,
    nearest_ranks,
    summarize_frequencies,
)
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext, Fold
from metastore_assets.statistics.merge_rules import MergeParts, integer_matrix
from metastore_assets.statistics.moments import decode_moments
from metastore_assets.values.physical import build_list_array, physical_value, scalar, split_lists
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.statistics.blocks import ValueBlock
    from metastore_assets.statistics.histogram import Histogram

COMPRESSION = 200
"""Number of steps of the scale function. A digest has at most one cluster for each step, and additional ones because a
value that covers more than a step is a cluster by itself."""
_SHARES = (np.sin(math.pi * (np.arange(COMPRESSION) / COMPRESSION - 0.5)) + 1) / 2
"""Element j is the share of all values that are before step j of the scale function k1."""
_HEADER = struct.Struct("<BBBHBHIIdd")
_CENTROID = np.dtype([("mean", "<f8"), ("weight", "<u8")])
_HUGE = 1e288
_PRECISION = 8
"""The mean of a cluster is rounded to this many bits below the magnitude of the cluster's width."""


@dataclass(frozen=True)
class Digest:
    """A decoded quantile sketch: the means of its clusters, ascending, and the number of values in each."""

    minimum: float
    maximum: float
    means: npt.NDArray[np.float64]
    weights: npt.NDArray[np.int64]

    @lock_free_cached_property
    def rank_curve(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(ranks, values): points of a curve, between which ranks and values are interpolated.

        Ranks are from 0 to the number of values. The first point is the minimum, and the last one is the maximum.
        Between them, each cluster has a point: its mean, at the middle of its ranks. The cluster of a very frequent
        value, which covers at least two steps of the scale function, has two points: the value at the start and at the
        end of its ranks. All values are multiplied by `_shrink_factor`.
        """
        ends = np.cumsum(self.weights)
        single = _count_steps(ends, self.weights) >= 2
        half = self.weights / 2
        ranks = np.stack([ends - np.where(single, self.weights, half), ends - np.where(single, 0, half)], axis=1)
        means = np.repeat(self.means, 2)
        ranks = np.concatenate([[0.0], ranks.ravel(), ends[-1:]])
        points = np.concatenate([[self.minimum], means, [self.maximum]])
        return np.asarray(ranks, np.float64), points * _shrink_factor(self.minimum, self.maximum)


def build_quantile_sketch(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> bytes | None:
    """Return the encoded digest of values; None if there are none.

    Args:
        values: Finite values in ascending order.
        counts: How often each value occurs.
    """
    if len(values) == 0:
        return None
    return encode_digest(Digest(float(values[0]), float(values[-1]), *_cluster_values(values, counts)))


def merge_quantile_sketches(sketches: Sequence[bytes]) -> bytes:
    """Merge one or more encoded digests.

    The order of `sketches` does not matter. Merging all of them in one call is best: if a merged digest is merged
    again, the quantiles may differ slightly.
    """
    return encode_digest(merge_digests([decode_digest(sketch) for sketch in sketches]))


def merge_digests(parts: Sequence[Digest]) -> Digest:
    """Merge one or more digests.

    Their clusters are clustered again.
    """
    if len(parts) == 1:
        return parts[0]
    means = np.concatenate([part.means for part in parts])
    order = np.argsort(means)
    means, weights = means[order], np.concatenate([part.weights for part in parts])[order]
    # Equal means become one cluster, so that a few distinct values remain exact.
    starts = np.flatnonzero(np.concatenate([[True], means[1:] != means[:-1]]))
    clusters = _cluster_values(means[starts], np.add.reduceat(weights, starts))
    return Digest(min(p.minimum for p in parts), max(p.maximum for p in parts), *clusters)


def estimate_percentiles(
    sketch: bytes | None, cls: TypeClass, infinities: tuple[int, int], minimum: pa.Scalar, maximum: pa.Scalar
) -> Percentiles:
    """Return percentiles estimated from a digest.

    Args:
        sketch: The encoded digest of the finite values; None if there are none.
        cls: The type class of the values.
        infinities: (number of -inf, number of +inf). The digest does not contain them.
        minimum: Lower bound of the results, inclusive.
        maximum: Upper bound of the results, inclusive.
    """
    digest = None if sketch is None else decode_digest(sketch)
    ranks = nearest_ranks(count_ranked_values(digest, infinities))
    values = estimate_values(digest, cls, infinities, (minimum, maximum), ranks)
    return tuple((percent / 100, value) for percent, value in zip(PERCENTS, values, strict=True))


def count_ranked_values(digest: Digest | None, infinities: tuple[int, int]) -> int:
    """Return the number of values other than NaN: the finite values in a digest, and the infinities."""
    return sum(infinities) + (0 if digest is None else int(digest.weights.sum()))


def estimate_values(
    digest: Digest | None,
    cls: TypeClass,
    infinities: tuple[int, int],
    bounds: tuple[pa.Scalar, pa.Scalar],
    ranks: npt.NDArray[np.int64],
) -> list[pa.Scalar]:
    """Return the estimated value at each of the given ranks.

    Args:
        digest: The digest of the finite values; None if there are none.
        cls: The type class of the values.
        infinities: (number of -inf, number of +inf). The digest does not contain them.
        bounds: Lower and upper bound of the results, both inclusive.
        ranks: 1-based ranks among all values without NaN.
    """
    below, above = infinities
    finite = count_ranked_values(digest, infinities) - below - above
    estimates = np.where(ranks <= below, -math.inf, math.inf)
    if digest is not None:
        inside = (ranks > below) & (ranks <= below + finite)
        estimates[inside] = _interpolate_ranks(digest, ranks[inside] - below)
    least, greatest = map(physical_value, bounds)
    values = []
    for rank, estimate in zip(ranks.tolist(), estimates.tolist(), strict=True):
        # A double may be unable to represent a bound, such as 2**53 + 1. The same double may stand for both bounds.
        ends = (least, greatest) if 2 * rank <= below + finite + above else (greatest, least)
        rounded_estimate = estimate if cls.kind == "float" else round(estimate)
        values.append(next((end for end in ends if float(end) == estimate), rounded_estimate))
    return [scalar(max(least, min(value, greatest)), cls) for value in values]


def estimate_rank(digest: Digest | None, infinities: tuple[int, int], value: float) -> int:
    """Return the estimated number of values less than `value`.

    This is the inverse of `estimate_values`.

    Args:
        digest: The digest of the finite values; None if there are none.
        infinities: (number of -inf, number of +inf).
        value: A number: dates in days, times in their unit, decimals unscaled.
    """
    below, above = infinities
    finite = count_ranked_values(digest, infinities) - below - above
    if value == -math.inf:
        return 0
    if digest is None or value <= digest.minimum:
        return below
    if value > digest.maximum:
        return below + finite
    ranks, points = digest.rank_curve
    point = value * _shrink_factor(digest.minimum, digest.maximum)
    at = int(np.searchsorted(points, point))  # the first rank of a frequent value
    rank = ranks[at] if points[at] == point else np.interp(point, points, ranks)
    return below + min(finite, round(float(rank)))


def _interpolate_ranks(digest: Digest, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the values at 1-based ranks, by interpolation."""
    curve_ranks, points = digest.rank_curve
    return np.interp(ranks - 0.5, curve_ranks, points) / _shrink_factor(digest.minimum, digest.maximum)


def _count_steps(ends: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how many steps each value or cluster covers, such as 0.4 or 1.5.

    The t-digest's scale function divides the ranks of all values into `COMPRESSION` steps.

    Args:
        ends: The last 1-based rank of each value or cluster, ascending.
        counts: The number of values in each value or cluster.
    """
    sides = np.stack([ends - counts, ends]) / ends[-1]
    scaled_sides = COMPRESSION * (np.arcsin(np.clip(2 * sides - 1, -1, 1)) / math.pi + 0.5)
    return scaled_sides[1] - scaled_sides[0]


def _cluster_values(
    values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Group values into clusters.

    Return (mean of each cluster, number of values in each cluster).

    Args:
        values: Finite values in ascending order.
        counts: How often each value occurs.
    """
    if len(values) <= COMPRESSION:
        return values, counts
    ends = np.cumsum(counts)
    # A value belongs to the step that contains the middle of its ranks.
    starts = np.searchsorted(ends - counts / 2, _SHARES * ends[-1])
    # A value that covers more than a step is a cluster by itself. Other clusters cover about two steps at most.
    frequent = np.flatnonzero(_count_steps(ends, counts) > 1)
    starts = np.unique(np.concatenate([starts, frequent, frequent + 1]))
    starts = starts[starts < len(values)]
    lasts = np.append(starts[1:], len(values)) - 1
    weights = np.add.reduceat(counts, starts)
    shrink = _shrink_factor(values[0], values[-1])
    means = np.add.reduceat(values * shrink * counts, starts) / weights / shrink
    means = _round_means(means, values[lasts] - values[starts])
    return np.clip(means, values[starts], values[lasts]), weights


def _round_means(means: npt.NDArray[np.float64], widths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round the means of clusters to about 1/256 of the clusters' widths."""
    finite = np.isfinite(widths) & (widths > 0)
    exponents = np.where(finite, np.frexp(np.where(finite, widths, 1.0))[1] - _PRECISION, 0)
    steps = np.ldexp(1.0, np.clip(exponents, -1021, 1021))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded_means = np.rint(means / steps) * steps
    return np.where(finite & np.isfinite(rounded_means), rounded_means, means)


def _shrink_factor(least: float, greatest: float) -> float:
    """Return a factor for values that avoids overflow of weighted sums: 2**-64 if they are huge, else 1."""
    return 2.0**-64 if max(abs(least), abs(greatest)) > _HUGE else 1.0


def encode_digest(digest: Digest) -> bytes:
    """Return a digest in the binary format of DataSketches."""
    # Format of DataSketches, version 1 (tdigest.hpp): preamble longs, serial version, family 20, k, flags, two unused
    # bytes, number of centroids, number of buffered values, minimum, maximum; then (mean, weight) per centroid.
    centroids = np.empty(len(digest.means), _CENTROID)
    centroids["mean"], centroids["weight"] = digest.means, digest.weights
    sizes = (len(centroids), 0)
    return _HEADER.pack(2, 1, 20, COMPRESSION, 0, 0, *sizes, digest.minimum, digest.maximum) + centroids.tobytes()


def decode_digest(sketch: bytes) -> Digest:
    """Return the digest that `encode_digest` encoded."""
    *_, size, _, minimum, maximum = _HEADER.unpack_from(sketch)
    centroids = np.frombuffer(sketch, _CENTROID, size, _HEADER.size)
    return Digest(minimum, maximum, centroids["mean"], centroids["weight"].astype(np.int64))


@dataclass
class QuantileState:
    """The digest of the blocks so far, and their exact percentiles if all blocks so far are sorted."""

    context: ColumnContext
    digests: Fold[bytes] = field(default_factory=lambda: Fold(merge_quantile_sketches))
    percentiles: list[pa.Scalar] = field(default_factory=list)
    """The exact percentiles whose ranks are in the blocks so far, ascending."""
    ranked_count: int = 0
    """Number of values without NaN in the blocks so far."""
    is_exact: bool = True


class QuantileStatistics(BuiltinStatistic[QuantileState]):
    """The percentiles of a column, exact or estimated from a t-digest.

    The percentiles are exact if all blocks of the values are sorted. Otherwise, and for merged statistics, `finalize`
    estimates them from the digest, unless other statistics determine the frequencies of all values.
    """

    name = "percentiles"
    version = "1"
    columns = ("percentiles", "percentiles_guarantee")
    state_schema = pa.schema(
        [
            ("quantile_minimum", pa.float64()),
            ("quantile_maximum", pa.float64()),
            ("quantile_means", pa.list_(pa.float64())),
            ("quantile_weights", pa.list_(pa.int64())),
        ]
    )

    def initial(self, context: ColumnContext) -> QuantileState:
        return QuantileState(context)

    def update(self, state: QuantileState, block: ValueBlock) -> QuantileState:
        if not block.is_sorted:
            state.is_exact = False
        values = block.without_nan
        if not len(values):
            return state
        if block.is_sorted:
            _pick_percentiles(state, values)
        if values.numbers is not None and state.context.policy.quantiles != "off":
            points, counts = values.numbers.astype(np.float64, copy=False), values.counts
            if values.cls.kind == "float":
                is_finite = np.isfinite(points)
                points, counts = points[is_finite], counts[is_finite]
            state.digests.add(build_quantile_sketch(points, counts))
        return state

    def to_fields(self, state: QuantileState, row: ColumnStatistics) -> Mapping[str, Any]:
        fields: dict[str, Any] = {"quantile_sketch": state.digests.total()}
        if state.is_exact:
            percents = PERCENTS if state.percentiles else ()
            pairs = zip(percents, state.percentiles, strict=True)
            fields["percentiles"] = tuple((percent / 100, value) for percent, value in pairs)
            fields["percentiles_guarantee"] = "exact"
        return fields

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return merged digests, and null for all percentiles, which `finalize` derives from the digests.

        The digest of a column is null if a part has finite values of the column and no digest.
        """
        count = len(parts)
        return {
            "percentiles": pa.nulls(count, statistic_type("percentiles", parts.union)),
            "percentiles_guarantee": pa.array(["absent"] * count, pa.string()),
            **dict(zip(self.state_schema.names, _digest_arrays(_merge_digests(parts, merged_columns)), strict=True)),
        }

    def finalize(self, row: ColumnStatistics) -> Mapping[str, Any]:
        """Return the percentiles and their guarantee; no fields if the row already has percentiles.

        The percentiles are exact if the row determines the frequencies of all values, as for one distinct value.
        Otherwise they are estimated from the sketch. Without a sketch, no fields are returned.
        """
        if row.type_class is None or row.percentiles is not None:
            return {}
        frequencies = derive_frequencies(row)
        if frequencies is not None:
            return {"percentiles": summarize_frequencies(frequencies).percentiles, "percentiles_guarantee": "exact"}
        if row.quantile_sketch is None or row.minimum is None or row.maximum is None:
            return {}
        infinities = (0, 0) if row.moments is None else decode_moments(row.moments).infinities
        cls = class_named(row.type_class)
        percentiles = estimate_percentiles(row.quantile_sketch, cls, infinities, row.minimum, row.maximum)
        return {"percentiles": percentiles, "percentiles_guarantee": "estimate"}

    def encode_states(
        self, rows: Sequence[ColumnStatistics], histograms: Sequence[Histogram | None]
    ) -> Sequence[pa.Array]:
        """Return the digests as four arrays: minima, maxima, lists of means and lists of weights."""
        sketches = [row.quantile_sketch for row in rows]
        return _digest_arrays([None if sketch is None else decode_digest(sketch) for sketch in sketches])

    def decode_states(self, table: pa.Table) -> Mapping[str, list[Any]]:
        """Return `{"quantile_sketch": digests}`, where `digests` has an item per row of the table.

        An item is encoded as in `ColumnStatistics.quantile_sketch`. It is None for a row without a digest.
        """
        digests = decode_digests(table)
        return {"quantile_sketch": [None if digest is None else encode_digest(digest) for digest in digests]}


def decode_digests(table: pa.Table) -> list[Digest | None]:
    """Return the digest of each row of a table of states; None for a row without a digest."""
    offsets, means = split_lists(table["quantile_means"])
    _, weights = split_lists(table["quantile_weights"])
    bounds = zip(table["quantile_minimum"].to_pylist(), table["quantile_maximum"].to_pylist(), strict=True)
    return [
        None if minimum is None else Digest(minimum, maximum, means[start:stop], weights[start:stop])
        for (minimum, maximum), start, stop in zip(bounds, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]


def _digest_arrays(digests: Sequence[Digest | None]) -> list[pa.Array]:
    """Return the fields of digests as arrays: minimum, maximum, means and weights.

    A digest of None becomes null.
    """
    return [
        pa.array([None if digest is None else digest.minimum for digest in digests], pa.float64()),
        pa.array([None if digest is None else digest.maximum for digest in digests], pa.float64()),
        build_list_array([None if digest is None else digest.means for digest in digests], np.float64),
        build_list_array([None if digest is None else digest.weights for digest in digests], np.int64),
    ]


def _pick_percentiles(state: QuantileState, block: ValueBlock) -> None:
    """Append to the state the percentiles that lie in the next block of sorted values without NaN."""
    ends = np.cumsum(block.counts) + state.ranked_count
    ranks = nearest_ranks(state.context.rank_count)
    ranks = ranks[(ranks > state.ranked_count) & (ranks <= ends[-1])]
    state.percentiles += [block.values[at] for at in np.searchsorted(ends, ranks).tolist()]
    state.ranked_count = int(ends[-1])


def _merge_digests(parts: MergeParts, merged_columns: Mapping[str, Any]) -> list[Digest | None]:
    """Return the merged digest of each column.

    It is None if no part has a digest, or if a part without one may have finite values of the column.
    """
    digests = [decode_digests(table) for table in parts.tables]
    value_counts, _ = integer_matrix(parts.tables, "value_count")
    part_moments = [table["moments"].to_pylist() for table in parts.tables]
    moments = merged_columns["moments"].to_pylist()
    result: list[Digest | None] = []
    for at, flags in enumerate(parts.typed.T.tolist()):
        column_digests: list[Digest] = []
        for part, has_values in enumerate(flags):
            digest = digests[part][at]
            if has_values and digest is not None:
                column_digests.append(digest)
            elif has_values and (
                value_counts[part, at] if moments[at] is None else decode_moments(part_moments[part][at]).n
            ):
                # The part has finite values but no digest, because its policy was off: the others do not suffice.
                column_digests = []
                break
        result.append(merge_digests(column_digests) if column_digests else None)
    return result
