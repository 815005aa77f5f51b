"""An index over several sorted files (runs) of totals.

It computes the sum of an amount over all rows before a key.

The sum consists of the sums of complete row groups, and of some rows of the row groups that contain the key. The first
and last keys of all row groups, sorted, are called *edges*. No row group starts or ends between two adjacent edges, so
the number of edges before a key selects the row groups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from metastore_assets.produce.order import Order
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import Run, footer_of, wrap_int64
from metastore_assets.produce.typed_rows import frame_of
from metastore_assets.store.objects import ObjectStore

_BLOCK_BYTES = 32 << 20
"""Maximum size in bytes of the cached row groups."""


class Blocks:
    """A reader of the row groups of runs.

    It caches the row groups that were read last.
    """

    def __init__(self, storage: ObjectStore, run_schema: RunSchema) -> None:
        self.storage = storage
        self.run_schema = run_schema
        self._cached: OrderedDict[tuple[str, int], pl.DataFrame] = OrderedDict()
        self._bytes = 0

    def read(self, run: Run, number: int) -> pl.DataFrame:
        """Return the rows of one row group."""
        name = run.path, number
        if name not in self._cached:
            with self.storage.open_parquet(run.path, footer_of(self.storage, run.path).metadata) as file:
                self._cached[name] = frame_of(file.read_row_group(number, columns=self.run_schema.schema.names))
            self._bytes += int(self._cached[name].estimated_size())
            while self._bytes > _BLOCK_BYTES and len(self._cached) > 1:
                _, previous = self._cached.popitem(last=False)
                self._bytes -= int(previous.estimated_size())
        self._cached.move_to_end(name)
        return self._cached[name]


class RankIndex:
    """An index over the row groups of several runs, which computes sums of one amount before a key."""

    def __init__(self, blocks: Blocks, runs: Sequence[Run], amount: str) -> None:
        """Read the footers of the runs.

        Args:
            blocks: Reads row groups of the runs, with their schema.
            runs: The runs, in any order.
            amount: Name of the int64 amount that is added up.
        """
        self._blocks = blocks
        self._amount = amount
        amount_index = blocks.run_schema.counted.index(amount)
        footers = [(run, footer_of(blocks.storage, run.path)) for run in runs]
        self._groups = [(run, number) for run, footer in footers for number in range(footer.first.height)]
        # Give each first key and each last key of a row group the number of its edge, in one sort of all keys.
        ends = [part for end in ("first", "last") for part in (getattr(footer, end) for _, footer in footers)]
        order = blocks.run_schema.group
        numbered_ends = pl.concat([blocks.run_schema.empty_keys, *ends]).with_row_index("_end")
        sorted_ends = order.sort(numbered_ends).with_columns((order.changes().cum_sum() - 1).alias("_edge"))
        self.edges = order.distinct(sorted_ends)
        """The distinct first and last keys of all row groups, ascending."""
        edge_of = sorted_ends.sort("_end")["_edge"].to_numpy().astype(np.int64)
        self._first, self._last = np.split(edge_of, 2)
        sums = np.array(
            [row_group_sums[amount_index] for _, footer in footers for row_group_sums in footer.sums], np.int64
        )
        # Add the sum of each row group at the edge after the one that it ends at.
        sums_by_edge = np.zeros(self.edges.height + 1, np.int64)
        np.add.at(sums_by_edge, self._last + 1, sums)
        self._cumulative: npt.NDArray[np.int64] = np.cumsum(sums_by_edge)
        """At index n, the sum of all row groups that end within the first n edges."""

    def estimate_sums(self, edges: slice) -> npt.NDArray[np.int64]:
        """Return an estimate of the sum of all rows before each edge in a slice of `self.edges`.

        An edge is the first or last key of a row group. Row groups that end before the edge are added up. Row groups
        that contain the edge are not.
        """
        return self._cumulative[edges]

    def count_edges(self, bound: pl.DataFrame, order: Order, *, inclusive: bool = False) -> int:
        """Return the number of `edges` (first and last keys of row groups) before a key.

        Args:
            bound: The key, as a frame with one row.
            order: The order in which edges and key are compared.
            inclusive: Whether an edge that equals the key counts.
        """
        return int(self.edges.select(order.before(bound, inclusive=inclusive).sum()).item())

    def before(self, bound: pl.DataFrame, order: Order, *, inclusive: bool = False) -> int:
        """Return the sum of the amount over all rows before a key.

        The sum is computed modulo 2**64.

        Args:
            bound: The key, as a frame with one row.
            order: The order in which rows and key are compared.
            inclusive: Whether rows with the key itself count.
        """
        edge_count = self.count_edges(bound, order, inclusive=inclusive)
        return self._sum(edge_count, bound, order, inclusive)

    def before_edge(self, number: int) -> int:
        """Return the sum of the amount over all rows before `edges[number]`, modulo 2**64."""
        return self._sum(number, self.edges[number], self._blocks.run_schema.group, False)

    def rows_behind(self, number: int) -> list[pl.DataFrame]:
        """Return all rows of the row groups whose key range contains `edges[number]`.

        There is one frame per row group. For −1, the place before the first edge, the list is empty.
        """
        return self._read((self._first <= number) & (self._last >= number))

    def _sum(self, edge_count: int, bound: pl.DataFrame, order: Order, inclusive: bool) -> int:
        total = int(self._cumulative[edge_count])
        frames = self._read((self._first < edge_count) & (self._last >= edge_count))
        if frames:
            rows = pl.concat(frames, rechunk=False)
            total += int(rows.filter(order.before(bound, inclusive=inclusive))[self._amount].sum())
        return wrap_int64(total)

    def _read(self, group_mask: npt.NDArray[np.bool_]) -> list[pl.DataFrame]:
        return [self._blocks.read(*self._groups[at]) for at in np.flatnonzero(group_mask)]
