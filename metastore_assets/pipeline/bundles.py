"""Which fragments are profiled together: by one task, into one file of states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.merging.tree import key_position

_MOST_WEIGHT = 32 << 20
_LEAST_WEIGHT = 4 << 20
"""Bytes that a bundle is ended at. Between the two, so that there is work for all."""
_OPENING = 256 << 10
"""What it costs to open a file, in bytes that are read meanwhile."""
_MOST_ROWS = 1 << 14
"""Columns of all fragments of a bundle: rows of its file."""


def weight(fragments: Iterable[Fragment]) -> float:
    """What it costs to read them, in bytes."""
    return float(sum(fragment.bytes + _OPENING for fragment in fragments))


def bundles(
    fragments: Sequence[Fragment], alone: Collection[str], columns: int, tasks: int = 1
) -> list[tuple[Fragment, ...]]:
    """All fragments, those of one partition together as far as they are small; at least about `tasks` where there are.

    `alone` are the ids of fragments that have a partition to themselves; `columns` is how many columns are profiled.
    Neighbours in the tree that merges a partition are neighbours in its bundles.
    """
    most = min(_MOST_WEIGHT, max(_LEAST_WEIGHT, weight(fragments) / max(1, tasks)))
    found: list[tuple[Fragment, ...]] = []
    ordered = sorted(fragments, key=lambda own: (own.partition_key, key_position(own.id)))
    for _, partition in groupby(ordered, key=lambda own: own.partition_key):
        bundle: list[Fragment] = []
        for fragment in partition:
            if fragment.id in alone:
                found.append((fragment,))
                continue
            full = weight([*bundle, fragment]) > most or (len(bundle) + 1) * columns > _MOST_ROWS
            if bundle and full:
                found.append(tuple(bundle))
                bundle = []
            bundle.append(fragment)
        if bundle:
            found.append(tuple(bundle))
    return found
