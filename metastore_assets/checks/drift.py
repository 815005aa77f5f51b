"""Whether a column's values are distributed as they were in an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from metastore_assets.checks.expectations import MEASURES
from metastore_assets.checks.result import Finding, verdict
from metastore_assets.checks.subject import Subject
from metastore_assets.config_checks import Drift, Measure
from metastore_assets.pictures.text import number, plural
from metastore_assets.statistics.distances import (
    aligned_bins,
    equal_shares,
    jensen_shannon,
    kolmogorov_smirnov,
    population_stability_index,
)
from metastore_assets.statistics.physical import physical_series
from metastore_assets.statistics.types import class_named

_Counts: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]
_MEASURES: Mapping[Measure, Callable[[_Counts, _Counts], float]] = {
    "stability_index": population_stability_index,
    "kolmogorov_smirnov": kolmogorov_smirnov,
    "jensen_shannon": jensen_shannon,
}
MOST_VALUES = 1_000_000
"""Distinct values of texts and the like up to which two lists are compared."""


def drift(check: Drift, subject: Subject) -> Finding:
    """How far the distributions are apart: of numbers and times over bins, of others over values.

    Raises NotKeptError where one of the two is not kept.
    """
    earlier = subject.earlier(check.against)
    if earlier is None:
        return Finding("passed", "a partition that there was not")
    row, before = subject.row, earlier.row
    since = f"since version {earlier.table.version.number}"
    if row.type_class is None or row.type_class != before.type_class:
        told = f"values of {row.type}, and of {before.type} in version {earlier.table.version.number}"
        return Finding("unknown", told, "absent", "a later version, when both are of one type")
    if not row.value_count and not before.value_count:
        return Finding("passed", f"no values, as {since}")
    is_ordinal = class_named(row.type_class).is_ordinal
    found = _of_bins(check, subject, earlier) if is_ordinal else _of_values(check, subject, earlier)
    if isinstance(found, str):
        return Finding("unknown", found, "absent", "a version with values on both sides")
    distance, over = found
    status = verdict(distance <= float(check.most))
    return Finding(
        status, f"{MEASURES[check.measure]} {number(distance)} {since}, over {over}", measures={"distance": distance}
    )


def _of_bins(check: Drift, subject: Subject, earlier: Subject) -> tuple[float, str] | str:
    """The distance over bins that both histograms have, and how many these are; else why there is none."""
    then = earlier.table.lattice(earlier.column, earlier.partition)
    now = subject.table.lattice(subject.column, subject.partition)
    if then is None or now is None:
        return (
            "of one of the two there are no values but NaN and infinities"
            if _has_values(subject, earlier)
            else ("of one of the two there are no values")
        )
    bins = aligned_bins(then, now)
    if check.measure == "kolmogorov_smirnov":
        return kolmogorov_smirnov(bins.left, bins.right), plural(len(bins), "bin")
    grouped = equal_shares(bins.left, bins.right, check.groups)
    return _MEASURES[check.measure](*grouped), plural(len(grouped[0]), "group")


def _has_values(subject: Subject, earlier: Subject) -> bool:
    return bool(subject.row.value_count and earlier.row.value_count)


def _of_values(check: Drift, subject: Subject, earlier: Subject) -> tuple[float, str] | str:
    """The distance over values in their order, or over the most frequent ones and all others in one group."""
    for own in (subject, earlier):
        if (own.row.distinct_count or 0) > MOST_VALUES:
            distinct, version = number(own.row.distinct_count), own.table.version.number
            return f"{distinct} distinct values in version {version}, more than are compared"
    then, now = _listed(earlier, "then"), _listed(subject, "now")
    if not then.height or not now.height:
        return "of one of the two there are no values"
    for side, own in ((then, earlier), (now, subject)):
        if side[side.columns[1]].sum() != own.row.value_count:
            return f"in version {own.table.version.number} only values are listed that repeat"
    both = then.join(now, on="value", how="full", coalesce=True).fill_null(0).sort("value")
    if check.measure == "kolmogorov_smirnov":
        return kolmogorov_smirnov(both["then"].to_numpy(), both["now"].to_numpy()), plural(both.height, "value")
    both = both.sort("then", "now", descending=True)
    head, rest = both.head(check.groups - 1), both.slice(check.groups - 1)
    sides = [np.append(head[name].to_numpy(), int(rest[name].sum())) for name in ("then", "now")]
    used = (sides[0] + sides[1]) > 0
    over = plural(int(used.sum()), "group")
    return _MEASURES[check.measure](sides[0][used], sides[1][used]), over


def _listed(subject: Subject, name: str) -> pl.DataFrame:
    cls = class_named(subject.row.type_class or "null")
    pieces = [
        pl.DataFrame(
            {"value": physical_series(own.values, cls), name: pl.Series(own.counts.to_numpy(), dtype=pl.Int64)}
        )
        for own in subject.table.values(subject.column, subject.partition)
        if len(own)
    ]
    if not pieces:
        return pl.DataFrame(schema={"value": pl.Binary, name: pl.Int64})
    return pl.concat(pieces)
