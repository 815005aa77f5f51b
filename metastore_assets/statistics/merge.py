"""Merging the statistics of disjoint sets of rows: pure, n-ary, associative, commutative; all columns at once.

Counts, bounds, sums, means, deviations, lengths, sketches of distinct values and fingerprints merge exactly; skewness
and kurtosis to rounding. Distinct counts and percentiles become estimates unless they follow from what is exact, and
are made exact again by the merged frequencies (`told.apply_facts`). How merges are grouped may show in an estimate, but
whichever way it was, no fewer distinct values are told than of any of the parts, nor more than of all of them together.

What is merged are tables of states; numbers that follow from them are computed when they are told (`told.completed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import STATISTICS, FrequencyState
from metastore_assets.statistics.distinct import estimate_distinct
from metastore_assets.statistics.extremes import Bounds, merge_bounds
from metastore_assets.statistics.sketches import (
    Flags,
    Numbers,
    integers,
    matrix,
    merged_digests,
    merged_distinct_sketches,
    merged_fingerprints,
    merged_histograms,
    merged_moments,
    merged_user_states,
    of_all,
)
from metastore_assets.statistics.states import (
    SKETCH_COLUMNS,
    STATE_COLUMNS,
    UNION_COLUMNS,
    combine_to_one_chunk,
    sketch_columns,
)
from metastore_assets.statistics.tables import statistic_type
from metastore_assets.statistics.union import cast_to_union, merge_unions
from metastore_assets.values.types import TypeClass, class_named

_STATES: tuple[FrequencyState, ...] = ("enumerated", "repeated", "estimated", "off", "absent")


def merge_states(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """The states of all the parts' rows together: of one table of states or more, whose row i is of the same column.

    A part without values says nothing of a column but its nulls; where one part alone has values, or none has, one of
    them is taken over as it is, but for the nulls. Raises CorruptionError, which says which of the `columns` it is,
    when parts with values are of several type classes.
    """
    if not parts:
        raise ValueError("nothing to merge: at least one part is needed")
    if len(parts) == 1:
        return parts[0]
    parts = [combine_to_one_chunk(part) for part in parts]
    union = merge_unions([part.schema.field("minimum").type for part in parts])
    parts = [_with_union(part, union) for part in parts]
    codes, names = _classes(parts)
    values, _ = integers(parts, "value_count")
    speaking = values > 0
    speakers = speaking.sum(axis=0)
    # Where none has any, one of them speaks for all.
    spokesman = np.where(speakers == 1, speaking.argmax(axis=0), _eloquent(parts, codes, names))
    own = np.where(speaking, codes, -1).max(axis=0)
    absent: Flags = np.logical_or.reduce(speaking & (codes < 0), axis=0)
    if (clash := (speaking & (codes != own) & ~absent).any(axis=0)).any():
        at = int(clash.argmax())
        found = sorted({names[code] for code in codes[speaking[:, at], at]})
        raise CorruptionError(
            f"column {columns[at]!r}: profiles of the type classes {', '.join(found)} cannot be merged; "
            "`metastore refresh NAME --full` rebuilds"
        )
    several = np.flatnonzero(speakers > 1)
    merged = [_merge(parts, speaking, own, absent, several, names, union)] if len(several) else []
    rows = spokesman * len(values[0]) + np.arange(len(values[0]))
    rows[several] = len(parts) * len(values[0]) + np.arange(len(several))
    whole = merged[0] if len(several) == len(rows) > 0 else combine_to_one_chunk(pa.concat_tables([*parts, *merged]))
    table = whole if whole.num_rows == len(rows) else combine_to_one_chunk(whole.take(pa.array(rows)))
    nulls, _ = integers(parts, "null_count")
    table = _replaced(table, "null_count", pa.array(nulls.sum(axis=0)))
    # Of hidden values there are fingerprints without a class; beside values of a class they would say nothing.
    return _replaced(table, "multiset_hash", merged_fingerprints(parts, absent & (own >= 0)))


def _merge(
    parts: Sequence[pa.Table],
    speaking: Flags,
    own: Numbers,
    absent: Flags,
    several: npt.NDArray[np.intp],
    names: Sequence[str],
    union: pa.StructType,
) -> pa.Table:
    """The merged rows of the columns, by their numbers `several`, of which more than one part has values.

    Of a column of which a part has no class, what remains are counts, lengths of lists, and why.
    """
    if len(several) < len(own):
        parts = [combine_to_one_chunk(part.take(pa.array(several))) for part in parts]
    speaking, own, absent = speaking[:, several], own[several], absent[several]
    typed = speaking & ~absent
    classless = np.array([part["type_class"].is_null().to_numpy() for part in parts]) | ~speaking
    merged: dict[str, Any] = {
        name: pa.nulls(len(several), _type(name, union)) for name in (*STATE_COLUMNS, *SKETCH_COLUMNS)
    }
    merged["field_id"] = parts[0]["field_id"]
    merged["value_count"] = pa.array(integers(parts, "value_count")[0].sum(axis=0))
    merged["type_class"] = pa.array(
        [None if none else names[at] for none, at in zip(absent, own, strict=True)], pa.string()
    )
    lists = ~absent | classless.all(axis=0)
    # Hidden values have no class, and sketches all the same.
    sketched = speaking & lists
    for name in STATE_COLUMNS:
        match STATISTICS[name].merge:
            case "sum":
                merged[name] = _total(parts, name, speaking, ~absent)
            case "sum of lengths":
                merged[name] = _total(parts, name, speaking, lists)
            case "least":
                merged[name] = _extreme(parts, name, speaking, lists, np.minimum)
            case "greatest":
                merged[name] = _extreme(parts, name, speaking, lists, np.maximum)
    merged["reason"] = _reasons(parts, speaking & classless, absent)
    held = _codes(parts, "frequencies", _STATES)
    merged["frequencies"] = pa.array([_STATES[at] for at in np.where(typed, held, -1).max(axis=0)], pa.string())
    classes = [None if none else class_named(names[at]) for none, at in zip(absent, own, strict=True)]
    lower, upper = (merge_bounds(parts, side, typed, classes, union) for side in ("minimum", "maximum"))
    merged["minimum"], merged["minimum_exact"] = lower.values, pa.array(lower.exact)
    merged["maximum"], merged["maximum_exact"] = upper.values, pa.array(upper.exact)
    merged["percentiles_guarantee"] = pa.array(["absent"] * len(several), pa.string())
    moments = merged_moments(parts, typed)
    sketches = merged_distinct_sketches(parts, sketched)
    digests = merged_digests(parts, typed, moments)
    histograms, user_states = merged_histograms(parts, typed), merged_user_states(parts, typed)
    columns = sketch_columns(moments, digests, sketches, histograms, user_states)
    merged |= dict(zip(SKETCH_COLUMNS, columns, strict=True))
    _tell_distinct(merged, parts, sketched, classes, (lower, upper), sketches)
    return combine_to_one_chunk(pa.table(merged))


def _tell_distinct(
    merged: dict[str, Any],
    parts: Sequence[pa.Table],
    sketched: Flags,
    classes: Sequence[TypeClass | None],
    bounds: tuple[Bounds, Bounds],
    sketches: Sequence[bytes | None],
) -> None:
    """Distinct values: exact where exact numbers imply them, else as far as the sketches tell.

    There can be no more than those of the children together, whatever these are worth. As each child's number is
    itself within those of its own children, the numbers of a tree of merges are within what its leaves counted: none
    is below the greatest of them, nor above their sum.
    """
    told, known = integers(parts, "distinct_count")
    values, _ = integers(parts, "value_count")
    most = np.where(sketched, np.where(known, told, values), 0).sum(axis=0).tolist()
    least = np.where(sketched, np.where(known & (told > 0), told, 1), 0).max(axis=0).tolist()
    spans = bounds[0].distances_to(bounds[1], classes)
    implied = _implied_counts(merged, classes, spans)
    distinct: list[int | None] = []
    guarantees: list[str] = []
    duplicates: list[int | None] = []
    for at, sketch in enumerate(sketches):
        held = implied[at]
        if held is not None:
            distinct.append(len(held))
            guarantees.append("exact")
            duplicates.append(sum(count > 1 for count in held))
            continue
        estimate = None
        if sketch is not None:
            span, cls = spans[at], classes[at]
            if cls is not None and cls.kind == "integer" and span is not None:
                most[at] = min(most[at], span + 1)
            estimate = max(min(estimate_distinct(sketch), most[at]), least[at])
        distinct.append(estimate)
        guarantees.append("absent" if estimate is None else "estimate")
        duplicates.append(None)
    merged["distinct_count"] = pa.array(distinct, pa.int64())
    merged["distinct_count_guarantee"] = pa.array(guarantees, pa.string())
    merged["duplicate_count"] = pa.array(duplicates, pa.int64())


def _implied_counts(
    merged: dict[str, Any], classes: Sequence[TypeClass | None], spans: Sequence[int | float | None]
) -> list[list[int] | None]:
    """The frequencies of all values where exact numbers determine them: of booleans, a constant, nothing but NaN."""
    numbers = [merged[name].to_pylist() for name in ("value_count", "nan_count", "true_count")]
    exact = [
        a and b for a, b in zip(*(merged[f"{side}imum_exact"].to_pylist() for side in ("min", "max")), strict=True)
    ]
    found: list[list[int] | None] = []
    for n, nans, trues, cls, sure, span in zip(*numbers, classes, exact, spans, strict=True):
        if cls is None:
            found.append(None)
        elif cls.kind == "boolean" and trues is not None:
            found.append([count for count in (n - trues, trues) if count])
        elif sure and span == 0:
            found.append([count for count in (n - (nans or 0), nans or 0) if count])
        else:
            found.append(None)
    return found


def _classes(parts: Sequence[pa.Table]) -> tuple[Numbers, list[str]]:
    """The parts' classes as numbers into a list of names; -1: none."""
    names = sorted({name for part in parts for name in part["type_class"].unique().to_pylist() if name is not None})
    return _codes(parts, "type_class", names), names


def _eloquent(parts: Sequence[pa.Table], codes: Numbers, names: Sequence[str]) -> npt.NDArray[np.intp]:
    """By column: the part that says most where none has values."""
    rank = {name: at for at, name in enumerate(names)} | {"null": len(names)}
    ranks = np.array([*(rank[name] for name in names), len(names) + 1])  # -1: no class, the last
    states = _codes(parts, "frequencies", sorted(_STATES))
    return cast("npt.NDArray[np.intp]", (ranks[codes] * (len(_STATES) + 1) + states).argmin(axis=0))


def _codes(parts: Sequence[pa.Table], name: str, values: Sequence[str]) -> Numbers:
    found = pc.index_in(of_all(parts, name), pa.array(values, pa.string())).fill_null(-1)
    return matrix(parts, found).astype(np.int64, copy=False)


def _total(parts: Sequence[pa.Table], name: str, speaking: Flags, wanted: Flags) -> pa.Array:
    values, known = integers(parts, name)
    missing = (speaking & ~known).any(axis=0) | ~wanted
    return pa.array(np.where(speaking, values, 0).sum(axis=0), mask=missing)


def _extreme(parts: Sequence[pa.Table], name: str, speaking: Flags, wanted: Flags, choose: np.ufunc) -> pa.Array:
    values, known = integers(parts, name)
    known &= speaking
    limit = np.iinfo(np.int64)
    neutral = limit.max if choose is np.minimum else limit.min
    return pa.array(choose.reduce(np.where(known, values, neutral), axis=0), mask=~(known.any(axis=0) & wanted))


def _reasons(parts: Sequence[pa.Table], said: Flags, absent: Flags) -> pa.Array:
    if not absent.any():
        return pa.nulls(len(absent), pa.string())
    own = [part["reason"].to_pylist() for part in parts]
    reasons = [
        min((part[at] for part, flag in zip(own, flags, strict=True) if flag and part[at]), default=None)
        if none
        else None
        for at, (flags, none) in enumerate(zip(said.T.tolist(), absent.tolist(), strict=True))
    ]
    return pa.array(reasons, pa.string())


def _with_union(part: pa.Table, union: pa.StructType) -> pa.Table:
    """The part with `union` in place of its own, which may have fewer classes."""
    for name in UNION_COLUMNS:
        if part.schema.field(name).type != _type(name, union):
            own = cast_to_union(part[name].chunk(0), union) if part.num_rows else pa.nulls(0, _type(name, union))
            part = _replaced(part, name, own)
    return part


def _type(name: str, union: pa.StructType) -> pa.DataType:
    return SKETCH_COLUMNS[name] if name in SKETCH_COLUMNS else statistic_type(name, union)


def _replaced(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, array)
