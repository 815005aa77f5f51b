"""Which rows of a series of immutable files count: the newest file that has a key decides, or says that it is gone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

GONE = "gone"
"""Name of the section of keys that a file says are gone."""


def live_masks(keys: Sequence[pa.Array], gone: Sequence[pa.Array]) -> list[pa.Array | None]:
    """By file, oldest first, a mask of its keys that no newer file has or says are gone; None where that is all.

    `keys` are those that each file has rows of, `gone` those that it says are gone.
    """
    found: list[pa.Array | None] = []
    newer: list[pa.Array] = []
    for own, dropped in zip(reversed(keys), reversed(gone), strict=True):
        live = None
        if newer:
            superseded = pc.is_in(own, value_set=pa.concat_arrays(newer))
            live = pc.invert(superseded) if pc.any(superseded).as_py() else None
        found.append(live)
        newer += [own, dropped]
    return found[::-1]
