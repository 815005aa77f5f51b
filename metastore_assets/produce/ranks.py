"""Ranks in a sum stage: how much lies before a key, and which key lies at a rank, from a block or two of each run.

Rows of runs are added up, so what lies before a key is the sum, over all runs, of what lies before it in each: the sums
of whole row groups, which the file's footer tells, and one row group to look into.
"""

from __future__ import annotations

from collections import OrderedDict

import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.order import Order, canonical
from metastore_assets.produce.rows import frame_of, table_of
from metastore_assets.produce.runs import KeyRange, Run, footer_of, wrapped

RANK = "rank"
_BLOCKS = 32
"""Row groups that are kept for the next question."""


class Ranks:
    """Answers by rank within the keys that agree in all key columns but the last: their *prefix*.

    Exact, whatever was added and taken away. A rank is the sum of the amounts of the lesser keys of the prefix: of a
    key with frequency 3 behind lesser ones with 5 in all, ranks 5, 6 and 7. Lesser is before in the stage's order.
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
        self._blocks: OrderedDict[tuple[str, int], pl.DataFrame] = OrderedDict()

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
        wanted = start + rank
        edges = self._edges()
        low, high = 0, edges.height - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._before(edges[middle], self._order) <= wanted else (low, middle - 1)
        until = edges[low + 1] if low + 1 < edges.height else None
        row = self._found(KeyRange(edges[low], until, closed=True), wanted)
        rows = row.with_columns(pl.col(RANK) - start)
        return table_of(rows, self._dataset.run_schema.schema.append(pa.field(RANK, pa.int64())))

    def _found(self, key_range: KeyRange, wanted: int) -> pl.DataFrame:
        """The row of a range that an absolute rank lies in."""
        assert key_range.after is not None
        so_far = self._before(key_range.after, self._order)
        for frame in self._dataset.scan(key_range).frames:
            ends = frame[self._amount].cum_sum() + so_far
            row = int((ends <= wanted).sum())
            if row < frame.height:
                end = int(ends[row])
                return frame[row].with_columns(pl.lit(end - frame[self._amount][row], pl.Int64).alias(RANK))
            so_far = int(ends[-1])
        raise AssertionError("a rank below the total lies in a row")

    def _edges(self) -> pl.DataFrame:
        """The first keys of all row groups, ascending, each once."""
        firsts = [footer_of(self._dataset.storage, run.path).first for run in self._dataset.state.runs()]
        return self._order.distinct(self._order.sort(pl.concat([self._dataset.run_schema.empty_keys, *firsts])))

    def _bounds(self, prefix: pl.DataFrame) -> tuple[int, int]:
        """What lies before the first key of a prefix, and before the first one behind it."""
        return self._before(prefix, self._prefix), self._before(prefix, self._prefix, inclusive=True)

    def _before(self, bound: pl.DataFrame, order: Order, *, inclusive: bool = False) -> int:
        """The sum over all keys before a bound in an order, or equal to it and `inclusive`."""
        if not order.columns:
            return sum(self._sum(run) for run in self._dataset.state.runs()) if inclusive else 0
        found = 0
        state = self._dataset.state
        past = state.splitters.select(order.before(bound, inclusive=inclusive).sum()).item()
        # Shards up to there are before the bound as a whole; those beyond the one that it lies in are not read.
        for number, shard in enumerate(state.shards[: past + 1]):
            found += sum(
                self._sum(run) if number < past else self._part(run, bound, order, inclusive) for run in shard.runs
            )
        return wrapped(found + sum(self._part(run, bound, order, inclusive) for run in state.level0))

    def _sum(self, run: Run) -> int:
        return run.sums[self._place] if run.rows else 0

    def _part(self, run: Run, bound: pl.DataFrame, order: Order, inclusive: bool) -> int:
        """The sum over the rows of one run before a bound."""
        footer = footer_of(self._dataset.storage, run.path)
        before = order.before(bound, inclusive=inclusive)
        whole, begun = (ends.select(before.sum()).item() for ends in (footer.last, footer.first))
        found = sum(sums[self._place] for sums in footer.sums[:whole])
        if begun > whole:
            found += int(self._block(run, whole).filter(before)[self._amount].sum())
        return found

    def _block(self, run: Run, number: int) -> pl.DataFrame:
        """Keys and amounts of a row group."""
        name = run.path, number
        if name not in self._blocks:
            storage = self._dataset.storage
            with storage.open_parquet(run.path, footer_of(storage, run.path).metadata) as file:
                columns = [*self._order.columns, self._amount]
                self._blocks[name] = frame_of(file.read_row_group(number, columns=columns))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(name)
        return self._blocks[name]

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
