"""Lookup of keys in a run, a sorted Parquet file.

Only row groups that may contain a key are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from metastore_assets.produce.order import Order
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import Footer, Run, add_tombstone_column, footer_of, stored_columns
from metastore_assets.produce.streams import Stream
from metastore_assets.produce.typed_rows import frame_of
from metastore_assets.store.objects import ObjectStore

_MAX_ROWS_TOGETHER = 1 << 16
"""Maximum number of rows that are read at once from several small row groups."""
_ROWS_PER_KEY = 4
"""Number of rows per key above which each key is searched in the rows; below it, each row is searched in the keys."""


def find_in_run(
    storage: ObjectStore, run: Run, run_schema: RunSchema, keys: pl.DataFrame, columns: Iterable[str]
) -> Stream:
    """Return a stream of the rows of a run whose key is in `keys`.

    Args:
        storage: The storage of the run.
        run: The run.
        run_schema: Columns and order of the run.
        keys: The keys, sorted.
        columns: Columns to return, including the key columns.
    """
    names = list(columns)
    return Stream(_read_candidates(storage, run, run_schema, keys, names), run_schema.empty[:, names])


def _read_candidates(
    storage: ObjectStore, run: Run, run_schema: RunSchema, keys: pl.DataFrame, names: list[str]
) -> Iterator[pl.DataFrame]:
    """Yield frames with the rows of a run whose key is in `keys`.

    Args:
        storage: The store of the run.
        run: The run.
        run_schema: The columns of the run.
        keys: The keys, sorted.
        names: The columns to return.
    """
    footer = footer_of(storage, run.path)
    counts = run_schema.group.counts(keys, footer.first, footer.last)
    numbers = [number for number, count in enumerate(counts) if count]
    if not numbers:
        return
    search = _Search(run_schema.group, keys)
    largest = max(footer.metadata.row_group(number).num_rows for number in numbers)
    # Combine the few rows of many row groups, because every frame has a fixed cost for its reader.
    buffered_tables: list[pa.Table] = []
    rows = 0
    stored_names = stored_columns(run, names)
    batches = list(_batches(footer, run_schema, numbers, stored_names))
    for table in _candidates(storage, run, batches, stored_names, search):
        if buffered_tables and rows + table.num_rows > largest:
            yield add_tombstone_column(search.exact(frame_of(pa.concat_tables(buffered_tables))), names)
            buffered_tables, rows = [], 0
        buffered_tables.append(table)
        rows += table.num_rows
    yield add_tombstone_column(search.exact(frame_of(pa.concat_tables(buffered_tables))), names)


class _Search:
    """A search for some sorted keys in sorted tables."""

    def __init__(self, order: Order, keys: pl.DataFrame) -> None:
        self._order = order
        self._rest = Order(order.columns[1:], order.descending[1:])
        self._keys = keys[:, list(order.columns)]
        self._numbers: dict[str | None, npt.NDArray[Any] | None] = {None: _numbers(order, self._keys)}
        self._is_exact = True

    def candidates(self, table: pa.Table, lead: str | None) -> pa.Table:
        """Return all rows that have one of the searched keys, and perhaps others, which `exact` removes.

        Args:
            table: Sorted rows.
            lead: The value of the first key column in all rows, if the table lacks this column. None if the table has
                the column.
        """
        order = self._order if lead is None else self._rest
        positions = _positions_of(order, table.column(order.columns[0]), self._lead_numbers(lead))
        if positions is None:
            with_lead = table if lead is None else self._add_lead(table, lead)
            positions = self._order.positions(frame_of(with_lead.select(self._order.columns)), self._keys)
        elif len(order.columns) > 1:
            self._is_exact = False
        matches = table.take(pa.array(positions))
        return matches if lead is None else self._add_lead(matches, lead)

    def exact(self, candidates: pl.DataFrame) -> pl.DataFrame:
        """Return the candidates whose key equals one of the searched keys."""
        return candidates if self._is_exact else self._order.semi(candidates, self._keys)

    def _add_lead(self, table: pa.Table, lead: str) -> pa.Table:
        return table.add_column(0, self._order.columns[0], pa.repeat(pa.scalar(lead), table.num_rows))

    def _lead_numbers(self, lead: str | None) -> npt.NDArray[Any] | None:
        """Return one column of the searched keys as sorted integers.

        Returns None if `Order.numbers` does not convert the column. If `lead` is None, it is the first column of all
        searched keys. Otherwise, it is the second column of those searched keys whose first column is `lead`. For the
        keys (a, 1), (b, 2) and (b, 3), the lead b gives [2, 3].
        """
        if lead not in self._numbers:
            lead_keys = self._keys[(self._keys[self._order.columns[0]] == lead).arg_true()]
            self._numbers[lead] = _numbers(self._rest, lead_keys)
        return self._numbers[lead]


def _numbers(order: Order, keys: pl.DataFrame) -> npt.NDArray[Any] | None:
    numbers = order.numbers(keys[order.columns[0]])
    return numbers if numbers is None or len(order.columns) == 1 else np.unique(numbers)


def _positions_of(
    order: Order, column: pa.ChunkedArray, numbers: npt.NDArray[Any] | None
) -> npt.NDArray[np.int64] | None:
    """Return the positions of the rows in which a sorted key column has one of the sorted `numbers`.

    Returns None if the column cannot be searched by numbers: it is empty, has nulls, or has values that `Order.numbers`
    does not convert. Also returns None if `numbers` is None.
    """
    if numbers is None or column.null_count:
        return None
    rows = order.numbers(pl.Series(column))
    if rows is None or not len(rows):
        return None
    numbers = numbers[np.searchsorted(numbers, rows[0]) : np.searchsorted(numbers, rows[-1], "right")]
    if len(numbers) * _ROWS_PER_KEY > len(rows):
        nearest = numbers[np.minimum(np.searchsorted(numbers, rows), len(numbers) - 1)]
        return np.flatnonzero(nearest == rows)
    start = np.searchsorted(rows, numbers)
    counts = np.searchsorted(rows, numbers, "right") - start
    ends = counts.cumsum()
    return np.repeat(start - ends + counts, counts) + np.arange(counts.sum())


@dataclass(frozen=True)
class _Batch:
    """Row groups of a run that are read together, and the columns to read."""

    numbers: Sequence[int]
    names: Sequence[str]
    """The columns to read."""
    lead: str | None
    """The value of the first key column, if the footer shows that all rows have the same; otherwise None."""


def _candidates(
    storage: ObjectStore, run: Run, batches: Sequence[_Batch], names: list[str], search: _Search
) -> Iterator[pa.Table]:
    """Yield, for each batch in order, a table of the rows that may have a searched key.

    `_Search.candidates` selects the rows: all that have a searched key, and perhaps others. While rows are selected,
    and while the caller uses them, a thread reads the next batch.
    """
    footer = footer_of(storage, run.path)
    with ExitStack() as stack:
        file = stack.enter_context(storage.open_parquet(run.path, footer.metadata))

        def read(batch: _Batch) -> pa.Table:
            return file.read_row_groups(batch.numbers, columns=batch.names)

        def matches(batch: _Batch, table: pa.Table) -> pa.Table:
            return search.candidates(table, batch.lead).select(names)

        if len(batches) == 1:
            yield matches(batches[0], read(batches[0]))
            return
        reader = stack.enter_context(ThreadPoolExecutor(1))
        next_read = reader.submit(read, batches[0])
        for before, batch in pairwise(batches):
            table = next_read.result()
            next_read = reader.submit(read, batch)
            yield matches(before, table)
        yield matches(batches[-1], next_read.result())


def _batches(footer: Footer, run_schema: RunSchema, numbers: Sequence[int], names: list[str]) -> Iterator[_Batch]:
    """Group row groups into batches, each of which is read with one call.

    Consecutive row groups share a batch, up to `_MAX_ROWS_TOGETHER` rows, if two conditions hold:

    - All columns to read have values of fixed size: numbers, booleans, dates or times.
    - The row groups have the same `_Batch.lead`. This is the text in the first key column, if all rows of the row group
      have the same text.

    Args:
        footer: The footer of the run.
        run_schema: The columns of the run.
        numbers: The row groups, ascending.
        names: The columns to read.
    """
    first = run_schema.group.columns[0]
    leads: list[str | None] = [None] * footer.first.height
    if len(run_schema.group.columns) > 1 and run_schema.file_schema.field(first).type == pa.string():
        ends = zip(footer.first[first].to_list(), footer.last[first].to_list(), strict=True)
        leads = [first_value if first_value == last_value else None for first_value, last_value in ends]
    for lead, group in groupby(numbers, leads.__getitem__):
        batch_names = names if lead is None else [name for name in names if name != first]
        is_small = all(_is_small(run_schema.file_schema.field(name).type) for name in batch_names)
        pending: list[int] = []
        rows = 0
        for number in group:
            group_rows = footer.metadata.row_group(number).num_rows
            if pending and (not is_small or rows + group_rows > _MAX_ROWS_TOGETHER):
                yield _Batch(pending, batch_names, lead)
                pending, rows = [], 0
            pending.append(number)
            rows += group_rows
        yield _Batch(pending, batch_names, lead)


def _is_small(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) or pa.types.is_decimal(type_))
