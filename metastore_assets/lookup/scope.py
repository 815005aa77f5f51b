"""What a predicate chooses of a version: whole partitions, whole fragments of others, and fragments that it cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from metastore_assets.errors import CorruptionError
from metastore_assets.lookup.prune import Pruning
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry

_FEW = 8
"""Partitions that are looked up one by one."""


@dataclass(frozen=True)
class Scope:
    """The rows that a predicate is true of, as far as profiles are of them.

    Partitions and fragments without such a row are left out; those of no row at all count as if they were not there.
    """

    partitions: tuple[PartitionEntry, ...]
    """The predicate is true of all of their rows. In the order of the version."""
    fragments: tuple[FragmentEntry, ...]
    """Of other partitions; likewise."""
    cut: tuple[FragmentEntry, ...]
    """It may be true of some of their rows, and false or null of others: what is kept tells no rows apart."""
    cut_partitions: tuple[PartitionEntry, ...]
    """The partitions that `fragments` and `cut` are of. In the order of the version."""
    rows: tuple[int, int]
    """At least and at most so many rows, both inclusive."""
    is_everything: bool
    """Whether it is true of all rows of the version."""
    fragments_total: int
    """Fragments of the version."""

    @property
    def row_count(self) -> int:
        """Rows of what is chosen as a whole."""
        counts = [own.row_count for own in self.partitions] + [own.row_count for own in self.fragments]
        return sum(counts)

    def within(self, key: str) -> Scope:
        """The same of one partition, of which the bounds of the number of rows are not known any better."""
        return replace(
            self,
            partitions=tuple(own for own in self.partitions if own.key == key),
            fragments=tuple(own for own in self.fragments if own.partition_key == key),
            cut=tuple(own for own in self.cut if own.partition_key == key),
            cut_partitions=tuple(own for own in self.cut_partitions if own.key == key),
            is_everything=False,
        )


def scope_of(found: Pruning, find: Callable[[str], PartitionEntry | None]) -> Scope:
    """What pruning by a predicate has found, partition by partition. `find`: the partition of a key."""
    version, keys = found.version, found.partition_keys()
    full, some = found.bounds.least == found.row_counts, found.bounds.most > 0
    names, codes = keys.dictionary.to_pylist(), keys.indices.to_numpy()
    partly = np.bincount(codes, ~full, len(names)) > 0
    meant = np.bincount(codes, some, len(names)) > 0
    whole = [names[at] for at in np.flatnonzero(meant & ~partly)]
    cut = [names[at] for at in np.flatnonzero(meant & partly)]
    entries: tuple[FragmentEntry, ...] = ()
    states: dict[str, bool] = {}
    if cut:
        inside = (meant & partly)[codes] & some
        states = dict(zip(found.ids(inside), full[inside].tolist(), strict=True))
        entries = tuple(own for own in version.fragments if own.retired is None and own.id in states)
        if len(entries) != len(states):
            raise CorruptionError(
                f"table {version.table!r}, version {version.number}: its index has fragments that it has not; rebuild "
                f"with `metastore refresh {version.table} --full`"
            )
    return Scope(
        partitions=_entries(found, whole, find),
        fragments=tuple(own for own in entries if states[own.id]),
        cut=tuple(own for own in entries if not states[own.id]),
        cut_partitions=_entries(found, cut, find),
        rows=found.rows,
        is_everything=not partly.any(),
        fragments_total=found.fragments_total,
    )


def _entries(
    found: Pruning, keys: list[str], find: Callable[[str], PartitionEntry | None]
) -> tuple[PartitionEntry, ...]:
    if len(keys) <= _FEW:
        return tuple(entry for key in sorted(keys) if (entry := find(key)) is not None)
    wanted = set(keys)
    return tuple(entry for entry in found.version.partitions if entry.key in wanted)
