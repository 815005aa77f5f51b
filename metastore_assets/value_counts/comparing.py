"""Comparison of stored and recomputed value counts: the first row that differs in each derived stage.

Each stage has the same counts in another order or grouping. The first stage is sorted by value, and is not compared.
Derived stages are sorted by frequency, grouped by frequency, or grouped by fingerprint (a hash of the value).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa

from metastore_assets.produce import View
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS, fingerprint_dataflow
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS
from metastore_assets.value_counts.state import TableValueCounts
from metastore_assets.values.json import scalar_text

_STAGE_CONTENTS = {
    FREQUENCIES: "order by frequency",
    FREQUENCY_COUNTS: "counts by frequency",
    FINGERPRINTS: "fingerprints",
}


@dataclass(frozen=True)
class DifferingRow:
    """The first row of a derived stage that differs between stored and recomputed value counts."""

    column: str
    """The field id of the column."""
    content: str
    """The content of the stage: `order by frequency`, `counts by frequency` or `fingerprints`."""
    stored: str
    """The stored row as text; `nothing` if there are no more stored rows."""
    computed: str
    """The recomputed row as text; `nothing` if there are no more recomputed rows."""


def differing_rows(
    store: ObjectStore, stored_counts: TableValueCounts, scratch: ObjectStore, computed_counts: TableValueCounts
) -> Iterator[DifferingRow]:
    """Yield the first differing row of each derived stage that is both stored and recomputed.

    Nothing is yielded for equal stages. The module describes which stages are derived; other stages are not compared.

    Args:
        store: The folder of the stored value counts.
        stored_counts: The stored value counts.
        scratch: The folder of the recomputed value counts.
        computed_counts: The recomputed value counts.

    Raises:
        CorruptionError: A file is missing or damaged.
    """
    enumerated_views = (
        stored_counts.dataflow(store).view(stored_counts.flow),
        computed_counts.dataflow(scratch).view(computed_counts.flow),
    )
    fingerprint_views = _fingerprint_view(store, stored_counts), _fingerprint_view(scratch, computed_counts)
    flows = (
        (stored_counts.flow, computed_counts.flow),
        (stored_counts.fingerprinted.flow, computed_counts.fingerprinted.flow),
    )
    for (stored_flow, computed_flow), views in zip(flows, (enumerated_views, fingerprint_views), strict=True):
        for stage in sorted(stored_flow.stages.keys() & computed_flow.stages.keys()):
            content = _STAGE_CONTENTS.get(stage.partition(".")[0])
            if content is not None:
                yield from _first_difference(content, *(view.content_batches(stage) for view in views))


def _fingerprint_view(store: ObjectStore, value_counts: TableValueCounts) -> View:
    fingerprinted_counts = value_counts.fingerprinted
    return fingerprint_dataflow(store, fingerprinted_counts.columns.values()).view(fingerprinted_counts.flow)


def _first_difference(
    content: str, stored_batches: Iterable[pa.RecordBatch], computed_batches: Iterable[pa.RecordBatch]
) -> Iterator[DifferingRow]:
    """Yield the first differing row of two streams; nothing if they are equal.

    Args:
        content: The content of the stage, for `DifferingRow.content`: for example, `order by frequency`.
        stored_batches: The stored rows of the stage.
        computed_batches: The recomputed rows of the stage.
    """
    for stored_rows, computed_rows in align_batches(stored_batches, computed_batches):
        if stored_rows.equals(computed_rows):
            continue
        # Rows are compared as text, because NaN is not equal to itself.
        for row, other in zip_longest(_texts(stored_rows), _texts(computed_rows), fillvalue=()):
            if row != other:
                yield DifferingRow((row or other)[0], content, _text(row), _text(other))
                return


def _texts(table: pa.Table) -> Iterator[tuple[str, ...]]:
    return zip(*([scalar_text(value) for value in column] for column in table.columns), strict=True)


def _text(row: tuple[str, ...]) -> str:
    return ", ".join(row[1:]) if row else "nothing"


def align_batches(
    left_stream: Iterable[pa.RecordBatch], right_stream: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield pairs of tables: the next rows of the left stream, and the next rows of the right stream.

    Both tables of a pair have equally many rows, with one exception: if one stream is shorter, the last pair has an
    empty table for it, and the next rows of the longer stream. The rest of the longer stream is not read. One batch of
    each stream is in memory.
    """
    left_batches, right_batches = (filter(len, batches) for batches in (left_stream, right_stream))
    left, right = next(left_batches, None), next(right_batches, None)
    while left is not None and right is not None:
        count = min(len(left), len(right))
        yield pa.Table.from_batches([left.slice(0, count)]), pa.Table.from_batches([right.slice(0, count)])
        left = left.slice(count) if len(left) > count else next(left_batches, None)
        right = right.slice(count) if len(right) > count else next(right_batches, None)
    for table in (pa.Table.from_batches([batch]) for batch in (left, right) if batch is not None):
        empty = table.slice(0, 0)
        yield (empty, table) if left is None else (table, empty)
