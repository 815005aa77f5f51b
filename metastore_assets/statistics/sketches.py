"""Columns of sketches, fingerprints and counts of several tables of states, merged column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.statistics.distinct import merge_distinct_sketches
from metastore_assets.statistics.histogram import Histogram, merge_histograms
from metastore_assets.statistics.moments import decode_moments, encode_moments, merge_moments
from metastore_assets.statistics.quantiles import Digest, merge_digests
from metastore_assets.statistics.states import decode_digests, decode_histograms
from metastore_assets.statistics.user_defined.states import merge_user_states

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def integers(parts: Sequence[pa.Table], name: str) -> tuple[Numbers, Flags]:
    """A matrix of parts and columns, 0 for null; and where there is no null."""
    column = of_all(parts, name)
    return matrix(parts, column.fill_null(0)), matrix(parts, column.is_valid())


def of_all(parts: Sequence[pa.Table], name: str) -> pa.ChunkedArray:
    """A column of all parts, one after the other: a call of Arrow costs more than what it does to some values."""
    columns = [part[name] for part in parts]
    return pa.chunked_array([chunk for own in columns for chunk in own.chunks], columns[0].type)


def matrix(parts: Sequence[pa.Table], values: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Values of all parts, without nulls, a row for each part."""
    return values.to_numpy().reshape(len(parts), -1)


def merged_moments(parts: Sequence[pa.Table], typed: Flags) -> list[bytes | None]:
    """By column: the moments of the parts that have a say in it; None where one of them has none."""
    return [
        None
        if not held or any(state is None for state in held)
        else encode_moments(merge_moments([decode_moments(cast("bytes", state)) for state in held]))
        for held in _held(parts, "moments", typed)
    ]


def merged_user_states(parts: Sequence[pa.Table], typed: Flags) -> list[bytes | None]:
    """By column: the states of user-defined statistics of those parts."""
    if all(part["user_states"].null_count == len(part) for part in parts):
        return [None] * typed.shape[1]
    return [merge_user_states(held) for held in _held(parts, "user_states", typed)]


def merged_distinct_sketches(parts: Sequence[pa.Table], typed: Flags) -> list[bytes | None]:
    """By column: the sketch of the distinct values of those parts; None where one of them has none."""
    return [
        None if not held or any(state is None for state in held) else merge_distinct_sketches(held)
        for held in _held(parts, "distinct_sketch", typed)
    ]


def merged_digests(parts: Sequence[pa.Table], typed: Flags, moments: Sequence[bytes | None]) -> list[Digest | None]:
    """By column: the digest of the finite values of those parts, by their merged `moments`; None where one lacks it."""
    own = [decode_digests(part) for part in parts]
    values, _ = integers(parts, "value_count")
    states = [part["moments"].to_pylist() for part in parts]
    merge_user_states: list[Digest | None] = []
    for at, flags in enumerate(typed.T.tolist()):
        found: list[Digest] = []
        for part, speaks in enumerate(flags):
            digest = own[part][at]
            if speaks and digest is not None:
                found.append(digest)
            elif speaks and (values[part, at] if moments[at] is None else decode_moments(states[part][at]).n):
                # Without a sketch although there are finite values: the policy was off, and the others' say too little.
                found = []
                break
        merge_user_states.append(merge_digests(found) if found else None)
    return merge_user_states


def merged_histograms(parts: Sequence[pa.Table], typed: Flags) -> list[Histogram | None]:
    """By column: the histogram of those parts, as far as they have one."""
    own = [decode_histograms(part) for part in parts]
    merge_user_states: list[Histogram | None] = []
    for at, flags in enumerate(typed.T.tolist()):
        found = [held for part, speaks in zip(own, flags, strict=True) if speaks and (held := part[at]) is not None]
        merge_user_states.append(merge_histograms(found) if found else None)
    return merge_user_states


def _held(parts: Sequence[pa.Table], name: str, typed: Flags) -> list[list[Any]]:
    """By column: what the parts hold that have a say in it."""
    own = [part[name].to_pylist() for part in parts]
    return [
        [part[at] for part, speaks in zip(own, flags, strict=True) if speaks]
        for at, flags in enumerate(typed.T.tolist())
    ]


def merged_fingerprints(parts: Sequence[pa.Table], absent: Flags) -> pa.Array:
    """The sums of all parts' fingerprints, null where one of them is missing."""
    missing = absent.copy()
    total = np.zeros((len(absent), 2), np.uint64)
    for part in parts:
        column = part["multiset_hash"].chunk(0) if part.num_rows else pa.array([], pa.binary())
        missing |= column.is_null().to_numpy(zero_copy_only=False)
        halves = column.fill_null(bytes(16)).cast(pa.binary(16))
        total += np.frombuffer(halves.buffers()[1], "<u8", 2 * len(halves), 16 * halves.offset).reshape(-1, 2)
    sums = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(absent), [None, pa.py_buffer(total)])
    return pc.if_else(pa.array(missing), None, sums.cast(pa.binary()))
