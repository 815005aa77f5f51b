"""Comparison of the stages derived from value counts: order by frequency, counts by frequency, and fingerprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa

from metastore_assets.produce import View
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS, fingerprint_dataflow
from metastore_assets.value_counts.graph import FACTS, FREQUENCIES
from metastore_assets.value_counts.state import TableValueCounts

_COMPARED = {FREQUENCIES: "order by frequency", FACTS: "counts by frequency", FINGERPRINTS: "fingerprints"}


@dataclass(frozen=True)
class DifferingRow:
    """The first row of a stage that differs between two states of value counts."""

    column: str
    """The field id."""
    what: str
    """The kind of rows, as messages name it."""
    own: str
    other: str
    """Both rows as text; `nothing` if one side has no more rows."""


def differing_rows(
    store: ObjectStore, own: TableValueCounts, other_store: ObjectStore, other: TableValueCounts
) -> Iterator[DifferingRow]:
    """Yield the first differing row of each derived stage. The values themselves are not compared.

    Raises:
        CorruptionError: A file is missing or damaged.
    """
    pairs = (
        (own.flow, own.dataflow(store).view(own.flow), other.flow, other.dataflow(other_store).view(other.flow)),
        (
            own.fingerprinted.flow,
            _fingerprints(store, own),
            other.fingerprinted.flow,
            _fingerprints(other_store, other),
        ),
    )
    for flow, view, other_flow, other_view in pairs:
        for stage in sorted(flow.stages.keys() & other_flow.stages.keys()):
            what = _COMPARED.get(stage.partition(".")[0])
            if what is not None:
                yield from _first(what, view.content_batches(stage), other_view.content_batches(stage))


def _fingerprints(store: ObjectStore, lists: TableValueCounts) -> View:
    return fingerprint_dataflow(store, lists.fingerprinted.columns.values()).view(lists.fingerprinted.flow)


def _first(what: str, own: Iterable[pa.RecordBatch], other: Iterable[pa.RecordBatch]) -> Iterator[DifferingRow]:
    for left, right in aligned(own, other):
        if left.equals(right):
            continue
        # Rows are compared as text, because NaN is not equal to itself.
        for row, other_row in zip_longest(_texts(left), _texts(right), fillvalue=()):
            if row != other_row:
                yield DifferingRow((row or other_row)[0], what, _text(row), _text(other_row))
                return


def _texts(table: pa.Table) -> Iterator[tuple[str, ...]]:
    return zip(*([str(value) for value in column] for column in table.columns), strict=True)


def _text(row: tuple[str, ...]) -> str:
    return ", ".join(row[1:]) if row else "nothing"


def aligned(own: Iterable[pa.RecordBatch], other: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield slices of equal length from both streams, then the remaining rows of the longer one beside empty tables.

    Holds one batch of each stream.
    """
    left_batches, right_batches = (filter(len, batches) for batches in (own, other))
    left, right = next(left_batches, None), next(right_batches, None)
    while left is not None and right is not None:
        count = min(len(left), len(right))
        yield pa.Table.from_batches([left.slice(0, count)]), pa.Table.from_batches([right.slice(0, count)])
        left = left.slice(count) if len(left) > count else next(left_batches, None)
        right = right.slice(count) if len(right) > count else next(right_batches, None)
    for table in (pa.Table.from_batches([rest]) for rest in (left, right) if rest is not None):
        nothing = table.slice(0, 0)
        yield (nothing, table) if left is None else (table, nothing)
