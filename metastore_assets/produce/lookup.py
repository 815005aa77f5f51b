"""Looking up keys in a run: its row groups are read ahead and searched, and few rows of each are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from metastore_assets.produce.layout import Layout
from metastore_assets.produce.order import Order
from metastore_assets.produce.rows import frame_of
from metastore_assets.produce.runs import Run, completed, footer_of, stored_columns
from metastore_assets.produce.streams import Stream
from metastore_assets.store.objects import ObjectStore

_ROW_GROUPS = 4
"""Row groups that are read together where their rows are known to be small; more would only take more memory."""
_FEW = 4
"""Keys are searched for in rows where there are fewer than one for so many rows; else the rows among the keys."""


def find_in_run(storage: ObjectStore, run: Run, layout: Layout, keys: pl.DataFrame, columns: Iterable[str]) -> Stream:
    """The rows of a run that have one of some sorted keys; `columns` are to include those of the keys."""
    names = list(columns)
    return Stream(_found(storage, run, layout, keys, names), layout.empty[names])


def _found(
    storage: ObjectStore, run: Run, layout: Layout, keys: pl.DataFrame, names: list[str]
) -> Iterator[pl.DataFrame]:
    footer = footer_of(storage, run.path)
    counts = layout.group.counts(keys, footer.first, footer.last)
    numbers = [number for number, count in enumerate(counts) if count]
    if not numbers:
        return
    search = _Search(layout.group, keys)
    largest = max(footer.metadata.row_group(number).num_rows for number in numbers)
    # A few rows of each row group come together: every frame costs whoever reads it, however small it is.
    waiting: list[pa.Table] = []
    rows = 0
    for table in _candidates(storage, run, layout, numbers, stored_columns(run, names), search):
        if waiting and rows + table.num_rows > largest:
            yield completed(search.exact(frame_of(pa.concat_tables(waiting))), names)
            waiting, rows = [], 0
        waiting.append(table)
        rows += table.num_rows
    yield completed(search.exact(frame_of(pa.concat_tables(waiting))), names)


class _Search:
    """Finds the rows of sorted tables that have one of some sorted keys."""

    def __init__(self, order: Order, keys: pl.DataFrame) -> None:
        self._order = order
        self._keys = keys[list(order.columns)]
        numbers = order.numbers(keys[order.columns[0]])
        self._numbers = numbers if numbers is None or len(order.columns) == 1 else np.unique(numbers)

    def candidates(self, table: pa.Table) -> pa.Table:
        """No fewer rows than those that have one of the keys; `exact` leaves out the others."""
        places = self._near(table.column(self._order.columns[0]))
        if places is None:
            places = self._order.places(frame_of(table.select(self._order.columns)), self._keys)
        return table.take(pa.array(places))

    def exact(self, candidates: pl.DataFrame) -> pl.DataFrame:
        """The rows that have one of the keys."""
        if self._numbers is None or len(self._order.columns) == 1:
            return candidates
        return self._order.semi(candidates, self._keys)

    def _near(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
        """The places of the rows whose first key column has a value that a key has; None where it has no numbers."""
        if self._numbers is None or column.null_count:
            return None
        rows = self._order.numbers(pl.Series(column))
        if rows is None or not len(rows):
            return None
        wanted = self._numbers
        wanted = wanted[np.searchsorted(wanted, rows[0]) : np.searchsorted(wanted, rows[-1], "right")]
        if len(wanted) * _FEW > len(rows):
            nearest = wanted[np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)]
            return np.flatnonzero(nearest == rows)
        start = np.searchsorted(rows, wanted)
        counts = np.searchsorted(rows, wanted, "right") - start
        ends = counts.cumsum()
        return np.repeat(start - ends + counts, counts) + np.arange(counts.sum())


def _candidates(
    storage: ObjectStore, run: Run, layout: Layout, numbers: Sequence[int], names: list[str], search: _Search
) -> Iterator[pa.Table]:
    """What is found in some row groups, in their order; the next ones are read while the last ones are searched."""
    together = _ROW_GROUPS if all(_is_small(layout.file_schema.field(name).type) for name in names) else 1
    batches = [numbers[start : start + together] for start in range(0, len(numbers), together)]
    with ExitStack() as stack:
        file = stack.enter_context(storage.open_parquet(run.path, footer_of(storage, run.path).metadata))
        if len(batches) == 1:
            yield search.candidates(file.read_row_groups(batches[0], columns=names))
            return
        reader = stack.enter_context(ThreadPoolExecutor(1))
        ahead = reader.submit(file.read_row_groups, batches[0], columns=names)
        for batch in batches[1:]:
            table = ahead.result()
            ahead = reader.submit(file.read_row_groups, batch, columns=names)
            yield search.candidates(table)
        yield search.candidates(ahead.result())


def _is_small(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) or pa.types.is_decimal(type_))
