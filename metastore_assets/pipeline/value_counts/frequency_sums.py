"""The sums of frequencies to compute, with their signed terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies
from metastore_assets.store.manifest import ProfileFiles

R = TypeVar("R")
WriteSums: TypeAlias = Callable[[int, Iterable[tuple[int, Frequencies]]], R]
"""Receives a profile number, and the position and full frequencies of some of its columns, by increasing position."""


@dataclass(frozen=True)
class FrequencySum:
    """Columns of one profile to sum from the frequencies of other profiles."""

    total: int
    """The number of the profile that the sum belongs to. Several sums may belong to one profile."""
    positions: tuple[int, ...]
    """Positions of the columns in the profile spec."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    """Profiles with their signs. A column without frequencies in a profile counts as empty."""
    rows: int
    """The approximate number of values in the terms, over all columns."""
    splitters: Mapping[int, pa.Array] = field(default_factory=dict)
    """The values that split columns into ranges, by position. One task sums each range."""


def full_sums(
    spec: ProfileSpec, columns: Iterable[tuple[int, Sequence[tuple[Frequencies, int]]]]
) -> Iterator[tuple[int, Frequencies]]:
    """Yield position and full frequencies of each column, one at a time."""
    for position, lists in columns:
        try:
            yield position, sum_frequencies(lists)
        except CorruptionError as error:
            leaf, _ = spec.leaves[position]
            raise CorruptionError(f"column {leaf.path!r}: {error}") from error
