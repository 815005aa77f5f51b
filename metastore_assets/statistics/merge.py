"""Merging the statistics of disjoint sets of rows: pure, n-ary, associative, commutative.

Counts, bounds, sums, means, deviations, lengths, sketches of distinct values and fingerprints merge exactly; skewness
and kurtosis to rounding. Distinct counts and percentiles become estimates unless they follow from what is exact, and
are made exact again by the merged frequencies (`apply_facts`). How merges are grouped may show in an estimate, but
whichever way it was, no fewer distinct values are told than of any of the parts, nor more than of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from metastore_assets.config import KeptPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import ColumnStatistics, FrequencyState
from metastore_assets.statistics.distinct import add_fingerprints, estimate_distinct, merge_distinct_sketches
from metastore_assets.statistics.frequencies import Frequencies, FrequencyFacts, Percentiles, frequency_facts
from metastore_assets.statistics.histogram import merge_histograms
from metastore_assets.statistics.moments import Moments, decode_moments, encode_moments, merge_moments, moment_facts
from metastore_assets.statistics.physical import order_key, physical_value
from metastore_assets.statistics.quantiles import estimated_percentiles, merge_quantile_sketches
from metastore_assets.statistics.types import TypeClass, class_named

__all__ = ["apply_facts", "as_kept", "merge_histograms", "merge_statistics"]

_STATES: tuple[FrequencyState, ...] = ("listed", "estimated", "off", "absent")


def merge_statistics(children: Sequence[ColumnStatistics]) -> ColumnStatistics:
    """The statistics of all the children's rows together; one or more children, of the same leaf column.

    One child, or one with values and the others without, is returned as it is, but for the nulls. Position, column and
    field id are the least among the children. Raises CorruptionError when the children are of several type classes.
    """
    if not children:
        raise ValueError("nothing to merge: at least one child is needed")
    if len(children) == 1:
        return children[0]
    position, column, field_id = min((child.position, child.column, child.field_id) for child in children)
    labels: dict[str, Any] = {
        "position": position,
        "column": column,
        "field_id": field_id,
        "null_count": sum(child.null_count for child in children),
    }
    filled = [child for child in children if child.value_count]
    # Children without values say nothing but their nulls; where none has any, one of them speaks for all.
    speaking = filled or [min(children, key=_eloquence)]
    labels["type"] = _type_text(speaking)
    absent = [child for child in speaking if child.type_class is None]
    if absent:
        return replace(_counts_only(speaking, absent), **labels)
    names = sorted({child.type_class for child in speaking if child.type_class is not None})
    if len(names) > 1:
        raise CorruptionError(
            f"column {column!r}: profiles of the type classes {', '.join(names)} cannot be merged; run refresh --full"
        )
    prints = [child.fingerprint for child in children if child.fingerprint is not None]
    labels["fingerprint"] = add_fingerprints(prints) if len(prints) == len(children) else None
    merged = speaking[0] if len(speaking) == 1 else _merge_filled(speaking, class_named(names[0]))
    return replace(merged, **labels)


def as_kept(row: ColumnStatistics, policy: KeptPolicy) -> ColumnStatistics:
    """`row` without what its policy does not keep, though it was profiled under another that kept more.

    Where no values are listed, what followed from all of them (distinct and duplicate values, percentiles) becomes
    what the sketches estimate: no more than is known of rows whose values were never sorted.
    """
    if policy.quantiles == "off" and row.quantile_sketch is not None:
        row = replace(row, quantile_sketch=None)
    if policy.lists or row.type_class is None:
        return row
    state: FrequencyState = "off" if policy.frequencies == "off" else "estimated"
    if not row.value_count:
        return replace(row, frequencies=state)
    cls = class_named(row.type_class)
    moments = None if row.moments is None else decode_moments(row.moments)
    implied = _implied(row, cls)
    row = replace(row, distinct_count=None, frequencies=state)
    row = _estimates(row, [row], cls, moments)
    return row if implied is None else apply_facts(row, frequency_facts(implied))


def apply_facts(merged: ColumnStatistics, facts: FrequencyFacts) -> ColumnStatistics:
    """`merged` with what the full list of frequencies says, which makes distinct, duplicates and percentiles exact."""
    return replace(
        merged,
        distinct_count=facts.distinct_count,
        distinct_count_guarantee="exact",
        duplicate_count=facts.duplicate_count,
        percentiles=facts.percentiles,
        percentiles_guarantee="exact",
    )


def _merge_filled(children: Sequence[ColumnStatistics], cls: TypeClass) -> ColumnStatistics:
    value_count = sum(child.value_count for child in children)
    minimum, minimum_exact = _lower(children)
    maximum, maximum_exact = _upper(children)
    moments = _merged_moments(children)
    row = replace(
        children[0],
        value_count=value_count,
        nan_count=_total(child.nan_count for child in children),
        minimum=minimum,
        minimum_exact=minimum_exact,
        maximum=maximum,
        maximum_exact=maximum_exact,
        true_count=_total(child.true_count for child in children),
        total_bytes=_total(child.total_bytes for child in children),
        frequencies=max((child.frequencies for child in children), key=_STATES.index),
        moments=None if moments is None else encode_moments(moments),
        distinct_sketch=_merged_distinct_sketch(children),
        **_lengths(children, value_count),
    )
    if moments is not None:
        row = replace(row, **vars(moment_facts(moments, scale=None if cls.kind == "float" else cls.scale)))
    implied = _implied(row, cls)
    row = _estimates(row, children, cls, moments)
    return row if implied is None else apply_facts(row, frequency_facts(implied))


def _estimates(
    row: ColumnStatistics, children: Sequence[ColumnStatistics], cls: TypeClass, moments: Moments | None
) -> ColumnStatistics:
    """Distinct values and percentiles as far as the sketches tell."""
    sketch = _merged_quantile_sketch(children, moments)
    percentiles: Percentiles | None = None
    if sketch is not None and row.minimum is not None and row.maximum is not None:
        infinities = (0, 0) if moments is None else moments.infinities
        percentiles = estimated_percentiles(sketch, cls, infinities, row.minimum, row.maximum)
    distinct = None
    if row.distinct_sketch is not None:
        distinct = min(estimate_distinct(row.distinct_sketch), _most_distinct(row, children, cls))
        distinct = max(distinct, *(child.distinct_count or 1 for child in children))
    return replace(
        row,
        quantile_sketch=sketch,
        percentiles=percentiles,
        percentiles_guarantee="absent" if percentiles is None else "estimate",
        distinct_count=distinct,
        distinct_count_guarantee="absent" if distinct is None else "estimate",
        duplicate_count=None,
    )


def _implied(row: ColumnStatistics, cls: TypeClass) -> Frequencies | None:
    """The frequencies, where exact numbers determine them: of booleans, of a constant, of nothing but NaN."""
    n, nans = row.value_count, row.nan_count or 0
    if cls.kind == "boolean" and row.true_count is not None:
        held: list[tuple[Any, int]] = [(False, n - row.true_count), (True, row.true_count)]
    elif not (row.minimum_exact and row.maximum_exact) or row.minimum != row.maximum:
        return None
    else:
        held = [(row.minimum, n - nans), (math.nan, nans)]
    held = [(value, count) for value, count in held if count]
    values = pa.array([value for value, _ in held], cls.arrow)
    return Frequencies(values, pa.array([count for _, count in held], pa.int64()))


def _most_distinct(row: ColumnStatistics, children: Sequence[ColumnStatistics], cls: TypeClass) -> int:
    """How many distinct values there can be: no more than those of the children together, whatever these are worth.

    As each child's number is itself within those of its own children, the numbers of a tree of merges are within what
    its leaves counted: none is below the greatest of them, nor above their sum.
    """
    most = sum(child.value_count if child.distinct_count is None else child.distinct_count for child in children)
    if cls.kind != "integer" or row.minimum is None or row.maximum is None:
        return most
    return min(most, int(physical_value(row.maximum) - physical_value(row.minimum)) + 1)


def _merged_moments(children: Sequence[ColumnStatistics]) -> Moments | None:
    states = [child.moments for child in children if child.moments is not None]
    return merge_moments([decode_moments(state) for state in states]) if len(states) == len(children) else None


def _merged_distinct_sketch(children: Sequence[ColumnStatistics]) -> bytes | None:
    sketches = [child.distinct_sketch for child in children if child.distinct_sketch is not None]
    return merge_distinct_sketches(sketches) if len(sketches) == len(children) else None


def _merged_quantile_sketch(children: Sequence[ColumnStatistics], moments: Moments | None) -> bytes | None:
    sketches = [child.quantile_sketch for child in children if child.quantile_sketch is not None]
    for child in children:
        # Without a sketch although there are finite values: the policy was off, and the others' say too little.
        finite = child.value_count if moments is None else decode_moments(child.moments or b"").n
        if child.quantile_sketch is None and finite:
            return None
    return merge_quantile_sketches(sketches) if sketches else None


def _lower(children: Sequence[ColumnStatistics]) -> tuple[pa.Scalar | None, bool]:
    return _outermost([(child.minimum, child.minimum_exact) for child in children], min)


def _upper(children: Sequence[ColumnStatistics]) -> tuple[pa.Scalar | None, bool]:
    return _outermost([(child.maximum, child.maximum_exact) for child in children], max)


def _outermost(
    bounds: Sequence[tuple[pa.Scalar | None, bool]], choose: Callable[..., Any]
) -> tuple[pa.Scalar | None, bool]:
    """The outermost bound. Exact if one of the equal ones is: an inexact one then stands for a value further in."""
    if any(bound is None and not exact for bound, exact in bounds):
        return None, False
    keyed = [(order_key(bound), exact, bound) for bound, exact in bounds if bound is not None]
    if not keyed:
        return None, True
    best = choose(key for key, _, _ in keyed)
    bound = next(bound for key, _, bound in keyed if key == best)
    return bound, any(exact for key, exact, _ in keyed if key == best)


def _lengths(children: Sequence[ColumnStatistics], value_count: int) -> dict[str, Any]:
    total = _total(child.total_length for child in children)
    least = [child.minimum_length for child in children if child.minimum_length is not None]
    greatest = [child.maximum_length for child in children if child.maximum_length is not None]
    return {
        "minimum_length": min(least, default=None),
        "maximum_length": max(greatest, default=None),
        "total_length": total,
        "mean_length": total / value_count if total is not None and value_count else None,
    }


def _counts_only(children: Sequence[ColumnStatistics], absent: Sequence[ColumnStatistics]) -> ColumnStatistics:
    """What remains when one of the children has no class: counts, lengths of lists, and why."""
    first = absent[0]
    value_count = sum(child.value_count for child in children)
    lengths = _lengths(children, value_count) if all(child.type_class is None for child in children) else {}
    return ColumnStatistics(
        position=first.position,
        column=first.column,
        field_id=first.field_id,
        type=first.type,
        type_class=None,
        value_count=value_count,
        null_count=0,
        reason=min((child.reason for child in absent if child.reason), default=None),
        **lengths,
    )


def _type_text(children: Sequence[ColumnStatistics]) -> str:
    """The common type; where narrower types widened into one class, that of the class."""
    texts = sorted({child.type for child in children})
    if len(texts) == 1:
        return texts[0]
    classes = {child.type_class for child in children if child.type_class is not None}
    return str(class_named(classes.pop()).arrow) if len(classes) == 1 else texts[0]


def _eloquence(child: ColumnStatistics) -> tuple[object, ...]:
    return child.type_class is None, child.type_class == "null", child.type_class or "", child.frequencies, child.type


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if any(count is None for count in known) else sum(count for count in known if count is not None)
