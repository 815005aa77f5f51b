"""What is summed of frequency lists: a sum has signed terms, and whoever writes it gets one column's list at a time."""

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
"""Called with the number of a profile, and position and full list of some of its columns, by increasing position."""


@dataclass(frozen=True)
class FrequencySum:
    """Some columns of one profile, to be summed from the lists of others."""

    total: int
    """Number of the profile that the sum is for; sums of one profile share it."""
    positions: tuple[int, ...]
    """Columns, by their position in the profile spec."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    """Lists with their signs. A column that a term does not list counts as empty."""
    rows: int
    """About how many values the terms list, over all columns."""
    splitters: Mapping[int, pa.Array] = field(default_factory=dict)
    """By position, what columns are cut by into ranges, each of which is summed by a task of its own."""


def full_sums(
    spec: ProfileSpec, columns: Iterable[tuple[int, Sequence[tuple[Frequencies, int]]]]
) -> Iterator[tuple[int, Frequencies]]:
    """Position and full list of each column, one at a time, of lists with their signs."""
    for position, lists in columns:
        try:
            yield position, sum_frequencies(lists)
        except CorruptionError as error:
            leaf, _ = spec.leaves[position]
            raise CorruptionError(f"column {leaf.path!r}: {error}") from error
