"""Errors of estimated quantiles: the ranks of quantiles from merged t-digests, against exact ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.report import Row
from metastore_assets.config import ResolvedPolicy
from metastore_assets.pipeline.merging.merge_plan import tree_shape
from metastore_assets.pipeline.merging.tree import ROOT
from metastore_assets.statistics.profile import profile_field
from metastore_assets.statistics.quantiles import Digest, decode_digest, estimate_values, merge_digests
from metastore_assets.values.types import type_class

VALUES = int(os.environ.get("METASTORE_BENCH_QUANTILES", "1000000"))
PARTITIONS = (1, 1000)
MOST = 0.02
"""The guaranteed maximum of a percentile's rank error, as a share of all values: two clusters of a digest."""
_POLICY = ResolvedPolicy(frequencies="off", histogram="off")
_SHARES = np.arange(1, 100) / 100
_SHOWN = (1, 5, 25, 50, 75, 95, 99)
Floats = npt.NDArray[np.float64]

DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "uniform": lambda draw, count: draw.uniform(size=count),
    "normal": lambda draw, count: draw.normal(size=count),
    "lognormal": lambda draw, count: draw.lognormal(0, 3, count),
    "two peaks": lambda draw, count: draw.normal(size=count) + 1e6 * draw.integers(0, 2, count),
    "Zipf (many equal)": lambda draw, count: draw.zipf(1.3, count).clip(max=2**50).astype(np.float64),
}


def run() -> list[Row]:
    """Compare the greatest rank error of the percentiles 1 to 99 with the guaranteed one.

    Errors are in percent of all values.
    """
    rows = []
    print(f"Rank error in % of {VALUES:,} values, by percentile; `mean` and `most` are of p1 … p99")
    print(f"{'':44}{'':>6}" + "".join(f"{f'p{percent}':>8}" for percent in _SHOWN) + f"{'mean':>8}{'most':>8}")
    for name, draw_values in DISTRIBUTIONS.items():
        values = draw_values(np.random.default_rng(11), VALUES)
        exact = np.sort(values)
        for order, ordered_values in (("shuffled", values), ("sorted", exact)):
            for partitions in PARTITIONS:
                errors = rank_errors(estimated_percentiles(np.array_split(ordered_values, partitions)), exact)
                label = f"{name}, {order}, {partitions:,} partition{'s' if partitions > 1 else ''}"
                shown_errors = "".join(f"{100 * errors[percent - 1]:8.3f}" for percent in _SHOWN)
                print(f"{label:50}{shown_errors}{100 * errors.mean():8.3f}{100 * errors.max():8.3f}")
                most = float(errors.max())
                rows.append(Row(f"rank error (%): {label}", [100 * most], [100 * MOST], MOST / max(most, 1e-9), 1))
    return rows


def estimated_percentiles(parts: Sequence[Floats]) -> Floats:
    """Return the estimated percentiles 1 to 99 of the values of some partitions together."""
    digest = _merged({f"part={at}": _digest(part) for at, part in enumerate(parts)})
    bounds = pa.scalar(digest.minimum), pa.scalar(digest.maximum)
    ranks = np.ceil(_SHARES * sum(map(len, parts))).astype(np.int64)
    values = estimate_values(digest, type_class(pa.float64()), (0, 0), bounds, ranks)
    return np.array([value.as_py() for value in values])


def rank_errors(values: Floats, exact: Floats) -> Floats:
    """Return the rank errors of estimated percentiles 1 to 99, as shares of all values.

    A value that occurs several times has several ranks. The error is the distance from the wanted rank to the nearest
    of them. For example, an estimated median with the ranks from 10 % to 20 % has the error 0.3.

    Args:
        values: The estimated percentiles.
        exact: All values, sorted.
    """
    below = np.searchsorted(exact, values, "left") / len(exact)
    up_to = np.searchsorted(exact, values, "right") / len(exact)
    return np.maximum(0, np.maximum(below - _SHARES, _SHARES - up_to))


def _digest(values: Floats) -> Digest:
    (profile,) = profile_field(pa.field("x", pa.float64()), [pa.array(values)], lambda column: _POLICY)
    sketch = profile.statistics.quantile_sketch
    assert sketch is not None
    return decode_digest(sketch)


def _merged(children: dict[str, Digest]) -> Digest:
    shape = tree_shape()
    digests: dict[str, Digest] = {}
    for name, branch in shape.build(children).put_branches.items():
        parts = shape.ordered_parts(branch)
        digests[name] = merge_digests([children[part] if is_child else digests[part] for part, is_child in parts])
    return digests[ROOT]
