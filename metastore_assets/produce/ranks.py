"""Ranks in a sum stage: how much lies before a key, and which key lies at a rank, from a block or two of each run.

Rows of runs are added up, so what lies before a key is the sum, over all runs, of what lies before it in each: the sums
of whole row groups, which the file's footer tells, and one row group to look into.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.dataset import Dataset, summed
from metastore_assets.produce.order import Order, canonical
from metastore_assets.produce.rank_index import Blocks, RankIndex
from metastore_assets.produce.rows import frame_of, table_of
from metastore_assets.produce.runs import Run, wrapped

RANK = "rank"
_INDICES = 16
"""Shards of which it is kept where their row groups are."""


class Ranks:
    """Answers by rank within the keys that agree in all key columns but the last: their *prefix*.

    Exact, whatever was added and taken away. A rank is the sum of the amounts of the lesser keys of the prefix: a key
    with frequency 3 behind lesser ones with 5 in all has ranks 5, 6 and 7. Lesser is before in the stage's order.
    """

    def __init__(self, stage: str, dataset: Dataset, amount: str) -> None:
        """Raises GraphError where `amount` is no integer total that is never below zero."""
        run_schema = dataset.run_schema
        if amount not in run_schema.counted or amount not in run_schema.unsigned:
            raise GraphError(
                f"{stage!r} has no ranks by {amount!r}: that takes an integer total of a sum stage that is never below "
                f"zero; there are: {', '.join(n for n in run_schema.counted if n in run_schema.unsigned) or 'none'}"
            )
        self._dataset = dataset
        self._amount = amount
        self._place = run_schema.counted.index(amount)
        self._order = run_schema.group
        self._prefix = run_schema.group.first(len(run_schema.group.columns) - 1)
        self._blocks = Blocks(dataset.storage, run_schema)
        self._indices: OrderedDict[int, RankIndex] = OrderedDict()

    def total(self, prefix: pa.Table | None = None) -> int:
        """The sum of the amounts of a prefix, which is a table of one row; without it, or columns, of all keys."""
        start, stop = self._bounds(self._one(prefix, self._prefix))
        return stop - start

    def rank(self, keys: pa.Table) -> list[int]:
        """Per row (all key columns) the rank of its key within its prefix; the key need not exist."""
        frame = self._frame(keys, self._order)
        rows = (frame[row] for row in range(frame.height))
        return [self._before(row, self._order) - self._bounds(row)[0] for row in rows]

    def count_between(self, low: pa.Table, high: pa.Table) -> int:
        """The sum of the amounts from the key `low` to `high`, both inclusive: tables of one row, of one prefix."""
        first, last = self._one(low, self._order), self._one(high, self._order)
        return max(0, self._before(last, self._order, inclusive=True) - self._before(first, self._order))

    def at_rank(self, prefix: pa.Table | None, rank: int) -> pa.Table:
        """The row that holds a rank of a prefix: key and totals, and the column `rank`, the first rank that it holds.

        Raises IndexError unless 0 <= rank < total.
        """
        start, stop = self._bounds(self._one(prefix, self._prefix))
        if not 0 <= rank < stop - start:
            raise IndexError(f"there is no rank {rank}: ranks go from 0 up to {stop - start}, and not with it")
        rows = self._found(start + rank).with_columns(pl.col(RANK) - start)
        return table_of(rows, self._dataset.run_schema.schema.append(pa.field(RANK, pa.int64())))

    def _found(self, wanted: int) -> pl.DataFrame:
        """The row that an absolute rank lies in."""
        shard = self._shard_of(wanted)
        own, index = self._dataset.state.ranges()[shard], self._index(shard)
        # The edges in the shard; the one before them stands for where it begins.
        first = 0 if own.after is None else index.place(own.after, self._order, inclusive=True)
        stop = index.edges.height if own.until is None else index.place(own.until, self._order, inclusive=True)
        start = self._sum_of_shards(shard)
        # What went makes it fall now and then.
        about = np.maximum.accumulate(index.about(slice(first, stop)))
        edge = _last_that(
            lambda at: at < first or wrapped(start + index.before_edge(at)) <= wanted,
            (first - 1, stop - 1),
            first - 1 + int(np.searchsorted(about, wanted - start, "right")),
        )
        after = index.edges[edge] if edge >= first else own.after
        so_far = 0 if after is None else self._before(after, self._order, inclusive=edge < first)
        # Of the next edge there may be rows in other row groups.
        until = index.edges[edge + 1] if edge + 1 < stop else own.until
        frames = index.rows_behind(edge)
        if after is not None:
            frames = [rows.filter(~self._order.before(after, inclusive=edge < first)) for rows in frames]
        if until is not None:
            frames = [rows.filter(self._order.before(until, inclusive=edge + 1 == stop)) for rows in frames]
        frame = summed(frames, self._dataset.run_schema)
        ends = frame[self._amount].cum_sum() + so_far
        row = int((ends <= wanted).sum())  # There is one: the rank is below the total.
        return frame[row].with_columns(pl.lit(int(ends[row]) - frame[self._amount][row], pl.Int64).alias(RANK))

    def _shard_of(self, wanted: int) -> int:
        """The shard that an absolute rank lies in."""
        splitters = self._dataset.state.splitters
        about = [self._sum_of_shards(shard) for shard in range(splitters.height + 1)]
        return _last_that(
            lambda at: at == 0 or self._before(splitters[at - 1], self._order, inclusive=True) <= wanted,
            (0, splitters.height),
            int(np.searchsorted(np.maximum.accumulate(about), wanted, "right")) - 1,
        )

    def _bounds(self, prefix: pl.DataFrame) -> tuple[int, int]:
        """What lies before the first key of a prefix, and before the first one behind it."""
        return self._before(prefix, self._prefix), self._before(prefix, self._prefix, inclusive=True)

    def _before(self, bound: pl.DataFrame, order: Order, *, inclusive: bool = False) -> int:
        """The sum over all keys before a bound in an order, or equal to it and `inclusive`."""
        state = self._dataset.state
        if not order.columns:
            return wrapped(sum(self._sum(run) for run in state.runs())) if inclusive else 0
        shard = int(state.splitters.select(order.before(bound, inclusive=inclusive).sum()).item())
        return wrapped(self._sum_of_shards(shard) + self._index(shard).before(bound, order, inclusive=inclusive))

    def _sum_of_shards(self, stop: int) -> int:
        """Of all rows in the shards before one; what is in runs of all shards is not among them."""
        return sum(self._sum(run) for shard in self._dataset.state.shards[:stop] for run in shard.runs)

    def _sum(self, run: Run) -> int:
        return run.sums[self._place] if run.rows else 0

    def _index(self, shard: int) -> RankIndex:
        """Of the runs that have keys of a shard."""
        if shard not in self._indices:
            state = self._dataset.state
            runs = (*state.level0, *(state.shards[shard].runs if state.shards else ()))
            self._indices[shard] = RankIndex(self._blocks, runs, self._amount)
            if len(self._indices) > _INDICES:
                self._indices.popitem(last=False)
        self._indices.move_to_end(shard)
        return self._indices[shard]

    def _one(self, key: pa.Table | None, order: Order) -> pl.DataFrame:
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
        return canonical(frame_of(keys.select(schema.names).cast(schema)), schema.names)


def _last_that(holds: Callable[[int], bool], ends: tuple[int, int], guess: int) -> int:
    """The last of some numbers, both ends included, of which a condition holds: it holds of the first one, and once it
    does not, of none that follow. The nearer the guess, the less often it is asked.
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
