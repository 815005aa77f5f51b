"""Ranks in a sum stage: the sum of the amounts before a key, and the key at a rank.

A sum stage has totals by key. Several sorted files (runs) contain amounts, and the total of a key is the sum over all
runs. The sum before a key is added up over all runs, too. Each run contributes complete row groups, whose sums are in
the file's footer, and a part of one row group, which must be read. A shard is a key range with its own runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.dataset import Dataset, sum_rows
from metastore_assets.produce.order import Order, normalize_zeros
from metastore_assets.produce.rank_index import Blocks, RankIndex
from metastore_assets.produce.runs import Run, wrap_int64
from metastore_assets.produce.typed_rows import frame_of, table_of

RANK = "rank"
_INDICES = 16
"""Number of shards whose index is cached."""


class Ranks:
    """A reader that finds the rank of a key and the key at a rank, in one version of a sum stage.

    Ranks count among the keys with the same prefix: the same values in all key columns except the last one. The first
    rank of a key is the sum of the amounts of the keys before it with the same prefix. A key has as many ranks as its
    amount. A key with the amount 3, after keys with a total of 5, has the ranks 5, 6 and 7.
    """

    def __init__(self, stage: str, dataset: Dataset, amount: str) -> None:
        """Create a reader of ranks.

        Args:
            stage: Name of the sum stage, for messages.
            dataset: The content of the stage.
            amount: Name of the total that says how many ranks a key has.

        Raises:
            GraphError: `amount` is not the name of an int64 total that is declared as never negative.
        """
        run_schema = dataset.run_schema
        if amount not in run_schema.counted or amount not in run_schema.unsigned:
            raise GraphError(
                f"{stage!r} has no ranks by {amount!r}: that takes an integer total of a sum stage that is never below "
                f"zero; there are: {', '.join(n for n in run_schema.counted if n in run_schema.unsigned) or 'none'}"
            )
        self._dataset = dataset
        self._amount = amount
        self._amount_index = run_schema.counted.index(amount)
        self._order = run_schema.group
        self._prefix = run_schema.group.first(len(run_schema.group.columns) - 1)
        self._blocks = Blocks(dataset.storage, run_schema)
        self._indices: OrderedDict[int, RankIndex] = OrderedDict()

    def total(self, prefix: pa.Table | None = None) -> int:
        """Return the sum of the amounts of the keys that begin with `prefix`, or of all keys if it is None.

        Args:
            prefix: The values of all key columns except the last one, as a table with one row; None for all keys.
        """
        if prefix is None:
            return self._before(pl.DataFrame(), self._prefix.first(0), inclusive=True)
        start, stop = self._bounds(self._one_row(prefix, self._prefix))
        return stop - start

    def rank(self, keys: pa.Table) -> list[int]:
        """Return the first rank of each key, in the order of the rows of `keys`.

        It is the sum of the amounts of the keys before it that have the same prefix: the same values in all key columns
        except the last one. A key that does not exist gets the rank that it would have if it were added.
        """
        frame = self._frame(keys, self._order)
        rows = (frame[row] for row in range(frame.height))
        return [self._before(row, self._order) - self._bounds(row)[0] for row in rows]

    def amount_between(self, low: pa.Table, high: pa.Table) -> int:
        """Return the sum of the amounts of the keys from `low` to `high`, both inclusive.

        Args:
            low: The first key, as a table with one row.
            high: The last key, as a table with one row. It should differ from `low` only in the last key column. This
                is not checked. Otherwise, the sum covers keys with several prefixes.
        """
        first, last = self._one_row(low, self._order), self._one_row(high, self._order)
        return max(0, self._before(last, self._order, inclusive=True) - self._before(first, self._order))

    def at_rank(self, prefix: pa.Table | None, rank: int) -> pa.Table:
        """Return the row that contains a rank: its key, its totals, and its first rank as the column `rank`.

        A row has as many ranks as its amount. Rank 0 is at the first key with the prefix.

        Args:
            prefix: The values of all key columns except the last one, as a table with one row. None if the key has
                only one column.
            rank: The rank, from 0.

        Raises:
            IndexError: The rank is negative, or not less than `total(prefix)`.
        """
        start, stop = self._bounds(self._one_row(prefix, self._prefix))
        if not 0 <= rank < stop - start:
            raise IndexError(f"there is no rank {rank}: ranks begin at 0, and their number is {stop - start}")
        rows = self._row_at(start + rank).with_columns(pl.col(RANK) - start)
        return table_of(rows, self._dataset.run_schema.schema.append(pa.field(RANK, pa.int64())))

    def _row_at(self, rank: int) -> pl.DataFrame:
        """Return the row that contains a rank, with its first rank in the added column `rank`.

        A row has as many ranks as its amount. Here, rank 0 is at the start of the dataset. In public methods, it is at
        the first key with the same prefix.
        """
        shard = self._shard_of(rank)
        shard_range, index = self._dataset.state.ranges()[shard], self._index(shard)
        # The edges in the shard, preceded by the one where the shard starts.
        first = 0 if shard_range.after is None else index.count_edges(shard_range.after, self._order, inclusive=True)
        stop = (
            index.edges.height
            if shard_range.until is None
            else index.count_edges(shard_range.until, self._order, inclusive=True)
        )
        start = self._sum_of_shards(shard)
        # Single runs have negative amounts, so the partial sums may decrease.
        estimates = np.maximum.accumulate(index.estimate_sums(slice(first, stop)))
        edge = _last_where(
            lambda at: at < first or wrap_int64(start + index.before_edge(at)) <= rank,
            (first - 1, stop - 1),
            first - 1 + int(np.searchsorted(estimates, rank - start, "right")),
        )
        after = index.edges[edge] if edge >= first else shard_range.after
        so_far = 0 if after is None else self._before(after, self._order, inclusive=edge < first)
        # Other row groups may contain more rows of the next edge's key.
        until = index.edges[edge + 1] if edge + 1 < stop else shard_range.until
        frames = index.rows_behind(edge)
        if after is not None:
            frames = [rows.filter(~self._order.before(after, inclusive=edge < first)) for rows in frames]
        if until is not None:
            frames = [rows.filter(self._order.before(until, inclusive=edge + 1 == stop)) for rows in frames]
        frame = sum_rows(frames, self._dataset.run_schema)
        ends = frame[self._amount].cum_sum() + so_far
        row = int((ends <= rank).sum())  # The row exists, because the rank is below the total.
        return frame[row].with_columns(pl.lit(int(ends[row]) - frame[self._amount][row], pl.Int64).alias(RANK))

    def _shard_of(self, rank: int) -> int:
        """Return the number of the shard (key range) that contains a rank.

        `rank` counts from the first key of the dataset, as in `_row_at`.
        """
        splitters = self._dataset.state.splitters
        estimates = [self._sum_of_shards(shard) for shard in range(splitters.height + 1)]
        return _last_where(
            lambda at: at == 0 or self._before(splitters[at - 1], self._order, inclusive=True) <= rank,
            (0, splitters.height),
            int(np.searchsorted(np.maximum.accumulate(estimates), rank, "right")) - 1,
        )

    def _bounds(self, prefix: pl.DataFrame) -> tuple[int, int]:
        """Return (sum of the amounts before the keys with a prefix, sum up to the last of these keys).

        The second sum includes the last key. A prefix is a frame with one row: a value for each key column except the
        last one.
        """
        return self._before(prefix, self._prefix), self._before(prefix, self._prefix, inclusive=True)

    def _before(self, bound: pl.DataFrame, order: Order, *, inclusive: bool = False) -> int:
        """Return the sum of the amounts of all keys before a bound, modulo 2**64.

        Args:
            bound: A frame with one row.
            order: The order of the key columns that are compared with the bound: all of them, or the first ones.
            inclusive: Whether keys that equal the bound in these columns count.
        """
        state = self._dataset.state
        if not order.columns:
            return wrap_int64(sum(self._sum(run) for run in state.runs())) if inclusive else 0
        shard = int(state.splitters.select(order.before(bound, inclusive=inclusive).sum()).item())
        return wrap_int64(self._sum_of_shards(shard) + self._index(shard).before(bound, order, inclusive=inclusive))

    def _sum_of_shards(self, stop: int) -> int:
        """Return the sum of the amounts in the runs of the first `stop` shards.

        A shard is a key range with its own runs. The newest runs, those of level 0, belong to no shard. Their amounts
        are not included.
        """
        return sum(self._sum(run) for shard in self._dataset.state.shards[:stop] for run in shard.runs)

    def _sum(self, run: Run) -> int:
        return run.sums[self._amount_index] if run.rows else 0

    def _index(self, shard: int) -> RankIndex:
        """Return the cached index over the runs that have keys of a shard."""
        if shard not in self._indices:
            state = self._dataset.state
            runs = (*state.level0, *(state.shards[shard].runs if state.shards else ()))
            self._indices[shard] = RankIndex(self._blocks, runs, self._amount)
            if len(self._indices) > _INDICES:
                self._indices.popitem(last=False)
        self._indices.move_to_end(shard)
        return self._indices[shard]

    def _one_row(self, key: pa.Table | None, order: Order) -> pl.DataFrame:
        """Convert a key to a frame with one row.

        A prefix is accepted, too: a key without its last column.

        Args:
            key: The key or prefix, as a table with one row. It is ignored, and may be None, if `order` has no columns.
            order: `self._order` for a key, `self._prefix` for a prefix. Without columns, the result is an empty frame.

        Raises:
            ValueError: The table lacks a column of the order, or does not have exactly one row.
        """
        if not order.columns:
            return pl.DataFrame()
        frame = self._frame(pa.table({}) if key is None else key, order)
        if frame.height != 1:
            raise ValueError(f"give one row of {', '.join(order.columns)}, not {frame.height}")
        return frame

    def _frame(self, keys: pa.Table, order: Order) -> pl.DataFrame:
        missing = [name for name in order.columns if name not in keys.column_names]
        if missing:
            raise ValueError(f"the key column {missing[0]!r} is missing; give {', '.join(order.columns)}")
        schema = pa.schema([self._dataset.run_schema.schema.field(name) for name in order.columns])
        return normalize_zeros(frame_of(keys.select(schema.names).cast(schema)), schema.names)


def _last_where(holds: Callable[[int], bool], ends: tuple[int, int], guess: int) -> int:
    """Return the last number in a range for which a condition holds.

    Args:
        holds: The condition, which holds for the first number. Once it is false, it is false for all greater numbers.
        ends: The first and the last number, both inclusive.
        guess: A number near the result; a close one saves evaluations.
    """
    low, high = ends
    step = 1
    guess = min(max(guess, low), high)
    if guess == low or holds(guess):
        low = guess
        while low + step <= high and holds(low + step):
            low, step = low + step, 2 * step
        high = min(high, low + step - 1)
    else:
        high = guess - 1
        while high - step > low and not holds(high - step):
            high, step = high - step - 1, 2 * step
        low = max(low, high - step)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
