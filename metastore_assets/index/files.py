"""What the files of an index have in common, of all three kinds: folder, sections, and which of their rows count.

Of a series of immutable files the newest one that has a key decides, or says that it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

FOLDER = "index"
GONE = "gone"
"""Name of the section of keys that a file says are gone."""
ROWS = "fragments"
"""Name of the section of the fragments that a file has rows of."""


def section_of(field_id: str) -> str:
    """The name of a column's section."""
    return f"column {field_id}"


def padded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of some columns of a schema as one of all of them, the others null."""
    arrays = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. Arrow makes none of no chunks where the type is an extension."""
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


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
